//! Trees of files, in and out, as tar archives that the host reads entry by entry.
//!
//! SFTP moves them; where the server has none, or start files spoil it, `tar` over a command does. Either way the
//! host has judged every entry first ([`archive`]): nothing absolute, no `..`, no link that leads out, no device, and
//! nothing through a link. Memory is bounded in both directions, and an error at the end is an error.

mod archive;
mod pipe;
mod sftp;
mod tar;
mod write;

use std::sync::Arc;

use leasehold_contract::{ByteStream, Code, Error};
use tokio_util::sync::CancellationToken;

use crate::error::{failed, quote};
use crate::pool::Route;
use crate::remote::directory;

/// The largest piece of a file that is moved at once.
const PIECE: usize = 32 * 1024;

/// Unpacks `archive` below `root`, which exists. With `of`, a lease's acquisition, a root inside that lease's workspace
/// must be there still once every link in it is resolved. Files appear whole (written beside and renamed); modes are kept but
/// for setuid, setgid and sticky bits; owners are the account's.
///
/// # Errors
/// `invalid-config` for an archive that is refused (what came before the entry stands), `not-found` for the root, else
/// what the target said.
pub(crate) async fn put(
    route: &Route,
    root: &str,
    of: Option<&str>,
    archive: ByteStream,
) -> Result<(), Error> {
    let entries = archive::Reader::new(archive);
    let within = of
        .map(|acquisition| format!("/{acquisition}/work/"))
        .filter(|within| format!("{root}/").contains(within));
    match sftp::open(route).await? {
        Some(sftp) => sftp.put(root, within.as_deref(), entries).await,
        None => tar::put(route, root, within.as_deref(), entries).await,
    }
}

/// A tar of `path`, absolute or relative to `root` and below it; names in it begin with the last part of `path`, or with
/// `.` where it is `root` itself. A link that `path` names is followed; those in a tree are told as they are, wherever
/// they lead. Sockets, pipes, devices and names that are not UTF-8 are left out, each named in a comment
/// (`left out: …`) of a global pax header.
pub(crate) async fn get(
    route: Arc<Route>,
    root: &str,
    path: &str,
    closed: Option<CancellationToken>,
) -> Result<ByteStream, Error> {
    let full = if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("{root}/{path}")
    };
    let full = directory(&full, "path")?;
    if full != root && !full.starts_with(&format!("{}/", root.trim_end_matches('/'))) {
        return Err(outside(&route.name(), path, root));
    }
    match sftp::open(&route).await? {
        Some(sftp) => sftp.get(root, &full, closed).await,
        None => {
            let top = match full.rsplit('/').next() {
                Some(last) if full != root => last,
                _ => "",
            };
            tar::get(route, root, &full, top, closed).await
        }
    }
}

/// Why a name is left out of what is read.
const GARBLED: &str = "its name is not UTF-8";

fn no_content(target: &str, path: &str, kind: &str) -> Error {
    failed(
        Code::FailedPrecondition,
        target,
        format_args!(
            "{} is {kind}, which has no content to copy",
            quote(path.as_bytes())
        ),
    )
}

fn outside(target: &str, path: &str, root: &str) -> Error {
    failed(
        Code::PermissionDenied,
        target,
        format_args!("{:?} is not below {root}", quote(path.as_bytes())),
    )
}
