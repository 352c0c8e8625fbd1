//! A provider that crashes again and again takes no new leases, and others do not notice.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use leasehold_tests::http::{Answer, text};
use leasehold_tests::server::Server;
use leasehold_tests::wait::until;
use serde_json::json;

use crate::{actions, capabilities, environment, narrowed, with_settings, withheld};

/// Acquires until the provider is left alone, and answers that refusal.
pub fn trip(server: &Server, environment: &str) -> Answer {
    until("the breaker", || {
        let answer = server.acquire(environment);
        if answer.code() == "plugin_tripped" {
            return Some(answer);
        }
        assert_eq!(answer.code(), "component_trapped", "{}", answer.body);
        None
    })
}

#[test]
fn a_provider_that_crashes_again_and_again_takes_no_new_leases_until_a_trial_or_a_person_says_so() {
    let Some((server, _folder)) = with_settings(
        "[plugins]\nbreaker-failures = 3\nbreaker-backoff-seconds = 1\nbreaker-longest-backoff-seconds = 3600\n",
    ) else {
        return;
    };
    let key = "hostile-trap-everywhere";
    server.install("null").expect(201);
    server.install(key).expect(201);
    let null = environment(&server, "null", "null", &json!({}));
    let bad = environment(&server, "bad", key, &json!({ "at": "acquire" }));
    let good = environment(&server, "good", key, &json!({ "at": "keep-alive" }));
    let lease = text(&server.acquire(&good).expect(201)["id"]);

    let refused = trip(&server, &bad);
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert!(refused.head.contains("retry-after: "), "{}", refused.head);
    assert!(
        text(&refused.json()["error"]).contains("it crashed"),
        "{}",
        refused.body
    );
    assert!(
        !refused.body.contains("panics"),
        "what it said stays with whom it said it to: {}",
        refused.body
    );
    let shown = server.get(&format!("/api/plugins/{key}"));
    assert_eq!(shown["health"]["trips"], 1, "{shown}");
    // Teardown and others go on.
    assert_eq!(server.release(&lease)["status"], "released");
    let other = text(&server.acquire(&null).expect(201)["id"]);
    assert_eq!(server.release(&other)["status"], "released");

    // After its backoff one lease is let through, and decides.
    let lease = until("the trial", || {
        let answer = server.acquire(&good);
        (answer.status == 201).then(|| text(&answer.json()["id"]))
    });
    server.release(&lease);
    let health = server.get(&format!("/api/plugins/{key}"))["health"].clone();
    assert_eq!(health["state"], "working", "{health}");

    // A trial that fails doubles the backoff: now it stays away for long enough to be looked at.
    trip(&server, &bad);
    for _ in 0..6 {
        until("the next trial to fail", || {
            let answer = server.acquire(&bad);
            (answer.code() == "component_trapped").then_some(())
        });
        if server.get(&format!("/api/plugins/{key}"))["health"]["retryAfterSeconds"]
            .as_u64()
            .is_some_and(|seconds| seconds > 6)
        {
            break;
        }
    }
    let shown = server.get(&format!("/api/plugins/{key}"));
    assert_eq!(shown["status"], "tripped", "{shown}");
    assert_eq!(withheld(&server, key), "health");
    let metrics = server.call("GET", "/metrics", None);
    let line = format!("leasehold_plugin_tripped{{provider=\"{key}\"}} 1");
    assert!(metrics.body.contains(&line), "{}", metrics.body);

    let reset = server.json(&["plugin", "reset", key]);
    assert_eq!(reset["status"], "working", "{reset}");
    server.acquire(&good).expect(201);
    // What it exports and nobody here calls yet is no capability.
    assert_eq!(
        narrowed(&server, key),
        [("suspension".to_owned(), "host".to_owned())]
    );
    let used = capabilities(&server, key)["interfaces"].clone();
    assert_eq!(used, json!(["execution", "files"]));
    let told = until("the activity", || {
        let told = actions(&server, key);
        let all = ["plugin.tripped", "plugin.recovered", "plugin.reset"];
        all.iter()
            .all(|action| told.iter().any(|one| one == action))
            .then_some(told)
    });
    assert!(!told.is_empty());
}

