//! The methods and paths of an engine's API that are let through, and what each must be to the lease.
//!
//! They are those of Docker's Engine API and of Podman's own answer to it; nothing below `/libpod` is needed, and nothing
//! else is let through. `docs/engines.md` has the same list, which a test holds to this one.

use std::fmt;

use leasehold_contract::Error;

use super::parameters::Kind;
use super::{deny, image, is_whole_id};
use crate::rules::{Effect, Form, Names, encode};

/// One method and path.
pub(crate) struct Call {
    pub(super) method: &'static str,
    /// Apart by slashes; `{id}` is the lease's container, `{exec}` a command in it, `{name}` an image's name.
    pub(super) path: &'static str,
    /// Names of parameters, and what they may be.
    pub(super) query: &'static [(&'static str, Kind)],
    /// What the manifest's operation must do.
    pub(super) needs: Needs,
    pub(super) forms: &'static [Form],
    pub(super) takes: Takes,
    pub(super) gives: Gives,
}

/// What an operation must do for this to be sent by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing: it changes nothing, with or without an operation.
    Look,
    /// Change something that no lease owns.
    Shared,
    /// Make the lease's container.
    Create,
    /// Make a command in it.
    CreateChild,
    /// Act on what is the lease's.
    Act,
}

/// What the body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    Nothing,
    /// The container to make.
    Container,
    /// The command to make.
    Command,
    /// How a command is started.
    Start,
    /// A tar archive, which is not looked into: it is unpacked inside of the container.
    Archive,
}

/// What of the answer matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gives {
    Anything,
    /// The id of what was made.
    Id,
    /// A list of containers.
    Containers,
}

const WHOLE: &[Form] = &[Form::Send];
const READ: &[Form] = &[Form::Send, Form::Open, Form::Download];
const ACT: &[Form] = &[Form::Send, Form::Open];
const PUT: &[Form] = &[Form::Send, Form::Upload];
const STREAM: &[Form] = &[Form::Send, Form::Open, Form::Download, Form::Upgrade];

const fn look(method: &'static str, path: &'static str) -> Call {
    Call {
        method,
        path,
        query: &[],
        needs: Needs::Look,
        forms: READ,
        takes: Takes::Nothing,
        gives: Gives::Anything,
    }
}

const fn act(method: &'static str, path: &'static str) -> Call {
    Call {
        needs: Needs::Act,
        forms: ACT,
        ..look(method, path)
    }
}

/// Everything that is let through.
pub(crate) const CALLS: &[Call] = &[
    look("GET", "/_ping"),
    look("HEAD", "/_ping"),
    look("GET", "/version"),
    Call {
        query: &[
            ("fromImage", Kind::Image),
            ("tag", Kind::Tag),
            ("platform", Kind::Platform),
        ],
        needs: Needs::Shared,
        ..act("POST", "/images/create")
    },
    look("GET", "/images/{name}/json"),
    Call {
        query: &[("name", Kind::Acquisition), ("platform", Kind::Platform)],
        needs: Needs::Create,
        forms: WHOLE,
        takes: Takes::Container,
        gives: Gives::Id,
        ..act("POST", "/containers/create")
    },
    Call {
        query: &[
            ("all", Kind::Flag),
            ("limit", Kind::Number),
            ("size", Kind::Flag),
        ],
        forms: WHOLE,
        gives: Gives::Containers,
        ..look("GET", "/containers/json")
    },
    Call {
        query: &[("size", Kind::Flag)],
        ..look("GET", "/containers/{id}/json")
    },
    act("POST", "/containers/{id}/start"),
    Call {
        query: &[("t", Kind::Number), ("signal", Kind::Signal)],
        ..act("POST", "/containers/{id}/stop")
    },
    Call {
        query: &[("signal", Kind::Signal)],
        ..act("POST", "/containers/{id}/kill")
    },
    Call {
        query: &[("condition", Kind::Condition)],
        ..look("POST", "/containers/{id}/wait")
    },
    Call {
        query: &[("force", Kind::Flag), ("v", Kind::Flag)],
        ..act("DELETE", "/containers/{id}")
    },
    Call {
        query: &[
            ("follow", Kind::Flag),
            ("stdout", Kind::Flag),
            ("stderr", Kind::Flag),
            ("timestamps", Kind::Flag),
            ("since", Kind::Time),
            ("until", Kind::Time),
            ("tail", Kind::Tail),
        ],
        ..look("GET", "/containers/{id}/logs")
    },
    Call {
        query: &[("path", Kind::Path)],
        ..look("GET", "/containers/{id}/archive")
    },
    Call {
        query: &[("path", Kind::Path)],
        ..look("HEAD", "/containers/{id}/archive")
    },
    Call {
        query: &[
            ("path", Kind::Path),
            ("noOverwriteDirNonDir", Kind::Flag),
            ("copyUIDGID", Kind::Flag),
        ],
        forms: PUT,
        takes: Takes::Archive,
        ..act("PUT", "/containers/{id}/archive")
    },
    Call {
        needs: Needs::CreateChild,
        forms: WHOLE,
        takes: Takes::Command,
        gives: Gives::Id,
        ..act("POST", "/containers/{id}/exec")
    },
    Call {
        forms: STREAM,
        takes: Takes::Start,
        ..act("POST", "/exec/{exec}/start")
    },
    Call {
        query: &[("h", Kind::Number), ("w", Kind::Number)],
        ..act("POST", "/exec/{exec}/resize")
    },
    look("GET", "/exec/{exec}/json"),
];

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

