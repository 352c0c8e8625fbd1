//! `activity …`: what happened, as it happens, taken away, and proven.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::{Args, Subcommand};
use futures_util::StreamExt;
use http_body_util::BodyStream;
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio_util::io::ReaderStream;

use super::admin::InCompany;
use super::client::{Client, encode, refusal_of};
use super::exit::{CliError, DONE};
use super::output::{Column, Output, plain};
use crate::server;
use crate::settings::{Places, ServeArgs, Settings};

const ACTIVITY: &[Column] = &[
    ("POSITION", "position"),
    ("TIME", "time"),
    ("ACTOR", "actor"),
    ("ACTION", "action"),
    ("SUBJECT", "subjectId"),
    ("OUTCOME", "outcome"),
    ("TIMES", "times"),
    ("CHANGED", "changed"),
];
/// The most that an event may have, in bytes.
const LONGEST_EVENT: usize = 4 << 20;
/// How long to wait before coming back to a server that went away.
const RETRY: std::time::Duration = std::time::Duration::from_secs(1);

/// `activity …`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ActivityArgs {
    #[command(subcommand)]
    command: Option<ActivityCommand>,
    #[command(flatten)]
    which: Which,
    /// Only what came before this position, newest first
    #[arg(long, value_name = "POSITION", conflicts_with = "after")]
    before: Option<i64>,
    /// Only what happened at this moment or later, such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only what happened before this moment
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// At most this many
    #[arg(long, default_value_t = 100)]
    limit: u32,
}

/// Which rows.
#[derive(Debug, Args)]
struct Which {
    /// Only what came after this position, oldest first; without, the newest first
    #[arg(long, value_name = "POSITION")]
    after: Option<i64>,
    /// Only of one company, by id or name: all that a board member may read
    #[arg(long, short = 'C', value_name = "COMPANY")]
    company: Option<String>,
    /// Only what this actor did: a token's id or name, or local-operator, system or nobody
    #[arg(long)]
    actor: Option<String>,
    /// Only actions that begin so, such as lease.
    #[arg(long)]
    action: Option<String>,
    /// Only what was done to things of this kind, such as environment
    #[arg(long, value_name = "KIND")]
    subject_kind: Option<String>,
    /// Only what was done to the thing of this id
    #[arg(long, value_name = "ID")]
    subject: Option<String>,
    /// Only what ended so: done, denied, failed or unknown
    #[arg(long)]
    outcome: Option<String>,
}

impl Which {
    /// The path below which the rows are, and the query that names them.
    async fn path(&self, client: &Client, end: &str) -> Result<String, CliError> {
        let mut path = match &self.company {
            Some(company) => {
                let named = InCompany::named(company);
                format!(
                    "/api/companies/{}/activity",
                    encode(&named.id(client).await?)
                )
            }
            None => "/api/activity".to_owned(),
        };
        path.push_str(end);
        let after = self.after.map(|after| after.to_string());
        let values = [
            ("after", after.as_ref()),
            ("actor", self.actor.as_ref()),
            ("action", self.action.as_ref()),
            ("subjectKind", self.subject_kind.as_ref()),
            ("subject", self.subject.as_ref()),
            ("outcome", self.outcome.as_ref()),
        ];
        for (name, value) in values {
            add(&mut path, name, value);
        }
        Ok(path)
    }
}

fn add(path: &mut String, name: &str, value: Option<&String>) {
    if let Some(value) = value {
        path.push(if path.contains('?') { '&' } else { '?' });
        path.push_str(&format!("{name}={}", encode(value)));
    }
}

/// What else there is to do with it.
#[derive(Debug, Subcommand)]
enum ActivityCommand {
    /// Print what happens as it happens, until it is ended; comes back to a server that was started again
    Watch {
        #[command(flatten)]
        which: Which,
    },
    /// Print the end of the chain, to be kept elsewhere: `verify --head` looks for it later
    Head,
    /// Check that no row was changed, removed, moved or put in
    Verify(VerifyArgs),
    /// Write all rows as NDJSON, each with its proof
    Export {
        /// The file; standard output without
        file: Option<PathBuf>,
        /// Only what came after this position
        #[arg(long, value_name = "POSITION")]
        after: Option<i64>,
    },
}

