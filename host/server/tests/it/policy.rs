//! Who may do what: every route of the API's own description, asked by every kind of actor, against a table that was
//! written by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use serde_json::{Value, json};

use crate::leased::Leased;
use crate::server::{Answer, Server, ask};

/// `+` may; `~` may, and is told nothing of targets; `-` is refused (403); `?` is not there (404); `!` is nobody (401). In the order of [`ACTORS`].
const TABLE: &str = "
whoami                  + + + + + + + + ! !
getProgress             + + + + + + + + ! !
metrics                 + + - - - - - - ! !
getInstanceSettings     + + + + - - - - ! !
updateInstanceSettings  + + - - - - - - ! !
listCompanies           + + + + + + + + ! !
createCompany           + + - - - - - - ! !
getCompany              + + + ? - - - - ! !
renameCompany           + + - - - - - - ! !
exportCompany           + + - - - - - - ! !
listTokens              + + - - - - - - ! !
createToken             + + - - - - - - ! !
revokeToken             + + - - - - - - ! !
inspectPlugin           + + - - - - - - ! !
installPlugin           + + - - - - - - ! !
listPlugins             + + - - - - - - ! !
getPlugin               + + - - - - - - ! !
grantPlugin             + + - - - - - - ! !
denyPlugin              + + - - - - - - ! !
rollbackPlugin          + + - - - - - - ! !
resetPlugin             + + - - - - - - ! !
enablePlugin            + + - - - - - - ! !
disablePlugin           + + - - - - - - ! !
removePlugin            + + - - - - - - ! !
listSecrets             + + - - - - - - ! !
createSecret            + + - - - - - - ! !
listInstanceSecrets     + + - - - - - - ! !
createInstanceSecret    + + - - - - - - ! !
getSecret               + + - - - - - - ! !
listSecretUses          + + - - - - - - ! !
listSecretVersions      + + - - - - - - ! !
rotateSecret            + + - - - - - - ! !
updateSecretVersion     + + - - - - - - ! !
deleteSecret            + + - - - - - - ! !
listSecretAccesses      + + - - - - - - ! !
listEnvironments        + + ~ ? - - - - ! !
createEnvironment       + + - - - - - - ! !
getEnvironment          + + ~ ? - - - - ! !
updateEnvironment       + + - - - - - - ! !
deleteEnvironment       + + - - - - - - ! !
getDeleteBlastRadius    + + - - - - - - ! !
listSecretRefs          + + - - - - - - ! !
getCapabilities         + + + ? ~ ~ ~ ? ! !
resolveEnvironment      + + + ? + + + ? ! !
probeEnvironment        + + - - - - - - ! !
probeDraft              + + - - - - - - ! !
fetchHostKey            + + - - - - - - ! !
getDefaultEnvironment   + + + ? - - - - ! !
setDefaultEnvironment   + + - - - - - - ! !
selectEnvironment       + + + ? ~ ~ ~ ? ! !
resolveAssignment       + + + ? ~ ~ ? ? ! !
listAgents              + + + ? - - - - ! !
createAgent             + + - - - - - - ! !
getAgent                + + + ? - - - - ! !
updateAgent             + + - - - - - - ! !
listProjects            + + + ? - - - - ! !
createProject           + + - - - - - - ! !
getProject              + + + ? - - - - ! !
updateProject           + + - - - - - - ! !
listWorkspaces          + + + ? - - - - ! !
createWorkspace         + + - - - - - - ! !
getWorkspace            + + + ? - - - - ! !
updateWorkspace         + + - - - - - - ! !
listIssues              + + + ? - - - - ! !
createIssue             + + - - - - - - ! !
getIssue                + + + ? - - - - ! !
updateIssue             + + - - - - - - ! !
listRuns                + + + ? - - - - ! !
createRun               + + - - - - - - ! !
getRun                  + + + ? - - - - ! !
acquireLease            + + - - + + + ? ! !
acquireChosenLease      + + - - + + + ? ! !
listLeases              + + ~ ? + + + ? ! !
listCompanyLeases       + + ~ ? + + + ? ! !
getLease                + + ~ ? + + ? ? ! !
observeLease            + + - - + + ? ? ! !
renewLease              + + - - + + ? ? ! !
abandonLease            + + - - - - - - ! !
runCommand              + + - - + + ? ? ! !
streamCommand           + + - - + + ? ? + !
createStreamTicket      + + - - + + ? ? ! !
listExecutions          + + - - + + ? ? ! !
getExecution            + + - - + + ? ? ! !
signalExecution         + + - - + + ? ? ! !
putFiles                + + - - + + ? ? ! !
getFiles                + + - - + + ? ? ! !
listCompanyActivity     + + ~ ? - - - - ! !
listActivity            + + - - - - - - ! !
verifyActivity          + + - - - - - - ! !
streamCompanyActivity   + + ~ ? - - - - ! !
streamActivity          + + - - - - - - ! !
getActivityHead         + + - - - - - - ! !
exportActivity          + + - - - - - - ! !
checkActivityExport     + + - - - - - - ! !
releaseLease            + + - - + + ? ? ! !
endRun                  + + - - + + ? ? ! !
";

