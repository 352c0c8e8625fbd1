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
    /// Who says this hears nothing more.
    lost: Mutex<Option<String>>,
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

    /// From now on nothing comes back on a connection that this was said on; `None`: everything does again on new ones.
    pub fn lose_answers_to(&self, said: Option<&str>) {
        let lost = self.shared.lost.lock();
        *lost.unwrap_or_else(PoisonError::into_inner) = said.map(str::to_owned);
    }

    /// Everything that went in, by connection.
    pub fn heard(&self) -> Vec<Vec<u8>> {
        let heard = self.shared.heard.lock();
        heard.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Shared {
    fn is_lost(&self, index: usize) -> bool {
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        lost.as_ref()
            .is_some_and(|said| String::from_utf8_lossy(&heard[index]).contains(said))
    }

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
            let mut far_in = far_in;
            copy_while(near_in, &mut far_in, |bytes| {
                let mut heard = shared.heard.lock().unwrap_or_else(PoisonError::into_inner);
                heard[index].extend_from_slice(bytes);
                true
            });
            let _ = far_in.shutdown(Shutdown::Write);
        });
        let shared = self.clone();
        std::thread::spawn(move || {
            let mut near = near;
            copy_while(far, &mut near, |_| !shared.is_lost(index));
            let _ = near.shutdown(Shutdown::Write);
        });
        Ok(())
    }
}

/// Copies what is to be passed, until the end.
fn copy_while(mut from: UnixStream, to: &mut UnixStream, mut passes: impl FnMut(&[u8]) -> bool) {
    let mut buffer = [0; 16 << 10];
    while let Ok(length) = from.read(&mut buffer) {
        if length == 0 {
            break;
        }
        if passes(&buffer[..length]) && to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = UnixStream::connect(&self.path);
    }
}
