//! HMAC-SHA256 over fields that cannot run into each other.
//!
//! Every MAC begins with the name of what it authenticates, and every field is framed by its kind and
//! length, so that no two different rows have the same input.

use hmac::{Hmac, KeyInit, Mac as _};
use sha2::Sha256;
use zeroize::Zeroizing;

/// A MAC being computed.
pub(crate) struct Mac(Hmac<Sha256>);

impl Mac {
    /// Begins a MAC of a `kind` of row under `key`.
    pub fn new(key: &[u8; 32], kind: &str) -> Mac {
        // HMAC fills a key up with zeros to the block of its hash; done here, it cannot fail.
        let mut block = Zeroizing::new([0u8; 64]);
        block[..key.len()].copy_from_slice(key);
        Mac(<Hmac<Sha256> as KeyInit>::new((&*block).into())).field(b'k', Some(kind.as_bytes()))
    }

    fn field(mut self, tag: u8, bytes: Option<&[u8]>) -> Mac {
        match bytes {
            None => self.0.update(&[tag, 0]),
            Some(bytes) => {
                self.0.update(&[tag, 1]);
                self.0.update(&(bytes.len() as u64).to_be_bytes());
                self.0.update(bytes);
            }
        }
        self
    }

    /// A text.
    pub fn text(self, text: &str) -> Mac {
        self.field(b't', Some(text.as_bytes()))
    }

    /// A text that may be absent.
    pub fn text_or(self, text: Option<&str>) -> Mac {
        self.field(b't', text.map(str::as_bytes))
    }

    /// Bytes.
    pub fn bytes(self, bytes: &[u8]) -> Mac {
        self.field(b'b', Some(bytes))
    }

    /// A number.
    pub fn int(self, value: i64) -> Mac {
        self.field(b'i', Some(&value.to_be_bytes()))
    }

    /// A number that may be absent.
    pub fn int_or(self, value: Option<i64>) -> Mac {
        self.field(b'i', value.map(i64::to_be_bytes).as_ref().map(|b| &b[..]))
    }

    /// The 32 bytes.
    pub fn done(self) -> [u8; 32] {
        self.0.finalize().into_bytes().into()
    }

    /// Whether `stored` is this MAC, in constant time.
    pub fn verifies(self, stored: &[u8]) -> bool {
        self.0.verify_slice(stored).is_ok()
    }
}

/// Whether two byte strings are the same, in time that depends on their lengths only.
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0u8, |d, (x, y)| d | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mac_is_hmac_of_the_framed_fields() {
        let key = [7u8; 32];
        let mut plain = <Hmac<Sha256> as KeyInit>::new_from_slice(&key).unwrap();
        plain.update(b"k\x01\0\0\0\0\0\0\0\x03row");
        plain.update(b"t\x01\0\0\0\0\0\0\0\x02ab");
        let expected: [u8; 32] = plain.finalize().into_bytes().into();
        assert_eq!(Mac::new(&key, "row").text("ab").done(), expected);
    }

    #[test]
    fn fields_do_not_run_into_each_other() {
        let key = [7u8; 32];
        let mac = |f: fn(Mac) -> Mac| f(Mac::new(&key, "row")).done();
        let all = [
            mac(|m| m.text("ab").text("c")),
            mac(|m| m.text("a").text("bc")),
            mac(|m| m.text("abc")),
            mac(|m| m.text("abc").text_or(None)),
            mac(|m| m.text("abc").text_or(Some(""))),
            mac(|m| m.bytes(b"abc")),
            mac(|m| m.int(1)),
            mac(|m| m.int_or(None)),
        ];
        for (i, a) in all.iter().enumerate() {
            for b in &all[i + 1..] {
                assert_ne!(a, b);
            }
        }
        assert_ne!(Mac::new(&key, "row").done(), Mac::new(&key, "other").done());
        assert!(Mac::new(&key, "row").int(1).verifies(&all[6]));
        assert!(!Mac::new(&key, "row").int(2).verifies(&all[6]));
    }
}
