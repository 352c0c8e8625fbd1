//! HTTP of a configuration: what its plugin asks for, the endpoints and the credentials, and from them the facts of one call.
//!
//! What of it was granted egress itself leaves, by the grant in each call's scope. Invariants: each call has placeholders of its
//! own, and what they stand for goes to egress alone (P8); what egress saw being made is claimed for one lease alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use leasehold_authority::{Authority, KeptPlace, KeptSecret, Made, ResourceClaim};
use leasehold_contract::{Claim, Code, Error, Role, Site};
use leasehold_egress::{
    CredentialValue, Endpoint, HttpAsked, HttpFacts, HttpScope, Kept, KeptValue, MintPlace, Secret,
    Sink, Transport, Value as Held,
};
use leasehold_runtime::Plugin;
use serde_json::Value;
use zeroize::Zeroizing;

use super::calls::{ForLease, refused};
use super::error::ServiceError;

/// What a plugin's manifest asks for over HTTP.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) http: Arc<HttpAsked>,
    /// Pointers of the endpoints where the host looks whose something is.
    looks: Vec<String>,
}

/// What this plugin asks for.
pub(crate) fn asked(plugin: &Plugin) -> Asked {
    let manifest = plugin.manifest();
    let http = HttpAsked {
        operations: manifest.operations.clone(),
        credentials: manifest.credentials.clone(),
        mints: manifest.mints.clone(),
        origins: manifest.request.origins.clone(),
        streams: manifest.request.streams,
    };
    Asked {
        http: Arc::new(http),
        looks: (manifest.checks.iter())
            .filter(|check| check.claim == Claim::Owned)
            .map(|check| check.endpoint.clone())
            .collect(),
    }
}

impl Asked {
    /// Whether an operation makes the environment, so that egress sees its id.
    pub(crate) fn creates(&self) -> bool {
        self.http
            .operations
            .iter()
            .any(|operation| matches!(operation.role, Role::Create(_)))
    }

    /// The endpoint whose ids are those of environments: where they are made, else where the host looks whose they are.
    fn home<'e>(&self, endpoints: &'e BTreeMap<String, Endpoint>) -> Option<&'e Endpoint> {
        let made = self.http.operations.iter().filter_map(|operation| {
            matches!(operation.role, Role::Create(_)).then_some(&operation.endpoint)
        });
        let mut named = made.chain(&self.looks);
        named
            .find_map(|pointer| endpoints.get(pointer))
            .or_else(|| endpoints.values().next())
    }
}

/// HTTP of one configuration, resolved.
pub(crate) struct Web {
    asked: Asked,
    pub(crate) endpoints: BTreeMap<String, Endpoint>,
    /// Values of secrets by the pointer of their field.
    values: Vec<(String, Held)>,
    users: BTreeMap<String, String>,
    /// Where the backend's ids are ids: one account at one endpoint.
    home: Option<Home>,
}

/// One account at one endpoint: what a resource's id means anything in.
#[derive(Clone, Debug)]
struct Home {
    endpoint: String,
    account: String,
}

impl Home {
    fn claim(&self, resource: &str) -> ResourceClaim {
        ResourceClaim {
            endpoint: self.endpoint.clone(),
            account: self.account.clone(),
            resource: resource.to_owned(),
        }
    }
}

/// Which secret goes where: a destination in the words of its binding, and the secret's id.
pub(crate) type Going = Vec<(String, String)>;

/// Placeholders of one call: the pointer of the field, and what stands in it.
pub(crate) type Placeholders = Vec<(String, String)>;

/// A new placeholder.
///
/// # Errors
/// The system's source of randomness failing.
pub(crate) fn placeholder() -> Result<String, ServiceError> {
    Ok(leasehold_egress::placeholder()
        .map_err(|e| leasehold_authority::Error::Internal(e.message))?)
}

impl Web {
    /// HTTP of a configuration; none where there is nothing to reach.
    pub(crate) fn of(
        asked: Asked,
        config: &Value,
        endpoints: BTreeMap<String, Endpoint>,
        values: Vec<(String, Held)>,
        going: &Going,
    ) -> Option<Web> {
        if endpoints.is_empty() && asked.http.origins.is_empty() {
            return None;
        }
        let home = asked.home(&endpoints).map(|endpoint| {
            // Not the version: rotated, a key is still that account's.
            let mut account: Vec<&str> = going
                .iter()
                .filter(|(to, _)| *to == endpoint.url)
                .map(|(_, secret)| secret.as_str())
                .collect();
            account.sort_unstable();
            account.dedup();
            Home {
                endpoint: endpoint.canonical(),
                account: account.join(","),
            }
        });
        let sites = asked.http.credentials.iter().flat_map(|c| &c.sites);
        let sites = sites.chain(asked.http.mints.iter().flat_map(|m| &m.sites));
        let users = sites
            .filter_map(|site| match site {
                Site::Basic(pointer) => {
                    let user = config.pointer(pointer)?.as_str()?;
                    Some((pointer.clone(), user.to_owned()))
                }
                _ => None,
            })
            .collect();
        Some(Web {
            asked,
            endpoints,
            values,
            users,
            home,
        })
    }

    /// What a lease claims that has this resource; none where there is no endpoint that could have one.
    pub(crate) fn claim(&self, resource: &str) -> Option<ResourceClaim> {
        Some(self.home.as_ref()?.claim(resource))
    }