impl Call {
    /// Whether it has an image pulled, by whoever may.
    pub(super) fn pulls(&self) -> bool {
        self.needs == Needs::Shared
    }

    /// Whether a request of this effect may be this.
    pub(super) fn check_effect(&self, effect: &Effect) -> Result<(), Error> {
        let (role, good) = match (self.needs, effect) {
            (Needs::Look, Effect::Reads | Effect::Acts) => return Ok(()),
            (Needs::Look, _) => ("read", false),
            (Needs::Shared, effect) => ("shared", *effect == Effect::Shared),
            (Needs::Act, effect) => ("act", *effect == Effect::Acts),
            (Needs::Create, Effect::Creates(made)) => {
                ("create, with the id at /Id", made.id == "/Id")
            }
            (Needs::Create, _) => ("create", false),
            (Needs::CreateChild, Effect::CreatesChild(made)) => {
                ("create-child, with the id at /Id", made.id == "/Id")
            }
            (Needs::CreateChild, _) => ("create-child", false),
        };
        if good {
            return Ok(());
        }
        deny(format_args!(
            "{self} must be an operation of role {role}; the manifest declares another"
        ))
    }

    /// What of a path its placeholders stand for; none where the path is not this.
    fn matched<'p>(&self, path: &'p [String]) -> Option<Option<&'p [String]>> {
        let own: Vec<&str> = self.path.split('/').skip(1).collect();
        let Some(at) = own.iter().position(|part| part.starts_with('{')) else {
            return (own == path).then_some(None);
        };
        // An image's name may have slashes; an id is one segment.
        let behind = own.len() - at - 1;
        let many = own[at] == "{name}";
        if path.len() < own.len() || !many && path.len() != own.len() {
            return None;
        }
        let (before, rest) = path.split_at(at);
        let (named, after) = rest.split_at(rest.len() - behind);
        (before == &own[..at] && after == &own[at + 1..]).then_some(Some(named))
    }
}

/// What this method and path are, and the path as it is sent.
///
/// # Errors
/// `permission-denied` for what is not on the list, and for a container or a command that is not the lease's own, named
/// by its whole id.
pub(super) fn find(
    method: &str,
    path: &[String],
    names: &Names,
) -> Result<(&'static Call, String), Error> {
    let rest = match path.split_first() {
        Some((first, rest)) if is_version(first) => rest,
        _ => path,
    };
    let found = CALLS
        .iter()
        .filter(|call| call.method == method)
        .find_map(|call| Some((call, call.matched(rest)?)));
    let Some((call, named)) = found else {
        return deny(format_args!(
            "{method} /{} is not let through to a container engine; docs/engines.md has what is",
            path.join("/")
        ));
    };
    if let Some(named) = named {
        check_named(call, named, names)?;
    }
    let mut written = String::new();
    for segment in path {
        written.push('/');
        encode(segment, b"-._~:@", &mut written);
    }
    Ok((call, written))
}

/// `v1.24` to `v1.99`: before 1.24 a container could be started with another configuration than it was made with.
fn is_version(segment: &str) -> bool {
    segment
        .strip_prefix("v1.")
        .filter(|minor| minor.len() == 2)
        .and_then(|minor| minor.parse::<u8>().ok())
        .is_some_and(|minor| minor >= 24)
}

fn check_named(call: &Call, named: &[String], names: &Names) -> Result<(), Error> {
    if call.path.contains("{name}") {
        return image::check(&named.join("/"))
            .or_else(|what| deny(format_args!("{call}: the name of the image {what}")));
    }
    let [id] = named else {
        return deny(format_args!("{call} names one thing"));
    };
    let own = if call.path.contains("{exec}") {
        names.children.contains(id)
    } else {
        names.resource.as_deref() == Some(id)
    };
    if own && is_whole_id(id) {
        return Ok(());
    }
    deny(format_args!(
        "{call} takes the whole id of what the engine made for this lease: the container is {}, and it has {} commands; \
         no name, no beginning of an id, nobody else's",
        names.resource.as_deref().unwrap_or("not made yet"),
        names.children.len()
    ))
}

/// The names of these forms, for a message.
pub(super) fn forms(forms: &[Form]) -> String {
    forms
        .iter()
        .map(|form| form.as_str())
        .collect::<Vec<_>>()
        .join(", ")
}
