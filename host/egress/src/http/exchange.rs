//! One request on the wire, until the head of its answer.
//!
//! The error tells what the host may assume: `unavailable` where nothing was sent, `outcome-unknown` where something
//! was and no answer came; a GET or HEAD changes nothing, so that for them both are `unavailable`. A request is sent
//! again, once, only on a connection that had gone stale, and only if nothing of it was written or it is a GET or HEAD.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{Method, Request, Uri};
use hyper::Response;
use hyper::body::Incoming;
use leasehold_contract::{Code, Error};
use tokio::time::{sleep_until, timeout_at};

use super::body::{Again, Outgoing, Sending};
use super::pool::{Age, Pools, Turn, Want};
use super::reach::{Gauge, span};
use super::settings::HttpSettings;
use super::tls;
use super::{Body, Bounds, PoolKey, Wire};
use crate::error::{cancelled, failed, quote, unavailable, unknown};
use crate::secret::Secret;

/// Headers that only the wire writes.
const OWN: &[HeaderName] = &[
    header::ACCEPT_ENCODING,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::HOST,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// No request is given more, so that its end is a time that the clock can hold.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// What is the same for all of an exchange.
pub(super) struct Course {
    /// Of the destination, for messages.
    pub(super) name: String,
    /// A GET or HEAD: it changes nothing.
    pub(super) safe: bool,
    /// When its time is over, and how much that was.
    pub(super) until: Instant,
    pub(super) total: Duration,
}

impl Course {
    /// It was sent, and this came instead of a whole answer.
    pub(super) fn lost(&self, what: impl std::fmt::Display) -> Error {
        if self.safe {
            unavailable(&self.name, what)
        } else {
            unknown(&self.name, what)
        }
    }
}

/// A request whose answer has begun.
pub(super) struct Begun {
    pub(super) response: Response<Incoming>,
    pub(super) turn: Turn,
    pub(super) course: Course,
}

/// How a request is sent.
pub(super) struct Manner {
    pub(super) want: Want,
    /// Headers of the wire's own, of an upgrade.
    pub(super) switching: Vec<(HeaderName, HeaderValue)>,
}

/// Sends a request; returns when its answer begins.
///
/// # Errors
/// `invalid-config` for what HTTP cannot carry; those of [`Pools::turn`]; `cancelled` when the lease ended.
pub(super) async fn begin(
    pools: &Arc<Pools>,
    pool: &PoolKey,
    wire: Wire,
    manner: Manner,
    bounds: &Bounds,
) -> Result<Begun, Error> {
    let total = bounds.total.unwrap_or(pools.settings.total).min(LONGEST);
    let course = Course {
        name: wire.name(),
        safe: matches!(wire.method.as_str(), "GET" | "HEAD"),
        until: Instant::now() + total,
        total,
    };
    let name = course.name.clone();
    let going = attempts(pools, pool, wire, manner, course);
    match &bounds.closed {
        None => going.await,
        Some(closed) => tokio::select! {
            biased;
            () = closed.cancelled() => Err(cancelled(&name)),
            begun = going => begun,
        },
    }
}

async fn attempts(
    pools: &Arc<Pools>,
    pool: &PoolKey,
    wire: Wire,
    manner: Manner,
    course: Course,
) -> Result<Begun, Error> {
    let switching = !manner.switching.is_empty();
    let request = head(&wire, manner.switching, &pools.settings)?;
    let Wire {
        destination,
        body,
        carries_secret,
        ..
    } = wire;
    let (outgoing, again, mut sending) = Outgoing::of(body);
    let (head, ()) = request.into_parts();
    let mut request = Request::from_parts(head.clone(), outgoing);
    let mut age = match (&again, switching) {
        // It leaves its connection changed, so that it takes none from others.
        (_, true) => Age::New,
        (Again::Yes(_), false) if course.safe => Age::Any,
        _ => Age::Trusted,
    };
    loop {
        let asking = pools.turn(
            pool,
            &destination,
            carries_secret,
            (manner.want, age),
            course.until,
        );
        let mut turn = timeout_at(course.until.into(), asking)
            .await
            .map_err(|_| {
                unavailable(
                    &course.name,
                    format_args!(
                        "not connected within the {} it was given",
                        span(course.total)
                    ),
                )
            })??;
        let before = turn.link.gauge.written();
        let answered = {
            let sender = &mut turn.link.sender;
            let going = async {
                match sender.ready().await {
                    Ok(()) => sender
                        .try_send_request(request)
                        .await
                        .map_err(|mut e| (e.take_message(), e.into_error())),
                    Err(e) => Err((Some(request), e)),
                }
            };
            tokio::select! {
                biased;
                answered = going => answered,
                late = late(&turn.link.gauge, &sending, &pools.settings, course.until) => {
                    return Err(overdue(&course, late, turn.link.gauge.written() > before, &pools.settings));
                }
            }
        };
        let (unsent, error) = match answered {
            Ok(response) => {
                return Ok(Begun {
                    response,
                    turn,
                    course,
                });
            }
            Err(failed) => failed,
        };
        let written = unsent.is_none() && turn.link.gauge.written() > before;
        let stale = turn.reused && age != Age::New;
        request = match (unsent, &again) {
            (Some(whole), _) if stale => whole,
            (None, Again::Yes(bytes)) if stale && (!written || course.safe) && wrecked(&error) => {
                let (outgoing, _, begun) = Outgoing::buffered(bytes.clone());
                sending = begun;
                Request::from_parts(head.clone(), outgoing)
            }
            _ => {
                // A server that refuses our identity says so when it likes, also before anything was asked.
                let fault = match error.is_closed() || error.is_canceled() {
                    true => turn.link.fault().await,
                    false => None,
                };
                let error = fault.unwrap_or(&error);
                return Err(broken(&course, error, written, &sending, &pools.settings));
            }
        };
        age = Age::New;
    }
}

/// Whether the connection broke, rather than that the server answered what is no HTTP.
fn wrecked(error: &hyper::Error) -> bool {
    !error.is_parse() && tls::inside(error).is_none()
}

/// The request's head as hyper writes it.
fn head(
    wire: &Wire,
    switching: Vec<(HeaderName, HeaderValue)>,
    settings: &HttpSettings,
) -> Result<Request<()>, Error> {
    let name = wire.name();
    let refuse = |what: &str| Err(failed(Code::InvalidConfig, &name, what));
    let method = match Method::from_bytes(wire.method.as_bytes()) {
        Ok(Method::CONNECT | Method::TRACE) => return refuse("CONNECT and TRACE are never sent"),
        Ok(method) if !wire.method.bytes().any(|b| b.is_ascii_lowercase()) => method,
        _ => return refuse("the method is no token in upper case"),
    };
    if !wire.target.starts_with('/')
        || wire
            .target
            .bytes()
            .any(|b| !b.is_ascii_graphic() || b == b'#')
    {
        return refuse("the path does not begin with /, or has what must be percent-encoded");
    }
    let Ok(target) = Uri::try_from(wire.target.as_str()) else {
        return refuse("the path and query are not those of a URL");
    };
    if wire.headers.len() > settings.headers {
        return refuse(&format!("there are more than {} headers", settings.headers));
    }
    let mut size = wire.target.len();
    let mut request = Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = target;
    let headers = request.headers_mut();
    headers.insert(header::HOST, host(wire)?);
    headers.insert(
        header::ACCEPT_ENCODING,
        HeaderValue::from_static("identity"),
    );
    headers.insert(header::USER_AGENT, HeaderValue::from_static(AGENT));
    for (key, value) in &wire.headers {
        let Ok(key) = HeaderName::from_bytes(key.as_bytes()) else {
            return refuse("a header's name is no token");
        };
        if OWN.contains(&key) || key.as_str().starts_with("proxy-") {
            return refuse(&format!("the header {key} is the host's own to write"));
        }
        size += key.as_str().len() + value.expose().len() + 4;
        let Ok(mut held) = HeaderValue::from_maybe_shared(Bytes::from_owner(Held(value.clone())))
        else {
            return refuse(&format!(
                "the value of the header {key} has a line break, a NUL or another control character"
            ));
        };
        held.set_sensitive(true);
        if key == header::USER_AGENT {
            headers.insert(key, held);
        } else {
            headers.append(key, held);
        }
    }
    if size > settings.head_bytes {
        return refuse(&format!(
            "path and headers are longer than {} KiB",
            settings.head_bytes / 1024
        ));
    }
    match &wire.body {
        Body::Empty => {
            if !matches!(
                *request.method(),
                Method::GET | Method::HEAD | Method::DELETE
            ) {
                request
                    .headers_mut()
                    .insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
            }
        }
        _ if matches!(*request.method(), Method::GET | Method::HEAD) => {
            return refuse("a GET or HEAD has no body");
        }
        Body::Full(_) | Body::Pieces(_) => {}
    }
    request
        .headers_mut()
        .extend(switching.into_iter().map(|(key, value)| (Some(key), value)));
    Ok(request)
}

const AGENT: &str = concat!("leasehold/", env!("CARGO_PKG_VERSION"));

fn host(wire: &Wire) -> Result<HeaderValue, Error> {
    let to = &wire.destination;
    let text = match to.unix {
        Some(_) => "localhost".to_owned(),
        None => to.origin.authority(),
    };
    HeaderValue::try_from(text).map_err(|_| {
        failed(
            Code::InvalidConfig,
            &wire.name(),
            "the host is no header's value",
        )
    })
}

/// Keeps a value wiped once its header is gone.
struct Held(Secret);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self.0.expose().as_bytes()
    }
}

