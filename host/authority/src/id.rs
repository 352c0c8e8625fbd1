//! Ids and their alphabet.
//!
//! An id is a prefix and 128 random bits in lower-case base32 (RFC 4648 without padding): 26 characters
//! that are safe in a URL, a label, a file name and a shell. Ids carry no meaning and are never reused.

use crate::error::{Error, Result};

const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Lower-case base32 without padding.
pub(crate) fn base32(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(5) * 8);
    let (mut buffer, mut bits) = (0u32, 0u32);
    for byte in bytes {
        buffer = (buffer << 8) | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            out.push(ALPHABET[((buffer >> bits) & 31) as usize] as char);
        }
        buffer &= (1 << bits) - 1;
    }
    if bits > 0 {
        out.push(ALPHABET[((buffer << (5 - bits)) & 31) as usize] as char);
    }
    out
}

/// Fills `buffer` from the operating system's generator.
pub(crate) fn random(buffer: &mut [u8]) -> Result<()> {
    getrandom::fill(buffer)
        .map_err(|e| Error::Internal(format!("the operating system gave no random bytes: {e}")))
}

/// A fresh id: `prefix` and 26 characters.
pub(crate) fn fresh(prefix: &str) -> Result<String> {
    let mut bytes = [0u8; 16];
    random(&mut bytes)?;
    Ok(format!("{prefix}{}", base32(&bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base32_agrees_with_the_vectors_of_rfc_4648() {
        for (input, output) in [
            ("", ""),
            ("f", "my"),
            ("fo", "mzxq"),
            ("foo", "mzxw6"),
            ("foob", "mzxw6yq"),
            ("fooba", "mzxw6ytb"),
            ("foobar", "mzxw6ytboi"),
        ] {
            assert_eq!(base32(input.as_bytes()), output);
        }
    }

    #[test]
    fn an_id_is_its_prefix_and_26_safe_characters() {
        let id = fresh("acq-").unwrap();
        let rest = id.strip_prefix("acq-").unwrap();
        assert_eq!(rest.len(), 26);
        assert!(
            rest.bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        );
        assert_ne!(fresh("acq-").unwrap(), id);
    }
}
