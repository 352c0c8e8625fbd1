//! For which company something is done with an environment.
//!
//! What a company owns is used for that company. What all share is used for one of them, which the request names, or
//! which is the only one that it can be. Decides nothing about access: of the company that it answers the policy is asked.

use leasehold_authority::{Actor, Entry, Environment, Error as AuthorityError, Operation, code};
use leasehold_contract::FieldViolation;
use serde_json::json;

use super::Service;
use super::error::ServiceError;

impl Service {
    /// The company that `environment` is to be used for; `asked` is what the request names at `pointer`.
    ///
    /// # Errors
    /// Another company than the one whose environment it is: it is not there. One that nobody knows, or none where there
    /// are several: a violation.
    pub async fn company_for(
        &self,
        actor: &Actor,
        environment: &Environment,
        asked: Option<&str>,
        pointer: &str,
    ) -> Result<String, ServiceError> {
        let wrong = |message: String| ServiceError::Invalid {
            violations: vec![FieldViolation {
                pointer: pointer.to_owned(),
                message,
            }],
        };
        match (&environment.company_id, asked) {
            (Some(own), Some(other)) if own != other => Err(AuthorityError::NotFound {
                what: "environment",
                id: environment.id.clone(),
            }
            .into()),
            (Some(own), _) => Ok(own.clone()),
            (None, Some(named)) => {
                let theirs = actor.companies().is_none_or(|own| own.contains(&named));
                match self.authority().companies().get(named).await {
                    Ok(company) if theirs => Ok(company.id),
                    Ok(_) | Err(AuthorityError::NotFound { .. }) => Err(wrong(format!(
                        "there is no company {:?}; name one by its id",
                        named.chars().take(80).collect::<String>()
                    ))),
                    Err(error) => Err(error.into()),
                }
            }
            (None, None) => {
                let known = match actor.companies() {
                    Some(own) => own.into_iter().map(str::to_owned).collect(),
                    None => {
                        let all = self.authority().companies().list().await?;
                        all.into_iter()
                            .map(|company| company.id)
                            .collect::<Vec<_>>()
                    }
                };
                match <[String; 1]>::try_from(known) {
                    Ok([only]) => Ok(only),
                    Err(_) => Err(wrong(
                        "is missing: the environment is shared by all companies; say for which of them".to_owned(),
                    )),
                }
            }
        }
    }

    /// Refuses for `company` an environment with a secret of another company, before any of them is opened; that it was
    /// asked for is noted.
    pub(super) async fn serves(
        &self,
        actor: &Actor,
        operation: Operation,
        environment: &Environment,
        company: &str,
    ) -> Result<(), ServiceError> {
        let secrets = self.authority().secrets();
        let served = secrets.serve(&environment.id, company).await;
        if let Err(AuthorityError::Conflict { code, .. }) = &served
            && *code == code::ENVIRONMENT_COMPANY_MISMATCH
        {
            let details = json!({ "operation": operation.name(), "code": code });
            let (company, id) = (Some(company), &environment.id);
            let entry = Entry::new("secret.denied", company, "environment", id, details);
            self.authority().activity().deny(actor, entry);
        }
        Ok(served?)
    }
}
