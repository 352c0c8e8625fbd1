//! The host's own looks at what a backend with an API has: the checks of a manifest, as GETs that no component takes part in.
//!
//! A check proves what it says about one resource, or nothing. Invariants: what is not proven is no proof of the
//! contrary; only `{resource}` and `{lease}` are filled in, each encoded whole (P9: what is acted on carried our label).

use std::time::Duration;

use leasehold_authority::{LABEL_OWNER, Lease};
use leasehold_contract::{
    Check, Claim, Code, Content, Error, Expectation, HttpRequest, HttpResponse, Purpose,
};
use leasehold_egress::Reach;
use serde_json::Value;

use super::Service;
use super::calls::{ForLease, Kind, Prepared, owner_label};
use super::context::Context;
use super::error::ServiceError;
use super::leasing::READ;
use super::web::Web;

/// Whether the manifest has checks of this claim.
pub(crate) fn has(context: &Context, claim: Claim) -> bool {
    of(context, claim).next().is_some()
}

fn of(context: &Context, claim: Claim) -> impl Iterator<Item = &Check> {
    let checks = &context.plugin.manifest().checks;
    checks.iter().filter(move |check| check.claim == claim)
}

impl Service {
    /// Whether the host itself finds this lease's owner label at a resource, by every check of `owned`; true without any.
    ///
    /// # Errors
    /// Whatever keeps it from being known.
    pub(crate) async fn is_owned(
        &self,
        lease: &Lease,
        context: &Context,
        for_lease: &ForLease,
        resource: &str,
    ) -> Result<bool, ServiceError> {
        self.all_hold(lease, context, for_lease, Claim::Owned, resource)
            .await
    }

    /// Whether the host itself finds a resource gone, by every check of `gone`, and again as long after as they say.
    ///
    /// # Errors
    /// Whatever keeps it from being known.
    pub(crate) async fn is_gone(
        &self,
        lease: &Lease,
        context: &Context,
        for_lease: &ForLease,
        resource: &str,
    ) -> Result<bool, ServiceError> {
        let gone = self.all_hold(lease, context, for_lease, Claim::Gone, resource);
        if !gone.await? {
            return Ok(false);
        }
        let apart = of(context, Claim::Gone).map(|check| check.apart).max();
        let apart = Duration::from_millis(apart.unwrap_or(0).into());
        if apart.is_zero() {
            return Ok(true);
        }
        tokio::time::sleep(apart).await;
        self.all_hold(lease, context, for_lease, Claim::Gone, resource)
            .await
    }

