//! All that a server's API answers, remembered, and every path of it that can be read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use serde_json::{Value, json};

use crate::http::{Answer, text};
use crate::server::Server;

/// The name under which work is asked for.
const WATCHED: &str = "watched";

/// A server at its most talkative, and all that its API answered.
#[derive(Debug)]
pub struct Heard {
    /// The server.
    pub server: Server,
    /// The name of an environment, for what is asked by name.
    name: &'static str,
    answers: Mutex<String>,
    /// Paths of the description that answered 200 at least once.
    answered: Mutex<BTreeSet<String>>,
}

impl Heard {
    /// Nothing was answered yet; `name` is what an environment will be called.
    pub fn new(server: Server, name: &'static str) -> Heard {
        Heard {
            server,
            name,
            answers: Mutex::default(),
            answered: Mutex::default(),
        }
    }

    /// All that was answered so far.
    ///
    /// # Panics
    /// When another test's thread panicked.
    pub fn answers(&self) -> String {
        self.answers.lock().expect("answers").clone()
    }

    /// Takes a text for an answer too, such as what a client printed.
    ///
    /// # Panics
    /// When another test's thread panicked.
    pub fn note(&self, text: &str) {
        self.answers.lock().expect("answers").push_str(text);
    }

    /// What a request is answered, whatever that is.
    #[track_caller]
    pub fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        self.keep(self.server.call(method, path, body)).1
    }

    /// Remembers an answer, and reads it.
    ///
    /// # Panics
    /// When another test's thread panicked.
    pub fn keep(&self, answer: Answer) -> (u16, Value) {
        let mut answers = self.answers.lock().expect("answers");
        answers.push_str(&answer.head);
        answers.push_str(&answer.body);
        (answer.status, answer.json())
    }

    /// Posts to `path` and reads what is told of the work while it goes on.
    ///
    /// # Panics
    /// When the work does.
    pub fn watch(&self, path: &str) -> Value {
        std::thread::scope(|scope| {
            let path = format!("{path}?progressId={WATCHED}");
            let work = scope.spawn(move || self.call("POST", &path, None));
            while !work.is_finished() {
                let told = format!("/api/progress/{WATCHED}");
                if self.keep(self.server.call("GET", &told, None)).0 == 200 {
                    let mut answered = self.answered.lock().expect("paths");
                    answered.insert("/api/progress/{progressId}".to_owned());
                }
            }
            work.join().expect("an answer")
        })
    }

    /// Every path that can be read, for everything that there is.
    ///
    /// # Panics
    /// When the description has a path that nobody here knows how to fill.
    pub fn read_all(&self) {
        let document = self.call("GET", "/api/openapi.json", None);
        let known = self.known();
        for (path, item) in document["paths"].as_object().expect("paths") {
            let Some(get) = item.get("get") else { continue };
            if !get["responses"]["200"]["content"]["text/event-stream"].is_null() {
                // It has no end, and no row that the list beside it has not.
                continue;
            }
            let queries = get["parameters"].as_array().into_iter().flatten();
            let needed: Vec<String> = queries
                .filter(|one| one["in"] == "query" && one["required"] == true)
                .map(|one| text(&one["name"]))
                .collect();
            let query = match needed.as_slice() {
                [] => String::new(),
                [one] if one == "path" => "?path=.".to_owned(),
                [one] if one == "name" => format!("?name={}", self.name),
                other => panic!("nobody here knows the query {other:?} of {path}"),
            };
            for filled in filled(path, &known) {
                let answer = self.server.call("GET", &format!("{filled}{query}"), None);
                if self.keep(answer).0 == 200 {
                    let mut answered = self.answered.lock().expect("paths");
                    answered.insert(path.clone());
                }
            }
        }
        self.call("GET", "/api/activity?limit=1000", None);
    }

    /// What there is, by the names that the description's paths have for it.
    fn known(&self) -> BTreeMap<&'static str, Vec<String>> {
        let company = self.server.company();
        let ids = |list: &Value, key: &str| -> Vec<String> {
            let items = list.as_array().into_iter().flatten();
            items.map(|item| text(&item[key])).collect()
        };
        let of_company = |what: &str| self.server.get(&format!("/api/companies/{company}/{what}"));
        let leases = ids(&Value::from(self.server.leases()), "id");
        let executions = leases
            .iter()
            .flat_map(|lease| ids(&Value::from(self.server.executions(lease)), "id"))
            .collect();
        let assigned = |rows: &str| -> Vec<String> {
            let path = format!("/api/companies/{company}/{rows}");
            let made = self
                .server
                .call("POST", &path, Some(&json!({ "id": "one" })));
            assert!(matches!(made.status, 201 | 409), "{}", made.body);
            ids(&self.server.get(&path)["items"], "id")
        };
        BTreeMap::from([
            ("agentId", assigned("agents")),
            ("projectId", assigned("projects")),
            ("workspaceId", assigned("workspaces")),
            ("issueId", assigned("issues")),
            ("runId", assigned("runs")),
            ("companyId", vec![company.clone()]),
            ("environmentId", ids(&of_company("environments"), "id")),
            ("secretId", ids(&of_company("secrets"), "id")),
            ("key", ids(&self.server.get("/api/plugins"), "key")),
            ("leaseId", leases),
            ("executionId", executions),
            ("progressId", vec![WATCHED.to_owned()]),
        ])
    }

    /// Checks that `read_all` has read something of every path that there is.
    ///
    /// # Panics
    /// When a path never answered.
    pub fn everything_was_read(&self) {
        let document = self.server.get("/api/openapi.json");
        let answered = self.answered.lock().expect("paths");
        for (path, item) in document["paths"].as_object().expect("paths") {
            // Not an answer but a WebSocket, which `use_everything` opens by the command line; or events without an end.
            let stream = path.ends_with("/stream");
            if item.get("get").is_some() && !stream {
                assert!(answered.contains(path), "{path} never answered");
            }
        }
        assert!(answered.len() > 20, "{answered:?}");
    }
}

/// A path of the description with everything that there is in its place.
fn filled(path: &str, known: &BTreeMap<&'static str, Vec<String>>) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else {
        return vec![path.to_owned()];
    };
    let (name, after) = rest.split_once('}').expect("a closed brace");
    let values = known
        .get(name)
        .unwrap_or_else(|| panic!("nobody here knows what {name} of {path} is"));
    let ways = values
        .iter()
        .flat_map(|value| filled(&format!("{before}{value}{after}"), known));
    ways.collect()
}
