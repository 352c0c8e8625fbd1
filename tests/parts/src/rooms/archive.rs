//! Files of a room, as archives: real ones by `tar`, or, where only the moving of them is looked at, a pattern of some
//! length out and a hash of what came in, so that nobody holds them.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use sha2::{Digest, Sha256};

use super::{Heard, Shared};
use crate::chunks::{Chunks, write_chunks};
use crate::pattern::Pattern;

/// Length and SHA-256 of all the bytes that there are.
///
/// # Errors
/// Whatever reading fails with.
pub fn digest_of_all(mut bytes: impl Read) -> std::io::Result<(u64, Vec<u8>)> {
    let (mut hash, mut length) = (Sha256::new(), 0);
    let mut piece = vec![0; 64 << 10];
    loop {
        let read = bytes.read(&mut piece)?;
        if read == 0 {
            return Ok((length, hash.finalize().to_vec()));
        }
        length += read as u64;
        hash.update(&piece[..read]);
    }
}

/// Answers a request for a room's archive, whose body is still to be read.
pub(super) fn serve(
    shared: &Shared,
    room: &str,
    heard: &Heard,
    from: &mut BufReader<TcpStream>,
    to: &mut TcpStream,
) -> std::io::Result<()> {
    let (there, pattern) = {
        let state = shared.state();
        (state.rooms.iter().any(|one| one.id == room), state.pattern)
    };
    let path = asked_path(heard);
    let put = heard.method == "PUT";
    let mut body = put.then(|| Chunks::new(from));
    let done = match (there, body.as_mut(), pattern) {
        (false, _, _) => false,
        (true, Some(body), Some(_)) => {
            let came = digest_of_all(body)?;
            shared.state().came = Some(came);
            true
        }
        (true, Some(body), None) => {
            let mut tar = Command::new("tar");
            let tar = tar.args(["-x", "-C", &path]).stdin(Stdio::piped()).spawn();
            let mut tar = tar?;
            if let Some(mut input) = tar.stdin.take() {
                std::io::copy(body, &mut input)?;
            }
            tar.wait()?.success()
        }
        (true, None, Some(length)) => return sent(Pattern::of(length), to),
        (true, None, None) => {
            let (above, name) = path.rsplit_once('/').unwrap_or((".", &path));
            let mut tar = Command::new("tar");
            tar.args([
                "-c",
                "-C",
                if above.is_empty() { "/" } else { above },
                "--",
                name,
            ]);
            let mut tar = tar.stdout(Stdio::piped()).spawn()?;
            if let Some(output) = tar.stdout.take() {
                sent(output, to)?;
            }
            tar.wait()?;
            return Ok(());
        }
    };
    // What was not read is not the next request.
    if let Some(mut body) = body {
        std::io::copy(&mut body, &mut std::io::sink())?;
    }
    let status = if done { 204 } else { 404 };
    write!(to, "HTTP/1.1 {status} Said\r\ncontent-length: 0\r\n\r\n")
}

fn sent(archive: impl Read, to: &mut TcpStream) -> std::io::Result<()> {
    write!(
        to,
        "HTTP/1.1 200 Said\r\ncontent-type: application/x-tar\r\ntransfer-encoding: chunked\r\n\r\n"
    )?;
    write_chunks(archive, to)
}

/// The path that the query names, its escapes undone.
fn asked_path(heard: &Heard) -> String {
    let query = heard.path.split_once("?path=").map_or("", |(_, path)| path);
    let mut bytes = Vec::new();
    let mut rest = query.bytes();
    while let Some(byte) = rest.next() {
        let digits = (byte == b'%').then(|| [rest.next(), rest.next()]);
        let Some([Some(high), Some(low)]) = digits else {
            bytes.push(byte);
            continue;
        };
        let digits = [char::from(high), char::from(low)].map(|digit| digit.to_digit(16));
        if let [Some(high), Some(low)] = digits {
            bytes.push((high * 16 + low) as u8);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