const ACTORS: [&str; 10] = [
    "the operator",
    "an administrator",
    "a board member of two companies",
    "a board member of another company",
    "an agent of the company",
    "an agent of the run",
    "an agent of another run",
    "an agent of another company",
    "nobody",
    "a revoked agent",
];

/// What answers 404 to whoever may, as there is nothing to do it with.
const EMPTY_HANDED: [&str; 4] = ["getProgress", "grantPlugin", "denyPlugin", "rollbackPlugin"];

/// A body that is sound, where the row is only looked at after it; what needs none has none. Everything else is sent a
/// body that is refused once the caller was not.
fn body(operation: &str) -> &'static str {
    match operation {
        "acquireLease" => r#"{"timeoutMs":30000}"#,
        "acquireChosenLease" => r#"{"requirement":{"required":["teleport"]}}"#,
        "selectEnvironment" => r#"{"required":["execution"]}"#,
        "renewLease" => r#"{"ttlSeconds":600}"#,
        "runCommand" => r#"{"argv":["true"]}"#,
        "signalExecution" => r#"{"signal":"TERM"}"#,
        "createToken"
        | "createCompany"
        | "renameCompany"
        | "createSecret"
        | "createInstanceSecret"
        | "rotateSecret"
        | "updateSecretVersion"
        | "createEnvironment"
        | "updateEnvironment"
        | "createAgent"
        | "createProject"
        | "createWorkspace"
        | "createIssue"
        | "createRun"
        | "updateAgent"
        | "updateProject"
        | "updateWorkspace"
        | "updateIssue"
        | "probeDraft"
        | "setDefaultEnvironment"
        | "updateInstanceSettings"
        | "fetchHostKey"
        | "grantPlugin"
        | "abandonLease"
        | "installPlugin"
        | "inspectPlugin" => r#"{"nothing of the kind":1}"#,
        _ => "",
    }
}

fn query(operation: &str) -> &'static str {
    match operation {
        "resolveEnvironment" => "?name=box",
        "resolveAssignment" => "?agent=a1&run=r1",
        "putFiles" | "getFiles" => "?path=.",
        "streamActivity" | "streamCompanyActivity" => "?after=0",
        _ => "",
    }
}

struct Rooms {
    leased: Leased,
    ids: BTreeMap<&'static str, String>,
    tokens: Vec<Option<String>>,
}

fn token(server: &Server, body: &Value) -> (String, String) {
    let made = server.operator("POST", "/api/tokens", &body.to_string());
    assert_eq!(made.status, 201, "{}", made.body);
    let made = made.json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&made["token"]["id"]), text(&made["secret"]))
}

