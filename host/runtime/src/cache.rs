//! Compiled components on disk, so that a restart does not compile.
//!
//! Compiled code is native code: whoever can write a file that is mapped runs in this process. So each
//! file is authenticated with a key of the host, over the very bytes that are then loaded: they are
//! read once into memory, and the path is not looked at again. The key of an entry is the component's
//! digest and the hash of everything that the engine's compiled form depends on; both are part of what
//! is authenticated. Anything that does not match is as if it were not there, and is replaced.

use std::hash::{Hash, Hasher};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use wasmtime::Engine;

use crate::text::hex;

const MAGIC: &[u8; 8] = b"LHAOT001";
const MAC: usize = 32;
const HEADER: usize = MAGIC.len() + MAC;
/// No compiled component is larger.
const LARGEST: u64 = 1 << 30;

/// A directory of compiled components.
pub struct Cache {
    dir: Dir,
    key: [u8; 32],
    serial: AtomicU64,
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cache")
    }
}

impl Cache {
    /// `dir`: the server's own, mode 0700. `key`: 32 random bytes of the host, kept elsewhere; with
    /// another key every entry is compiled anew.
    pub fn new(dir: Dir, key: [u8; 32]) -> Cache {
        Cache {
            dir,
            key,
            serial: AtomicU64::new(0),
        }
    }

    /// The compiled form, if a sound one is there.
    pub(crate) fn load(&self, entry: &Entry) -> Option<Compiled> {
        let file = self.dir.open(entry.name()).ok()?;
        let length = file.metadata().ok()?.len();
        if length > LARGEST {
            return None;
        }
        let mut bytes = Vec::with_capacity(usize::try_from(length).ok()? + 1);
        file.take(LARGEST).read_to_end(&mut bytes).ok()?;
        let mac = bytes.strip_prefix(MAGIC)?.get(..MAC)?;
        let code = bytes.get(HEADER..)?;
        self.mac(entry, code)?.verify_slice(mac).ok()?;
        Some(Compiled(bytes))
    }

    /// Keeps a compiled form. What cannot be kept is compiled again at the next start.
    pub(crate) fn store(&self, entry: &Entry, code: &[u8]) {
        if let Err(error) = self.try_store(entry, code) {
            tracing::warn!(%error, component = entry.name(), "compiled component was not kept");
        }
    }

    fn try_store(&self, entry: &Entry, code: &[u8]) -> std::io::Result<()> {
        let mac = self
            .mac(entry, code)
            .ok_or_else(|| std::io::Error::other("the key of the cache has no use"))?
            .finalize()
            .into_bytes();
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let temporary = format!("{}.{}-{serial}.tmp", entry.name(), std::process::id());
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let written = (|| {
            let mut file = self.dir.open_with(&temporary, &options)?;
            file.write_all(MAGIC)?;
            file.write_all(&mac)?;
            file.write_all(code)?;
            file.sync_all()?;
            self.dir.rename(&temporary, &self.dir, entry.name())
        })();
        if written.is_err() {
            let _ = self.dir.remove_file(&temporary);
        } else {
            self.forget_others(entry);
        }
        written
    }

    /// Removes what other engines compiled of the same component, and what a crash left half-written.
    fn forget_others(&self, entry: &Entry) {
        let Ok(files) = self.dir.entries() else {
            return;
        };
        let own = entry.name();
        let digest = hex(&entry.digest);
        for file in files.flatten() {
            let name = file.file_name();
            let Some(name) = name.to_str() else {
                continue;
            };
            if name.starts_with(&digest) && name != own {
                let _ = self.dir.remove_file(name);
            }
        }
    }

    fn mac(&self, entry: &Entry, code: &[u8]) -> Option<Hmac<Sha256>> {
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&self.key).ok()?;
        mac.update(b"leasehold compiled component\0");
        mac.update(&entry.digest);
        mac.update(&entry.engine);
        mac.update(code);
        Some(mac)
    }
}

/// A file's authenticated bytes.
pub(crate) struct Compiled(Vec<u8>);

impl Compiled {
    pub(crate) fn code(&self) -> &[u8] {
        self.0.get(HEADER..).unwrap_or_default()
    }
}

/// What an entry is found by.
pub(crate) struct Entry {
    digest: [u8; 32],
    engine: [u8; 32],
}

impl Entry {
    pub(crate) fn new(digest: [u8; 32], engine: &Engine) -> Entry {
        let mut hasher = Sha(Sha256::new());
        engine.precompile_compatibility_hash().hash(&mut hasher);
        Entry {
            digest,
            engine: hasher.0.finalize().into(),
        }
    }

    fn name(&self) -> String {
        format!("{}-{}.cwasm", hex(&self.digest), hex(&self.engine[..8]))
    }
}

/// All that is hashed, in full width.
struct Sha(Sha256);

impl Hasher for Sha {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        0
    }
}
