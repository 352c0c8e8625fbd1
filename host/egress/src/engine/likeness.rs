//! Whether a container engine is behind a plain endpoint: it would be commanded there without the engine policy.
//!
//! Before such an endpoint is first used the host itself asks `GET /version`, without a credential, and refuses what answers
//! like an engine. It is a guard against a URL that was typed into the wrong field, not against whoever runs what is behind
//! it: a proxy that hides `/version`, or lets in only who shows a credential, hides the engine too, and its owner has given
//! the engine away already. A component has no part in it: it neither sees the question nor can answer it.
//!
//! That nobody answers is no reason to refuse: what is down, slow, or wants a credential for everything is what most
//! endpoints are at times. What was found holds for a while, for the destination and the identity that it was shown, so that
//! calls are not held up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold_contract::{Content, Error, HttpResponse};
use serde_json::Value;

use crate::error::failed;
use crate::http::{Body, Bounds, Destination, PoolKey, Transport, Wire};
use crate::secret::Secret;

/// How long a question may hold up the first request.
const ASKED: Duration = Duration::from_secs(3);
/// How long an answer holds: that there is no engine, and what may be mended or may come up.
const NO_ENGINE: Duration = Duration::from_secs(10 * 60);
const OTHERWISE: Duration = Duration::from_secs(30);
/// The largest answer that is read: an engine's has some hundred bytes.
const LARGEST: usize = 64 << 10;
/// So many destinations are remembered.
const MOST: usize = 4096;

/// What was found, by destination, identity and path.
#[derive(Default)]
pub(crate) struct Likeness {
    found: Mutex<HashMap<Key, Arc<Cell>>>,
}

#[derive(PartialEq, Eq, Hash)]
struct Key {
    destination: String,
    identity: Option<String>,
    base: String,
}

/// Who asks first holds it meanwhile.
type Cell = tokio::sync::Mutex<Option<(Found, Instant)>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Engine,
    Other,
    Silence,
}

impl Likeness {
    /// Refuses a plain endpoint that answers like an engine. `base` is the path that the endpoint begins at; an engine that
    /// lies above it is reached through it as well. `record` writes down that it is asked, where it is.
    ///
    /// # Errors
    /// `permission-denied`, saying what to do instead; that of `record`.
    pub(crate) async fn check(
        &self,
        transport: &Transport,
        pool: &PoolKey,
        to: &Destination,
        base: &str,
        bounds: &Bounds,
        record: impl Future<Output = Result<(), Error>> + Send,
    ) -> Result<(), Error> {
        let cell = self.cell(to, base);
        let mut known = cell.lock().await;
        let now = Instant::now();
        let found = match *known {
            Some((found, until)) if until > now => found,
            _ => {
                record.await?;
                let found = ask(transport, pool, to, base, bounds).await;
                let holds = match found {
                    Found::Other => Some(NO_ENGINE),
                    Found::Engine => Some(OTHERWISE),
                    // Nothing was lost on a connection that was refused at once: the next request asks again.
                    Found::Silence => (now.elapsed() >= ASKED).then_some(OTHERWISE),
                };
                *known = holds.map(|holds| (found, Instant::now() + holds));
                found
            }
        };
        match found {
            Found::Engine => Err(failed(
                leasehold_contract::Code::PermissionDenied,
                &to.to_string(),
                "GET /version is answered as a container engine does, and whoever commands an engine without the engine policy \
                 is root on its machine; the provider must have it in a field of format engine-endpoint",
            )),
            Found::Other | Found::Silence => Ok(()),
        }
    }

    fn cell(&self, to: &Destination, base: &str) -> Arc<Cell> {
        let key = Key {
            destination: to.to_string(),
            identity: to.tls.as_ref().map(|tls| tls.fingerprint().to_owned()),
            base: base.to_owned(),
        };
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if found.len() >= MOST && !found.contains_key(&key) {
            found.clear();
        }
        found.entry(key).or_default().clone()
    }
}

