//! Headers of a request: which a component may say, and the sites in which a credential takes its placeholder's place.
//!
//! A placeholder stands whole in its site or the request is refused; a header that shows who asks is said by a site or
//! not at all; what frames the message, and what would stand for another method or path than was judged, is nobody's.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use leasehold_contract::{Code, Error, Site};

use super::facts::Value;
use super::tokens::{Purpose, Token, Tokens, header_value, misplaced};
use crate::error::quote;
use crate::secret::Secret;

/// The most headers, and the most bytes of one and of all.
const HEADERS: usize = 64;
const LONGEST: usize = 8 << 10;
const TOGETHER: usize = 32 << 10;

/// The wire's own.
const FRAMING: &[&str] = &[
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Read by some servers as another method or path than the request line's.
const DISGUISES: &[&str] = &[
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-method",
    "x-original-uri",
    "x-original-url",
    "x-rewrite-url",
];

/// Said by a site or not at all.
const SITES_ONLY: &[&str] = &["authorization", "cookie", "x-registry-auth"];

/// What may stand once only.
const SINGLE: &[&str] = &[
    "authorization",
    "content-encoding",
    "content-type",
    "cookie",
    "x-registry-auth",
];

/// The headers of a request as they go out.
pub(crate) struct Headers {
    pub(crate) all: Vec<(String, Secret)>,
    /// Whether a credential stands in one.
    pub(crate) secret: bool,
}

impl Headers {
    /// The value of a header, where it is said.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.all
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| value.expose().as_str())
    }
}

/// Whom a request goes to, for its credentials.
pub(crate) struct Toward<'a> {
    /// The endpoint's pointer; none for an approved origin, where no credential goes.
    pub(crate) pointer: Option<&'a str>,
    /// User names of Basic credentials, by the pointer of their field.
    pub(crate) users: &'a std::collections::BTreeMap<String, String>,
}

fn deny<T>(what: impl Into<String>) -> Result<T, Error> {
    Err(Error::new(Code::PermissionDenied, what))
}

/// Judges the headers that a component wants, and puts credentials into their sites.
pub(crate) fn judge(
    wanted: &[(String, String)],
    tokens: &Tokens,
    toward: &Toward<'_>,
) -> Result<Headers, Error> {
    if wanted.len() > HEADERS {
        return deny(format!(
            "the request has {} headers; at most {HEADERS} are sent",
            wanted.len()
        ));
    }
    let mut headers = Headers {
        all: Vec::with_capacity(wanted.len()),
        secret: false,
    };
    let mut together = 0;
    let mut plain: Vec<&str> = Vec::new();
    for (name, value) in wanted {
        let lower = named(name)?;
        together += name.len() + value.len();
        if value.len() > LONGEST || together > TOGETHER {
            return deny(format!(
                "the header {lower} is too long; a value has at most 8 KiB, all headers 32 KiB"
            ));
        }
        if value.bytes().any(|b| (b < 0x20 && b != b'\t') || b == 0x7f) {
            return deny(format!(
                "the header {lower} has a line end or another control character"
            ));
        }
        if SINGLE.contains(&lower.as_str()) && headers.get(&lower).is_some() {
            return deny(format!("the header {lower} stands twice"));
        }
        tokens.refuse(name.as_bytes(), "a header's name")?;
        match site(&lower, value, tokens, toward)? {
            Some(filled) => {
                headers.secret = true;
                headers.all.push((lower, filled));
            }
            None => {
                if SITES_ONLY.contains(&lower.as_str()) {
                    return deny(format!(
                        "the header {lower} is said only by the site of a credential that the manifest declares, with its placeholder"
                    ));
                }
                plain.push(value);
                headers.all.push((lower, Secret::new(value.clone())));
            }
        }
    }
    // Encoded ones, and one in pieces.
    tokens.refuse(
        plain.concat().as_bytes(),
        "the headers, encoded or in pieces",
    )?;
    Ok(headers)
}

/// A header's name in lower case, if a component may say it.
fn named(name: &str) -> Result<String, Error> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if !(1..=64).contains(&name.len()) || !name.bytes().all(token) {
        return deny(format!("{:?} is no header's name", quote(name.as_bytes())));
    }
    let lower = name.to_ascii_lowercase();
    // Some servers read `_` as `-`.
    let dashed = lower.replace('_', "-");
    let dashed = dashed.as_str();
    if FRAMING.contains(&dashed)
        || dashed.starts_with("proxy-")
        || dashed.starts_with("sec-websocket-")
    {
        return deny(format!(
            "the header {lower} is the host's own; leave it out"
        ));
    }
    if DISGUISES.contains(&dashed) {
        return deny(format!(
            "the header {lower} can stand for another method or path than the one that is judged; leave it out"
        ));
    }
    if lower != dashed && SITES_ONLY.contains(&dashed) {
        return deny(format!(
            "the header {lower} is read as {dashed} by some servers; leave it out"
        ));
    }
    Ok(lower)
}

