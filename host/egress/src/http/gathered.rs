//! A body as it grows: text as long as each piece is UTF-8, which is told as it comes and not of all of it at the end.
//! Where a character was cut between two pieces, the end tells.

use leasehold_contract::Content;

/// See the module.
pub(super) enum Gathered {
    /// All that came is UTF-8.
    Text(String),
    /// It may be.
    Bytes(Vec<u8>),
}

impl Gathered {
    /// Of a body that is expected to be so long.
    pub(super) fn with_capacity(length: usize) -> Gathered {
        Gathered::Text(String::with_capacity(length))
    }

    /// What came.
    pub(super) fn so_far(&self) -> &[u8] {
        match self {
            Gathered::Text(text) => text.as_bytes(),
            Gathered::Bytes(bytes) => bytes,
        }
    }

    /// The next piece.
    pub(super) fn push(&mut self, piece: &[u8]) {
        match self {
            Gathered::Bytes(bytes) => bytes.extend_from_slice(piece),
            Gathered::Text(text) => match std::str::from_utf8(piece) {
                Ok(piece) => text.push_str(piece),
                Err(_) => {
                    let mut bytes = std::mem::take(text).into_bytes();
                    bytes.extend_from_slice(piece);
                    *self = Gathered::Bytes(bytes);
                }
            },
        }
    }

    /// All of it.
    pub(super) fn content(self) -> Content {
        match self {
            Gathered::Text(text) if text.is_empty() => Content::None,
            Gathered::Text(text) => Content::Text(text),
            Gathered::Bytes(bytes) => Content::of(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_the_same_however_it_is_cut() {
        let text = "a\u{e9}\u{20ac}\u{1f600} b".as_bytes();
        let broken = [text, b"\xff", text].concat();
        let cut = [text, b"\xf0\x9f\x98"].concat();
        for body in [
            b"".as_slice(),
            b"plain",
            text,
            &broken,
            &cut,
            b"\xc3",
            b"\x80a",
        ] {
            for step in 1..=body.len().max(1) {
                let mut gathered = Gathered::with_capacity(0);
                for piece in body.chunks(step) {
                    gathered.push(piece);
                }
                assert_eq!(gathered.so_far(), body);
                assert_eq!(gathered.content(), Content::of(body.to_vec()), "by {step}");
            }
        }
    }
}
