//! Connections that are shared, and never between two companies, plugin revisions, secret versions, targets or trusts.
//!
//! A connection reads its channels one packet after another: a channel whose reader is slow holds back the others
//! on it. So work comes in two kinds. What is always read to its end (scripts, SFTP) shares a connection; a
//! stream that a client may stop reading has one [alone](Want::Alone) and gives it back when it ended in order.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use leasehold_contract::{Code, Error};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::connect::{Connection, connect};
use crate::error::failed;
use crate::settings::SshSettings;
use crate::target::SshTarget;

/// Channels on one connection until the server says that it wants fewer (`MaxSessions` is 10 unless set).
const CHANNELS: usize = 8;

/// Which pooled connections to close: those to which everything that is given applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolScope {
    /// Of this company.
    pub company: Option<String>,
    /// Of this plugin revision.
    pub plugin_revision: Option<String>,
    /// That were made with this version of a secret: one of those that [`CallScope::secret_version`] lists.
    ///
    /// [`CallScope::secret_version`]: crate::CallScope::secret_version
    pub secret_version: Option<String>,
}

/// What must be equal for a connection to be shared.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) company: String,
    pub(crate) plugin_revision: String,
    pub(crate) secret_version: String,
    /// [`SshTarget::fingerprint`]: address, user, key, trust and jumps.
    pub(crate) target: String,
    /// Set for a connection of its own, which nobody else finds.
    pub(crate) private: Option<String>,
}

/// How a connection is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// For a channel that is always read to its end.
    Shared,
    /// For a stream whose reader may be slow: no other channel is on it.
    Alone,
}

struct Slot {
    connection: Arc<Connection>,
    users: usize,
    /// Channels that it may have.
    room: usize,
    alone: bool,
    /// Not given out again.
    retired: bool,
    idle_since: Instant,
    _permit: OwnedSemaphorePermit,
}

struct Room {
    slots: HashMap<u64, Slot>,
    handshakes: Arc<Semaphore>,
    connections: Arc<Semaphore>,
}

#[derive(Default)]
struct State {
    rooms: HashMap<Key, Room>,
    next: u64,
    sweeping: bool,
}

/// All pools of one [`crate::Ssh`].
pub(crate) struct Pools {
    settings: SshSettings,
    state: Mutex<State>,
}

/// The way to one target: what opens channels on it.
pub(crate) struct Route {
    pub(crate) pools: Arc<Pools>,
    pub(crate) target: Arc<SshTarget>,
    key: Key,
}

impl Drop for Route {
    fn drop(&mut self) {
        if self.key.private.is_some() {
            self.pools.close_where(|k| *k == self.key);
        }
    }
}

/// A connection in use; dropping it gives it back.
pub(crate) struct Line {
    pools: Weak<Pools>,
    key: Key,
    id: u64,
    pub(crate) connection: Arc<Connection>,
    /// It was made for this use: nothing can be wrong with its age.
    pub(crate) new: bool,
}

impl Pools {
    pub(crate) fn new(settings: SshSettings) -> Arc<Pools> {
        Arc::new(Pools {
            settings,
            state: Mutex::new(State::default()),
        })
    }

