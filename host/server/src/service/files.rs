//! Trees of files into and out of a lease, as tar archives that the host moves.
//!
//! The component is asked where to put what; the bytes pass it by. Paths are inside the lease's workspace, or absolute
//! inside the environment; what an archive may hold is egress's to decide.

use std::time::Duration;

use leasehold_authority::{ActivityOutcome, Actor, Entry, Lease, Operation, Scope};
use leasehold_contract::{ByteStream, Code, FieldViolation, Purpose};
use leasehold_egress::Reach;
use leasehold_runtime::Failure;
use serde_json::json;

use super::Service;
use super::calls::Kind;
use super::error::ServiceError;
use super::leasing::handle_of;

/// Time for one transfer.
const TRANSFER: Duration = Duration::from_secs(3600);

impl Service {
    /// Unpacks a tar below `path`, which exists; an empty path is the workspace.
    ///
    /// # Errors
    /// A lease that is not active; an entry that would leave `path`; what the target refuses.
    pub async fn put_files(
        &self,
        actor: &Actor,
        lease: &str,
        path: &str,
        archive: ByteStream,
    ) -> Result<(), ServiceError> {
        self.accepting()?;
        let lease = self.active(lease).await?;
        actor.may_on(Operation::PutFiles, scope(&lease), "lease", &lease.id)?;
        let moved = self.put(&lease, path, archive).await;
        let outcome = match &moved {
            Ok(()) => ActivityOutcome::Done,
            Err(_) => ActivityOutcome::Failed,
        };
        self.note(actor, "lease.files_put", &lease, path, outcome)
            .await;
        moved
    }

    async fn put(
        &self,
        lease: &Lease,
        path: &str,
        archive: ByteStream,
    ) -> Result<(), ServiceError> {
        let context = self.context_of(lease).await?;
        let path = resolved(lease, path)?;
        let for_lease = self.for_lease(lease);
        let mut kind = Kind::new(Purpose::Run, Reach::Act, TRANSFER);
        kind.deadline_is_ours = false;
        let call = self.call(&context, Some(&for_lease), kind).await?;
        context
            .plugin
            .put(&call.setup, &call.config, handle_of(lease), &path, archive)
            .await
            .map_err(|failure| refused(format!("copying to {path} of {}", lease.id), failure))
    }

    /// A tar of `path`; an empty path is the workspace.
    ///
    /// # Errors
    /// A lease that is not active; a path that is not there.
    pub async fn get_files(
        &self,
        actor: &Actor,
        lease: &str,
        path: &str,
    ) -> Result<ByteStream, ServiceError> {
        self.accepting()?;
        let lease = self.active(lease).await?;
        actor.may_on(Operation::GetFiles, scope(&lease), "lease", &lease.id)?;
        let begun = self.get(&lease, path).await;
        let outcome = match &begun {
            Ok(_) => ActivityOutcome::Done,
            Err(_) => ActivityOutcome::Failed,
        };
        self.note(actor, "lease.files_got", &lease, path, outcome)
            .await;
        begun
    }

    /// That files were moved is on record, by whom and where; what they hold is not looked at.
    async fn note(
        &self,
        actor: &Actor,
        action: &'static str,
        lease: &Lease,
        path: &str,
        outcome: ActivityOutcome,
    ) {
        let company = Some(lease.company_id.as_str());
        let details = json!({ "path": path });
        let entry = Entry::new(action, company, "lease", &lease.id, details).ended(outcome);
        if let Err(error) = self.authority().activity().record(actor, entry).await {
            tracing::error!(lease = lease.id, action, %error, "not recorded");
        }
    }

    async fn get(&self, lease: &Lease, path: &str) -> Result<ByteStream, ServiceError> {
        let context = self.context_of(lease).await?;
        let path = resolved(lease, path)?;
        let for_lease = self.for_lease(lease);
        let mut kind = Kind::new(Purpose::Run, Reach::Read, TRANSFER);
        kind.deadline_is_ours = false;
        let call = self.call(&context, Some(&for_lease), kind).await?;
        context
            .plugin
            .get(&call.setup, &call.config, handle_of(lease), &path)
            .await
            .map_err(|failure| refused(format!("copying from {path} of {}", lease.id), failure))
    }
}

/// Whose a lease is, for the policy.
fn scope(lease: &Lease) -> Scope<'_> {
    Scope::Run {
        company: &lease.company_id,
        run: lease.caller.run.as_deref(),
    }
}

/// What a transfer failed of. The configuration was good for the lease, so that what is invalid or not permitted here is
/// what the client sent: an archive that is refused, a path that leads out or that the account may not use.
fn refused(what: String, failure: Failure) -> ServiceError {
    let (pointer, error) = match failure {
        Failure::Provider(error) if error.code == Code::InvalidConfig => ("", error),
        Failure::Provider(error) if error.code == Code::PermissionDenied => ("?path", error),
        other => return ServiceError::of(what, other),
    };
    ServiceError::Invalid {
        violations: vec![FieldViolation {
            pointer: pointer.to_owned(),
            message: format!("{what}: {}", error.message),
        }],
    }
}

/// A path inside the environment: relative ones are the workspace's, and none climbs out of it.
fn resolved(lease: &Lease, path: &str) -> Result<String, ServiceError> {
    let refused = |message: &str| ServiceError::Invalid {
        violations: vec![FieldViolation {
            pointer: "?path".to_owned(),
            message: message.to_owned(),
        }],
    };
    if path.contains('\0') {
        return Err(refused("may not contain NUL"));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(refused("may not contain `..`; give the path that is meant"));
    }
    if path.starts_with('/') {
        return Ok(path.to_owned());
    }
    let workspace = lease
        .workspace
        .as_deref()
        .unwrap_or("/")
        .trim_end_matches('/');
    let path = path.trim_start_matches("./").trim_end_matches('/');
    Ok(if path.is_empty() || path == "." {
        workspace.to_owned()
    } else {
        format!("{workspace}/{path}")
    })
}
