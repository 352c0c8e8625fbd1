//! Judging a request: where it goes, what it does there, what it carries.
//!
//! Whatever is refused is refused before anything of a secret is put anywhere; what is let through is written anew from
//! what was judged.

use leasehold_contract::{Code, Error, HttpRequest, Piece};

use super::operations::{self, Asked, Effect, Form};
use super::path::{self, Path};
use super::said::Said;
use super::sites::{self, Toward};
use super::tokens::Tokens;
use super::{About, Expects, Judged, Place, Rules, body, split};
use crate::engine;
use crate::error::quote;
use crate::http::{Body, Destination, Origin, Parsed, Wire};
use crate::scope::Reach;

/// The most values that one request keeps, and the longest name of one.
const KEEPS: usize = 16;
const KEEP_NAME: usize = 64;

fn deny<T>(what: impl Into<String>) -> Result<T, Error> {
    Err(Error::new(Code::PermissionDenied, what))
}

impl Rules {
    /// What a request becomes on the wire, or why it does not get there; what it is about, in either case.
    pub(crate) fn judge(
        &self,
        request: &HttpRequest,
        pieces: Vec<Piece>,
        form: Form,
    ) -> (About, Result<Judged, Error>) {
        let method = match form {
            Form::WebSocket => "GET",
            _ => request.method.as_str(),
        };
        let mut about = About {
            target: quote(request.url.as_bytes()),
            pointer: String::new(),
            what: quote(method.as_bytes()),
        };
        let judged = self.find(request, pieces, form, method, &mut about);
        let judged = judged.map_err(|mut error| {
            error.message = format!("{} {}: {}", about.what, about.target, error.message);
            error
        });
        (about, judged)
    }

    fn find(
        &self,
        request: &HttpRequest,
        pieces: Vec<Piece>,
        form: Form,
        method: &str,
        about: &mut About,
    ) -> Result<Judged, Error> {
        if self.reach == Reach::Nothing {
            return deny(
                "this function reaches nothing: egress is closed to describe and check-config",
            );
        }
        check_method(method)?;
        let url = match form {
            Form::WebSocket => request
                .url
                .replacen("ws", "http", usize::from(is_ws(&request.url))),
            _ => request.url.clone(),
        };
        let Parsed { origin, .. } =
            Parsed::of(&url).map_err(|error| Error::new(Code::PermissionDenied, error.message))?;
        about.target = origin.to_string();
        let (raw, query) = split(&url);
        let path = match Path::parse(raw) {
            Ok(path) => path,
            Err(what) => return deny(format!("the path {what}")),
        };
        let written = path.written();
        about.what = format!("{method} {}", quote(written.as_bytes()));
        let query = queried(query, &request.query)?;
        let target = match &query {
            Some(query) => format!("{written}?{query}"),
            None => written,
        };
        let tokens = self.known().tokens.clone();
        // As it was given, host and all, and as it is sent.
        tokens.refuse(request.url.as_bytes(), "the URL")?;
        tokens.refuse(target.as_bytes(), "the URL")?;
        let values: String = request
            .query
            .iter()
            .map(|(_, value)| value.as_str())
            .collect();
        tokens.refuse(values.as_bytes(), "the URL")?;

        let at = |place: &&Place| place.destination.origin == origin;
        // Where an engine is, no plain endpoint beside it leads around its policy.
        let engine = self
            .endpoints
            .iter()
            .filter(at)
            .any(|place| place.destination.engine);
        let here: Vec<(&Place, &[String])> = self
            .endpoints
            .iter()
            .filter(at)
            .filter(|place| place.destination.engine == engine)
            .filter_map(|place| Some((place, path.below(&place.base)?)))
            .collect();
        if let Some((place, _)) = here.first() {
            about.target = place.destination.to_string();
        }
        let ask = Ask {
            request,
            method,
            form,
            target,
            query,
            engine,
            tokens: &tokens,
            name: format!("{} {}", about.what, about.target),
        };
        if here.is_empty() {
            return self.toward_origin(origin, pieces, ask);
        }
        let mints = self.minting(&here, method, form)?;
        let keep = self.keeping(request, &mints)?;
        let mut first = None;
        for (place, below) in here {
            about.pointer.clone_from(&place.pointer);
            match self.permit(place, below, &ask) {
                Ok((effect, mut headers)) => {
                    let mut target = ask.target.clone();
                    let mut answer = engine::Answer::AsItIs;
                    let filled = if engine {
                        let policy = self.policy(below, &ask, &effect)?;
                        policy.look(&request.body, form == Form::Upload)?;
                        let mut filled = self.body(pieces, &ask, &effect, &mut headers)?;
                        filled.body = policy.body(filled.body)?;
                        headers = policy.headers(headers)?;
                        target.clone_from(&policy.target);
                        answer = policy.answer();
                        filled
                    } else {
                        self.body(pieces, &ask, &effect, &mut headers)?
                    };
                    let said = match &effect {
                        Effect::Creates(made) | Effect::CreatesChild(made) => {
                            Said::of(request, below, made)
                        }
                        Effect::Reads | Effect::Acts | Effect::Shared => Said::default(),
                    };
                    return Ok(Judged {
                        wire: Wire {
                            destination: place.destination.clone(),
                            method: method.to_owned(),
                            target,
                            carries_secret: headers.secret || filled.secret,
                            headers: headers.all,
                            body: filled.body,
                        },
                        expects: Expects {
                            effect,
                            mints,
                            keep,
                            answer,
                            said,
                            name: ask.name,
                        },
                        plain: (!engine).then(|| place.base.written()),
                    });
                }
                Err(error) => first = first.or(Some((place.pointer.clone(), error))),
            }
        }
        match first {
            Some((pointer, error)) => {
                about.pointer = pointer;
                Err(error)
            }
            None => deny("no endpoint is there"),
        }
    }

