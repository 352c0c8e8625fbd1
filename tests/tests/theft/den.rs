//! A hostile provider at home: a server at its most talkative, a room server that gives back what it got, another where
//! nobody has any business, and the looks at everything that the theft could have left.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold_parts::{Heard as Sent, Rooms};
use leasehold_tests::canary::{Canaries, contains, files_below, hunted, processes};
use leasehold_tests::heard::Heard;
use leasehold_tests::http::text;
use leasehold_tests::server::Server;
use leasehold_tests::wait::{Go, until};
use serde_json::{Value, json};

/// No secret: what every search must find.
pub const CONTROL: &str = "open-Word-4711";

/// Who wants the key, and from where it must not get it.
pub struct Den {
    pub heard: Heard,
    pub rooms: Rooms,
    /// A room server whose token is the same: whoever takes it there would be let in.
    pub elsewhere: Rooms,
    pub sample: String,
    pub key: String,
    pub payload: String,
    /// A reference to the key, as a secret of the company.
    pub token: Value,
    pub canaries: Canaries,
}

/// What came of one try of a component, as it told the log.
#[derive(Clone, Debug)]
pub struct Try {
    pub name: String,
    pub export: String,
    pub came: String,
}

/// Bytes that no other test has.
pub fn unique(name: &str) -> String {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let made = MADE.fetch_add(1, Ordering::SeqCst);
    // Of characters that a header's name may have, and that some encodings write otherwise.
    format!("canary-{name}-{:x}&7c+0d-{made}", std::process::id())
}

impl Den {
    /// A home of the sample `hostile-…`; none where nothing was built.
    pub fn of(sample: &str) -> Option<Den> {
        let server = Server::start_with(&["--log-level", "trace"])?;
        let (key, payload) = (unique("Key"), unique("Payload"));
        let rooms = Rooms::start(&key).expect("a room server");
        let elsewhere = Rooms::start(&key).expect("a room server");
        let sample = format!("hostile-{sample}");
        server.install(&sample).expect(201);
        let token = server.secret("token", &key);
        let canaries = Canaries::new(vec![
            ("key", key.clone().into()),
            ("payload", payload.clone().into()),
        ]);
        Some(Den {
            heard: Heard::new(server, "theft"),
            rooms,
            elsewhere,
            sample,
            key,
            payload,
            token,
            canaries,
        })
    }

    pub fn server(&self) -> &Server {
        &self.heard.server
    }

    /// The environment as an administrator writes it, with more in its configuration.
    pub fn draft(&self, more: Value) -> Value {
        let mut hunt = self.canaries.told();
        hunt["control"] =
            Canaries::new(vec![("control", CONTROL.into())]).told()["control"].clone();
        let mut config = json!({
            "endpoint": self.rooms.url(), "token": self.token, "hunt": hunt, "word": CONTROL,
        });
        if let (Value::Object(config), Value::Object(more)) = (&mut config, more) {
            config.extend(more);
        }
        json!({
            "name": "theft", "description": CONTROL, "driver": "sandbox", "provider": self.sample,
            "config": config,
            "envVars": { "PAYLOAD": { "type": "secret_value", "value": self.payload } },
        })
    }

    /// An environment of the sample. Answers its id.
    pub fn environment(&self, more: Value) -> String {
        let made = self.server().environment(&self.draft(more));
        text(&self.heard.keep(made).1["id"])
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.heard
            .keep(self.server().call("POST", path, Some(body)))
    }

    /// A lease's whole life, with every call that the server makes of a provider on the way. Answers what the component
    /// said it came to.
    pub fn live(&self, environment: &str) -> Vec<Try> {
        let acquired = self.post(
            &format!("/api/environments/{environment}/leases"),
            &json!({}),
        );
        assert_eq!(acquired.0, 201, "{}", acquired.1);
        let lease = text(&acquired.1["id"]);
        let of_lease = |what: &str| format!("/api/environment-leases/{lease}/{what}");
        let seen = self.heard.call("GET", &of_lease("observation"), None);
        assert_eq!(seen["condition"], "ready", "{seen}");
        self.post(&of_lease("renew"), &json!({ "ttlSeconds": 3600 }));
        let command = json!({ "argv": ["sh", "-c", "env"] });
        self.post(&of_lease("executions"), &command);
        self.heard.read_all();
        let released = self.post(&of_lease("release"), &json!({})).1;
        assert_eq!(released["status"], "released", "{released}");
        self.heard.read_all();
        self.tries()
    }