/// What to check, and against what.
#[derive(Debug, Args)]
struct VerifyArgs {
    /// What `activity head` printed earlier: it must still be in the chain
    #[arg(long, value_name = "FILE")]
    head: Option<PathBuf>,
    /// Check this export instead of the database; the server needs its key for it, and none of its rows
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
    /// Check the database of a server that does not run, on this machine
    #[arg(long, conflicts_with = "export")]
    offline: bool,
    /// Settings file, as `serve` takes it; else LEASEHOLD_CONFIG is
    #[arg(long, value_name = "FILE", requires = "offline")]
    config: Option<PathBuf>,
    /// Directory of the database, as `serve` takes it; else LEASEHOLD_DATA_DIR is
    #[arg(long, value_name = "DIR", requires = "offline")]
    data_dir: Option<PathBuf>,
    /// Master key file, as `serve` takes it; else LEASEHOLD_MASTER_KEY is
    #[arg(long, value_name = "FILE", requires = "offline")]
    master_key: Option<PathBuf>,
}

/// A flag of `serve` as this command was given it, or its variable. It is not read by the flag itself: a variable that is set
/// for the server would then require `--offline` of every check.
fn given(flag: Option<PathBuf>, variable: &str) -> Option<PathBuf> {
    let variable = || std::env::var_os(variable).filter(|value| !value.is_empty());
    flag.or_else(|| variable().map(PathBuf::from))
}

impl ActivityArgs {
    /// Does it. `connect` makes the client, which an offline check does not need.
    pub async fn run(
        self,
        connect: impl FnOnce() -> Result<Client, CliError>,
        out: &Output,
    ) -> Result<u8, CliError> {
        match self.command {
            None => {
                let client = connect()?;
                let mut path = self.which.path(&client, "").await?;
                let before = self.before.map(|before| before.to_string());
                add(&mut path, "before", before.as_ref());
                add(&mut path, "since", self.since.as_ref());
                add(&mut path, "until", self.until.as_ref());
                add(&mut path, "limit", Some(&self.limit.to_string()));
                out.list(&client.get(&path).await?, ACTIVITY)?;
            }
            Some(ActivityCommand::Watch { which }) => watch(&connect()?, which, out).await?,
            Some(ActivityCommand::Head) => {
                let head = connect()?.get("/api/activity/head").await?;
                out.told(&head, &head.to_string())?;
            }
            Some(ActivityCommand::Verify(args)) => args.run(connect, out).await?,
            Some(ActivityCommand::Export { file, after }) => {
                let mut path = "/api/activity/export".to_owned();
                add(&mut path, "after", after.map(|a| a.to_string()).as_ref());
                let body = connect()?.get_stream(&path).await?;
                match file {
                    Some(file) => save(body, &file).await?,
                    None => {
                        let mut body = BodyStream::new(body);
                        while let Some(data) = piece(&mut body).await? {
                            super::output::write_all(&data)?;
                        }
                    }
                }
            }
        }
        Ok(DONE)
    }
}

