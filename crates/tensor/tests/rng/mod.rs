//! A small fixed random number generator, so that tests see the same numbers everywhere.
//!
//! Invariant: the sequence depends on the seed alone.
//! Not here: anything of statistical quality.

/// xorshift64.
pub(crate) struct Rng(u64);

impl Rng {
    /// A generator; seeds need not be random.
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Any byte.
    pub(crate) fn byte(&mut self) -> u8 {
        (self.next() >> 30) as u8
    }

    /// Between -1 and 1.
    pub(crate) fn signed(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}
