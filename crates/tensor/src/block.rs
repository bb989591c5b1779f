//! The block types a weight can have: what each is called, how large it is, how its bytes decode.
//!
//! A weight is rows of `k` numbers; a row is cut into blocks of [`BlockType::block_len`] numbers, each stored
//! in [`BlockType::block_bytes`] bytes. The byte layouts are GGML's; each is written down in its own file
//! under `blocks`.
//!
//! Invariant: `decode` is the specification; every kernel is measured against it.
//! Not here: reading files, or the packed layouts kernels use (`kernels::Matrix`).

use crate::blocks::{self, Family};

/// How the numbers of a weight are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockType {
    /// 32-bit floats.
    F32,
    /// 16-bit IEEE floats.
    F16,
    /// 16-bit floats with the exponent range of `F32`.
    BF16,
    /// 32 numbers: 4 bits each, one scale.
    Q4_0,
    /// 32 numbers: 4 bits each, one scale, one minimum.
    Q4_1,
    /// 32 numbers: 5 bits each, one scale.
    Q5_0,
    /// 32 numbers: 5 bits each, one scale, one minimum.
    Q5_1,
    /// 32 numbers: 8 bits each, one scale.
    Q8_0,
    /// 256 numbers: 2 bits each, a 4-bit scale and minimum per 16.
    Q2K,
    /// 256 numbers: 3 bits each, a 6-bit scale per 16.
    Q3K,
    /// 256 numbers: 4 bits each, a 6-bit scale and minimum per 32.
    Q4K,
    /// 256 numbers: 5 bits each, a 6-bit scale and minimum per 32.
    Q5K,
    /// 256 numbers: 6 bits each, an 8-bit scale per 16.
    Q6K,
    /// 32 numbers: a 4-bit index each into a fixed table of 16 uneven levels, one scale.
    Iq4Nl,
}

impl BlockType {
    /// Every block type.
    pub const ALL: [BlockType; 14] = [
        BlockType::F32,
        BlockType::F16,
        BlockType::BF16,
        BlockType::Q4_0,
        BlockType::Q4_1,
        BlockType::Q5_0,
        BlockType::Q5_1,
        BlockType::Q8_0,
        BlockType::Q2K,
        BlockType::Q3K,
        BlockType::Q4K,
        BlockType::Q5K,
        BlockType::Q6K,
        BlockType::Iq4Nl,
    ];

    /// The type with this number in GGML files (`ggml_type`), if it is one of ours.
    pub fn from_ggml_id(id: u32) -> Option<BlockType> {
        BlockType::ALL.into_iter().find(|block_type| block_type.ggml_id() == id)
    }

    /// The number of this type in GGML files (`ggml_type`).
    pub fn ggml_id(self) -> u32 {
        match self {
            BlockType::F32 => 0,
            BlockType::F16 => 1,
            BlockType::Q4_0 => 2,
            BlockType::Q4_1 => 3,
            BlockType::Q5_0 => 6,
            BlockType::Q5_1 => 7,
            BlockType::Q8_0 => 8,
            BlockType::Q2K => 10,
            BlockType::Q3K => 11,
            BlockType::Q4K => 12,
            BlockType::Q5K => 13,
            BlockType::Q6K => 14,
            BlockType::Iq4Nl => 20,
            BlockType::BF16 => 30,
        }
    }

