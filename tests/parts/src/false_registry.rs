//! A registry that answers whatever a test lays in its paths: what a real one never does.
//!
//! It speaks HTTP/1.1 by hand, so that it can break off, hang, lie about lengths and digests, and send whoever asks
//! somewhere else; and it remembers all it was sent.

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::rooms::{Heard, read};

/// How an answer ends that does not end as it should.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hang {
    /// It ends.
    #[default]
    Never,
    /// Nothing of it comes.
    BeforeTheHead,
    /// Its head and body come, and then nothing, with the connection open.
    AfterTheBody,
}

/// An answer, byte for byte.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// Names and values.
    pub headers: Vec<(String, String)>,
    /// The bytes.
    pub body: Vec<u8>,
    /// What Content-Length says, where that is not the truth. More than there is: the connection is closed behind the body.
    pub length: Option<usize>,
    /// Whether it ends.
    pub hang: Hang,
}

impl Reply {
    /// A status and bytes.
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Reply {
        Reply {
            status,
            headers: Vec::new(),
            body: body.into(),
            length: None,
            hang: Hang::Never,
        }
    }

    /// A refusal with a code of the specification, and words of the registry's own.
    pub fn refusal(status: u16, code: &str) -> Reply {
        let body = json!({ "errors": [{ "code": code, "message": "words of its own" }] });
        Reply::new(status, body.to_string())
    }

    /// With a header.
    pub fn with(mut self, name: &str, value: &str) -> Reply {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With another length.
    pub fn of_length(mut self, length: usize) -> Reply {
        self.length = Some(length);
        self
    }

    /// With another end.
    pub fn hanging(mut self, hang: Hang) -> Reply {
        self.hang = hang;
        self
    }
}

/// What is laid in a path: the answers in order, the last of them from then on.
type Laid = BTreeMap<String, Vec<Reply>>;

#[derive(Default)]
struct Shared {
    laid: Mutex<Laid>,
    heard: Mutex<Vec<Heard>>,
    over: AtomicBool,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A registry on a free port of loopback; dropped, it takes no more connections.
pub struct FalseRegistry {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for FalseRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FalseRegistry({})", self.address)
    }
}

/// `sha256:…` of these bytes.
pub fn digest_of(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    format!("sha256:{hex}")
}

/// What names these bytes in a manifest.
pub fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": digest_of(bytes), "size": bytes.len() })
}

/// An image manifest of these layers.
pub fn manifest(layers: &[Value]) -> Value {
    json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": descriptor("application/vnd.wasm.config.v0+json", b"{}"),
        "layers": layers,
    })
}

/// Media type of an image manifest.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

impl FalseRegistry {
    /// One without anything in it.
    ///
    /// # Errors
    /// When no port can be had.
    pub fn start() -> Result<FalseRegistry> {
        let listener = TcpListener::bind("127.0.0.1:0").context("no port")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let serving = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if serving.over.load(Ordering::SeqCst) {
                    break;
                }
                let shared = serving.clone();
                // Whoever hangs up has had its answer, or wants none.
                std::thread::spawn(move || serve(&shared, stream).unwrap_or_default());
            }
        });
        Ok(FalseRegistry { address, shared })
    }

    /// Host and port, as references name it.
    pub fn authority(&self) -> String {
        self.address.to_string()
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Lays an answer in a path (without its query), instead of what lay there.
    pub fn lay(&self, path: &str, reply: Reply) {
        self.lay_each(path, vec![reply]);
    }

    /// Lays one answer after the other in a path; the last stays.
    pub fn lay_each(&self, path: &str, replies: Vec<Reply>) {
        lock(&self.shared.laid).insert(path.to_owned(), replies);
    }

    /// Lays a manifest at its digest and at a tag, and answers its digest.
    pub fn lay_manifest(&self, repository: &str, tag: &str, manifest: &Value) -> String {
        let bytes = manifest.to_string().into_bytes();
        let digest = digest_of(&bytes);
        let reply = Reply::new(200, bytes)
            .with("content-type", MANIFEST)
            .with("docker-content-digest", &digest);
        self.lay(&format!("/v2/{repository}/manifests/{tag}"), reply.clone());
        self.lay(&format!("/v2/{repository}/manifests/{digest}"), reply);
        digest
    }

    /// Lays a blob at its digest, and answers its path.
    pub fn lay_blob(&self, repository: &str, bytes: &[u8]) -> String {
        let path = format!("/v2/{repository}/blobs/{}", digest_of(bytes));
        self.lay(&path, Reply::new(200, bytes));
        path
    }

    /// Lays a component and its manifest as they should be, and answers the manifest's digest.
    pub fn publish(&self, repository: &str, tag: &str, component: &[u8]) -> String {
        self.lay_blob(repository, component);
        let layer = descriptor("application/wasm", component);
        self.lay_manifest(repository, tag, &manifest(&[layer]))
    }

    /// Every request so far.
    pub fn heard(&self) -> Vec<Heard> {
        lock(&self.shared.heard).clone()
    }

    /// Method and path of every request so far, which are forgotten.
    pub fn take_heard(&self) -> Vec<String> {
        let heard = std::mem::take(&mut *lock(&self.shared.heard));
        heard
            .iter()
            .map(|one| format!("{} {}", one.method, one.path))
            .collect()
    }
}

impl Drop for FalseRegistry {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

fn answer(shared: &Shared, path: &str) -> Reply {
    let path = path.split('?').next().unwrap_or_default();
    let mut laid = lock(&shared.laid);
    let found = laid.get_mut(path).and_then(|replies| {
        if replies.len() > 1 {
            return Some(replies.remove(0));
        }
        replies.first().cloned()
    });
    found.unwrap_or_else(|| Reply::refusal(404, "NAME_UNKNOWN"))
}

fn serve(shared: &Shared, stream: TcpStream) -> std::io::Result<()> {
    let mut to = stream.try_clone()?;
    let mut from = BufReader::new(stream);
    while let Some(heard) = read(&mut from)? {
        let reply = answer(shared, &heard.path);
        let has_body = heard.method != "HEAD";
        lock(&shared.heard).push(heard);
        if reply.hang != Hang::BeforeTheHead {
            let mut head = format!("HTTP/1.1 {} Said\r\n", reply.status);
            for (name, value) in &reply.headers {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            let length = reply.length.unwrap_or(reply.body.len());
            head.push_str(&format!("content-length: {length}\r\n\r\n"));
            to.write_all(head.as_bytes())?;
            if has_body {
                to.write_all(&reply.body)?;
            }
        }
        if reply.hang != Hang::Never {
            // Until the other side has had enough.
            while from.read(&mut [0; 1024])? > 0 {}
            return Ok(());
        }
        if reply
            .length
            .is_some_and(|length| length != reply.body.len())
        {
            return Ok(());
        }
    }
    Ok(())
}
