//! What a component imports and exports, held against what this host has, by name.
//!
//! Every import must be one of ours or of the inert WASI set; anything else is refused with its name,
//! what is wanted, what there is, and how to mend it. Optional exports are read as capabilities.

use semver::Version;
use serde::{Deserialize, Serialize};
use wasmparser::{CanonicalFunction, CanonicalOption, Encoding, Parser, Payload};
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::failure::Incompatible;
use crate::v0;

/// The optional interfaces that a component exports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Capabilities {
    /// Commands.
    pub execution: bool,
    /// Trees of files.
    pub files: bool,
    /// Keeping an environment without running it.
    pub suspension: bool,
}

impl Capabilities {
    /// Their names as the contract spells them, in its order.
    pub fn names(self) -> Vec<&'static str> {
        [
            (self.execution, "execution"),
            (self.files, "files"),
            (self.suspension, "suspension"),
        ]
        .into_iter()
        .filter_map(|(has, name)| has.then_some(name))
        .collect()
    }
}

/// WASI 0.2 interfaces that standard libraries import whether they use them or not. They resolve and
/// are empty.
const INERT: &[(&str, &[&str])] = &[
    (
        "wasi:cli",
        &[
            "environment",
            "exit",
            "stdin",
            "stdout",
            "stderr",
            "terminal-input",
            "terminal-output",
            "terminal-stdin",
            "terminal-stdout",
            "terminal-stderr",
        ],
    ),
    ("wasi:clocks", &["wall-clock", "monotonic-clock"]),
    ("wasi:random", &["random", "insecure", "insecure-seed"]),
    ("wasi:io", &["error", "poll", "streams"]),
    ("wasi:filesystem", &["types", "preopens"]),
    (
        "wasi:sockets",
        &[
            "network",
            "instance-network",
            "ip-name-lookup",
            "tcp",
            "tcp-create-socket",
            "udp",
            "udp-create-socket",
        ],
    ),
];

/// Looks through the bytes before anything is compiled: whole, a component, and without the
/// component-model's async.
///
/// # Errors
/// `Err(Ok(…))`: it does not fit this host. `Err(Err(…))`: it is not a sound component, and why.
pub(crate) fn parse(engine: &Engine, bytes: &[u8]) -> Result<(), Result<Incompatible, String>> {
    let mut async_builtin = None;
    let mut first = true;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(|e| Err(e.to_string()))? {
            Payload::Version { encoding, .. }
                if std::mem::take(&mut first) && encoding != Encoding::Component =>
            {
                return Err(Err(
                    "it is a core module, not a component: build it for `wasm32-wasip2`, or wrap it \
                     with `wasm-tools component new`"
                        .to_owned(),
                ));
            }
            Payload::ComponentCanonicalSection(section) => {
                for function in section {
                    let function = function.map_err(|e| Err(e.to_string()))?;
                    async_builtin = async_builtin.or(of_async(&function));
                }
            }
            _ => {}
        }
    }
    if let Some(name) = async_builtin {
        return Err(Ok(Incompatible {
            import: name.to_owned(),
            wanted: "the component model's async".to_owned(),
            have: "plain functions and resources (WASI 0.2)".to_owned(),
            hint: Some(
                "JavaScript: `componentize-qjs --sync`, or `jco componentize --backend qjs \
                 --backend-qjs-disable-async`; elsewhere build without async exports and imports"
                    .to_owned(),
            ),
            causes: Vec::new(),
        }));
    }
    wasmparser::Validator::new_with_features(engine.get_wasm_features())
        .validate_all(bytes)
        .map_err(|e| Err(e.to_string()))?;
    Ok(())
}

/// The built-in of the component model's async that this is, if it is one.
fn of_async(function: &CanonicalFunction) -> Option<&'static str> {
    use CanonicalFunction as F;
    let by_option = |options: &[CanonicalOption], name| {
        options
            .iter()
            .any(|o| matches!(o, CanonicalOption::Async | CanonicalOption::Callback(_)))
            .then_some(name)
    };
    match function {
        F::Lift { options, .. } => by_option(options, "async lift"),
        F::Lower { options, .. } => by_option(options, "async lower"),
        F::ResourceNew { .. } | F::ResourceDrop { .. } | F::ResourceRep { .. } => None,
        F::TaskCancel => Some("task.cancel"),
        F::TaskReturn { .. } => Some("task.return"),
        F::BackpressureInc => Some("backpressure.inc"),
        F::BackpressureDec => Some("backpressure.dec"),
        F::ContextGet { .. } => Some("context.get"),
        F::ContextSet { .. } => Some("context.set"),
        F::SubtaskDrop => Some("subtask.drop"),
        F::SubtaskCancel { .. } => Some("subtask.cancel"),
        F::StreamNew { .. } => Some("stream.new"),
        F::StreamRead { .. } => Some("stream.read"),
        F::StreamWrite { .. } => Some("stream.write"),
        F::FutureNew { .. } => Some("future.new"),
        F::FutureRead { .. } => Some("future.read"),
        F::FutureWrite { .. } => Some("future.write"),
        F::WaitableSetNew => Some("waitable-set.new"),
        F::WaitableSetWait { .. } => Some("waitable-set.wait"),
        F::WaitableSetPoll { .. } => Some("waitable-set.poll"),
        F::WaitableSetDrop => Some("waitable-set.drop"),
        F::WaitableJoin => Some("waitable.join"),
        F::ThreadYield { .. } => Some("thread.yield"),
        _ => Some("an async or thread built-in"),
    }
}

