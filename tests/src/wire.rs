//! A wire to a machine that can be cut and held, as networks do: a forwarder of TCP connections on loopback.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// How new connections fare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// They are forwarded.
    Up,
    /// They are closed at once.
    Down,
    /// They are accepted and nothing comes of them.
    Silent,
}

const UP: u8 = 0;
const DOWN: u8 = 1;
const SILENT: u8 = 2;
const OVER: u8 = 3;

#[derive(Debug)]
struct Shared {
    state: AtomicU8,
    /// Bytes towards the machine that still pass before everything is cut; negative: no end to them.
    passes: AtomicI64,
    ends: Mutex<Vec<TcpStream>>,
}

/// The wire; dropping it cuts it.
#[derive(Debug)]
pub struct Wire {
    shared: Arc<Shared>,
    port: u16,
}

impl Wire {
    /// One to this port of 127.0.0.1, up.
    ///
    /// # Panics
    /// Without a free port.
    pub fn to(target: u16) -> Wire {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared {
            state: AtomicU8::new(UP),
            passes: AtomicI64::new(-1),
            ends: Mutex::default(),
        });
        let serving = shared.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                match serving.state.load(Ordering::SeqCst) {
                    UP => Shared::forward(&serving, near, target),
                    DOWN => {}
                    SILENT => serving.keep(near),
                    _ => return,
                }
            }
        });
        Wire { shared, port }
    }

    /// Its own port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Connections that were forwarded or are held, now.
    pub fn held(&self) -> usize {
        self.shared.lock().len()
    }

    /// Decides how new connections fare, and cuts all that there are.
    pub fn set(&self, state: State) {
        let state = match state {
            State::Up => UP,
            State::Down => DOWN,
            State::Silent => SILENT,
        };
        self.shared.state.store(state, Ordering::SeqCst);
        self.cut();
    }

    /// Cuts every connection; new ones fare as before.
    pub fn cut(&self) {
        self.shared.cut();
    }

    /// Lets this many more bytes pass towards the machine, then is down as by [`State::Down`].
    pub fn cut_after(&self, bytes: u32) {
        self.shared.passes.store(bytes.into(), Ordering::SeqCst);
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<TcpStream>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, end: TcpStream) {
        self.lock().push(end);
    }

    fn cut(&self) {
        for end in self.lock().drain(..) {
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    fn forward(shared: &Arc<Shared>, near: TcpStream, target: u16) {
        let Ok(far) = TcpStream::connect(("127.0.0.1", target)) else {
            return;
        };
        for (from, to, counts) in [(&near, &far, true), (&far, &near, false)] {
            let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else {
                return;
            };
            let _ = to.set_nodelay(true);
            let shared = shared.clone();
            std::thread::spawn(move || pass(&shared, from, to, counts));
        }
        shared.keep(near);
        shared.keep(far);
    }

    /// How many of these bytes may pass towards the machine; fewer than all: everything is to be cut behind them.
    fn allowed(&self, bytes: usize) -> usize {
        let wanted = i64::try_from(bytes).unwrap_or(i64::MAX);
        let left = self.passes.load(Ordering::SeqCst);
        if left < 0 {
            return bytes;
        }
        if left < wanted {
            self.passes.store(-1, Ordering::SeqCst);
            self.state.store(DOWN, Ordering::SeqCst);
            return usize::try_from(left).unwrap_or(0);
        }
        self.passes.store(left - wanted, Ordering::SeqCst);
        bytes
    }
}

fn pass(shared: &Shared, mut from: TcpStream, mut to: TcpStream, counts: bool) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let allowed = if counts { shared.allowed(read) } else { read };
        if to.write_all(&buffer[..allowed]).is_err() {
            break;
        }
        if allowed < read {
            shared.cut();
        }
    }
    let _ = from.shutdown(Shutdown::Read);
    let _ = to.shutdown(Shutdown::Write);
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.shared.state.store(OVER, Ordering::SeqCst);
        self.cut();
        // The listener is woken to see that it is over.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}
