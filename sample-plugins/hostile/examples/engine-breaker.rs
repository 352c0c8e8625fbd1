//! Wants more of a container engine than a lease is: a container that has the machine, or somebody else's. `how` says what.
//!
//! Its manifest declares whatever would let it: that is not where an engine is guarded.

use leasehold_provider::*;
use serde::{Deserialize, Serialize};

struct EngineBreaker;

#[derive(Deserialize)]
struct Config {
    engine: String,
    /// A container that is not its own, by its id.
    theirs: String,
    how: String,
}

#[derive(Serialize, Deserialize)]
struct Handle {}

/// The bodies of a creation, by what each would have of the machine.
fn body(how: &str) -> Option<&'static str> {
    Some(match how {
        "bind" => r#"{"Image":"box:1","HostConfig":{"Binds":["/:/host"]}}"#,
        "privileged" => r#"{"Image":"box:1","HostConfig":{"Privileged":true}}"#,
        "capability" => r#"{"Image":"box:1","HostConfig":{"CapAdd":["SYS_ADMIN"]}}"#,
        "device" => {
            r#"{"Image":"box:1","HostConfig":{"Devices":[{"PathOnHost":"/dev/sda","PathInContainer":"/dev/sda"}]}}"#
        }
        "namespace" => r#"{"Image":"box:1","HostConfig":{"NetworkMode":"none","PidMode":"host"}}"#,
        "volumes" => r#"{"Image":"box:1","HostConfig":{"VolumesFrom":["theirs"]}}"#,
        "twice" => {
            r#"{"Image":"box:1","HostConfig":{"NetworkMode":"none"},"HostConfig":{"NetworkMode":"host"}}"#
        }
        "case" => r#"{"Image":"box:1","hostconfig":{"privileged":true}}"#,
        "escape" => r#"{"Image":"box:1","HostConfig":{"Pr\u0069vileged":true}}"#,
        "nested" => r#"{"Image":"box:1","HostConfig":{"HostConfig":{"Privileged":true}}}"#,
        "label" => r#"{"Image":"box:1","Labels":{"leasehold-owner":"another"}}"#,
        _ => return None,
    })
}

impl Provider for EngineBreaker {
    type Config = Config;
    type Handle = Handle;

    fn describe() -> Manifest {
        let mut manifest = manifest("hostile-engine-breaker", env!("CARGO_PKG_VERSION"))
            .schema(json!({
                "type": "object",
                "required": ["engine", "theirs", "how"],
                "properties": {
                    "engine": { "type": "string", "format": "engine-endpoint" },
                    "theirs": { "type": "string" },
                    "how": { "type": "string" }
                }
            }))
            .operation("/engine", "POST", "/containers/create", create("/Id", None))
            .streams();
        for method in ["POST", "DELETE", "PUT"] {
            for path in ["/*/*", "/*/*/*", "/*/*/*/*"] {
                manifest = manifest.operation("/engine", method, path, shared());
            }
        }
        manifest.build()
    }

    fn probe(_: Call<Config>) -> Result<Vec<Finding>> {
        Ok(vec![info("reach", "nothing is reached")])
    }

    fn acquire(c: Call<Config>, _ttl: Option<u32>) -> Result<Acquired<Handle>> {
        host::journal_environment(&c.theirs)?;
        let engine = |method: &str, path: &str| ask(method, format!("{}{path}", c.engine));
        let theirs = format!("/containers/{}", c.theirs);
        let request = match (body(&c.how), c.how.as_str()) {
            (Some(body), _) => {
                engine("POST", "/containers/create").body(Content::Text(body.to_owned()))
            }
            (None, "exec") => {
                engine("POST", &format!("{theirs}/exec")).json(json!({ "Cmd": ["env"] }))
            }
            (None, "remove") => engine("DELETE", &theirs).query("force", "1"),
            (None, "look") => engine("GET", &format!("{theirs}/json")),
            (None, "read") => engine("GET", &format!("{theirs}/archive")).query("path", "/"),
            (None, "libpod") => engine("POST", "/libpod/containers/create").json(json!({})),
            _ => engine("GET", "/info"),
        };
        request.send(&[200, 201, 204]).map(drop)?;
        Ok(acquired(c.theirs.clone(), Handle {}, "/"))
    }

    fn inspect(_: Call<Config>, _: Handle) -> Result<Observation> {
        Ok(observation(Condition::Ready))
    }

    fn release(_: Call<Config>, _: Handle) -> Result<()> {
        Ok(())
    }

    fn list(_: Call<Config>, _: Query) -> Result<Page<Handle>> {
        Ok(Page::from_iter([]))
    }
}

provider!(EngineBreaker);
