//! Who may do what: the one place where access is decided.
//!
//! A decision is a function of the actor, the operation and what the row says of itself ([`Scope`]), without I/O and
//! without state. It is asked for twice: by the server before a request's body is read, with [`Scope::Unseen`], and for
//! every row that the request names, before any secret, provider or network is touched; and once more by each mutating
//! call of this crate, so that a way that forgets to ask is no hole. A refusal for an actor's role is
//! [`Error::Forbidden`]; a row of a company or a run that is not the actor's is [`Error::NotFound`], since the actor may
//! not know that it exists.

mod operation;

pub use operation::Operation;

use crate::actor::{Actor, ActorKind, Role};
use crate::error::{Error, Result};

/// How much of a row an actor sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// All that the API tells of it.
    Whole,
    /// Without what tells of a target: of an environment its configuration, variables and metadata; of a lease what the
    /// target calls it, where it is, and what went wrong there.
    Blanked,
    /// What an agent chooses by: ids, keys and booleans. No name, no words about a target, and nothing that could be one.
    Safe,
}

/// Which rows a cell of the table speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Span {
    /// The caller's own, whatever they are; the call itself sees to it.
    Caller,
    /// Those of the caller's companies, and those that companies share.
    Company,
    /// Those of the caller's company and its run.
    Run,
}

/// What one kind of actor may do with one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    span: Span,
    view: View,
}

/// What is known of the row that an operation is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// Nothing yet: whether the actor may ask at all.
    Unseen,
    /// It is the instance's own.
    Instance,
    /// It is there for every company.
    Shared,
    /// It is this company's.
    Company(&'a str),
    /// It is this company's, and was made for this run, where it was made for one.
    Run {
        /// The company's id.
        company: &'a str,
        /// The client's name of the run.
        run: Option<&'a str>,
    },
}

impl<'a> Scope<'a> {
    /// Of a row that belongs to a company, or to none and is shared.
    pub fn of(company: Option<&'a str>) -> Scope<'a> {
        company.map_or(Scope::Shared, Scope::Company)
    }
}

/// Why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// Nobody of this role may.
    Forbidden,
    /// The row is nothing that the actor may know of.
    Hidden,
}

/// Whether `actor` may do `operation` with a row of this scope, and how much of it the actor then sees.
pub fn decide(actor: &Actor, operation: Operation, scope: Scope<'_>) -> Result<View, Denial> {
    let role = match &actor.kind {
        // What is left of a lease that was given up is a person's to answer for.
        ActorKind::System if operation == Operation::AbandonLease => return Err(Denial::Forbidden),
        ActorKind::LocalOperator | ActorKind::System => return Ok(View::Whole),
        ActorKind::Token { role, .. } => role,
    };
    let cell = match role {
        Role::Admin => return Ok(View::Whole),
        Role::Member { .. } => operation.member(),
        Role::Agent { .. } => operation.agent(),
    };
    let Cell { span, view } = cell.ok_or(Denial::Forbidden)?;
    if span == Span::Caller {
        return Ok(view);
    }
    let within = |company: &str| match role {
        Role::Admin => true,
        Role::Member { companies } => companies.contains(company),
        Role::Agent { company: own, .. } => own == company,
    };
    let theirs = match scope {
        Scope::Unseen | Scope::Shared => true,
        Scope::Instance => false,
        Scope::Company(company) => within(company),
        Scope::Run { company, run } => {
            within(company)
                && (span == Span::Company || role.run().is_none_or(|own| run == Some(own)))
        }
    };
    if theirs {
        Ok(view)
    } else {
        Err(Denial::Hidden)
    }
}

/// Who may, in words.
fn those_who_may(operation: Operation) -> String {
    let mut who = "the local operator and instance administrators".to_owned();
    if operation.member().is_some() {
        who.push_str(", and board members of the company");
    }
    if operation.agent().is_some() {
        who.push_str(", and agents of the company");
    }
    who
}

impl Actor {
    /// Whether it may ask for `operation` at all.
    ///
    /// # Errors
    /// [`Error::Forbidden`].
    pub fn may(&self, operation: Operation) -> Result<View> {
        self.may_on(operation, Scope::Unseen, "row", "")
    }

