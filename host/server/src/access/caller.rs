//! The proven caller of a request, and the operation that it asks for.
//!
//! There is none without a proof and without the policy's word that such an actor may ask at all. What a row's owner has
//! to say to it is asked here too, of `leasehold_authority`'s policy; nothing is decided here.

use leasehold_authority::{Actor, Operation, Scope, View};

use super::Refused;
use crate::api::errors::ApiError;
use crate::app::App;

/// Who asks, and what for. Handlers take it as an extractor.
#[derive(Clone, Debug)]
pub struct Caller {
    actor: Actor,
    operation: Operation,
}

impl Caller {
    /// The caller, if such an actor may ask for `operation`.
    ///
    /// # Errors
    /// 403.
    pub fn admitted(actor: Actor, operation: Operation) -> Result<Caller, ApiError> {
        if let Err(error) = actor.may(operation) {
            let error = ApiError::from(error);
            return Err(error.of(Refused::to_ask(actor, operation)));
        }
        Ok(Caller { actor, operation })
    }

    /// What it asks for.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// How much the caller sees of a row of this scope. `what` and `id` are what the request named.
    ///
    /// # Errors
    /// 404 of what the caller may not know of.
    pub fn sees(&self, scope: Scope<'_>, what: &'static str, id: &str) -> Result<View, ApiError> {
        self.actor
            .may_on(self.operation, scope, what, id)
            .map_err(|error| {
                let refused = Refused::row(&self.actor, self.operation, scope, what, id);
                ApiError::from(error).of(refused)
            })
    }

    /// Of what is the instance's own, or any company's: whoever is bound to companies does not see it.
    ///
    /// # Errors
    /// 404.
    pub fn sees_all(&self) -> Result<View, ApiError> {
        self.sees(Scope::Instance, "path", self.operation.name())
    }

    /// The same of a company that the request named.
    ///
    /// # Errors
    /// 404 of another's.
    pub fn sees_company(&self, company: &str) -> Result<View, ApiError> {
        self.sees(Scope::Company(company), "company", company)
    }

    /// The same, where what is answered would not say by itself that there is no such company.
    ///
    /// # Errors
    /// 404 of another's, and of one that is nobody's.
    pub async fn sees_known_company(&self, app: &App, company: &str) -> Result<View, ApiError> {
        let view = self.sees_company(company)?;
        // Who is bound to companies is bound to some that exist.
        if self.companies().is_none() {
            app.service()?.authority().companies().get(company).await?;
        }
        Ok(view)
    }
}

impl std::ops::Deref for Caller {
    type Target = Actor;

    fn deref(&self) -> &Actor {
        &self.actor
    }
}