async fn piece(body: &mut BodyStream<hyper::body::Incoming>) -> Result<Option<Bytes>, CliError> {
    while let Some(frame) = body.next().await {
        let frame = frame.map_err(|e| CliError::Broken(e.to_string()))?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

fn local(file: &Path) -> impl Fn(std::io::Error) -> CliError {
    let file = file.display().to_string();
    move |e| CliError::Local(format!("{file}: {e}"))
}

/// Writes beside the file, which is there only once it is whole.
async fn save(body: hyper::body::Incoming, file: &Path) -> Result<(), CliError> {
    let failed = local(file);
    let folder = match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    // A new file of the owner's, under a name that nobody foresees; it goes where it does not become the export.
    let aside = tempfile::NamedTempFile::new_in(folder).map_err(&failed)?;
    let mut part = tokio::fs::File::from_std(aside.reopen().map_err(&failed)?);
    let mut body = BodyStream::new(body);
    while let Some(data) = piece(&mut body).await? {
        part.write_all(&data).await.map_err(&failed)?;
    }
    part.sync_all().await.map_err(&failed)?;
    aside.persist(file).map_err(|e| failed(e.error))?;
    Ok(())
}

impl VerifyArgs {
    async fn run(
        self,
        connect: impl FnOnce() -> Result<Client, CliError>,
        out: &Output,
    ) -> Result<(), CliError> {
        let kept = match &self.head {
            None => None,
            Some(file) => Some(read_head(file)?),
        };
        if self.offline {
            let args = ServeArgs {
                config: given(self.config, "LEASEHOLD_CONFIG"),
                data_dir: given(self.data_dir, "LEASEHOLD_DATA_DIR"),
                master_key: given(self.master_key, "LEASEHOLD_MASTER_KEY"),
                ..ServeArgs::default()
            };
            let settings = Settings::resolve(args, &Places::of_this_user())
                .map_err(|e| CliError::Usage(e.to_string()))?;
            let kept =
                kept.map(|(sequence, mac)| leasehold_authority::Head::of_hex(sequence, &mac));
            let kept = match kept {
                Some(None) => return Err(CliError::Usage("--head: the file has no head".into())),
                Some(kept) => kept,
                None => None,
            };
            let found = server::verify_activity(&settings, kept.as_ref())
                .await
                .map_err(|e| CliError::Local(e.to_string()))?;
            let told = json!({
                "rows": found.rows, "sequence": found.head.sequence, "head": found.head.mac_hex(),
            });
            return out.one(&told, CHAIN);
        }
        let mut query = String::new();
        if let Some((sequence, mac)) = kept {
            add(&mut query, "sequence", Some(&sequence.to_string()));
            add(&mut query, "head", Some(&mac));
        }
        match &self.export {
            None => {
                let chain = connect()?
                    .get(&format!("/api/activity/chain{query}"))
                    .await?;
                out.one(&chain, CHAIN)
            }
            Some(file) => {
                let opened = tokio::fs::File::open(file).await.map_err(local(file))?;
                let lines = ReaderStream::with_capacity(opened, 64 << 10);
                let lines = Box::pin(lines.map(|piece| piece.map(Frame::data)));
                let path = format!("/api/activity/check-export{query}");
                let found = connect()?.post_lines(&path, lines).await?;
                if out.is_json() {
                    return out.value(&found);
                }
                out.list(&found["chains"], EXPORTED)
            }
        }
    }
}

const CHAIN: &[Column] = &[("ROWS", "rows"), ("SEQUENCE", "sequence"), ("HEAD", "head")];
const EXPORTED: &[Column] = &[
    ("REPLICA", "replica"),
    ("FIRST", "first"),
    ("LAST", "sequence"),
    ("HEAD", "head"),
];

/// What `activity head` printed: the row's number, and its authentication in hex.
fn read_head(file: &Path) -> Result<(i64, String), CliError> {
    let text = std::fs::read_to_string(file).map_err(local(file))?;
    let head: Value = serde_json::from_str(&text).unwrap_or_default();
    match (head["sequence"].as_i64(), head["head"].as_str()) {
        (Some(sequence), Some(mac)) => Ok((sequence, mac.to_owned())),
        _ => Err(CliError::Usage(format!(
            "--head: {} is not what `leasehold activity head` printed",
            file.display()
        ))),
    }
}

/// Prints events as they come. A connection that broke off is made again from the last id; what the server refuses, or
/// says as its last word, ends it, unless it was only stopped.
async fn watch(client: &Client, which: Which, out: &Output) -> Result<(), CliError> {
    let path = which.path(client, "/stream").await?;
    let mut last: Option<String> = None;
    loop {
        let opened = client.get_events(&path, last.as_deref()).await;
        let came = match opened {
            Ok(body) => events(body, &mut last, out).await,
            Err(error) => Err(error),
        };
        match came {
            Err(CliError::Broken(_)) => {}
            Err(CliError::Unreachable { .. }) if last.is_some() => {}
            Err(CliError::Refused { status: 503, .. }) if last.is_some() => {}
            Err(error) => return Err(error),
            Ok(()) => {}
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn events(
    body: hyper::body::Incoming,
    last: &mut Option<String>,
    out: &Output,
) -> Result<(), CliError> {
    let mut body = BodyStream::new(body);
    let mut held: Vec<u8> = Vec::new();
    while let Some(data) = piece(&mut body).await? {
        held.extend_from_slice(&data);
        while let Some(end) = held.windows(2).position(|two| two == b"\n\n") {
            let event: Vec<u8> = held.drain(..end + 2).collect();
            event_of(&String::from_utf8_lossy(&event), last, out)?;
        }
        if held.len() > LONGEST_EVENT {
            return Err(CliError::Answer("an event has no end".into()));
        }
    }
    Ok(())
}

fn event_of(text: &str, last: &mut Option<String>, out: &Output) -> Result<(), CliError> {
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(|value| value.strip_prefix(' ').unwrap_or(value))
    };
    if let Some(data) = field("data") {
        let value: Value =
            serde_json::from_str(data).map_err(|e| CliError::Answer(e.to_string()))?;
        if field("event") == Some("error") {
            let code = value["details"]["code"].as_str();
            let status = code.and_then(crate::api::errors::ErrorCode::parse);
            let status = status.map_or(500, |code| code.status().as_u16());
            return Err(refusal_of(status, &value));
        }
        let text = |key: &str| plain(value[key].as_str().unwrap_or("-"));
        let line = format!(
            "{} {} {} {} {} {}",
            value["position"],
            text("time"),
            text("actor"),
            text("action"),
            text("subjectId"),
            text("outcome")
        );
        out.told(&value, &line)?;
    }
    if let Some(id) = field("id") {
        *last = Some(id.to_owned());
    }
    Ok(())
}
