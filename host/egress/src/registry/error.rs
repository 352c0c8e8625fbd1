//! Why a registry did not give what was asked of it, or take it.
//!
//! Each reason that a person mends in another way is a variant of its own. Of what a registry says only its error codes
//! stand here, those of the specification: its own words could hold the credential that it was sent.

use std::time::Duration;

use leasehold_contract::Error;

use super::reference::{ContentDigest, RegistryName};

/// What was being asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A token to ask with.
    Token,
    /// The manifest, which names everything else.
    Manifest,
    /// What a manifest was signed with.
    Signature,
    /// The component's bytes.
    Component,
    /// To take a blob or a manifest in.
    Upload,
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Stage::Token => "the token",
            Stage::Manifest => "the manifest",
            Stage::Signature => "the signature",
            Stage::Component => "the component",
            Stage::Upload => "the upload",
        })
    }
}

/// A failure, with where and at what.
#[derive(Debug, thiserror::Error)]
#[error("registry {registry}, {stage}: {why}")]
pub struct RegistryError {
    /// Which registry.
    pub registry: RegistryName,
    /// What was being asked for.
    pub stage: Stage,
    /// Why it failed.
    pub why: RegistryFault,
}

/// Why it failed.
#[derive(Debug, thiserror::Error)]
pub enum RegistryFault {
    /// It asks who we are, and the source has no credential.
    #[error(
        "it asks for a user name and a password, and its source has none{}",
        told(code)
    )]
    NoCredential {
        /// The registry's code.
        code: Option<&'static str>,
    },
    /// It does not know the credential that the source has.
    #[error("it does not accept the credential of its source (401){}", told(code))]
    Unauthenticated {
        /// The registry's code.
        code: Option<&'static str>,
    },
    /// It knows us, and we may not.
    #[error(
        "it denies access (403){}; the account has no right to this repository",
        told(code)
    )]
    Denied {
        /// The registry's code.
        code: Option<&'static str>,
    },
    /// There is no such thing.
    #[error("there is no {missing} (404){}", told(code))]
    NotFound {
        /// What was named.
        missing: String,
        /// The registry's code.
        code: Option<&'static str>,
    },
    /// It asks to wait.
    #[error("it takes no more requests for now (429){}", wait(*retry_after))]
    RateLimited {
        /// For how long, where it says so.
        retry_after: Option<Duration>,
    },
    /// It failed.
    #[error("it failed ({status}){}; try again later", told(code))]
    Failed {
        /// Its status, 500 to 599.
        status: u16,
        /// The registry's code.
        code: Option<&'static str>,
    },
    /// Any other answer.
    #[error("it answered {status}{}, which means nothing here", told(code))]
    Unexpected {
        /// Its status.
        status: u16,
        /// The registry's code.
        code: Option<&'static str>,
    },
    /// It could not be reached, may not be, is not trusted, or did not answer in time: the message says which.
    #[error("{}", .0.message)]
    Wire(Error),
    /// Everything together took too long.
    #[error("the {} that everything together may take were over", span(*.0))]
    Deadline(Duration),
    /// The answer broke off.
    #[error("the answer broke off after {got} bytes: {}", error.message)]
    Truncated {
        /// Bytes that came.
        got: u64,
        /// What became of the connection.
        error: Error,
    },
    /// The answer has another size than its manifest says.
    #[error("the answer has {got} bytes, and the manifest says {said}")]
    Size {
        /// What came, as far as it was read.
        got: u64,
        /// What was promised.
        said: u64,
    },
    /// More than is taken.
    #[error("it has more than {limit} bytes, which is the most that is taken")]
    TooLarge {
        /// The bound.
        limit: u64,
    },
    /// Other bytes than were named.
    #[error(
        "the bytes that came are {got}, and {wanted} was asked for: they were swapped or damaged"
    )]
    Digest {
        /// What was asked for.
        wanted: ContentDigest,
        /// What came.
        got: ContentDigest,
    },
    /// The registry names other bytes than it sends.
    #[error("Docker-Content-Digest names {said:?}, and the bytes that came are {got}")]
    DigestHeader {
        /// The header.
        said: String,
        /// What came.
        got: ContentDigest,
    },
    /// The answer is compressed, although identity was asked for.
    #[error("the answer is encoded ({0}) although identity was asked for")]
    Encoded(String),
    /// It is not what the specification says that it is.
    #[error("it is malformed: {0}")]
    Malformed(String),
    /// It is well-formed, and no plugin.
    #[error("it is not a WebAssembly component: {0}")]
    NotAComponent(String),
    /// What `WWW-Authenticate` says cannot be followed.
    #[error("it asks for credentials in a way that cannot be followed: {0}")]
    Challenge(String),
    /// The place for tokens is neither the registry's own nor granted.
    #[error(
        "it sends credentials to {0}, which is neither the registry itself nor the realm of its source; nothing was sent there"
    )]
    Realm(String),
    /// A redirect that is not followed.
    #[error("its redirect is not followed: {0}")]
    Redirect(String),
    /// What is to be published is not what its name says.
    #[error(
        "what is published here has the digest {is}, and its name says {named}; write a tag, or the digest that it has"
    )]
    OtherDigest {
        /// What was written.
        named: ContentDigest,
        /// What it is.
        is: ContentDigest,
    },
    /// The tag is a place for what belongs to another manifest.
    #[error(
        "the tag {0} is where the signatures of another manifest lie, and a component there would take their place; choose another tag"
    )]
    Beside(String),
    /// Others put theirs in the place of our signature again and again.
    #[error(
        "others changed the signatures each of the {0} times that this one was put beside them; it is not there, push it again"
    )]
    Contended(usize),
}

