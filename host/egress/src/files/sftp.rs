//! Trees over SFTP (version 3, as OpenSSH speaks it).
//!
//! Nothing is written through a link: each directory on the way to an entry is looked at before it is used.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::{self, FuturesUnordered};
use leasehold_contract::{ByteStream, Code, Error};
use russh::ChannelMsg;
use russh_sftp::client::error::Error as SftpError;
use russh_sftp::client::{Config, RawSftpSession};
use russh_sftp::protocol::{FileAttributes, OpenFlags, Packet, StatusCode};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::archive::{Entry, Kind, Reader};
use super::pipe::pipe;
use super::write::Writer;
use super::{GARBLED, PIECE, no_content, outside};
use crate::channel::open as open_channel;
use crate::error::{failed, quote, unknown};
use crate::pool::{Line, Route, Want};

/// Requests on their way at once, of one file.
const AHEAD: usize = 16;
/// How deep a tree is read; more is a loop of mounts.
const DEPTH: usize = 256;

const TYPE: u32 = 0o170_000;
const IS_DIR: u32 = 0o040_000;
const IS_FILE: u32 = 0o100_000;
const IS_LINK: u32 = 0o120_000;

/// What something without content is, by its bits.
fn contentless(bits: u32) -> &'static str {
    match bits & TYPE {
        0o010_000 => "a pipe",
        0o140_000 => "a socket",
        0o020_000 | 0o060_000 => "a device",
        _ => "of a kind that is not known",
    }
}

/// An SFTP session on a channel of its own.
pub(super) struct Sftp {
    raw: RawSftpSession,
    posix_rename: bool,
    hardlink: bool,
    name: String,
    _line: Line,
}

/// Opens one; none where the server has no SFTP, or start files speak before it does.
pub(super) async fn open(route: &Route) -> Result<Option<Sftp>, Error> {
    let name = route.name();
    let deadline = route.settings().channel;
    let (line, mut channel) = open_channel(route, Want::Shared).await?;
    let broke = |e| {
        failed(
            Code::Unavailable,
            &name,
            format_args!("SFTP could not be asked for ({e})"),
        )
    };
    channel
        .request_subsystem(true, "sftp")
        .await
        .map_err(broke)?;
    let granted = timeout(deadline, async {
        loop {
            match channel.wait().await {
                Some(ChannelMsg::Success) => return true,
                Some(ChannelMsg::Failure | ChannelMsg::Close) | None => return false,
                Some(_) => {}
            }
        }
    });
    if !granted.await.unwrap_or(false) {
        let _ = channel.close().await;
        return Ok(None);
    }
    let config = Config {
        max_concurrent_reads: AHEAD,
        max_concurrent_writes: AHEAD,
        request_timeout_secs: 60,
        ..Config::default()
    };
    let raw = RawSftpSession::new_with_config(channel.into_stream(), config);
    match timeout(deadline, raw.init()).await {
        Ok(Ok(version)) => {
            let has = |e: &str| version.extensions.contains_key(e);
            Ok(Some(Sftp {
                posix_rename: has("posix-rename@openssh.com"),
                hardlink: has("hardlink@openssh.com"),
                raw,
                name,
                _line: line,
            }))
        }
        // What came was no SFTP: a start file's text, or a shell that does not know the server's program.
        _ => Ok(None),
    }
}

fn join(root: &str, path: &str) -> String {
    match (root, path) {
        (root, "") => root.to_owned(),
        ("/", path) => format!("/{path}"),
        (root, path) => format!("{root}/{path}"),
    }
}

fn mode_only(mode: u32) -> FileAttributes {
    FileAttributes {
        permissions: Some(mode),
        ..FileAttributes::default()
    }
}

fn extended(parts: [&str; 2]) -> Vec<u8> {
    let mut data = Vec::new();
    for part in parts {
        data.extend_from_slice(&(part.len() as u32).to_be_bytes());
        data.extend_from_slice(part.as_bytes());
    }
    data
}

