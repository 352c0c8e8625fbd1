//! `cp`: a file or a directory into or out of a lease, as a tar archive that streams.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use clap::Args;
use futures_util::StreamExt;
use http_body_util::BodyExt;
use hyper::body::Frame;
use tokio::sync::mpsc;

use super::client::{Client, encode};
use super::exit::{CliError, DONE};
use super::pack::{Tree, named};
use super::progress::moving;
use super::unpack::{Chunks, unpack};

const CHUNK: usize = 64 << 10;

/// `cp …`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  leasehold cp ./src lease_…:.           the directory src into the lease's workspace
  leasehold cp lease_…:out/report.txt .  a file from the lease into this directory

A local name with a colon in it is written ./a:b.

What is copied keeps its name, and replaces a file that has it already.

A link that is named itself is followed. Links below it stay links: out of a lease as they are; into a lease only \
those that lead to a place inside what is copied, and one that leads out ends the copy.

Pipes, sockets and devices have no content: they are left out and named, and the exit code is 1.")]
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
        let moved = Arc::new(AtomicU64::new(0));
        if self.from.is_empty() || self.to.is_empty() {
            return Err(CliError::Usage(
                "a path is empty; `.` is this directory".into(),
            ));
        }
        let left_out = match (side(&self.from), side(&self.to)) {
            (Side::Here(from), Side::There { lease, path }) => {
                let copying = upload(client, from, &lease, &path, moved.clone());
                moving("copying", &moved, copying).await?
            }
            (Side::There { lease, path }, Side::Here(to)) => {
                let copying = download(client, &lease, &path, to, &moved);
                moving("copying", &moved, copying).await?
            }
            _ => {
                return Err(CliError::Usage(
                    "one of the two is LEASE:PATH, and the other is here".into(),
                ));
            }
        };
        if !left_out.is_empty() {
            return Err(CliError::Local(format!(
                "everything was copied but for {}",
                named(&left_out)
            )));
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

async fn upload(
    client: &Client,
    from: PathBuf,
    lease: &str,
    path: &str,
    moved: Arc<AtomicU64>,
) -> Result<Vec<String>, CliError> {
    let (sender, receiver) = mpsc::channel(4);
    let shown = from.display().to_string();
    let tree = tokio::task::spawn_blocking(move || Tree::of(&from));
    let tree = tree.await.map_err(|e| CliError::Local(e.to_string()))??;
    let packing = tokio::task::spawn_blocking(move || {
        let pipe = Pipe {
            sender: sender.clone(),
            buffer: Vec::with_capacity(CHUNK),
            moved,
        };
        let ended = tree.pack(pipe).and_then(|mut pipe| pipe.flush());
        if let Err(e) = &ended {
            // The request breaks off, so that half an archive is never taken for a whole one.
            let _ = sender.blocking_send(Err(io::Error::new(e.kind(), e.to_string())));
        }
        ended.map(|()| tree.left_out)
    });
    let body = futures_util::stream::unfold(receiver, |mut receiver| async move {
        let next = receiver.recv().await?;
        Some((next.map(Frame::data), receiver))
    });
    let sent = client.put_archive(&files(lease, path), body.boxed()).await;
    match packing.await {
        Ok(Ok(left_out)) => sent.map(|()| left_out),
        // A server that refuses stops reading: its refusal is what happened.
        Ok(Err(e)) if sent.is_ok() || e.kind() != io::ErrorKind::BrokenPipe => Err(
            CliError::Local(format!("{e}; what was sent before it is in the lease")),
        ),
        Ok(Err(_)) => sent.map(|()| Vec::new()).map_err(|e| match e {
            CliError::Broken(why) => {
                CliError::Broken(format!("{why}; what was sent before may be in the lease"))
            }
            e => e,
        }),
        Err(e) => Err(CliError::Local(format!("{shown}: {e}"))),
    }
}

/// The writing end of a channel of chunks.
struct Pipe {
    sender: mpsc::Sender<io::Result<Bytes>>,
    buffer: Vec<u8>,
    moved: Arc<AtomicU64>,
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
        self.moved.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        self.sender
            .blocking_send(Ok(chunk.into()))
            .map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

async fn download(
    client: &Client,
    lease: &str,
    path: &str,
    to: PathBuf,
    moved: &AtomicU64,
) -> Result<Vec<String>, CliError> {
    if !to.is_dir() {
        return Err(CliError::Usage(format!(
            "{}: is not a directory that exists; what is copied keeps its name and goes into one",
            to.display()
        )));
    }
    let mut body = client.get_stream(&files(lease, path)).await?;
    let (sender, receiver) = mpsc::channel::<io::Result<Bytes>>(4);
    let unpacking = tokio::task::spawn_blocking(move || unpack(Chunks::new(receiver), &to));
    let mut broken = None;
    while let Some(frame) = body.frame().await {
        let chunk = match frame {
            Ok(frame) => match frame.into_data() {
                Ok(data) => {
                    moved.fetch_add(data.len() as u64, Ordering::Relaxed);
                    Ok(data)
                }
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
