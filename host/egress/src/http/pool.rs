//! Connections that are shared, and never between two companies, plugin revisions, secret versions, destinations, trusts
//! or identities.
//!
//! A connection carries one request at a time. Whoever holds a [`Turn`] has a place among those that the pool may have
//! open; a place is free again only when its connection lies idle or is closed, so that the places bound the sockets.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use leasehold_contract::{Code, Error};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::body::Outgoing;
use super::reach::{Gauge, Reach, plain};
use super::settings::HttpSettings;
use super::{Destination, PoolKey};
use crate::error::{failed, unavailable};
use crate::pool::PoolScope;

/// How long a connection whose answer was read may take to be ready for the next request.
const SETTLE: Duration = Duration::from_secs(1);

/// What must be equal for a connection to be shared.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    company: String,
    plugin_revision: String,
    secret_version: String,
    /// Origin or socket, whether it was typed, and whether it is an engine: what was dialled for the one is not what the
    /// other may reach.
    destination: (String, bool, bool),
    tls: Option<String>,
}

/// What a connection is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// A request that ends within its call.
    Request,
    /// Bytes that may flow for long.
    Stream,
}

/// Which standing connections will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// Any.
    Any,
    /// Those that were used a moment ago.
    Trusted,
    /// None: a new one.
    New,
}

/// A connection with HTTP spoken over it. Dropping it closes it.
pub(super) struct Link {
    pub(super) sender: SendRequest<Outgoing>,
    pub(super) gauge: Arc<Gauge>,
    pub(super) task: AbortOnDropHandle<()>,
    /// Why the connection ended, where it did not in order.
    fault: Arc<OnceLock<hyper::Error>>,
    local: bool,
}

impl Link {
    /// Why the connection ended, once it has: whoever asks over one that has ended is told only that it has.
    pub(super) async fn fault(&mut self) -> Option<&hyper::Error> {
        let _ = timeout(SETTLE, &mut self.task).await;
        self.fault.get()
    }
}

struct Idle {
    link: Link,
    since: Instant,
}

struct Room {
    idle: Mutex<Vec<Idle>>,
    /// The most that lie idle: streams may be many more, and leave their connections here.
    most: usize,
    requests: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    /// Nothing of it is given out again.
    retired: AtomicBool,
}

/// All pools of one [`super::Transport`].
pub(super) struct Pools {
    pub(super) settings: HttpSettings,
    reach: Reach,
    rooms: Mutex<HashMap<Key, Arc<Room>>>,
    sweeping: AtomicBool,
}

/// A connection in use.
pub(super) struct Turn {
    pub(super) link: Link,
    /// It stood before: the other side may have closed it since.
    pub(super) reused: bool,
    room: Arc<Room>,
    permit: OwnedSemaphorePermit,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Room {
    fn new(settings: &HttpSettings, retired: bool) -> Arc<Room> {
        Arc::new(Room {
            idle: Mutex::new(Vec::new()),
            most: settings.connections.max(1),
            requests: Arc::new(Semaphore::new(settings.connections.max(1))),
            streams: Arc::new(Semaphore::new(settings.streams.max(1))),
            retired: AtomicBool::new(retired),
        })
    }

    /// The one that was used last, if it is young enough.
    fn take(&self, youngest: Duration) -> Option<Link> {
        let mut idle = lock(&self.idle);
        while let Some(Idle { link, since }) = idle.pop() {
            if link.sender.is_closed() {
                continue;
            }
            if since.elapsed() > youngest {
                // The others are older still. It stays for a request that may be sent twice.
                idle.push(Idle { link, since });
                return None;
            }
            return Some(link);
        }
        None
    }

    fn put(&self, link: Link) {
        let mut idle = lock(&self.idle);
        idle.retain(|i| !i.link.sender.is_closed());
        let retired = self.retired.load(Ordering::Acquire);
        if !retired && !link.sender.is_closed() && idle.len() < self.most {
            idle.push(Idle {
                link,
                since: Instant::now(),
            });
        }
    }

    fn retire(&self) {
        let mut idle = lock(&self.idle);
        self.retired.store(true, Ordering::Release);
        idle.clear();
    }
}

impl Pools {
    pub(super) fn new(settings: HttpSettings, reach: Reach) -> Arc<Pools> {
        Arc::new(Pools {
            settings,
            reach,
            rooms: Mutex::new(HashMap::new()),
            sweeping: AtomicBool::new(false),
        })
    }

    /// Connections that lie idle and stand.
    pub(super) fn idle(&self) -> usize {
        let stand = |room: &Arc<Room>| {
            let idle = lock(&room.idle);
            idle.iter().filter(|i| !i.link.sender.is_closed()).count()
        };
        lock(&self.rooms).values().map(stand).sum()
    }

