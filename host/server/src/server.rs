//! `leasehold serve`: from settings to a server that answers, and back to nothing.
//!
//! In order: signals are caught, the data directory is locked, the master key and the database are opened, the doors
//! open and `/healthz` answers, the service opens behind them, `/readyz` answers. A signal at any of these moments ends
//! what was begun, in order and with success; a second one ends the process at once, and that is no success.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use leasehold_authority::{Actor, Authority, Head, Options, Rekeyed, Verified};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::access::features::Features;
use crate::access::operations::NoRule;
use crate::access::operator::{OperatorToken, TokenFileError};
use crate::app::{Admission, App};
use crate::figures::Figures;
use crate::http::listen::{self, ListenError};
use crate::http::serve;
use crate::http::signals::Signals;
use crate::service::{OpenError, Service, ServiceOptions};
use crate::settings::{LogFormat, Settings};
use crate::telemetry::{self, Telemetry};

/// What the service gets to end in order when requests have used up the grace.
const LAST_MOMENT: Duration = Duration::from_secs(2);
/// The database's file in the data directory.
const DATABASE: &str = "leasehold.db";

/// Why the server did not start, or not stay.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Signals cannot be caught.
    #[error("signals cannot be caught: {0}")]
    Signals(io::Error),
    /// The data directory cannot be used.
    #[error("data-dir: {}: {message}", path.display())]
    DataDir {
        /// Which.
        path: PathBuf,
        /// Why not, and how to mend it.
        message: String,
    },
    /// The operator's token file.
    #[error(transparent)]
    Token(#[from] TokenFileError),
    /// The master key, or the database.
    #[error(transparent)]
    Authority(Box<leasehold_authority::OpenError>),
    /// The activity is not what was written.
    #[error(transparent)]
    Activity(leasehold_authority::Error),
    /// A route that the policy does not know: a mistake of this program.
    #[error(transparent)]
    NoRule(#[from] NoRule),
    /// A door.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The service behind.
    #[error(transparent)]
    Open(Box<OpenError>),
    /// A second signal.
    #[error("ended at once by a second signal; the next start finishes what this one left")]
    Cut,
}

impl ServeError {
    /// Whether what the settings name is not what it should be: another start fails alike until they are mended.
    pub fn is_configuration(&self) -> bool {
        matches!(self, ServeError::Open(error) if matches!(**error, OpenError::Sources(_)))
    }
}

impl From<OpenError> for ServeError {
    fn from(error: OpenError) -> ServeError {
        ServeError::Open(Box::new(error))
    }
}

/// Starts writing logs to standard error, and telemetry to a collector where there is one, as the settings say. The error
/// names what cannot be read. Where there is a collector, tokio must run already.
pub fn start_logs(settings: &Settings) -> Result<Option<Telemetry>, String> {
    let wrong = |e: &dyn std::fmt::Display| {
        format!(
            "log-level: `{}`: {e}; write it like info",
            settings.log_level
        )
    };
    let filter = EnvFilter::try_new(&settings.log_level).map_err(|e| wrong(&e))?;
    // Spans for a collector are no part of the log.
    let no_spans = format!("{}=off", telemetry::TARGET).parse();
    let filter = filter.add_directive(no_spans.map_err(|e| wrong(&e))?);
    let logs = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let logs = match settings.log_format {
        LogFormat::Text => {
            let colours = io::IsTerminal::is_terminal(&io::stderr());
            logs.with_ansi(colours).with_filter(filter).boxed()
        }
        LogFormat::Json => logs.json().flatten_event(true).with_filter(filter).boxed(),
    };
    let telemetry = settings.collector.as_ref().map(Telemetry::start);
    let telemetry = telemetry.transpose().map_err(|e| e.to_string())?;
    tracing_subscriber::registry()
        .with(logs)
        .with(telemetry.as_ref().map(Telemetry::layer))
        .try_init()
        .map_err(|e| format!("logs cannot be started: {e}"))?;
    Ok(telemetry)
}

/// Serves until a signal ends it.
pub async fn run(settings: Settings, telemetry: Option<&Telemetry>) -> Result<(), ServeError> {
    let signals = Signals::catch().map_err(ServeError::Signals)?;
    let closing = CancellationToken::new();
    let hard = CancellationToken::new();
    let watching = tokio::spawn(signals.watch(closing.clone(), hard.clone()));
    let ended = tokio::select! {
        // First: what the second signal cut may be over before this is asked again, and was not in order.
        biased;
        () = hard.cancelled() => Err(ServeError::Cut),
        ended = serve_until(&settings, telemetry, &closing, &hard) => ended,
    };
    watching.abort();
    ended
}

async fn serve_until(
    settings: &Settings,
    telemetry: Option<&Telemetry>,
    closing: &CancellationToken,
    hard: &CancellationToken,
) -> Result<(), ServeError> {
    let data = open_data_dir(&settings.data_dir)?;
    let _lock = lock(&data, &settings.data_dir)?;
    let operator = OperatorToken::open_or_make(&data)?;
    let operations = crate::api::operations()?;
    // What cannot be served is not listened for.
    let opened = tokio::select! {
        biased;
        () = closing.cancelled() => return Ok(()),
        opened = open_authority(settings, &data) => opened,
    };
    let authority = opened?;
    let doors = match listen::open(settings.listen, &settings.socket).await {
        Ok(doors) => doors,
        Err(e) => {
            authority.close().await;
            return Err(e.into());
        }
    };
    let app = App::new(
        settings.limits.clone(),
        &settings.allowed_hosts,
        doors.address,
        Admission {
            operator,
            operations,
            features: Features {
                environments: settings.environments.enabled,
                managed_only: settings.environments.managed_only,
            },
        },
        closing.clone(),
    );
    match doors.address {
        Some(address) => {
            tracing::info!(%address, socket = %doors.path.display(), "listening");
        }
        None => tracing::info!(socket = %doors.path.display(), "listening"),
    }
    let figures = Figures::new(app.metrics().clone());
    if let Some(telemetry) = telemetry {
        telemetry.tell(&figures);
    }
    let router = crate::api::router(app.clone());
    let limits = settings.limits.clone();
    let cut = hard.child_token();
    let served = {
        let (closing, hard, metrics) = (closing.clone(), cut.clone(), app.metrics().clone());
        tokio::spawn(async move {
            serve::serve(doors, router, &limits, &metrics, &closing, &hard).await;
        })
    };

    let options = ServiceOptions {
        authority: authority.clone(),
        data_dir: data,
        component_bytes: settings.limits.component,
        plugins: settings.plugins.clone(),
        host_roots: settings.host_roots.clone(),
        environments: settings.environments.clone(),
    };
    let opened = tokio::select! {
        biased;
        () = closing.cancelled() => None,
        opened = Service::open(options) => Some(opened),
    };
    let service = match opened {
        Some(Ok(service)) => {
            app.set_service(service.clone());
            figures.serve(service.clone());
            tracing::info!("ready");
            closing.cancelled().await;
            Some(service)
        }
        Some(Err(e)) => {
            closing.cancel();
            cut.cancel();
            let _ = served.await;
            authority.close().await;
            return Err(e.into());
        }
        None => None,
    };

    // Requests and streams have the grace; what the service has begun has what is left of it, and a moment.
    let until = tokio::time::Instant::now() + settings.limits.shutdown_grace;
    let ended = async {
        app.streams().close();
        app.streams().wait().await;
        let _ = served.await;
    };
    if tokio::time::timeout_at(until, ended).await.is_err() {
        tracing::warn!("not every request ended within the grace");
    }
    if let Some(service) = service {
        if telemetry.is_some() {
            figures.keep().await;
        }
        let left = until.saturating_duration_since(tokio::time::Instant::now());
        service.shutdown(left.max(LAST_MOMENT)).await;
    }
    authority.close().await;
    tracing::info!("stopped");
    Ok(())
}

/// Gives the database another master key, while no server uses the data directory.
pub async fn rekey(settings: &Settings) -> Result<Rekeyed, ServeError> {
    if !settings.data_dir.exists() {
        return Err(refused(&settings.data_dir, "does not exist"));
    }
    let data = open_data_dir(&settings.data_dir)?;
    let _lock = lock(&data, &settings.data_dir)?;
    let options = options_of(settings, &data)?;
    Authority::rekey(options, &Actor::local_operator())
        .await
        .map_err(|e| ServeError::Authority(Box::new(e)))
}

/// Checks the activity's chain, while no server uses the data directory. `kept` is an earlier head, which must be in it.
pub async fn verify_activity(
    settings: &Settings,
    kept: Option<&Head>,
) -> Result<Verified, ServeError> {
    if !settings.data_dir.join(DATABASE).exists() {
        return Err(refused(&settings.data_dir, "has no database"));
    }
    let data = open_data_dir(&settings.data_dir)?;
    let _lock = lock(&data, &settings.data_dir)?;
    let authority = open_authority(settings, &data).await?;
    let verified = authority.activity().verify(kept).await;
    authority.close().await;
    verified.map_err(ServeError::Activity)
}

async fn open_authority(settings: &Settings, data: &Dir) -> Result<Authority, ServeError> {
    Authority::open(options_of(settings, data)?)
        .await
        .map_err(|e| ServeError::Authority(Box::new(e)))
}

fn options_of(settings: &Settings, data: &Dir) -> Result<Options, ServeError> {
    let data_dir = data
        .try_clone()
        .map_err(|e| refused(&settings.data_dir, e.to_string()))?;
    Ok(Options {
        database: settings.data_dir.join(DATABASE),
        data_dir,
        master_key: settings.master_key.clone(),
        replica: "main".to_owned(),
    })
}

fn refused(path: &Path, message: impl Into<String>) -> ServeError {
    ServeError::DataDir {
        path: path.to_owned(),
        message: message.into(),
    }
}

/// Opens the data directory, making it for the owner alone when it is not there.
fn open_data_dir(path: &Path) -> Result<Dir, ServeError> {
    let failed = |e: io::Error| refused(path, e.to_string());
    if !path.exists() {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(failed)?;
    }
    let found = std::fs::metadata(path).map_err(failed)?;
    if !found.is_dir() {
        return Err(refused(path, "is not a directory"));
    }
    let me = rustix::process::geteuid().as_raw();
    if found.uid() != me {
        return Err(refused(
            path,
            format!(
                "belongs to uid {}, and this server runs as {me}",
                found.uid()
            ),
        ));
    }
    let mode = found.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(refused(
            path,
            format!("has mode {mode:04o}, so others can look in; run `chmod 700` on it"),
        ));
    }
    Dir::open_ambient_dir(path, cap_std::ambient_authority()).map_err(failed)
}

/// Held as long as the server lives; the kernel lets go of it whatever ends the process.
fn lock(data: &Dir, path: &Path) -> Result<cap_std::fs::File, ServeError> {
    let file = data
        .open_with(
            "lock",
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .mode(0o600),
        )
        .map_err(|e| refused(path, format!("its lock file: {e}")))?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(refused(
            path,
            "another server uses it; stop that one, or give another directory with --data-dir",
        )),
        Err(e) => Err(refused(path, format!("its lock file: {e}"))),
    }
}
