//! What an administrator does with plugins: looks at components, installs and grants them, goes back, switches them.
//!
//! Who may is the authority's to say once more; what a component may do from then on is in `loaded`. Nothing here calls a
//! component but to ask it what it is.

use leasehold_authority::{Actor, Error as AuthorityError, Operation, Plugin as Installed, wider};
use leasehold_contract::Grant;
use leasehold_egress::PoolScope;

use super::error::ServiceError;
use super::model::{GrantRequest, PendingOffer, PluginDetails, PluginOffer};
use super::sources::Offered;
use super::turned_down::Candidate;
use super::{Service, narrowing, offer};

impl Service {
    /// Looks at a component: what it is and what it asks for. Nothing is stored.
    ///
    /// # Errors
    /// What keeps it from being installed.
    pub async fn inspect_plugin(
        &self,
        actor: &Actor,
        offered: Offered,
    ) -> Result<PluginOffer, ServiceError> {
        self.accepting()?;
        actor.may(Operation::InspectPlugin)?;
        let candidate = Candidate::of(&offered);
        let taken = self.sources().take(actor, offered).await;
        let (bytes, source) =
            self.turned_down(actor, Operation::InspectPlugin, &candidate, taken)?;
        self.catalog().inspect(bytes, source).await
    }

    /// Installs a component. With a grant of what was shown, it serves; without, it does so where it asks for no more than
    /// the one that serves, and waits otherwise.
    ///
    /// # Errors
    /// What keeps it from being installed; a grant of something else.
    pub async fn install_plugin(
        &self,
        actor: &Actor,
        offered: Offered,
        grant: Option<GrantRequest>,
    ) -> Result<PluginDetails, ServiceError> {
        self.accepting()?;
        actor.may(Operation::InstallPlugin)?;
        let candidate = Candidate::of(&offered);
        let granted = grant.is_some();
        let catalog = self.catalog();
        let installed = async {
            let (bytes, source) = self.sources().take(actor, offered).await?;
            catalog.install(actor, bytes, source, grant).await
        };
        let installed = installed.await;
        let installed = self.turned_down(actor, Operation::InstallPlugin, &candidate, installed)?;
        self.plugins_changed().await?;
        if let (true, Some(current)) = (granted, &installed.current) {
            // The same component may have served until now under another grant.
            self.close_revision(current.digest.clone());
        }
        self.details(installed).await
    }

    /// Grants the revision that waits, or the named one: that, or the current one anew.
    ///
    /// # Errors
    /// Nothing waits; a grant of something else than what is shown; leases that need what it would take.
    pub async fn grant_plugin(
        &self,
        actor: &Actor,
        key: &str,
        revision: Option<&str>,
        grant: GrantRequest,
    ) -> Result<PluginDetails, ServiceError> {
        self.accepting()?;
        actor.may(Operation::GrantPlugin)?;
        let catalog = self.catalog();
        let installed = catalog.grant(actor, key, revision, grant).await;
        let candidate = Candidate::Installed(key.to_owned());
        let installed = self.turned_down(actor, Operation::GrantPlugin, &candidate, installed)?;
        self.plugins_changed().await?;
        if let Some(current) = &installed.current {
            self.close_revision(current.digest.clone());
        }
        self.details(installed).await
    }

    /// Takes a revision's connections out of the pools, in every company: its grant is another one now, or it is gone.
    fn close_revision(&self, digest: String) {
        self.close_pools(&PoolScope {
            plugin_revision: Some(digest),
            ..PoolScope::default()
        });
    }

    /// What environments are told of their providers is true again, and the managed one what it should be, before the
    /// answer says that something is done.
    async fn plugins_changed(&self) -> Result<(), ServiceError> {
        self.catalog().look().await?;
        self.keep_managed().await;
        Ok(())
    }

    /// Turns down the revision that waits. None is left of a plugin that was never granted.
    ///
    /// # Errors
    /// Nothing waits.
    pub async fn deny_plugin(
        &self,
        actor: &Actor,
        key: &str,
    ) -> Result<Option<PluginDetails>, ServiceError> {
        self.accepting()?;
        let catalog = self.catalog();
        let denied = catalog.deny(actor, key).await?;
        self.plugins_changed().await?;
        match denied {
            Some(installed) => self.details(installed).await.map(Some),
            None => Ok(None),
        }
    }

