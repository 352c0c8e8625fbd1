//! Tells standard output from standard error in a stream of bytes, however it was cut into pieces. Pure: what is not
//! yet decided is held, never more than a header or a mark.

use bytes::{Buf, Bytes, BytesMut};
use leasehold_contract::{Error, Framing};

use super::unsupported;

/// The longest mark.
const MARK: usize = 32;
/// Docker's header: type, three zeros, length.
const HEADER: usize = 8;

/// Which stream of the process bytes belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    Out,
    Err,
}

/// The state of one stream's framing.
#[derive(Debug)]
pub(super) enum Demux {
    Merged,
    Docker {
        header: BytesMut,
        /// Bytes of the current frame that are to come, and whose they are.
        left: u32,
        to: To,
    },
    Marks {
        stdout: Bytes,
        stderr: Bytes,
        to: To,
        /// What may be the beginning of a mark.
        held: BytesMut,
    },
}

impl Demux {
    /// The framing of a stream of bytes.
    ///
    /// # Errors
    /// `unsupported` for channels, which are messages, and for marks that cannot be told apart.
    pub(super) fn of(framing: Framing) -> Result<Demux, Error> {
        match framing {
            Framing::Merged => Ok(Demux::Merged),
            Framing::Docker => Ok(Demux::Docker {
                header: BytesMut::with_capacity(HEADER),
                left: 0,
                to: To::Out,
            }),
            Framing::Channels => Err(unsupported(
                "the framing `channels` is of WebSocket messages; this stream has none",
            )),
            Framing::Marks { stdout, stderr } => {
                let fits = |mark: &[u8]| (1..=MARK).contains(&mark.len());
                if !fits(&stdout) || !fits(&stderr) {
                    return Err(unsupported("a mark is 1 to 32 bytes"));
                }
                if stdout.starts_with(&stderr) || stderr.starts_with(&stdout) {
                    return Err(unsupported("the marks cannot be told apart"));
                }
                Ok(Demux::Marks {
                    stdout: stdout.into(),
                    stderr: stderr.into(),
                    to: To::Out,
                    held: BytesMut::new(),
                })
            }
        }
    }

    /// Takes the next bytes; what they say is appended to `out`, never empty.
    ///
    /// # Errors
    /// What is wrong with the framing.
    pub(super) fn feed(
        &mut self,
        mut data: Bytes,
        out: &mut Vec<(To, Bytes)>,
    ) -> Result<(), String> {
        match self {
            Demux::Merged => {
                if !data.is_empty() {
                    out.push((To::Out, data));
                }
                Ok(())
            }
            Demux::Docker { header, left, to } => {
                while !data.is_empty() {
                    if *left > 0 {
                        let take = data.len().min(*left as usize);
                        out.push((*to, data.split_to(take)));
                        *left -= take as u32;
                        continue;
                    }
                    let take = data.len().min(HEADER - header.len());
                    header.extend_from_slice(&data.split_to(take));
                    if header.len() == HEADER {
                        let kind = header.get_u8();
                        header.advance(3);
                        *left = header.get_u32();
                        *to = match kind {
                            // 0 is input that the engine echoes; 3 is the engine's own error.
                            0 | 1 => To::Out,
                            2 | 3 => To::Err,
                            other => {
                                return Err(format!(
                                    "a frame of type {other}; the stream is not framed as Docker does"
                                ));
                            }
                        };
                        header.clear();
                    }
                }
                Ok(())
            }
            Demux::Marks {
                stdout,
                stderr,
                to,
                held,
            } => {
                held.extend_from_slice(&data);
                let mut at = 0;
                while at < held.len() {
                    let rest = &held[at..];
                    let found = [(To::Out, &*stdout), (To::Err, &*stderr)]
                        .into_iter()
                        .find(|(_, mark)| rest.starts_with(mark));
                    if let Some((next, mark)) = found {
                        let said = held.split_to(at).freeze();
                        held.advance(mark.len());
                        if !said.is_empty() {
                            out.push((*to, said));
                        }
                        *to = next;
                        at = 0;
                    } else if stdout.starts_with(rest) || stderr.starts_with(rest) {
                        break;
                    } else {
                        at += 1;
                    }
                }
                let said = held.split_to(at).freeze();
                if !said.is_empty() {
                    out.push((*to, said));
                }
                Ok(())
            }
        }
    }