/// A lease that was made for the run `r1`, with a command that ended on it, and a token for each actor.
fn rooms() -> Option<Rooms> {
    let mut leased = Leased::new()?;
    let server = &leased.server;
    let company = leased.company.clone();
    let (other, third) = (server.company("other"), server.company("third"));
    let released = server.operator("POST", &leased.path("/release"), "");
    assert_eq!(released.json()["status"], "released", "{}", released.body);
    let leases = format!("/api/environments/{}/leases", leased.environment);
    let made = server.operator("POST", &leases, r#"{"runId":"r1"}"#);
    assert_eq!(made.status, 201, "{}", made.body);
    let lease = made.json()["id"].as_str().unwrap().to_owned();
    let path = format!("/api/environment-leases/{lease}/executions");
    let ran = server.operator("POST", &path, r#"{"argv":["true"]}"#);
    assert_eq!(ran.status, 200, "{}", ran.body);
    let assigned = json!({"id": "a1", "environmentId": leased.environment});
    for (kind, body) in [
        ("agents", assigned),
        ("projects", json!({"id": "p1"})),
        ("workspaces", json!({"id": "w1"})),
        ("issues", json!({"id": "i1"})),
        ("runs", json!({"id": "r1", "agentId": "a1"})),
    ] {
        let path = format!("/api/companies/{company}/{kind}");
        let made = server.operator("POST", &path, &body.to_string());
        assert_eq!(made.status, 201, "{}", made.body);
    }
    let secrets = server.operator("GET", &format!("/api/companies/{company}/secrets"), "");
    let (spare, _) = token(server, &json!({"name": "spare", "role": "admin"}));
    let ids = BTreeMap::from([
        ("companyId", company.clone()),
        ("environmentId", leased.environment.clone()),
        ("leaseId", lease.clone()),
        (
            "executionId",
            ran.json()["execution"]["id"].as_str().unwrap().to_owned(),
        ),
        (
            "secretId",
            secrets.json()[0]["id"].as_str().unwrap().to_owned(),
        ),
        ("version", "1".to_owned()),
        ("tokenId", spare),
        ("key", "ssh".to_owned()),
        ("progressId", "nothing".to_owned()),
        ("agentId", "a1".to_owned()),
        ("projectId", "p1".to_owned()),
        ("workspaceId", "w1".to_owned()),
        ("issueId", "i1".to_owned()),
        ("runId", "r1".to_owned()),
    ]);
    let agent = |company: &str, run: Option<&str>| {
        let mut body = json!({"name": "agent", "role": "agent", "companyId": company});
        if let Some(run) = run {
            body["runId"] = run.into();
        }
        token(server, &body)
    };
    let (gone, revoked) = agent(&company, None);
    let revocation = server.operator("DELETE", &format!("/api/tokens/{gone}"), "");
    assert_eq!(revocation.status, 204);
    let member = |companies: [&str; 2]| {
        let body = json!({"name": "member", "role": "member", "companyIds": companies});
        Some(token(server, &body).1)
    };
    let operator = server.home.token();
    let tokens = vec![
        Some(operator),
        Some(token(server, &json!({"name": "admin", "role": "admin"})).1),
        member([&company, &third]),
        member([&other, &third]),
        Some(agent(&company, None).1),
        Some(agent(&company, Some("r1")).1),
        Some(agent(&company, Some("r2")).1),
        Some(agent(&other, Some("r1")).1),
        None,
        Some(revoked),
    ];
    leased.lease = lease;
    Some(Rooms {
        leased,
        ids,
        tokens,
    })
}

/// Every operation of the API's own description: name, method, path.
fn routes(server: &Server) -> Vec<(String, String, String)> {
    let document = server.tcp("GET", "/api/openapi.json", &[], "").json();
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap().to_owned();
            all.push((id, method.to_uppercase(), path.clone()));
        }
    }
    all
}

