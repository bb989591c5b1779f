//! How the keys and values of a layer lie in the cache, and how they are read: as f16, or as q8_0.
//!
//! Keys of eight slots lie together, number by number ([`key_at`]); values lie slot after slot. In q8_0, each
//! [`KV_GROUP`] numbers of a head have one f32 scale; scales lie as the numbers do, with one entry a group:
//!
//! ```text
//! scale = amax / 127;  quant = round_ties_even(x * (127 / amax));  zero where amax is below 3.8e-37
//! ```
//!
//! Invariant: what is kept of a head depends on that head's numbers alone. In q8_0, a NaN or an infinity anywhere in a
//! head makes all its scales NaN and its quants 0, so that whoever reads this key or value sees NaN, and nobody else.
//! Not here: what is computed from them (`attention`), or which slots exist (`lane`).

use std::ops::Range;

use super::activations::quantize_block;
use super::lanes::Lanes;

/// Slots whose keys lie together.
pub const KEY_BLOCK: usize = 8;

/// Numbers of a head that share a scale in q8_0.
pub const KV_GROUP: usize = 32;

/// Where number `number` of the key in slot `slot` lies, among keys of `width` numbers: eight slots together, number
/// by number. The numbers of all heads count through. For scales, read "scale" for "number".
#[inline(always)]
pub fn key_at(width: usize, slot: usize, number: usize) -> usize {
    (slot / KEY_BLOCK * width + number) * KEY_BLOCK + slot % KEY_BLOCK
}

/// Keys and values of one head, or their scales.
#[derive(Clone, Copy, Debug)]
pub struct KvPair<'a, T> {
    /// Laid out as [`key_at`] says, starting at this head's first entry.
    pub keys: &'a [T],
    /// Slot after slot, starting at this head's first entry in slot 0.
    pub values: &'a [T],
}

/// The numbers of a head in one of the forms they are kept in.
#[derive(Clone, Copy, Debug)]
pub enum KvNumbers<'a> {
    /// f16 bit patterns.
    F16(KvPair<'a, u16>),
    /// 8-bit quants, with a scale for each [`KV_GROUP`] of them.
    Q8_0 {
        /// One a number.
        quants: KvPair<'a, i8>,
        /// One a group.
        scales: KvPair<'a, f32>,
    },
}

/// The cached keys and values of one layer and one key/value head.
///
/// Positions below `committed` lie in the slot of their own number; those behind lie where each row's path says.
#[derive(Clone, Copy, Debug)]
pub struct KvRows<'a> {
    /// The numbers.
    pub numbers: KvNumbers<'a>,
    /// Numbers of all heads together: from one slot's values to the next's.
    pub width: usize,
    /// Numbers in a head. In q8_0 a multiple of [`KV_GROUP`], as is `width`.
    pub head_dim: usize,
    /// Positions that lie in the slot of their own number.
    pub committed: usize,
}

/// A form of number that the loops of attention are compiled for.
pub(super) trait Number: Copy + Default {
    /// Whether groups have scales.
    const SCALED: bool;

    /// Eight numbers as floats, exactly and without their scale.
    fn widen<L: Lanes>(lanes: L, eight: &[Self; 8]) -> L::Eight;

    /// The memory for numbers of this form, and for scales.
    fn gathered(all: &mut Gathered) -> (&mut Vec<[Self; KEY_BLOCK]>, &mut Vec<[f32; KEY_BLOCK]>);
}

impl Number for u16 {
    const SCALED: bool = false;

    #[inline(always)]
    fn widen<L: Lanes>(lanes: L, eight: &[u16; 8]) -> L::Eight {
        lanes.widen(eight)
    }

    #[inline(always)]
    fn gathered(all: &mut Gathered) -> (&mut Vec<[u16; KEY_BLOCK]>, &mut Vec<[f32; KEY_BLOCK]>) {
        (&mut all.halves, &mut all.scales)
    }
}

impl Number for i8 {
    const SCALED: bool = true;

    #[inline(always)]
    fn widen<L: Lanes>(lanes: L, eight: &[i8; 8]) -> L::Eight {
        lanes.widen_quants(eight)
    }

    #[inline(always)]
    fn gathered(all: &mut Gathered) -> (&mut Vec<[i8; KEY_BLOCK]>, &mut Vec<[f32; KEY_BLOCK]>) {
        (&mut all.quants, &mut all.scales)
    }
}

/// Keys of eight positions whose slots do not lie together.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    halves: Vec<[u16; KEY_BLOCK]>,
    quants: Vec<[i8; KEY_BLOCK]>,
    scales: Vec<[f32; KEY_BLOCK]>,
}

