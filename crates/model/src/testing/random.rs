//! Seeded random numbers that are the same on every machine.
//!
//! Splitmix64 (Steele, Lea and Flood 2014; constants from Vigna's public-domain version). Normal numbers are sums
//! of uniform ones, so that no library's logarithm or cosine can differ.
//!
//! Invariant: the n-th number depends on the seed and n alone.
//! Not here: the sampler's random numbers (`pilotfish-engine`).

/// A small random number generator for tests.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator whose numbers follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 when `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        // The high half of a 128-bit product; its bias is far below what a test could notice.
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// A number from 0 to 1, without 1.
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u32 << 24) as f32
    }

    /// Nearly normal, with mean 0 and variance 1: four uniform numbers summed.
    pub fn normal(&mut self) -> f32 {
        let sum = self.unit() + self.unit() + self.unit() + self.unit();
        (sum - 2.0) * 1.732_050_8
    }

    /// `n` nearly normal numbers around `mean`.
    pub fn normals(&mut self, n: usize, mean: f32, deviation: f32) -> Vec<f32> {
        (0..n).map(|_| mean + deviation * self.normal()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_published_ones_and_well_spread() {
        let mut random = Random::new(1_234_567);
        assert_eq!([random.bits(), random.bits()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
        let normals = random.normals(100_000, 0.0, 1.0);
        let mean = normals.iter().sum::<f32>() / 1e5;
        let variance = normals.iter().map(|x| x * x).sum::<f32>() / 1e5;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "mean {mean}, variance {variance}");
        assert_eq!(random.below(0), 0);
        assert!((0..1000).all(|_| random.below(7) < 7));
    }
}
