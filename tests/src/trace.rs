//! Looks at a server's writes to its database from outside, and kills it at one of them.
//!
//! `strace` stops the process at the system call itself, so nothing in the product knows of it. A signal that it injects
//! comes before the call is done: killed at the third write, a server has done two.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use leasehold_parts::{has, skipped};
use rustix::process::{Pid, Signal, kill_process};

use crate::server::Server;
use crate::wait::until;

/// A call by which a database gets to the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// `pwrite64`, `fdatasync` or `fsync`.
    pub name: String,
    /// Which of them in its thread, from 1.
    pub nth: usize,
}

/// A tracer at work; dropping it lets the server go.
#[derive(Debug)]
pub struct Trace {
    child: Child,
    log: PathBuf,
}

/// Whether a process can be traced here.
pub fn available() -> bool {
    if !has("strace") {
        skipped("strace");
        return false;
    }
    let traced = Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .status();
    let allowed =
        traced.is_ok_and(|status| status.success()) && rustix::process::geteuid().is_root();
    if !allowed {
        skipped("leave to trace processes (root)");
    }
    allowed
}

const CALLS: &str = "pwrite64,fdatasync,fsync";

impl Trace {
    /// Follows a server; where a call is given, kills it there.
    ///
    /// # Panics
    /// When strace does not come to hold every thread.
    pub fn attach(server: &Server, kill_at: Option<&Call>) -> Trace {
        let log = server.path().join("trace");
        let database = server.data().join("leasehold.db");
        let mut command = Command::new("strace");
        command
            .args(["-f", "-qq", "-e", &format!("trace={CALLS}"), "-o"])
            .arg(&log);
        for ending in ["", "-wal"] {
            command
                .arg("-P")
                .arg(format!("{}{ending}", database.display()));
        }
        if let Some(Call { name, nth }) = kill_at {
            command.args(["-e", &format!("inject={name}:signal=SIGKILL:when={nth}")]);
        }
        let child = command
            .args(["-p", &server.pid().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("strace runs");
        let tracer = format!("TracerPid:\t{}\n", child.id());
        until("strace to hold the server", || {
            held(server.pid(), &tracer).then_some(())
        });
        Trace { child, log }
    }

    /// Lets the server go and answers what was seen: the calls of the thread that wrote most, in order.
    pub fn finish(mut self) -> Vec<Call> {
        self.end(Signal::TERM);
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let mut threads: Vec<(String, Vec<Call>)> = Vec::new();
        for line in text.lines() {
            let Some((thread, rest)) = line.split_once(' ') else {
                continue;
            };
            let Some((name, _)) = rest.trim_start().split_once('(') else {
                continue;
            };
            if !CALLS.split(',').any(|call| call == name) {
                continue;
            }
            let at = threads
                .iter()
                .position(|(id, _)| id == thread)
                .unwrap_or_else(|| {
                    threads.push((thread.to_owned(), Vec::new()));
                    threads.len() - 1
                });
            let calls = &mut threads[at].1;
            let nth = calls.iter().filter(|call| call.name == name).count() + 1;
            calls.push(Call {
                name: name.to_owned(),
                nth,
            });
        }
        threads
            .into_iter()
            .map(|(_, calls)| calls)
            .max_by_key(Vec::len)
            .unwrap_or_default()
    }

    fn end(&mut self, by: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
            && self.child.try_wait().ok().flatten().is_none()
        {
            let _ = kill_process(pid, by);
        }
        let _ = self.child.wait();
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // Asked to end while a process of its own dies, strace may wait for ever. The system lets go of what it held.
        self.end(Signal::KILL);
    }
}

fn held(pid: u32, tracer: &str) -> bool {
    let tasks = Path::new("/proc").join(pid.to_string()).join("task");
    let Ok(tasks) = fs::read_dir(tasks) else {
        return false;
    };
    tasks.flatten().all(|task| {
        fs::read_to_string(task.path().join("status")).is_ok_and(|status| status.contains(tracer))
    })
}
