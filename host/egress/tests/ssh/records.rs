//! Authorise, record, act: what each kind of function may do, and that it stands in the record before.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_contract::{Code, Content, Error, Part};
use leasehold_egress::{Action, EgressRecord, Payloads, Reach, Recorder, SshTarget};
use leasehold_parts::Options;
use serde_json::json;

use crate::lab::{GRANT, lab, open, run, text};

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_was_not_configured_is_denied_by_name_and_recorded() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let egress = lab.ssh.call(lab.scope(&lab.target(&lab.worker())));
    let e = egress
        .ssh_open("/other".into(), None, None)
        .await
        .err()
        .unwrap();
    assert_eq!(e.code, Code::PermissionDenied);
    assert!(e.message.contains("/other"), "{e}");
    let records = lab.records.0.lock().unwrap();
    assert_eq!(records.len(), 1);
    assert!(records[0].denied.is_some());
    drop(records);
    assert!(
        !lab.sshd.log().contains("Connection from 127.0.0.1 port") || lab.ssh.connections() == 0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_that_reach_nothing_or_only_look_are_held_to_it() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let lease = lab.lease(&lab.worker(), "a1");
    let mut scope = lease.call(Some("x"));
    scope.reach = Reach::Nothing;
    let e = open(&*lab.ssh.call(scope.clone())).await.err().unwrap();
    assert_eq!(e.code, Code::PermissionDenied);
    assert_eq!(lab.ssh.connections(), 0);

    scope.reach = Reach::Read;
    let session = open(&*lab.ssh.call(scope)).await.unwrap();
    let out = run(&session, "echo looked").await.unwrap();
    assert_eq!(text(&out.stdout), "looked\n");
    session.list_workspaces(lease.parent.clone()).await.unwrap();
    let parent = || lease.parent.clone();
    let denied = [
        session.make_workspace(parent()).await.err(),
        session.remove_workspace(parent(), "a1".into()).await.err(),
        session
            .start(parent(), "true".into(), vec![], vec![], None)
            .await
            .err(),
        session
            .signal(parent(), "x".into(), "TERM".into())
            .await
            .err(),
        session.put(parent(), Box::pin(&b""[..])).await.err(),
        session.forward(1).await.err(),
    ];
    for e in denied {
        assert_eq!(e.unwrap().code, Code::PermissionDenied);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_whose_grant_leaves_ssh_out_opens_nothing_and_the_refusal_is_recorded() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let lease = lab.lease(&lab.worker(), "a1");
    let mut scope = lease.call(Some("x"));
    scope.grant = Arc::new(GRANT.without(&[Part::Ssh]));
    let e = open(&*lab.ssh.call(scope)).await.err().unwrap();
    assert_eq!(e.code, Code::PermissionDenied);
    assert!(e.message.contains("not granted"), "{e}");
    assert_eq!(lab.ssh.connections(), 0);
    let records = lab.records.0.lock().unwrap();
    let [record] = records.as_slice() else {
        panic!("{records:?}");
    };
    assert!(record.denied.is_some(), "{record:?}");
}

/// Refuses to record what is durable.
struct Full;

#[async_trait]
impl Recorder for Full {
    async fn record(&self, record: EgressRecord) -> Result<(), Error> {
        if record.durable {
            return Err(Error::new(Code::Internal, "the disk is full"));
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_recorded_is_not_done() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let lease = lab.lease(&lab.worker(), "a1");
    let mut scope = lease.call(None);
    scope.recorder = Arc::new(Full);
    let session = open(&*lab.ssh.call(scope)).await.unwrap();
    for _ in 0..2 {
        let e = session
            .make_workspace(lease.parent.clone())
            .await
            .unwrap_err();
        assert_eq!(e.message, "the disk is full");
    }
    assert!(lease.gone().await.confirmed());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_record_names_target_place_and_lease_and_the_first_act_is_durable() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let lease = lab.lease(&lab.worker(), "a1");
    let session = lease.session().await;
    session.list_workspaces(lease.parent.clone()).await.unwrap();
    run(&session, "true").await.unwrap();
    run(&session, "true").await.unwrap();
    session.make_workspace(lease.parent.clone()).await.unwrap();
    let records = lab.records.0.lock().unwrap().clone();
    let told: Vec<(Action, bool)> = records.iter().map(|r| (r.action, r.durable)).collect();
    assert_eq!(
        told,
        [
            (Action::Open, false),
            (Action::ListWorkspaces, false),
            (Action::Run, true),
            (Action::Run, false),
            (Action::MakeWorkspace, true),
        ]
    );
    let made = &records[4];
    assert_eq!(made.target, lease.target.identity());
    assert_eq!(made.pointer, "/target");
    assert_eq!(made.place.as_deref(), Some(lease.parent.as_str()));
    assert_eq!(made.lease, Some(("lease-a1".into(), "a1".into(), 1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn payloads_are_filled_into_variables_and_stdin_and_nowhere_else() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let mut payloads = Payloads::none();
    payloads.insert("placeholder-aaaaaaaaaaaa", "value one");
    payloads.insert("placeholder-bbbbbbbbbbbb", "value two");
    payloads.forbid("placeholder-cccccccccccc");
    let mut scope = lab.scope(&lab.target(&lab.worker()));
    scope.payloads = Arc::new(payloads);
    let session = open(&*lab.ssh.call(scope)).await.unwrap();
    let go = |script: &str, args: Vec<String>, env: Vec<(String, String)>, stdin: Content| {
        session.run(script.into(), args, env, stdin, 1000, None)
    };
    let (one, two) = ("placeholder-aaaaaaaaaaaa", "placeholder-bbbbbbbbbbbb");
    let out = go(
        "echo $A; cat",
        vec![],
        vec![("A".into(), format!("<{one}|{two}>"))],
        Content::Text(format!("in {two}")),
    )
    .await
    .unwrap();
    assert_eq!(text(&out.stdout), "<value one|value two>\nin value two");
    for (script, args) in [
        (format!("echo {one}"), vec![]),
        ("true".to_owned(), vec![format!("x{two}")]),
    ] {
        let e = go(&script, args, vec![], Content::None).await.unwrap_err();
        assert_eq!(e.code, Code::PermissionDenied, "{e}");
    }
    // A credential's goes to no machine at all.
    let key = "placeholder-cccccccccccc";
    let variable = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    for (script, args, env, stdin) in [
        (format!("echo {key}"), vec![], vec![], Content::None),
        (
            "true".to_owned(),
            vec![format!("x{key}")],
            vec![],
            Content::None,
        ),
        (
            "true".to_owned(),
            vec![],
            variable("A", &format!("<{key}>")),
            Content::None,
        ),
        ("true".to_owned(), vec![], variable(key, "x"), Content::None),
        (
            "cat".to_owned(),
            vec![],
            vec![],
            Content::Text(format!("in {key}")),
        ),
    ] {
        let e = go(&script, args, env, stdin).await.unwrap_err();
        assert_eq!(e.code, Code::PermissionDenied, "{e}");
        assert!(e.message.contains("credential"), "{e}");
    }
    let e = session
        .list_workspaces(format!("/{one}"))
        .await
        .unwrap_err();
    assert_eq!(e.code, Code::PermissionDenied);
    let e = go(
        "true",
        vec![],
        vec![("LEASEHOLD_LEASE".into(), "x".into())],
        Content::None,
    )
    .await
    .unwrap_err();
    assert_eq!(e.code, Code::InvalidConfig);
}

#[test]
fn a_target_is_read_strictly_and_every_violation_is_told_at_once() {
    let wrong = SshTarget::from_config(&json!({
        "host": "-oProxyCommand=x", "port": 70000, "username": "a b", "privateKey": 7, "pasphrase": "x",
        "hostKeys": { "fingerprints": ["MD5:00", 3], "knownHosts": "garbage" }, "jump": [{ "host": "ok", "jump": [] }],
    }))
    .unwrap_err();
    let mut pointers: Vec<&str> = wrong.iter().map(|v| v.pointer.as_str()).collect();
    pointers.sort_unstable();
    assert_eq!(
        pointers,
        [
            "/host",
            "/hostKeys/fingerprints/0",
            "/hostKeys/fingerprints/1",
            "/hostKeys/knownHosts",
            "/jump/0/jump",
            "/jump/0/privateKey",
            "/jump/0/username",
            "/pasphrase",
            "/port",
            "/privateKey",
            "/username",
        ]
    );
    assert!(SshTarget::from_config(&json!([])).is_err());
    // What a program could take for an option is no account and no host.
    for (host, username, pointer) in [
        ("box.example.org", "-oProxyCommand=x", "/username"),
        ("-oProxyCommand=x", "ci", "/host"),
    ] {
        let key = "-----BEGIN OPENSSH PRIVATE KEY-----\nAA==\n-----END OPENSSH PRIVATE KEY-----";
        let target = json!({ "host": host, "username": username, "privateKey": key });
        let wrong = SshTarget::from_config(&target).unwrap_err();
        let pointers: Vec<&str> = wrong.iter().map(|v| v.pointer.as_str()).collect();
        assert_eq!(pointers, [pointer]);
    }
}

#[test]
fn what_a_component_may_know_of_a_target_has_nothing_secret() {
    let key = "-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0LWtleS1ieXRlcw==\n-----END OPENSSH PRIVATE KEY-----";
    let value = json!({
        "host": "fd00::5", "username": "ci", "privateKey": key, "passphrase": "open sesame",
        "jump": [{ "host": "jump.example.org", "port": 2222, "username": "j", "privateKey": key }],
    });
    let target = SshTarget::from_config(&value).unwrap();
    assert_eq!(target.identity(), "ci@[fd00::5]:22");
    assert_eq!(
        target.reduced(),
        json!({ "host": "fd00::5", "port": 22, "username": "ci",
                "jump": [{ "host": "jump.example.org", "port": 2222, "username": "j" }] })
    );
    assert!(!format!("{target:?}").contains("c2Vj"));
    assert!(target.secrets().contains(&"open sesame".to_owned()));
    assert!(
        target
            .secrets()
            .contains(&"c2VjcmV0LWtleS1ieXRlcw==".to_owned())
    );
    let mut other = value.clone();
    other["passphrase"] = json!("another");
    assert_ne!(
        SshTarget::from_config(&other).unwrap().fingerprint(),
        target.fingerprint()
    );
}
