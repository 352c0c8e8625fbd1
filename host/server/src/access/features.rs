//! What this server has switched on: whether there are environments, and others than the one that it keeps itself.
//!
//! Asked once for each request, after the policy: who may not, learns that first. A lease that exists is no environment: it
//! goes on and is released whatever is switched off. Which rows are hidden then is the authority's to see to.

use leasehold_authority::Operation;

use crate::api::errors::{ApiError, ErrorCode};

/// What is switched on.
#[derive(Clone, Copy, Debug)]
pub struct Features {
    /// Whether anything about environments is answered.
    pub environments: bool,
    /// Whether the managed environment is the only one.
    pub managed_only: bool,
}

impl Features {
    /// Whether this operation of this route is there.
    ///
    /// # Errors
    /// 403 with a code of its own for each switch.
    pub fn check(self, operation: Operation, path: &str) -> Result<(), ApiError> {
        let about = path.split('/').any(|part| part == "environments")
            || matches!(
                operation,
                Operation::FetchHostKey | Operation::AcquireChosenLease
            );
        if about && !self.environments {
            return Err(ApiError::new(
                ErrorCode::EnvironmentsDisabled,
                "environments are switched off on this server (enable-environments)",
            ));
        }
        let others = matches!(
            operation,
            Operation::CreateEnvironment | Operation::ProbeDraft | Operation::FetchHostKey
        );
        if others && self.managed_only {
            return Err(ApiError::new(
                ErrorCode::EnvironmentsManagedOnly,
                "this server has no environment but the one that it keeps itself (enable-managed-sandbox-only)",
            ));
        }
        Ok(())
    }
}