    /// The stream ended in order; what was held is said now.
    ///
    /// # Errors
    /// It ended inside a frame.
    pub(super) fn end(&mut self, out: &mut Vec<(To, Bytes)>) -> Result<(), String> {
        match self {
            Demux::Merged => Ok(()),
            Demux::Docker { header, left, .. } if *left == 0 && header.is_empty() => Ok(()),
            Demux::Docker { .. } => Err("the stream ended inside a frame".to_owned()),
            Demux::Marks { to, held, .. } => {
                let said = held.split().freeze();
                if !said.is_empty() {
                    out.push((*to, said));
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each stream said, from a stream cut into these pieces.
    fn said(framing: &Framing, pieces: &[&[u8]]) -> Result<(Vec<u8>, Vec<u8>), String> {
        let mut demux = Demux::of(framing.clone()).unwrap();
        let mut out = Vec::new();
        for piece in pieces {
            demux.feed(Bytes::copy_from_slice(piece), &mut out)?;
        }
        demux.end(&mut out)?;
        let mut both = (Vec::new(), Vec::new());
        for (to, bytes) in out {
            assert!(!bytes.is_empty());
            match to {
                To::Out => both.0.extend_from_slice(&bytes),
                To::Err => both.1.extend_from_slice(&bytes),
            }
        }
        Ok(both)
    }

    fn at_every_cut(framing: &Framing, whole: &[u8], out: &[u8], err: &[u8]) {
        for a in 0..=whole.len() {
            for b in a..=whole.len() {
                let got = said(framing, &[&whole[..a], &whole[a..b], &whole[b..]]).unwrap();
                assert_eq!(got, (out.to_vec(), err.to_vec()), "cut at {a} and {b}");
            }
        }
        let single: Vec<&[u8]> = whole.chunks(1).collect();
        assert_eq!(
            said(framing, &single).unwrap(),
            (out.to_vec(), err.to_vec())
        );
    }

    fn frame(kind: u8, data: &[u8]) -> Vec<u8> {
        let mut f = vec![kind, 0, 0, 0];
        f.extend_from_slice(&(data.len() as u32).to_be_bytes());
        f.extend_from_slice(data);
        f
    }

    #[test]
    fn docker_frames_are_told_apart_wherever_the_stream_is_cut() {
        let whole = [
            frame(1, b"out\n"),
            frame(2, b""),
            frame(2, b"err\x01\0\0\0"),
            frame(0, b"in"),
            frame(3, b"sys"),
        ]
        .concat();
        at_every_cut(&Framing::Docker, &whole, b"out\nin", b"err\x01\0\0\0sys");
    }

    #[test]
    fn marks_are_found_wherever_the_stream_is_cut() {
        let framing = Framing::Marks {
            stdout: vec![1, 1, 1],
            stderr: vec![2, 2, 2],
        };
        let whole = b"a\x01\x01b\x02\x02\x02err\x01\x01\x01\x01out\x02\x02";
        at_every_cut(&framing, whole, b"a\x01\x01b\x01out\x02\x02", b"err");
    }

    #[test]
    fn a_stream_that_ends_inside_a_docker_frame_is_lost() {
        let whole = frame(1, b"four");
        for end in 1..whole.len() {
            let e = said(&Framing::Docker, &[&whole[..end]]).unwrap_err();
            assert!(e.contains("inside a frame"), "{end}: {e}");
        }
    }

    #[test]
    fn what_is_not_docker_framing_is_refused_at_its_first_header() {
        let e = said(&Framing::Docker, &[b"HTTP/1.1 200"]).unwrap_err();
        assert!(e.contains("type 72"), "{e}");
    }

    #[test]
    fn marks_that_cannot_be_told_apart_are_refused() {
        for (stdout, stderr) in [
            (&b""[..], &b"x"[..]),
            (b"ab", b"abc"),
            (b"a", b"a"),
            (&[0; 33], b"b"),
        ] {
            let marks = Framing::Marks {
                stdout: stdout.to_vec(),
                stderr: stderr.to_vec(),
            };
            assert!(Demux::of(marks).is_err(), "{stdout:?} {stderr:?}");
        }
    }
}
