//! Tiled matmul: 16 output rows at a time, for every CPU with byte products.
//!
//! The records ([`records`]) and the loops over them are written once, against [`Wide`]: 16 lanes of whatever registers
//! a CPU has. A table compiles them for its features with [`tile_entries!`].
//!
//! Invariant: same bits as `matmul`, on every implementation of [`Wide`].
//! Not here: instructions (`x86`, `aarch64`), quantizing activations.

pub(super) mod records;
pub(super) mod small_loop;
pub(super) mod small_records;
pub(super) mod super_loop;
pub(super) mod super_records;
pub(super) mod walk;

use super::columns::ColumnBlock;
use super::matrix::Matrix;
use super::{Activations, matrix::TILE};
use crate::block::BlockType;
use records::{Halves, Quads};
use small_loop::SmallInput;
use small_records::SmallRecord;
use super_loop::InputOf;
use super_records::SuperRecord;
pub(super) use walk::Kept;
use walk::RowTile;

/// Sums of one activation row for the columns of a tile.
pub(super) type Sums = [f32; TILE];

/// Sixteen lanes, one for each output row of a tile. A value of the type proves that the CPU has what it uses.
///
/// Activations are four numbers of one row, the same for all lanes, in -127..=127: entry `at` of a list whose length is
/// a multiple of 4, so that a CPU may load four neighbours together.
pub(super) trait Wide: Copy {
    /// Four bytes a lane.
    type Bytes: Copy;
    /// A running sum of products: words, or two shorts a lane where [`Wide::SHORT`].
    type Part: Copy;
    /// One `i32` a lane.
    type Words: Copy;
    /// One small integer a lane, ready to multiply a part.
    type Scales: Copy;
    /// Two `i16` a lane.
    type Pairs: Copy;
    /// One `f32` a lane.
    type Floats: Copy;

    /// Whether parts are shorts, which hold only so many products (`DEPTH` of a record).
    const SHORT: bool;
    /// Whether there are registers for tiles of 8 activation rows; else they have 4.
    const MANY: bool;
    /// Whether scaling parts as floats takes fewer instructions than as words.
    const FLOATS: bool = false;
    /// What [`Wide::lifted`] adds to signed weights.
    const LIFT: i32;

    fn load(self, bytes: &Quads) -> Self::Bytes;
    fn keep(self, bytes: &mut Quads, value: Self::Bytes);
    fn prefetch(self, address: *const u8);

