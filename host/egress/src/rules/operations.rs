//! Which requests may go to an endpoint: GET and HEAD, and what a declared and granted operation lets through.
//!
//! Where several operations fit, the one that binds most counts: what makes something is never let through as
//! something less, so that its id is always taken from the answer.

use leasehold_contract::{Code, Creation, Error, Operation, Role};

use super::path::{Names, Template};
use crate::scope::Reach;

/// How a request is sent and its answer read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `http.send`.
    Send,
    /// `http.open`.
    Open,
    /// `http.download`.
    Download,
    /// `http.upload`.
    Upload,
    /// `streams.upgrade`.
    Upgrade,
    /// `streams.websocket`.
    WebSocket,
}

impl Form {
    /// Whether it opens a stream that bytes go both ways on.
    pub(crate) fn is_stream(self) -> bool {
        matches!(self, Form::Upgrade | Form::WebSocket)
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Form::Send => "http.send",
            Form::Open => "http.open",
            Form::Download => "http.download",
            Form::Upload => "http.upload",
            Form::Upgrade => "streams.upgrade",
            Form::WebSocket => "streams.websocket",
        }
    }
}

/// What a request that is let through does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing.
    Reads,
    /// Makes the lease's environment.
    Creates(Creation),
    /// Makes something of it.
    CreatesChild(Creation),
    /// Acts on what is the lease's.
    Acts,
    /// Changes something that no lease owns.
    Shared,
}

impl Effect {
    /// Whether something may be otherwise afterwards.
    pub(crate) fn acts(&self) -> bool {
        *self != Effect::Reads
    }

    /// Whether the request is for the lease's own environment, where payloads may go.
    pub(crate) fn is_the_leases(&self) -> bool {
        matches!(
            self,
            Effect::Creates(_) | Effect::CreatesChild(_) | Effect::Acts
        )
    }
}

/// A declared operation, ready to be compared.
#[derive(Debug)]
pub(crate) struct Declared {
    endpoint: String,
    method: String,
    path: String,
    template: Template,
    role: Role,
}

impl Declared {
    /// The operations of a manifest, those that bind most first; one whose path no request can have is none.
    pub(crate) fn all(operations: &[Operation]) -> Vec<Declared> {
        let mut all: Vec<Declared> = operations
            .iter()
            .filter_map(|o| {
                Some(Declared {
                    endpoint: o.endpoint.clone(),
                    method: o.method.clone(),
                    path: o.path.clone(),
                    template: Template::parse(&o.path)?,
                    role: o.role.clone(),
                })
            })
            .collect();
        all.sort_by_key(|o| match o.role {
            Role::Create(_) => 0,
            Role::CreateChild(_) => 1,
            Role::Act => 2,
            Role::Read => 3,
            Role::Shared => 4,
        });
        all
    }

    fn role(&self) -> &'static str {
        match self.role {
            Role::Create(_) => "create",
            Role::CreateChild(_) => "create-child",
            Role::Act => "act",
            Role::Read => "read",
            Role::Shared => "shared",
        }
    }
}

/// A request as operations see it.
pub(crate) struct Asked<'a> {
    /// Pointer of the endpoint.
    pub(crate) endpoint: &'a str,
    pub(crate) method: &'a str,
    /// The segments behind the endpoint's own.
    pub(crate) path: &'a [String],
    pub(crate) form: Form,
    pub(crate) reach: Reach,
    pub(crate) names: &'a Names,
    /// Whether the call has a lease.
    pub(crate) lease: bool,
    /// Whether it is `acquire`.
    pub(crate) acquiring: bool,
}

