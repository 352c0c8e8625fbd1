//! What README.md and docs/http.md tell people to type, typed: taken from the documents, each command in a shell of its
//! own, with `kill -9` of the server and a start between any two. Only names of somebody else's are put in the place of
//! the documents' (a host, a port, a path), and each of these must still be there.

use leasehold_parts::{has, skipped};
use leasehold_tests::document::{blocks, commands, read, section, substituted};
use leasehold_tests::machine::only_known_workspaces;

use crate::reader::{Reader, ended};

#[test]
fn the_first_hour_of_the_readme_works_as_it_stands_though_the_server_is_killed_between_any_two_commands()
 {
    if !has("script") || !has("curl") || !has("bash") {
        return skipped("script, curl and bash");
    }
    let Some(mut reader) = Reader::new() else {
        return;
    };
    let readme = read("README.md");
    let hour = section(&readme, "## A first hour");
    let host = format!("127.0.0.1 --port {}", reader.machine.sshd.port());
    let parent = reader.parent.display().to_string();
    let data = reader.server.data().display().to_string();
    let hour = substituted(
        hour,
        &[
            ("build.example.org", &host),
            (
                "--user ci",
                &format!("--user {}", reader.machine.sshd.worker().name),
            ),
            ("/srv/leases", &parent),
            ("~/.local/share/leasehold/", &format!("{data}/")),
        ],
    );
    let mut all = blocks(&hour).into_iter().flat_map(commands);
    // The server is built, and runs.
    for begin in [
        "cargo build",
        "cargo xtask components ssh",
        "export PATH",
        "leasehold serve",
    ] {
        let command = all.next().unwrap_or_default();
        assert!(command.starts_with(begin), "{command} is not {begin}");
    }
    let (mut lease, mut fingerprint) = (String::new(), String::new());
    let mut said = Vec::new();
    for command in all {
        let command = command
            .replace("LEASE", &lease)
            .replace("SHA256:…", &fingerprint);
        reader.between();
        if command.starts_with("leasehold plugin install") {
            reader.types_at_a_terminal(&command, "[y/N]", "y\n");
            continue;
        }
        if command.contains("exec -t") {
            reader.types_at_a_terminal(&command, "$", "exit\n");
            continue;
        }
        let out = reader.types(&command);
        if command.starts_with("leasehold env host-key") {
            let mut known = reader.machine.sshd.fingerprints().into_iter();
            fingerprint = known
                .find(|known| out.contains(known))
                .unwrap_or_else(|| panic!("no key of the machine's: {out}"));
        }
        if command.starts_with("leasehold lease acquire") {
            let mut words = out.split_whitespace();
            let id = words.find(|word| word.starts_with("lease_"));
            lease = id.unwrap_or_else(|| panic!("no id: {out}")).to_owned();
            only_known_workspaces(&reader.server, &reader.parent);
        }
        said.push((command, out));
    }
    let said_of = |begin: &str| {
        let mut those = said
            .iter()
            .filter(|(command, _)| command.starts_with(begin));
        those.next().map_or("", |(_, out)| out.as_str())
    };
    let counted = said_of(&format!("leasehold exec {lease} -- sh"));
    assert!(counted.contains("docs/page.md"), "{counted}");
    assert!(said_of("leasehold lease executions").contains("exited"));
    assert!(said_of("curl").contains("acme"));
    let back = std::fs::read(reader.server.path().join("lines.txt")).expect("it came back");
    assert_eq!(String::from_utf8_lossy(&back), counted);
    assert!(reader.typed > 12, "only {} commands", reader.typed);
    reader.at_the_end();
}

