//! A document that begins where the README's first hour ends, typed from its top to its bottom.
//!
//! Of each fenced block: `sh` is typed, a command in a shell of its own that knows what the ones before set; `text` is what
//! the block before it printed; `toml` is the settings file. What stands for something that differs (`tok_…`) is what was
//! printed last of that kind.

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;

use leasehold_tests::document::{commands, fenced, read, shows};
use leasehold_tests::http::text;
use leasehold_tests::server::component;
use leasehold_tests::wait::until;
use serde_json::json;

use crate::reader::{Reader, ended};

/// What a document has in the place of what was printed before.
const PRINTED: [&str; 3] = ["lease_", "tok_", "SHA256:"];
/// The shortest thing of that kind.
const SHORTEST: usize = 20;

/// Somebody at a page.
pub struct Page {
    /// Who types it.
    pub reader: Reader,
    /// Whether the server is killed between any two commands.
    kills: bool,
    /// What is somebody else's in the document, and what is in its place here.
    values: Vec<(String, String)>,
    /// Which of them the document had.
    had: BTreeSet<String>,
    /// The shell functions so far.
    functions: String,
    /// All that was printed so far.
    printed: String,
    /// What each command printed.
    said: Vec<(String, String)>,
}

impl Page {
    /// Whoever has done the README's first hour, and released what was leased in it.
    pub fn after_the_first_hour() -> Option<Page> {
        let reader = Reader::new()?;
        let environment = reader.environment();
        let lease = text(&reader.server.acquire(&environment).expect(201)["id"]);
        reader.server.release(&lease);
        let port = reader.machine.sshd.port();
        let worker = reader.machine.sshd.worker().name.clone();
        let mut page = Page {
            kills: false,
            values: Vec::new(),
            had: BTreeSet::new(),
            functions: String::new(),
            printed: String::new(),
            said: Vec::new(),
            reader,
        };
        let parent = page.reader.parent.display().to_string();
        let data = page.reader.server.data().display().to_string();
        page.stands_for("build.example.org:22", &format!("127.0.0.1:{port}"));
        page.stands_for("build.example.org", &format!("127.0.0.1 --port {port}"));
        page.stands_for("--user ci", &format!("--user {worker}"));
        page.stands_for("ci@", &format!("{worker}@"));
        page.stands_for("/srv/leases", &parent);
        page.stands_for("~/.local/share/leasehold", &data);
        Some(page)
    }

    /// The same with `kill -9` of the server and a start between any two commands.
    pub fn killing(mut self) -> Page {
        self.kills = true;
        self
    }

    /// What the document has as `this` is `that` here.
    pub fn stands_for(&mut self, this: &str, that: &str) {
        self.values.push((this.to_owned(), that.to_owned()));
    }

    /// Types all of it. `needs` are those of the values that the document must have.
    #[track_caller]
    pub fn follow(&mut self, path: &str, needs: &[&str]) {
        let document = read(path);
        let mut shown = None;
        for (language, block) in fenced(&document) {
            match language {
                "sh" => {
                    let typed = commands(block).into_iter();
                    shown = Some(
                        typed
                            .map(|command| self.types(&command))
                            .collect::<String>(),
                    );
                }
                "text" => {
                    let printed = shown
                        .take()
                        .unwrap_or_else(|| panic!("{path}: nothing printed {block}"));
                    let block = self.filled(block);
                    if let Err(both) = shows(&block, &printed) {
                        panic!("{path}: {both}");
                    }
                }
                "toml" => self.sets(block),
                other => panic!("{path}: nobody here knows what to do with `{other}`"),
            }
        }
        for needed in needs {
            assert!(self.had.contains(*needed), "{path} has no `{needed}`");
        }
    }

    /// What a command that begins so printed, the first of them.
    #[track_caller]
    pub fn said_of(&self, begin: &str) -> &str {
        let mut those = self.said.iter();
        let found = those.find(|(command, _)| command.starts_with(begin));
        found.map_or_else(|| panic!("nobody typed `{begin}`"), |(_, out)| out.as_str())
    }

    /// How many commands were typed.
    pub fn typed(&self) -> usize {
        self.said.len()
    }

    /// A text of the document with what is here in the place of what is somebody else's.
    fn filled(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        let port = (
            "127.0.0.1:7717".to_owned(),
            format!("127.0.0.1:{}", self.reader.server.port()),
        );
        for (this, that) in self.values.iter().chain([&port]) {
            if text.contains(this.as_str()) {
                text = text.replace(this.as_str(), that);
                self.had.insert(this.clone());
            }
        }
        text
    }

    /// The same of a command, with what was printed before.
    #[track_caller]
    fn command(&mut self, text: &str) -> String {
        let mut text = self.filled(text);
        for kind in PRINTED {
            let placeholder = format!("{kind}…");
            if text.contains(&placeholder) {
                text = text.replace(&placeholder, &self.last(kind));
            }
        }
        text
    }

