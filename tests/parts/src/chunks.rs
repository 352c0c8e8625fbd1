//! The chunked coding of HTTP/1.1 (RFC 9112, 7.1), both ways: a body that is read or written while it comes.

use std::io::{BufRead, Read, Write};

/// A body in chunks as a reader of its bytes; at its end, what follows the body is next in what it reads from.
#[derive(Debug)]
pub struct Chunks<R> {
    from: R,
    left: u64,
    over: bool,
}

impl<R: BufRead> Chunks<R> {
    /// The body that begins here.
    pub fn new(from: R) -> Chunks<R> {
        Chunks {
            from,
            left: 0,
            over: false,
        }
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.from.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}

impl<R: BufRead> Read for Chunks<R> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.over || out.is_empty() {
            return Ok(0);
        }
        if self.left == 0 {
            let size = self.line()?;
            let size = size.split(';').next().unwrap_or_default();
            self.left = u64::from_str_radix(size, 16)
                .map_err(|_| std::io::Error::other(format!("{size:?} is no chunk's size")))?;
            if self.left == 0 {
                // Trailers, and the empty line behind them.
                while !self.line()?.is_empty() {}
                self.over = true;
                return Ok(0);
            }
        }
        let most = usize::try_from(self.left).map_or(out.len(), |left| left.min(out.len()));
        let read = self.from.read(&mut out[..most])?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read as u64;
        if self.left == 0 {
            self.line()?;
        }
        Ok(read)
    }
}

/// Writes all of a body in chunks, each as large as what was read at once, and its end.
///
/// # Errors
/// Whatever reading or writing fails with; the body then has no end.
pub fn write_chunks(mut body: impl Read, to: &mut impl Write) -> std::io::Result<()> {
    let mut piece = vec![0; 64 << 10];
    loop {
        let read = body.read(&mut piece)?;
        let mut chunk = format!("{read:x}\r\n").into_bytes();
        chunk.extend_from_slice(&piece[..read]);
        chunk.extend_from_slice(b"\r\n");
        to.write_all(&chunk)?;
        if read == 0 {
            return Ok(());
        }
    }
}
