//! A tap on a Unix socket: it passes every byte on, both ways, and remembers those that went in.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};

/// Listens where it is told, and passes on; dropped, it takes no more connections.
#[derive(Debug)]
pub struct Tap {
    path: PathBuf,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// The bytes of each connection.
    heard: Mutex<Vec<Vec<u8>>>,
    over: AtomicBool,
}

impl Tap {
    /// One that listens already, and passes on to the socket at `to`.
    ///
    /// # Errors
    /// When the listener has no path.
    pub fn on(listener: UnixListener, to: &Path) -> Result<Tap> {
        let path = listener.local_addr()?;
        let path = path.as_pathname().context("no path")?.to_owned();
        let shared = Arc::new(Shared::default());
        let (serving, to) = (shared.clone(), to.to_owned());
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                if serving.over.load(Ordering::SeqCst) {
                    break;
                }
                // Whoever hangs up has had its answer, or wants none.
                serving.pass(near, &to).unwrap_or_default();
            }
        });
        Ok(Tap { path, shared })
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Everything that went in, by connection.
    pub fn heard(&self) -> Vec<Vec<u8>> {
        let heard = self.shared.heard.lock();
        heard.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Shared {
    fn pass(self: &Arc<Self>, near: UnixStream, to: &Path) -> std::io::Result<()> {
        let far = UnixStream::connect(to)?;
        let index = {
            let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            heard.push(Vec::new());
            heard.len() - 1
        };
        let (near_in, far_in) = (near.try_clone()?, far.try_clone()?);
        let shared = self.clone();
        std::thread::spawn(move || {
            copy(near_in, far_in, |bytes| {
                let mut heard = shared.heard.lock().unwrap_or_else(PoisonError::into_inner);
                heard[index].extend_from_slice(bytes);
            });
        });
        std::thread::spawn(move || copy(far, near, |_| {}));
        Ok(())
    }
}

/// Copies until the end, and passes the end on.
fn copy(mut from: UnixStream, mut to: UnixStream, mut see: impl FnMut(&[u8])) {
    let mut buffer = [0; 16 << 10];
    while let Ok(length) = from.read(&mut buffer) {
        if length == 0 {
            break;
        }
        see(&buffer[..length]);
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = UnixStream::connect(&self.path);
    }
}
