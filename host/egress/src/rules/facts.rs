//! What the rules of one call are made from: the granted part of the manifest, the endpoints, and the secrets behind
//! the placeholders. The server builds it; nothing here decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use leasehold_contract::{Code, Credential, Error, Grant, Mint, Operation};

use crate::engine::engine_url;
use crate::http::{Destination, Parsed, Scheme, TlsSettings};
use crate::secret::Secret;

/// What a manifest asks for over HTTP, the same in every call of its plugin.
#[derive(Clone, Debug, Default)]
pub struct HttpAsked {
    /// The operations.
    pub operations: Vec<Operation>,
    /// The credentials.
    pub credentials: Vec<Credential>,
    /// The mints.
    pub mints: Vec<Mint>,
    /// Patterns of origins beyond the endpoints.
    pub origins: Vec<String>,
    /// Whether connections may be upgraded.
    pub streams: bool,
}

/// What a call may send over HTTP, and with which secrets.
#[derive(Clone, Debug, Default)]
pub struct HttpFacts {
    /// What the manifest asks for; what of it was granted stands in the call's scope.
    pub asked: Arc<HttpAsked>,
    /// The fields of format `endpoint` and `engine-endpoint`, by JSON pointer.
    pub endpoints: BTreeMap<String, Endpoint>,
    /// The values of `credentials` that the configuration has.
    pub values: Vec<CredentialValue>,
    /// The user names of Basic credentials, by the pointer of their field.
    pub users: BTreeMap<String, String>,
    /// What earlier calls of the lease kept.
    pub kept: Vec<KeptValue>,
    /// The backend's id of the lease's environment, if egress saw it being made.
    pub resource: Option<String>,
    /// Ids of what operations of the lease made.
    pub children: BTreeSet<String>,
    /// Whether this call is `acquire`, the only one in which an environment is made.
    pub acquiring: bool,
}

impl HttpAsked {
    /// What of it the grant leaves. Without a credential its value is still looked for, and works nowhere; what a mint
    /// names stays hidden for the same reason.
    pub(crate) fn within(self: &Arc<HttpAsked>, grant: &Grant) -> Arc<HttpAsked> {
        let all = (grant.streams || !self.streams)
            && grant.operations
            && grant.credentials
            && self.origins.iter().all(|one| grant.origins.contains(one));
        if all {
            return self.clone();
        }
        let mut left = HttpAsked::clone(self);
        left.streams &= grant.streams;
        left.origins.retain(|one| grant.origins.contains(one));
        if !grant.operations {
            left.operations.clear();
        }
        if !grant.credentials {
            left.credentials.clear();
            for mint in &mut left.mints {
                mint.sites.clear();
                mint.to.clear();
            }
        }
        Arc::new(left)
    }
}

/// An endpoint of the resolved configuration.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The URL as the component has it: of a Unix socket, the origin that stands in for it.
    pub url: String,
    /// Where it leads. Only one that an administrator typed ([`Destination::typed`]) is reached.
    pub destination: Destination,
}

impl Endpoint {
    /// The endpoint of a URL as somebody wrote it, without a slash at its end: whoever has it writes paths behind it.
    ///
    /// # Errors
    /// `invalid-config`, naming what such a URL must not have.
    pub fn of(url: &str, typed: bool, tls: Option<Arc<TlsSettings>>) -> Result<Endpoint, Error> {
        let url = url.trim_end_matches('/');
        let wrong = |what: &str| Error::new(Code::InvalidConfig, format!("the URL {what}"));
        let parsed = Parsed::of(url)?;
        if url.contains('?') {
            return Err(wrong("has a query; give the URL without it"));
        }
        let (path, _) = super::split(url);
        super::path::Path::parse(path).map_err(|what| wrong(&format!("has a path that {what}")))?;
        if tls.is_some() && parsed.origin.scheme != Scheme::Https {
            return Err(wrong(
                "is not https://, and ca and client certificate are for TLS; leave them out",
            ));
        }
        Ok(Endpoint {
            url: url.to_owned(),
            destination: Destination {
                origin: parsed.origin,
                typed,
                tls,
                unix: None,
                engine: false,
            },
        })
    }

