//! A container engine behind a running server: real Podman, a tap on its socket that hears what the server says to it, the pod
//! provider that behaves, and a hostile one that wants the machine.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in what it calls"
)]

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};

use leasehold_parts::{IMAGE, Podman, Tap, listen_as, skipped};
use leasehold_tests::canary::contains;
use leasehold_tests::http::{Answer, text};
use leasehold_tests::server::Server;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A user that is neither root nor the server's: the one who runs the tap.
const SOMEBODY: u32 = 54_321;
const PAYLOAD: &str = "canary-Payload-91ab3f";

/// A server, an engine, and a tap between them.
struct House {
    server: Server,
    engine: Podman,
    tap: Tap,
    _dir: TempDir,
}

impl House {
    fn new(arguments: &[&str]) -> Option<House> {
        if let Some(missing) = Podman::missing() {
            skipped(missing);
            return None;
        }
        let server = Server::start_with(arguments)?;
        let engine = Podman::start().expect("podman");
        let dir = tempfile::tempdir().expect("a folder");
        let all = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(dir.path(), all).expect("its mode");
        let path = dir
            .path()
            .canonicalize()
            .expect("a path")
            .join("engine.sock");
        let listener = listen_as(SOMEBODY, &path).expect("a socket of somebody else's");
        let tap = Tap::on(listener, &engine.socket()).expect("a tap");
        Some(House {
            server,
            engine,
            tap,
            _dir: dir,
        })
    }

    /// The URL of the engine behind the tap.
    fn url(&self) -> String {
        format!("unix://{}", self.tap.path().display())
    }

    fn environment(&self, name: &str, provider: &str, config: &Value) -> Answer {
        self.server.environment(&json!({
            "name": name, "driver": "sandbox", "provider": provider, "config": config,
            "envVars": { "PAYLOAD": self.server.secret(name, PAYLOAD) },
        }))
    }

    /// What went into the engine so far, as text.
    fn heard(&self) -> String {
        let all = self.tap.heard().concat();
        String::from_utf8_lossy(&all).into_owned()
    }

    /// A request to the engine past the server and the tap, as its administrator makes it.
    fn past(&self, method: &str, path: &str, body: &str) -> Value {
        let mut stream = UnixStream::connect(self.engine.socket()).expect("the engine");
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        )
        .expect("a request");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status: u16 = head[9..12].parse().expect("a status");
        assert!(status < 300, "{method} {path}: {answer}");
        let from = body.find(['{', '[']).unwrap_or(body.len());
        let to = body.rfind(['}', ']']).map_or(from, |at| at + 1);
        serde_json::from_str(&body[from..to]).unwrap_or_default()
    }

    /// The ids of all containers.
    fn containers(&self) -> Vec<String> {
        let all = self.past("GET", "/containers/json?all=1", "");
        let all = all.as_array().cloned().unwrap_or_default();
        all.iter().map(|one| text(&one["Id"])).collect()
    }
}

/// The requests of a connection and their bodies, without what changes from run to run.
fn requests(mut bytes: &[u8], own: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    while let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let said = |name: &str| {
            head.split("\r\n").find_map(|line| {
                let (n, value) = line.split_once(':')?;
                n.eq_ignore_ascii_case(name).then(|| value.trim())
            })
        };
        let length: usize = said("content-length").map_or(0, |l| l.parse().expect("a length"));
        let body = &bytes[end + 4..end + 4 + length];
        let line = head.split([' ', '?']).take(2).collect::<Vec<_>>().join(" ");
        all.push((
            line.replace(own, "OWN"),
            String::from_utf8_lossy(body).into_owned(),
        ));
        if said("upgrade").is_some() {
            break;
        }
        bytes = &bytes[end + 4 + length..];
    }
    all
}