    /// The name GGML tools print, such as `Q4_K`.
    pub fn name(self) -> &'static str {
        match self {
            BlockType::F32 => "F32",
            BlockType::F16 => "F16",
            BlockType::BF16 => "BF16",
            BlockType::Q4_0 => "Q4_0",
            BlockType::Q4_1 => "Q4_1",
            BlockType::Q5_0 => "Q5_0",
            BlockType::Q5_1 => "Q5_1",
            BlockType::Q8_0 => "Q8_0",
            BlockType::Q2K => "Q2_K",
            BlockType::Q3K => "Q3_K",
            BlockType::Q4K => "Q4_K",
            BlockType::Q5K => "Q5_K",
            BlockType::Q6K => "Q6_K",
            BlockType::Iq4Nl => "IQ4_NL",
        }
    }

    /// Numbers in one block.
    pub fn block_len(self) -> usize {
        match self.family() {
            Family::Plain => 1,
            Family::Small => blocks::SMALL,
            Family::Super => blocks::SUPER,
        }
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> usize {
        match self {
            BlockType::F32 => 4,
            BlockType::F16 | BlockType::BF16 => 2,
            BlockType::Q4_0 => blocks::q4_0::BYTES,
            BlockType::Q4_1 => blocks::q4_1::BYTES,
            BlockType::Q5_0 => blocks::q5_0::BYTES,
            BlockType::Q5_1 => blocks::q5_1::BYTES,
            BlockType::Q8_0 => blocks::q8_0::BYTES,
            BlockType::Q2K => blocks::q2_k::BYTES,
            BlockType::Q3K => blocks::q3_k::BYTES,
            BlockType::Q4K => blocks::q4_k::BYTES,
            BlockType::Q5K => blocks::q5_k::BYTES,
            BlockType::Q6K => blocks::q6_k::BYTES,
            BlockType::Iq4Nl => blocks::iq4_nl::BYTES,
        }
    }

    /// Bytes of a row of `k` numbers; `None` when `k` is no whole number of blocks, or the product overflows.
    pub fn row_bytes(self, k: usize) -> Option<usize> {
        if !k.is_multiple_of(self.block_len()) {
            return None;
        }
        (k / self.block_len()).checked_mul(self.block_bytes())
    }

    /// Decodes whole blocks: `out` gets `block_len` numbers for each `block_bytes` bytes.
    ///
    /// Any bytes decode to something; scales that are not finite give numbers that are not finite.
    ///
    /// # Panics
    /// When `bytes` is not exactly the row of `out.len()` numbers: check with [`BlockType::row_bytes`].
    pub fn decode(self, bytes: &[u8], out: &mut [f32]) {
        assert_eq!(self.row_bytes(out.len()), Some(bytes.len()), "{} row of {}", self.name(), out.len());
        let blocks = bytes.chunks_exact(self.block_bytes());
        match self.family() {
            Family::Plain => blocks::plain::decode(self, bytes, out),
            Family::Small => {
                for (block, numbers) in blocks.zip(out.chunks_exact_mut(blocks::SMALL)) {
                    blocks::small(self, block).decode(numbers);
                }
            }
            Family::Super => {
                for (block, numbers) in blocks.zip(out.chunks_exact_mut(blocks::SUPER)) {
                    blocks::super_block(self, block).decode(numbers);
                }
            }
        }
    }

    /// Encodes numbers, appending whole blocks to `out`. Simple rounding, for tests and small models: it does
    /// not search for the best scales as a quantizer would.
    ///
    /// # Panics
    /// When `numbers` is no whole number of blocks.
    pub fn encode(self, numbers: &[f32], out: &mut Vec<u8>) {
        assert!(self.row_bytes(numbers.len()).is_some(), "{} row of {}", self.name(), numbers.len());
        for block in numbers.chunks_exact(self.block_len()) {
            match self {
                BlockType::F32 | BlockType::F16 | BlockType::BF16 => blocks::plain::encode(self, block, out),
                BlockType::Q4_0 => blocks::q4_0::encode(block, out),
                BlockType::Q4_1 => blocks::q4_1::encode(block, out),
                BlockType::Q5_0 => blocks::q5_0::encode(block, out),
                BlockType::Q5_1 => blocks::q5_1::encode(block, out),
                BlockType::Q8_0 => blocks::q8_0::encode(block, out),
                BlockType::Q2K => blocks::q2_k::encode(block, out),
                BlockType::Q3K => blocks::q3_k::encode(block, out),
                BlockType::Q4K => blocks::q4_k::encode(block, out),
                BlockType::Q5K => blocks::q5_k::encode(block, out),
                BlockType::Q6K => blocks::q6_k::encode(block, out),
                BlockType::Iq4Nl => blocks::iq4_nl::encode(block, out),
            }
        }
    }

    pub(crate) fn family(self) -> Family {
        match self {
            BlockType::F32 | BlockType::F16 | BlockType::BF16 => Family::Plain,
            BlockType::Q4_0
            | BlockType::Q4_1
            | BlockType::Q5_0
            | BlockType::Q5_1
            | BlockType::Q8_0
            | BlockType::Iq4Nl => Family::Small,
            BlockType::Q2K | BlockType::Q3K | BlockType::Q4K | BlockType::Q5K | BlockType::Q6K => {
                Family::Super
            }
        }
    }
}
