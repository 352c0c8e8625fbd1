//! Byte streams that the host owns: a running command and an archive.
//!
//! Bytes move from the transport to the client without passing a component. Dropping either half of a
//! [`Process`] lets go of the stream; it never ends the command, which is what `execution.signal` is for.

use std::pin::Pin;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A terminal's size in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Columns, at least 1.
    pub cols: u16,
    /// Rows, at least 1.
    pub rows: u16,
}

/// How a stream of a command ended, as far as its transport tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// With an exit status, 0 to 255.
    Exited(i32),
    /// By a signal, POSIX name without SIG.
    Signalled(String),
    /// The transport went away before it said how, with the reason: the command may still run.
    Lost(String),
    /// The transport closed in order and does not know; `execution.state-of` does.
    Ask,
}

/// What a running command produced. Order within one stream is kept; nothing follows [`Self::Ended`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    /// Bytes of standard output, never empty.
    Stdout(Bytes),
    /// Bytes of standard error, never empty.
    Stderr(Bytes),
    /// The end; said once, after the last byte.
    Ended(Ended),
}

/// The output half. A reader that does not call [`Self::next`] holds the command back: no more than a
/// window of the transport is buffered.
#[async_trait]
pub trait ProcessOutput: Send {
    /// The next thing that happened; `None` after the end.
    async fn next(&mut self) -> Option<ProcessEvent>;
}

/// The input half.
#[async_trait]
pub trait ProcessInput: Send {
    /// Writes all of `data`; waits while the command does not read. Fails once the command no longer can.
    async fn write(&mut self, data: Bytes) -> std::io::Result<()>;
    /// Ends the input (half-close); output goes on.
    async fn end(&mut self) -> std::io::Result<()>;
    /// Tells the terminal's new size; without a terminal, nothing.
    async fn resize(&mut self, size: Size) -> std::io::Result<()>;
}

/// A running command: the two halves of its stream.
pub struct Process {
    /// What it writes, and its end.
    pub output: Box<dyn ProcessOutput>,
    /// What it reads.
    pub input: Box<dyn ProcessInput>,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Process")
    }
}

/// Bytes that the host moves, such as a tar archive; an error in the middle is the reader's error.
pub type ByteStream = Pin<Box<dyn tokio::io::AsyncRead + Send>>;