#[test]
fn a_container_is_leased_used_and_released_and_the_engine_hears_what_the_host_wrote() {
    let Some(house) = House::new(&["--log-level", "trace"]) else {
        return;
    };
    let server = &house.server;
    let theirs = text(
        &house.past(
            "POST",
            "/containers/create?name=theirs",
            &json!({ "Image": IMAGE, "Cmd": ["sleep", "9"], "Env": ["SECRET=canary-theirs"] })
                .to_string(),
        )["Id"],
    );
    server.install("pod").expect(201);
    let config = json!({ "engine": house.url(), "image": IMAGE });
    let environment = text(&house.environment("pod", "pod", &config).expect(201)["id"]);

    let lease = server.acquire(&environment);
    assert_eq!(lease.status, 201, "{}\n{}", lease.body, house.engine.log());
    let lease = lease.json();
    let id = text(&lease["id"]);
    assert_eq!(lease["proof"], "owned", "the host found its label: {lease}");
    let own: Vec<String> = house
        .containers()
        .into_iter()
        .filter(|c| *c != theirs)
        .collect();
    let [own] = own.as_slice() else {
        panic!("{own:?}")
    };
    let seen = server.get(&format!("/api/environment-leases/{id}/observation"));
    assert_eq!(seen["condition"], "ready", "{seen}");

    let script = "printf %s \"$PAYLOAD\" | wc -c; echo aside >&2; pwd; exit 7";
    let ran = server
        .exec(&id, &json!({ "argv": ["sh", "-c", script] }))
        .expect(200);
    assert_eq!(ran["execution"]["exitCode"], 7, "{ran}");
    assert_eq!(text(&ran["stdout"]), format!("{}\n/\n", PAYLOAD.len()));
    assert_eq!(text(&ran["stderr"]), "aside\n");
    let fed = server
        .exec(&id, &json!({ "argv": ["wc", "-c"], "stdin": "0123456789" }))
        .expect(200);
    assert_eq!(
        text(&fed["stdout"]).trim(),
        "10",
        "input ends by half-close: {fed}"
    );

    let released = server.release(&id);
    assert_eq!(released["status"], "released", "{released}");
    assert_eq!(
        house.containers(),
        [theirs.as_str()],
        "theirs stands, and nothing else"
    );

    // What the engine heard is what the host wrote, and nothing of it names anybody else's.
    let heard = house.heard();
    assert!(
        !heard.contains(&theirs) && !heard.contains("theirs"),
        "{heard}"
    );
    let heard = house.tap.heard();
    let all: Vec<(String, String)> = heard.iter().flat_map(|one| requests(one, own)).collect();
    let lines: Vec<&str> = all.iter().map(|(line, _)| line.as_str()).collect();
    for line in &lines {
        let own = line.contains("OWN") || line.contains("/exec/");
        let others = ["GET /containers/json", "POST /containers/create"];
        assert!(own || others.contains(line), "{line} of {lines:?}");
    }
    let count = |line: &str| lines.iter().filter(|l| **l == line).count();
    assert_eq!(count("POST /containers/create"), 1, "{lines:?}");
    assert_eq!(count("POST /containers/OWN/start"), 1, "{lines:?}");
    assert_eq!(count("POST /containers/OWN/exec"), 2, "{lines:?}");
    assert_eq!(count("DELETE /containers/OWN"), 1, "{lines:?}");
    let create = all
        .iter()
        .find(|(line, _)| line == "POST /containers/create");
    let create = create.map(|(_, body)| body.as_str()).unwrap_or_default();
    let start = format!(
        r#"{{"Image":"{IMAGE}","Cmd":["sleep","2147483647"],"Labels":{{"leasehold-acquisition":""#
    );
    assert!(create.starts_with(&start), "{create}");
    assert!(create.contains(r#""leasehold-owner":""#), "{create}");
    assert!(
        create.ends_with(r#""HostConfig":{"NetworkMode":"none"}}"#),
        "{create}"
    );
    let log = server.log();
    assert!(
        !log.contains(PAYLOAD) && !log.contains("canary-theirs"),
        "the log tells no value"
    );
}

#[test]
fn files_go_into_a_container_and_come_back() {
    let Some(house) = House::new(&[]) else { return };
    let server = &house.server;
    server.install("pod").expect(201);
    let config = json!({ "engine": house.url(), "image": IMAGE });
    let environment = text(&house.environment("pod", "pod", &config).expect(201)["id"]);
    let id = text(&server.acquire(&environment).expect(201)["id"]);
    let dir = tempfile::tempdir().expect("a folder");
    let content: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
    std::fs::write(dir.path().join("bytes"), &content).expect("a file");
    let from = dir.path().join("bytes").display().to_string();
    let back = dir.path().join("back");
    std::fs::create_dir(&back).expect("a folder");
    let into = back.display().to_string();
    let put = server.run(&["cp", &from, &format!("{id}:/tmp")]);
    assert_eq!(put.code, 0, "{}", put.stderr);
    let got = server.run(&["cp", &format!("{id}:/tmp/bytes"), &into]);
    assert_eq!(got.code, 0, "{}", got.stderr);
    assert!(std::fs::read(back.join("bytes")).expect("a file") == content);
    assert!(contains(&house.tap.heard().concat(), &content[..1024]));
    assert_eq!(server.release(&id)["status"], "released");
}

#[test]
fn a_container_whose_making_was_never_answered_is_found_by_its_label_and_removed() {
    let Some(house) = House::new(&[]) else { return };
    let server = &house.server;
    server.install("pod").expect(201);
    let config = json!({ "engine": house.url(), "image": IMAGE });
    let environment = text(&house.environment("pod", "pod", &config).expect(201)["id"]);
    house.tap.lose_answers_to(Some("POST /containers/create"));
    let path = format!("/api/environments/{environment}/leases");
    let lost = server.call("POST", &path, Some(&json!({ "timeoutMs": 3000 })));
    assert!(lost.status >= 500, "{}", lost.body);
    let id = text(&server.leases()[0]["id"]);
    server.wait_lease(&id, "released");
    assert_eq!(house.containers(), Vec::<String>::new());
    let heard = house.heard();
    let made = heard.matches("POST /containers/create").count();
    assert_eq!(
        (made, heard.matches("DELETE /containers/").count()),
        (1, 1),
        "{heard}"
    );
    // And a lease is made as ever once the engine answers.
    house.tap.lose_answers_to(None);
    let id = text(&server.acquire(&environment).expect(201)["id"]);
    assert_eq!(server.release(&id)["status"], "released");
}

#[test]
fn a_component_that_wants_the_machine_or_somebody_elses_container_is_not_even_heard() {
    let Some(house) = House::new(&[]) else { return };
    let server = &house.server;
    let theirs = text(
        &house.past(
            "POST",
            "/containers/create?name=theirs",
            &json!({ "Image": IMAGE, "Cmd": ["sleep", "9"] }).to_string(),
        )["Id"],
    );
    server.install("hostile-engine-breaker").expect(201);
    for how in [
        "bind",
        "privileged",
        "capability",
        "device",
        "namespace",
        "volumes",
        "twice",
        "case",
        "escape",
        "nested",
        "label",
        "exec",
        "remove",
        "look",
        "read",
        "libpod",
        "info",
    ] {
        for theirs in [theirs.as_str(), &theirs[..12], "theirs"] {
            let config = json!({ "engine": house.url(), "how": how, "theirs": theirs });
            let name = format!("{how} {}", theirs.len());
            let made = house.environment(&name, "hostile-engine-breaker", &config);
            let refused = server.acquire(&text(&made.expect(201)["id"]));
            assert_eq!(refused.code(), "egress_denied", "{how}: {}", refused.body);
        }
    }
    assert_eq!(house.heard(), "", "nothing reached the engine");
    assert_eq!(house.containers(), [theirs]);
}

#[test]
fn an_engine_of_root_is_refused_by_name_and_said_to_be_root_on_this_machine_where_it_is_let_through()
 {
    let Some(house) = House::new(&[]) else { return };
    let socket = house.engine.socket().canonicalize().expect("a path");
    let config = json!({ "engine": format!("unix://{}", socket.display()), "image": IMAGE });
    house.server.install("pod").expect(201);
    let made = house.environment("root", "pod", &config).expect(201);
    assert_eq!(made["warnings"], json!([]), "{made}");
    let refused = house.server.acquire(&text(&made["id"]));
    assert_eq!(refused.code(), "egress_denied", "{}", refused.body);
    let flag = format!("--allow-host-root={}", socket.display());
    for part in ["root on this machine", &flag] {
        assert!(refused.body.contains(part), "{}", refused.body);
    }
    assert_eq!(house.containers(), Vec::<String>::new());

    let Some(server) = Server::start_with(&[&flag]) else {
        return;
    };
    let offer = server.run(&["plugin", "inspect", &component_file(&server, "pod")]);
    assert!(
        offer.stdout.contains("root on this machine"),
        "{}",
        offer.stdout
    );
    server.install("pod").expect(201);
    let shown = server.run(&["plugin", "show", "pod"]);
    assert!(
        shown.stdout.contains("root on this machine"),
        "{}",
        shown.stdout
    );
    let draft = json!({ "name": "root", "driver": "sandbox", "provider": "pod", "config": config });
    let made = server.environment(&draft).expect(201);
    assert!(
        made["warnings"][0]
            .to_string()
            .contains("root on this machine"),
        "{made}"
    );
    let id = text(&made["id"]);
    let listed = server.run(&["env", "list"]);
    assert!(
        listed.stdout.contains("root on this machine"),
        "{}",
        listed.stdout
    );
    let company = server.company();
    let capabilities = server.get(&format!(
        "/api/companies/{company}/environments/capabilities"
    ));
    assert!(
        capabilities.to_string().contains("root on this machine"),
        "{capabilities}"
    );
    let probed = server
        .call("POST", &format!("/api/environments/{id}/probe"), None)
        .expect(200);
    assert_eq!(probed["ok"], true, "{probed}");
    let finding = &probed["details"]["findings"][0];
    assert_eq!(finding["step"], "root-on-this-machine", "{probed}");
    let lease = text(&server.acquire(&id).expect(201)["id"]);
    assert_eq!(server.release(&lease)["status"], "released");
}

#[test]
fn an_engine_that_never_answers_is_named_where_the_time_of_a_call_runs_out() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().canonicalize().expect("a path").join("e.sock");
    // It takes connections, as the kernel does for it, and nobody reads them.
    let _silent = UnixListener::bind(&path).expect("a socket");
    let flag = format!("--allow-host-root={}", path.display());
    let Some(server) = Server::start_with(&[&flag]) else {
        return;
    };
    server.install("pod").expect(201);
    let url = format!("unix://{}", path.display());
    let config = json!({ "engine": url, "image": IMAGE });
    let draft = json!({ "name": "mute", "driver": "sandbox", "provider": "pod", "config": config });
    let box_ = text(&server.environment(&draft).expect(201)["id"]);
    let refused = server.call(
        "POST",
        &format!("/api/environments/{box_}/leases"),
        Some(&json!({ "timeoutMs": 1000 })),
    );
    assert_eq!(refused.code(), "component_timeout", "{}", refused.body);
    let told = text(&refused.json()["error"]);
    let cause = format!("{url} had been asked and had not answered");
    assert!(told.contains(&cause), "{told}");
}

/// A component written into a file.
fn component_file(server: &Server, name: &str) -> String {
    let bytes = leasehold_tests::server::component(name).expect("it was built");
    let path = server.path().join(format!("{name}.wasm"));
    std::fs::write(&path, bytes).expect("a file");
    path.display().to_string()
}