    /// What was printed last of a kind.
    #[track_caller]
    fn last(&self, kind: &str) -> String {
        let those = self.printed.rmatch_indices(kind).map(|(at, _)| {
            let rest = &self.printed[at + kind.len()..];
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"+/".contains(c));
            format!("{kind}{}", &rest[..end.unwrap_or(rest.len())])
        });
        let mut long = those.filter(|one| one.len() >= kind.len() + SHORTEST);
        long.next()
            .unwrap_or_else(|| panic!("no {kind}… was printed: {}", self.printed))
    }

    /// The settings file is this from the next start on.
    fn sets(&mut self, settings: &str) {
        let folder = self.reader.server.path().join("config/leasehold");
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("leasehold.toml"), settings).expect("a file");
    }

    #[track_caller]
    fn types(&mut self, typed: &str) -> String {
        if typed
            .lines()
            .next()
            .is_some_and(|line| line.ends_with("() {"))
        {
            self.functions.push_str(typed);
            self.functions.push('\n');
            return String::new();
        }
        if self.kills {
            self.reader.between();
        }
        let command = self.command(typed);
        let printed = match command.split_once(' ') {
            Some(("cargo", building)) => self.builds(building),
            Some(("leasehold", rest)) if rest.starts_with("serve") => self.serves(rest),
            Some(("leasehold", rest)) if rest.starts_with("activity watch") => self.watches(),
            _ if command.contains(" --offline") => {
                self.reader.server.kill();
                let printed = self.in_a_shell(&command);
                self.reader.server.begin();
                printed
            }
            _ => self.in_a_shell(&command),
        };
        self.printed.push_str(&printed);
        self.said.push((typed.to_owned(), printed.clone()));
        printed
    }

    /// Both of what is printed: a reader sees them at one place.
    #[track_caller]
    fn in_a_shell(&self, command: &str) -> String {
        let functions = &self.functions;
        let script = format!(
            "set -a\n[ ! -e known ] || . ./known\n{functions}exec 2>&1\n{command}\nexport -p >known\n"
        );
        let output = self
            .reader
            .server
            .shell(&self.reader.folder, &script)
            .output();
        ended(command, output.expect("sh runs"))
    }

    /// A component, which is built already.
    #[track_caller]
    fn builds(&self, arguments: &str) -> String {
        let name = arguments.strip_prefix("xtask components ");
        let name = name.unwrap_or_else(|| panic!("nobody here does `cargo {arguments}`"));
        let built = component(name).unwrap_or_else(|| panic!("{name} was not built"));
        let file = format!("target/components/{name}.wasm");
        fs::write(self.reader.folder.join(file), built).expect("a file");
        String::new()
    }

    /// The server in its other terminal, ended and started with these flags.
    fn serves(&mut self, arguments: &str) -> String {
        let words: Vec<&str> = arguments.split_whitespace().collect();
        let flags = words.iter().skip(1).take_while(|word| **word != "#");
        let flags: Vec<&str> = flags.copied().collect();
        self.reader.server.restart_with(&flags);
        String::new()
    }

    /// What has no end, until it shows something that happened meanwhile.
    #[track_caller]
    fn watches(&self) -> String {
        let server = &self.reader.server;
        let file = server.path().join("watched");
        let output = fs::File::create(&file).expect("a file");
        let mut child = server
            .shell(&self.reader.folder, "exec leasehold activity watch")
            .stdout(output)
            .stderr(Stdio::null())
            .spawn()
            .expect("sh runs");
        let watched = until("what happens to be shown", || {
            let made = json!({ "name": "watched", "role": "admin" });
            server.call("POST", "/api/tokens", Some(&made)).expect(201);
            let shown = fs::read_to_string(&file).expect("a file");
            shown.contains("token.created").then_some(shown)
        });
        child.kill().expect("it runs");
        child.wait().expect("a child");
        watched
    }
}

#[test]
fn a_document_shows_what_was_printed_but_for_what_it_leaves_out() {
    let printed = "ID     NAME\nenv_a  box\nenv_b  old box\ndone\n";
    for right in [
        "ID NAME\nenv_… box\nenv_… old box\ndone",
        "…\ndone",
        "ID   NAME\n…",
        "ID NAME\n…\nenv_… old…\n…",
    ] {
        assert_eq!(shows(right, printed), Ok(()));
    }
    for wrong in [
        "",
        "ID NAME",
        "…\nfailed",
        "ID NAME\nenv_… box\ndone",
        "ID NAME\nenv_b… old box\n…",
        "…\ndone…",
    ] {
        assert!(shows(wrong, printed).is_err(), "{wrong}");
    }
}

#[test]
fn blocks_come_in_their_order_with_what_they_are_fenced_as() {
    let text = "a `b`\n```sh\nc\n```\nd\n\n```text\ne\nf\n```\n";
    assert_eq!(fenced(text), [("sh", "c\n"), ("text", "e\nf\n")]);
}
