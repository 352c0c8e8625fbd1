//! The probe: each thing that can be wrong is a finding of its own step, and names the target.

use std::fs;
use std::os::unix::fs::symlink;

use leasehold_contract::{Finding, Severity};
use leasehold_parts::{Format, KeyPair, Kind};
use serde_json::{Value, json};

use crate::machine::{Machine, Way, look, machine, target};

async fn probe(m: &Machine, target: Option<Value>, path: &str) -> Vec<Finding> {
    let config = match &target {
        Some(target) => {
            json!({ "target": m.reduced(target), "remoteWorkspacePath": path }).to_string()
        }
        None => m.config_at(path),
    };
    let way = Way {
        target,
        ..look("a1")
    };
    m.plugin
        .probe(&m.setup(&way), &config)
        .await
        .expect("findings")
}

fn failures(found: &[Finding]) -> Vec<(&str, &str)> {
    found
        .iter()
        .filter(|f| f.severity == Severity::Failure)
        .map(|f| (f.step.as_str(), f.message.as_str()))
        .collect()
}

/// The one failure, which is of this step and names the target.
fn only_failure<'a>(found: &'a [Finding], step: &str, name: &str) -> &'a str {
    match failures(found).as_slice() {
        [(failed, message)] => {
            assert_eq!(*failed, step, "{message}");
            assert!(message.contains(name), "{message}");
            message
        }
        other => panic!("one failure of {step} was expected: {other:?}"),
    }
}

#[tokio::test]
async fn a_good_machine_passes_every_step_and_nothing_is_changed() {
    let Some(m) = machine().await else { return };
    let found = probe(&m, None, m.parent.to_str().expect("UTF-8")).await;
    assert_eq!(failures(&found), []);
    let steps: Vec<&str> = found.iter().map(|f| f.step.as_str()).collect();
    for step in [
        "reach",
        "host-key",
        "authenticate",
        "account",
        "posix-minimum",
        "workspace-path",
        "write-access",
        "free-space",
    ] {
        assert!(steps.contains(&step), "{step} is missing: {found:?}");
    }
    assert_eq!(fs::read_dir(&m.parent).expect("lists").count(), 0);
}

#[tokio::test]
async fn each_stage_of_the_way_in_fails_by_its_own_name() {
    let Some(m) = machine().await else { return };
    let path = m.parent.to_str().expect("UTF-8").to_owned();
    let with = |key: &str, value: Value| {
        let mut target = target(&m.sshd);
        target[key] = value;
        target
    };

    let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let port = closed.local_addr().expect("an address").port();
    drop(closed);
    let found = probe(&m, Some(with("port", port.into())), &path).await;
    only_failure(&found, "reach", &format!("@127.0.0.1:{port}"));

    let other = KeyPair::generate(Kind::Ed25519, Format::OpenSsh, "").expect("a key");
    let keys = json!({ "fingerprints": [other.fingerprint], "knownHosts": "" });
    let found = probe(&m, Some(with("hostKeys", keys)), &path).await;
    let message = only_failure(&found, "host-key", &m.name());
    assert!(message.contains("SHA256:"), "{message}");
    assert_eq!(
        (found[0].step.as_str(), found[0].severity),
        ("reach", Severity::Info)
    );

    let found = probe(&m, Some(with("hostKeys", json!({}))), &path).await;
    only_failure(&found, "host-key", &m.name());

    let found = probe(&m, Some(with("privateKey", other.private.into())), &path).await;
    only_failure(&found, "authenticate", &m.name());
}

#[tokio::test]
async fn each_thing_that_is_wrong_with_the_path_fails_by_its_own_name() {
    let Some(m) = machine().await else { return };
    fs::write(m.parent.join("file"), "").expect("writes");
    symlink("/tmp", m.parent.join("link")).expect("a link");
    for (path, step) in [
        ("file", "workspace-path"),
        ("link", "workspace-path"),
        ("file/x", "workspace-path"),
    ] {
        let found = probe(&m, None, m.parent.join(path).to_str().expect("UTF-8")).await;
        let message = failures(&found)
            .into_iter()
            .find(|(failed, _)| *failed == step)
            .unwrap_or_else(|| panic!("{path}: {found:?}"))
            .1;
        assert!(message.contains(&m.name()), "{message}");
    }
    let found = probe(&m, None, m.parent.join("not/yet").to_str().expect("UTF-8")).await;
    assert_eq!(failures(&found), []);

    if m.sshd.is_isolated() {
        let theirs = m.sshd.directory("root", "theirs").expect("a directory");
        let found = probe(&m, None, theirs.to_str().expect("UTF-8")).await;
        only_failure(&found, "write-access", &m.name());
        let found = probe(&m, None, "/proc/leases").await;
        assert!(
            failures(&found)
                .iter()
                .any(|(step, _)| *step == "write-access"),
            "{found:?}"
        );
    } else {
        leasehold_parts::skipped("root, for a directory of somebody else's");
    }
}

#[tokio::test]
async fn sharing_an_account_is_said_wherever_it_is_allowed() {
    let Some(m) = machine().await else { return };
    let mut config: Value = serde_json::from_str(&m.config()).expect("JSON");
    config["allowSharedAccount"] = true.into();
    let found = m
        .plugin
        .probe(&m.setup(&look("a1")), &config.to_string())
        .await
        .expect("findings");
    let said = found
        .iter()
        .find(|f| f.step == "shared-account")
        .expect("is said");
    assert_eq!(said.severity, Severity::Warning);
    assert!(said.message.contains("each other"), "{}", said.message);
}
