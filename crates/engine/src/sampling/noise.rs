//! Random numbers that are a function of what they are for, not of when they are drawn.
//!
//! Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011)
//! turns a key and a counter into 128 random bits. The key is the user's seed; the counter names the
//! use: token id or number of the draw, absolute position, choice index, purpose. There is no state, so
//! draft lengths, batch mates, restarts and the order of candidates cannot shift the stream.
//!
//! Invariant: equal (seed, choice, position, purpose, token) give equal bits on every machine.
//! Not here: what is done with the noise (`sampling`).

use super::elementary::ln;

/// What a random number is for; each purpose has numbers of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Purpose {
    /// Choosing the token of a position.
    Token = 0,
    /// Whether a guess for a position is kept.
    Accept = 1,
    /// Choosing the token of a position where no guess was kept.
    Residual = 2,
    /// Drawing the guesses behind a position.
    Draft = 3,
}

/// The noise of one position: one random number per token id.
#[derive(Clone, Copy, Debug)]
pub struct Noise {
    key: [u32; 2],
    position: u32,
    choice: u32,
    purpose: Purpose,
}

/// Bits of a uniform number. With 52 the middle of every cell, (b + ½) / 2⁵², is exact in `f64`; with
/// 53 the last cell would round to 1 and its Gumbel noise to infinity.
const BITS: u32 = 52;

impl Noise {
    /// No Gumbel noise is larger: -ln(-ln(1 - 2⁻⁵³)) is 36.74.
    pub const MAX_GUMBEL: f64 = 36.75;

    /// The noise for absolute `position` of choice `choice` (the `n` of a request) under `seed`.
    pub fn new(seed: u64, choice: u32, position: usize, purpose: Purpose) -> Self {
        let key = [seed as u32, (seed >> 32) as u32];
        let position = u32::try_from(position).expect("a context holds fewer than 2³² positions");
        Self { key, position, choice, purpose }
    }

    /// A uniform integer in 0..2⁵² for `token`.
    pub fn bits(&self, token: u32) -> u64 {
        self.word(token) >> (64 - BITS)
    }

    /// A uniform number in [0, 1) with 53 bits, the `index`th under this name.
    pub fn uniform(&self, index: u32) -> f64 {
        (self.word(index) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn word(&self, index: u32) -> u64 {
        let block = philox4x32([index, self.position, self.choice, self.purpose as u32], self.key);
        u64::from(block[1]) << 32 | u64::from(block[0])
    }

    /// Standard Gumbel noise of [`Noise::bits`]: argmax(logit + noise) is a draw from softmax(logit).
    pub fn gumbel(bits: u64) -> f64 {
        let uniform = (bits as f64 + 0.5) / (1_u64 << BITS) as f64;
        -ln(-ln(uniform))
    }

    /// An upper bound of [`Noise::gumbel`] that costs one instruction.
    ///
    /// -ln u ≥ 1 - u, so the noise is at most -ln(1 - u), and 1 - u is at least the power of two at its
    /// highest bit. The bound leaves room for rounding.
    pub fn gumbel_at_most(bits: u64) -> f64 {
        let below_one = (1_u64 << BITS) - 1 - bits;
        let halvings = below_one.leading_zeros() - (63 - BITS);
        f64::from(halvings) * std::f64::consts::LN_2 + 1e-9
    }
}

/// Ten rounds of Philox on four 32-bit words.
pub fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [mut a, mut b, mut c, mut d] = counter;
    let [mut k0, mut k1] = key;
    for _ in 0..10 {
        let left = 0xd251_1f53 * u64::from(a);
        let right = 0xcd9e_8d57 * u64::from(c);
        (a, b, c, d) =
            ((right >> 32) as u32 ^ b ^ k0, right as u32, (left >> 32) as u32 ^ d ^ k1, left as u32);
        k0 = k0.wrapping_add(0x9e37_79b9);
        k1 = k1.wrapping_add(0xbb67_ae85);
    }
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampling_philox_matches_published_vectors() {
        // Known answers of the Random123 distribution (kat_vectors, philox4x32 10).
        let cases = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, expected) in cases {
            assert_eq!(philox4x32(counter, key), expected);
        }
    }

    #[test]
    fn sampling_gumbel_is_finite_at_both_ends() {
        let last = (1_u64 << BITS) - 1;
        assert!(Noise::gumbel(0) > -3.61 && Noise::gumbel(0) < -3.60);
        assert!(Noise::gumbel(last) > 36.7 && Noise::gumbel(last) < Noise::MAX_GUMBEL);
    }

    #[test]
    fn sampling_gumbel_bound_holds() {
        let last = (1_u64 << BITS) - 1;
        let near_ends = (0..5_000).flat_map(|i| [i, last - i]);
        let powers = (0..BITS).flat_map(|k| [1_u64 << k, last - (1_u64 << k), (1_u64 << k) - 1]);
        let noise = Noise::new(3, 0, 0, Purpose::Token);
        let drawn = (0..50_000).map(|token| noise.bits(token));
        for bits in near_ends.chain(powers).chain(drawn) {
            assert!(Noise::gumbel(bits) <= Noise::gumbel_at_most(bits), "bits {bits}");
        }
    }

    #[test]
    fn sampling_noise_depends_on_each_part_of_its_name() {
        let base = Noise::new(1, 2, 3, Purpose::Token).bits(4);
        assert_eq!(base, Noise::new(1, 2, 3, Purpose::Token).bits(4));
        assert_ne!(base, Noise::new(1 << 32 | 1, 2, 3, Purpose::Token).bits(4));
        assert_ne!(base, Noise::new(2, 2, 3, Purpose::Token).bits(4));
        assert_ne!(base, Noise::new(1, 3, 3, Purpose::Token).bits(4));
        assert_ne!(base, Noise::new(1, 2, 4, Purpose::Token).bits(4));
        assert_ne!(base, Noise::new(1, 2, 3, Purpose::Token).bits(5));
        assert_ne!(base, Noise::new(1, 2, 3, Purpose::Draft).bits(4));
    }
}
