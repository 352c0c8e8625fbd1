//! One conversation with a registry: who we are to it, what it answers, and until when.
//!
//! The first request of a conversation shows nothing; what the registry asks for then is answered by the specification
//! of its tokens (distribution, "Token Authentication") or by Basic. The scope is our own and the least, whatever the
//! registry names: with a realm that serves several, a token for another repository would be a token to hand on. In
//! plain nobody is spoken to but an address of this machine.
//! Invariant: the credential goes to the registry's own origin, or to the realm that was typed beside it.

use std::time::{Duration, Instant, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header;
use leasehold_contract::{Code, Error};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::challenge::{self, Challenge};
use super::error::{RegistryError, RegistryFault, Stage, code_of};
use super::reference::ContentDigest;
use super::{Registries, RegistrySource};
use crate::error::quote;
use crate::http::{Answer, Body, Bounds, Destination, Host, Parsed, PoolKey, Scheme, Wire};
use crate::secret::Secret;

/// The most of a refusal's body that is read, for its code.
const REFUSAL: u64 = 64 * 1024;
/// The largest answer with a token.
const TOKEN: u64 = 256 * 1024;

/// What a conversation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Pull,
    Push,
}

/// A request of a conversation.
pub(super) struct Ask<'a> {
    pub(super) method: &'a str,
    /// Path, and query where there is one.
    pub(super) target: String,
    /// Names in lower case.
    pub(super) headers: Vec<(&'a str, String)>,
    pub(super) body: Bytes,
}

impl<'a> Ask<'a> {
    pub(super) fn new(method: &'a str, target: String) -> Ask<'a> {
        Ask {
            method,
            target,
            headers: Vec::new(),
            body: Bytes::new(),
        }
    }

    pub(super) fn with(mut self, name: &'a str, value: impl Into<String>) -> Ask<'a> {
        self.headers.push((name, value.into()));
        self
    }
}

/// Where to, and what may be shown there.
struct Hop<'a> {
    destination: Destination,
    authorization: Option<&'a Secret>,
}

/// A conversation about one repository.
pub(super) struct Session {
    registries: Registries,
    source: RegistrySource,
    repository: String,
    access: Access,
    until: Instant,
    authorization: Option<Secret>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

/// A header of an answer; the first of its name.
pub(super) fn header_of<'a>(answer: &'a Answer, name: &header::HeaderName) -> Option<&'a str> {
    let mut all = answer.head.headers.iter();
    all.find(|(key, _)| key == name.as_str())
        .map(|(_, value)| value.as_str())
}

impl Session {
    pub(super) fn new(
        registries: &Registries,
        source: &RegistrySource,
        repository: &str,
        access: Access,
    ) -> Session {
        Session {
            until: Instant::now() + registries.settings.total,
            registries: registries.clone(),
            source: source.clone(),
            repository: repository.to_owned(),
            access,
            authorization: None,
        }
    }

    pub(super) fn component_limit(&self) -> u64 {
        self.registries.settings.component
    }

    pub(super) fn repository(&self) -> &str {
        &self.repository
    }

    /// A path below the repository's.
    pub(super) fn path(&self, rest: &str) -> String {
        format!("/v2/{}/{rest}", self.repository)
    }

    pub(super) fn fail(&self, stage: Stage, why: RegistryFault) -> RegistryError {
        RegistryError {
            registry: self.source.registry.clone(),
            stage,
            why,
        }
    }