/// Checks every import by name.
pub(crate) fn imports(engine: &Engine, component: &Component) -> Result<(), Incompatible> {
    for (name, _) in component.component_type().imports(engine) {
        import(name)?;
    }
    Ok(())
}

/// `namespace:package`, interface, version.
fn parts(name: &str) -> Option<(&str, &str, Option<Version>)> {
    let (path, version) = match name.split_once('@') {
        Some((path, version)) => (path, Some(Version::parse(version).ok()?)),
        None => (name, None),
    };
    let (package, interface) = path.split_once('/')?;
    Some((package, interface, version))
}

fn import(name: &str) -> Result<(), Incompatible> {
    let refuse = |have: String, hint: Option<&str>| {
        let wanted = match parts(name) {
            Some((_, _, Some(version))) => format!("version {version}"),
            _ => "it".to_owned(),
        };
        Err(Incompatible {
            import: name.to_owned(),
            wanted,
            have,
            hint: hint.map(str::to_owned),
            causes: Vec::new(),
        })
    };
    let Some((package, interface, version)) = parts(name) else {
        return refuse(
            "no such import".to_owned(),
            Some("import only interfaces of `leasehold:provider`"),
        );
    };
    if package == v0::PACKAGE {
        if !v0::IMPORTS.contains(&interface) {
            return refuse(
                format!("no such interface in {} {}", v0::PACKAGE, v0::VERSION),
                None,
            );
        }
        return match version {
            Some(version) if v0::serves(&version) => Ok(()),
            _ => refuse(
                format!("version {}", v0::VERSION),
                Some("build against the `wit/` of a release that this host serves"),
            ),
        };
    }
    let inert = INERT
        .iter()
        .find(|(known, interfaces)| *known == package && interfaces.contains(&interface));
    if inert.is_some() {
        return match version {
            Some(version) if version.major == 0 && version.minor == 2 => Ok(()),
            _ => refuse(
                "version 0.2, empty".to_owned(),
                Some("build for WASI 0.2 (`wasm32-wasip2`)"),
            ),
        };
    }
    let hint = match package {
        "wasi:http" => {
            "use `leasehold:provider/http`, whose requests pass the host's egress; JavaScript: build with \
             `--disable http fetch-event`"
        }
        "wasi:keyvalue" | "wasi:blobstore" => {
            "a provider keeps nothing: put what must be told again into the handle"
        }
        "wasi:config" => "configuration is an argument of every call",
        "wasi:logging" => "use `leasehold:provider/host.log`",
        _ => "import only interfaces of `leasehold:provider`",
    };
    refuse("no such import".to_owned(), Some(hint))
}

/// Reads the exports; the versions that this host serves count, others are as if absent.
pub(crate) fn exports(
    engine: &Engine,
    component: &Component,
) -> Result<Capabilities, Incompatible> {
    let mut lifecycle = false;
    let mut other = None;
    let mut capabilities = Capabilities::default();
    for (name, _) in component.component_type().exports(engine) {
        let Some((package, interface, version)) = parts(name) else {
            continue;
        };
        if package != v0::PACKAGE {
            continue;
        }
        match version {
            Some(version) if v0::serves(&version) => {}
            version => {
                other = version;
                continue;
            }
        }
        match interface {
            "lifecycle" => lifecycle = true,
            "execution" => capabilities.execution = true,
            "files" => capabilities.files = true,
            "suspension" => capabilities.suspension = true,
            _ => {}
        }
    }
    if lifecycle {
        return Ok(capabilities);
    }
    Err(Incompatible {
        import: format!("{}/lifecycle", v0::PACKAGE),
        wanted: match other {
            Some(version) => format!("to export version {version}"),
            None => "not to export it".to_owned(),
        },
        have: format!("to call it in version {}", v0::VERSION),
        hint: Some("a provider exports `lifecycle`; see `wit/`".to_owned()),
        causes: Vec::new(),
    })
}

/// What a linker's or a binding's error is about: the import or export whose name its text has.
pub(crate) fn misfit(
    engine: &Engine,
    component: &Component,
    error: &wasmtime::Error,
) -> Incompatible {
    let causes = crate::failure::chain(error);
    let ty = component.component_type();
    let named = ty
        .imports(engine)
        .chain(ty.exports(engine))
        .map(|(name, _)| name)
        .find(|name| causes.iter().any(|cause| cause.contains(*name)));
    Incompatible {
        import: named.unwrap_or("an import or export").to_owned(),
        wanted: "it with other types or functions".to_owned(),
        have: format!("{} {}", v0::PACKAGE, v0::VERSION),
        hint: Some("build against this host's `wit/`".to_owned()),
        causes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_imports_and_the_inert_set_are_let_in() {
        for name in [
            "leasehold:provider/ssh@0.1.0",
            "leasehold:provider/types@0.1.7",
            "wasi:cli/environment@0.2.6",
            "wasi:io/streams@0.2.0",
        ] {
            assert_eq!(import(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn any_other_import_is_refused_by_its_name() {
        for name in [
            "leasehold:provider/ssh@0.2.0",
            "leasehold:provider/ssh@1.0.0",
            "leasehold:provider/lifecycle@0.1.0",
            "leasehold:provider/ssh",
            "wasi:http/outgoing-handler@0.2.0",
            "wasi:cli/environment@0.3.0",
            "wasi:cli/run@0.2.0",
            "acme:leases/write@1.0.0",
            "env",
        ] {
            let refused = import(name).unwrap_err();
            assert_eq!(refused.import, name);
        }
        let http = import("wasi:http/outgoing-handler@0.2.0").unwrap_err();
        assert!(
            http.to_string().contains("leasehold:provider/http"),
            "{http}"
        );
    }
}
