//! Reaching a server and being let in: keys, certificates, refusals, jumps, pools.

use std::sync::Arc;
use std::time::Duration;

use leasehold_contract::{Code, Ended};
use leasehold_egress::{PoolScope, Ssh, SshSettings, SshTarget};
use leasehold_parts::{Format, KeyPair, Kind, Options, SilentHost};
use serde_json::json;

use crate::lab::{isolated, lab, read, run, text};

#[tokio::test(flavor = "multi_thread")]
async fn every_type_and_format_of_key_is_accepted_plain_and_encrypted() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let user = lab.worker();
    for kind in [
        Kind::Ed25519,
        Kind::Ecdsa256,
        Kind::Ecdsa384,
        Kind::Ecdsa521,
        Kind::Rsa,
    ] {
        for format in [Format::OpenSsh, Format::Pkcs8, Format::Pem] {
            if kind == Kind::Ed25519 && format != Format::OpenSsh {
                // ssh-keygen writes Ed25519 in its own format whatever it is asked.
                continue;
            }
            for passphrase in ["", "correct horse"] {
                if format == Format::Pem && !passphrase.is_empty() {
                    // The old PEM encryption is MD5 and one round; only its plain form is taken on.
                    continue;
                }
                let key = KeyPair::generate(kind, format, passphrase).unwrap();
                lab.sshd.authorize(&user, &key.public).unwrap();
                let mut value = lab.value(&user);
                value["privateKey"] = json!(key.private);
                if !passphrase.is_empty() {
                    value["passphrase"] = json!(passphrase);
                }
                let session = lab
                    .reach(&value)
                    .await
                    .unwrap_or_else(|e| panic!("{kind:?} {format:?} {passphrase:?}: {e}"));
                let out = run(&session, "id -un").await.unwrap();
                assert_eq!(text(&out.stdout).trim(), user, "{kind:?} {format:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn user_certificates_of_every_type_open_and_a_foreign_one_does_not() {
    let authority = KeyPair::generate(Kind::Ed25519, Format::OpenSsh, "").unwrap();
    let options = Options {
        user_authority: Some(authority.public.clone()),
        ..Options::default()
    };
    let Some(lab) = lab(&options) else { return };
    let user = lab.worker();
    for kind in [Kind::Ed25519, Kind::Ecdsa256, Kind::Rsa] {
        let key = KeyPair::generate(kind, Format::OpenSsh, "").unwrap();
        let certificate = authority
            .sign(&key.public, &["-I", "me", "-n", &user])
            .unwrap();
        let mut value = lab.value(&user);
        value["privateKey"] = json!(key.private);
        let e = lab.reach(&value).await.err().unwrap();
        assert_eq!(
            e.code,
            Code::Unauthenticated,
            "without its certificate: {e}"
        );
        value["certificate"] = json!(certificate);
        lab.reach(&value)
            .await
            .unwrap_or_else(|e| panic!("{kind:?}: {e}"));
        let other = authority
            .sign(&key.public, &["-I", "other", "-n", "nobody-else"])
            .unwrap();
        value["certificate"] = json!(other);
        let e = lab.reach(&value).await.err().unwrap();
        assert_eq!(e.code, Code::Unauthenticated, "{e}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_key_is_refused_with_what_the_server_offers_and_only_that_key_was_offered() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let user = lab.worker();
    let mut value = lab.value(&user);
    let stranger = KeyPair::generate(Kind::Ed25519, Format::OpenSsh, "").unwrap();
    value["privateKey"] = json!(stranger.private);
    let e = lab.reach(&value).await.err().unwrap();
    assert_eq!(e.code, Code::Unauthenticated);
    for part in [
        format!("{user}@127.0.0.1:"),
        stranger.fingerprint.clone(),
        "publickey".into(),
    ] {
        assert!(e.message.contains(&part), "{part}: {e}");
    }
    // The log names each key that was tried.
    let log = lab.sshd.log();
    assert_eq!(log.matches("Failed publickey").count(), 1, "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_cannot_be_read_reaches_no_server_and_says_how_to_mend_it() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let user = lab.worker();
    let locked = KeyPair::generate(Kind::Ed25519, Format::OpenSsh, "secret").unwrap();
    let locked8 = KeyPair::generate(Kind::Ecdsa256, Format::Pkcs8, "secret").unwrap();
    let cut: String = locked
        .private
        .lines()
        .take(3)
        .map(|l| format!("{l}\n"))
        .collect();
    let connections = lab.sshd.log().matches("Connection from").count();
    for (key, passphrase, pointer, words) in [
        (&locked.private, None, "/passphrase", "encrypted"),
        (
            &locked.private,
            Some("wrong"),
            "/passphrase",
            "does not open",
        ),
        (
            &locked8.private,
            Some("wrong"),
            "/passphrase",
            "does not open",
        ),
        (&cut, Some("secret"), "/passphrase", "does not open"),
        (
            &"-----BEGIN PRIVATE KEY-----\nZ2FyYmFnZQ==\n-----END PRIVATE KEY-----".to_owned(),
            None,
            "/privateKey",
            "cannot be read",
        ),
    ] {
        let mut value = lab.value(&user);
        value["privateKey"] = json!(key);
        value["passphrase"] = json!(passphrase);
        let e = lab.reach(&value).await.err().unwrap();
        assert_eq!(e.code, Code::InvalidConfig, "{e}");
        assert!(e.message.contains(words), "{e}");
        // A pointer into the configuration, which has the target in a field of its own.
        assert_eq!(
            e.violations.unwrap()[0].pointer,
            format!("/target{pointer}")
        );
        assert!(
            !e.message.contains("secret") && !e.message.contains("wrong"),
            "{}",
            e.message
        );
    }
    assert_eq!(
        lab.sshd.log().matches("Connection from").count(),
        connections
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_port_a_silent_host_and_an_unknown_name_are_told_apart() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let user = lab.worker();
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let mut value = lab.value(&user);
    value["port"] = json!(free);
    let e = lab.reach(&value).await.err().unwrap();
    assert_eq!(e.code, Code::Unavailable);
    assert!(
        e.message.contains("refuses") && e.message.contains(&free.to_string()),
        "{e}"
    );

    let silent = SilentHost::start().unwrap();
    let settings = SshSettings {
        connect: Duration::from_millis(500),
        ..SshSettings::default()
    };
    let hasty = Ssh::new(settings);
    value["port"] = json!(silent.port());
    let target = Arc::new(SshTarget::from_config(&value).unwrap());
    let e = crate::lab::open(&*hasty.call(lab.scope(&target)))
        .await
        .err()
        .unwrap();
    assert_eq!(e.code, Code::Unavailable);
    assert!(e.message.contains("handshake"), "{e}");

    value["host"] = json!("no-such-host.invalid");
    let e = lab.reach(&value).await.err().unwrap();
    assert_eq!(e.code, Code::Unavailable);
    assert!(e.message.contains("resolve"), "{e}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_jump_is_passed_and_every_hop_is_verified_by_its_own_policy() {
    let Some(first) = lab(&Options::default()) else {
        return;
    };
    let Some(last) = lab(&Options::default()) else {
        return;
    };
    let mut value = last.value(&last.worker());
    value["jump"] = json!([first.value(&first.worker())]);
    let session = last.reach(&value).await.unwrap();
    let out = run(&session, "echo through; cat").await.unwrap();
    assert_eq!(text(&out.stdout), "through\n");
    assert!(
        first.sshd.log().contains("Accepted publickey"),
        "it went through the first"
    );

    // The target's pin does not speak for the jump.
    let mut wrong = value.clone();
    wrong["jump"][0]["hostKeys"]["fingerprints"] = json!(last.sshd.fingerprints());
    let e = last.reach(&wrong).await.err().unwrap();
    assert_eq!(e.code, Code::UntrustedPeer);
    assert!(
        e.message.contains(&format!(":{}", first.sshd.port())),
        "the hop is named: {e}"
    );
    // What is wrong with a jump's key is pointed at there.
    let mut locked = value.clone();
    locked["jump"][0]["privateKey"] =
        json!("-----BEGIN PRIVATE KEY-----\nZ2FyYmFnZQ==\n-----END PRIVATE KEY-----");
    let e = last.reach(&locked).await.err().unwrap();
    assert_eq!(
        e.violations.unwrap()[0].pointer,
        "/target/jump/0/privateKey"
    );
    // Nor the jump's for the target.
    let mut wrong = value.clone();
    wrong["hostKeys"]["fingerprints"] = json!(first.sshd.fingerprints());
    let e = last.reach(&wrong).await.err().unwrap();
    assert_eq!(e.code, Code::UntrustedPeer);
    assert!(e.message.contains(&format!(":{}", last.sshd.port())), "{e}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_connection_is_opened_when_the_server_refuses_more_channels() {
    let options = Options {
        config: vec!["MaxSessions 2".into()],
        ..Options::default()
    };
    let Some(lab) = lab(&options) else { return };
    let session = lab.open(&lab.target(&lab.worker())).await.unwrap();
    let all = (0..12).map(|i| {
        let session = session.clone();
        tokio::spawn(async move {
            let out = run(&session, &format!("sleep 0.2; echo {i}"))
                .await
                .unwrap();
            assert_eq!(text(&out.stdout), format!("{i}\n"));
        })
    });
    for one in all.collect::<Vec<_>>() {
        one.await.unwrap();
    }
    assert!(lab.ssh.connections() > 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_are_not_shared_and_close_on_rotation() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let target = lab.target(&lab.worker());
    for (company, secret) in [("a", "1"), ("a", "2"), ("b", "1"), ("a", "1")] {
        let mut scope = lab.scope(&target);
        scope.company = company.into();
        scope.secret_version = secret.into();
        crate::lab::open(&*lab.ssh.call(scope)).await.unwrap();
    }
    assert_eq!(lab.ssh.connections(), 3);
    lab.ssh.close_scope(&PoolScope {
        company: Some("a".into()),
        plugin_revision: None,
        secret_version: Some("1".into()),
    });
    assert_eq!(lab.ssh.connections(), 2);
    // A fresh call has a connection of its own, and takes it with it.
    let mut scope = lab.scope(&target);
    scope.fresh = true;
    let session = crate::lab::open(&*lab.ssh.call(scope)).await.unwrap();
    run(&session, "true").await.unwrap();
    assert_eq!(lab.ssh.connections(), 3);
    drop(session);
    assert_eq!(lab.ssh.connections(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooled_connection_that_died_is_replaced_without_an_error() {
    let Some(lab) = isolated(&Options::default()) else {
        return;
    };
    let session = lab.open(&lab.target(&lab.worker())).await.unwrap();
    run(&session, "true").await.unwrap();
    lab.sshd.cut();
    let out = run(&session, "echo again").await.unwrap();
    assert_eq!(text(&out.stdout), "again\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_is_free_again_after_a_login_that_failed_and_a_stream_that_ended() {
    let Some(mut lab) = lab(&Options::default()) else {
        return;
    };
    lab.ssh = Ssh::new(SshSettings {
        connections: 1,
        ..SshSettings::default()
    });
    let stranger = KeyPair::generate(Kind::Ed25519, Format::OpenSsh, "").unwrap();
    let mut value = lab.value(&lab.worker());
    value["privateKey"] = json!(stranger.private);
    let target = Arc::new(SshTarget::from_config(&value).unwrap());
    for _ in 0..3 {
        let error = lab.open(&target).await.err().unwrap();
        assert_eq!(error.code, Code::Unauthenticated, "{error}");
    }
    let (lease, _) = lab.leased("a1").await;
    for at in 0..3 {
        let process = lease.start(&format!("x{at}"), "echo out").await.unwrap();
        let (out, _, ended) = read(process).await;
        assert_eq!((&*out, ended), ("out\n", Ended::Exited(0)));
    }
    assert_eq!(lab.ssh.connections(), 1);
}
