//! Bytes that are anybody's to make again, of any length, in pieces of odd sizes: what was moved is compared by its hash
//! and held by nobody.

use std::io::Read;

/// So many bytes that no chunk repeats.
#[derive(Debug)]
pub struct Pattern {
    length: u64,
    at: u64,
    turn: usize,
}

impl Pattern {
    /// The first `length` bytes of it.
    pub fn of(length: u64) -> Pattern {
        Pattern {
            length,
            at: 0,
            turn: 0,
        }
    }
}

impl Read for Pattern {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        self.turn += 1;
        let odd = [1, 7, 4096, 65_535, 13, 33_333, 65_536][self.turn % 7];
        let left = usize::try_from(self.length - self.at).unwrap_or(usize::MAX);
        let length = out.len().min(odd).min(left);
        let mut out = &mut out[..length];
        while !out.is_empty() {
            // SplitMix64 of the word's number: the bytes do not depend on how they are cut.
            let mut word = (self.at / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let bytes = (word ^ (word >> 31)).to_le_bytes();
            let bytes = &bytes[(self.at % 8) as usize..];
            let n = bytes.len().min(out.len());
            out[..n].copy_from_slice(&bytes[..n]);
            self.at += n as u64;
            out = &mut out[n..];
        }
        Ok(length)
    }
}