impl RegistryFault {
    /// A name for programs; it never changes its meaning.
    pub fn reason(&self) -> &'static str {
        match self {
            RegistryFault::NoCredential { .. } => "no-credential",
            RegistryFault::Unauthenticated { .. } => "unauthenticated",
            RegistryFault::Denied { .. } => "denied",
            RegistryFault::NotFound { .. } => "not-found",
            RegistryFault::RateLimited { .. } => "rate-limited",
            RegistryFault::Failed { .. } => "failed",
            RegistryFault::Unexpected { .. } => "unexpected",
            RegistryFault::Wire(_) => "unreachable",
            RegistryFault::Deadline(_) => "deadline",
            RegistryFault::Truncated { .. } => "truncated",
            RegistryFault::Size { .. } => "size",
            RegistryFault::TooLarge { .. } => "too-large",
            RegistryFault::Digest { .. } | RegistryFault::DigestHeader { .. } => "digest",
            RegistryFault::Encoded(_) => "encoded",
            RegistryFault::Malformed(_) => "malformed",
            RegistryFault::NotAComponent(_) => "not-a-component",
            RegistryFault::Challenge(_) => "challenge",
            RegistryFault::Realm(_) => "realm",
            RegistryFault::Redirect(_) => "redirect",
            RegistryFault::OtherDigest { .. } => "other-digest",
            RegistryFault::Beside(_) => "reserved-tag",
            RegistryFault::Contended(_) => "contended",
        }
    }
}

/// The codes of the specification ("Error Codes"), and those of the reference implementation beside them.
const CODES: &[&str] = &[
    "BLOB_UNKNOWN",
    "BLOB_UPLOAD_INVALID",
    "BLOB_UPLOAD_UNKNOWN",
    "DENIED",
    "DIGEST_INVALID",
    "MANIFEST_BLOB_UNKNOWN",
    "MANIFEST_INVALID",
    "MANIFEST_UNKNOWN",
    "MANIFEST_UNVERIFIED",
    "NAME_INVALID",
    "NAME_UNKNOWN",
    "SIZE_INVALID",
    "TAG_INVALID",
    "TOOMANYREQUESTS",
    "UNAUTHORIZED",
    "UNAVAILABLE",
    "UNKNOWN",
    "UNSUPPORTED",
];

/// The first known code of an error's body.
pub(super) fn code_of(body: &[u8]) -> Option<&'static str> {
    let body: serde_json::Value = serde_json::from_slice(body).ok()?;
    let errors = body.get("errors")?.as_array()?;
    errors
        .iter()
        .filter_map(|error| error.get("code")?.as_str())
        .find_map(|code| CODES.iter().find(|known| **known == code).copied())
}

fn told(code: &Option<&'static str>) -> String {
    code.map(|code| format!(", {code}")).unwrap_or_default()
}

fn wait(time: Option<Duration>) -> String {
    time.map(|time| format!("; it asks to wait {} s", time.as_secs()))
        .unwrap_or_default()
}

fn span(time: Duration) -> String {
    match time.as_millis() {
        ms if ms % 1000 == 0 => format!("{} s", time.as_secs()),
        ms => format!("{ms} ms"),
    }
}
