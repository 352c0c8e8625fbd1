//! Trees by the target's own `tar`, for servers without SFTP. What it reads and writes passes the host's reader, so
//! that it never sees an entry that was not judged.

use std::sync::Arc;

use bytes::Bytes;
use leasehold_contract::{ByteStream, Code, Ended, Error};
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio_util::sync::CancellationToken;

use super::archive::{Entry, Kind, Reader};
use super::pipe::pipe;
use super::write::{Writer, header};
use super::{PIECE, no_content, outside};
use crate::channel::{Event, Reading, Running, exec};
use crate::error::{code_of, failed, quote, unknown};
use crate::pool::{Route, Want};
use crate::remote::{Frame, GET, PUT};

/// How much of a remote text is kept.
const SAID: usize = 4096;

fn refusal(name: &str, code: i32, said: &[u8], place: &str) -> Error {
    let text = String::from_utf8_lossy(said);
    let said = quote(said);
    match code {
        3 => outside(name, place, "the root"),
        4 => no_content(name, place, "a pipe, a socket or a device"),
        127 => failed(
            Code::Unsupported,
            name,
            format_args!("the target has neither SFTP nor tar: {said}"),
        ),
        _ => failed(code_of(&text), name, format_args!("{place}: {said}")),
    }
}

pub(super) async fn put(
    route: &Route,
    root: &str,
    within: Option<&str>,
    mut archive: Reader,
) -> Result<(), Error> {
    let name = route.name();
    let suffix = crate::random_hex::<8>();
    let frame = Frame::host(PUT.text(), &[root, &suffix, within.unwrap_or_default()]);
    let Running { mut read, write } = exec(route, Want::Alone, None, &frame.payload()?).await?;
    // Whether all of it was taken.
    let feed = async {
        while let Some(entry) = archive.next().await? {
            if write.send(Bytes::from(header(&entry))).await.is_err() {
                return Ok(false);
            }
            loop {
                let piece = archive.content(PIECE).await?;
                if piece.is_empty() {
                    break;
                }
                if write.send(Bytes::from(piece)).await.is_err() {
                    return Ok(false);
                }
            }
            let rest = (512 - entry.size % 512) % 512;
            if rest > 0
                && write
                    .send(Bytes::from(vec![0; rest as usize]))
                    .await
                    .is_err()
            {
                return Ok(false);
            }
        }
        let whole = write.send(Bytes::from(vec![0; 1024])).await.is_ok();
        let _ = write.end().await;
        Ok::<bool, Error>(whole)
    };
    tokio::pin!(feed);
    let mut said = Vec::new();
    let mut fed = None;
    let ended = loop {
        let event = tokio::select! {
            event = read.next() => event,
            done = &mut feed, if fed.is_none() => {
                // An archive that is refused ends it here: the connection is not given back, tar sees its input cut.
                fed = Some(done?);
                continue;
            }
        };
        match event {
            Event::Stdout(b) | Event::Stderr(b) => {
                let room = SAID - said.len().min(SAID);
                said.extend_from_slice(&b[..b.len().min(room)]);
            }
            Event::Ended(ended) => break ended,
        }
    };
    match ended {
        Ended::Exited(0) if fed == Some(true) => Ok(()),
        Ended::Lost(why) => Err(unknown(
            &name,
            format_args!("{root}: lost while unpacking: {why}"),
        )),
        _ if !read.began() => Err(read.no_shell(&name)),
        Ended::Exited(code) => Err(refusal(&name, code, &said, root)),
        _ => Err(unknown(
            &name,
            format_args!("{root}: tar was ended while unpacking"),
        )),
    }
}