    /// The name by which people know what is reached.
    pub(crate) fn name(&self) -> Option<String> {
        let first = self.endpoints.values().next()?;
        Some(first.destination.to_string())
    }

    /// The header that shows this credential, with its placeholder in its site; none where it has no such site.
    pub(crate) fn shown(&self, pointer: &str, placeholder: &str) -> Option<(String, String)> {
        use base64::Engine as _;
        let credential = self
            .asked
            .http
            .credentials
            .iter()
            .find(|c| c.pointer == pointer)?;
        credential.sites.iter().find_map(|site| match site {
            Site::Header(name, template) => {
                Some((name.clone(), template.replacen("{}", placeholder, 1)))
            }
            Site::Basic(user) => {
                let plain = format!("{}:{placeholder}", self.users.get(user)?);
                let encoded = base64::engine::general_purpose::STANDARD.encode(plain);
                Some(("authorization".to_owned(), format!("Basic {encoded}")))
            }
            Site::RegistryAuth | Site::SshUsername => None,
        })
    }

    /// HTTP of one call, and the names of what the lease keeps with their placeholders. `looked_at`: what the host itself
    /// looks at, whether it is the lease's or not.
    ///
    /// # Errors
    /// The authority's; the system's source of randomness failing.
    pub(crate) async fn scope(
        &self,
        transport: &Transport,
        authority: &Authority,
        lease: Option<&ForLease>,
        acquiring: bool,
        looked_at: Option<&str>,
        placeholders: &Placeholders,
    ) -> Result<(HttpScope, Vec<(String, String)>), ServiceError> {
        let (made, kept) = match lease {
            None => (Made::default(), Vec::new()),
            Some(lease) => (
                authority.leases().made(&lease.id).await?,
                authority.leases().kept(&lease.id).await?,
            ),
        };
        let mut named = Vec::with_capacity(kept.len());
        let mut values = Vec::with_capacity(kept.len());
        for KeptSecret { name, place, value } in kept {
            let placeholder = placeholder()?;
            named.push((name.clone(), placeholder.clone()));
            values.push(KeptValue {
                placeholder,
                kept: Kept {
                    name,
                    mint: MintPlace {
                        endpoint: place.endpoint,
                        method: place.method,
                        path: place.path,
                        pointer: place.pointer,
                    },
                    value: Secret::new(String::from_utf8_lossy(&value).into_owned()),
                },
            });
        }
        let of = |pointer: &str| {
            let found = placeholders.iter().find(|(at, _)| at == pointer);
            found.map(|(_, placeholder)| placeholder.clone())
        };
        let facts = HttpFacts {
            asked: self.asked.http.clone(),
            endpoints: self.endpoints.clone(),
            values: self
                .values
                .iter()
                .filter_map(|(pointer, value)| {
                    Some(CredentialValue {
                        pointer: pointer.clone(),
                        placeholder: of(pointer)?,
                        value: value.clone(),
                    })
                })
                .collect(),
            users: self.users.clone(),
            kept: values,
            resource: looked_at.map(str::to_owned).or(made.resource),
            children: made.children,
            acquiring,
        };
        let scope = HttpScope {
            transport: transport.clone(),
            facts: Arc::new(facts),
            sink: Arc::new(Journal {
                authority: authority.clone(),
                lease: lease.cloned(),
                home: self.home.clone(),
            }),
        };
        Ok((scope, named))
    }
}

/// Where egress reports what it saw in answers: the lease's own record.
struct Journal {
    authority: Authority,
    lease: Option<ForLease>,
    home: Option<Home>,
}

impl Journal {
    fn claim(&self, resource: &str) -> Result<ResourceClaim, Error> {
        let home = self.home.as_ref().ok_or_else(|| {
            Error::new(Code::Internal, "there is no endpoint that this could be of")
        })?;
        Ok(home.claim(resource))
    }

    fn lease(&self) -> Result<&ForLease, Error> {
        self.lease.as_ref().ok_or_else(|| {
            Error::new(
                Code::FailedPrecondition,
                "there is no lease to write it down for",
            )
        })
    }
}

#[async_trait]
impl Sink for Journal {
    async fn created(&self, resource: &str) -> Result<(), Error> {
        let lease = self.lease()?;
        let leases = self.authority.leases();
        let made = leases.made_environment(&lease.id, lease.epoch, self.claim(resource)?);
        made.await.map_err(|error| refused(&error))
    }

    async fn child(&self, id: &str) -> Result<(), Error> {
        let lease = self.lease()?;
        let leases = self.authority.leases();
        let made = leases.made_child(&lease.id, lease.epoch, self.claim(id)?);
        made.await.map_err(|error| refused(&error))
    }

    async fn keep(&self, kept: Kept) -> Result<(), Error> {
        let lease = self.lease()?;
        let Kept { name, mint, value } = kept;
        let secret = KeptSecret {
            name,
            place: KeptPlace {
                endpoint: mint.endpoint,
                method: mint.method,
                path: mint.path,
                pointer: mint.pointer,
            },
            value: Zeroizing::new(value.expose().as_bytes().to_vec()),
        };
        let leases = self.authority.leases();
        let kept = leases.keep(&lease.id, lease.epoch, secret);
        kept.await.map_err(|error| refused(&error))
    }
}
