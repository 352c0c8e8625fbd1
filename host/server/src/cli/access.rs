//! Where the server is and who the client is, from flags, environment and settings.

use std::path::PathBuf;

use clap::Parser;

use super::client::Place;
use super::exit::CliError;
use crate::access::operator::read_token_file;
use crate::settings::{Places, ServeArgs, Settings};

#[derive(Parser)]
struct FromEnvironment {
    #[command(flatten)]
    serve: ServeArgs,
}

/// The server: as it was named, else the Unix socket where `serve` would put it.
pub fn server(named: Option<String>) -> Result<Place, CliError> {
    if let Some(named) = named {
        return named.parse().map_err(CliError::Usage);
    }
    let args = FromEnvironment::try_parse_from(["leasehold"])
        .map_err(|e| CliError::Usage(e.to_string()))?
        .serve;
    let settings = Settings::resolve(args, &Places::of_this_user())
        .map_err(|e| CliError::Usage(e.to_string()))?;
    Ok(Place::Unix(settings.socket))
}

/// The token, if there is one. It is never taken from the data directory by itself: whatever listens on a
/// TCP port would get it.
pub fn token(file: Option<PathBuf>) -> Result<Option<String>, CliError> {
    let (from, token) = match file {
        Some(path) => {
            let from = format!("--token-file: {}", path.display());
            let token =
                read_token_file(&path).map_err(|e| CliError::Usage(format!("{from}: {e}")))?;
            (from, token)
        }
        None => match std::env::var("LEASEHOLD_TOKEN") {
            Ok(token) => ("LEASEHOLD_TOKEN".to_owned(), token),
            Err(std::env::VarError::NotPresent) => return Ok(None),
            // Its own words would repeat what it holds.
            Err(std::env::VarError::NotUnicode(_)) => ("LEASEHOLD_TOKEN".to_owned(), String::new()),
        },
    };
    let token = token.trim().to_owned();
    if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(CliError::Usage(format!(
            "{from}: holds no token; one is the single line that `leasehold token create` printed"
        )));
    }
    Ok(Some(token))
}