    /// The endpoint of a container engine as somebody wrote it: `unix:///path`, `https://host:port`, or `http://` of this
    /// machine.
    ///
    /// # Errors
    /// `invalid-config`, naming what such a URL must not have.
    pub fn engine(
        url: &str,
        typed: bool,
        tls: Option<Arc<TlsSettings>>,
    ) -> Result<Endpoint, Error> {
        let wrong = |what: String| Error::new(Code::InvalidConfig, format!("the URL {what}"));
        let (unix, origin) = engine_url(url).map_err(wrong)?.into_parts();
        if tls.is_some() && origin.scheme != Scheme::Https {
            return Err(wrong(
                "is not https://, and ca and client certificate are for TLS; leave them out".into(),
            ));
        }
        Ok(Endpoint {
            url: origin.to_string(),
            destination: Destination {
                origin,
                typed,
                tls,
                unix,
                engine: true,
            },
        })
    }
}

impl Endpoint {
    /// The one spelling of it, however it was typed: origin and path.
    pub fn canonical(&self) -> String {
        let (path, _) = super::split(&self.url);
        // It was parsed when it was made; one that was not is spelled as it is.
        let path =
            super::path::Path::parse(path).map_or_else(|_| path.to_owned(), |path| path.written());
        format!("{}{path}", self.destination.origin)
    }
}

/// What a placeholder of a credential stands for.
#[derive(Clone, Debug)]
pub struct CredentialValue {
    /// Pointer of the field, as the manifest's credential has it.
    pub pointer: String,
    /// What the component has instead; see [`placeholder`].
    pub placeholder: String,
    /// The value.
    pub value: Value,
}

/// The value of a credential.
#[derive(Clone, Debug)]
pub enum Value {
    /// Of a field of format `secret`.
    Text(Secret),
    /// Of a field of format `registry`.
    Registry {
        /// Host, and port where it has one.
        server: String,
        /// User name.
        username: String,
        /// Password.
        password: Secret,
    },
}

/// A minted value that a call keeps for the later ones of its lease. It is sealed by whoever stores it.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The name that the component gave it.
    pub name: String,
    /// Where in the manifest its mint is: what its placeholder may do later, it may by this mint alone.
    pub mint: MintPlace,
    /// The value.
    pub value: Secret,
}

/// Names one value of one mint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MintPlace {
    /// Pointer of the endpoint.
    pub endpoint: String,
    /// Method of the request.
    pub method: String,
    /// Template of the request's path.
    pub path: String,
    /// Pointer of the value in the answer.
    pub pointer: String,
}

/// A kept value with the placeholder that this call's `context.kept` has.
#[derive(Clone, Debug)]
pub struct KeptValue {
    /// What the component has instead.
    pub placeholder: String,
    /// What was kept.
    pub kept: Kept,
}

/// Where egress reports what it saw in answers, before the component sees them.
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    /// An operation of role `create` made this resource: the lease's environment. Durable before it returns.
    async fn created(&self, resource: &str) -> Result<(), Error>;
    /// An operation of role `create-child` made this. Durable before it returns.
    async fn child(&self, id: &str) -> Result<(), Error>;
    /// A value to give to later calls of the lease. Sealed and durable before it returns.
    async fn keep(&self, kept: Kept) -> Result<(), Error>;
}

/// What every placeholder begins with.
pub(crate) const PREFIX: &str = "lhp-";
/// How long one is.
pub(crate) const LENGTH: usize = PREFIX.len() + 32;

/// A new placeholder: 128 random bits in letters and digits that headers, JSON, URLs and shells leave alone.
///
/// # Errors
/// The system's source of randomness failing: a placeholder that can be guessed is none.
pub fn placeholder() -> Result<String, Error> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes)
        .map_err(|e| Error::new(Code::Internal, format!("there is no randomness: {e}")))?;
    Ok(format!("{PREFIX}{}", crate::hex(&bytes)))
}