    /// Whether it may do `operation` with a row of this scope. `what` and `id` are what was asked for.
    ///
    /// # Errors
    /// [`Error::Forbidden`], or [`Error::NotFound`] of a row that it may not know of.
    pub fn may_on(
        &self,
        operation: Operation,
        scope: Scope<'_>,
        what: &'static str,
        id: &str,
    ) -> Result<View> {
        decide(self, operation, scope).map_err(|denial| match denial {
            Denial::Forbidden => Error::forbidden(format!(
                "`{}` is not for {}: {} may",
                operation.name(),
                match &self.kind {
                    ActorKind::LocalOperator => "the local operator",
                    ActorKind::System => "the server itself",
                    ActorKind::Token { role, .. } => match role {
                        Role::Admin => "instance administrators",
                        Role::Member { .. } => "board members",
                        Role::Agent { .. } => "agents",
                    },
                },
                those_who_may(operation),
            )),
            Denial::Hidden => Error::not_found(what, id),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(role: Role) -> Actor {
        Actor {
            kind: ActorKind::Token {
                id: "tok_1".into(),
                role,
            },
            display: "t".into(),
        }
    }

    fn bound() -> Actor {
        token(Role::Agent {
            company: "a".into(),
            run: Some("r1".into()),
        })
    }

    #[test]
    fn every_operation_is_found_by_its_name_and_by_no_other() {
        for operation in Operation::ALL {
            assert_eq!(Operation::named(operation.name()), Some(*operation));
        }
        assert_eq!(Operation::named("GetLease"), None);
        assert_eq!(Operation::named(""), None);
    }

    #[test]
    fn a_row_of_another_company_is_hidden_and_a_role_that_may_not_is_refused_first() {
        let here = Scope::Company("a");
        let there = Scope::Company("b");
        let member = token(Role::Member {
            companies: ["a".to_owned(), "c".to_owned()].into(),
        });
        let read = Operation::GetEnvironment;
        assert_eq!(decide(&member, read, here), Ok(View::Blanked));
        assert_eq!(
            decide(&member, read, Scope::Company("c")),
            Ok(View::Blanked)
        );
        assert_eq!(decide(&member, read, there), Err(Denial::Hidden));
        assert_eq!(decide(&member, read, Scope::Shared), Ok(View::Blanked));
        assert_eq!(decide(&member, read, Scope::Instance), Err(Denial::Hidden));
        let manage = Operation::UpdateEnvironment;
        for scope in [here, there, Scope::Shared, Scope::Unseen] {
            assert_eq!(decide(&member, manage, scope), Err(Denial::Forbidden));
            assert_eq!(decide(&bound(), manage, scope), Err(Denial::Forbidden));
            for all in [Actor::local_operator(), token(Role::Admin)] {
                assert_eq!(decide(&all, manage, scope), Ok(View::Whole));
            }
        }
    }

    #[test]
    fn an_agent_of_a_run_has_the_leases_of_that_run_alone() {
        let lease = |company, run| Scope::Run { company, run };
        let operation = Operation::ReleaseLease;
        assert_eq!(
            decide(&bound(), operation, lease("a", Some("r1"))),
            Ok(View::Whole)
        );
        for scope in [
            lease("a", Some("r2")),
            lease("a", None),
            lease("b", Some("r1")),
        ] {
            assert_eq!(decide(&bound(), operation, scope), Err(Denial::Hidden));
        }
        let unbound = token(Role::agent("a"));
        assert_eq!(
            decide(&unbound, operation, lease("a", None)),
            Ok(View::Whole)
        );
        assert_eq!(
            decide(&unbound, operation, lease("a", Some("r2"))),
            Ok(View::Whole)
        );
        assert_eq!(
            decide(&unbound, operation, lease("b", None)),
            Err(Denial::Hidden)
        );
    }

    #[test]
    fn the_server_itself_gives_up_no_lease() {
        let system = Actor::system("x");
        assert_eq!(
            decide(&system, Operation::AbandonLease, Scope::Unseen),
            Err(Denial::Forbidden)
        );
        assert_eq!(
            decide(&system, Operation::ReleaseLease, Scope::Unseen),
            Ok(View::Whole)
        );
    }

    #[test]
    fn a_refusal_says_who_may() {
        let error = bound().may(Operation::ProbeEnvironment).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`probeEnvironment` is not for agents: the local operator and instance administrators may"
        );
    }
}