impl Sftp {
    fn error(&self, place: &str, error: &SftpError) -> Error {
        let place = quote(place.as_bytes());
        match error {
            SftpError::Status(status) => {
                let said = quote(status.error_message.as_bytes());
                let (code, hint) = match status.status_code {
                    StatusCode::NoSuchFile => (Code::NotFound, ""),
                    StatusCode::PermissionDenied => (Code::PermissionDenied, ""),
                    StatusCode::OpUnsupported => (Code::Unsupported, ""),
                    StatusCode::Failure => (
                        Code::FailedPrecondition,
                        "; a full disk or something in the way shows as this",
                    ),
                    _ => (Code::FailedPrecondition, ""),
                };
                failed(code, &self.name, format_args!("{place}: {said}{hint}"))
            }
            other => unknown(
                &self.name,
                format_args!("{place}: SFTP broke off ({other})"),
            ),
        }
    }

    async fn kind(&self, path: &str) -> Result<Option<u32>, Error> {
        match self.raw.lstat(path).await {
            Ok(attrs) => Ok(Some(attrs.attrs.permissions.unwrap_or(0) & TYPE)),
            Err(SftpError::Status(s)) if s.status_code == StatusCode::NoSuchFile => Ok(None),
            Err(e) => Err(self.error(path, &e)),
        }
    }

    async fn real(&self, path: &str) -> Result<String, Error> {
        let name = self
            .raw
            .realpath(path)
            .await
            .map_err(|e| self.error(path, &e))?;
        let first = name.files.into_iter().next().map(|f| f.filename);
        first.ok_or_else(|| failed(Code::Internal, &self.name, "realpath answered nothing"))
    }

    /// The root itself, links resolved; it must be a directory.
    async fn root(&self, root: &str) -> Result<String, Error> {
        // OpenSSH resolves what does not exist as well: so it is looked at first.
        let attrs = self
            .raw
            .stat(root)
            .await
            .map_err(|e| self.error(root, &e))?;
        if attrs.attrs.permissions.unwrap_or(0) & TYPE != IS_DIR {
            return Err(failed(
                Code::FailedPrecondition,
                &self.name,
                format_args!("{root} is not a directory"),
            ));
        }
        self.real(root).await
    }

    pub(super) async fn put(
        self,
        asked: &str,
        within: Option<&str>,
        mut archive: Reader,
    ) -> Result<(), Error> {
        let root = self.root(asked).await?;
        if within.is_some_and(|within| !format!("{root}/").contains(within)) {
            return Err(failed(
                Code::PermissionDenied,
                &self.name,
                format_args!("{asked} leads out of the lease's workspace through a link"),
            ));
        }
        // Directories that were seen to be directories, and the modes that they get when all is in them.
        let mut known: HashSet<String> = HashSet::from([String::new()]);
        let mut modes: HashMap<String, u32> = HashMap::new();
        while let Some(entry) = archive.next().await? {
            let (above, _) = entry.path.rsplit_once('/').unwrap_or(("", ""));
            self.directories(&root, above, &mut known).await?;
            let place = join(&root, &entry.path);
            match &entry.kind {
                Kind::Directory => {
                    self.directories(&root, &entry.path, &mut known).await?;
                    modes.insert(entry.path.clone(), entry.mode);
                }
                Kind::File => self.file(&place, &entry, &mut archive).await?,
                Kind::Symlink(to) => {
                    let beside = self.beside(&place);
                    // OpenSSH takes the two in the order of symlink(2), other than the draft has them.
                    let made = self.raw.symlink(to.as_str(), beside.as_str()).await;
                    made.map_err(|e| self.error(&place, &e))?;
                    self.rename(&beside, &place).await?;
                }
                Kind::Hardlink(to) => {
                    let (above, _) = to.rsplit_once('/').unwrap_or(("", ""));
                    self.directories(&root, above, &mut known).await?;
                    self.hardlink(&join(&root, to), &place).await?;
                }
            }
        }
        let mut deepest: Vec<(String, u32)> = modes.into_iter().collect();
        deepest.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        for (path, mode) in deepest.into_iter().filter(|(path, _)| !path.is_empty()) {
            let place = join(&root, &path);
            let set = self.raw.setstat(place.as_str(), mode_only(mode)).await;
            set.map_err(|e| self.error(&place, &e))?;
        }
        Ok(())
    }