#[test]
fn the_way_with_curl_works_as_it_stands_though_the_server_is_killed_between_any_two_commands() {
    if !has("curl") || !has("jq") {
        return skipped("curl and jq");
    }
    let Some(mut reader) = Reader::new() else {
        return;
    };
    let document = read("docs/http.md");
    let mut all = blocks(&document);
    // Every shell begins with the first block, and ends by writing down what it knows for the next.
    let head = all.remove(0);
    let mut outputs = Vec::new();
    for command in all.into_iter().flat_map(commands) {
        reader.between();
        outputs.push((command.clone(), reader.knows_and_types(head, &command)));
        if command.starts_with("lease=") {
            // The answer was lost, says the client, and asks again.
            let before = reader.known("lease");
            reader.between();
            reader.knows_and_types(head, &command);
            assert_eq!(reader.known("lease"), before, "the same lease");
            only_known_workspaces(&reader.server, &reader.parent);
        }
    }
    let said_of = |part: &str| {
        let mut those = outputs.iter().filter(|(command, _)| command.contains(part));
        those.next().map_or("", |(_, out)| out.as_str())
    };
    assert!(said_of(".asks").contains("SSH"), "{outputs:?}");
    assert!(said_of(".ok").contains("true"), "{outputs:?}");
    assert!(said_of("jq -er .stdout").contains("Linux"), "{outputs:?}");
    assert_eq!(said_of(".exitCode"), "exited\n3\n", "{outputs:?}");
    assert_eq!(said_of("/release\""), "released\n", "{outputs:?}");
    assert_eq!(
        said_of(".details.code"),
        "lease_not_active\n",
        "{outputs:?}"
    );
    for action in ["plugin.installed", "lease.released"] {
        let activity = reader.types(&format!("leasehold activity | grep -F {action}"));
        assert!(activity.contains(action), "{activity}");
    }
    assert!(
        said_of("authorization: Bearer").contains("operator"),
        "{outputs:?}"
    );
    let fingerprint = reader.known("fingerprint");
    assert!(reader.machine.sshd.fingerprints().contains(&fingerprint));
    let back = reader.folder.join("back/src/report.txt");
    let back = std::fs::read(back).expect("it came back");
    assert_eq!(back, b"as it was\n");
    assert!(reader.typed > 18, "only {} commands", reader.typed);
    reader.at_the_end();
}

impl Reader {
    /// Types a command of docs/http.md in a shell that knows the first block and what the commands before set.
    #[track_caller]
    fn knows_and_types(&self, head: &str, command: &str) -> String {
        let own = [
            ("socket", self.server.socket().display().to_string()),
            ("server", format!("127.0.0.1:{}", self.server.port())),
            (
                "token",
                self.server
                    .data()
                    .join("operator.token")
                    .display()
                    .to_string(),
            ),
            ("component", "target/components/ssh.wasm".to_owned()),
            ("host", "127.0.0.1".to_owned()),
            ("port", self.machine.sshd.port().to_string()),
            ("user", self.machine.sshd.worker().name.clone()),
            (
                "key",
                self.server
                    .path()
                    .join(".ssh/id_ed25519")
                    .display()
                    .to_string(),
            ),
            ("workspace", self.parent.display().to_string()),
        ];
        let mut script = String::from("set -a\n[ ! -e known ] || . ./known\n");
        let mut left: Vec<&str> = own.iter().map(|(name, _)| *name).collect();
        for line in head.lines() {
            let name = line.split_once('=').map_or("", |(name, _)| name);
            if line.starts_with(' ') || name.contains(' ') || name.is_empty() {
                script.push_str(line);
            } else {
                let (name, value) = own
                    .iter()
                    .find(|(own, _)| *own == name)
                    .unwrap_or_else(|| panic!("nobody here knows `{line}`"));
                script.push_str(&format!("{name}='{value}'"));
                left.retain(|one| one != name);
            }
            script.push('\n');
        }
        assert!(left.is_empty(), "the first block does not set {left:?}");
        script.push_str(command);
        script.push_str("\nexport -p >known\n");
        let output = self.server.shell(&self.folder, &script).output();
        ended(command, output.expect("sh runs"))
    }

    /// The value of a variable that a command of docs/http.md set.
    fn known(&self, name: &str) -> String {
        let value = self.types(&format!(". ./known; printf %s \"${name}\""));
        assert!(!value.is_empty() && value != "null", "{name} is not known");
        value
    }
}
