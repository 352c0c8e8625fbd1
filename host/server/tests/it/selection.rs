//! Selection by capability: who is a candidate, why everyone else is none, and that asking does nothing.

use serde_json::{Value, json};

use crate::leased::{Leased, component};
use crate::server::{Answer, Server};

use leasehold_parts::skipped;

/// A server with the null provider, which exports nothing but the lease itself, and a company.
pub struct House {
    pub server: Server,
    pub company: String,
}

fn install(server: &Server, name: &str) -> bool {
    let Some(component) = component(name) else {
        skipped("`cargo xtask components`");
        return false;
    };
    let out = server
        .home
        .leasehold()
        .args(["plugin", "install", "--yes", component.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    true
}

impl House {
    pub fn new() -> Option<House> {
        let server = Server::start();
        if !install(&server, "null") {
            return None;
        }
        let company = server.company("acme");
        Some(House { server, company })
    }

    pub fn path(&self, what: &str) -> String {
        format!("/api/companies/{}/{what}", self.company)
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.server.operator("POST", path, &body.to_string())
    }

    pub fn environment(&self, name: &str, more: &Value) -> String {
        let mut body = json!({"name": name, "driver": "sandbox", "provider": "null"});
        for (field, value) in more.as_object().unwrap() {
            body[field] = value.clone();
        }
        let made = self.post(&self.path("environments"), &body);
        assert_eq!(made.status, 201, "{}", made.body);
        made.json()["id"].as_str().unwrap().to_owned()
    }

    pub fn select(&self, requirement: &Value) -> Value {
        let answer = self.post(&self.path("environments/select"), requirement);
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    }

    /// What is counted of everything that is done for an environment.
    fn counted(&self) -> Vec<String> {
        let told = self.server.operator("GET", "/metrics", "").body;
        let counted = |line: &&str| {
            [
                "leasehold_calls",
                "leasehold_leases",
                "leasehold_ssh",
                "leasehold_executions",
            ]
            .iter()
            .any(|name| line.starts_with(name))
        };
        told.lines().filter(counted).map(str::to_owned).collect()
    }
}

pub fn names(selection: &Value, list: &str) -> Vec<String> {
    let all = selection[list].as_array().unwrap().iter();
    all.map(|one| one["name"].as_str().unwrap().to_owned())
        .collect()
}

pub fn lack(selection: &Value, name: &str) -> Vec<(String, String)> {
    let all = selection["excluded"].as_array().unwrap();
    let one = all.iter().find(|one| one["name"] == name).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let lacks = one["lacks"].as_array().unwrap().iter();
    lacks
        .map(|lack| {
            assert!(text(&lack["reason"]).len() > 10, "{lack}");
            (text(&lack["what"]), text(&lack["by"]))
        })
        .collect()
}

pub fn pair(what: &str, by: &str) -> (String, String) {
    (what.to_owned(), by.to_owned())
}

#[test]
fn every_environment_is_a_candidate_or_is_told_which_term_took_what_was_asked_for() {
    let Some(house) = House::new() else { return };
    house.environment("plain", &json!({}));
    let labels = json!({"metadata": {"labels": {"zone": "a"}}});
    house.environment("labelled", &labels);
    house.environment("old", &json!({"status": "archived"}));
    let all = house.select(&json!({}));
    assert_eq!(names(&all, "candidates"), ["labelled", "plain"]);
    assert_eq!(all["candidateCount"], 2);
    assert_eq!(lack(&all, "old"), [pair("lifecycle", "configuration")]);
    assert_eq!(lack(&all, "local"), [pair("lifecycle", "configuration")]);
    let commands = house.select(&json!({"required": ["execution", "tty", "reuse"]}));
    assert_eq!(names(&commands, "candidates"), [""; 0]);
    assert_eq!(
        lack(&commands, "plain"),
        [
            pair("execution", "exports"),
            pair("tty", "exports"),
            pair("reuse", "features")
        ]
    );
    assert_eq!(
        lack(&house.select(&json!({"reuse": true})), "plain"),
        [pair("reuse", "features")]
    );
    let zone = house.select(&json!({"labels": {"zone": "a"}}));
    assert_eq!(names(&zone, "candidates"), ["labelled"]);
    assert_eq!(lack(&zone, "plain"), [pair("label", "labels")]);
    let other = house.select(&json!({"labels": {"zone": "b"}}));
    assert_eq!(lack(&other, "labelled"), [pair("label", "labels")]);
    let platform = house.select(&json!({"platform": {"os": "linux"}}));
    assert_eq!(names(&platform, "candidates"), [""; 0]);
    assert_eq!(
        lack(&platform, "plain"),
        [pair("platform", "qualification")]
    );
    let any = house.select(&json!({"platform": {}, "labels": {}, "required": []}));
    assert_eq!(names(&any, "candidates"), ["labelled", "plain"]);
    let elsewhere = house.select(&json!({"driver": "ssh", "provider": "daytona"}));
    assert_eq!(
        lack(&elsewhere, "plain"),
        [pair("driver", "driver"), pair("provider", "provider")]
    );
    assert_eq!(
        lack(&elsewhere, "old"),
        [
            pair("lifecycle", "configuration"),
            pair("driver", "driver"),
            pair("provider", "provider")
        ]
    );
    house
        .server
        .operator("POST", "/api/plugins/null/disable", "");
    let disabled = house.select(&json!({}));
    assert_eq!(names(&disabled, "candidates"), [""; 0]);
    assert_eq!(lack(&disabled, "plain"), [pair("lifecycle", "grant")]);
    assert_eq!(lack(&disabled, "old"), [pair("lifecycle", "configuration")]);
}

#[test]
fn a_word_that_is_no_capability_is_refused_with_those_there_are() {
    let Some(house) = House::new() else { return };
    let path = house.path("environments/select");
    let wrong =
        json!({"required": ["execution", "teleport"], "preferred": ["Files"], "driver": "moon"});
    let answer = house.post(&path, &wrong);
    assert_eq!((answer.status, &*answer.code()), (422, "invalid"));
    let told = answer.json()["details"]["violations"].clone();
    let pointers: Vec<&str> = (told.as_array().unwrap().iter())
        .map(|violation| violation["pointer"].as_str().unwrap())
        .collect();
    assert_eq!(pointers, ["/required/1", "/preferred/0", "/driver"]);
    assert!(
        told[0]["message"]
            .as_str()
            .unwrap()
            .contains("separate-stderr"),
        "{told}"
    );
    for limit in ["0", "10001", "x"] {
        let answer = house.post(&format!("{path}?limit={limit}"), &json!({}));
        assert_eq!(answer.status, 400, "{}", answer.body);
    }
    let typo = house.post(&path, &json!({"requires": []}));
    assert_eq!(typo.status, 422, "{}", typo.body);
}

#[test]
fn asking_calls_no_component_and_makes_no_lease() {
    let Some(house) = House::new() else { return };
    house.environment("plain", &json!({}));
    let before = house.counted();
    assert!(before.len() > 4, "{before:?}");
    for requirement in [
        json!({}),
        json!({"required": ["files"]}),
        json!({"platform": {}}),
    ] {
        house.select(&requirement);
    }
    let capabilities = house
        .server
        .operator("GET", &house.path("environments/capabilities"), "");
    assert_eq!(capabilities.status, 200);
    assert_eq!(house.counted(), before);
    let leases = house
        .server
        .operator("GET", &house.path("environment-leases"), "");
    assert_eq!(leases.json()["items"], json!([]));
}

#[test]
fn those_with_more_of_the_preferred_come_first_and_those_in_use_last() {
    let Some(leased) = Leased::new() else { return };
    let house = House {
        company: leased.company.clone(),
        server: leased.server,
    };
    assert!(install(&house.server, "null"));
    house.environment("a null", &json!({}));
    let wanted = json!({"preferred": ["files", "execution"]});
    let taken = house.select(&wanted);
    assert_eq!(names(&taken, "candidates"), ["a null", "box"]);
    assert_eq!(taken["candidates"][1]["inUse"], true, "{taken}");
    let release = format!("/api/environment-leases/{}/release", leased.lease);
    let released = house.server.operator("POST", &release, "");
    assert_eq!(released.json()["status"], "released", "{}", released.body);
    let free = house.select(&wanted);
    assert_eq!(names(&free, "candidates"), ["box", "a null"]);
    assert_eq!(
        free["candidates"][0]["preferred"],
        json!(["execution", "files"])
    );
    assert_eq!(free["candidates"][0]["inUse"], false);
    assert_eq!(free["candidates"][1]["lacks"][0]["by"], "exports", "{free}");
    let limited = house
        .post(&house.path("environments/select?limit=1"), &wanted)
        .json();
    assert_eq!(names(&limited, "candidates"), ["box"]);
    assert_eq!(limited["candidateCount"], 2);
    // Without the part that all of it needs, nothing of it is left.
    let ssh = house.server.operator("GET", "/api/plugins/ssh", "").json();
    let digest = ssh["digest"].as_str().unwrap();
    let mut command = house.server.home.leasehold();
    command.args([
        "plugin",
        "grant",
        "ssh",
        "--revision",
        digest,
        "--yes",
        "--without",
        "ssh",
    ]);
    let granted = command.output().unwrap();
    assert!(granted.status.success(), "{granted:?}");
    assert_eq!(
        lack(&house.select(&wanted), "box"),
        [pair("lifecycle", "grant")]
    );
}

#[test]
fn an_agent_learns_ids_and_booleans_and_no_word_of_a_target() {
    let Some(leased) = Leased::new() else { return };
    let server = &leased.server;
    let ask = |role: &str, method: &str, path: &str, body: &str| {
        let (_, token) = server.token_of(role, Some(&leased.company));
        let authorization = format!("Bearer {token}");
        let mut headers = vec![("authorization", authorization.as_str())];
        if !body.is_empty() {
            headers.push(("content-type", "application/json"));
        }
        let path = format!("/api/companies/{}/environments/{path}", leased.company);
        server.tcp(method, &path, &headers, body)
    };
    // Whatever could be of a target stands in the environment's name, too.
    let canary = "canary.internal.example.org";
    let rename = json!({"name": canary, "description": canary}).to_string();
    let path = format!("/api/environments/{}", leased.environment);
    assert_eq!(server.operator("PATCH", &path, &rename).status, 200);
    let account = leased.sshd.worker().name.clone();
    let port = leased.sshd.port().to_string();
    let (capabilities, chosen) = (
        ask("agent", "GET", "capabilities", ""),
        ask(
            "agent",
            "POST",
            "select",
            r#"{"required":["execution"],"preferred":["reuse"]}"#,
        ),
    );
    let refused = ask(
        "agent",
        "POST",
        "select",
        r#"{"required":["ports"],"driver":"sandbox"}"#,
    );
    for answer in [&capabilities, &chosen, &refused] {
        assert_eq!(answer.status, 200, "{}", answer.body);
        for word in [
            canary,
            "127.0.0.1",
            &account,
            &port,
            "leases",
            "schema",
            "digest",
        ] {
            assert!(!answer.body.contains(word), "{word} in {}", answer.body);
        }
        assert!(answer.body.contains(&leased.environment), "{}", answer.body);
    }
    let candidate = &chosen.json()["candidates"][0];
    for hidden in ["name", "driver", "provider"] {
        assert_eq!(candidate[hidden], Value::Null, "{candidate}");
    }
    let capabilities = capabilities.json();
    assert_eq!(
        (&capabilities["providers"], &capabilities["withheld"]),
        (&json!([]), &json!([]))
    );
    let told = &capabilities["environments"][0];
    assert_eq!(
        (&told["name"], &told["missing"]),
        (&Value::Null, &Value::Null)
    );
    let can = &told["capabilities"];
    assert_eq!(
        (&can["execution"], &can["images"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(
        refused.json()["excluded"][0]["lacks"][0]["reason"],
        Value::Null
    );
    // A board member reads why.
    let member = ask("member", "GET", "capabilities", "").json();
    assert_eq!(member["environments"][0]["name"], canary);
    let missing = member["environments"][0]["missing"].as_array().unwrap();
    assert!(
        missing.iter().any(|one| one["by"] == "exports"),
        "{missing:?}"
    );
    // What nobody may be assigned, an agent does not hear of.
    let archive = server.operator("PATCH", &path, r#"{"status":"archived"}"#);
    assert_eq!(archive.status, 200, "{}", archive.body);
    let archived = ask("agent", "GET", "capabilities", "").json();
    assert_eq!(archived["environments"], json!([]));
}

#[test]
fn a_lease_by_requirement_is_of_the_best_that_can_be_leased_and_tells_what_came_before() {
    let Some(house) = House::new() else { return };
    let (first, second) = (
        house.environment("a", &json!({})),
        house.environment("b", &json!({})),
    );
    let path = house.path("environment-leases");
    let body = json!({"requirement": {"required": ["lifecycle"]}, "idempotencyKey": "k", "ttlSeconds": 600});
    let made = house.post(&path, &body);
    assert_eq!(made.status, 201, "{}", made.body);
    let made = made.json();
    assert_eq!(
        (&made["environmentId"], &made["chosenBy"]),
        (&json!(first), &json!("requirement"))
    );
    assert_eq!(
        (&made["lease"]["status"], &made["tried"]),
        (&json!("active"), &json!([]))
    );
    // The same request is the same lease, though another would be chosen now.
    let archive = house.server.operator(
        "PATCH",
        &format!("/api/environments/{first}"),
        r#"{"status":"archived"}"#,
    );
    assert_eq!(archive.status, 200, "{}", archive.body);
    let again = house.post(&path, &body).json();
    assert_eq!(
        (&again["lease"]["id"], &again["chosenBy"]),
        (&made["lease"]["id"], &json!("repeated"))
    );
    let mut otherwise = body.clone();
    otherwise["requirement"]["preferred"] = json!(["files"]);
    let otherwise = house.post(&path, &otherwise);
    assert_eq!(
        (otherwise.status, &*otherwise.code()),
        (422, "idempotency_mismatch")
    );
    let other = house.post(&path, &json!({"requirement": {}})).json();
    assert_eq!(other["environmentId"], json!(second));
    let none = house.post(&path, &json!({"requirement": {"required": ["files"]}}));
    assert_eq!(
        (none.status, &*none.code()),
        (409, "no_candidate"),
        "{}",
        none.body
    );
    let details = none.json()["details"].clone();
    assert_eq!(
        details["excluded"].as_array().unwrap().len(),
        3,
        "{details}"
    );
    assert_eq!(lack(&details, "b"), [pair("files", "exports")]);
    let unknown = house.post(&path, &json!({"requirement": {"required": ["teleport"]}}));
    assert_eq!(
        unknown.json()["details"]["violations"][0]["pointer"],
        "/requirement/required/0"
    );
}

#[test]
fn where_the_best_was_taken_the_next_is_leased_and_where_all_were_each_is_explained() {
    let Some(leased) = Leased::new() else { return };
    let house = House {
        company: leased.company.clone(),
        server: leased.server,
    };
    // The account is taken by a lease of another environment of the same target: no row tells it beforehand.
    let row = house
        .server
        .operator(
            "GET",
            &format!("/api/environments/{}", leased.environment),
            "",
        )
        .json();
    let twin = json!({
        "name": "a twin", "driver": "ssh", "provider": "ssh", "config": row["config"],
    });
    let twin = house.post(&house.path("environments"), &twin);
    assert_eq!(twin.status, 201, "{}", twin.body);
    let twin = twin.json()["id"].clone();
    let path = house.path("environment-leases");
    let body = json!({"requirement": {"required": ["execution"]}});
    let none = house.post(&path, &body);
    assert_eq!(
        (none.status, &*none.code()),
        (409, "no_candidate"),
        "{}",
        none.body
    );
    let tried = none.json()["details"]["tried"].clone();
    let codes: Vec<(&str, &str)> = (tried.as_array().unwrap().iter())
        .map(|one| (one["name"].as_str().unwrap(), one["code"].as_str().unwrap()))
        .collect();
    assert_eq!(
        codes,
        [("a twin", "target_in_use"), ("box", "target_in_use")]
    );
    assert!(install(&house.server, "null"));
    house.environment("z null", &json!({}));
    let next = house.post(&path, &json!({"requirement": {"preferred": ["execution"]}}));
    assert_eq!(next.status, 201, "{}", next.body);
    let next = next.json();
    assert_eq!(next["lease"]["environmentName"], "z null", "{next}");
    assert_eq!(
        (
            &next["tried"][0]["environmentId"],
            &next["tried"][0]["code"]
        ),
        (&twin, &json!("target_in_use"))
    );
    // An agent hears the code and no word more.
    let (_, token) = house.server.token_of("agent", Some(&house.company));
    let authorization = format!("Bearer {token}");
    let headers = [
        ("authorization", authorization.as_str()),
        ("content-type", "application/json"),
    ];
    let heard = house.server.tcp("POST", &path, &headers, &body.to_string());
    assert_eq!(heard.status, 409, "{}", heard.body);
    for word in ["a twin", "z null", "shared account"] {
        assert!(!heard.body.contains(word), "{word} in {}", heard.body);
    }
}

#[test]
fn what_is_assigned_is_leased_and_nothing_in_its_place() {
    let Some(house) = House::new() else { return };
    let (near, far) = (
        house.environment("near", &json!({})),
        house.environment("far", &json!({})),
    );
    for (kind, body) in [
        ("agents", json!({"id": "a", "environmentId": near})),
        ("projects", json!({"id": "p"})),
        ("issues", json!({"id": "i", "projectId": "p"})),
        ("runs", json!({"id": "r", "agentId": "a", "issueId": "i"})),
    ] {
        let made = house.post(&house.path(kind), &body);
        assert_eq!(made.status, 201, "{}", made.body);
    }
    let body = json!({"name": "agent", "role": "agent", "companyId": house.company, "runId": "r"});
    let token = house.post("/api/tokens", &body).json()["secret"].clone();
    let authorization = format!("Bearer {}", token.as_str().unwrap());
    let asks = |method: &str, path: &str, body: &str| {
        let mut headers = vec![("authorization", authorization.as_str())];
        if !body.is_empty() {
            headers.push(("content-type", "application/json"));
        }
        house.server.tcp(method, path, &headers, body)
    };
    let question = house.path("environments/assignment");
    // The agent's token stands for its run, and hears ids and booleans.
    let own = asks("GET", &question, "");
    assert_eq!(own.status, 200, "{}", own.body);
    let says = own.json();
    assert_eq!(
        (&says["decidedBy"], &says["environmentId"]),
        (&json!("agent"), &json!(near))
    );
    assert_eq!(says["allowed"], true);
    assert!(!own.body.contains("\"near\""), "{}", own.body);
    assert_eq!(
        asks("GET", &format!("{question}?run=other"), "").status,
        404
    );
    let leases = house.path("environment-leases");
    let made = asks("POST", &leases, "{}");
    assert_eq!(made.status, 201, "{}", made.body);
    let made = made.json();
    assert_eq!(
        (&made["environmentId"], &made["level"]),
        (&json!(near), &json!("agent"))
    );
    assert_eq!(made["lease"]["runId"], "r");
    // A project outranks an agent, and goes on deciding where its environment cannot be leased.
    let assign = json!({"environmentId": far}).to_string();
    let assigned = house.server.operator("PATCH", "/api/projects/p", &assign);
    assert_eq!(assigned.status, 200, "{}", assigned.body);
    let archive = format!("/api/environments/{far}");
    let archived = house
        .server
        .operator("PATCH", &archive, r#"{"status":"archived"}"#);
    assert_eq!(archived.status, 200, "{}", archived.body);
    let told = house
        .server
        .operator("GET", &format!("{question}?run=r"), "")
        .json();
    assert_eq!(
        (&told["decidedBy"], &told["allowed"]),
        (&json!("project"), &json!(false))
    );
    let levels = told["levels"].as_array().unwrap();
    let project = levels
        .iter()
        .find(|level| level["level"] == "project")
        .unwrap();
    assert_eq!(project["lacks"][0]["by"], "configuration", "{told}");
    let agent = levels
        .iter()
        .find(|level| level["level"] == "agent")
        .unwrap();
    assert_eq!(
        (&agent["environmentId"], &agent["allowed"]),
        (&json!(near), &json!(true))
    );
    let refused = asks("POST", &leases, "{}");
    assert_eq!(
        (refused.status, &*refused.code()),
        (409, "no_candidate"),
        "{}",
        refused.body
    );
    let nothing = house.post(&leases, &json!({}));
    assert_eq!(
        (nothing.status, &*nothing.code()),
        (409, "no_candidate"),
        "{}",
        nothing.body
    );
    let cleared = house
        .server
        .operator("PATCH", "/api/projects/p", r#"{"environmentId":null}"#);
    assert_eq!(cleared.json()["environmentId"], Value::Null);
    let again = house
        .server
        .operator("GET", &format!("{question}?run=r"), "")
        .json();
    assert_eq!(again["decidedBy"], "agent");
}

#[test]
fn the_command_selects_leases_and_assigns_as_the_documentation_says() {
    let Some(house) = House::new() else { return };
    let labels = json!({"metadata": {"labels": {"zone": "west"}}});
    let west = house.environment("west room", &labels);
    house.environment("east room", &json!({}));
    let run = |args: &[&str]| {
        let out = house.server.home.leasehold().args(args).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            out.status.code().unwrap(),
            text(&out.stdout),
            text(&out.stderr),
        )
    };
    let (code, told, _) = run(&[
        "select",
        "--require",
        "lifecycle",
        "--prefer",
        "tty,files",
        "--label",
        "zone=west",
    ]);
    assert_eq!(code, 0);
    assert!(told.contains(&west), "{told}");
    assert!(
        told.contains("east room is none: label: it has no label \"zone\" (labels)"),
        "{told}"
    );
    let (code, _, wrong) = run(&["select", "--label", "zone"]);
    assert!(
        code == 2 && wrong.contains("is not NAME=VALUE"),
        "{code} {wrong}"
    );
    let (code, told, _) = run(&[
        "--json",
        "lease",
        "acquire",
        "--label",
        "zone=west",
        "--ttl",
        "10m",
    ]);
    let leased: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(
        (code, &leased["environmentId"]),
        (0, &json!(west)),
        "{told}"
    );
    for by in [&[][..], &["--company", "acme"]] {
        let args = [&["lease", "acquire", "--require", "lifecycle"], by].concat();
        let (code, told, wrong) = run(&args);
        assert!(code == 0 && told.contains("lease_"), "{told}{wrong}");
    }
    for args in [
        &["project", "create", "--id", "website"][..],
        &["issue", "create", "--id", "issue-7", "--project", "website"],
        &["agent", "create", "--id", "coder", "--name", "Coder"],
        &[
            "run", "create", "--id", "run-17", "--agent", "coder", "--issue", "issue-7",
        ],
        &["agent", "set", "coder", "--environment", "west room"],
        &["project", "set", "website", "--environment", "east room"],
    ] {
        let (code, _, wrong) = run(args);
        assert_eq!(code, 0, "{args:?}: {wrong}");
    }
    let (_, told, _) = run(&["assignment", "--run", "run-17"]);
    assert!(
        told.contains("project website: east room (decides)"),
        "{told}"
    );
    assert!(told.contains("agent coder: west room\n"), "{told}");
    let (code, told, _) = run(&[
        "--json",
        "lease",
        "acquire",
        "--assigned",
        "--run",
        "run-17",
        "--company",
        "acme",
    ]);
    let leased: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((code, &leased["level"]), (0, &json!("project")), "{told}");
    let (code, told, _) = run(&["project", "set", "website", "--no-environment"]);
    assert!(code == 0 && !told.contains("env_"), "{told}");
    let (_, told, _) = run(&["agent", "list"]);
    assert!(told.contains("coder") && told.contains(&west), "{told}");
    for args in [
        &["lease", "acquire"][..],
        &["lease", "acquire", "west room", "--require", "files"],
    ] {
        let (code, _, wrong) = run(args);
        assert!(code == 2 && wrong.contains("--assigned"), "{code} {wrong}");
    }
}
