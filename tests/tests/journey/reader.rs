//! Somebody who reads the documents and types what stands there: a machine of theirs, a server, and a folder.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};

use leasehold_tests::http::text;
use leasehold_tests::machine::{Machine, listed};
use leasehold_tests::server::{Server, component};
use leasehold_tests::wait::until;
use serde_json::json;

/// A reader of the documents: a machine of theirs, a server, and the folder in which they type.
pub struct Reader {
    /// The machine.
    pub machine: Machine,
    /// The server.
    pub server: Server,
    /// The directory of the machine below which leases get theirs.
    pub parent: PathBuf,
    /// Where they type.
    pub folder: PathBuf,
    /// How many commands were typed.
    pub typed: usize,
}

impl Reader {
    /// One who has what the documents take for granted: the built component, a key, files to copy.
    pub fn new() -> Option<Reader> {
        let machine = Machine::start()?;
        let server = Server::start()?;
        let folder = server.path().join("clone");
        let file = |path: PathBuf, bytes: &[u8]| {
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, bytes).expect("a file");
        };
        let wasm = component("ssh").expect("it was built");
        file(folder.join("target/components/ssh.wasm"), &wasm);
        file(folder.join("src/report.txt"), b"as it was\n");
        file(folder.join("docs/page.md"), b"# A page\n");
        let key = machine.sshd.key().private.as_bytes();
        file(server.path().join(".ssh/id_ed25519"), key);
        Some(Reader {
            parent: machine.directory("leases"),
            machine,
            server,
            folder,
            typed: 0,
        })
    }

    /// What the README's first hour leaves behind: the company `acme`, the provider, the key and the environment. Answers the
    /// environment's id.
    #[track_caller]
    pub fn environment(&self) -> String {
        self.server.install("ssh").expect(201);
        let key = self.machine.sshd.key();
        let key = self.server.secret("build-key", &key.private);
        let made = self.server.environment(&json!({
            "name": "build box",
            "driver": "ssh",
            "config": {
                "target": self.machine.target(&key, self.machine.sshd.port()),
                "remoteWorkspacePath": self.parent,
            },
        }));
        text(&made.expect(201)["id"])
    }

    /// Kills the server and starts it again, but for the first command.
    pub fn between(&mut self) {
        if self.typed > 0 {
            self.server.restart();
        }
        self.typed += 1;
    }

    /// Types a command and answers what it printed. It must succeed.
    #[track_caller]
    pub fn types(&self, command: &str) -> String {
        let output = self.server.shell(&self.folder, command).output();
        ended(command, output.expect("sh runs"))
    }

    /// Types a command at a terminal, and `answer` once it shows `prompt`.
    #[track_caller]
    pub fn types_at_a_terminal(&self, command: &str, prompt: &str, answer: &str) {
        let at_terminal = format!("script -qec '{}' /dev/null", command.replace('\'', "'\\''"));
        let mut child = self
            .server
            .shell(&self.folder, &at_terminal)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("sh runs");
        let mut stdin = child.stdin.take().expect("a pipe");
        let mut stdout = child.stdout.take().expect("a pipe");
        let shown = Arc::new(Mutex::new(Vec::new()));
        let reading = std::thread::spawn({
            let shown = shown.clone();
            move || {
                let mut buffer = [0; 4096];
                while let Ok(read @ 1..) = stdout.read(&mut buffer) {
                    shown
                        .lock()
                        .expect("a screen")
                        .extend_from_slice(&buffer[..read]);
                }
            }
        });
        let screen = || String::from_utf8_lossy(&shown.lock().expect("a screen")).into_owned();
        until(&format!("`{prompt}` of `{command}`"), || {
            screen().contains(prompt).then_some(())
        });
        stdin.write_all(answer.as_bytes()).expect("it reads");
        until(&format!("the end of `{command}`"), || {
            child.try_wait().expect("a child")
        });
        reading.join().expect("no panic");
        let output = child.wait_with_output().expect("it has ended");
        assert!(output.status.success(), "`{command}`: {}", screen());
    }

    /// What must hold at the end of every way through.
    pub fn at_the_end(&self) {
        self.all_released(1);
    }

    /// So many leases were made, and nothing of them is left.
    #[track_caller]
    pub fn all_released(&self, count: usize) {
        let leases = self.server.leases();
        assert_eq!(leases.len(), count, "{leases:?}");
        let released = leases.iter().all(|lease| lease["status"] == "released");
        assert!(released, "{leases:?}");
        assert!(listed(&self.parent).is_empty());
    }
}

/// What a command printed; it must have succeeded.
#[track_caller]
pub fn ended(command: &str, output: Output) -> String {
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "`{command}` ended with {}: {out}{err}",
        output.status
    );
    out
}
