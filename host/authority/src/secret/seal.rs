//! Envelope encryption: XChaCha20-Poly1305 with a data key for each version of a secret.
//!
//! A version's value is sealed under its own data key; the data key is wrapped by the key-encryption key
//! for keeping, and once more for every place that may use it. The associated data names the place whole,
//! so that a wrapped key that is moved to another row opens nothing. Nonces are random: 192 bits are
//! enough for ever.

use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use zeroize::Zeroizing;

use crate::error::{Error, Result};
use crate::id;
use crate::keys::Key;

const NONCE: usize = 24;

/// Associated data: what a sealed value belongs to, in fields that cannot run into each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Aad(Vec<u8>);

impl Aad {
    fn new(kind: &str) -> Aad {
        Aad(Vec::new()).text(kind)
    }

    fn text(mut self, text: &str) -> Aad {
        self.0.extend_from_slice(&(text.len() as u64).to_be_bytes());
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    fn int(mut self, value: i64) -> Aad {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// A version's value.
    pub fn value(company: &str, secret: &str, version: i64) -> Aad {
        Aad::new("value").text(company).text(secret).int(version)
    }

    /// A version's data key, for keeping.
    pub fn kept(company: &str, secret: &str, version: i64) -> Aad {
        Aad::new("kept").text(company).text(secret).int(version)
    }

    /// The subkeys that a host carries over to another master key.
    pub fn carried(host: &str) -> Aad {
        Aad::new("carried").text(host)
    }

    /// A minted value that a lease keeps, and which mint it is of.
    pub fn minted(lease: &str, name: &str, mint: [&str; 4]) -> Aad {
        mint.into_iter()
            .fold(Aad::new("minted").text(lease).text(name), Aad::text)
    }

    /// A version's data key, for use at one place.
    pub fn place(company: &str, place: &Place<'_>) -> Aad {
        Aad::new("place")
            .text(company)
            .text(place.holder.kind())
            .text(place.holder.id())
            .text(place.pointer)
            .text(place.secret)
            .int(place.version)
            .text(place.sites)
            .text(place.destinations)
    }
}

/// Whose place it is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Holder<'a> {
    /// An environment as it is configured now.
    Environment(&'a str),
    /// A lease, which keeps what it was acquired with.
    Lease(&'a str),
}

impl Holder<'_> {
    fn kind(&self) -> &'static str {
        match self {
            Holder::Environment(_) => "environment",
            Holder::Lease(_) => "lease",
        }
    }

    fn id(&self) -> &str {
        match self {
            Holder::Environment(id) | Holder::Lease(id) => id,
        }
    }
}

/// A place where one version of a secret may be used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub holder: Holder<'a>,
    pub pointer: &'a str,
    pub secret: &'a str,
    pub version: i64,
    /// JSON text, as stored.
    pub sites: &'a str,
    /// JSON text, as stored.
    pub destinations: &'a str,
}

/// A fresh data key.
pub(crate) fn data_key() -> Result<Key> {
    let mut key = Zeroizing::new([0u8; 32]);
    id::random(&mut key[..])?;
    Ok(key)
}

/// Seals `plain`: the nonce, then the sealed bytes.
pub(crate) fn seal(key: &Key, aad: &Aad, plain: &[u8]) -> Result<Vec<u8>> {
    let mut nonce = [0u8; NONCE];
    id::random(&mut nonce)?;
    let sealed = XChaCha20Poly1305::new((&**key).into())
        .encrypt(
            &XNonce::from(nonce),
            Payload {
                msg: plain,
                aad: &aad.0,
            },
        )
        .map_err(|_| Error::Internal("a value could not be sealed".into()))?;
    Ok([&nonce[..], &sealed].concat())
}

/// Opens what [`seal`] made with the same key and associated data; `what` names it when it does not.
pub(crate) fn open(key: &Key, aad: &Aad, sealed: &[u8], what: &str) -> Result<Zeroizing<Vec<u8>>> {
    let corrupt = || Error::corrupt(what);
    let (nonce, sealed) = sealed.split_first_chunk::<NONCE>().ok_or_else(corrupt)?;
    XChaCha20Poly1305::new((&**key).into())
        .decrypt(
            &XNonce::from(*nonce),
            Payload {
                msg: sealed,
                aad: &aad.0,
            },
        )
        .map(Zeroizing::new)
        .map_err(|_| corrupt())
}

/// Opens a wrapped data key.
pub(crate) fn unwrap_key(kek: &Key, aad: &Aad, wrapped: &[u8], what: &str) -> Result<Key> {
    let plain = open(kek, aad, wrapped, what)?;
    let mut key = Zeroizing::new([0u8; 32]);
    if plain.len() != key.len() {
        return Err(Error::corrupt(what));
    }
    key.copy_from_slice(&plain);
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_for_one_place_opens_nowhere_else() {
        let key = data_key().unwrap();
        let place = Place {
            holder: Holder::Environment("env_a"),
            pointer: "/target/privateKey",
            secret: "sec_a",
            version: 1,
            sites: "[]",
            destinations: r#"["ssh://ci@10.0.0.5:22"]"#,
        };
        let aad = Aad::place("com_a", &place);
        let sealed = seal(&key, &aad, b"value").unwrap();
        assert_eq!(&**open(&key, &aad, &sealed, "x").unwrap(), b"value");
        assert_ne!(
            sealed,
            seal(&key, &aad, b"value").unwrap(),
            "nonces are fresh"
        );
        let others = [
            Aad::place("com_b", &place),
            Aad::place(
                "com_a",
                &Place {
                    holder: Holder::Lease("env_a"),
                    ..place
                },
            ),
            Aad::place(
                "com_a",
                &Place {
                    holder: Holder::Environment("env_b"),
                    ..place
                },
            ),
            Aad::place(
                "com_a",
                &Place {
                    pointer: "/target/passphrase",
                    ..place
                },
            ),
            Aad::place(
                "com_a",
                &Place {
                    secret: "sec_b",
                    ..place
                },
            ),
            Aad::place(
                "com_a",
                &Place {
                    version: 2,
                    ..place
                },
            ),
            Aad::place(
                "com_a",
                &Place {
                    sites: r#"["x"]"#,
                    ..place
                },
            ),
            Aad::place(
                "com_a",
                &Place {
                    destinations: r#"["ssh://ci@10.0.0.6:22"]"#,
                    ..place
                },
            ),
            Aad::kept("com_a", "sec_a", 1),
            Aad::value("com_a", "sec_a", 1),
        ];
        for other in others {
            assert!(matches!(
                open(&key, &other, &sealed, "x"),
                Err(Error::Corrupt { .. })
            ));
        }
        assert!(open(&data_key().unwrap(), &aad, &sealed, "x").is_err());
        assert!(open(&key, &aad, &sealed[..10], "x").is_err());
    }
}
