//! What a known caller may do.
//!
//! `manage`: the local operator and administrators. `read`: those, and members of the company. `lease`: those,
//! and agents of the company, who can do nothing else. A company that the caller is not in does not exist for it.

use leasehold_authority::{Actor, ActorKind, Role};

use crate::api::errors::ApiError;

/// Whether the caller manages the server.
pub fn manages(actor: &Actor) -> bool {
    matches!(
        actor.kind,
        ActorKind::LocalOperator
            | ActorKind::Token {
                role: Role::Admin,
                ..
            }
    )
}

/// Refuses whoever does not manage the server.
pub fn manage(actor: &Actor) -> Result<(), ApiError> {
    if manages(actor) {
        return Ok(());
    }
    Err(ApiError::forbidden(
        "only the local operator and administrators may do this",
    ))
}

/// Whether the caller belongs to the company, in whatever role.
pub fn belongs(actor: &Actor, company: &str) -> bool {
    manages(actor)
        || matches!(&actor.kind, ActorKind::Token { company: Some(own), .. } if own == company)
}

/// Refuses whoever may not read what belongs to `company`. `what` and `id` are what the request named:
/// a stranger is told that there is no such thing.
pub fn read(actor: &Actor, company: &str, what: &str, id: &str) -> Result<(), ApiError> {
    if !belongs(actor, company) {
        return Err(ApiError::not_found(what, id));
    }
    match actor.kind {
        ActorKind::Token {
            role: Role::Agent, ..
        } => Err(ApiError::forbidden(
            "an agent's token leases and runs commands; reading this takes a member's",
        )),
        _ => Ok(()),
    }
}

/// Refuses whoever may not lease, or use a lease, in `company`.
pub fn lease(actor: &Actor, company: &str, what: &str, id: &str) -> Result<(), ApiError> {
    if belongs(actor, company) {
        return Ok(());
    }
    Err(ApiError::not_found(what, id))
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::*;

    fn token(role: Role, company: Option<&str>) -> Actor {
        Actor {
            kind: ActorKind::Token {
                id: "tok_1".into(),
                role,
                company: company.map(Into::into),
            },
            display: "t".into(),
        }
    }

    fn status(result: Result<(), ApiError>) -> u16 {
        match result {
            Ok(()) => StatusCode::OK.as_u16(),
            Err(e) => e.code.status().as_u16(),
        }
    }

    #[test]
    fn each_role_may_what_it_may_in_its_own_company_and_knows_no_other() {
        // role, own company: manage, read, lease; a foreign company: read, lease
        let rows = [
            (Actor::local_operator(), [200, 200, 200], [200, 200]),
            (token(Role::Admin, None), [200, 200, 200], [200, 200]),
            (token(Role::Member, Some("c1")), [403, 200, 200], [404, 404]),
            (token(Role::Agent, Some("c1")), [403, 403, 200], [404, 404]),
        ];
        for (actor, own, foreign) in rows {
            let found = [
                status(manage(&actor)),
                status(read(&actor, "c1", "x", "1")),
                status(lease(&actor, "c1", "x", "1")),
            ];
            assert_eq!(found, own, "{actor:?}");
            let found = [
                status(read(&actor, "c2", "x", "1")),
                status(lease(&actor, "c2", "x", "1")),
            ];
            assert_eq!(found, foreign, "{actor:?}");
        }
    }
}
