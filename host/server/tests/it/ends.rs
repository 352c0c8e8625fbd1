//! Leases that end without anybody releasing them: when their time is over, and when the run that they are for is.

use serde_json::{Value, json};

use crate::leased::Leased;
use crate::live::Heard;
use crate::server::wait_for;

impl Leased {
    /// A further lease, once the first is released: the account is leased to one at a time.
    fn again(&mut self, body: &Value) {
        let released = self.server.operator("POST", &self.path("/release"), "");
        assert_eq!(released.json()["status"], "released", "{}", released.body);
        let leases = format!("/api/environments/{}/leases", self.environment);
        let made = self.server.operator("POST", &leases, &body.to_string());
        assert_eq!(made.status, 201, "{}", made.body);
        self.lease = made.json()["id"].as_str().unwrap().to_owned();
    }

    /// Waits until the lease is released, and looks that nothing of it is left on the machine.
    fn is_gone(&self) -> Value {
        let released = || {
            let now = self.server.operator("GET", &self.path(""), "").json();
            (now["status"] == "released").then_some(now)
        };
        let lease = wait_for("the lease is released", released);
        let account = self.sshd.worker().name.clone();
        let place = self.sshd.directory(&account, "leases").unwrap();
        let left: Vec<_> = std::fs::read_dir(place).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
        lease
    }

    fn activity(&self, of: &str) -> Vec<Value> {
        let path = format!("/api/activity?subject={of}");
        let page = self.server.operator("GET", &path, "").json();
        page["items"].as_array().unwrap().clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_whose_time_is_over_is_released_by_the_server_with_the_command_that_runs_on_it() {
    let Some(mut leased) = Leased::new() else {
        return;
    };
    leased.again(&json!({ "ttlSeconds": 3 }));
    let (mut socket, execution) = leased
        .start(json!({"type": "start", "argv": ["sleep", "600"]}))
        .await;
    leased.is_gone();
    while crate::live::next(&mut socket).await != Heard::Closed(1000) {}
    let ended = leased.execution(&execution);
    assert_ne!(ended["status"], "running", "{ended}");
    let rows = leased.activity(&leased.lease);
    let by_expiry = rows.iter().find(|row| row["actor"] == "expiry").unwrap();
    assert_eq!(by_expiry["actorKind"], "system", "{by_expiry}");
    let late = leased
        .server
        .operator("POST", &leased.path("/executions"), r#"{"argv":["true"]}"#);
    assert_eq!(late.status, 409, "{}", late.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_ends_ends_its_commands_and_leases_over_a_kill_and_starts_none_any_more() {
    let Some(mut leased) = Leased::new() else {
        return;
    };
    let runs = format!("/api/companies/{}/runs", leased.company);
    let made = leased.server.operator("POST", &runs, r#"{"id":"run-17"}"#);
    assert_eq!(made.json()["endedAt"], Value::Null, "{}", made.body);
    leased.again(&json!({ "runId": "run-17" }));
    let (socket, _) = leased
        .start(json!({"type": "start", "argv": ["sleep", "600"]}))
        .await;
    // By the run's own agent, through the command.
    let agent = json!({
        "name": "agent", "role": "agent", "companyId": leased.company, "runId": "run-17",
    });
    let agent = leased
        .server
        .operator("POST", "/api/tokens", &agent.to_string());
    let token = leased.server.home.path().join("agent");
    std::fs::write(&token, agent.json()["secret"].as_str().unwrap()).unwrap();
    let out = leased
        .server
        .home
        .leasehold()
        .args([
            "--token-file",
            token.to_str().unwrap(),
            "run",
            "end",
            "run-17",
        ])
        .output()
        .unwrap();
    assert!(out.status.success(), "{out:?}");
    let told: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(told["leaseIds"], json!([leased.lease]), "{told}");
    assert!(told["run"]["endedAt"].is_string(), "{told}");
    // What was answered is durable: nobody has to be there for the rest.
    leased.server.end_by("KILL");
    drop(socket);
    leased.server.again();
    leased.is_gone();
    let leases = format!("/api/environments/{}/leases", leased.environment);
    let late = leased
        .server
        .operator("POST", &leases, r#"{"runId":"run-17"}"#);
    assert_eq!((late.status, &*late.code()), (409, "run_ended"));
    let row = leased.activity("run-17");
    assert_eq!(
        (&row[0]["action"], &row[0]["details"]["count"]),
        (&json!("run.ended"), &json!(1))
    );
}