    /// Makes the directories of `path`, or sees that they are ones; never through a link.
    async fn directories(
        &self,
        root: &str,
        path: &str,
        known: &mut HashSet<String>,
    ) -> Result<(), Error> {
        if known.contains(path) {
            return Ok(());
        }
        let ends = path.match_indices('/').map(|(i, _)| i);
        for end in ends.chain([path.len()]) {
            let part = &path[..end];
            if known.contains(part) {
                continue;
            }
            let place = join(root, part);
            match self.kind(&place).await? {
                Some(IS_DIR) => {}
                None => {
                    let made = self.raw.mkdir(place.as_str(), mode_only(0o755)).await;
                    made.map_err(|e| self.error(&place, &e))?;
                }
                Some(IS_LINK) => {
                    return Err(failed(
                        Code::FailedPrecondition,
                        &self.name,
                        format_args!(
                            "{} is a link, and nothing is unpacked through one",
                            quote(place.as_bytes())
                        ),
                    ));
                }
                Some(_) => {
                    return Err(failed(
                        Code::FailedPrecondition,
                        &self.name,
                        format_args!(
                            "{} is in the way: the archive has a directory there",
                            quote(place.as_bytes())
                        ),
                    ));
                }
            }
            known.insert(part.to_owned());
        }
        Ok(())
    }

    fn beside(&self, place: &str) -> String {
        let (above, _) = place.rsplit_once('/').unwrap_or(("", ""));
        format!("{above}/.leasehold-{}", crate::random_hex::<8>())
    }

    async fn file(&self, place: &str, entry: &Entry, archive: &mut Reader) -> Result<(), Error> {
        let beside = self.beside(place);
        let written = self.write(&beside, entry, archive).await;
        let done = match written {
            Ok(()) => self.rename(&beside, place).await,
            Err(e) => Err(e),
        };
        if done.is_err() {
            let _ = self.raw.remove(beside.as_str()).await;
        }
        done
    }

    async fn write(&self, beside: &str, entry: &Entry, archive: &mut Reader) -> Result<(), Error> {
        let wrong = |e: SftpError| self.error(&entry.path, &e);
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUDE;
        let opened = self.raw.open(beside, flags, mode_only(0o600)).await;
        let handle = opened.map_err(wrong)?.handle;
        let mut going = FuturesUnordered::new();
        let mut offset = 0;
        let mut failure = None;
        loop {
            let piece = match archive.content(PIECE).await {
                Ok(piece) => piece,
                Err(e) => {
                    failure = Some(e);
                    break;
                }
            };
            if piece.is_empty() {
                break;
            }
            let size = piece.len() as u64;
            going.push(self.raw.write(handle.as_str(), offset, piece));
            offset += size;
            if going.len() >= AHEAD
                && let Some(Err(e)) = going.next().await
            {
                failure = Some(wrong(e));
                break;
            }
        }
        while let Some(done) = going.next().await {
            if let Err(e) = done {
                failure.get_or_insert(wrong(e));
            }
        }
        if failure.is_none() {
            let attrs = FileAttributes {
                permissions: Some(entry.mode),
                atime: u32::try_from(entry.modified).ok(),
                mtime: u32::try_from(entry.modified).ok(),
                ..FileAttributes::default()
            };
            if let Err(e) = self.raw.fsetstat(handle.as_str(), attrs).await {
                failure = Some(wrong(e));
            }
        }
        let closed = self.raw.close(handle.as_str()).await;
        match failure {
            Some(e) => Err(e),
            None => closed.map(drop).map_err(wrong),
        }
    }

