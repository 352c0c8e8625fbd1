//! On whose behalf something is done.
//!
//! Every mutating call takes an [`Actor`] and writes it into the activity of the same transaction. The
//! server decides who is asking; the authority refuses once more what a role may never do, so that a
//! forgotten check in a handler is not a hole.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// What a bearer token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Everything, in every company.
    Admin,
    /// Reads and uses leases in one company.
    Member,
    /// Uses leases in one company.
    Agent,
}

impl Role {
    /// As it is stored and written.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Admin => "admin",
            Role::Member => "member",
            Role::Agent => "agent",
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Role> {
        match text {
            "admin" => Ok(Role::Admin),
            "member" => Ok(Role::Member),
            "agent" => Ok(Role::Agent),
            _ => Err(Error::corrupt("a token's role")),
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
        /// What it allows.
        role: Role,
        /// The one company of a member or an agent; none for an admin.
        company: Option<String>,
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

    /// Whether it may change companies, tokens, plugins, secrets and environments.
    pub fn can_manage(&self) -> bool {
        matches!(
            self.kind,
            ActorKind::LocalOperator
                | ActorKind::System
                | ActorKind::Token {
                    role: Role::Admin,
                    ..
                }
        )
    }

    /// Whether it may lease and run commands in `company`.
    pub fn can_use(&self, company: &str) -> bool {
        match &self.kind {
            ActorKind::Token {
                role: Role::Member | Role::Agent,
                company: own,
                ..
            } => own.as_deref() == Some(company),
            _ => true,
        }
    }

    /// [`Error::Forbidden`] unless [`Self::can_manage`].
    pub fn require_manage(&self) -> Result<()> {
        if self.can_manage() {
            Ok(())
        } else {
            Err(Error::forbidden(
                "only the local operator or an admin token may do this",
            ))
        }
    }

    /// [`Error::NotFound`] unless [`Self::can_use`]: what belongs to another company is not there.
    pub(crate) fn require_use(&self, company: &str, what: &'static str, id: &str) -> Result<()> {
        if self.can_use(company) {
            Ok(())
        } else {
            Err(Error::not_found(what, id))
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
