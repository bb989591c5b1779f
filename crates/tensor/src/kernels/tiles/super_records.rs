//! Records of blocks of 256: Q4_K, Q5_K, Q6_K.
//!
//! A group is four consecutive numbers; a sub-block is the groups that share a scale. Low nibbles of two groups
//! share a byte; fifth and sixth bits are kept apart, beside them.
//!
//! Invariant: `weights` gives numbers of 0 or more; what was subtracted in the block is subtracted again by the
//! loops, from sums of activations.
//! Not here: the loops (`super_tiles`).

use super::Wide;
use super::records::{Halves, Quads, Record, half_bits, quad};
use crate::blocks;
use crate::kernels::matrix::TILE;

/// A record of 256 numbers of 16 rows.
pub(in crate::kernels) trait SuperRecord: Record {
    /// Groups of four numbers that share a scale; sub-blocks are `64 / GROUPS`.
    const GROUPS: usize;
    /// Groups whose products fit a short: `2 * max weight * 127 * DEPTH < 32768`.
    const DEPTH: usize;
    /// Whether [`Expanded::pairs`] holds minimums (per 32); else scales (per 16), for the offset of 32.
    const MINS: bool;
    /// Whether sums over half of the sub-blocks, scaled, stay below 2^24, so that floats hold them exactly.
    const HALF_IS_EXACT: bool;

    /// Numbers of one group, as unsigned bytes.
    fn weights<C: Wide>(&self, cpu: C, sub: usize, group: usize) -> C::Bytes;

    /// Widens the scales, once for all activation rows.
    fn expand<C: Wide>(&self, cpu: C, out: &mut ExpandedOf<C>);

    /// The scale of the scales.
    fn scale(&self) -> &Halves;

    /// The scale of the minimums.
    fn min_scale(&self) -> &Halves;
}

/// The scales of a record, ready for arithmetic.
pub(in crate::kernels) struct Expanded<S, P> {
    /// Of each sub-block.
    pub(in crate::kernels) scales: [S; 16],
    /// Of each pair of sub-blocks: minimums (or scales) of both.
    pub(in crate::kernels) pairs: [P; 8],
}

/// What `C` makes of the scales of a record.
pub(in crate::kernels) type ExpandedOf<C> = Expanded<<C as Wide>::Scales, <C as Wide>::Pairs>;

impl<S: Copy, P: Copy> Expanded<S, P> {
    #[inline(always)]
    pub(in crate::kernels) fn zero<C: Wide<Scales = S, Pairs = P>>(cpu: C) -> Expanded<S, P> {
        Expanded { scales: [cpu.scales(&[0; 16]); 16], pairs: [cpu.pairs_unsigned(&[0; 32]); 8] }
    }
}

/// The scales of Q4_K and Q5_K, still in 6 bits: 128 scales `[sub-block][row]`, then 128 minimums
/// `[pair of sub-blocks][row][2]`. Of the eight 32s of values, two share the bytes of a `low`, four the bytes of a
/// `high`.
#[repr(C, align(32))]
struct SixBits {
    low: [[u8; 32]; 4],
    high: [[u8; 32]; 2],
    scale: Halves,
    min_scale: Halves,
}

impl SixBits {
    #[inline(always)]
    fn put(&mut self, row: usize, block: &[u8]) {
        let (scales, mins) = blocks::q4_k::six_bits(block);
        for sub in 0..8 {
            self.put_value(sub * TILE + row, scales[sub]);
            self.put_value(8 * TILE + sub / 2 * 2 * TILE + row * 2 + sub % 2, mins[sub]);
        }
        self.scale[row] = half_bits(block, 0);
        self.min_scale[row] = half_bits(block, 2);
    }

    #[inline(always)]
    fn put_value(&mut self, at: usize, value: u8) {
        let (part, byte) = (at / 32, at % 32);
        self.low[part / 2][byte] |= (value & 15) << (4 * (part % 2));
        self.high[part / 4][byte] |= (value >> 4) << (2 * (part % 4));
    }

    #[inline(always)]
    fn expand<C: Wide>(&self, cpu: C, out: &mut ExpandedOf<C>) {
        let mut values = [[0u8; 32]; 8];
        for part in 0..8 {
            // Plain code on whole arrays: every table's compiler makes vectors of it.
            let (low, high) = (&self.low[part / 2], &self.high[part / 4]);
            for byte in 0..32 {
                let low = low[byte] >> (4 * (part % 2)) & 0x0f;
                values[part][byte] = low | (high[byte] >> (2 * (part % 4)) & 0x03) << 4;
            }
        }
        let (scales, mins) = values.split_at(4);
        let scales = scales.as_flattened().as_chunks::<TILE>().0;
        for sub in 0..8 {
            out.scales[sub] = cpu.scales(&scales[sub]);
        }
        for pair in 0..4 {
            out.pairs[pair] = cpu.pairs_unsigned(&mins[pair]);
        }
    }
}

