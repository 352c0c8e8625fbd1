//! The engine's clock: advances its epoch every 10 ms, so that running components can be looked at.
//!
//! On an OS thread of its own, because as a task it would be starved by the very component that it
//! must stop. By absolute time, so that it does not drift. While no call is under way it sleeps; it
//! holds the engine weakly and ends with the runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use wasmtime::{Engine, EngineWeak};

/// How often the epoch advances.
pub(crate) const TICK: Duration = Duration::from_millis(10);
/// Ticks without a call after which the thread goes to sleep.
const IDLE_TICKS: u32 = 100;

#[derive(Debug, Default)]
struct Desk {
    under_way: AtomicU64,
    asleep: AtomicBool,
    stop: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct Ticker {
    desk: Arc<Desk>,
    thread: Thread,
    join: Option<JoinHandle<()>>,
}

impl Ticker {
    pub(crate) fn start(engine: &Engine) -> std::io::Result<Ticker> {
        let desk = Arc::new(Desk::default());
        let join = std::thread::Builder::new()
            .name("leasehold-epoch".to_owned())
            .spawn({
                let desk = Arc::clone(&desk);
                let engine = engine.weak();
                move || tick(&desk, &engine)
            })?;
        Ok(Ticker {
            desk,
            thread: join.thread().clone(),
            join: Some(join),
        })
    }

    /// Keeps the clock running until the guard is dropped.
    pub(crate) fn hold(&self) -> Held<'_> {
        self.desk.under_way.fetch_add(1, SeqCst);
        if self.desk.asleep.load(SeqCst) {
            self.thread.unpark();
        }
        Held(&self.desk)
    }
}

/// A call under way.
pub(crate) struct Held<'a>(&'a Desk);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, SeqCst);
    }
}

fn tick(desk: &Desk, engine: &EngineWeak) {
    let mut next = Instant::now() + TICK;
    let mut idle = 0;
    while !desk.stop.load(SeqCst) {
        if idle > IDLE_TICKS {
            // The flag goes up before the count is read again, and a call raises the count before it
            // reads the flag: one of the two sees the other.
            desk.asleep.store(true, SeqCst);
            while desk.under_way.load(SeqCst) == 0 && !desk.stop.load(SeqCst) {
                std::thread::park();
            }
            desk.asleep.store(false, SeqCst);
            idle = 0;
            next = Instant::now() + TICK;
            continue;
        }
        let now = Instant::now();
        if now < next {
            std::thread::park_timeout(next - now);
            continue;
        }
        let Some(engine) = engine.upgrade() else {
            return;
        };
        engine.increment_epoch();
        if desk.under_way.load(SeqCst) == 0 {
            idle += 1;
        } else {
            idle = 0;
        }
        next += TICK;
        if next <= now {
            next = now + TICK;
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.desk.stop.store(true, SeqCst);
        self.thread.unpark();
        if let Some(join) = self.join.take()
            && join.thread().id() != std::thread::current().id()
        {
            let _ = join.join();
        }
    }
}
