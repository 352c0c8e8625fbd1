//! Container engines in words, wherever a person decides about one or uses it: which providers drive them, and which
//! environments lead to one that is root on this machine.
//!
//! What is let through to an engine, and which one is reached, is egress's to say. Nothing is reached here.

use leasehold_contract::{Formats, Manifest};
use leasehold_egress::{HostRoots, ROOT};
use serde_json::{Map, Value};

use super::endpoints;

/// The format of a field that names an engine.
const FORMAT: &str = "engine-endpoint";

/// The fields of a provider's configuration that name a container engine.
fn fields(manifest: &Manifest) -> Vec<String> {
    let formats = Formats::of(&manifest.config_schema);
    let engines = formats.fields.into_iter().filter(|(_, f)| f == FORMAT);
    engines.map(|(field, _)| field).collect()
}

/// What granting a provider allows it with engines, each a sentence.
pub(crate) fn asks(manifest: &Manifest) -> Vec<String> {
    let ask = |field: String| {
        format!(
            "command the container engine that an environment of it names in {field}, within the server's engine policy: make \
             containers of any image that the engine has, run commands in them and use the engine's network; where the engine \
             is root's or the server's own user's, that is {ROOT} but for this policy"
        )
    };
    fields(manifest).into_iter().map(ask).collect()
}

/// Which engines a provider is kept from, where it wants any; none where it does not.
pub(crate) fn narrowed(manifest: &Manifest, host_roots: &HostRoots) -> Option<String> {
    if fields(manifest).is_empty() {
        return None;
    }
    let named: Vec<String> = host_roots.names().collect();
    Some(format!(
        "an engine that is {ROOT} is refused, but for those that the server was started with (--allow-host-root): {}",
        if named.is_empty() {
            "none".to_owned()
        } else {
            named.join(", ")
        }
    ))
}

/// What people must know of an environment with these endpoints, each a sentence: no address is in it.
pub(crate) fn warnings(
    host_roots: &HostRoots,
    config: &Map<String, Value>,
    endpoints: &[String],
) -> Vec<String> {
    let root = |pointer: &&String| {
        let value = configured(config, pointer);
        value
            .and_then(endpoints::url_of)
            .is_some_and(|url| host_roots.allow_url(url))
    };
    let told = |pointer: &String| {
        format!(
            "the container engine at {pointer} is {ROOT}: the server was started with --allow-host-root for it, and the engine \
             policy alone stands between its leases and this machine"
        )
    };
    endpoints.iter().filter(root).map(told).collect()
}

fn configured<'v>(config: &'v Map<String, Value>, pointer: &str) -> Option<&'v Value> {
    let path = pointer.strip_prefix('/')?;
    let (first, rest) = match path.split_once('/') {
        Some((first, rest)) => (first, format!("/{rest}")),
        None => (path, String::new()),
    };
    let first = first.replace("~1", "/").replace("~0", "~");
    config.get(&first)?.pointer(&rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_environment_is_called_root_on_this_machine_where_the_server_lets_its_engine_be() {
        let roots = HostRoots::of(&["/run/docker.sock", "https://127.0.0.1:2376"]).expect("two");
        for (engine, is) in [
            (json!("unix:///run/docker.sock"), true),
            (json!({ "url": "https://127.0.0.1:2376/" }), true),
            (json!("unix:///run/user/1000/podman/podman.sock"), false),
            (json!("https://engine.example:2376"), false),
            (json!(7), false),
        ] {
            let config = json!({ "a/b": { "engine": engine }, "plain": "unix:///run/docker.sock" });
            let config = config.as_object().expect("an object");
            let found = warnings(&roots, config, &["/a~1b/engine".to_owned()]);
            assert_eq!(found.len(), usize::from(is), "{config:?}");
            assert!(found.iter().all(|w| w.contains("root on this machine")));
            assert!(found.iter().all(|w| !w.contains(".sock")), "{found:?}");
        }
    }
}
