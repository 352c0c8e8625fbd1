//! The environments that the server keeps itself: its own machine, and the one of its settings.
//!
//! The latter is there as long as its provider is installed, granted, enabled and well, and archived otherwise: looked at
//! at the start, after each thing that an administrator does with a plugin, and when a breaker trips or is well again. One
//! whose provider's time to be left alone is over is active again, so that there can be the lease that tries it.

use std::time::Duration;

use leasehold_authority::{
    Actor, EnvironmentDraft, EnvironmentDriver, EnvironmentSecrets, EnvironmentStatus, Managed,
};
use serde_json::Map;

use super::Service;
use super::environments::Checked;
use super::error::ServiceError;
use crate::settings::ManagedSettings;

/// Under whose name the server keeps them.
fn keeper() -> Actor {
    Actor::system("settings")
}

impl Service {
    /// What of environments stands by itself, at the start.
    pub(crate) async fn stand(&self) -> Result<(), ServiceError> {
        self.catalog().look().await?;
        let settings = &self.inner.environments;
        let environments = self.authority().environments();
        if settings.managed_only {
            environments.show_managed_only();
        }
        if settings.enabled {
            environments.ensure_local(&keeper()).await?;
            self.keep_managed().await;
        }
        Ok(())
    }

    /// Looks after the managed environment until the server stops.
    pub(crate) async fn mind_managed(self) {
        let mut again = self.keep_managed().await;
        loop {
            let later = async {
                match again {
                    Some(time) => tokio::time::sleep(time).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.stopping().cancelled() => return,
                () = self.catalog().changed().notified() => {}
                () = later => {}
            }
            again = self.keep_managed().await;
        }
    }

    /// Makes the managed environment what it should be now. Answers when to look again, where that is known.
    pub(crate) async fn keep_managed(&self) -> Option<Duration> {
        let settings = &self.inner.environments;
        if !settings.enabled {
            return None;
        }
        let _one_at_a_time = self.inner.keeping.lock().await;
        let environments = self.authority().environments();
        let (why, again) = match &settings.managed {
            None => ("the settings name none".to_owned(), None),
            Some(wanted) => match self.managed_as(wanted).await {
                Ok(managed) => match environments.keep_managed(&keeper(), managed).await {
                    Ok(_) => return None,
                    Err(error) => (error.to_string(), None),
                },
                Err(ServiceError::Tripped {
                    reason,
                    retry_after,
                    ..
                }) => (
                    format!("its provider failed again and again: {reason}"),
                    Some(retry_after),
                ),
                Err(error) => (error.to_string(), None),
            },
        };
        match environments.archive_managed(&keeper(), &why).await {
            Ok(()) if settings.managed.is_some() => {
                tracing::warn!(why, "the managed environment takes no leases");
            }
            Ok(()) => {}
            Err(error) => tracing::error!(%error, "the managed environment was not archived"),
        }
        again
    }

    /// What the settings want, checked by the provider.
    async fn managed_as(&self, wanted: &ManagedSettings) -> Result<Managed, ServiceError> {
        let draft = EnvironmentDraft {
            name: wanted.name.clone(),
            description: None,
            driver: EnvironmentDriver::Sandbox,
            provider: wanted.provider.clone(),
            config: wanted.config.clone(),
            env_vars: Map::new(),
            metadata: None,
            status: EnvironmentStatus::Active,
        };
        let Checked {
            draft,
            uses,
            endpoints,
        } = self.checked("", draft).await?;
        Ok(Managed {
            draft,
            secrets: EnvironmentSecrets {
                uses,
                endpoints,
                ..EnvironmentSecrets::default()
            },
        })
    }
}
