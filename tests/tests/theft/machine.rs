//! A machine reached by SSH: what of a key it is told, prints, keeps and has in its processes.

use leasehold_parts::{Format, KeyPair, Kind};
use leasehold_tests::canary::{Canaries, contains, files_below, processes};
use leasehold_tests::heard::Heard;
use leasehold_tests::http::text;
use leasehold_tests::machine::Machine;
use leasehold_tests::server::Server;
use serde_json::{Value, json};

use crate::den::{
    CONTROL, came, memory_is_clean, nothing_is_kept, processes_are_clean, refused, tries, unique,
    while_a_command_runs,
};

/// The tries that reach the machine, with nothing of the key.
const REACHED: [&str; 1] = ["nothing"];

#[test]
fn a_machine_is_told_nothing_of_a_key_and_has_it_nowhere_while_a_command_runs() {
    let Some(machine) = Machine::start() else {
        return;
    };
    let Some(server) = Server::start_with(&["--log-level", "trace"]) else {
        return;
    };
    server.install("hostile-machine-teller").expect(201);
    let (key, payload) = (unique("Key"), unique("Payload"));
    let login = KeyPair::generate(Kind::Ed25519, Format::OpenSsh, "").expect("a key");
    let worker = machine.sshd.worker().name.clone();
    machine
        .sshd
        .authorize(&worker, &login.public)
        .expect("authorized");
    // A line from the middle of the private half: no part of it is in the public one.
    let lines: Vec<&str> = login.private.lines().collect();
    let canaries = Canaries::new(vec![
        ("key", key.clone().into()),
        ("payload", payload.clone().into()),
        ("login", lines[lines.len() - 3].into()),
    ]);
    let mut hunt = canaries.told();
    hunt["control"] = Canaries::new(vec![("control", CONTROL.into())]).told()["control"].clone();
    let heard = Heard::new(server, "machine");
    let server = &heard.server;
    let leases = machine.directory("leases");
    let draft = json!({
        "name": "machine", "description": CONTROL,
        "driver": "ssh", "provider": "hostile-machine-teller",
        "config": {
            "target": machine.target(&server.secret("login", &login.private), machine.sshd.port()),
            "token": server.secret("token", &key),
            "parent": leases, "hunt": hunt, "word": CONTROL,
        },
        "envVars": { "PAYLOAD": { "type": "secret_value", "value": payload } },
    });
    let made = heard.keep(server.environment(&draft)).1;
    assert_eq!(made["config"]["found"], "control", "in check-config");
    let environment = text(&made["id"]);
    let of_environment = |what: &str| format!("/api/environments/{environment}/{what}");
    let post = |path: &str, body: Value| heard.call("POST", path, Some(&body));

    let probed = heard.call("POST", &of_environment("probe"), None);
    assert_eq!(probed["ok"], true, "{probed}");
    let lease = text(&post(&of_environment("leases"), json!({}))["id"]);
    let of_lease = |what: &str| format!("/api/environment-leases/{lease}/{what}");
    let whole = leases.ancestors().nth(2).expect("the machine's folder");
    let signs = machine.directory("signs");
    std::fs::write(signs.join("noted"), CONTROL).expect("a file");
    let printed = while_a_command_runs(&heard, &lease, &signs, || {
        let shown = processes_are_clean(server, &canaries);
        assert!(shown > 0, "the command's own environment is seen");
        for one in processes() {
            // A script or an input that a shell put into a file, and unlinked.
            if one.has("LEASEHOLD_LEASE") {
                canaries.absent_from(&one.open_files());
            }
        }
        let there = files_below(whole);
        let stands = |what: &str, bytes: &str| {
            there.iter().any(|(path, found)| {
                path.to_string_lossy().contains(what) && contains(found, bytes.as_bytes())
            })
        };
        assert!(stands("/.leasehold/x/exe-", ""), "records are looked at");
        assert!(stands("signs/noted", CONTROL), "what stands there is seen");
        canaries.absent_from(&there);
        nothing_is_kept(server, &canaries);
    });
    assert!(
        printed.contains(&format!("PAYLOAD={payload}")),
        "it has its own: {printed}"
    );
    assert!(
        !printed.contains("TOLD") && !printed.contains("lhp-") && !printed.contains(&key),
        "{printed}"
    );
    let seen = heard.call("GET", &of_lease("observation"), None);
    assert_eq!(seen["condition"], "ready", "{seen}");
    post(&of_lease("renew"), json!({ "ttlSeconds": 3600 }));
    heard.read_all();
    let released = post(&of_lease("release"), json!({}));
    assert_eq!(released["status"], "released", "{released}");
    heard.read_all();

    let tries = tries(server);
    refused(&tries, &REACHED);
    for one in &tries {
        match REACHED.contains(&one.name.as_str()) {
            true => assert_eq!(one.came.trim(), "reached", "{one:?}"),
            false => assert!(
                one.came.contains("a credential's placeholder stands in"),
                "{one:?}"
            ),
        }
    }
    for (export, name) in [
        ("probe", "script"),
        ("acquire", "workspace"),
        ("inspect", "variable"),
        ("keep-alive", "input"),
        ("release", "argument"),
        ("start", "list"),
        ("start of a command", "place of a command"),
    ] {
        let of_export: Vec<_> = tries
            .iter()
            .filter(|one| one.export == export)
            .cloned()
            .collect();
        came(&of_export, name);
    }
    memory_is_clean(
        server,
        &[
            "probe",
            "acquire",
            "start",
            "start of a command",
            "inspect",
            "keep-alive",
            "release",
        ],
    );
    nothing_is_kept(server, &canaries);
    processes_are_clean(server, &canaries);
    canaries.absent_from(&files_below(whole));
    let answers = heard.answers();
    assert!(answers.contains(CONTROL), "answers are read");
    let in_answers = canaries.without(&["payload"]).in_bytes(answers.as_bytes());
    assert_eq!(in_answers, Vec::<&str>::new(), "in an answer");
}