    pub(crate) fn settings(&self) -> &SshSettings {
        &self.settings
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A way to `target` through the pool of this key.
    pub(crate) fn route(
        self: &Arc<Self>,
        target: Arc<SshTarget>,
        company: &str,
        plugin_revision: &str,
        secret_version: &str,
    ) -> Route {
        let key = Key {
            company: company.to_owned(),
            plugin_revision: plugin_revision.to_owned(),
            secret_version: secret_version.to_owned(),
            target: target.fingerprint(),
            private: None,
        };
        Route {
            pools: self.clone(),
            target,
            key,
        }
    }

    /// A way of its own: its connections are new, nobody else's, and closed with it.
    pub(crate) fn fresh(self: &Arc<Self>, target: Arc<SshTarget>) -> Route {
        let mut route = self.route(target, "", "", "");
        route.key.private = Some(crate::random_hex::<16>());
        route
    }

    pub(crate) fn connections(&self) -> usize {
        self.lock().rooms.values().map(|r| r.slots.len()).sum()
    }

    pub(crate) fn close_scope(&self, scope: &PoolScope) {
        let is = |want: &Option<String>, have: &str| want.as_ref().is_none_or(|w| w == have);
        self.close_where(|k| {
            is(&scope.company, &k.company)
                && is(&scope.plugin_revision, &k.plugin_revision)
                && scope
                    .secret_version
                    .as_ref()
                    .is_none_or(|w| k.secret_version.split(',').any(|have| have == w))
        });
    }

    fn close_where(&self, which: impl Fn(&Key) -> bool) {
        let mut state = self.lock();
        for (key, room) in &mut state.rooms {
            if which(key) {
                for slot in room.slots.values_mut() {
                    slot.retired = true;
                }
                room.slots.retain(|_, slot| slot.users > 0);
            }
        }
        state
            .rooms
            .retain(|key, room| !(which(key) && room.slots.is_empty()));
    }

    /// Takes a standing connection, if one fits.
    fn take(self: &Arc<Self>, key: &Key, want: Want) -> Option<Line> {
        let mut state = self.lock();
        let room = state.rooms.get_mut(key)?;
        room.slots
            .retain(|_, s| s.users > 0 || (s.connection.is_alive() && !s.retired));
        let fits = |s: &Slot| {
            let usable = !s.retired && !s.alone && s.connection.is_alive();
            usable
                && match want {
                    Want::Alone => s.users == 0,
                    Want::Shared => s.users < s.room,
                }
        };
        // The fullest that has room: the idle ones are for streams.
        let (id, slot) = room
            .slots
            .iter_mut()
            .map(|(id, s)| (*id, s))
            .filter(|(_, s)| fits(s))
            .max_by_key(|(_, s)| s.users)?;
        slot.users += 1;
        slot.alone = want == Want::Alone;
        Some(Line {
            pools: Arc::downgrade(self),
            key: key.clone(),
            id,
            connection: slot.connection.clone(),
            new: false,
        })
    }

    fn semaphores(&self, key: &Key) -> (Arc<Semaphore>, Arc<Semaphore>) {
        let mut state = self.lock();
        let room = state.rooms.entry(key.clone()).or_insert_with(|| Room {
            slots: HashMap::new(),
            handshakes: Arc::new(Semaphore::new(self.settings.handshakes.max(1))),
            connections: Arc::new(Semaphore::new(self.settings.connections.max(1))),
        });
        (room.handshakes.clone(), room.connections.clone())
    }

    fn put(
        self: &Arc<Self>,
        key: &Key,
        want: Want,
        connection: Connection,
        permit: OwnedSemaphorePermit,
    ) -> Line {
        let connection = Arc::new(connection);
        let (handshakes, connections) = self.semaphores(key);
        let mut state = self.lock();
        let id = state.next;
        state.next += 1;
        let room = state.rooms.entry(key.clone()).or_insert_with(|| Room {
            slots: HashMap::new(),
            handshakes,
            connections,
        });
        room.slots.insert(
            id,
            Slot {
                connection: connection.clone(),
                users: 1,
                room: CHANNELS,
                alone: want == Want::Alone,
                retired: false,
                idle_since: Instant::now(),
                _permit: permit,
            },
        );
        if !state.sweeping {
            state.sweeping = true;
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
        Line {
            pools: Arc::downgrade(self),
            key: key.clone(),
            id,
            connection,
            new: true,
        }
    }
}

/// Closes what nobody used for long, until nothing is left to close.
async fn sweep(pools: Weak<Pools>) {
    loop {
        let Some(pause) = pools.upgrade().map(|p| p.settings.idle / 4) else {
            return;
        };
        tokio::time::sleep(pause).await;
        let Some(pools) = pools.upgrade() else { return };
        let mut state = pools.lock();
        let idle = pools.settings.idle;
        for room in state.rooms.values_mut() {
            room.slots.retain(|_, s| {
                s.users > 0 || (s.connection.is_alive() && s.idle_since.elapsed() < idle)
            });
        }
        state
            .rooms
            .retain(|_, room| !room.slots.is_empty() || Arc::strong_count(&room.handshakes) > 1);
        if state.rooms.is_empty() {
            state.sweeping = false;
            return;
        }
    }
}

impl Route {
    pub(crate) fn settings(&self) -> &SshSettings {
        &self.pools.settings
    }

    /// `user@host:port`.
    pub(crate) fn name(&self) -> String {
        self.target.identity()
    }

    /// A connection, standing or new.
    ///
    /// # Errors
    /// Those of [`connect`]; `busy` when the target has as many connections as are allowed.
    pub(crate) async fn line(&self, want: Want) -> Result<Line, Error> {
        if let Some(line) = self.pools.take(&self.key, want) {
            return Ok(line);
        }
        let settings = &self.pools.settings;
        let (handshakes, connections) = self.pools.semaphores(&self.key);
        let busy = |_| {
            failed(
                Code::Busy,
                &self.name(),
                format_args!(
                    "all {} connections to it are in use; end a command or wait",
                    settings.connections
                ),
            )
        };
        let wait = settings.connect + settings.authenticate;
        let permit = timeout(wait, connections.acquire_owned())
            .await
            .map_err(busy)?
            .map_err(|_| failed(Code::Internal, &self.name(), "the pool is closed"))?;
        // Without a deadline of its own: those before us have one each.
        let _turn = handshakes
            .acquire_owned()
            .await
            .map_err(|_| failed(Code::Internal, &self.name(), "the pool is closed"))?;
        // Somebody before us may have made one that has room.
        if let Some(line) = self.pools.take(&self.key, want) {
            return Ok(line);
        }
        let connection = connect(settings, &self.target).await?;
        tracing::debug!(target = %self.name(), alone = want == Want::Alone, "connected");
        Ok(self.pools.put(&self.key, want, connection, permit))
    }
}

impl Line {
    fn with<T>(&self, change: impl FnOnce(&mut Slot) -> T) -> Option<T> {
        let pools = self.pools.upgrade()?;
        let mut state = pools.lock();
        let slot = state.rooms.get_mut(&self.key)?.slots.get_mut(&self.id)?;
        Some(change(slot))
    }

    /// It is not to be given out again.
    pub(crate) fn retire(&self) {
        self.with(|s| s.retired = true);
    }

    /// The server refused another channel: it has as many as it wants. False where this is its only one.
    pub(crate) fn refused(&self) -> bool {
        self.with(|s| {
            s.room = s.users.saturating_sub(1).max(1);
            s.users > 1
        })
        .unwrap_or(false)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let Some(pools) = self.pools.upgrade() else {
            return;
        };
        let mut state = pools.lock();
        let Some(room) = state.rooms.get_mut(&self.key) else {
            return;
        };
        let Some(slot) = room.slots.get_mut(&self.id) else {
            return;
        };
        slot.users = slot.users.saturating_sub(1);
        slot.idle_since = Instant::now();
        if slot.users == 0 {
            slot.alone = false;
            if slot.retired || !slot.connection.is_alive() {
                room.slots.remove(&self.id);
            }
        }
    }
}