/// Low nibbles of the eight groups of a sub-block of 32: group `i` in low halves, group `i + 4` in high halves.
pub(super) type Nibbles = [Quads; 4];

/// Writes the low nibbles of a row's 32 numbers.
#[inline(always)]
pub(super) fn put_nibbles(nibbles: &mut Nibbles, row: usize, quad: impl Fn(usize) -> u32) {
    for i in 0..4 {
        let word = quad(i) & 0x0f0f_0f0f | (quad(i + 4) & 0x0f0f_0f0f) << 4;
        nibbles[i][row] = word.to_le_bytes();
    }
}

/// Low nibbles of one group.
#[inline(always)]
pub(super) fn nibble_weights<C: Wide>(cpu: C, nibbles: &Nibbles, group: usize) -> C::Bytes {
    let both = cpu.load(&nibbles[group % 4]);
    cpu.and(if group < 4 { both } else { cpu.right::<4>(both) }, cpu.splat_byte(0x0f))
}

/// Writes the fifth bits of a row's 32 numbers: group `g` in bit `g`.
#[inline(always)]
pub(super) fn put_fifth_bits(bits: &mut Quads, row: usize, quad: impl Fn(usize) -> u32) {
    let word = (0..8).fold(0, |word, group| word | (quad(group) >> 4 & 0x0101_0101) << group);
    bits[row] = word.to_le_bytes();
}

/// Fifth bits of one group, in place.
#[inline(always)]
pub(super) fn fifth_bit<C: Wide>(cpu: C, bits: &Quads, group: usize) -> C::Bytes {
    let bits = cpu.load(bits);
    let moved = match group {
        0 => cpu.left::<4>(bits),
        1 => cpu.left::<3>(bits),
        2 => cpu.left::<2>(bits),
        3 => cpu.left::<1>(bits),
        4 => bits,
        5 => cpu.right::<1>(bits),
        6 => cpu.right::<2>(bits),
        _ => cpu.right::<3>(bits),
    };
    cpu.and(moved, cpu.splat_byte(0x10))
}

/// Q4_K, 2304 bytes.
#[repr(C, align(32))]
pub(in crate::kernels) struct Q4K {
    header: SixBits,
    subs: [Nibbles; 8],
}

// SAFETY: arrays of integers only; 256 + 2048 bytes leave no padding.
unsafe impl Record for Q4K {
    const BLOCK_BYTES: usize = blocks::q4_k::BYTES;

    #[inline(always)]
    fn put(&mut self, row: usize, block: &[u8]) {
        self.header.put(row, block);
        let quants = blocks::super_block(crate::BlockType::Q4K, block).quants;
        for (sub, nibbles) in self.subs.iter_mut().enumerate() {
            put_nibbles(nibbles, row, |group| quad(&quants, sub * 8 + group, 0));
        }
    }
}

impl SuperRecord for Q4K {
    const GROUPS: usize = 8;
    /// 2 * 15 * 127 * 8 = 30480.
    const DEPTH: usize = 8;
    const MINS: bool = true;
    /// 15 * 127 * 32 * 63 * 4 = 15361920.
    const HALF_IS_EXACT: bool = true;

    #[inline(always)]
    fn weights<C: Wide>(&self, cpu: C, sub: usize, group: usize) -> C::Bytes {
        nibble_weights(cpu, &self.subs[sub], group)
    }

    #[inline(always)]
    fn expand<C: Wide>(&self, cpu: C, out: &mut ExpandedOf<C>) {
        self.header.expand(cpu, out);
    }

    #[inline(always)]
    fn scale(&self) -> &Halves {
        &self.header.scale
    }

    #[inline(always)]
    fn min_scale(&self) -> &Halves {
        &self.header.min_scale
    }
}

/// Q5_K, 2816 bytes.
#[repr(C, align(32))]
pub(in crate::kernels) struct Q5K {
    header: SixBits,
    subs: [FiveBits; 8],
}

/// A sub-block of 32 numbers of 5 bits.
#[repr(C, align(32))]
struct FiveBits {
    fifth: Quads,
    nibbles: Nibbles,
}

// SAFETY: arrays of integers only; 256 + 8 * (64 + 256) bytes leave no padding.
unsafe impl Record for Q5K {
    const BLOCK_BYTES: usize = blocks::q5_k::BYTES;

