//! The commands of a lease that is being released: ended by the host, each with its true end.
//!
//! A release ends every process of a lease and then removes the record of how they ended. So what runs is killed here
//! first, and asked for while the target still has the answer: a command that a release ended is *signalled*, and one
//! that ended by itself a moment before keeps its own code. What the target cannot tell stays *unknown* (P7).

use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use leasehold_authority::{Actor, Execution, Lease};
use leasehold_contract::{Code, Purpose};
use leasehold_egress::Reach;
use leasehold_runtime::Failure;
use tokio::time::Instant;

use super::Service;
use super::calls::{ForLease, Kind};
use super::context::Context;
use super::error::ServiceError;
use super::executions::{is_settled, reference_of};
use super::leasing::{READ, handle_of};

/// How long the commands of one lease may take to be ended; what is left ends with its workspace.
const ENDING: Duration = Duration::from_secs(15);
/// Commands that are ended at once.
const AT_ONCE: usize = 8;

impl Service {
    /// Before a lease's processes and records are removed: ends its commands and writes down how each ended.
    pub(crate) async fn end_commands(
        &self,
        lease: &Lease,
        context: &Context,
        for_lease: &ForLease,
    ) {
        let executions = match self.authority().executions().list(&lease.id).await {
            Ok(executions) => executions,
            Err(error) => {
                tracing::warn!(lease = lease.id, %error, "executions cannot be read");
                return;
            }
        };
        let until = Instant::now() + ENDING;
        // One target that does not answer is not asked for each.
        let ended = futures_util::stream::iter(executions.iter())
            .filter(|execution| std::future::ready(!is_settled(execution)))
            .map(Ok)
            .try_for_each_concurrent(AT_ONCE, |execution| {
                self.end_command(execution, lease, context, for_lease, until)
            })
            .await;
        if let Err(error) = ended {
            tracing::info!(lease = lease.id, %error, "not every command is settled before the end");
        }
    }

    async fn end_command(
        &self,
        execution: &Execution,
        lease: &Lease,
        context: &Context,
        for_lease: &ForLease,
        until: Instant,
    ) -> Result<(), ServiceError> {
        let asked = self.ask_with(execution, lease, context, for_lease).await?;
        if asked.is_some() {
            return Ok(());
        }
        self.authority()
            .executions()
            .cancel(&Actor::system("release"), &execution.id)
            .await?;
        let call = self
            .call(
                context,
                Some(for_lease),
                Kind::new(Purpose::Cleanup, Reach::Act, READ),
            )
            .await?;
        let killed = context
            .plugin
            .signal(
                &call.setup,
                &call.config,
                handle_of(lease),
                &reference_of(execution),
                "KILL",
            )
            .await;
        match killed {
            Ok(()) => {}
            // It ended between the question and the signal, or its provider ends it with the environment alone.
            Err(Failure::Provider(error)) if error.code == Code::NotFound => {}
            Err(Failure::Provider(error)) if error.code == Code::Unsupported => return Ok(()),
            Err(failure) => {
                return Err(ServiceError::of(
                    format!("ending {}", execution.id),
                    failure,
                ));
            }
        }
        // Its supervisor writes the end down in its own time.
        while self
            .ask_with(execution, lease, context, for_lease)
            .await?
            .is_none()
            && Instant::now() < until
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}
