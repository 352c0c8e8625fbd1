//! `secret rekey`: on this machine, while no server runs.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::exit::{CliError, DONE};
use super::output::Output;
use crate::server;
use crate::settings::{Places, ServeArgs, Settings};

/// Which database and which key: as `serve` is told.
#[derive(Debug, Args)]
pub struct RekeyArgs {
    /// Settings file, as `serve` takes it
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_CONFIG")]
    config: Option<PathBuf>,
    /// Directory of the database, as `serve` takes it
    #[arg(long, value_name = "DIR", env = "LEASEHOLD_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// Master key file, as `serve` takes it; the new key takes its place
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_MASTER_KEY")]
    master_key: Option<PathBuf>,
}

impl RekeyArgs {
    /// Does it.
    pub async fn run(self, out: &Output) -> Result<u8, CliError> {
        let args = ServeArgs {
            config: self.config,
            data_dir: self.data_dir,
            master_key: self.master_key,
            ..ServeArgs::default()
        };
        let settings = Settings::resolve(args, &Places::of_this_user())
            .map_err(|e| CliError::Usage(e.to_string()))?;
        let done = server::rekey(&settings)
            .await
            .map_err(|e| CliError::Local(e.to_string()))?;
        let key = settings.master_key.display();
        let old = done.old_key.display();
        let what = match done.rows {
            Some(rows) => format!("{key} is another key now, and {rows} rows are under it"),
            None => format!("{key} is another key now: what was broken off is ended"),
        };
        out.told(
            &json!({ "rows": done.rows, "oldKey": done.old_key }),
            &format!(
                "{what}\nthe old key stays at {old}: it opens the backups that were made before, and nothing else; \
                 keep a copy of the new one, apart from the data"
            ),
        )?;
        Ok(DONE)
    }
}
