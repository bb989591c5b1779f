//! What the bytes of each block mean: one file per type, all ending in one of two integer forms.
//!
//! A block of 32 is `q * d + m` ([`SmallBlock`]); a block of 256 is `q * (d * scale) - dmin * min` with a scale
//! and a minimum per 16 numbers ([`SuperBlock`]). Types with coarser scales repeat them. Decoding, packing and
//! the portable matmul all read these forms, so each layout is written once.
//!
//! Invariant: unpacking is exact and total: every byte pattern is a valid block.
//! Not here: choosing good scales (encoders here only round), or the arithmetic of a matmul (`kernels`).

pub(crate) mod iq4_nl;
pub(crate) mod plain;
pub(crate) mod q2_k;
pub(crate) mod q3_k;
pub(crate) mod q4_0;
pub(crate) mod q4_1;
pub(crate) mod q4_k;
pub(crate) mod q5_0;
pub(crate) mod q5_1;
pub(crate) mod q5_k;
pub(crate) mod q6_k;
pub(crate) mod q8_0;
mod round;

use crate::block::BlockType;
use crate::float16::f16_to_f32;

/// Numbers in a small block.
pub(crate) const SMALL: usize = 32;
/// Numbers in a super block.
pub(crate) const SUPER: usize = 256;

/// Which of the three forms a block type has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Floats.
    Plain,
    /// Blocks of 32.
    Small,
    /// Blocks of 256.
    Super,
}

/// Number `i` is `quants[i] * scale`, plus `min` if there is one.
pub(crate) struct SmallBlock {
    pub(crate) quants: [i8; SMALL],
    pub(crate) scale: f32,
    pub(crate) min: Option<f32>,
}

impl SmallBlock {
    #[inline(always)]
    pub(crate) fn decode(&self, out: &mut [f32]) {
        for (number, &quant) in out.iter_mut().zip(&self.quants) {
            let product = f32::from(quant) * self.scale;
            *number = self.min.map_or(product, |min| product + min);
        }
    }
}

/// Number `i` is `quants[i] * (scale * scales[i / 16])`, less `min_scale * mins[i / 16]`.
pub(crate) struct SuperBlock {
    pub(crate) quants: [i8; SUPER],
    pub(crate) scales: [i8; 16],
    pub(crate) mins: [u8; 16],
    pub(crate) scale: f32,
    /// `None` in the types that have no minimums.
    pub(crate) min_scale: Option<f32>,
}

impl SuperBlock {
    #[inline(always)]
    pub(crate) fn decode(&self, out: &mut [f32]) {
        for (sub, numbers) in out.chunks_exact_mut(16).enumerate() {
            let scale = self.scale * f32::from(self.scales[sub]);
            let min = self.min_scale.map(|min_scale| min_scale * f32::from(self.mins[sub]));
            for (number, &quant) in numbers.iter_mut().zip(&self.quants[sub * 16..]) {
                let product = scale * f32::from(quant);
                *number = min.map_or(product, |min| product - min);
            }
        }
    }
}

/// Unpacks one block of 32.
#[inline(always)]
pub(crate) fn small(block_type: BlockType, block: &[u8]) -> SmallBlock {
    match block_type {
        BlockType::Q4_0 => q4_0::unpack(fixed(block)),
        BlockType::Q4_1 => q4_1::unpack(fixed(block)),
        BlockType::Q5_0 => q5_0::unpack(fixed(block)),
        BlockType::Q5_1 => q5_1::unpack(fixed(block)),
        BlockType::Q8_0 => q8_0::unpack(fixed(block)),
        BlockType::Iq4Nl => iq4_nl::unpack(fixed(block)),
        _ => unreachable!("{} has no blocks of 32", block_type.name()),
    }
}

/// Unpacks one block of 256.
#[inline(always)]
pub(crate) fn super_block(block_type: BlockType, block: &[u8]) -> SuperBlock {
    match block_type {
        BlockType::Q2K => q2_k::unpack(fixed(block)),
        BlockType::Q3K => q3_k::unpack(fixed(block)),
        BlockType::Q4K => q4_k::unpack(fixed(block)),
        BlockType::Q5K => q5_k::unpack(fixed(block)),
        BlockType::Q6K => q6_k::unpack(fixed(block)),
        _ => unreachable!("{} has no blocks of 256", block_type.name()),
    }
}

/// The block as an array, so that the compiler knows every index inside it is in range.
#[inline(always)]
fn fixed<const N: usize>(block: &[u8]) -> &[u8; N] {
    block.try_into().expect("callers cut blocks of the type's size")
}

/// The little-endian half-precision number at `at`.
#[inline(always)]
fn half_at(block: &[u8], at: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([block[at], block[at + 1]]))
}

#[cfg(test)]
mod tests {
    use crate::block::BlockType;

    /// A smooth, signed, uneven signal: the worst case of none of the encoders, the usual case of all.
    fn signal(n: usize) -> Vec<f32> {
        (0..n).map(|i| (i as f32 * 0.37).sin() * 0.8 + (i as f32 * 1.93).cos() * 0.3 + 0.05).collect()
    }

    #[test]
    fn encoding_loses_no_more_than_the_step_of_the_type() {
        for block_type in BlockType::ALL {
            let numbers = signal(1024);
            let mut bytes = Vec::new();
            block_type.encode(&numbers, &mut bytes);
            assert_eq!(Some(bytes.len()), block_type.row_bytes(1024));
            let mut decoded = vec![0.0; 1024];
            block_type.decode(&bytes, &mut decoded);
            let error = numbers.iter().zip(&decoded).map(|(a, b)| (a - b) * (a - b)).sum::<f32>();
            let power = numbers.iter().map(|a| a * a).sum::<f32>();
            let allowed = match block_type {
                BlockType::F32 => 0.0,
                BlockType::F16 => 0.0005,
                BlockType::BF16 => 0.004,
                BlockType::Q8_0 => 0.01,
                BlockType::Q6K => 0.03,
                BlockType::Q5_0 | BlockType::Q5_1 | BlockType::Q5K => 0.05,
                BlockType::Q4_0 | BlockType::Q4_1 | BlockType::Q4K | BlockType::Iq4Nl => 0.1,
                BlockType::Q3K => 0.2,
                BlockType::Q2K => 0.35,
            };
            let relative = (error / power).sqrt();
            assert!(relative <= allowed, "{}: {relative} > {allowed}", block_type.name());
        }
    }

    #[test]
    fn zeros_and_huge_numbers_encode() {
        for block_type in BlockType::ALL {
            for value in [0.0f32, -0.0, 1e-30, 6e4, -6e4] {
                let mut bytes = Vec::new();
                block_type.encode(&[value; 256], &mut bytes);
                let mut decoded = vec![f32::NAN; 256];
                block_type.decode(&bytes, &mut decoded);
                let worst = decoded.iter().fold(0f32, |worst, d| worst.max((d - value).abs()));
                assert!(worst <= value.abs() * 0.15 + 1e-20, "{} {value}: {}", block_type.name(), decoded[0]);
            }
        }
    }

    #[test]
    fn partial_blocks_have_no_row() {
        assert_eq!(BlockType::Q4K.row_bytes(255), None);
        assert_eq!(BlockType::Q8_0.row_bytes(33), None);
        assert_eq!(BlockType::F32.row_bytes(usize::MAX / 2), None);
        assert_eq!(BlockType::Q4K.row_bytes(0), Some(0));
        for block_type in BlockType::ALL {
            assert_eq!(BlockType::from_ggml_id(block_type.ggml_id()), Some(block_type));
        }
        assert_eq!(BlockType::from_ggml_id(4), None);
    }
}