/// What the request does, or why it is not let through. `declared` is asked only where an operation is needed.
pub(crate) fn judge<'d>(
    declared: impl FnOnce() -> &'d [Declared],
    asked: &Asked<'_>,
) -> Result<Effect, Error> {
    let deny = |what: String| Err(Error::new(Code::PermissionDenied, what));
    if asked.reach == Reach::Nothing {
        return deny(
            "this function reaches nothing: egress is closed to describe and check-config".into(),
        );
    }
    if asked.form.is_stream() && asked.reach != Reach::Act {
        return deny("this function only looks; it may not open a stream".into());
    }
    if matches!(asked.method, "GET" | "HEAD") && !asked.form.is_stream() {
        return Ok(Effect::Reads);
    }
    let declared = declared();
    let mut here = declared
        .iter()
        .filter(|o| o.endpoint == asked.endpoint && o.method == asked.method);
    let found = here.clone().find_map(|o| {
        if o.template.matches(asked.path, asked.names) {
            return Some(Ok(o));
        }
        // Servers that read a path with less care than we do would make something, and nobody would take its id.
        let makes = matches!(o.role, Role::Create(_) | Role::CreateChild(_));
        (makes && o.template.resembles(asked.path)).then_some(Err(o))
    });
    match found {
        Some(Ok(operation)) => permitted(operation, asked),
        Some(Err(nearly)) => deny(not_own(nearly, asked)),
        None => match here.find(|o| o.template.resembles(asked.path)) {
            Some(nearly) => deny(not_own(nearly, asked)),
            None => deny(unknown(declared, asked)),
        },
    }
}

/// A path that would do, were what it names this lease's.
fn not_own(nearly: &Declared, asked: &Asked<'_>) -> String {
    let known = |what: &str, is: Option<&str>| match is {
        Some(is) => format!("{what} {is}"),
        None => format!("no {what} yet"),
    };
    format!(
        "the operation {} {} takes exactly that path with what is this lease's own ({}, {}, {} children)",
        nearly.method,
        nearly.path,
        known("resource", asked.names.resource.as_deref()),
        known("acquisition", asked.names.acquisition.as_deref()),
        asked.names.children.len(),
    )
}

fn unknown(declared: &[Declared], asked: &Asked<'_>) -> String {
    let all: Vec<String> = declared
        .iter()
        .filter(|o| o.endpoint == asked.endpoint)
        .map(|o| format!("{} {} ({})", o.method, o.path, o.role()))
        .collect();
    let what = if asked.form.is_stream() {
        "a stream needs an operation, one by GET too"
    } else {
        "a request other than GET and HEAD needs an operation"
    };
    format!(
        "{what}, and none that was granted is this; granted for {} are: {}",
        asked.endpoint,
        if all.is_empty() {
            "none".to_owned()
        } else {
            all.join(", ")
        }
    )
}

fn permitted(operation: &Declared, asked: &Asked<'_>) -> Result<Effect, Error> {
    let refuse = |code: Code, what: String| {
        Err(Error::new(
            code,
            format!(
                "the operation {} {} ({}) {what}",
                operation.method,
                operation.path,
                operation.role()
            ),
        ))
    };
    if operation.role == Role::Read {
        return Ok(Effect::Reads);
    }
    if asked.reach != Reach::Act {
        return refuse(
            Code::PermissionDenied,
            "changes something, and this function only looks".into(),
        );
    }
    if operation.role == Role::Shared {
        return Ok(Effect::Shared);
    }
    if !asked.lease {
        return refuse(
            Code::FailedPrecondition,
            "is for a lease, and this call has none".into(),
        );
    }
    let makes = |creation: &Creation, effect: fn(Creation) -> Effect| {
        if asked.form == Form::Send {
            Ok(effect(creation.clone()))
        } else {
            refuse(
                Code::PermissionDenied,
                format!(
                    "makes something whose id is taken from the answer; use http.send, not {}",
                    asked.form.as_str()
                ),
            )
        }
    };
    match &operation.role {
        Role::Create(_) if !asked.acquiring => refuse(
            Code::PermissionDenied,
            "makes an environment, which acquire alone does".into(),
        ),
        Role::Create(creation) => match &asked.names.resource {
            None => makes(creation, Effect::Creates),
            Some(resource) => refuse(
                Code::AlreadyExists,
                format!("makes an environment, and this lease has one already: {resource}"),
            ),
        },
        Role::CreateChild(creation) => makes(creation, Effect::CreatesChild),
        Role::Act if operation.template.names_the_lease() => Ok(Effect::Acts),
        Role::Act | Role::Read | Role::Shared => refuse(
            Code::PermissionDenied,
            "names nothing of the lease in its path".into(),
        ),
    }
}