    /// Whether a request may go to this endpoint, and with which headers.
    fn permit(
        &self,
        place: &Place,
        below: &[String],
        ask: &Ask<'_>,
    ) -> Result<(Effect, sites::Headers), Error> {
        if !place.destination.typed {
            return deny(format!(
                "the endpoint at {} was not typed by an administrator: it is a default, or was saved before the field was an endpoint; save the environment with it",
                place.pointer
            ));
        }
        if ask.form.is_stream() && !self.asked.streams {
            return deny("streams were not granted; the manifest asks for them by request.streams");
        }
        let names = self.known().names.clone();
        let effect = operations::judge(
            || self.operations(),
            &Asked {
                endpoint: &place.pointer,
                method: ask.method,
                path: below,
                form: ask.form,
                reach: self.reach,
                names: &names,
                lease: self.lease,
                acquiring: self.facts.acquiring,
            },
        )?;
        let toward = Toward {
            pointer: Some(&place.pointer),
            users: &self.facts.users,
        };
        let headers = sites::judge(&ask.request.headers, ask.tokens, &toward)?;
        Ok((effect, headers))
    }

    /// What the engine policy says to a request that an operation lets through.
    fn policy(
        &self,
        path: &[String],
        ask: &Ask<'_>,
        effect: &Effect,
    ) -> Result<engine::Allowed<'_>, Error> {
        let names = self.known().names.clone();
        engine::judge(
            &engine::Asked {
                method: ask.method,
                path,
                query: ask.query.as_deref(),
                form: ask.form,
                effect,
                names: &names,
            },
            self.owner.as_ref(),
        )
    }

    fn body(
        &self,
        pieces: Vec<Piece>,
        ask: &Ask<'_>,
        effect: &Effect,
        headers: &mut sites::Headers,
    ) -> Result<body::Filled, Error> {
        let content = &ask.request.body;
        let empty = content.as_bytes().is_empty();
        match ask.form {
            // The contract: not used.
            Form::WebSocket => return Ok(body::Filled::empty()),
            Form::Upload if matches!(ask.method, "GET" | "HEAD") => {
                return deny("a GET or HEAD has no body; upload by another method");
            }
            Form::Upload if !empty => {
                return deny("the request has a body beside its pieces; leave it out");
            }
            Form::Upload => {
                return Ok(body::Filled {
                    body: body::pieces(pieces, ask.tokens)?,
                    secret: false,
                });
            }
            _ => {}
        }
        if matches!(ask.method, "GET" | "HEAD") {
            if !empty {
                return deny("a GET or HEAD has no body; leave it out");
            }
            return Ok(body::Filled::empty());
        }
        let labels = match effect {
            Effect::Creates(made) | Effect::CreatesChild(made) => made.labels.as_deref(),
            Effect::Reads | Effect::Acts | Effect::Shared => None,
        };
        let owner = match (labels, &self.owner) {
            // To an engine the host writes all labels itself.
            (Some(labels), Some(owner)) if !ask.engine => {
                let (key, value) = owner.label();
                Some(body::OwnerLabel { labels, key, value })
            }
            _ => None,
        };
        body::buffered(
            content,
            headers,
            ask.tokens,
            effect.is_the_leases(),
            owner.as_ref(),
        )
    }

    /// A request to an origin that was approved at install: it reads, and carries nothing.
    fn toward_origin(
        &self,
        origin: Origin,
        pieces: Vec<Piece>,
        ask: Ask<'_>,
    ) -> Result<Judged, Error> {
        if !self
            .origins
            .iter()
            .any(|(_, pattern)| pattern.covers(&origin))
        {
            return deny(self.elsewhere(&origin));
        }
        if !matches!(ask.method, "GET" | "HEAD") || ask.form.is_stream() {
            return deny("an approved origin is only read: GET and HEAD, and no streams");
        }
        if !ask.request.body.as_bytes().is_empty() || !pieces.is_empty() || ask.form == Form::Upload
        {
            return deny("a GET or HEAD has no body; leave it out");
        }
        if !ask.request.keep.is_empty() {
            return deny("an approved origin mints nothing that could be kept");
        }
        let toward = Toward {
            pointer: None,
            users: &self.facts.users,
        };
        let headers = sites::judge(&ask.request.headers, ask.tokens, &toward)?;
        Ok(Judged {
            wire: Wire {
                destination: Destination {
                    origin,
                    typed: false,
                    tls: None,
                    unix: None,
                    engine: false,
                },
                method: ask.method.to_owned(),
                target: ask.target,
                headers: headers.all,
                body: Body::Empty,
                carries_secret: false,
            },
            expects: Expects {
                effect: Effect::Reads,
                mints: Vec::new(),
                keep: Vec::new(),
                answer: engine::Answer::AsItIs,
                said: Said::default(),
                name: ask.name,
            },
            plain: None,
        })
    }

    /// What is allowed instead of this origin.
    fn elsewhere(&self, origin: &Origin) -> String {
        let endpoints: Vec<String> = self
            .endpoints
            .iter()
            .map(|p| {
                let origin = &p.destination.origin;
                format!("{origin}{} ({})", p.base.written(), p.pointer)
            })
            .collect();
        let list = |all: Vec<String>| {
            if all.is_empty() {
                "none".to_owned()
            } else {
                all.join(", ")
            }
        };
        let patterns = self.origins.iter().map(|(text, _)| text.clone()).collect();
        let what = if self
            .endpoints
            .iter()
            .any(|p| p.destination.origin == *origin)
        {
            "the path lies outside of every endpoint"
        } else {
            "the destination is neither a configured endpoint nor an approved origin"
        };
        format!(
            "{what}; endpoints are: {}; approved origins are: {}",
            list(endpoints),
            list(patterns)
        )
    }

    /// The mints that an answer of this request is of, at whichever of the endpoints.
    fn minting(
        &self,
        here: &[(&Place, &[String])],
        method: &str,
        form: Form,
    ) -> Result<Vec<usize>, Error> {
        let names = self.known().names.clone();
        let mut found = Vec::new();
        for (index, minting) in self.mints.iter().enumerate() {
            for (place, below) in here {
                if minting.mint.endpoint != place.pointer || minting.mint.method != method {
                    continue;
                }
                if minting.template.matches(below, &names) {
                    found.push(index);
                } else if minting.template.resembles(below) {
                    return deny(format!(
                        "the answer is of the mint {} {}, which takes exactly that path with what is this lease's own",
                        method, minting.mint.path
                    ));
                }
            }
        }
        if !found.is_empty() && !matches!(form, Form::Send | Form::Upload) {
            return deny(
                "the answer mints a credential, which becomes a placeholder in a whole answer only; use http.send",
            );
        }
        Ok(found)
    }

    /// What of the answer is kept for later calls.
    fn keeping(
        &self,
        request: &HttpRequest,
        mints: &[usize],
    ) -> Result<Vec<(String, String)>, Error> {
        if request.keep.is_empty() {
            return Ok(Vec::new());
        }
        if !self.lease {
            return deny("a value is kept for a lease, and this call has none");
        }
        if request.keep.len() > KEEPS {
            return deny(format!("the request keeps more than {KEEPS} values"));
        }
        for (pointer, name) in &request.keep {
            let minted = |i: &usize| self.mints[*i].mint.pointers.contains(pointer);
            if !mints.iter().any(minted) {
                return deny(format!(
                    "keep names {:?}, which no mint of the manifest has in this answer",
                    quote(pointer.as_bytes())
                ));
            }
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
            if !(1..=KEEP_NAME).contains(&name.len()) || !name.bytes().all(plain) {
                return deny("the name of a kept value is 1 to 64 of A-Za-z0-9._-");
            }
        }
        Ok(request.keep.clone())
    }
}

