//! A host that accepts connections and says nothing.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;

/// Listens on loopback, takes every connection and never writes a byte.
#[derive(Debug)]
pub struct SilentHost {
    address: SocketAddr,
    over: Arc<AtomicBool>,
}

impl SilentHost {
    /// Starts it on a free port.
    ///
    /// # Errors
    /// When no port can be had.
    pub fn start() -> Result<SilentHost> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let over = Arc::new(AtomicBool::new(false));
        let stop = over.clone();
        std::thread::spawn(move || {
            let mut held = Vec::new();
            for stream in listener.incoming() {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                held.extend(stream);
            }
        });
        Ok(SilentHost { address, over })
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.address.port()
    }
}

impl Drop for SilentHost {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Wakes the accepting thread.
        let _ = std::net::TcpStream::connect(self.address);
    }
}