/// Which deadline passed.
enum Late {
    Writing,
    Head,
    Total,
}

/// Returns when one of an exchange's deadlines passed.
async fn late(gauge: &Gauge, sending: &Sending, settings: &HttpSettings, until: Instant) -> Late {
    let mut since = Instant::now();
    loop {
        let written = gauge.last_write().max(since);
        let (due, which) = if sending.done() {
            (written + settings.first_byte, Late::Head)
        } else {
            (written + settings.idle, Late::Writing)
        };
        let now = Instant::now();
        if now >= until {
            return Late::Total;
        }
        if now >= due {
            if matches!(which, Late::Writing) && sending.starved() {
                // It is our own source that is slow.
                since = now;
                continue;
            }
            return which;
        }
        let due = sleep_until(due.min(until).into());
        if sending.done() {
            due.await;
        } else {
            tokio::select! {
                () = due => {}
                () = sending.finished() => {}
            }
        }
    }
}

fn overdue(course: &Course, late: Late, written: bool, settings: &HttpSettings) -> Error {
    let what = match late {
        Late::Writing => format!(
            "the server took nothing of the request for {}",
            span(settings.idle)
        ),
        Late::Head => format!(
            "the server's answer did not begin, head and all, within {} of the request",
            span(settings.first_byte)
        ),
        Late::Total => format!(
            "no answer within the {} the request was given",
            span(course.total)
        ),
    };
    if written {
        course.lost(what)
    } else {
        unavailable(&course.name, what)
    }
}

fn broken(
    course: &Course,
    error: &hyper::Error,
    written: bool,
    sending: &Sending,
    settings: &HttpSettings,
) -> Error {
    if let Some(tls) = tls::inside(error) {
        return tls::refused(&course.name, tls);
    }
    let what = if let Some(why) = sending.failed() {
        format!("the bytes to send could not be read ({why})")
    } else if error.is_parse_too_large() {
        format!(
            "the head of the answer has more than {} headers or {} KiB",
            settings.headers,
            settings.head_bytes / 1024
        )
    } else if error.is_parse() {
        format!("the server answered what is not HTTP/1.1 ({error})")
    } else {
        format!(
            "the connection was lost before the answer ({})",
            told(error)
        )
    };
    if written {
        course.lost(what)
    } else {
        unavailable(&course.name, what)
    }
}

/// An error and what is under it, on one line.
pub(super) fn told(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut at = std::error::Error::source(error);
    while let Some(e) = at {
        text = format!("{text}: {e}");
        at = e.source();
    }
    quote(text.as_bytes())
}