    /// Puts `from` at `to`, over whatever file or link is there, at once where the server can.
    async fn rename(&self, from: &str, to: &str) -> Result<(), Error> {
        let done = if self.posix_rename {
            match self
                .raw
                .extended("posix-rename@openssh.com", extended([from, to]))
                .await
            {
                Ok(Packet::Status(s)) if s.status_code == StatusCode::Ok => Ok(()),
                Ok(Packet::Status(s)) => Err(SftpError::Status(s)),
                Ok(_) => Err(SftpError::UnexpectedPacket),
                Err(e) => Err(e),
            }
        } else {
            let _ = self.raw.remove(to).await;
            self.raw.rename(from, to).await.map(drop)
        };
        match done {
            Ok(()) => Ok(()),
            Err(e) => {
                let _ = self.raw.remove(from).await;
                Err(self.error(to, &e))
            }
        }
    }

    async fn hardlink(&self, from: &str, to: &str) -> Result<(), Error> {
        if self.kind(from).await? != Some(IS_FILE) {
            return Err(failed(
                Code::InvalidConfig,
                &self.name,
                format_args!(
                    "the archive links to {}, which is not a file there",
                    quote(from.as_bytes())
                ),
            ));
        }
        if !self.hardlink {
            return Err(failed(
                Code::Unsupported,
                &self.name,
                "the archive has a hard link and the server's SFTP makes none",
            ));
        }
        let beside = self.beside(to);
        let made = self.raw.hardlink(from, beside.as_str()).await;
        made.map_err(|e| self.error(to, &e))?;
        self.rename(&beside, to).await
    }

    pub(super) async fn get(
        self,
        root: &str,
        full: &str,
        closed: Option<CancellationToken>,
    ) -> Result<ByteStream, Error> {
        let root = self.root(root).await?;
        let top = self
            .raw
            .lstat(full)
            .await
            .map_err(|e| self.error(full, &e))?;
        let real = self.real(full).await?;
        // Links on the way may lead anywhere: what counts is where it really lies.
        if real != root
            && !real.starts_with(&join(&root, "x")[..root.trim_end_matches('/').len() + 1])
        {
            return Err(outside(&self.name, full, &root));
        }
        let name = match full.rsplit('/').next() {
            Some(last) if real != root => last.to_owned(),
            _ => String::new(),
        };
        let attrs = if top.attrs.permissions.unwrap_or(0) & TYPE == IS_LINK {
            // Named itself, a link is followed.
            match self.raw.stat(full).await {
                Ok(found) => found.attrs,
                Err(SftpError::Status(s)) if s.status_code == StatusCode::NoSuchFile => {
                    return Err(failed(
                        Code::NotFound,
                        &self.name,
                        format_args!(
                            "{} is a link to something that is not there",
                            quote(full.as_bytes())
                        ),
                    ));
                }
                Err(e) => return Err(self.error(full, &e)),
            }
        } else {
            top.attrs
        };
        let bits = attrs.permissions.unwrap_or(0);
        if bits & TYPE != IS_DIR && bits & TYPE != IS_FILE {
            return Err(no_content(&self.name, full, contentless(bits)));
        }
        let sftp = Arc::new(self);
        Ok(pipe(closed, move |sink| async move {
            let writer = Writer::new(sink);
            sftp.tree(&writer, real, name, attrs).await?;
            writer.finish().await
        }))
    }