    async fn all_hold(
        &self,
        lease: &Lease,
        context: &Context,
        for_lease: &ForLease,
        claim: Claim,
        resource: &str,
    ) -> Result<bool, ServiceError> {
        let Some(web) = &context.web else {
            return Ok(true);
        };
        for check in of(context, claim) {
            let mut kind = Kind::new(Purpose::Reconcile, Reach::Read, READ);
            kind.fresh = true;
            kind.looked_at = Some(resource.to_owned());
            let call = self.call(context, Some(for_lease), kind).await?;
            let failed = |error| ServiceError::Provider {
                what: format!("looking at {resource} of {}", lease.id),
                error,
            };
            let request = request(web, &call, check, resource, &lease.id).map_err(failed)?;
            let answer = call.setup.egress.http_send(request).await.map_err(failed)?;
            if !holds(check, &answer, resource, &owner_label(lease)).map_err(failed)? {
                tracing::info!(
                    lease = lease.id,
                    resource,
                    ?claim,
                    status = answer.head.status,
                    "a check does not hold"
                );
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn request(
    web: &Web,
    call: &Prepared,
    check: &Check,
    resource: &str,
    lease: &str,
) -> Result<HttpRequest, Error> {
    let wrong = |what: String| Error::new(Code::FailedPrecondition, what);
    let endpoint = web
        .endpoints
        .get(&check.endpoint)
        .ok_or_else(|| wrong(format!("the endpoint {} is not configured", check.endpoint)))?;
    let mut headers = Vec::new();
    if let Some(pointer) = &check.credential {
        // A credential that is not configured is not presented: the backend may want none.
        if let Some((_, placeholder)) = call.placeholders.iter().find(|(at, _)| at == pointer) {
            headers.push(web.shown(pointer, placeholder).ok_or_else(|| {
                wrong(format!(
                    "the credential {pointer} has no header as its site"
                ))
            })?);
        }
    }
    Ok(HttpRequest {
        method: "GET".to_owned(),
        url: format!("{}{}", endpoint.url, filled(&check.path, resource, lease)),
        query: Vec::new(),
        headers,
        body: Content::None,
        timeout: None,
        keep: Vec::new(),
    })
}

/// A check's path with what it asks about in its places.
fn filled(path: &str, resource: &str, lease: &str) -> String {
    path.replace("{resource}", &encoded(resource))
        .replace("{lease}", &encoded(lease))
}

/// Percent-encoded whole (RFC 3986, 2.3).
fn encoded(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

/// Whether an answer is what a check expects, all of it.
///
/// # Errors
/// An answer that proves neither: the backend refuses us, or fails.
fn holds(check: &Check, answer: &HttpResponse, resource: &str, owner: &str) -> Result<bool, Error> {
    let status = answer.head.status;
    let named = check
        .expect
        .iter()
        .any(|e| matches!(e, Expectation::Status(_)));
    let expected = check.expect.contains(&Expectation::Status(status));
    if !expected && (matches!(status, 401 | 403 | 408 | 425 | 429 | 300..=399) || status >= 500) {
        return Err(Error::new(
            Code::Unavailable,
            format!("the backend answered {status}, which proves nothing"),
        ));
    }
    if named && !expected || !named && !(200..300).contains(&status) {
        return Ok(false);
    }
    let body: Value = match &answer.body {
        Content::None => Value::Null,
        Content::Text(text) => serde_json::from_str(text).unwrap_or_default(),
        Content::Bytes(bytes) => serde_json::from_slice(bytes).unwrap_or_default(),
    };
    Ok(check.expect.iter().all(|expectation| match expectation {
        Expectation::Status(_) => true,
        Expectation::OwnerLabel(at) => {
            let label = body.pointer(at).and_then(|labels| labels.get(LABEL_OWNER));
            !owner.is_empty() && label.and_then(Value::as_str) == Some(owner)
        }
        Expectation::Value(at) => body.pointer(at).is_some_and(|value| is(value, resource)),
        Expectation::AbsentFrom(list, id) => {
            // A list that is not there has nobody seen to be absent.
            body.pointer(list)
                .and_then(Value::as_array)
                .is_some_and(|items| {
                    !items
                        .iter()
                        .any(|item| item.pointer(id).is_some_and(|value| is(value, resource)))
                })
        }
        Expectation::File | Expectation::Tar => false,
    }))
}

/// Whether a backend's id, text or number, is this one.
fn is(value: &Value, resource: &str) -> bool {
    match value {
        Value::String(text) => text == resource,
        Value::Number(number) => number.to_string() == resource,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_contract::HttpHead;

    fn check(claim: Claim, expect: Vec<Expectation>) -> Check {
        Check {
            claim,
            endpoint: "/api".into(),
            path: "/x/{resource}".into(),
            credential: None,
            expect,
            apart: 0,
        }
    }

    fn answer(status: u16, body: &str) -> HttpResponse {
        HttpResponse {
            head: HttpHead {
                status,
                headers: Vec::new(),
            },
            body: Content::Text(body.into()),
        }
    }

    #[test]
    fn only_our_label_at_its_place_proves_that_something_is_ours() {
        let owned = check(
            Claim::Owned,
            vec![Expectation::OwnerLabel("/labels".into())],
        );
        let says = |status, body: &str| holds(&owned, &answer(status, body), "r1", "mac").ok();
        let ours = r#"{"labels":{"leasehold-owner":"mac"}}"#;
        assert_eq!(says(200, ours), Some(true));
        assert_eq!(says(404, ours), Some(false));
        assert_eq!(
            says(200, r#"{"labels":{"leasehold-owner":"other"}}"#),
            Some(false)
        );
        assert_eq!(says(200, r#"{"leasehold-owner":"mac"}"#), Some(false));
        assert_eq!(says(200, "not JSON"), Some(false));
        for status in [302, 401, 403, 429, 500, 503] {
            assert_eq!(says(status, ours), None, "{status} proves nothing");
        }
        assert_eq!(
            holds(
                &owned,
                &answer(200, r#"{"labels":{"leasehold-owner":""}}"#),
                "r1",
                ""
            )
            .ok(),
            Some(false),
            "no label is no label"
        );
    }

    #[test]
    fn gone_is_what_was_expected_and_no_failure() {
        let gone = check(Claim::Gone, vec![Expectation::Status(404)]);
        let says = |status| holds(&gone, &answer(status, ""), "r1", "mac").ok();
        assert_eq!(
            (says(404), says(200), says(500), says(401)),
            (Some(true), Some(false), None, None)
        );
        let absent = check(
            Claim::Gone,
            vec![Expectation::AbsentFrom("/items".into(), "/id".into())],
        );
        let says = |body: &str| holds(&absent, &answer(200, body), "7", "mac").ok();
        assert_eq!(says(r#"{"items":[{"id":8}]}"#), Some(true));
        assert_eq!(says(r#"{"items":[{"id":7}]}"#), Some(false));
        assert_eq!(says("{}"), Some(false), "no list is no proof");
    }

    #[test]
    fn what_is_filled_in_is_one_segment_or_one_value() {
        assert_eq!(
            filled("/x/{resource}?of={lease}", "a/../b?c", "l&m"),
            "/x/a%2F..%2Fb%3Fc?of=l%26m"
        );
    }
}
