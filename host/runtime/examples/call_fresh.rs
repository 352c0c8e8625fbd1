//! Times a provider call that does not wait: a fresh instance and `execution.start` through two host
//! resources. Prints one JSON object in microseconds.
//!
//! `call_fresh <component.wasm> [calls] [plugins]`; with `plugins` also the time to load so many from a
//! warm cache, and what each keeps in memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use leasehold_contract::{
    ByteStream, Code, Command, CommandState, Content, Duplex, Egress, Error, Label, LeaseRef,
    Output, Process, ProcessEvent, ProcessInput, ProcessOutput, Purpose, Size, SshSession,
    Workspace,
};
use leasehold_runtime::{Cache, CallSetup, Plugin, Runtime, Settings};

struct Open;

#[async_trait]
impl Egress for Open {
    async fn ssh_open(
        &self,
        _target: String,
        _username: Option<String>,
        _timeout: Option<Duration>,
    ) -> Result<Arc<dyn SshSession>, Error> {
        Ok(Arc::new(Open))
    }
}

fn no<T>() -> Result<T, Error> {
    Err(Error::new(Code::Unsupported, "not measured"))
}

#[async_trait]
impl SshSession for Open {
    async fn make_workspace(&self, _parent: String) -> Result<Workspace, Error> {
        no()
    }
    async fn list_workspaces(&self, _parent: String) -> Result<Vec<Workspace>, Error> {
        no()
    }
    async fn remove_workspace(&self, _parent: String, _resource: String) -> Result<(), Error> {
        no()
    }
    async fn run(
        &self,
        _script: String,
        _args: Vec<String>,
        _env: Vec<(String, String)>,
        _stdin: Content,
        _limit: u32,
        _timeout: Option<Duration>,
    ) -> Result<Output, Error> {
        no()
    }
    async fn start(
        &self,
        _parent: String,
        _script: String,
        _args: Vec<String>,
        _env: Vec<(String, String)>,
        _tty: Option<Size>,
    ) -> Result<Process, Error> {
        Ok(Process {
            output: Box::new(Open),
            input: Box::new(Open),
        })
    }
    async fn state_of(&self, _parent: String, _id: String) -> Result<CommandState, Error> {
        no()
    }
    async fn signal(&self, _parent: String, _id: String, _signal: String) -> Result<(), Error> {
        no()
    }
    async fn put(&self, _root: String, _archive: ByteStream) -> Result<(), Error> {
        no()
    }
    async fn get(&self, _root: String, _path: String) -> Result<ByteStream, Error> {
        no()
    }
    async fn forward(&self, _port: u16) -> Result<Box<dyn Duplex>, Error> {
        no()
    }
}

#[async_trait]
impl ProcessOutput for Open {
    async fn next(&mut self) -> Option<ProcessEvent> {
        None
    }
}

#[async_trait]
impl ProcessInput for Open {
    async fn write(&mut self, _data: bytes::Bytes) -> std::io::Result<()> {
        Ok(())
    }
    async fn end(&mut self) -> std::io::Result<()> {
        Ok(())
    }
    async fn resize(&mut self, _size: Size) -> std::io::Result<()> {
        Ok(())
    }
}

type Outcome = Result<(), Box<dyn std::error::Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let path = arguments
        .next()
        .ok_or("name a component that starts a command")?;
    let calls: usize = arguments.next().map_or(Ok(20_000), |n| n.parse())?;
    let plugins: usize = arguments.next().map_or(Ok(0), |n| n.parse())?;
    let bytes = bytes::Bytes::from(std::fs::read(path)?);

    let folder = std::env::temp_dir().join(format!("leasehold-call-fresh-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let measured = measure(&folder, bytes, calls, plugins).await;
    std::fs::remove_dir_all(&folder)?;
    measured
}

async fn measure(
    folder: &std::path::Path,
    bytes: bytes::Bytes,
    calls: usize,
    plugins: usize,
) -> Outcome {
    let dir = Dir::open_ambient_dir(folder, ambient_authority())?;
    let runtime = Runtime::new(Settings {
        cache: Some(Arc::new(Cache::new(dir, [1; 32]))),
        ..Settings::default()
    })?;
    let prepared = runtime.prepare(bytes).await?;
    let mut times = call_fresh(&prepared.plugin, calls).await?;
    times.sort_unstable();
    let micros = |part: usize| {
        let at = times.len().saturating_sub(1) * part / 100;
        times.get(at).map(|time| time.as_nanos() as f64 / 1000.0)
    };
    let (p50, p99) = (micros(50), micros(99));

    let mut kept = 0;
    for entry in std::fs::read_dir(folder)? {
        kept += entry?.metadata()?.len();
    }
    let before = resident_kib()?;
    let began = Instant::now();
    let mut loaded = Vec::new();
    for _ in 0..plugins {
        let manifest = Arc::clone(&prepared.manifest);
        let missing = || async { Err("the cache is warm".into()) };
        let limits = manifest.request.limits;
        let load = runtime.load(prepared.digest, manifest, limits, missing);
        loaded.push(load.await?);
    }
    let load_ms = began.elapsed().as_secs_f64() * 1000.0;
    let each_kib = (resident_kib()?.saturating_sub(before)) as f64 / plugins.max(1) as f64;
    println!(
        "{}",
        serde_json::json!({
            "calls": calls, "pooled": runtime.is_pooled(), "p50_us": p50, "p99_us": p99,
            "plugins": plugins, "load_warm_ms": load_ms, "plugin_kib": each_kib, "compiled_bytes": kept,
        })
    );
    Ok(())
}

/// What this process has in memory.
fn resident_kib() -> Result<u64, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(number.ok_or("no VmRSS")?.parse()?)
}

/// How long each of `calls` calls took, one after another.
async fn call_fresh(
    plugin: &Plugin,
    calls: usize,
) -> Result<Vec<Duration>, leasehold_runtime::Failure> {
    let mut setup = CallSetup::refusing(Purpose::Run, Duration::from_secs(30));
    setup.egress = Arc::new(Open);
    setup.call.company = "company".into();
    setup.call.lease = Some(LeaseRef {
        id: "lease-1".into(),
        acquisition: "a-1".into(),
        epoch: 1,
    });
    setup.call.labels = vec![
        Label {
            key: "key".into(),
            value: "value".into(),
        };
        4
    ];
    let command = Command {
        id: "1".into(),
        argv: vec!["uname".into(), "-a".into()],
        env: vec![("A".into(), "b".into())],
        cwd: "/w".into(),
        stdin: false,
        tty: None,
    };
    let mut times = Vec::with_capacity(calls);
    for n in 0..calls + calls / 10 {
        let began = Instant::now();
        let started = plugin.start(&setup, "{}", "{}", &command).await?;
        drop(started);
        if n >= calls / 10 {
            times.push(began.elapsed());
        }
    }
    Ok(times)
}
