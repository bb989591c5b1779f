//! Breaks files at random, with some knowledge of how they are built.
//!
//! Plain bit flips rarely get past a magic number. This mutator finds fields by their likely meaning (integers
//! that look like lengths, counts, types or offsets) and sets them to the values that parsers get wrong.
//!
//! Invariant: the n-th mutation of a file depends on the seed, the file and n alone.
//! Not here: named cases (`tests/gguf_reject.rs`, the corpus generator).

use super::random::Random;

/// A deterministic stream of damaged copies of files.
#[derive(Debug, Clone)]
pub struct Mutator {
    random: Random,
    /// Bytes that hold structure rather than weights; damage goes there, mostly.
    head: usize,
}

impl Mutator {
    /// A mutator for files whose first `head` bytes are header, table and strings.
    #[must_use]
    pub fn new(seed: u64, head: usize) -> Mutator {
        Mutator { random: Random::new(seed), head }
    }

    /// One damaged copy of `file`, with one to four changes.
    pub fn mutate(&mut self, file: &[u8]) -> Vec<u8> {
        let mut out = file.to_vec();
        for _ in 0..=self.random.below(4) {
            match self.random.below(10) {
                0..=4 => self.field(&mut out),
                5 => self.bits(&mut out),
                6 => self.noise(&mut out),
                7 => self.splice(&mut out),
                8 => self.remove(&mut out),
                _ => {
                    let keep = self.place(&out);
                    out.truncate(keep);
                }
            }
        }
        out
    }

    /// A place to damage: nearly always in the head.
    fn place(&mut self, file: &[u8]) -> usize {
        let everywhere = self.random.below(16) == 0;
        let end = if everywhere { file.len() } else { self.head.min(file.len()) };
        self.random.below(end)
    }

    /// Overwrites an integer with a value parsers get wrong.
    fn field(&mut self, out: &mut [u8]) {
        let width = [1, 2, 4, 8, 8, 8][self.random.below(6)];
        let at = self.field_at(out, width);
        let Some(field) = out.get(at..at + width) else { return };
        let old = field.iter().rev().fold(0u64, |n, b| (n << 8) | u64::from(*b));
        let len = out.len() as u64;
        let interesting = [
            0,
            1,
            u64::MAX,
            1 << 31,
            (1 << 31) - 1,
            1 << 32,
            u64::from(u32::MAX),
            1 << 62,
            1 << 63,
            (1 << 63) - 1,
            len,
            len + 1,
            len.wrapping_sub(1),
            old.wrapping_add(1),
            old.wrapping_sub(1),
            old.wrapping_mul(2),
            !old,
            self.random.bits() >> self.random.below(64),
        ];
        let new = interesting[self.random.below(interesting.len())];
        out[at..at + width].copy_from_slice(&new.to_le_bytes()[..width]);
    }

    /// Where a field is likely: a byte that starts a run that looks like a small little-endian integer.
    fn field_at(&mut self, file: &[u8], width: usize) -> usize {
        let mut at = self.place(file);
        for _ in 0..8 {
            let looks_small =
                file.get(at..at + width).is_some_and(|f| width == 1 || f[width - 1] == 0 && f[0] != 0);
            if looks_small {
                break;
            }
            at = self.place(file);
        }
        at
    }

    fn bits(&mut self, out: &mut [u8]) {
        let (at, bit) = (self.place(out), self.random.below(8));
        if let Some(byte) = out.get_mut(at) {
            *byte ^= 1 << bit;
        }
    }

    /// Random bytes over a short run.
    fn noise(&mut self, out: &mut [u8]) {
        let (at, n) = (self.place(out), 1 + self.random.below(32));
        for byte in out.iter_mut().skip(at).take(n) {
            *byte = self.random.bits() as u8;
        }
    }

    /// Copies a run from one place over or into another.
    fn splice(&mut self, out: &mut Vec<u8>) {
        let (from, to, n) = (self.place(out), self.place(out), 1 + self.random.below(256));
        let run: Vec<u8> = out.iter().skip(from).take(n).copied().collect();
        let replaced = if self.random.below(2) == 0 { run.len().min(out.len() - to) } else { 0 };
        out.splice(to..to + replaced, run);
    }

    fn remove(&mut self, out: &mut Vec<u8>) {
        let (from, n) = (self.place(out), 1 + self.random.below(64));
        let end = (from + n).min(out.len());
        out.drain(from..end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_repeatable_and_survives_tiny_files() {
        let file: Vec<u8> = (0..200).map(|i| (i * 7) as u8).collect();
        let all = |seed| {
            let mut mutator = Mutator::new(seed, 100);
            (0..500).map(|_| mutator.mutate(&file)).collect::<Vec<_>>()
        };
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
        assert!(all(1).iter().filter(|out| **out != file).count() > 450);
        for len in 0..9 {
            let mut mutator = Mutator::new(3, 100);
            (0..500).for_each(|_| drop(mutator.mutate(&file[..len])));
        }
    }
}