    /// Makes the revision one step back current again.
    ///
    /// # Errors
    /// There is none.
    pub async fn rollback_plugin(
        &self,
        actor: &Actor,
        key: &str,
    ) -> Result<PluginDetails, ServiceError> {
        self.accepting()?;
        actor.may(Operation::RollbackPlugin)?;
        let installed = self.catalog().rollback(actor, key).await?;
        self.plugins_changed().await?;
        self.details(installed).await
    }

    /// Lets new leases of a provider be made that was left alone because it failed.
    ///
    /// # Errors
    /// A key that nobody installed.
    pub async fn reset_plugin(
        &self,
        actor: &Actor,
        key: &str,
    ) -> Result<PluginDetails, ServiceError> {
        self.accepting()?;
        actor.may(Operation::ResetPlugin)?;
        let installed = self.catalog().reset(actor, key).await?;
        self.plugins_changed().await?;
        self.details(installed).await
    }

    /// Lets new leases of a provider be made, or stops them. Teardown is never stopped.
    ///
    /// # Errors
    /// A key that nobody installed.
    pub async fn set_plugin_enabled(
        &self,
        actor: &Actor,
        key: &str,
        enabled: bool,
    ) -> Result<PluginDetails, ServiceError> {
        self.accepting()?;
        let installed = self.catalog().set_enabled(actor, key, enabled).await?;
        self.plugins_changed().await?;
        self.details(installed).await
    }

    /// Removes a plugin that nothing uses.
    ///
    /// # Errors
    /// A conflict that counts what uses it.
    pub async fn remove_plugin(&self, actor: &Actor, key: &str) -> Result<(), ServiceError> {
        self.accepting()?;
        let plugin = self.authority().plugins().get(key).await?;
        let history = self.authority().plugins().history(&plugin).await?;
        self.catalog().remove(actor, key).await?;
        self.plugins_changed().await?;
        for standing in history {
            self.close_revision(standing.revision.digest);
        }
        Ok(())
    }

    /// One plugin with its revisions.
    ///
    /// # Errors
    /// A key that nobody installed.
    pub async fn plugin(&self, key: &str) -> Result<PluginDetails, ServiceError> {
        let installed = self.authority().plugins().get(key).await?;
        self.details(installed).await
    }

    /// Every plugin with its revisions.
    ///
    /// # Errors
    /// The authority's.
    pub async fn plugins(&self) -> Result<Vec<PluginDetails>, ServiceError> {
        let mut all = Vec::new();
        for installed in self.authority().plugins().list().await? {
            all.push(self.details(installed).await?);
        }
        Ok(all)
    }

    /// Everything that there is to see of a plugin.
    async fn details(&self, plugin: Installed) -> Result<PluginDetails, ServiceError> {
        let revisions = self.authority().plugins().history(&plugin).await?;
        let shown = plugin.current.as_ref().or(plugin.pending.as_ref());
        let shown = shown.cloned().ok_or_else(|| AuthorityError::Corrupt {
            what: format!("plugin {}", plugin.key),
        })?;
        let pending = plugin.pending.as_ref().map(|pending| {
            let asks = offer::asks(&pending.manifest, &pending.capabilities);
            PendingOffer {
                request_digest: offer::request_digest(&pending.digest, &asks),
                asks,
                parts: offer::parts(&Grant::asked(&pending.manifest)),
                wider: plugin
                    .current
                    .as_ref()
                    .map(|current| wider(current, &pending.manifest, &pending.capabilities)),
            }
        });
        let granted = plugin
            .current
            .as_ref()
            .and_then(|current| Some((current, current.grant.as_ref()?)));
        Ok(PluginDetails {
            shown,
            pending,
            effective: granted.map(|(_, granted)| granted.grant.below(self.catalog().ceiling())),
            narrowed: granted
                .map(|(current, granted)| {
                    narrowing::of_grant(
                        &current.manifest,
                        &granted.grant,
                        self.catalog().ceiling(),
                        self.host_roots(),
                    )
                })
                .unwrap_or_default(),
            health: self
                .catalog()
                .loaded_current(&plugin)
                .map(|loaded| loaded.health()),
            plugin,
            revisions,
        })
    }
}