/// The value of a header that is a site; none where no placeholder stands in it.
fn site(
    name: &str,
    value: &str,
    tokens: &Tokens,
    toward: &Toward<'_>,
) -> Result<Option<Secret>, Error> {
    if let Some(encoded) = basic(name, value) {
        return with_basic(encoded, tokens, toward).map(Some);
    }
    let whole = tokens.split(value).into_iter().find_map(|part| match part {
        super::tokens::Part::Token(token) => Some(token),
        super::tokens::Part::Text(_) => None,
    });
    let Some(token) = whole else {
        return Ok(None);
    };
    let sites = allowed(&token, toward)?;
    for site in sites {
        match site {
            Site::Header(header, template)
                if header.eq_ignore_ascii_case(name)
                    && template.replacen("{}", &token.placeholder, 1) == value =>
            {
                return Ok(Some(in_template(template, text_of(&token)?)));
            }
            Site::RegistryAuth if name == "x-registry-auth" && value == token.placeholder => {
                return registry(&token).map(Some);
            }
            _ => {}
        }
    }
    Err(misplaced(&format!("the header {name}")))
}

/// What follows `Basic ` in an authorization header.
fn basic<'a>(name: &str, value: &'a str) -> Option<&'a str> {
    let (scheme, rest) = value.split_once(' ')?;
    (name == "authorization" && scheme.eq_ignore_ascii_case("basic")).then_some(rest)
}

/// Basic credentials are decoded whole, the password replaced, and encoded again.
fn with_basic(encoded: &str, tokens: &Tokens, toward: &Toward<'_>) -> Result<Secret, Error> {
    let decoded = STANDARD
        .decode(encoded.trim())
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    let Some((user, password)) = decoded.as_deref().and_then(|d| d.split_once(':')) else {
        return deny("the Basic credentials are not base64 of `user:placeholder`");
    };
    let Some(token) = tokens.get(password) else {
        return deny(
            "the password of the Basic credentials is not the placeholder of a credential",
        );
    };
    for site in allowed(token, toward)? {
        if let Site::Basic(pointer) = site {
            if toward.users.get(pointer).map(String::as_str) != Some(user) {
                return deny(format!(
                    "the user name of the Basic credentials is not what the configuration has at {pointer}"
                ));
            }
            if user.contains(':') || user.chars().any(char::is_control) {
                return deny(format!(
                    "the user name at {pointer} has a colon or a control character, which Basic cannot carry"
                ));
            }
            let mut plain = Vec::with_capacity(user.len() + 1 + text_of(token)?.expose().len());
            plain.extend_from_slice(user.as_bytes());
            plain.push(b':');
            plain.extend_from_slice(text_of(token)?.expose().as_bytes());
            let plain = Secret::new(plain);
            return Ok(Secret::new(format!(
                "Basic {}",
                STANDARD.encode(plain.expose())
            )));
        }
    }
    Err(misplaced("Basic credentials, which is not a site of it"))
}

/// The sites of a credential, if it goes to where this request goes.
fn allowed<'a>(token: &'a Token, toward: &Toward<'_>) -> Result<&'a [Site], Error> {
    let Purpose::Credential { sites, to } = &token.purpose else {
        return Err(misplaced("a header"));
    };
    match toward.pointer {
        Some(pointer) if to.iter().any(|t| t == pointer) => Ok(sites),
        Some(pointer) => deny(format!(
            "a credential's placeholder stands in a request to the endpoint {pointer}; it goes only to {}",
            to.join(", ")
        )),
        None => deny(
            "a credential's placeholder stands in a request to an approved origin; credentials go to configured endpoints only",
        ),
    }
}

fn text_of(token: &Token) -> Result<&Secret, Error> {
    match &token.value {
        Value::Text(text) => {
            header_value(text)?;
            Ok(text)
        }
        Value::Registry { .. } => Err(misplaced("a header that is not X-Registry-Auth")),
    }
}

fn in_template(template: &str, value: &Secret) -> Secret {
    let (before, after) = template.split_once("{}").unwrap_or((template, ""));
    let mut out = String::with_capacity(template.len() + value.expose().len());
    out.push_str(before);
    out.push_str(value.expose());
    out.push_str(after);
    Secret::new(out)
}

/// The whole of X-Registry-Auth, as engines read it: base64url of JSON, padded.
fn registry(token: &Token) -> Result<Secret, Error> {
    let Value::Registry {
        server,
        username,
        password,
    } = &token.value
    else {
        return deny(
            "X-Registry-Auth is written from a field of format `registry`, and this credential is none",
        );
    };
    #[derive(serde::Serialize)]
    struct Auth<'a> {
        username: &'a str,
        password: &'a str,
        serveraddress: &'a str,
    }
    let auth = Auth {
        username,
        password: password.expose(),
        serveraddress: server,
    };
    let json = serde_json::to_vec(&auth)
        .map(Secret::new)
        .map_err(|e| Error::new(Code::Internal, format!("registry credentials: {e}")))?;
    Ok(Secret::new(URL_SAFE.encode(json.expose())))
}
