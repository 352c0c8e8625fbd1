//! Unpacks the archive that a lease's files come in, while it comes.
//!
//! Plain files, directories and links, and nothing outside of the directory that was named: not by a path, and not
//! through a link. A link itself is made as it is, wherever it leads.

use std::io::{self, Read};
use std::path::{Component, Path};

use bytes::Bytes;
use tokio::sync::mpsc;

use super::output::plain;

/// How a comment in an archive begins that names what was left out of it.
const LEFT_OUT: &str = "left out: ";
/// Comments that are kept, at most.
const KEPT: usize = 1000;

/// Unpacks below `to`, and answers what the archive says was left out of it.
pub fn unpack(chunks: Chunks, to: &Path) -> io::Result<Vec<String>> {
    let mut archive = tar::Archive::new(chunks);
    archive.set_preserve_permissions(false);
    archive.set_overwrite(true);
    let mut left_out = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        if kind.is_pax_global_extensions() {
            for record in entry.pax_extensions()?.into_iter().flatten() {
                let record = record?;
                if record.key_bytes() == b"comment"
                    && let Some(what) = record.value().unwrap_or("").strip_prefix(LEFT_OUT)
                    && left_out.len() < KEPT
                {
                    left_out.push(plain(what));
                }
            }
            continue;
        }
        let path = entry.path()?.into_owned();
        let inside = path
            .components()
            .all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
        let known = kind.is_file() || kind.is_dir() || kind.is_symlink() || kind.is_hard_link();
        let unpacked = known && inside && entry.unpack_in(to).map_err(|e| whole(&e))?;
        if !unpacked {
            return Err(io::Error::other(format!(
                "the archive holds `{}`, which does not belong below the target",
                plain(&path.display().to_string())
            )));
        }
    }
    // The padding after the last entry: an answer that broke off inside it is not whole either.
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    Ok(left_out)
}

/// An error with its causes, which `tar` keeps apart from its own words.
fn whole(error: &io::Error) -> io::Error {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text.push_str(&format!(": {next}"));
        cause = next.source();
    }
    io::Error::new(error.kind(), text)
}

/// The reading end of a channel of chunks.
pub struct Chunks {
    receiver: mpsc::Receiver<io::Result<Bytes>>,
    current: Bytes,
}

impl Chunks {
    /// Of this channel.
    pub fn new(receiver: mpsc::Receiver<io::Result<Bytes>>) -> Chunks {
        Chunks {
            receiver,
            current: Bytes::new(),
        }
    }
}

impl Read for Chunks {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.receiver.blocking_recv() {
                None => return Ok(0),
                Some(chunk) => self.current = chunk?,
            }
        }
        let length = out.len().min(self.current.len());
        out[..length].copy_from_slice(&self.current.split_to(length));
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpacked(bytes: Vec<u8>, to: &Path) -> io::Result<Vec<String>> {
        let (sender, receiver) = mpsc::channel(1);
        sender.blocking_send(Ok(bytes.into())).unwrap();
        drop(sender);
        unpack(Chunks::new(receiver), to)
    }

    fn archive(fill: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        fill(&mut builder);
        builder.into_inner().unwrap()
    }

    fn entry(kind: tar::EntryType, size: u64) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mode(0o644);
        header
    }

    #[test]
    fn what_was_left_out_is_told_and_everything_else_is_there() {
        let room = tempfile::tempdir().unwrap();
        let bytes = archive(|b| {
            let record: &[u8] = b"32 comment=left out: a (a pipe)\n";
            let mut header = entry(tar::EntryType::XGlobalHeader, record.len() as u64);
            b.append_data(&mut header, "pax_global_header", record)
                .unwrap();
            let mut header = entry(tar::EntryType::Regular, 1);
            b.append_data(&mut header, "b", &b"x"[..]).unwrap();
        });
        assert_eq!(unpacked(bytes, room.path()).unwrap(), ["a (a pipe)"]);
        assert_eq!(std::fs::read(room.path().join("b")).unwrap(), b"x");
    }

    #[test]
    fn a_link_is_made_as_it_is_and_nothing_is_written_through_it() {
        let room = tempfile::tempdir().unwrap();
        let (to, outside) = (room.path().join("to"), room.path().join("outside"));
        std::fs::create_dir(&to).unwrap();
        std::fs::create_dir(&outside).unwrap();
        let link = |b: &mut tar::Builder<Vec<u8>>| {
            let mut header = entry(tar::EntryType::Symlink, 0);
            b.append_link(&mut header, "link", &outside).unwrap();
        };
        assert!(unpacked(archive(link), &to).unwrap().is_empty());
        assert_eq!(std::fs::read_link(to.join("link")).unwrap(), outside);
        let through = archive(|b| {
            let mut header = entry(tar::EntryType::Regular, 1);
            b.append_data(&mut header, "link/x", &b"x"[..]).unwrap();
        });
        assert!(unpacked(through, &to).is_err());
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    }

    #[test]
    fn a_pipe_or_device_in_an_archive_is_refused_by_name() {
        let room = tempfile::tempdir().unwrap();
        let bytes = archive(|b| {
            let mut header = entry(tar::EntryType::Fifo, 0);
            b.append_data(&mut header, "pipe", io::empty()).unwrap();
        });
        let error = unpacked(bytes, room.path()).unwrap_err();
        assert!(error.to_string().contains("`pipe`"), "{error}");
    }
}
