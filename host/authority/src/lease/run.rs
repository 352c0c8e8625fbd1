//! The end of a run, and of every lease that was made for it.
//!
//! Both are one transaction: no crash leaves a run that is over with a lease that nobody ends, and no lease begins for a run
//! that is over. What was acquired is released by whoever works on leases, as after an expiry.

use super::apply::Transition;
use super::machine::Event;
use super::{Leases, record};
use crate::activity::Entry;
use crate::actor::Actor;
use crate::assignment::{self, Assignee, AssigneeKind};
use crate::error::{Error, Result, code};
use crate::lease::apply::Claim;
use crate::policy::{Operation, Scope};
use crate::store::Tx;

/// A run that is over, and its leases that had not ended.
#[derive(Debug)]
pub struct RunEnd {
    /// The run.
    pub run: Assignee,
    /// Each with the step that ends its use.
    pub leases: Vec<Transition>,
}

impl Leases {
    /// Ends a run: from now on no lease begins for it, and those that it has are released. Over already is success, and ends
    /// whatever is left.
    ///
    /// # Errors
    /// [`Error::NotFound`] of a run that is not there, or not the actor's.
    pub async fn end_run(&self, actor: &Actor, id: &str) -> Result<RunEnd> {
        let (shared, actor, id) = (self.clone(), actor.clone(), id.to_owned());
        self.store
            .write(move |tx| Box::pin(shared.end_run_in(tx, actor, id)))
            .await
    }

    async fn end_run_in(self, tx: &mut Tx, actor: Actor, id: String) -> Result<RunEnd> {
        let kind = AssigneeKind::Run;
        let mut run = assignment::load(&mut tx.db, &tx.keys, kind, &id).await?;
        let scope = Scope::Run {
            company: &run.company_id,
            run: Some(&id),
        };
        actor.may_on(Operation::EndRun, scope, kind.as_str(), &id)?;
        let rows = sqlx::query(
            "SELECT * FROM leases WHERE company_id = $1 AND run = $2
                AND status IN ('acquiring', 'active', 'retained') ORDER BY created_at, id",
        )
        .bind(&run.company_id)
        .bind(&id)
        .fetch_all(&mut tx.db)
        .await?;
        if run.ended_at.is_none() {
            run.ended_at = Some(tx.now());
            run.updated_at = tx.now();
            assignment::store(tx, &run).await?;
            let entry = Entry::new(
                "run.ended",
                Some(&run.company_id),
                kind.as_str(),
                &id,
                serde_json::json!({ "count": rows.len() }),
            );
            tx.record(&actor, entry).await?;
        }
        let mut leases = Vec::with_capacity(rows.len());
        for row in &rows {
            let lease = record::lease(&self.keys, &self.host, row)?;
            let event = Event::Release {
                reason: "its run has ended".into(),
            };
            leases.push(self.step_in(tx, &actor, lease, event, Claim::Free).await?);
        }
        Ok(RunEnd { run, leases })
    }
}

/// Fails where a lease is asked for in the name of a run that is over. A run without a row is a name of the client's own.
pub(super) async fn goes_on(tx: &mut Tx, company: &str, run: Option<&str>) -> Result<()> {
    let Some(id) = run else { return Ok(()) };
    match assignment::load(&mut tx.db, &tx.keys, AssigneeKind::Run, id).await {
        Ok(run) if run.company_id == company && run.ended_at.is_some() => Err(Error::conflict(
            code::RUN_ENDED,
            format!("run {id:?} has ended, and nothing is leased for it any more: start another"),
        )),
        Ok(_) | Err(Error::NotFound { .. }) => Ok(()),
        Err(other) => Err(other),
    }
}