    pub(super) fn close_scope(&self, scope: &PoolScope) {
        let is = |want: &Option<String>, have: &str| want.as_ref().is_none_or(|w| w == have);
        let among = |want: &Option<String>, have: &str| {
            want.as_ref()
                .is_none_or(|w| have.split(',').any(|h| h == w))
        };
        lock(&self.rooms).retain(|key, room| {
            let named = is(&scope.company, &key.company)
                && is(&scope.plugin_revision, &key.plugin_revision)
                && among(&scope.secret_version, &key.secret_version);
            if named {
                room.retire();
            }
            !named
        });
    }

    fn room(self: &Arc<Self>, pool: &PoolKey, to: &Destination) -> Arc<Room> {
        if pool.fresh {
            return Room::new(&self.settings, true);
        }
        let key = Key {
            company: pool.company.clone(),
            plugin_revision: pool.plugin_revision.clone(),
            secret_version: pool.secret_version.clone(),
            destination: (to.to_string(), to.typed, to.engine),
            tls: to.tls.as_ref().map(|tls| tls.fingerprint.clone()),
        };
        let room = lock(&self.rooms)
            .entry(key)
            .or_insert_with(|| Room::new(&self.settings, false))
            .clone();
        if !self.sweeping.swap(true, Ordering::AcqRel) {
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
        room
    }

    /// A connection, standing or new, and a place for it.
    ///
    /// # Errors
    /// Those of [`Reach::open`]; `busy` when no place becomes free until `until`.
    pub(super) async fn turn(
        self: &Arc<Self>,
        pool: &PoolKey,
        to: &Destination,
        secret: bool,
        (want, age): (Want, Age),
        until: Instant,
    ) -> Result<Turn, Error> {
        let name = to.to_string();
        let room = self.room(pool, to);
        let (places, most) = match want {
            Want::Request => (room.requests.clone(), self.settings.connections),
            Want::Stream => (room.streams.clone(), self.settings.streams),
        };
        let permit = timeout_at(until.into(), places.acquire_owned())
            .await
            .map_err(|_| {
                failed(
                    Code::Busy,
                    &name,
                    format_args!("all {most} connections to it are in use; wait, or end something"),
                )
            })?
            .map_err(|_| failed(Code::Internal, &name, "the pool is closed"))?;
        let standing = match age {
            Age::Any => room.take(self.settings.keep),
            Age::Trusted => room.take(self.settings.trusted),
            Age::New => None,
        };
        if let Some(link) = standing {
            plain(to, secret, link.local, &name)?;
            return Ok(Turn {
                link,
                reused: true,
                room,
                permit,
            });
        }
        let reached = self.reach.open(to, secret, &self.settings).await?;
        let (sender, connection) = Builder::new()
            .max_headers(self.settings.headers)
            .max_header_size(self.settings.head_bytes)
            .handshake(TokioIo::new(reached.stream))
            .await
            .map_err(|e| unavailable(&name, format_args!("no HTTP could be spoken ({e})")))?;
        let fault = Arc::new(OnceLock::new());
        let told = fault.clone();
        let task = AbortOnDropHandle::new(tokio::spawn(async move {
            // What goes wrong is told to whoever waits for an answer; nobody may wait yet.
            if let Err(error) = connection.with_upgrades().await {
                let _ = told.set(error);
            }
        }));
        tracing::debug!(destination = %name, ?want, "connected");
        Ok(Turn {
            link: Link {
                sender,
                gauge: reached.gauge,
                task,
                fault,
                local: reached.local,
            },
            reused: false,
            room,
            permit,
        })
    }
}

impl Turn {
    /// The answer was read to its end: the connection may serve another. Its place is free once it can.
    pub(super) fn give_back(self) {
        let Turn {
            mut link,
            room,
            permit,
            ..
        } = self;
        if link.sender.is_ready() {
            room.put(link);
            drop(permit);
            return;
        }
        tokio::spawn(async move {
            if let Ok(Ok(())) = timeout(SETTLE, link.sender.ready()).await {
                room.put(link);
            }
            drop(permit);
        });
    }

    /// The place alone, for a connection that left HTTP.
    pub(super) fn into_parts(self) -> (Link, OwnedSemaphorePermit) {
        (self.link, self.permit)
    }
}

/// Closes what nobody used for long, until nothing is left to close.
async fn sweep(pools: Weak<Pools>) {
    loop {
        let Some(pause) = pools.upgrade().map(|p| p.settings.keep / 4) else {
            return;
        };
        tokio::time::sleep(pause).await;
        let Some(pools) = pools.upgrade() else { return };
        let mut rooms = lock(&pools.rooms);
        let keep = pools.settings.keep;
        rooms.retain(|_, room| {
            let mut idle = lock(&room.idle);
            idle.retain(|i| !i.link.sender.is_closed() && i.since.elapsed() < keep);
            !idle.is_empty() || Arc::strong_count(room) > 1
        });
        if rooms.is_empty() {
            // Under the lock that `room` takes before it looks at this.
            pools.sweeping.store(false, Ordering::Release);
            return;
        }
    }
}