/// A counter or a gauge of a provider, as the metrics have it.
fn counted(server: &Server, name: &str, labels: &str) -> u64 {
    let metrics = server.call("GET", "/metrics", None).body;
    let line = format!("leasehold_{name}{{{labels}}} ");
    let found = metrics.lines().find_map(|one| one.strip_prefix(&line));
    found.map_or(0, |value| value.parse().expect("a whole number"))
}

#[test]
fn every_call_of_another_provider_is_answered_while_one_hangs_and_traps_more_often_than_calls_may_run()
 {
    /// More than may run at once in the whole server, so that each that trapped has given back what it had.
    const TRAPS: u64 = 300;
    const OTHERS: usize = 60;
    let Some(server) = Server::start() else {
        return;
    };
    let (crashes, hangs) = ("hostile-trap-everywhere", "hostile-endless-wait");
    for name in ["null", crashes, hangs] {
        server.install(name).expect(201);
    }
    let null = environment(&server, "null", "null", &json!({}));
    let bad = environment(&server, "bad", crashes, &json!({ "at": "inspect" }));
    let slow = environment(&server, "slow", hangs, &json!({ "at": "inspect" }));
    let of = |environment: &str| text(&server.acquire(environment).expect(201)["id"]);
    let path = |lease: &str| format!("/api/environment-leases/{lease}/observation");
    let (bad_lease, slow_lease) = (of(&bad), of(&slow));

    // One call hangs all the while; nobody waits for its answer.
    let mut asked = std::os::unix::net::UnixStream::connect(server.socket()).expect("a server");
    let ask = format!(
        "GET {} HTTP/1.1\r\nhost: localhost\r\n\r\n",
        path(&slow_lease)
    );
    std::io::Write::write_all(&mut asked, ask.as_bytes()).expect("it listens");
    let hanging = || {
        counted(
            &server,
            "component_calls_in_flight",
            &format!("provider=\"{hangs}\""),
        )
    };
    until("the call that hangs", || (hanging() == 1).then_some(()));

    let (over, trapped) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let trap = || {
            while !over.load(Ordering::SeqCst) {
                let answer = server.call("GET", &path(&bad_lease), None);
                assert_eq!(answer.code(), "component_trapped", "{}", answer.body);
                trapped.fetch_add(1, Ordering::SeqCst);
            }
        };
        let trapping: Vec<_> = (0..4).map(|_| scope.spawn(trap)).collect();
        let _over = Over(&over);
        let mut others = 0;
        while others < OTHERS || trapped.load(Ordering::SeqCst) < TRAPS {
            assert!(
                !trapping.iter().any(|one| one.is_finished()),
                "they trap on"
            );
            let lease = of(&null);
            assert_eq!(server.get(&path(&lease))["condition"], "ready");
            assert_eq!(server.release(&lease)["status"], "released");
            others += 1;
        }
        assert_eq!(hanging(), 1, "it hung all the while");
    });

    let outcome = |key: &str, outcome: &str| {
        let labels = format!("provider=\"{key}\",outcome=\"{outcome}\"");
        counted(&server, "component_calls_total", &labels)
    };
    assert_eq!(outcome(crashes, "trap"), trapped.load(Ordering::SeqCst));
    for kind in ["trap", "timeout", "limit", "busy", "host", "cancelled"] {
        assert_eq!(outcome("null", kind), 0, "{kind} of the other");
    }
    let left = counted(
        &server,
        "component_calls_in_flight",
        &format!("provider=\"{crashes}\""),
    );
    assert_eq!(left, 0, "nothing of them is left");
    // It takes no new lease, and what it has can be released.
    let refused = server.acquire(&bad);
    assert_eq!(refused.code(), "plugin_tripped", "{}", refused.body);
    assert_eq!(server.get("/api/plugins/null")["status"], "working");
    assert_eq!(server.release(&bad_lease)["status"], "released");
}

/// Says that it is over when it goes, also by a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