fn send(server: &Server, actor: Option<&str>, method: &str, path: &str, operation: &str) -> Answer {
    let mut headers = Vec::new();
    let authorization = actor.map(|token| format!("Bearer {token}"));
    if let Some(authorization) = &authorization {
        headers.push(("authorization", authorization.as_str()));
    }
    let tar = "\0".repeat(1024);
    let mut body = body(operation);
    if operation == "putFiles" {
        headers.push(("content-type", "application/x-tar"));
        body = &tar;
    } else if operation == "checkActivityExport" {
        headers.push(("content-type", "application/x-ndjson"));
        body = "{}\n";
    } else if !body.is_empty() {
        headers.push(("content-type", "application/json"));
    }
    if operation == "streamCommand" {
        headers.extend([
            ("connection", "close, upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ]);
        let stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        let host = format!("localhost:{}", server.port);
        headers.push(("host", &host));
        return ask(Opened(stream, Vec::new()), method, path, &headers, "").unwrap();
    }
    if operation.ends_with("Activity") && operation.starts_with("stream") {
        let stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        let host = format!("localhost:{}", server.port);
        headers.push(("host", &host));
        return ask(Opened(stream, Vec::new()), method, path, &headers, "").unwrap();
    }
    server.tcp(method, path, &headers, body)
}

/// A connection that is not read on once it is a WebSocket, or has told of an event.
struct Opened(TcpStream, Vec<u8>);

impl Read for Opened {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let has = |text: &[u8]| self.1.windows(text.len()).any(|found| found == text);
        let upgraded = self.1.starts_with(b"HTTP/1.1 101 ") && has(b"\r\n\r\n");
        // The last of what there is: later ones come when something happens.
        let followed = has(b"\nevent: activity\n") && has(b"lease.active");
        if upgraded || followed {
            return Ok(0);
        }
        let count = self.0.read(buffer)?;
        self.1.extend(&buffer[..count]);
        Ok(count)
    }
}

impl Write for Opened {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        self.0.write(buffer)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

#[test]
fn every_route_answers_every_kind_of_actor_as_the_table_says() {
    let Some(Rooms {
        leased,
        ids,
        tokens,
    }) = rooms()
    else {
        return;
    };
    let server = &leased.server;
    let table: Vec<Vec<&str>> = TABLE
        .trim()
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let routes = routes(server);
    let open = ["healthz", "readyz"];
    let named: BTreeSet<&str> = table.iter().map(|row| row[0]).collect();
    let served: BTreeSet<&str> = routes.iter().map(|route| &*route.0).collect();
    let served: BTreeSet<&str> = served.into_iter().filter(|r| !open.contains(r)).collect();
    assert_eq!(
        named, served,
        "each route has its row, and each row its route"
    );
    let mut wrong = Vec::new();
    for row in &table {
        let operation = row[0];
        let (_, method, path) = routes.iter().find(|route| route.0 == operation).unwrap();
        let mut path = path.clone();
        for (name, id) in &ids {
            path = path.replace(&format!("{{{name}}}"), id);
        }
        path.push_str(query(operation));
        assert_eq!(row.len(), 1 + ACTORS.len(), "{operation}");
        for (at, wanted) in row[1..].iter().enumerate() {
            let answer = send(server, tokens[at].as_deref(), method, &path, operation);
            // Where the environment keeps workspaces stands in its row and in its leases', and what the target calls one in
            // the activity. What chooses tells names, or none.
            let told: &[&str] = match operation {
                "getCapabilities" | "selectEnvironment" | "resolveAssignment" => &["\"box\""],
                _ => &["/leases", r#""acq-"#],
            };
            let tells = told.iter().any(|told| answer.body.contains(told));
            let right = match *wanted {
                "~" => answer.status == 200 && !tells,
                "+" if at < 2 && row.contains(&"~") => answer.status == 200 && tells,
                "+" => match answer.status {
                    401 | 403 => false,
                    404 => EMPTY_HANDED.contains(&operation),
                    _ => true,
                },
                "-" => (answer.status, &*answer.code()) == (403, "forbidden"),
                "?" => answer.status == 404,
                _ => (answer.status, &*answer.code()) == (401, "unauthenticated"),
            };
            let broken = answer.status >= 500;
            if !right || broken {
                let Answer { status, body, .. } = &answer;
                wrong.push(format!(
                    "{operation} by {}: {wanted}, {status} {body}",
                    ACTORS[at]
                ));
            }
        }
        if operation == "disablePlugin" {
            server.operator("POST", "/api/plugins/ssh/enable", "");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_agent_of_a_run_leases_for_that_run_alone_and_sees_no_other_lease() {
    let Some(Rooms {
        leased,
        ids: _,
        tokens,
    }) = rooms()
    else {
        return;
    };
    let server = &leased.server;
    let ask = |at: usize, method: &str, path: &str, body: &str| {
        let authorization = format!("Bearer {}", tokens[at].as_deref().unwrap());
        let mut headers = vec![("authorization", authorization.as_str())];
        if !body.is_empty() {
            headers.push(("content-type", "application/json"));
        }
        server.tcp(method, path, &headers, body)
    };
    let (own, other, unbound, member) = (5, 6, 4, 2);
    let leases = format!("/api/environments/{}/leases", leased.environment);
    let of_company = format!("/api/companies/{}/environment-leases", leased.company);
    for path in [&leases, &of_company] {
        let count = |at| {
            ask(at, "GET", path, "").json()["items"]
                .as_array()
                .unwrap()
                .len()
        };
        assert_eq!(
            (count(own), count(other), count(unbound)),
            (1, 0, 2),
            "{path}"
        );
    }
    let released = ask(own, "POST", &leased.path("/release"), "");
    assert_eq!(released.json()["status"], "released", "{}", released.body);
    // Why it ended may be what a target said: that is not for the board.
    let why = |at| ask(at, "GET", &leased.path(""), "").json()["statusReason"].clone();
    assert_ne!(why(own), Value::Null);
    assert_eq!(why(member), Value::Null);
    let foreign = ask(other, "POST", &leases, r#"{"runId":"r1"}"#);
    assert_eq!(foreign.status, 404, "{}", foreign.body);
    let made = ask(other, "POST", &leases, "{}");
    assert_eq!(
        (made.status, &made.json()["runId"]),
        (201, &json!("r2")),
        "{}",
        made.body
    );
    let lease = format!(
        "/api/environment-leases/{}",
        made.json()["id"].as_str().unwrap()
    );
    assert_eq!(ask(own, "GET", &lease, "").status, 404);
    // A board member knows that there is a lease, and not what it holds.
    let seen = ask(member, "GET", &lease, "").json();
    assert_eq!(seen["status"], "active");
    for hidden in [
        "providerLeaseId",
        "workspace",
        "acquisition",
        "failureReason",
    ] {
        assert_eq!(seen[hidden], Value::Null, "{hidden}");
    }
    assert_ne!(
        ask(other, "GET", &lease, "").json()["workspace"],
        Value::Null
    );
    assert_eq!(
        ask(other, "POST", &format!("{lease}/release"), "").status,
        200
    );
}

#[test]
fn a_refusal_comes_before_the_body_is_read_and_before_anything_is_reached_or_resolved() {
    let Some(Rooms {
        leased,
        ids,
        tokens,
    }) = rooms()
    else {
        return;
    };
    let server = &leased.server;
    let secret = &ids["secretId"];
    let accesses = || {
        let path = format!("/api/secrets/{secret}/accesses?limit=500");
        let all = server.operator("GET", &path, "").json();
        all["items"].as_array().unwrap().len()
    };
    let sent = crate::server::wait_for("the accesses of before", || {
        let before = accesses();
        (before > 0).then_some(before)
    });
    let target = TcpListener::bind("127.0.0.1:0").unwrap();
    target.set_nonblocking(true).unwrap();
    let port = target.local_addr().unwrap().port();
    let draft = json!({
        "name": "x", "driver": "ssh",
        "config": {
            "target": {
                "host": "127.0.0.1", "port": port, "username": "u",
                "privateKey": {"type": "secret_ref", "secretId": secret, "version": "latest"},
                "hostKeys": {"fingerprints": [], "knownHosts": ""},
            },
            "remoteWorkspacePath": "/tmp",
        },
    });
    let probe_draft = format!(
        "/api/companies/{}/environments/probe-config",
        leased.company
    );
    let probe = format!("/api/environments/{}/probe", leased.environment);
    for at in [2, 4, 5] {
        let authorization = format!("Bearer {}", tokens[at].as_deref().unwrap());
        let headers = [
            ("authorization", authorization.as_str()),
            ("content-type", "application/json"),
        ];
        let host_key = json!({"host": "127.0.0.1", "port": port});
        for (path, body) in [
            (&*probe_draft, draft.to_string()),
            ("/api/ssh/host-key", host_key.to_string()),
            (&*probe, String::new()),
            (&*probe_draft, "{ not even JSON".to_owned()),
        ] {
            let refused = server.tcp("POST", path, &headers, &body);
            assert_eq!(
                (refused.status, &*refused.code()),
                (403, "forbidden"),
                "{path}: {}",
                refused.body
            );
        }
    }
    let nobody = target.accept().map(|_| ()).unwrap_err();
    assert_eq!(nobody.kind(), std::io::ErrorKind::WouldBlock);
    // The operator's own probe is told of once more, and what was refused before it is not.
    let probed = server.operator("POST", &probe, "");
    assert_eq!(probed.json()["ok"], true, "{}", probed.body);
    let after = crate::server::wait_for("the access of the probe", || {
        let now = accesses();
        (now > sent).then_some(now)
    });
    let of_probe = 2; // the key, and the variable that names it
    assert!(after - sent <= of_probe, "{sent} then {after}");
}