    /// Asks the registry itself, and says who we are where it wants to know.
    pub(super) async fn ask(
        &mut self,
        stage: Stage,
        ask: &Ask<'_>,
    ) -> Result<Answer, RegistryError> {
        let destination = self.own();
        let hop = Hop {
            destination: destination.clone(),
            authorization: self.authorization.as_ref(),
        };
        let answer = self.send(stage, ask, hop).await?;
        if answer.head.status != 401 {
            return Ok(answer);
        }
        let challenges = answer
            .head
            .headers
            .iter()
            .filter(|(name, _)| name == header::WWW_AUTHENTICATE.as_str())
            .map(|(_, value)| challenge::read(value))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|what| {
                let told = format!("its WWW-Authenticate {what}");
                self.fail(stage, RegistryFault::Challenge(told))
            })?
            .concat();
        let code = self.code(answer).await;
        self.authorization = Some(self.authorize(stage, &challenges, code).await?);
        let hop = Hop {
            destination,
            authorization: self.authorization.as_ref(),
        };
        self.send(stage, ask, hop).await
    }

    /// Asks somebody whom a registry named, who learns nothing of who we are. Only public addresses are dialled, unless
    /// it is the registry itself.
    pub(super) async fn ask_elsewhere(
        &self,
        stage: Stage,
        to: &Parsed,
    ) -> Result<Answer, RegistryError> {
        let own = self.own();
        let destination = if to.origin == own.origin {
            own
        } else {
            Destination {
                origin: to.origin.clone(),
                typed: false,
                tls: None,
                unix: None,
                engine: false,
            }
        };
        let hop = Hop {
            destination,
            authorization: None,
        };
        self.send(stage, &Ask::new("GET", target_of(to)), hop).await
    }

    /// The registry, as it was typed.
    pub(super) fn own(&self) -> Destination {
        Destination {
            origin: self.source.origin(),
            typed: true,
            tls: self.source.tls.clone(),
            unix: None,
            engine: false,
        }
    }

    async fn send(
        &self,
        stage: Stage,
        ask: &Ask<'_>,
        hop: Hop<'_>,
    ) -> Result<Answer, RegistryError> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let total = self.registries.settings.total;
            return Err(self.fail(stage, RegistryFault::Deadline(total)));
        }
        let origin = &hop.destination.origin;
        let here = matches!(&origin.host, Host::Ip(ip) if ip.is_loopback());
        if origin.scheme == Scheme::Http && !here {
            let what = format!("{origin}: http:// is only spoken to an address of this machine");
            let error = Error::new(Code::PermissionDenied, what);
            return Err(self.fail(stage, RegistryFault::Wire(error)));
        }
        let mut headers: Vec<(String, Secret)> = ask
            .headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Secret::new(value.clone())))
            .collect();
        if let Some(authorization) = hop.authorization {
            headers.push(("authorization".to_owned(), authorization.clone()));
        }
        let wire = Wire {
            destination: hop.destination,
            method: ask.method.to_owned(),
            target: ask.target.clone(),
            headers,
            body: match ask.body.is_empty() {
                true => Body::Empty,
                false => Body::Full(ask.body.clone()),
            },
            carries_secret: hop.authorization.is_some(),
        };
        let pool = PoolKey {
            company: "registry".to_owned(),
            plugin_revision: self.source.registry.to_string(),
            secret_version: (self.source.credential.as_ref())
                .map_or_else(String::new, |credential| credential.version.clone()),
            fresh: false,
        };
        let bounds = Bounds {
            total: Some(left),
            ..Bounds::default()
        };
        self.registries
            .transport
            .exchange(&pool, wire, &bounds)
            .await
            .map_err(|error| self.fail(stage, self.overdue(error)))
    }

    /// An error of the wire; where the whole time is over, that.
    fn overdue(&self, error: Error) -> RegistryFault {
        if self
            .until
            .saturating_duration_since(Instant::now())
            .is_zero()
            && matches!(error.code, Code::Unavailable | Code::OutcomeUnknown)
        {
            return RegistryFault::Deadline(self.registries.settings.total);
        }
        RegistryFault::Wire(error)
    }

    /// What we show from now on.
    async fn authorize(
        &self,
        stage: Stage,
        challenges: &[Challenge],
        code: Option<&'static str>,
    ) -> Result<Secret, RegistryError> {
        let offers = |scheme: &str| challenges.iter().find(|one| one.scheme == scheme);
        if let Some(bearer) = offers("bearer") {
            return self.token(bearer).await;
        }
        if offers("basic").is_none() {
            let schemes: Vec<&str> = challenges.iter().map(|one| one.scheme.as_str()).collect();
            let told = match schemes.as_slice() {
                [] => "it answered 401 without WWW-Authenticate".to_owned(),
                some => format!(
                    "it offers {}, and Bearer and Basic are spoken here",
                    quote(some.join(", ").as_bytes())
                ),
            };
            return Err(self.fail(stage, RegistryFault::Challenge(told)));
        }
        if self.authorization.is_some() {
            return Err(self.fail(stage, RegistryFault::Unauthenticated { code }));
        }
        self.basic()
            .ok_or_else(|| self.fail(stage, RegistryFault::NoCredential { code }))
    }

    fn basic(&self) -> Option<Secret> {
        let credential = self.source.credential.as_ref()?;
        let pair = Zeroizing::new(format!(
            "{}:{}",
            credential.username,
            credential.password.expose()
        ));
        let encoded = Zeroizing::new(STANDARD.encode(pair.as_bytes()));
        Some(Secret::new(format!("Basic {}", *encoded)))
    }

    /// A token from the realm that the registry names, where that may be asked.
    async fn token(&self, bearer: &Challenge) -> Result<Secret, RegistryError> {
        let fail = |why| self.fail(Stage::Token, why);
        let realm = bearer.parameter("realm").ok_or_else(|| {
            fail(RegistryFault::Challenge(
                "its Bearer challenge names no realm".to_owned(),
            ))
        })?;
        let to = Parsed::of(realm).map_err(|e| fail(RegistryFault::Challenge(e.message)))?;
        if to.origin != self.source.origin() && Some(&to.origin) != self.source.realm.as_ref() {
            return Err(fail(RegistryFault::Realm(to.origin.to_string())));
        }
        let actions = match self.access {
            Access::Pull => "pull",
            Access::Push => "pull,push",
        };
        let mut query = to.query.clone().unwrap_or_default();
        let scope = format!("repository:{}:{actions}", self.repository);
        let service = bearer.parameter("service");
        for (name, value) in [("service", service), ("scope", Some(&scope))] {
            let Some(value) = value else { continue };
            if !query.is_empty() {
                query.push('&');
            }
            query.push_str(name);
            query.push('=');
            query.extend(url::form_urlencoded::byte_serialize(value.as_bytes()));
        }
        let basic = self.basic();
        let hop = Hop {
            destination: Destination {
                origin: to.origin,
                ..self.own()
            },
            authorization: basic.as_ref(),
        };
        let ask = Ask::new("GET", format!("{}?{query}", to.path));
        let answer = self.send(Stage::Token, &ask, hop).await?;
        if answer.head.status != 200 {
            return Err(self.refused(Stage::Token, answer, "such realm").await);
        }
        let (body, _) = self.read(Stage::Token, answer, TOKEN, None).await?;
        let body = Zeroizing::new(body);
        let token: TokenAnswer = serde_json::from_slice(&body).map_err(|_| {
            fail(RegistryFault::Malformed(
                "it is not the JSON of a token".to_owned(),
            ))
        })?;
        match token.token.or(token.access_token).map(Zeroizing::new) {
            Some(token) if !token.is_empty() => Ok(Secret::new(format!("Bearer {}", *token))),
            _ => Err(fail(RegistryFault::Malformed(
                "it has neither a token nor an access_token".to_owned(),
            ))),
        }
    }

    /// The whole of an answer, and its digest, taken while it came.
    ///
    /// # Errors
    /// More than `most`; another size than `exact`; an encoding; whatever keeps the rest from coming.
    pub(super) async fn read(
        &self,
        stage: Stage,
        mut answer: Answer,
        most: u64,
        exact: Option<u64>,
    ) -> Result<(Vec<u8>, ContentDigest), RegistryError> {
        let fail = |why| self.fail(stage, why);
        if let Some(encoding) = header_of(&answer, &header::CONTENT_ENCODING)
            && !encoding.is_empty()
            && !encoding.eq_ignore_ascii_case("identity")
        {
            return Err(fail(RegistryFault::Encoded(quote(encoding.as_bytes()))));
        }
        let announced: Option<u64> =
            header_of(&answer, &header::CONTENT_LENGTH).and_then(|length| length.parse().ok());
        let check = |got: u64, whole: bool| match exact {
            Some(said) if got > said || (whole && got < said) => {
                Err(fail(RegistryFault::Size { got, said }))
            }
            _ if got > most => Err(fail(RegistryFault::TooLarge { limit: most })),
            _ => Ok(()),
        };
        if let Some(announced) = announced {
            check(announced, true)?;
        }
        let expected = exact.or(announced).unwrap_or(0).min(most);
        let mut whole = Vec::with_capacity(usize::try_from(expected).unwrap_or(0));
        let mut hash = Sha256::new();
        loop {
            let bytes = match answer.body.next().await {
                Ok(Some(bytes)) => bytes,
                Ok(None) => break,
                Err(error) => {
                    let got = whole.len() as u64;
                    return Err(fail(match self.overdue(error) {
                        RegistryFault::Wire(error) => RegistryFault::Truncated { got, error },
                        over => over,
                    }));
                }
            };
            check((whole.len() + bytes.len()) as u64, false)?;
            hash.update(&bytes);
            whole.extend_from_slice(&bytes);
        }
        check(whole.len() as u64, true)?;
        Ok((whole, ContentDigest::from_hash(hash)))
    }

    /// The code in a refusal's body, as far as one can be read.
    async fn code(&self, answer: Answer) -> Option<&'static str> {
        let (body, _) = self
            .read(Stage::Manifest, answer, REFUSAL, None)
            .await
            .ok()?;
        code_of(&body)
    }

    /// What an answer means that is not the one that was hoped for; `missing` is what a 404 lacks.
    pub(super) async fn refused(
        &self,
        stage: Stage,
        answer: Answer,
        missing: &str,
    ) -> RegistryError {
        let status = answer.head.status;
        let retry_after = header_of(&answer, &header::RETRY_AFTER).and_then(span_of);
        let code = self.code(answer).await;
        let why = match status {
            401 if self.source.credential.is_none() => RegistryFault::NoCredential { code },
            401 => RegistryFault::Unauthenticated { code },
            403 => RegistryFault::Denied { code },
            404 => RegistryFault::NotFound {
                missing: missing.to_owned(),
                code,
            },
            429 => RegistryFault::RateLimited { retry_after },
            500..=599 => RegistryFault::Failed { status, code },
            300..=399 => RegistryFault::Redirect(format!(
                "it answered {status}, and only a blob that is named by its digest may lie elsewhere"
            )),
            _ => RegistryFault::Unexpected { status, code },
        };
        self.fail(stage, why)
    }
}

/// A request line's target.
pub(super) fn target_of(to: &Parsed) -> String {
    match &to.query {
        Some(query) => format!("{}?{query}", to.path),
        None => to.path.clone(),
    }
}

/// A Retry-After: seconds, or a date (RFC 9110, 10.2.3).
fn span_of(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text.trim()).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}
