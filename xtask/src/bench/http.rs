//! A client of the API that costs little itself: HTTP/1.1 on one kept connection, blocking, written out by hand.
//!
//! Both sides share the machine, so what the client burns is missing from what it measures. It knows as much of
//! HTTP as this server answers with: a status, a length, a body.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Longer than anything that is measured: only a fault reaches it.
const PATIENCE: Duration = Duration::from_secs(120);

/// Bytes both ways.
pub trait Wire: Read + Write + Send {}
impl<T: Read + Write + Send> Wire for T {}

/// A connection that is kept.
pub struct Client {
    wire: Box<dyn Wire>,
    /// What was read and not yet used.
    held: Vec<u8>,
    used: usize,
    headers: String,
}

/// Where an answer's parts lie in what was read.
struct Head {
    status: u16,
    length: usize,
}

impl Client {
    /// Over the Unix socket, as the operator.
    pub fn unix(socket: &Path) -> Result<Client> {
        let stream = UnixStream::connect(socket).context("the server's socket does not answer")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Client::over(
            Box::new(stream),
            "host: localhost\r\n".to_owned(),
        ))
    }

    /// Over TCP, as whoever has the token.
    pub fn tcp(port: u16, token: &str) -> Result<Client> {
        let stream =
            TcpStream::connect(("127.0.0.1", port)).context("the server's port does not answer")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let headers = format!("host: 127.0.0.1:{port}\r\nauthorization: Bearer {token}\r\n");
        Ok(Client::over(Box::new(stream), headers))
    }

    fn over(wire: Box<dyn Wire>, headers: String) -> Client {
        Client {
            wire,
            held: Vec::with_capacity(64 << 10),
            used: 0,
            headers,
        }
    }

    /// The bytes of a request, to be sent as often as one likes.
    pub fn written(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> Vec<u8> {
        let mut head = format!("{method} {path} HTTP/1.1\r\n{}", self.headers);
        if !body.is_empty() {
            head.push_str(&format!(
                "content-type: {kind}\r\ncontent-length: {}\r\n",
                body.len()
            ));
        } else if method != "GET" {
            head.push_str("content-length: 0\r\n");
        }
        head.push_str("\r\n");
        [head.as_bytes(), body].concat()
    }

    /// Sends those bytes and reads the whole answer: its status, and its body until the next request.
    pub fn exchange(&mut self, request: &[u8]) -> Result<(u16, &[u8])> {
        self.held.drain(..self.used);
        self.used = 0;
        self.wire
            .write_all(request)
            .context("the server does not take the request")?;
        let (head, start) = self.head()?;
        while self.held.len() < start + head.length {
            self.fill()?;
        }
        self.used = start + head.length;
        Ok((head.status, &self.held[start..self.used]))
    }

    /// Reads a head; answers where what follows it starts.
    fn head(&mut self) -> Result<(Head, usize)> {
        loop {
            if let Some(at) = self.held.windows(4).position(|four| four == b"\r\n\r\n") {
                let text = std::str::from_utf8(&self.held[..at])
                    .context("the answer's head is not text")?;
                return Ok((parsed(text)?, at + 4));
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> Result<()> {
        let mut more = [0; 64 << 10];
        match self
            .wire
            .read(&mut more)
            .context("the server does not answer")?
        {
            0 => bail!("the server hung up"),
            read => self.held.extend_from_slice(&more[..read]),
        }
        Ok(())
    }

    /// A request with a JSON body, or none where it is null, that must succeed: the answer's JSON.
    pub fn call(&mut self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let body = match body {
            Value::Null => Vec::new(),
            body => serde_json::to_vec(body)?,
        };
        self.send(method, path, "application/json", &body)
    }

    /// As [`Client::call`], with any body.
    pub fn send(&mut self, method: &str, path: &str, kind: &str, body: &[u8]) -> Result<Value> {
        let request = self.written(method, path, kind, body);
        let (status, answer) = self.exchange(&request)?;
        let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
        if !(200..300).contains(&status) {
            bail!("{method} {path} is answered with {status}: {answer}");
        }
        Ok(answer)
    }

    /// Upgrades the connection to a WebSocket; gives what it spoke over, and what already came.
    pub fn upgrade(mut self, path: &str) -> Result<(Box<dyn Wire>, Vec<u8>)> {
        let request = format!(
            "GET {path} HTTP/1.1\r\n{}connection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: bGVhc2Vob2xkLWJlbmNoIQ==\r\n\r\n",
            self.headers
        );
        self.wire.write_all(request.as_bytes())?;
        let (head, start) = self.head()?;
        if head.status != 101 {
            bail!("{path} does not become a WebSocket: {}", head.status);
        }
        Ok((self.wire, self.held.split_off(start)))
    }
}

fn parsed(head: &str) -> Result<Head> {
    let mut lines = head.split("\r\n");
    let status = lines
        .next()
        .and_then(|line| line.split(' ').nth(1))
        .and_then(|code| code.parse().ok());
    let status = status.with_context(|| format!("{head:?} is no head of an answer"))?;
    let mut length = 0;
    for line in lines {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value
                .trim()
                .parse()
                .context("the answer's length is no number")?;
        }
    }
    Ok(Head { status, length })
}

/// A JSON text that must be there.
pub fn text(value: &Value) -> Result<String> {
    value
        .as_str()
        .map(str::to_owned)
        .with_context(|| format!("{value} is not a text"))
}
