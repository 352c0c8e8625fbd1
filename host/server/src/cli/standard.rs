//! Our standard input and output as a command's, each on a thread of its own: a terminal that is slow or silent holds
//! neither signals nor the other direction back.

use std::io::{Read, Write};
use std::sync::mpsc as blocking;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::exit::CliError;

const CHUNK: usize = 64 << 10;

/// Reads our input, each piece behind the channel's byte, on a thread that the process's end takes with it.
pub fn read_stdin() -> mpsc::Receiver<Bytes> {
    let (sender, receiver) = mpsc::channel(4);
    std::thread::spawn(move || {
        let mut input = std::io::stdin();
        loop {
            // The channel's byte first, then data.
            let mut buffer = vec![0u8; CHUNK + 1];
            match input.read(&mut buffer[1..]) {
                Ok(0) | Err(_) => return,
                Ok(read) => {
                    buffer.truncate(read + 1);
                    if sender.blocking_send(buffer.into()).is_err() {
                        return;
                    }
                }
            }
        }
    });
    receiver
}

/// Writes the command's output on a thread of its own: a reader that is slow holds the command back, and not
/// our signals.
pub struct Writer {
    queue: mpsc::Sender<Bytes>,
    done: blocking::Receiver<std::io::Result<()>>,
}

impl Writer {
    /// Starts the thread.
    pub fn start() -> Writer {
        let (queue, mut frames) = mpsc::channel::<Bytes>(4);
        let (tell, done) = blocking::channel();
        std::thread::spawn(move || {
            let mut result = Ok(());
            while let Some(frame) = frames.blocking_recv() {
                result = put(&frame);
                if result.is_err() {
                    break;
                }
            }
            let _ = tell.send(result);
        });
        Writer { queue, done }
    }

    /// Queues a frame, the channel first; waits while the reader is slow.
    pub async fn write(&self, frame: Bytes) -> Result<(), CliError> {
        self.queue
            .send(frame)
            .await
            .map_err(|_| CliError::OutputClosed)
    }

    /// Waits until nothing can be written any more.
    pub async fn stopped(&self) {
        self.queue.closed().await;
    }

    /// Waits until everything is written, and answers what kept it from that.
    pub async fn finish(self) -> Result<(), CliError> {
        drop(self.queue);
        let done = self.done;
        let result = tokio::task::spawn_blocking(move || done.recv()).await;
        match result {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(e))) if e.kind() == std::io::ErrorKind::BrokenPipe => {
                Err(CliError::OutputClosed)
            }
            Ok(Ok(Err(e))) => Err(CliError::Local(format!("the output: {e}"))),
            _ => Err(CliError::Local("the output's thread ended early".into())),
        }
    }
}

fn put(frame: &[u8]) -> std::io::Result<()> {
    match frame.split_first() {
        Some((1, data)) => {
            let mut out = std::io::stdout().lock();
            out.write_all(data)?;
            out.flush()
        }
        Some((2, data)) => std::io::stderr().lock().write_all(data),
        _ => Ok(()),
    }
}
