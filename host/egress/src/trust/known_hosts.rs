//! The text of a `known_hosts` file (sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT"): markers, hashed names, wildcards,
//! negation and ports. Every line counts, not the first that fits.

use hmac::{Hmac, KeyInit, Mac};
use russh::keys::PublicKey;
use sha1::Sha1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    None,
    Authority,
    Revoked,
}

#[derive(Debug)]
pub(super) struct Line {
    pub(super) marker: Marker,
    names: Names,
    pub(super) key: PublicKey,
}

#[derive(Debug)]
enum Names {
    Hashed {
        salt: Vec<u8>,
        hash: Vec<u8>,
    },
    /// Lower-case patterns; `true` where the pattern excludes.
    Patterns(Vec<(bool, String)>),
}

#[derive(Debug, Default)]
pub(super) struct KnownHosts {
    lines: Vec<Line>,
}

/// A host as `known_hosts` names it: bare on port 22, `[host]:port` elsewhere.
pub(super) fn name(host: &str, port: u16) -> String {
    let host = host.to_lowercase();
    if port == 22 {
        host
    } else {
        format!("[{host}]:{port}")
    }
}

/// `*` is any run of characters and `?` any one; everything else is itself.
pub(super) fn wildcard(pattern: &str, text: &str) -> bool {
    let (p, t): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut i, mut j) = (0, 0);
    // Where to go on after the last star, if what follows it does not fit.
    let mut back: Option<(usize, usize)> = None;
    while j < t.len() {
        match p.get(i) {
            Some('*') => {
                back = Some((i + 1, j));
                i += 1;
            }
            Some(c) if *c == '?' || *c == t[j] => {
                i += 1;
                j += 1;
            }
            _ => match back {
                Some((after, from)) => {
                    i = after;
                    j = from + 1;
                    back = Some((after, from + 1));
                }
                None => return false,
            },
        }
    }
    p[i..].iter().all(|c| *c == '*')
}

impl Names {
    fn parse(text: &str) -> Result<Names, &'static str> {
        use base64::Engine;
        let base64 = &base64::engine::general_purpose::STANDARD;
        if let Some(hashed) = text.strip_prefix("|1|") {
            let (salt, hash) = hashed
                .split_once('|')
                .ok_or("a hashed name is |1|salt|hash")?;
            let salt = base64.decode(salt).map_err(|_| "the salt is not base64")?;
            let hash = base64.decode(hash).map_err(|_| "the hash is not base64")?;
            return Ok(Names::Hashed { salt, hash });
        }
        if text.starts_with('|') {
            return Err("the name is hashed in a way that is not known; only |1| is");
        }
        let patterns = text
            .split(',')
            .filter(|p| !p.is_empty())
            .map(|p| match p.strip_prefix('!') {
                Some(rest) => (true, rest.to_lowercase()),
                None => (false, p.to_lowercase()),
            })
            .collect();
        Ok(Names::Patterns(patterns))
    }

    fn fits(&self, name: &str) -> bool {
        match self {
            Names::Hashed { salt, hash } => {
                let Ok(mut mac) = Hmac::<Sha1>::new_from_slice(salt) else {
                    return false;
                };
                mac.update(name.as_bytes());
                mac.verify_slice(hash).is_ok()
            }
            Names::Patterns(patterns) => {
                // One that excludes wins over all that include.
                let excluded = patterns.iter().any(|(not, p)| *not && wildcard(p, name));
                !excluded && patterns.iter().any(|(not, p)| !not && wildcard(p, name))
            }
        }
    }
}

impl KnownHosts {
    /// Reads the text; a line of a key type that is not known here is passed over, as OpenSSH does.
    pub(super) fn parse(text: &str) -> Result<KnownHosts, String> {
        let mut lines = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |why: &str| format!("line {} of knownHosts: {why}", i + 1);
            let mut words = line.split_ascii_whitespace();
            let mut word = words.next().unwrap_or_default();
            let marker = match word {
                "@cert-authority" => Marker::Authority,
                "@revoked" => Marker::Revoked,
                m if m.starts_with('@') => {
                    return Err(wrong("the marker is neither @cert-authority nor @revoked"));
                }
                _ => Marker::None,
            };
            if marker != Marker::None {
                word = words
                    .next()
                    .ok_or_else(|| wrong("there is no host after the marker"))?;
            }
            let names = Names::parse(word).map_err(wrong)?;
            let (Some(kind), Some(body)) = (words.next(), words.next()) else {
                return Err(wrong(
                    "a line is host names, key type and key, divided by spaces",
                ));
            };
            match PublicKey::from_openssh(&format!("{kind} {body}")) {
                Ok(key) => lines.push(Line { marker, names, key }),
                Err(_) if !is_known_type(kind) => {}
                Err(_) => return Err(wrong("the key cannot be read")),
            }
        }
        Ok(KnownHosts { lines })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Every line that is for this host on this port.
    pub(super) fn matching(&self, host: &str, port: u16) -> impl Iterator<Item = &Line> {
        let name = name(host, port);
        self.lines.iter().filter(move |l| l.names.fits(&name))
    }
}

fn is_known_type(kind: &str) -> bool {
    kind == "ssh-ed25519" || kind == "ssh-rsa" || kind.starts_with("ecdsa-sha2-nistp")
}
