//! On whose behalf something is done.
//!
//! Every mutating call takes an [`Actor`] and writes it into the activity of the same transaction. What an actor may do
//! is `policy`'s alone to say; here is only who it is.

use std::collections::BTreeSet;

/// What a bearer token makes of whoever sends it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Instance administrator: everything, in every company.
    Admin,
    /// Board member of these companies, one at least: reads what is theirs.
    Member {
        /// Ids of companies.
        companies: BTreeSet<String>,
    },
    /// Leases and runs commands in one company.
    Agent {
        /// The company's id.
        company: String,
        /// The one run that it works for; none for all runs of the company.
        run: Option<String>,
    },
}

impl Role {
    /// A board member of one company.
    pub fn member(company: impl Into<String>) -> Role {
        Role::Member {
            companies: BTreeSet::from([company.into()]),
        }
    }

    /// An agent of a company, for all of its runs.
    pub fn agent(company: impl Into<String>) -> Role {
        Role::Agent {
            company: company.into(),
            run: None,
        }
    }

    /// As it is stored and written.
    pub fn as_str(&self) -> &'static str {
        match self {
            Role::Admin => "admin",
            Role::Member { .. } => "member",
            Role::Agent { .. } => "agent",
        }
    }

    /// The companies that it is bound to; none of an administrator, who is bound to none.
    pub fn companies(&self) -> Vec<&str> {
        match self {
            Role::Admin => Vec::new(),
            Role::Member { companies } => companies.iter().map(String::as_str).collect(),
            Role::Agent { company, .. } => vec![company],
        }
    }

    /// The one run of an agent that works for one.
    pub fn run(&self) -> Option<&str> {
        match self {
            Role::Agent { run, .. } => run.as_deref(),
            _ => None,
        }
    }
}

/// How the actor proved who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActorKind {
    /// By the owner-only token file, or by its uid on the server's Unix socket.
    LocalOperator,
    /// By a bearer token.
    Token {
        /// The token's id, never the token.
        id: String,
        /// What it makes of its holder.
        role: Role,
    },
    /// The server itself: expiry, reconciliation, retries.
    System,
}

/// Who does something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// How it is known.
    pub kind: ActorKind,
    /// For a person: the token's name, or what of the server acts.
    pub display: String,
}

impl Actor {
    /// The operator of this machine.
    pub fn local_operator() -> Actor {
        Actor {
            kind: ActorKind::LocalOperator,
            display: "local operator".into(),
        }
    }

    /// The server itself; `what` names the part, such as `expiry`.
    pub fn system(what: impl Into<String>) -> Actor {
        Actor {
            kind: ActorKind::System,
            display: what.into(),
        }
    }

    /// The companies whose rows alone it may know of; none of whoever may know of all.
    pub fn companies(&self) -> Option<Vec<&str>> {
        match &self.kind {
            ActorKind::LocalOperator | ActorKind::System => None,
            ActorKind::Token {
                role: Role::Admin, ..
            } => None,
            ActorKind::Token { role, .. } => Some(role.companies()),
        }
    }

    /// The one run that it works for, if it is bound to one.
    pub fn run(&self) -> Option<&str> {
        match &self.kind {
            ActorKind::Token { role, .. } => role.run(),
            _ => None,
        }
    }

    pub(crate) fn kind_str(&self) -> &'static str {
        match &self.kind {
            ActorKind::LocalOperator => "local-operator",
            ActorKind::Token { .. } => "token",
            ActorKind::System => "system",
        }
    }

    pub(crate) fn token_id(&self) -> Option<&str> {
        match &self.kind {
            ActorKind::Token { id, .. } => Some(id),
            _ => None,
        }
    }
}
