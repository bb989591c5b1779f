//! Records of blocks of 32: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL.
//!
//! Invariant: `weights` gives the block's quants plus `OFFSET`, unsigned; or, where `SIGNED`, the quants.
//! Not here: the loops (`small_tiles`).

use super::Wide;
use super::records::{Halves, Quads, Record, half_bits, quad};
use super::super_records::{Nibbles, fifth_bit, nibble_weights, put_fifth_bits, put_nibbles};
use crate::BlockType;
use crate::blocks::{self, iq4_nl};

/// A record of 32 numbers of 16 rows.
pub(in crate::kernels) trait SmallRecord: Record {
    /// Whether weights are signed bytes.
    const SIGNED: bool;
    /// What was added to the quants.
    const OFFSET: i32;
    /// Groups of four whose products fit a short: `2 * max weight * 127 * DEPTH < 32768`.
    const DEPTH: usize;
    /// Whether unpacking costs enough to keep the result for other activation rows.
    const UNPACKS: bool;

    /// Numbers of one group.
    fn weights<C: Wide>(&self, cpu: C, group: usize) -> C::Bytes;

    /// Scales of the rows.
    fn scale(&self) -> &Halves;

    /// Minimums of the rows, in the types that have them.
    fn min(&self) -> Option<&Halves>;
}

/// Q4_0, 288 bytes.
#[repr(C, align(32))]
pub(in crate::kernels) struct Q4_0 {
    scale: Halves,
    nibbles: Nibbles,
}

// SAFETY: arrays of integers only; 32 + 256 bytes leave no padding.
unsafe impl Record for Q4_0 {
    const BLOCK_BYTES: usize = blocks::q4_0::BYTES;

    #[inline(always)]
    fn put(&mut self, row: usize, block: &[u8]) {
        let quants = blocks::small(BlockType::Q4_0, block).quants;
        self.scale[row] = half_bits(block, 0);
        put_nibbles(&mut self.nibbles, row, |group| quad(&quants, group, 8));
    }
}

impl SmallRecord for Q4_0 {
    const SIGNED: bool = false;
    const OFFSET: i32 = 8;
    /// 2 * 15 * 127 * 8 = 30480.
    const DEPTH: usize = 8;
    const UNPACKS: bool = true;

    #[inline(always)]
    fn weights<C: Wide>(&self, cpu: C, group: usize) -> C::Bytes {
        nibble_weights(cpu, &self.nibbles, group)
    }

    #[inline(always)]
    fn scale(&self) -> &Halves {
        &self.scale
    }

    #[inline(always)]
    fn min(&self) -> Option<&Halves> {
        None
    }
}

/// Q4_1, 320 bytes.
#[repr(C, align(32))]
pub(in crate::kernels) struct Q4_1 {
    scale: Halves,
    min: Halves,
    nibbles: Nibbles,
}

// SAFETY: arrays of integers only; 64 + 256 bytes leave no padding.
unsafe impl Record for Q4_1 {
    const BLOCK_BYTES: usize = blocks::q4_1::BYTES;

    #[inline(always)]
    fn put(&mut self, row: usize, block: &[u8]) {
        let quants = blocks::small(BlockType::Q4_1, block).quants;
        self.scale[row] = half_bits(block, 0);
        self.min[row] = half_bits(block, 2);
        put_nibbles(&mut self.nibbles, row, |group| quad(&quants, group, 0));
    }
}

impl SmallRecord for Q4_1 {
    const SIGNED: bool = false;
    const OFFSET: i32 = 0;
    /// 2 * 15 * 127 * 8 = 30480.
    const DEPTH: usize = 8;
    const UNPACKS: bool = true;

    #[inline(always)]
    fn weights<C: Wide>(&self, cpu: C, group: usize) -> C::Bytes {
        nibble_weights(cpu, &self.nibbles, group)
    }

    #[inline(always)]
    fn scale(&self) -> &Halves {
        &self.scale
    }

    #[inline(always)]
    fn min(&self) -> Option<&Halves> {
        Some(&self.min)
    }
}

/// Q5_0, 352 bytes.
#[repr(C, align(32))]
pub(in crate::kernels) struct Q5_0 {
    scale: Halves,
    fifth: Quads,
    nibbles: Nibbles,
}

// SAFETY: arrays of integers only; 32 + 64 + 256 bytes leave no padding.
unsafe impl Record for Q5_0 {
    const BLOCK_BYTES: usize = blocks::q5_0::BYTES;

    #[inline(always)]
    fn put(&mut self, row: usize, block: &[u8]) {
        let quants = blocks::small(BlockType::Q5_0, block).quants;
        self.scale[row] = half_bits(block, 0);
        put_nibbles(&mut self.nibbles, row, |group| quad(&quants, group, 16));
        put_fifth_bits(&mut self.fifth, row, |group| quad(&quants, group, 16));
    }
}