/// The keys of eight positions of a head, number by number, and group by group where groups have scales.
#[derive(Clone, Copy)]
pub(super) struct Keys<'a, T> {
    pub(super) numbers: &'a [[T; KEY_BLOCK]],
    pub(super) scales: &'a [[f32; KEY_BLOCK]],
}

/// One head, all in one form. Without scales, `scales` is empty.
pub(super) struct Head<'a, T> {
    pub(super) numbers: KvPair<'a, T>,
    pub(super) scales: KvPair<'a, f32>,
    pub(super) width: usize,
    pub(super) dim: usize,
    committed: usize,
}

impl<'a, T: Number> Head<'a, T> {
    #[inline(always)]
    pub(super) fn new(kv: &KvRows<'a>, numbers: KvPair<'a, T>, scales: KvPair<'a, f32>) -> Head<'a, T> {
        Head { numbers, scales, width: kv.width, dim: kv.head_dim, committed: kv.committed }
    }

    /// The slot of a position, for a row with this path.
    #[inline(always)]
    pub(super) fn slot(&self, path: &[u32], position: usize) -> usize {
        match position.checked_sub(self.committed) {
            None => position,
            Some(beyond) => path[beyond] as usize,
        }
    }

    /// Asks for what is read soon: the keys of the next eight slots, and the values of the eight from `start` on.
    #[inline(always)]
    pub(super) fn prefetch<L: Lanes>(&self, lanes: L, start: usize) {
        let line = 64 / size_of::<T>();
        let keys = self.numbers.keys.get(key_at(self.width, start + KEY_BLOCK, 0)..).unwrap_or_default();
        for number in keys.iter().take(self.dim * KEY_BLOCK).step_by(line) {
            lanes.prefetch(number);
        }
        for slot in start..start + KEY_BLOCK {
            let value = self.numbers.values.get(slot * self.width..).unwrap_or_default();
            for number in value.iter().take(self.dim).step_by(line) {
                lanes.prefetch(number);
            }
        }
    }

    /// The keys of eight positions from `start` on; only `wanted` positions are looked at.
    #[inline(always)]
    pub(super) fn keys<'k>(
        &self,
        path: &[u32],
        start: usize,
        wanted: Range<usize>,
        gathered: &'k mut Gathered,
    ) -> Keys<'k, T>
    where
        'a: 'k,
    {
        let in_place = wanted.end <= self.committed || wanted.clone().all(|p| self.slot(path, p) == p);
        let groups = if T::SCALED { self.dim / KV_GROUP } else { 0 };
        if in_place {
            let block = &self.numbers.keys[key_at(self.width, start, 0)..][..self.dim * KEY_BLOCK];
            let numbers = block.as_chunks().0;
            if !T::SCALED {
                return Keys { numbers, scales: &[] };
            }
            let block = &self.scales.keys[key_at(self.width / KV_GROUP, start, 0)..][..groups * KEY_BLOCK];
            return Keys { numbers, scales: block.as_chunks().0 };
        }
        let (numbers, scales) = T::gathered(gathered);
        numbers.resize(self.dim, [T::default(); KEY_BLOCK]);
        scales.resize(groups, [0.0; KEY_BLOCK]);
        for position in wanted {
            let slot = self.slot(path, position);
            for (number, eight) in numbers.iter_mut().enumerate() {
                eight[position % KEY_BLOCK] = self.numbers.keys[key_at(self.width, slot, number)];
            }
            for (group, eight) in scales.iter_mut().enumerate() {
                eight[position % KEY_BLOCK] = self.scales.keys[key_at(self.width / KV_GROUP, slot, group)];
            }
        }
        Keys { numbers, scales }
    }
}

/// Quantizes heads of `head_dim` numbers, a multiple of [`KV_GROUP`].
#[inline(always)]
pub(super) fn to_quants<L: Lanes>(
    lanes: L,
    x: &[f32],
    head_dim: usize,
    quants: &mut [i8],
    scales: &mut [f32],
) {
    let heads = x.chunks_exact(head_dim).zip(quants.chunks_exact_mut(head_dim));
    for ((x, quants), scales) in heads.zip(scales.chunks_exact_mut(head_dim / KV_GROUP)) {
        let groups = x.as_chunks::<KV_GROUP>().0.iter().zip(quants.as_chunks_mut::<KV_GROUP>().0);
        let mut finite = true;
        for ((x, quants), scale) in groups.zip(scales.iter_mut()) {
            *scale = quantize_block(lanes, x, quants);
            finite &= !scale.is_nan();
        }
        if !finite {
            quants.fill(0);
            scales.fill(f32::NAN);
        }
    }
}