    fn splat_byte(self, value: u8) -> Self::Bytes;
    fn and(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    fn or(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// Shifts bytes left by `N`, with or without what crosses into the next: callers mask it.
    fn left<const N: i32>(self, a: Self::Bytes) -> Self::Bytes;
    /// Shifts bytes right by `N`, as [`Wide::left`].
    fn right<const N: i32>(self, a: Self::Bytes) -> Self::Bytes;
    /// The entries of `table` at indices below 16.
    fn look_up(self, table: &[i8; 16], indices: Self::Bytes) -> Self::Bytes;
    /// Signed weights, as [`Wide::add_signed`] wants them.
    fn lifted(self, signed: Self::Bytes) -> Self::Bytes;

    fn no_part(self) -> Self::Part;
    /// Adds the products of unsigned weights, of less than 128, and activations `at`.
    fn add_unsigned(self, part: Self::Part, weights: Self::Bytes, acts: &[[i8; 4]], at: usize) -> Self::Part;
    /// Adds the products of lifted weights and activations `at`.
    fn add_signed(self, part: Self::Part, lifted: Self::Bytes, acts: &[[i8; 4]], at: usize) -> Self::Part;
    /// `part`, where registers are few hidden from the optimizer, which would otherwise regroup long sums so that every
    /// weight of a sub-block is live at once, and spill most of them.
    fn in_order(self, part: Self::Part) -> Self::Part;

    fn splat_word(self, value: i32) -> Self::Words;
    fn sub(self, a: Self::Words, b: Self::Words) -> Self::Words;
    /// Shifts words left by `N`.
    fn left_words<const N: u32>(self, a: Self::Words) -> Self::Words;
    /// Adds a part.
    fn add_part(self, words: Self::Words, part: Self::Part) -> Self::Words;
    /// Adds a part times its scale.
    fn add_scaled(self, words: Self::Words, part: Self::Part, scales: Self::Scales) -> Self::Words;
    /// Adds a part times its scale to floats, where [`Wide::FLOATS`].
    fn add_scaled_floats(self, floats: Self::Floats, part: Self::Part, scales: Self::Scales) -> Self::Floats {
        let _ = (floats, part, scales);
        unreachable!("words are scaled here")
    }
    /// Adds, in every lane, the products of both of its shorts with `pair`.
    fn add_pairs(self, words: Self::Words, pairs: Self::Pairs, pair: [i16; 2]) -> Self::Words;

    /// Unsigned bytes, one a lane.
    fn scales(self, bytes: &[u8; 16]) -> Self::Scales;
    /// Unsigned bytes, two a lane.
    fn pairs_unsigned(self, bytes: &[u8; 32]) -> Self::Pairs;
    /// Signed bytes, two a lane.
    fn pairs_signed(self, bytes: &[u8; 32]) -> Self::Pairs;
    /// The first shorts of all lanes, and the second.
    fn split(self, pairs: Self::Pairs) -> [Self::Scales; 2];

    fn load_sums(self, sums: &Sums) -> Self::Floats;
    fn store_sums(self, sums: &mut Sums, value: Self::Floats);
    fn splat(self, value: f32) -> Self::Floats;
    /// Halves as floats, exactly.
    fn widen(self, halves: &Halves) -> Self::Floats;
    /// Words as floats, to nearest, ties to even.
    fn floats(self, words: Self::Words) -> Self::Floats;
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// `-(a * b) + c`, rounded once.
    fn negated_fma(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
}

/// The work on one tile of activation rows, compiled for a CPU's features: see [`tile_entries!`].
pub(super) trait Entries: Wide {
    /// [`small_loop::add`].
    fn small<T: SmallRecord, const ROWS: usize, const SOURCE: u8>(
        self,
        input: SmallInput<'_, T>,
        kept: &mut Kept,
        sums: &mut [Sums],
    );
    /// [`super_loop::add`].
    fn super_<T: SuperRecord, const ROWS: usize, const SOURCE: u8>(
        self,
        input: InputOf<'_, T, Self>,
        kept: &mut Kept,
        sums: &mut [Sums],
    );
}

/// Implements [`Entries`] for a type whose `here()` is callable where these features are enabled. Where several
/// rows are too many for the registers, further types name parts of the lanes, to be worked on one after another.
macro_rules! tile_entries {
    ($wide:ty, $features:literal) => {
        $crate::kernels::tiles::tile_entries!($wide, $features, $wide);
    };
    ($wide:ty, $features:literal, $($part:ty),+) => {
        impl $crate::kernels::tiles::Entries for $wide {
            #[inline(always)]
            fn small<
                T: $crate::kernels::tiles::small_records::SmallRecord,
                const ROWS: usize,
                const SOURCE: u8,
            >(
                self,
                input: $crate::kernels::tiles::small_loop::SmallInput<'_, T>,
                kept: &mut $crate::kernels::tiles::Kept,
                sums: &mut [$crate::kernels::tiles::Sums],
            ) {
                #[inline(never)]
                #[target_feature(enable = $features)]
                fn entry<
                    T: $crate::kernels::tiles::small_records::SmallRecord,
                    const ROWS: usize,
                    const SOURCE: u8,
                >(
                    input: $crate::kernels::tiles::small_loop::SmallInput<'_, T>,
                    kept: &mut $crate::kernels::tiles::Kept,
                    sums: &mut [$crate::kernels::tiles::Sums],
                ) {
                    use $crate::kernels::tiles::small_loop::add;
                    if ROWS == 1 {
                        add::<$wide, T, ROWS, SOURCE>(<$wide>::here(), &input, kept, sums);
                    } else {
                        $(add::<$part, T, ROWS, SOURCE>(<$part>::here(), &input, kept, sums);)+
                    }
                }
                // SAFETY: `self` proves that the CPU has the features.
                unsafe { entry::<T, ROWS, SOURCE>(input, kept, sums) }
            }

            #[inline(always)]
            fn super_<
                T: $crate::kernels::tiles::super_records::SuperRecord,
                const ROWS: usize,
                const SOURCE: u8,
            >(
                self,
                input: $crate::kernels::tiles::super_loop::InputOf<'_, T, $wide>,
                kept: &mut $crate::kernels::tiles::Kept,
                sums: &mut [$crate::kernels::tiles::Sums],
            ) {
                #[inline(never)]
                #[target_feature(enable = $features)]
                fn entry<
                    T: $crate::kernels::tiles::super_records::SuperRecord,
                    const ROWS: usize,
                    const SOURCE: u8,
                >(
                    input: $crate::kernels::tiles::super_loop::InputOf<'_, T, $wide>,
                    kept: &mut $crate::kernels::tiles::Kept,
                    sums: &mut [$crate::kernels::tiles::Sums],
                ) {
                    use $crate::kernels::tiles::super_loop::add;
                    if ROWS == 1 {
                        add::<$wide, T, ROWS, SOURCE>(<$wide>::here(), &input, kept, sums);
                    } else {
                        $(add::<$part, T, ROWS, SOURCE>(<$part>::here(), &input, kept, sums);)+
                    }
                }
                // SAFETY: `self` proves that the CPU has the features.
                unsafe { entry::<T, ROWS, SOURCE>(input, kept, sums) }
            }
        }
    };
}
pub(super) use tile_entries;

/// Whether tables with tiles tile this type: every type whose files are common. The rest go through `matmul`.
pub(super) fn tiled(block_type: BlockType) -> bool {
    match block_type {
        BlockType::F32 | BlockType::F16 | BlockType::BF16 | BlockType::Q2K | BlockType::Q3K => false,
        BlockType::Q4_0
        | BlockType::Q4_1
        | BlockType::Q5_0
        | BlockType::Q5_1
        | BlockType::Q8_0
        | BlockType::Iq4Nl
        | BlockType::Q4K
        | BlockType::Q5K
        | BlockType::Q6K => true,
    }
}

/// Packs whole tiles of rows of `k` numbers. Worth compiling for a CPU's features.
#[inline(always)]
pub(super) fn pack(block_type: BlockType, k: usize, source: &[u8], target: &mut [u8]) {
    let n_blocks = k / block_type.block_len();
    match block_type {
        BlockType::Q4_0 => records::pack::<small_records::Q4_0>(n_blocks, source, target),
        BlockType::Q4_1 => records::pack::<small_records::Q4_1>(n_blocks, source, target),
        BlockType::Q5_0 => records::pack::<small_records::Q5_0>(n_blocks, source, target),
        BlockType::Q5_1 => records::pack::<small_records::Q5_1>(n_blocks, source, target),
        BlockType::Q8_0 => records::pack::<small_records::Q8_0>(n_blocks, source, target),
        BlockType::Iq4Nl => records::pack::<small_records::Iq4Nl>(n_blocks, source, target),
        BlockType::Q4K => records::pack::<super_records::Q4K>(n_blocks, source, target),
        BlockType::Q5K => records::pack::<super_records::Q5K>(n_blocks, source, target),
        BlockType::Q6K => records::pack::<super_records::Q6K>(n_blocks, source, target),
        _ => unreachable!("{} stays in rows", block_type.name()),
    }
}

/// `y = x W^T` for the columns of `y`, for a tiled weight.
#[inline(always)]
pub(super) fn matmul<C: Entries>(cpu: C, weight: &Matrix, x: &Activations, y: &mut ColumnBlock<'_>) {
    match weight.block_type {
        BlockType::Q4_0 => small_loop::matmul::<C, small_records::Q4_0>(cpu, weight, x, y),
        BlockType::Q4_1 => small_loop::matmul::<C, small_records::Q4_1>(cpu, weight, x, y),
        BlockType::Q5_0 => small_loop::matmul::<C, small_records::Q5_0>(cpu, weight, x, y),
        BlockType::Q5_1 => small_loop::matmul::<C, small_records::Q5_1>(cpu, weight, x, y),
        BlockType::Q8_0 => small_loop::matmul::<C, small_records::Q8_0>(cpu, weight, x, y),
        BlockType::Iq4Nl => small_loop::matmul::<C, small_records::Iq4Nl>(cpu, weight, x, y),
        BlockType::Q4K => super_loop::matmul::<C, super_records::Q4K>(cpu, weight, x, y),
        BlockType::Q5K => super_loop::matmul::<C, super_records::Q5K>(cpu, weight, x, y),
        BlockType::Q6K => super_loop::matmul::<C, super_records::Q6K>(cpu, weight, x, y),
        _ => unreachable!("{} stays in rows", weight.block_type.name()),
    }
}

/// Most activation rows in a tile.
const fn tile_rows<C: Wide>() -> usize {
    if C::MANY { 8 } else { 4 }
}

/// Adds products of bytes that are in registers already, the way the loops do; returns how many.
#[inline(always)]
pub(super) fn probe_multiply<C: Wide>(cpu: C, rounds: usize) -> usize {
    // As many sums as hide the latency of one, with registers to spare.
    let sums = if C::SHORT {
        4
    } else if C::MANY {
        12
    } else {
        5
    };
    let mut parts = [cpu.no_part(); 12];
    let weights = cpu.splat_byte(3);
    for round in 0..rounds {
        // Different each time, so that no product is taken from an earlier round.
        let acts = [[round as i8; 4]; 4];
        for part in &mut parts[..sums] {
            *part = cpu.in_order(cpu.add_unsigned(*part, weights, &acts, 0));
        }
    }
    std::hint::black_box(parts);
    TILE * 4 * sums * rounds
}

/// Calls `$cpu.$entry::<T, ROWS, SOURCE>($args)` for the number of rows of a tile and the source of its weights.
macro_rules! by_rows {
    ($cpu:ident.$entry:ident::<$C:ident, $T:ident>($input:expr, $kept:expr, $sums:expr), $rows:expr, $source:expr) => {{
        use crate::kernels::tiles::walk::source::*;
        macro_rules! call {
            ($n:literal, $s:ident) => {
                $cpu.$entry::<$T, $n, $s>($input, $kept, $sums)
            };
        }
        if $C::MANY {
            match ($rows, $source) {
                (1, _) => call!(1, UNPACK),
                (2, _) => call!(2, UNPACK),
                (3, _) => call!(3, UNPACK),
                (4, UNPACK) => call!(4, UNPACK),
                (5, UNPACK) => call!(5, UNPACK),
                (6, UNPACK) => call!(6, UNPACK),
                (7, UNPACK) => call!(7, UNPACK),
                (8, UNPACK) => call!(8, UNPACK),
                (4, KEEP) => call!(4, KEEP),
                (5, KEEP) => call!(5, KEEP),
                (6, KEEP) => call!(6, KEEP),
                (7, KEEP) => call!(7, KEEP),
                (8, KEEP) => call!(8, KEEP),
                (4, _) => call!(4, KEPT),
                (5, _) => call!(5, KEPT),
                (6, _) => call!(6, KEPT),
                (7, _) => call!(7, KEPT),
                (8, _) => call!(8, KEPT),
                _ => unreachable!("tiles have 1 to 8 rows"),
            }
        } else {
            match ($rows, $source) {
                (1, _) => call!(1, UNPACK),
                (2, _) => call!(2, UNPACK),
                (3, UNPACK) => call!(3, UNPACK),
                (4, UNPACK) => call!(4, UNPACK),
                (3, KEEP) => call!(3, KEEP),
                (4, KEEP) => call!(4, KEEP),
                (3, _) => call!(3, KEPT),
                (4, _) => call!(4, KEPT),
                _ => unreachable!("tiles have 1 to 4 rows"),
            }
        }
    }};
}
use by_rows;

/// Writes a block once for each of eight groups. Compilers do not always unroll such a loop, and what depends on the
/// group (shifts, lanes) would then be chosen at run time, between the products.
macro_rules! for_groups {
    ($group:ident, $body:block) => {
        for_groups!($group, $body, 0, 1, 2, 3, 4, 5, 6, 7);
    };
    ($group:ident, $body:block, $($n:literal),+) => {
        $({
            let $group = $n;
            $body
        })+
    };
}
pub(super) use for_groups;

/// Where the weights of a record come from for tile `index` of `tiles`: with few tiles, unpacking again is cheaper
/// than storing and loading.
#[inline(always)]
fn source_for<C: Wide>(index: usize, tiles: usize) -> u8 {
    let few = if C::MANY { 1 } else { 2 };
    match index {
        _ if tiles <= few => walk::source::UNPACK,
        0 => walk::source::KEEP,
        _ => walk::source::KEPT,
    }
}

/// What `data`, a buffer of `x`, holds of a block for `ROWS` rows.
#[inline(always)]
pub(super) fn of_tile<'a, T, const EACH: usize, const ROWS: usize>(
    x: &Activations,
    data: &'a [T],
    block: usize,
    first: usize,
) -> &'a [[T; EACH]; ROWS] {
    x.of_block(data, block, first).first_chunk().expect("a tile lies inside the rows")
}

/// A tile of rows of `sums`, taken off their front.
#[inline(always)]
fn next_sums<'s>(rest: &mut &'s mut [Sums], tile: RowTile) -> &'s mut [Sums] {
    let (sums, tail) = std::mem::take(rest).split_at_mut(tile.rows);
    *rest = tail;
    sums
}
