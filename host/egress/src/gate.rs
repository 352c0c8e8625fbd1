//! Tells what a script of ours writes from what start files wrote before it: a random nonce on a line divides them.

use bytes::Bytes;

use crate::scope::find;

/// How much start-file noise is kept for an error text.
const NOISE: usize = 2048;

/// Holds a stream back until the line with the nonce has passed.
pub(crate) struct Gate {
    mark: Vec<u8>,
    held: Vec<u8>,
    /// What follows the nonce on its line, once it came.
    said: Option<String>,
}

impl Gate {
    /// Closed, until the line with `nonce`.
    pub(crate) fn new(nonce: &str) -> Gate {
        Gate {
            mark: nonce.as_bytes().to_vec(),
            held: Vec::new(),
            said: None,
        }
    }

    /// Open from the begin.
    pub(crate) fn open() -> Gate {
        Gate {
            mark: Vec::new(),
            held: Vec::new(),
            said: Some(String::new()),
        }
    }

    /// What of `data` lies behind the line with the nonce.
    pub(crate) fn pass(&mut self, data: Bytes) -> Option<Bytes> {
        if self.said.is_some() {
            return (!data.is_empty()).then_some(data);
        }
        self.held.extend_from_slice(&data);
        if let Some(at) = find(&self.held, &self.mark) {
            let line = &self.held[at + self.mark.len()..];
            let end = line.iter().position(|b| *b == b'\n')?;
            let said = String::from_utf8_lossy(&line[..end]).trim().to_owned();
            let rest = Bytes::copy_from_slice(&line[end + 1..]);
            self.held.truncate(at);
            self.said = Some(said);
            return (!rest.is_empty()).then_some(rest);
        }
        // Keep the end: the nonce may be half here, and the last words of noise say most.
        if self.held.len() > 4 * NOISE {
            self.held.drain(..self.held.len() - NOISE);
        }
        None
    }

    /// What followed the nonce on its line, once it has passed.
    pub(crate) fn said(&self) -> Option<&str> {
        self.said.as_deref()
    }

    /// The end of what came before the nonce.
    pub(crate) fn noise(&self) -> &[u8] {
        &self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_drops_noise_in_whatever_pieces_it_comes() {
        let whole = b"motd\nLast login\x07 today abc123 ok\nreal\n";
        for cut in 0..whole.len() {
            let mut gate = Gate::new("abc123");
            let mut out = Vec::new();
            for piece in [&whole[..cut], &whole[cut..]] {
                if let Some(b) = gate.pass(Bytes::copy_from_slice(piece)) {
                    out.extend_from_slice(&b);
                }
            }
            assert_eq!(out, b"real\n", "cut at {cut}");
            assert_eq!(gate.said.as_deref(), Some("ok"));
        }
    }

    #[test]
    fn the_gate_holds_no_more_than_a_bound_of_endless_noise() {
        let mut gate = Gate::new("abc123");
        for _ in 0..1000 {
            assert!(gate.pass(Bytes::from(vec![b'x'; 1000])).is_none());
        }
        assert!(gate.held.len() <= 4 * NOISE + 1000);
        assert_eq!(gate.pass(Bytes::from_static(b"abc123 go\n")), None);
        assert_eq!(gate.said.as_deref(), Some("go"));
    }
}