    /// What the component has told so far.
    pub fn tries(&self) -> Vec<Try> {
        tries(self.server())
    }

    /// The key is nowhere: not in memory in any export, not in what the server keeps, says or was started with, and on the wire
    /// in its own header toward its own endpoint alone.
    pub fn nothing_leaked(&self) {
        self.nothing_leaked_but(&[], &["authorization"]);
    }

    /// As [`Den::nothing_leaked`], where answers have these canaries by design (a command's own output), and the wire has
    /// secrets in these headers.
    pub fn nothing_leaked_but(&self, answered: &[&str], headers: &[&str]) {
        memory_is_clean(self.server(), &["acquire", "inspect", "release"]);
        nothing_is_kept(self.server(), &self.canaries);

        let answers = self.heard.answers();
        assert!(answers.contains(CONTROL), "answers are read");
        let found = self.canaries.without(answered).in_bytes(answers.as_bytes());
        assert_eq!(found, Vec::<&str>::new(), "in an answer");

        processes_are_clean(self.server(), &self.canaries);

        assert_eq!(self.elsewhere.connections().0, 0, "nobody went elsewhere");
        let heard = self.rooms.heard();
        assert!(!heard.is_empty(), "the wire is read");
        for one in &heard {
            self.is_where_it_belongs(one, headers);
        }
    }

    /// On the wire: a secret in its header alone, a payload in bodies alone, a placeholder nowhere.
    fn is_where_it_belongs(&self, sent: &Sent, headers: &[&str]) {
        for (name, value) in &sent.headers {
            if name == "authorization" && headers.contains(&"authorization") {
                let own = format!("Bearer {}", self.key);
                assert!(*value == own || value.is_empty(), "{sent:?}");
            } else if !headers.contains(&name.as_str()) {
                assert_eq!(
                    self.canaries.in_bytes(value.as_bytes()),
                    Vec::<&str>::new(),
                    "{sent:?}"
                );
            }
            assert!(!value.contains("lhp-"), "{sent:?}");
        }
        assert_eq!(
            self.canaries.in_bytes(sent.path.as_bytes()),
            Vec::<&str>::new(),
            "{sent:?}"
        );
        let body = self.canaries.without(&["payload"]).in_bytes(&sent.body);
        assert_eq!(body, Vec::<&str>::new(), "{sent:?}");
        let placeholder = contains(&sent.body, b"lhp-") || sent.path.contains("lhp-");
        assert!(!placeholder, "no placeholder leaves: {sent:?}");
    }

    /// As [`refused`].
    pub fn refused(&self, tries: &[Try], but: &[&str]) {
        refused(tries, but);
    }

    /// A lease with a command that runs while no process has the key, and none but the command the payload. Answers the
    /// lease's id, and what the command printed.
    pub fn look_while_it_runs(&self, environment: &str) -> (String, String) {
        let path = format!("/api/environments/{environment}/leases");
        let lease = text(&self.post(&path, &json!({})).1["id"]);
        let signs = tempfile::tempdir().expect("a folder");
        let ran = while_a_command_runs(&self.heard, &lease, signs.path(), || {
            let shown = processes_are_clean(self.server(), &self.canaries);
            assert!(shown > 0, "the command's own environment is seen");
            nothing_is_kept(self.server(), &self.canaries);
        });
        (lease, ran)
    }
}