/// A request on its way through the rules.
struct Ask<'a> {
    request: &'a HttpRequest,
    method: &'a str,
    form: Form,
    target: String,
    query: Option<String>,
    /// It goes to a container engine.
    engine: bool,
    tokens: &'a Tokens,
    name: String,
}

fn check_method(method: &str) -> Result<(), Error> {
    let token = |b: u8| b.is_ascii_uppercase() || b == b'-';
    if !(1..=16).contains(&method.len()) || !method.bytes().all(token) {
        return deny("the method is 1 to 16 letters in upper case, as POST");
    }
    if matches!(method, "CONNECT" | "TRACE" | "TRACK") {
        return deny("this method goes nowhere from here");
    }
    Ok(())
}

fn is_ws(url: &str) -> bool {
    url.starts_with("ws://") || url.starts_with("wss://")
}

/// The query of a URL with more pairs behind it, as it is sent.
fn queried(query: Option<&str>, more: &[(String, String)]) -> Result<Option<String>, Error> {
    const LONGEST: usize = 16 << 10;
    let mut out = String::new();
    path::encode(
        query.unwrap_or_default(),
        b"-._~!$&'()*+,;=:@/?%[]|",
        &mut out,
    );
    for (name, value) in more {
        if !out.is_empty() {
            out.push('&');
        }
        path::encode(name, b"-._~", &mut out);
        out.push('=');
        path::encode(value, b"-._~", &mut out);
    }
    if out.len() > LONGEST {
        return deny("the query is longer than 16 KiB");
    }
    // Read by some frameworks as the method of the request.
    let name = |pair: &str| path::unescape(pair.split('=').next().unwrap_or_default());
    if out
        .split(['&', ';'])
        .any(|pair| name(pair).eq_ignore_ascii_case(b"_method"))
    {
        return deny(
            "the query has _method, which can stand for another method than the one that is judged",
        );
    }
    Ok((!out.is_empty()).then_some(out))
}