async fn ask(
    transport: &Transport,
    pool: &PoolKey,
    to: &Destination,
    base: &str,
    bounds: &Bounds,
) -> Found {
    let until = Instant::now() + ASKED.min(bounds.total.unwrap_or(ASKED));
    let own = format!("{}/version", base.trim_end_matches('/'));
    let mut found = Found::Silence;
    for target in [
        Some("/version".to_owned()),
        (own != "/version").then_some(own),
    ]
    .into_iter()
    .flatten()
    {
        let wire = Wire {
            destination: to.clone(),
            method: "GET".to_owned(),
            target,
            headers: vec![(
                "accept".to_owned(),
                Secret::new("application/json".to_owned()),
            )],
            body: Body::Empty,
            carries_secret: false,
        };
        let bounds = Bounds {
            total: Some(until.saturating_duration_since(Instant::now())),
            body: Some(LARGEST),
            lasting: false,
            closed: bounds.closed.clone(),
        };
        let Ok(answer) = transport.exchange(pool, wire, &bounds).await else {
            return found;
        };
        if has_engines_headers(&answer.head.headers) {
            return Found::Engine;
        }
        found = Found::Other;
        // What cannot be read to its end here is no engine's answer.
        if let Ok(whole) = answer.whole().await
            && is_engines(&whole)
        {
            return Found::Engine;
        }
    }
    tracing::debug!(destination = %to, ?found, "asked whether a container engine is there");
    found
}

/// Docker and Podman name themselves in every answer, whatever it is to.
fn has_engines_headers(headers: &[(String, String)]) -> bool {
    headers.iter().any(|(name, value)| match name.as_str() {
        "docker-experimental" | "libpod-api-version" => true,
        "server" => ["Docker/", "Libpod/"]
            .iter()
            .any(|own| value.starts_with(own)),
        _ => false,
    })
}

/// An engine tells the version of its API, and beside it what its parts are.
fn is_engines(answer: &HttpResponse) -> bool {
    let body: Value = match &answer.body {
        Content::Text(text) => serde_json::from_str(text).unwrap_or_default(),
        Content::None | Content::Bytes(_) => Value::Null,
    };
    let has = |name: &str| body.get(name).is_some_and(|value| !value.is_null());
    answer.head.status == 200
        && body["ApiVersion"].is_string()
        && ["Components", "Platform", "MinAPIVersion", "GoVersion"]
            .into_iter()
            .any(has)
}

#[cfg(test)]
mod tests {
    use leasehold_contract::HttpHead;

    use super::*;

    fn says(status: u16, body: &str) -> bool {
        is_engines(&HttpResponse {
            head: HttpHead {
                status,
                headers: Vec::new(),
            },
            body: Content::Text(body.to_owned()),
        })
    }

    #[test]
    fn engines_are_known_by_their_answer_and_others_are_not() {
        for body in [
            // Podman 4.3, and Docker before it told of components.
            r#"{"Platform":{"Name":"linux/amd64/debian-12"},"Components":[{"Name":"Podman Engine"}],"Version":"4.3.1","ApiVersion":"1.41"}"#,
            r#"{"Version":"17.05.0-ce","ApiVersion":"1.29","GoVersion":"go1.7.5","Os":"linux"}"#,
        ] {
            assert!(says(200, body), "{body}");
            assert!(!says(404, body), "{body}");
        }
        for body in [
            "",
            "ok",
            "[]",
            r#"{"version":"1.2.3"}"#,
            // Kubernetes.
            r#"{"major":"1","minor":"29","gitVersion":"v1.29.0","goVersion":"go1.21","platform":"linux/amd64"}"#,
            r#"{"ApiVersion":"2"}"#,
            r#"{"ApiVersion":2,"Components":[]}"#,
        ] {
            assert!(!says(200, body), "{body}");
        }
        let header =
            |name: &str, value: &str| has_engines_headers(&[(name.to_owned(), value.to_owned())]);
        assert!(header("server", "Docker/20.10.5 (linux)"));
        assert!(header("server", "Libpod/4.3.1 (linux)"));
        assert!(header("libpod-api-version", "4.3.1"));
        assert!(header("docker-experimental", "false"));
        assert!(!header("server", "nginx"));
        assert!(!header("docker-distribution-api-version", "registry/2.0"));
    }
}
