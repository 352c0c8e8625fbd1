//! `cp`: a file or a directory into or out of a lease, as a tar archive that streams.

use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;
use clap::Args;
use futures_util::StreamExt;
use http_body_util::BodyExt;
use hyper::body::Frame;
use tokio::sync::mpsc;

use super::client::{Client, encode};
use super::exit::{CliError, DONE};
use super::progress::during;

const CHUNK: usize = 64 << 10;

/// `cp …`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  leasehold cp ./src lease_…:.           the directory src into the lease's workspace
  leasehold cp lease_…:out/report.txt .  a file from the lease into this directory")]
pub struct CopyArgs {
    /// A local path, or LEASE:PATH
    from: String,
    /// LEASE:DIRECTORY that exists, or a local directory that exists
    to: String,
}

enum Side {
    Here(PathBuf),
    There { lease: String, path: String },
}

fn side(text: &str) -> Side {
    match text.split_once(':') {
        // A local name with a colon is written ./a:b.
        Some((lease, path)) if !lease.is_empty() && !lease.contains('/') => Side::There {
            lease: lease.to_owned(),
            path: if path.is_empty() { "." } else { path }.to_owned(),
        },
        _ => Side::Here(text.into()),
    }
}

impl CopyArgs {
    /// Does it.
    pub async fn run(self, client: &Client) -> Result<u8, CliError> {
        match (side(&self.from), side(&self.to)) {
            (Side::Here(from), Side::There { lease, path }) => {
                during("copying", upload(client, from, &lease, &path)).await?;
            }
            (Side::There { lease, path }, Side::Here(to)) => {
                during("copying", download(client, &lease, &path, to)).await?;
            }
            _ => {
                return Err(CliError::Usage(
                    "one of the two is LEASE:PATH, and the other is here".into(),
                ));
            }
        }
        Ok(DONE)
    }
}

fn files(lease: &str, path: &str) -> String {
    format!(
        "/api/environment-leases/{}/files?path={}",
        encode(lease),
        encode(path)
    )
}

async fn upload(client: &Client, from: PathBuf, lease: &str, path: &str) -> Result<(), CliError> {
    let kind = std::fs::symlink_metadata(&from)
        .map_err(|e| CliError::Usage(format!("{}: {e}", from.display())))?;
    let whole = std::fs::canonicalize(&from)
        .map_err(|e| CliError::Usage(format!("{}: {e}", from.display())))?;
    let name = match whole.file_name() {
        Some(name) => PathBuf::from(name),
        None => {
            return Err(CliError::Usage(
                "the root of this machine has no name to copy".into(),
            ));
        }
    };
    let (sender, receiver) = mpsc::channel(4);
    let packing = tokio::task::spawn_blocking(move || {
        let mut archive = tar::Builder::new(Pipe {
            sender: sender.clone(),
            buffer: Vec::with_capacity(CHUNK),
        });
        archive.follow_symlinks(false);
        let packed = if kind.is_dir() || whole.is_dir() {
            archive.append_dir_all(&name, &whole)
        } else {
            archive.append_path_with_name(&whole, &name)
        };
        let ended = packed
            .and_then(|()| archive.into_inner())
            .and_then(|mut pipe| pipe.flush());
        if let Err(e) = &ended {
            // The request breaks off, so that half an archive is never taken for a whole one.
            let _ = sender.blocking_send(Err(io::Error::new(e.kind(), e.to_string())));
        }
        ended
    });
    let body = futures_util::stream::unfold(receiver, |mut receiver| async move {
        let next = receiver.recv().await?;
        Some((next.map(Frame::data), receiver))
    });
    let sent = client.put_archive(&files(lease, path), body.boxed()).await;
    match packing.await {
        // A server that refuses stops reading: its refusal is what happened.
        Ok(Err(e)) if sent.is_ok() || e.kind() != io::ErrorKind::BrokenPipe => {
            Err(CliError::Local(format!("{}: {e}", from.display())))
        }
        _ => sent,
    }
}

/// The writing end of a channel of chunks.
struct Pipe {
    sender: mpsc::Sender<io::Result<Bytes>>,
    buffer: Vec<u8>,
}

impl Write for Pipe {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(data);
        if self.buffer.len() >= CHUNK {
            self.flush()?;
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let chunk = std::mem::replace(&mut self.buffer, Vec::with_capacity(CHUNK));
        self.sender
            .blocking_send(Ok(chunk.into()))
            .map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

async fn download(client: &Client, lease: &str, path: &str, to: PathBuf) -> Result<(), CliError> {
    if !to.is_dir() {
        return Err(CliError::Usage(format!(
            "{}: is not a directory that exists",
            to.display()
        )));
    }
    let mut body = client.get_archive(&files(lease, path)).await?;
    let (sender, receiver) = mpsc::channel::<io::Result<Bytes>>(4);
    let unpacking = tokio::task::spawn_blocking(move || unpack(Chunks::new(receiver), &to));
    let mut broken = None;
    while let Some(frame) = body.frame().await {
        let chunk = match frame {
            Ok(frame) => match frame.into_data() {
                Ok(data) => Ok(data),
                Err(_) => continue,
            },
            Err(e) => {
                broken = Some(e.to_string());
                Err(io::Error::other(e.to_string()))
            }
        };
        if sender.send(chunk).await.is_err() {
            break;
        }
    }
    drop(sender);
    let unpacked = unpacking
        .await
        .map_err(|e| CliError::Local(e.to_string()))?;
    match broken {
        Some(e) => Err(CliError::Broken(format!(
            "{e}; what was written is not whole"
        ))),
        None => unpacked.map_err(|e| CliError::Local(e.to_string())),
    }
}

/// Unpacks plain files, directories and links that stay below `to`; anything else fails.
fn unpack(chunks: Chunks, to: &Path) -> io::Result<()> {
    let mut archive = tar::Archive::new(chunks);
    archive.set_preserve_permissions(false);
    archive.set_overwrite(true);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let inside = path
            .components()
            .all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
        let kind = entry.header().entry_type();
        let known = kind.is_file() || kind.is_dir() || kind.is_symlink();
        if !inside || !known || !entry.unpack_in(to)? {
            return Err(io::Error::other(format!(
                "the archive holds `{}`, which does not belong below the target",
                super::output::plain(&path.display().to_string())
            )));
        }
    }
    // The padding after the last entry: an answer that broke off inside it is not whole either.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map(|_| ())
}

/// The reading end of a channel of chunks.
struct Chunks {
    receiver: mpsc::Receiver<io::Result<Bytes>>,
    current: Bytes,
}

impl Chunks {
    fn new(receiver: mpsc::Receiver<io::Result<Bytes>>) -> Chunks {
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

    #[test]
    fn a_lease_is_told_from_a_local_path() {
        assert!(
            matches!(side("lease_1:a/b"), Side::There { lease, path } if lease == "lease_1" && path == "a/b")
        );
        assert!(matches!(side("lease_1:"), Side::There { path, .. } if path == "."));
        assert!(matches!(side("./a:b"), Side::Here(_)));
        assert!(matches!(side("plain"), Side::Here(_)));
    }
}
