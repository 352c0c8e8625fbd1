//! A command's live stream, as a client reads it: a WebSocket by hand, whose bytes are counted and let go.
//!
//! As much of RFC 6455 as this server speaks: frames from it are whole and not masked.

use std::io::{BufRead, BufReader, Read, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::http::{Client, Wire};

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;

/// What a stream came to.
pub struct Streamed {
    /// Bytes of standard output.
    pub bytes: u64,
    /// From the first of them to the last.
    pub took: Duration,
}

/// Runs a command on a lease and reads its output to the end.
pub fn run(client: Client, lease: &str, argv: &[&str]) -> Result<Streamed> {
    let (wire, early) = client.upgrade(&format!(
        "/api/environment-leases/{lease}/executions/stream"
    ))?;
    let mut wire = Reader {
        early: std::io::Cursor::new(early),
        wire,
    };
    let start = serde_json::json!({ "type": "start", "argv": argv }).to_string();
    wire.wire.write_all(&masked(start.as_bytes()))?;
    let mut frames = BufReader::with_capacity(256 << 10, wire);
    let (mut bytes, mut first, mut last) = (0, None, Instant::now());
    loop {
        let (kind, length) = header(&mut frames)?;
        match kind {
            BINARY => {
                first.get_or_insert_with(Instant::now);
                skip(&mut frames, length)?;
                // One byte says which stream it is of.
                bytes += length - 1;
                last = Instant::now();
            }
            TEXT => {
                let mut said = vec![0; usize::try_from(length)?];
                frames.read_exact(&mut said)?;
                let said: Value =
                    serde_json::from_slice(&said).context("a text frame is not JSON")?;
                match said["type"].as_str() {
                    Some("exit") if said["exitCode"] == 0 => break,
                    Some("started") => {}
                    _ => bail!("the command came to {said}"),
                }
            }
            CLOSE => bail!("the stream was closed before the command's end"),
            _ => skip(&mut frames, length)?,
        }
    }
    let first = first.context("the command wrote nothing")?;
    Ok(Streamed {
        bytes,
        took: last - first,
    })
}

/// What came with the upgrade's answer, then the wire.
struct Reader {
    early: std::io::Cursor<Vec<u8>>,
    wire: Box<dyn Wire>,
}

impl Read for Reader {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self.early.read(into)? {
            0 => self.wire.read(into),
            read => Ok(read),
        }
    }
}

/// Kind and length of the next frame.
fn header(frames: &mut impl Read) -> Result<(u8, u64)> {
    let mut two = [0; 2];
    frames
        .read_exact(&mut two)
        .context("the stream broke off")?;
    let length = match two[1] {
        126 => {
            let mut more = [0; 2];
            frames.read_exact(&mut more)?;
            u64::from(u16::from_be_bytes(more))
        }
        127 => {
            let mut more = [0; 8];
            frames.read_exact(&mut more)?;
            u64::from_be_bytes(more)
        }
        short => u64::from(short),
    };
    Ok((two[0] & 0x0f, length))
}

fn skip(frames: &mut impl BufRead, mut length: u64) -> Result<()> {
    while length > 0 {
        let there = frames.fill_buf()?.len();
        if there == 0 {
            bail!("the stream broke off");
        }
        let some = there.min(usize::try_from(length)?);
        frames.consume(some);
        length -= some as u64;
    }
    Ok(())
}

/// A text frame. A mask of zeros is a mask: it is there for proxies, and there is none.
fn masked(text: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | TEXT];
    match u16::try_from(text.len()) {
        Ok(short) if short < 126 => frame.push(0x80 | short as u8),
        Ok(medium) => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&medium.to_be_bytes());
        }
        Err(_) => {
            frame.push(0x80 | 127);
            frame.extend_from_slice(&(text.len() as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(text);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_says_its_length_as_the_protocol_wants_it() {
        for (length, head) in [
            (5, vec![0x81, 0x85]),
            (300, vec![0x81, 0xfe, 1, 44]),
            (70_000, vec![0x81, 0xff, 0, 0, 0, 0, 0, 1, 0x11, 0x70]),
        ] {
            let frame = masked(&vec![b'x'; length]);
            assert_eq!(frame[..head.len()], head);
            assert_eq!(frame.len(), head.len() + 4 + length);
        }
    }

    #[test]
    fn a_frames_head_is_read_in_each_of_its_three_lengths() {
        for (bytes, kind, length) in [
            (vec![0x82, 7], BINARY, 7),
            (vec![0x82, 126, 1, 0], BINARY, 256),
            (vec![0x88, 127, 0, 0, 0, 0, 0, 1, 0, 0], CLOSE, 65_536),
        ] {
            assert_eq!(header(&mut bytes.as_slice()).unwrap(), (kind, length));
        }
    }
}