impl SmallRecord for Q5_0 {
    const SIGNED: bool = false;
    const OFFSET: i32 = 16;
    /// 2 * 31 * 127 * 4 = 31496.
    const DEPTH: usize = 4;
    const UNPACKS: bool = true;

    #[inline(always)]
    fn weights<C: Wide>(&self, cpu: C, group: usize) -> C::Bytes {
        cpu.or(nibble_weights(cpu, &self.nibbles, group), fifth_bit(cpu, &self.fifth, group))
    }

    #[inline(always)]
    fn scale(&self) -> &Halves {
        &self.scale
    }

    #[inline(always)]
    fn min(&self) -> Option<&Halves> {
        None
    }
}

/// Q5_1, 384 bytes.
#[repr(C, align(32))]
pub(in crate::kernels) struct Q5_1 {
    scale: Halves,
    min: Halves,
    fifth: Quads,
    nibbles: Nibbles,
}

// SAFETY: arrays of integers only; 64 + 64 + 256 bytes leave no padding.
unsafe impl Record for Q5_1 {
    const BLOCK_BYTES: usize = blocks::q5_1::BYTES;

    #[inline(always)]
    fn put(&mut self, row: usize, block: &[u8]) {
        let quants = blocks::small(BlockType::Q5_1, block).quants;
        self.scale[row] = half_bits(block, 0);
        self.min[row] = half_bits(block, 2);
        put_nibbles(&mut self.nibbles, row, |group| quad(&quants, group, 0));
        put_fifth_bits(&mut self.fifth, row, |group| quad(&quants, group, 0));
    }
}

impl SmallRecord for Q5_1 {
    const SIGNED: bool = false;
    const OFFSET: i32 = 0;
    /// 2 * 31 * 127 * 4 = 31496.
    const DEPTH: usize = 4;
    const UNPACKS: bool = true;

    #[inline(always)]
    fn weights<C: Wide>(&self, cpu: C, group: usize) -> C::Bytes {
        cpu.or(nibble_weights(cpu, &self.nibbles, group), fifth_bit(cpu, &self.fifth, group))
    }

    #[inline(always)]
    fn scale(&self) -> &Halves {
        &self.scale
    }

    #[inline(always)]
    fn min(&self) -> Option<&Halves> {
        Some(&self.min)
    }
}

/// Q8_0, 544 bytes.
#[repr(C, align(32))]
pub(in crate::kernels) struct Q8_0 {
    scale: Halves,
    quants: [Quads; 8],
}

// SAFETY: arrays of integers only; 32 + 512 bytes leave no padding.
unsafe impl Record for Q8_0 {
    const BLOCK_BYTES: usize = blocks::q8_0::BYTES;

    #[inline(always)]
    fn put(&mut self, row: usize, block: &[u8]) {
        let quants = blocks::small(BlockType::Q8_0, block).quants;
        self.scale[row] = half_bits(block, 0);
        for group in 0..8 {
            self.quants[group][row] = quad(&quants, group, 0).to_le_bytes();
        }
    }
}

impl SmallRecord for Q8_0 {
    const SIGNED: bool = true;
    const OFFSET: i32 = 0;
    /// 2 * 128 * 127 = 32512.
    const DEPTH: usize = 1;
    const UNPACKS: bool = false;

    #[inline(always)]
    fn weights<C: Wide>(&self, cpu: C, group: usize) -> C::Bytes {
        cpu.load(&self.quants[group])
    }

    #[inline(always)]
    fn scale(&self) -> &Halves {
        &self.scale
    }

    #[inline(always)]
    fn min(&self) -> Option<&Halves> {
        None
    }
}

/// IQ4_NL, 288 bytes.
#[repr(C, align(32))]
pub(in crate::kernels) struct Iq4Nl {
    scale: Halves,
    indices: Nibbles,
}

// SAFETY: arrays of integers only; 32 + 256 bytes leave no padding.
unsafe impl Record for Iq4Nl {
    const BLOCK_BYTES: usize = iq4_nl::BYTES;

    #[inline(always)]
    fn put(&mut self, row: usize, block: &[u8]) {
        // The indices lie as the quants of Q4_0.
        let indices = blocks::small(BlockType::Q4_0, block).quants;
        self.scale[row] = half_bits(block, 0);
        put_nibbles(&mut self.indices, row, |group| quad(&indices, group, 8));
    }
}

impl SmallRecord for Iq4Nl {
    const SIGNED: bool = true;
    const OFFSET: i32 = 0;
    /// 2 * 127 * 127 = 32258.
    const DEPTH: usize = 1;
    const UNPACKS: bool = true;

    #[inline(always)]
    fn weights<C: Wide>(&self, cpu: C, group: usize) -> C::Bytes {
        cpu.look_up(&iq4_nl::LEVELS, nibble_weights(cpu, &self.indices, group))
    }

    #[inline(always)]
    fn scale(&self) -> &Halves {
        &self.scale
    }

    #[inline(always)]
    fn min(&self) -> Option<&Halves> {
        None
    }
}