    #[inline(always)]
    fn put(&mut self, row: usize, block: &[u8]) {
        self.header.put(row, block);
        let quants = blocks::super_block(crate::BlockType::Q5K, block).quants;
        for (index, sub) in self.subs.iter_mut().enumerate() {
            put_nibbles(&mut sub.nibbles, row, |group| quad(&quants, index * 8 + group, 0));
            put_fifth_bits(&mut sub.fifth, row, |group| quad(&quants, index * 8 + group, 0));
        }
    }
}

impl SuperRecord for Q5K {
    const GROUPS: usize = 8;
    /// 2 * 31 * 127 * 4 = 31496.
    const DEPTH: usize = 4;
    const MINS: bool = true;
    const HALF_IS_EXACT: bool = false;

    #[inline(always)]
    fn weights<C: Wide>(&self, cpu: C, sub: usize, group: usize) -> C::Bytes {
        let sub = &self.subs[sub];
        cpu.or(nibble_weights(cpu, &sub.nibbles, group), fifth_bit(cpu, &sub.fifth, group))
    }

    #[inline(always)]
    fn expand<C: Wide>(&self, cpu: C, out: &mut ExpandedOf<C>) {
        self.header.expand(cpu, out);
    }

    #[inline(always)]
    fn scale(&self) -> &Halves {
        &self.header.scale
    }

    #[inline(always)]
    fn min_scale(&self) -> &Halves {
        &self.header.min_scale
    }
}

/// Q6_K, 3360 bytes.
#[repr(C, align(32))]
pub(in crate::kernels) struct Q6K {
    /// `[pair of sub-blocks][row][2]`, i8.
    scales: [[u8; 32]; 8],
    scale: Halves,
    subs: [SixBitQuants; 16],
}

/// A sub-block of 16 numbers of 6 bits: low nibbles of group `t` in half `t % 2` of `low[t / 2]`, its high bits
/// at bits `2t` of `high`.
#[repr(C, align(32))]
struct SixBitQuants {
    low: [Quads; 2],
    high: Quads,
}

// SAFETY: arrays of integers only; 256 + 32 + 16 * 192 bytes leave no padding.
unsafe impl Record for Q6K {
    const BLOCK_BYTES: usize = blocks::q6_k::BYTES;

    #[inline(always)]
    fn put(&mut self, row: usize, block: &[u8]) {
        let unpacked = blocks::super_block(crate::BlockType::Q6K, block);
        for (index, sub) in self.subs.iter_mut().enumerate() {
            let quads: [u32; 4] = std::array::from_fn(|t| quad(&unpacked.quants, index * 4 + t, 32));
            for half in 0..2 {
                let word = quads[2 * half] & 0x0f0f_0f0f | (quads[2 * half + 1] & 0x0f0f_0f0f) << 4;
                sub.low[half][row] = word.to_le_bytes();
            }
            let high = (0..4).fold(0, |word, t| word | (quads[t] >> 4 & 0x0303_0303) << (2 * t));
            sub.high[row] = high.to_le_bytes();
            self.scales[index / 2][row * 2 + index % 2] = unpacked.scales[index] as u8;
        }
        self.scale[row] = half_bits(block, 208);
    }
}

impl SuperRecord for Q6K {
    const GROUPS: usize = 4;
    /// 2 * 63 * 127 * 2 = 32004.
    const DEPTH: usize = 2;
    const MINS: bool = false;
    const HALF_IS_EXACT: bool = false;

    #[inline(always)]
    fn weights<C: Wide>(&self, cpu: C, sub: usize, group: usize) -> C::Bytes {
        let sub = &self.subs[sub];
        let both = cpu.load(&sub.low[group / 2]);
        let low =
            cpu.and(if group.is_multiple_of(2) { both } else { cpu.right::<4>(both) }, cpu.splat_byte(0x0f));
        let high = cpu.load(&sub.high);
        let high = match group {
            0 => cpu.left::<4>(high),
            1 => cpu.left::<2>(high),
            2 => high,
            _ => cpu.right::<2>(high),
        };
        cpu.or(low, cpu.and(high, cpu.splat_byte(0x30)))
    }

    #[inline(always)]
    fn expand<C: Wide>(&self, cpu: C, out: &mut ExpandedOf<C>) {
        for pair in 0..8 {
            out.pairs[pair] = cpu.pairs_signed(&self.scales[pair]);
            [out.scales[2 * pair], out.scales[2 * pair + 1]] = cpu.split(out.pairs[pair]);
        }
    }

    #[inline(always)]
    fn scale(&self) -> &Halves {
        &self.scale
    }

    #[inline(always)]
    fn min_scale(&self) -> &Halves {
        unreachable!("Q6_K has no minimums")
    }
}