pub(super) async fn get(
    route: Arc<Route>,
    root: &str,
    full: &str,
    top: &str,
    closed: Option<CancellationToken>,
) -> Result<ByteStream, Error> {
    let name = route.name();
    let frame = Frame::host(GET.text(), &[root, full]);
    let Running { mut read, write } = exec(&route, Want::Alone, None, &frame.payload()?).await?;
    let _ = write.end().await;
    // The first word says whether there will be an archive.
    let mut said = Vec::new();
    let first = loop {
        match read.next().await {
            Event::Stdout(b) => break b,
            Event::Stderr(b) => said.extend_from_slice(&b[..b.len().min(SAID)]),
            Event::Ended(Ended::Lost(why)) => {
                return Err(unknown(&name, format_args!("{full}: lost: {why}")));
            }
            Event::Ended(_) if !read.began() => return Err(read.no_shell(&name)),
            Event::Ended(Ended::Exited(code)) => return Err(refusal(&name, code, &said, full)),
            Event::Ended(_) => return Err(unknown(&name, format_args!("{full}: tar was ended"))),
        }
    };
    let (full, top) = (full.to_owned(), top.to_owned());
    Ok(pipe(closed, move |sink| async move {
        let _route = route;
        let writer = Writer::new(sink);
        let (from_tar, to_reader) = tokio::io::duplex(4 * PIECE);
        let pumping = pump(read, first, said, from_tar, &name, &full);
        let copying = copy(Reader::new(to_reader), &writer, &top);
        // A tar that failed says so in its status: its reason is better than an archive that ends early.
        let (pumped, copied) = tokio::join!(pumping, copying);
        let said = pumped?;
        copied?;
        for socket in sockets(&said) {
            writer.left_out(&joined(&top, socket), "a socket").await?;
        }
        writer.finish().await
    }))
}

/// Names of sockets that GNU tar says it passed over.
fn sockets(said: &[u8]) -> impl Iterator<Item = &str> {
    let lines = said.split(|byte| *byte == b'\n');
    lines.filter_map(|line| {
        let line = std::str::from_utf8(line).ok()?;
        let path = line.strip_suffix(": socket ignored")?;
        Some(path.split_once("./")?.1.trim_start_matches("./"))
    })
}

fn joined(top: &str, path: &str) -> String {
    match (top, path) {
        ("", path) => path.to_owned(),
        (top, "") => top.to_owned(),
        (top, path) => format!("{top}/{path}"),
    }
}

/// Gives an entry the name that it has below `top`. A directory is called `.` by tar, and comes first; what is no
/// directory comes alone.
fn rename(entry: &mut Entry, top: &str, alone: bool) {
    entry.path = if alone {
        top.to_owned()
    } else {
        joined(top, &entry.path)
    };
    if let Kind::Hardlink(to) = &mut entry.kind {
        *to = joined(top, to);
    }
}

/// Passes every entry on, judged and written anew.
async fn copy(mut from: Reader<DuplexStream>, to: &Writer, top: &str) -> Result<(), Error> {
    let mut alone = None;
    while let Some(mut entry) = from.next_to_read().await? {
        let alone = *alone.get_or_insert(!entry.path.is_empty());
        rename(&mut entry, top, alone);
        to.entry(&entry).await?;
        loop {
            let piece = from.content(PIECE).await?;
            if piece.is_empty() {
                break;
            }
            to.content(piece).await?;
        }
        to.pad(entry.size).await?;
    }
    for (path, why) in from.left_out() {
        to.left_out(&joined(top, path), why).await?;
    }
    Ok(())
}

/// Feeds the reader of the archive, and answers what tar said beside it.
async fn pump(
    mut read: Reading,
    first: Bytes,
    mut said: Vec<u8>,
    mut to: DuplexStream,
    name: &str,
    full: &str,
) -> Result<Vec<u8>, Error> {
    let mut reading = to.write_all(&first).await.is_ok();
    loop {
        match read.next().await {
            // Read to the end even when nobody wants it: the status is at the end.
            Event::Stdout(b) if reading => reading = to.write_all(&b).await.is_ok(),
            Event::Stdout(_) => return Ok(said),
            Event::Stderr(b) => {
                let room = SAID - said.len().min(SAID);
                said.extend_from_slice(&b[..b.len().min(room)]);
            }
            Event::Ended(Ended::Exited(0)) => return Ok(said),
            Event::Ended(Ended::Exited(code)) => return Err(refusal(name, code, &said, full)),
            Event::Ended(Ended::Lost(why)) => {
                return Err(unknown(
                    name,
                    format_args!("{full}: lost while reading: {why}"),
                ));
            }
            Event::Ended(_) => return Err(unknown(name, format_args!("{full}: tar was ended"))),
        }
    }
}
