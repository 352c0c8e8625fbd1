//! `cargo xtask bench [NAME…]`: what the design says must be reached, measured, side by side with what it is compared to.
//!
//! Everything measured is the product as it is installed: the program `leasehold`, built by the profile that people
//! install, with its real database, on a real sshd. The other side runs in the same minutes on the same machine
//! where it can; where it cannot, a figure that was recorded stands in its place and is marked so. Samples of both
//! sides alternate, so that what else the machine does hits both. Nothing here decides what is true: a goal that
//! was missed is printed as missed, and the task still succeeds.

mod calls;
mod egress;
mod exec;
mod http;
mod machine;
mod node;
mod plugins;
mod probe;
mod row;
mod server;
mod stream;
mod whole;

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use crate::checkout::Checkout;
use crate::setup::{self, Purpose};
use crate::shell;
use row::Row;

/// What is to be measured.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only these, such as `exec-roundtrip`; without, all
    #[arg(value_name = "NAME")]
    only: Vec<String>,
    /// Print a JSON array in place of a table
    #[arg(long)]
    json: bool,
    /// Take a tenth of the samples: to see that it runs, not to know how fast it is
    #[arg(long)]
    quick: bool,
    /// The cargo profile to build with
    #[arg(long, default_value = "release", value_name = "PROFILE")]
    profile: String,
    /// Measure this `leasehold` in place of one that is built; `call_fresh` and `exchange` are looked for in `examples` beside it
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// What every benchmark is given.
pub struct Bench {
    checkout: Checkout,
    /// The server.
    program: PathBuf,
    quick: bool,
}

impl Bench {
    /// How many samples to take, where so many are wanted.
    fn samples(&self, wanted: usize) -> usize {
        match self.quick {
            true => wanted.div_ceil(10),
            false => wanted,
        }
    }

    /// A program that times a part of the server, without the rest of it.
    fn example(&self, name: &str) -> Result<PathBuf> {
        let beside = self.program.parent().context("the program has no folder")?;
        Ok(beside.join("examples").join(name))
    }

    /// A component by its name.
    fn component(&self, name: &str) -> Result<Vec<u8>> {
        let file = self.checkout.components().join(format!("{name}.wasm"));
        std::fs::read(&file).with_context(|| format!("{} was not built", file.display()))
    }
}

type Benchmark = fn(&Bench) -> Result<Vec<Row>>;

/// Each by its name, in the order of the design's table.
const ALL: &[(&str, Benchmark)] = &[
    ("call-fresh", calls::call_fresh),
    ("call-waiting", egress::waiting),
    ("plugin-memory", calls::plugin_memory),
    ("exec-throughput-ssh", exec::throughput),
    ("exec-roundtrip", exec::roundtrip),
    ("probe-ssh", probe::ssh),
    ("probe-noop", probe::noop),
    ("restart", whole::restart),
    ("idle-memory", whole::idle_memory),
    ("list-environments", whole::list_environments),
    ("egress-small", egress::small),
    ("egress-large", egress::large),
    ("installs-beside", plugins::installs_beside),
    ("breaker-beside", plugins::breaker_beside),
];

/// Measures them.
pub fn run(checkout: Checkout, arguments: &Arguments) -> Result<()> {
    if let Some(unknown) = arguments
        .only
        .iter()
        .find(|name| !ALL.iter().any(|(known, _)| known == name))
    {
        let known: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
        bail!(
            "no benchmark is called {unknown:?}: there are {}",
            known.join(", ")
        );
    }
    setup::run(&checkout, Purpose::Demo)?;
    build_components()?;
    let program = match &arguments.program {
        Some(program) => program
            .canonicalize()
            .with_context(|| format!("{} is not there", program.display()))?,
        None => build(&checkout, &arguments.profile)?,
    };
    let bench = Bench {
        checkout,
        program,
        quick: arguments.quick,
    };
    eprintln!("on {}", machine_described());
    let mut rows = Vec::new();
    for (name, benchmark) in ALL {
        if !arguments.only.is_empty() && !arguments.only.iter().any(|only| only == name) {
            continue;
        }
        eprintln!("# {name} (load {})", load());
        let cases = benchmark(&bench).with_context(|| format!("{name} could not be measured"))?;
        rows.extend(row::with_worst(name, cases));
    }
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        println!("{}", row::table(&rows));
    }
    Ok(())
}

/// Builds the server and the programs that time parts of it, in one go so that all are of the same parts.
fn build(checkout: &Checkout, profile: &str) -> Result<PathBuf> {
    let mut command = shell::command("cargo", ["build", "--locked", "--profile", profile]);
    command
        .args([
            "--package",
            "leasehold-server",
            "--package",
            "leasehold-runtime",
        ])
        .args(["--bin", "leasehold"])
        .args(["--example", "call_fresh", "--example", "exchange"])
        .arg("--target-dir")
        .arg(&checkout.target)
        .current_dir(&checkout.root);
    shell::run(&mut command)?;
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(checkout.target.join(folder).join("leasehold"))
}

/// Builds the components in a process of its own: what it prints is no part of the figures.
fn build_components() -> Result<()> {
    let this = std::env::current_exe().context("this program's own path is not known")?;
    let ended = shell::command(
        &this.to_string_lossy(),
        ["components", "ssh", "null", "hostile", "cabin"],
    )
    .stdout(Stdio::from(std::io::stderr()))
    .status()
    .context("the components were not built")?;
    if !ended.success() {
        bail!("the components were not built");
    }
    Ok(())
}

/// Processor, cores, memory and kernel, as the system says them.
fn machine_described() -> String {
    let said = |path: &str, key: &str| -> String {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let line = text
            .lines()
            .find(|line| line.starts_with(key))
            .unwrap_or_default();
        line.split_once(':')
            .map_or("", |(_, value)| value)
            .trim()
            .to_owned()
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{} × {}, {} of memory, Linux {}",
        cores,
        said("/proc/cpuinfo", "model name"),
        said("/proc/meminfo", "MemTotal"),
        kernel.trim(),
    )
}

/// Processes that ran or wanted to, in the last minute: on a busy machine no figure means much.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_owned()
}