    /// Writes `place` and all below it, depth first, without a stack of calls.
    async fn tree(
        &self,
        writer: &Writer,
        place: String,
        name: String,
        attrs: FileAttributes,
    ) -> Result<(), Error> {
        let mut waiting = vec![(place, name, attrs)];
        while let Some((place, path, attrs)) = waiting.pop() {
            let bits = attrs.permissions.unwrap_or(0);
            let mut entry = Entry {
                path: path.clone(),
                kind: Kind::Directory,
                mode: bits & 0o777,
                size: 0,
                modified: attrs.mtime.unwrap_or(0).into(),
            };
            match bits & TYPE {
                IS_DIR => {
                    writer.entry(&entry).await?;
                    if path.matches('/').count() > DEPTH {
                        return Err(failed(
                            Code::FailedPrecondition,
                            &self.name,
                            format_args!(
                                "{} is more than {DEPTH} directories deep",
                                quote(place.as_bytes())
                            ),
                        ));
                    }
                    let mut below = self.list(&place).await?;
                    below.sort_by(|a, b| b.0.cmp(&a.0));
                    for (name, attrs) in below {
                        let (place, path) = (join(&place, &name), join_name(&path, &name));
                        // What is not UTF-8 came with other characters in its name, by which nothing is found.
                        if name.contains(char::REPLACEMENT_CHARACTER)
                            && self.kind(&place).await?.is_none()
                        {
                            writer.left_out(&path, GARBLED).await?;
                            continue;
                        }
                        waiting.push((place, path, attrs));
                    }
                }
                IS_LINK => {
                    let to = self.raw.readlink(place.as_str()).await;
                    let to = to.map_err(|e| self.error(&place, &e))?;
                    if let Some(to) = to.files.into_iter().next() {
                        entry.kind = Kind::Symlink(to.filename);
                        writer.entry(&entry).await?;
                    }
                }
                IS_FILE => {
                    entry.kind = Kind::File;
                    self.read(writer, &place, entry).await?;
                }
                _ => writer.left_out(&path, contentless(bits)).await?,
            }
        }
        Ok(())
    }

    async fn list(&self, place: &str) -> Result<Vec<(String, FileAttributes)>, Error> {
        let wrong = |e: SftpError| self.error(place, &e);
        let handle = self.raw.opendir(place).await.map_err(wrong)?.handle;
        let mut all = Vec::new();
        let end = loop {
            match self.raw.readdir(handle.as_str()).await {
                Ok(names) => all.extend(
                    names
                        .files
                        .into_iter()
                        .filter(|f| f.filename != "." && f.filename != "..")
                        .filter(|f| !f.filename.contains('/') && !f.filename.is_empty())
                        .map(|f| (f.filename, f.attrs)),
                ),
                Err(SftpError::Status(s)) if s.status_code == StatusCode::Eof => break Ok(all),
                Err(e) => break Err(wrong(e)),
            }
        };
        let _ = self.raw.close(handle.as_str()).await;
        end
    }

    /// A file's entry and content. Its size is what it had when it was opened: an archive says it beforehand.
    async fn read(&self, writer: &Writer, place: &str, mut entry: Entry) -> Result<(), Error> {
        let wrong = |e: SftpError| self.error(place, &e);
        let opened = self
            .raw
            .open(place, OpenFlags::READ, FileAttributes::default())
            .await;
        let handle = opened.map_err(wrong)?.handle;
        let attrs = self.raw.fstat(handle.as_str()).await.map_err(wrong)?.attrs;
        entry.size = attrs.size.unwrap_or(0);
        writer.entry(&entry).await?;
        let starts = (0..entry.size).step_by(PIECE);
        let size = entry.size;
        let mut pieces = stream::iter(starts)
            .map(|start| {
                let length = (size - start).min(PIECE as u64) as u32;
                let handle = handle.as_str();
                async move {
                    let mut piece = self.raw.read(handle, start, length).await?.data;
                    while piece.len() < length as usize {
                        let at = start + piece.len() as u64;
                        let missing = length - piece.len() as u32;
                        // A file that became shorter ends here with the server's word for it.
                        piece.extend_from_slice(&self.raw.read(handle, at, missing).await?.data);
                    }
                    Ok::<_, SftpError>(piece)
                }
            })
            .buffered(AHEAD);
        while let Some(piece) = pieces.next().await {
            writer.content(piece.map_err(wrong)?).await?;
        }
        drop(pieces);
        writer.pad(entry.size).await?;
        self.raw
            .close(handle.as_str())
            .await
            .map(drop)
            .map_err(wrong)
    }
}

fn join_name(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}/{name}")
    }
}