/// Runs a command that prints its variables and then waits until all was looked at. Answers what it printed.
pub fn while_a_command_runs(
    heard: &Heard,
    lease: &str,
    signs: &Path,
    look: impl FnOnce(),
) -> String {
    let (ready, go) = (signs.join("ready"), signs.join("go"));
    let script = format!(
        "env; touch {}; while [ ! -e {} ]; do sleep 0.05; done",
        ready.display(),
        go.display(),
    );
    let body = json!({ "argv": ["sh", "-c", script] });
    let path = format!("/api/environment-leases/{lease}/executions");
    let ran = std::thread::scope(|scope| {
        let ran = scope.spawn(|| heard.call("POST", &path, Some(&body)));
        let ahead = Go(&go);
        until("the command", || ready.exists().then_some(()));
        look();
        drop(ahead);
        ran.join().expect("an answer")
    });
    assert_eq!(ran["execution"]["exitCode"], 0, "{ran}");
    text(&ran["stdout"])
}

/// What the component has told so far.
pub fn tries(server: &Server) -> Vec<Try> {
    let log = server.log();
    let lines = log.lines().filter_map(|line| {
        let line: Value = serde_json::from_str(line).ok()?;
        let told = text(&line["message"]);
        let (name, rest) = told.strip_prefix("tried [")?.split_once("] [")?;
        let (export, came) = rest.split_once("] ")?;
        Some(Try {
            name: name.to_owned(),
            export: export.to_owned(),
            came: came.to_owned(),
        })
    });
    lines.collect()
}

/// In these exports the component looked through all of its memory, and in each in which it did it found what every search
/// must find and nothing else.
pub fn memory_is_clean(server: &Server, exports: &[&str]) {
    let told = hunted(&server.log());
    let only = BTreeSet::from(["control".to_owned()]);
    for export in exports {
        assert!(
            told.contains_key(*export),
            "{export} was looked through: {told:?}"
        );
    }
    for (export, found) in &told {
        assert_eq!(*found, only, "in memory in {export}");
    }
}

/// What the server keeps has none of them: database, journal, log, compiled components, all that is in its folders.
pub fn nothing_is_kept(server: &Server, canaries: &Canaries) {
    let kept = files_below(server.path());
    let has = |what: &str, bytes: &str| {
        kept.iter().any(|(path, there)| {
            path.to_string_lossy().contains(what) && contains(there, bytes.as_bytes())
        })
    };
    assert!(has("leasehold.db", CONTROL), "the database is read");
    assert!(has("leasehold.db-wal", ""), "so is what is not in it yet");
    assert!(has("/compiled/", "ELF"), "so are compiled components");
    assert!(has("/log", "TRACE"), "so is the log, at its most talkative");
    canaries.absent_from(&kept);
}

/// No process has one of them in its arguments, nor in its environment, but for the payload of a command that has it as its
/// variable. Answers how many such there are.
pub fn processes_are_clean(server: &Server, canaries: &Canaries) -> usize {
    const NONE: Vec<&str> = Vec::new();
    let all = processes();
    assert!(all.iter().any(|one| one.pid == server.pid()));
    let mut shown = 0;
    for one in all {
        let said = String::from_utf8_lossy(&one.arguments).replace('\0', " ");
        assert_eq!(canaries.in_bytes(&one.arguments), NONE, "in `{said}`");
        let found = canaries.in_bytes(&one.environment);
        match one.has("PAYLOAD") && found == ["payload"] {
            true => shown += 1,
            false => assert_eq!(found, NONE, "in the environment of `{said}`"),
        }
    }
    shown
}

/// Checks that every try was refused by egress, but for these names.
pub fn refused(tries: &[Try], but: &[&str]) {
    assert!(!tries.is_empty(), "nothing was tried");
    for one in tries {
        let refused = one.came.starts_with("Code::PermissionDenied: ");
        assert_eq!(refused, !but.contains(&one.name.as_str()), "{one:?}");
    }
}

/// What came of one try, by its name, in whichever export.
pub fn came<'t>(tries: &'t [Try], name: &str) -> &'t str {
    let found = tries.iter().find(|one| one.name == name);
    &found
        .unwrap_or_else(|| panic!("{name} was not tried: {tries:?}"))
        .came
}
