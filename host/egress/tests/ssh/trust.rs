//! Host keys: pins, `known_hosts`, authorities; what is refused and with which words.

use std::process::Command;

use leasehold_contract::{Code, Error};
use leasehold_parts::{Format, KeyPair, Kind, Options};
use serde_json::{Value, json};

use crate::lab::{Lab, lab};

async fn trusting(lab: &Lab, prints: Value, known: &str) -> Result<(), Error> {
    let mut value = lab.value(&lab.worker());
    value["hostKeys"] = json!({ "fingerprints": prints, "knownHosts": known });
    lab.reach(&value).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_configured_key_the_one_that_is_shown_is_told_and_nothing_goes_on() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let e = trusting(&lab, json!([]), "").await.unwrap_err();
    assert_eq!(e.code, Code::UntrustedPeer);
    assert!(
        e.message.contains(&lab.sshd.host_keys()[0].fingerprint),
        "{e}"
    );
    assert!(e.message.contains("no host key is configured"), "{e}");
    assert!(
        !lab.sshd.log().contains("Accepted"),
        "nobody was authenticated"
    );
    // And what is told can be pinned.
    let shown = lab
        .ssh
        .fetch_host_key("127.0.0.1", lab.sshd.port())
        .await
        .unwrap();
    trusting(&lab, json!([shown.fingerprint]), "")
        .await
        .unwrap();
    trusting(&lab, json!([]), &shown.line).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pin_of_any_of_the_servers_keys_is_enough_and_of_none_is_not() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    for key in lab.sshd.host_keys() {
        trusting(&lab, json!([key.fingerprint]), "")
            .await
            .unwrap_or_else(|e| panic!("{e}"));
    }
    let other = KeyPair::generate(Kind::Ed25519, Format::OpenSsh, "").unwrap();
    let e = trusting(&lab, json!([other.fingerprint]), "")
        .await
        .unwrap_err();
    assert_eq!(e.code, Code::UntrustedPeer);
    assert!(e.message.contains("none of the pinned"), "{e}");
    assert!(
        e.message.contains(&lab.sshd.host_keys()[0].fingerprint),
        "{e}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn known_hosts_lines_of_every_form_are_honoured() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let port = lab.sshd.port();
    let key = &lab.sshd.host_keys()[0].public;
    let rsa = &lab.sshd.host_keys()[2].public;
    // Hashed by OpenSSH itself.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("known_hosts");
    std::fs::write(&file, lab.sshd.known_hosts()).unwrap();
    let done = Command::new("ssh-keygen")
        .args(["-q", "-H", "-f"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(done.status.success());
    let hashed = std::fs::read_to_string(&file).unwrap();
    assert!(hashed.starts_with("|1|"));
    for known in [
        hashed,
        lab.sshd.known_hosts(),
        format!("# a comment\n\n[127.0.0.1]:{port} {rsa} with a comment"),
        format!("[127.0.0.*]:{port} {key}"),
        format!("[127.0.0.?]:*,other {key}"),
        format!("elsewhere {rsa}\n[127.0.0.1]:{port} {key}"),
        format!("[127.0.0.1]:{port} sk-ssh-future@x AAAA\n[127.0.0.1]:{port} {key}"),
    ] {
        trusting(&lab, json!([]), &known)
            .await
            .unwrap_or_else(|e| panic!("{known}\n{e}"));
    }
    for (known, words) in [
        (format!("127.0.0.1 {key}"), "no line for this host"),
        (
            format!("[127.0.0.1]:{} {key}", port ^ 1),
            "no line for this host",
        ),
        (
            format!("*,![127.0.0.1]:{port} {key}"),
            "no line for this host",
        ),
        (
            format!(
                "@revoked * {key}\n@revoked * {rsa}\n{}",
                lab.sshd.known_hosts()
            ),
            "@revoked",
        ),
    ] {
        let e = trusting(&lab, json!([]), &known).await.unwrap_err();
        assert_eq!(e.code, Code::UntrustedPeer, "{known}");
        assert!(e.message.contains(words), "{known}\n{e}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_key_stops_and_a_revoked_one_stops_even_when_pinned() {
    let Some(lab) = lab(&Options {
        host_keys: vec![Kind::Ed25519],
        ..Options::default()
    }) else {
        return;
    };
    let port = lab.sshd.port();
    let was = KeyPair::generate(Kind::Ed25519, Format::OpenSsh, "").unwrap();
    let known = format!("[127.0.0.1]:{port} {}", was.public);
    let e = trusting(&lab, json!([]), &known).await.unwrap_err();
    assert_eq!(e.code, Code::UntrustedPeer);
    for part in [
        "has changed",
        &was.fingerprint,
        &lab.sshd.host_keys()[0].fingerprint,
    ] {
        assert!(e.message.contains(part), "{part}: {e}");
    }
    let key = &lab.sshd.host_keys()[0];
    let revoked = format!("@revoked * {}", key.public);
    let e = trusting(&lab, json!([key.fingerprint]), &revoked)
        .await
        .unwrap_err();
    assert!(e.message.contains("@revoked"), "{e}");
    assert!(!lab.sshd.log().contains("Accepted"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_certificate_holds_only_with_authority_principal_and_validity() {
    let authority = KeyPair::generate(Kind::Ed25519, Format::OpenSsh, "").unwrap();
    let other = KeyPair::generate(Kind::Ed25519, Format::OpenSsh, "").unwrap();
    let line = |k: &KeyPair| format!("@cert-authority [127.0.0.1]:* {}", k.public);
    for (arguments, ca, words) in [
        (vec!["-h", "-I", "h", "-n", "127.0.0.1"], &authority, None),
        (vec!["-h", "-I", "h", "-n", "127.0.0.*"], &authority, None),
        (
            vec!["-h", "-I", "h", "-n", "127.0.0.1"],
            &other,
            Some("no line for this host"),
        ),
        (
            vec!["-h", "-I", "h", "-n", "elsewhere"],
            &authority,
            Some("is for elsewhere"),
        ),
        (
            vec!["-h", "-I", "h"],
            &authority,
            Some("names no principal"),
        ),
        (
            vec!["-h", "-I", "h", "-n", "127.0.0.1", "-V", "-2d:-1d"],
            &authority,
            Some("expired"),
        ),
        (
            vec!["-h", "-I", "h", "-n", "127.0.0.1", "-V", "+1d:+2d"],
            &authority,
            Some("not valid yet"),
        ),
    ] {
        for kind in [Kind::Ed25519, Kind::Rsa] {
            let options = Options {
                host_keys: vec![kind],
                host_certificate: Some((
                    authority.clone(),
                    arguments.iter().map(|a| (*a).to_owned()).collect(),
                )),
                ..Options::default()
            };
            let Some(lab) = lab(&options) else { return };
            let done = trusting(&lab, json!([]), &line(ca)).await;
            match words {
                None => done.unwrap_or_else(|e| panic!("{arguments:?} {kind:?}: {e}")),
                Some(words) => {
                    let e = done.unwrap_err();
                    assert_eq!(e.code, Code::UntrustedPeer, "{e}");
                    assert!(e.message.contains(words), "{arguments:?}: {e}");
                }
            }
        }
    }
}
