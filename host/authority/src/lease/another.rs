//! A lease that stands in somebody's way: who may know of it is told which it is, and nobody else that much.

use serde_json::{Value, json};
use sqlx::SqliteConnection;

use crate::actor::Actor;
use crate::error::Result;
use crate::policy::{Operation, Scope, decide};

/// A lease in the way, as the actor may know of it.
pub(super) struct Another {
    id: String,
    status: String,
    told: bool,
}

impl Another {
    /// The lease of this id.
    pub async fn of(db: &mut SqliteConnection, actor: &Actor, id: String) -> Result<Another> {
        let (company, run, status): (String, Option<String>, String) =
            sqlx::query_as("SELECT company_id, run, status FROM leases WHERE id = $1")
                .bind(&id)
                .fetch_one(db)
                .await?;
        let scope = Scope::Run {
            company: &company,
            run: run.as_deref(),
        };
        let told = decide(actor, Operation::GetLease, scope).is_ok();
        Ok(Another { id, status, told })
    }

    /// In a sentence.
    pub fn words(&self) -> String {
        match self.told {
            true => format!("lease {} ({})", self.id, self.status),
            false => "a lease that is not yours".to_owned(),
        }
    }

    /// For a program.
    pub fn details(&self) -> Value {
        match self.told {
            true => json!({ "leaseId": self.id, "status": self.status }),
            false => json!({}),
        }
    }
}
