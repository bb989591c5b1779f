//! One set of loops for each instruction set, chosen once.
//!
//! A [`Kernels`] value is a table of private function pointers with safe methods that check shapes and call
//! through. The portable table defines the arithmetic; every other table must give the same bits, so there is
//! one [`numerics_id`](Kernels::numerics_id). The one freedom is the payload of a NaN.
//!
//! Invariant: a table is reachable only after its CPU features were detected; the order of
//! additions depends on the block type alone, never on the number of rows, threads or free memory.
//! Not here: splitting work over threads (`lane`), or which weights use which block type.
#![allow(unsafe_code, reason = "the one module that calls CPU-specific code")]

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod act_parts;
mod activations;
mod arena;
mod attention;
mod cached;
mod columns;
#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod float_mode;
mod lanes;
mod matmul;
mod matrix;
mod portable;
mod probe;
mod rows;
mod tiles;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::OnceLock;

use crate::block::BlockType;
pub use act_parts::ActPart;
pub use activations::{ActScheme, Activations};
pub use arena::{Arena, Region};
pub use attention::{Attend, AttendScratch};
pub use cached::{KEY_BLOCK, KV_GROUP, KvNumbers, KvPair, KvRows, key_at};
pub use columns::{ColumnBlock, Columns};
use matrix::{Layout, TILE};
pub use matrix::{Matrix, PackPart, Packing};
pub use rows::RopeStyle;

/// Name and version of the arithmetic. Change it with any change of bits.
const NUMERICS_ID: &str = "cpu-2";

/// One set of loops, all for the same instruction set.
pub struct Kernels {
    name: &'static str,
    layout: fn(BlockType) -> Layout,
    pack_tiles: unsafe fn(BlockType, usize, &[u8], &mut [u8]),
    quantize_row: unsafe fn(&mut ActPart<'_>, usize, &[f32]),
    matmul: unsafe fn(&Matrix, &Activations, &mut ColumnBlock<'_>),
    rms_norm: unsafe fn(&[f32], &[f32], f32, &mut [f32]),
    rms_norm_in_place: unsafe fn(&mut [f32], &[f32], f32),
    silu_mul: unsafe fn(&[f32], &[f32], &mut [f32]),
    gelu_tanh_mul: unsafe fn(&[f32], &[f32], &mut [f32]),
    add: unsafe fn(&[f32], &[f32], &mut [f32]),
    add_to: unsafe fn(&mut [f32], &[f32]),
    scale: unsafe fn(&mut [f32], f32),
    softcap: unsafe fn(&mut [f32], f32),
    argmax: unsafe fn(&[f32]) -> usize,
    all_finite: unsafe fn(&[f32]) -> bool,
    rope: unsafe fn(&mut [f32], usize, usize, &[f32], RopeStyle),
    to_halves: unsafe fn(&[f32], &mut [u16]),
    to_quants: unsafe fn(&[f32], usize, &mut [i8], &mut [f32]),
    attend: unsafe fn(&[f32], &[Attend<'_>], &KvRows<'_>, &mut AttendScratch, &mut ColumnBlock<'_>),
    probe_read: unsafe fn(&[u8]) -> u64,
    probe_multiply: unsafe fn(usize) -> usize,
}

impl std::fmt::Debug for Kernels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernels").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Choosing a table.
impl Kernels {
    /// Every table this CPU can run, fastest first; portable is always last.
    pub fn available() -> Vec<&'static Kernels> {
        #[cfg(target_arch = "x86_64")]
        let specific = x86::available();
        #[cfg(target_arch = "aarch64")]
        let specific = aarch64::available();
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let specific = Vec::new();
        specific.into_iter().chain([&portable::TABLE]).collect()
    }

    /// The fastest table this CPU can run.
    pub fn best() -> &'static Kernels {
        static BEST: OnceLock<&'static Kernels> = OnceLock::new();
        BEST.get_or_init(|| Kernels::available()[0])
    }

    /// The table of this name, if this CPU can run it: `portable`, `x86-avx2`, `x86-avxvnni`,
    /// `x86-avx512vnni`, `x86-amx`, `aarch64-neon`, `aarch64-dotprod`.
    pub fn named(name: &str) -> Option<&'static Kernels> {
        Kernels::available().into_iter().find(|table| table.name == name)
    }

    /// A table that is wrong on purpose: matmul adds in another order when there is more than one row.
    /// Tests of invariance must fail with it. No other function returns it.
    #[cfg(feature = "broken-numerics")]
    pub fn broken_numerics() -> &'static Kernels {
        &portable::BROKEN
    }

    /// `{arch}-{feature}`, or `portable`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Name and version of the arithmetic: results of tables with the same id are equal, bit for bit.
    pub fn numerics_id(&self) -> &'static str {
        NUMERICS_ID
    }
}

/// Matmul.
impl Kernels {
    /// Bytes of an [`Arena`] a weight of `n_out` rows of `k` numbers takes when packed.
    pub fn packed_bytes(&self, block_type: BlockType, n_out: usize, k: usize) -> usize {
        Arena::rounded(self.layout(block_type).bytes(block_type, n_out, k))
    }

    /// Packs a weight of `n_out` rows of `k` numbers, given as a file's blocks, into memory of its own.
    ///
    /// # Panics
    /// When `bytes` is not exactly `n_out` rows of `k` numbers (check with [`BlockType::row_bytes`]), or there is no
    /// memory.
    pub fn pack(&self, block_type: BlockType, bytes: &[u8], n_out: usize, k: usize) -> Matrix {
        let mut arena = Arena::new(self.packed_bytes(block_type, n_out, k)).expect("memory for one weight");
        let mut packing = self.packing(block_type, bytes, n_out, k, &mut arena);
        packing.parts(1).into_iter().for_each(PackPart::run);
        packing.finish()
    }

    /// Starts to pack a weight into `arena`, so that several threads can share the work.
    ///
    /// # Panics
    /// When `bytes` is not exactly `n_out` rows of `k` numbers, or the arena is too small.
    pub fn packing<'a>(
        &'a self,
        block_type: BlockType,
        bytes: &'a [u8],
        n_out: usize,
        k: usize,
        arena: &mut Arena,
    ) -> Packing<'a> {
        Packing::new(self, block_type, bytes, n_out, k, arena)
    }

    fn layout(&self, block_type: BlockType) -> Layout {
        (self.layout)(block_type)
    }

    fn pack_tiles(&self, block_type: BlockType, k: usize, source: &[u8], target: &mut [u8]) {
        // SAFETY: by this module's invariant, this CPU has the features.
        unsafe { (self.pack_tiles)(block_type, k, source, target) }
    }

    /// Quantizes `x` `[rows, k]` for weights of this scheme.
    ///
    /// # Panics
    /// When `x` has another length, or `k` is no whole number of the scheme's blocks.
    pub fn quantize(&self, x: &[f32], rows: usize, k: usize, scheme: ActScheme, out: &mut Activations) {
        assert_eq!(Some(x.len()), rows.checked_mul(k), "activations are not [{rows}, {k}]");
        out.reshape(rows, k, scheme);
        for mut part in out.split(1) {
            for row in part.rows() {
                self.quantize_row(&mut part, row, &x[row * k..(row + 1) * k]);
            }
        }
    }

    /// Fills row `row` of a part with `x`, its numbers in the part's columns.
    ///
    /// # Panics
    /// When the row is not the part's, or `x` has another length.
    pub fn quantize_row(&self, part: &mut ActPart<'_>, row: usize, x: &[f32]) {
        // SAFETY: by this module's invariant, this CPU has the features.
        unsafe { (self.quantize_row)(part, row, x) }
    }

    /// `y = x W^T`, for the columns `y` owns: output `n` of row `r` is the product of weight row `n` with
    /// activation row `r`.
    ///
    /// # Panics
    /// When shapes, scheme or tables do not fit together, or `y` is not cut at multiples of
    /// [`Matrix::column_tile`].
    pub fn matmul(&self, weight: &Matrix, x: &Activations, y: &mut ColumnBlock<'_>) {
        assert_eq!(weight.scheme(), x.scheme, "activations are quantized for other weights");
        assert_eq!(weight.k, x.k, "weight and activations differ in width");
        assert_eq!((y.rows(), y.n_out()), (x.rows, weight.n_out), "output has another shape");
        let columns = y.columns();
        let whole_tiles = columns.end.is_multiple_of(TILE) || columns.end == weight.n_out;
        assert!(columns.start.is_multiple_of(TILE) && whole_tiles, "columns {columns:?} cut a tile");
        assert_eq!(self.layout(weight.block_type), weight.layout, "packed by another table");
        // SAFETY: by this module's invariant, this CPU has the features.
        unsafe { (self.matmul)(weight, x, y) }
    }
}

/// Loops over one row.
impl Kernels {
    /// `out = x / sqrt(mean(x^2) + eps) * weight`.
    ///
    /// # Panics
    /// When lengths differ.
    pub fn rms_norm(&self, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        assert!(x.len() == weight.len() && x.len() == out.len(), "lengths differ");
        // SAFETY: by this module's invariant, this CPU has the features.
        unsafe { (self.rms_norm)(x, weight, eps, out) }
    }

    /// [`Kernels::rms_norm`] in place.
    ///
    /// # Panics
    /// When lengths differ.
    pub fn rms_norm_in_place(&self, x: &mut [f32], weight: &[f32], eps: f32) {
        assert_eq!(x.len(), weight.len(), "lengths differ");
        // SAFETY: by this module's invariant, this CPU has the features.
        unsafe { (self.rms_norm_in_place)(x, weight, eps) }
    }

    /// `out = gate / (1 + e^-gate) * up`.
    ///
    /// # Panics
    /// When lengths differ.
    pub fn silu_mul(&self, gate: &[f32], up: &[f32], out: &mut [f32]) {
        assert!(gate.len() == up.len() && gate.len() == out.len(), "lengths differ");
        // SAFETY: by this module's invariant, this CPU has the features.
        unsafe { (self.silu_mul)(gate, up, out) }
    }

    /// `out = gelu(gate) * up`, with the tanh approximation of GELU.
    ///
    /// # Panics
    /// When lengths differ.
    pub fn gelu_tanh_mul(&self, gate: &[f32], up: &[f32], out: &mut [f32]) {
        assert!(gate.len() == up.len() && gate.len() == out.len(), "lengths differ");
        // SAFETY: by this module's invariant, this CPU has the features.
        unsafe { (self.gelu_tanh_mul)(gate, up, out) }
    }

    /// `out = a + b`.
    ///
    /// # Panics
    /// When lengths differ.
    pub fn add(&self, a: &[f32], b: &[f32], out: &mut [f32]) {
        assert!(a.len() == b.len() && a.len() == out.len(), "lengths differ");
        // SAFETY: by this module's invariant, this CPU has the features.
        unsafe { (self.add)(a, b, out) }
    }

    /// `x += b`: a bias, or a residual in place.
    ///
    /// # Panics
    /// When lengths differ.
    pub fn add_to(&self, x: &mut [f32], b: &[f32]) {
        assert_eq!(x.len(), b.len(), "lengths differ");
        // SAFETY: by this module's invariant, this CPU has the features.
        unsafe { (self.add_to)(x, b) }
    }

    /// `x *= factor`.
    pub fn scale(&self, x: &mut [f32], factor: f32) {
        // SAFETY: by this module's invariant, this CPU has the features.
        unsafe { (self.scale)(x, factor) }
    }

    /// `x = cap * tanh(x / cap)`.
    pub fn softcap(&self, x: &mut [f32], cap: f32) {
        // SAFETY: by this module's invariant, this CPU has the features.
        unsafe { (self.softcap)(x, cap) }
    }

    /// The lowest index of the largest number. NaN is never the largest; 0 when all are NaN.
    ///
    /// # Panics
    /// When `x` is empty.
    pub fn argmax(&self, x: &[f32]) -> usize {
        assert!(!x.is_empty(), "no largest of none");
        // SAFETY: by this module's invariant, this CPU has the features.
        unsafe { (self.argmax)(x) }
    }

    /// Whether no number is NaN or infinite.
    pub fn all_finite(&self, x: &[f32]) -> bool {
        // SAFETY: by this module's invariant, this CPU has the features.
        unsafe { (self.all_finite)(x) }
    }

    /// Rotates the first `rot_dim` numbers of every head of `x` `[n_heads, head_dim]`; `cos_sin` is the cosines
    /// of the row's position, then the sines, `rot_dim / 2` each.
    ///
    /// # Panics
    /// When lengths do not fit, or `rot_dim` is odd or larger than `head_dim`.
    pub fn rope(&self, x: &mut [f32], head_dim: usize, rot_dim: usize, cos_sin: &[f32], style: RopeStyle) {
        assert!(head_dim > 0 && x.len().is_multiple_of(head_dim), "not whole heads of {head_dim}");
        assert!(rot_dim <= head_dim && rot_dim.is_multiple_of(2), "cannot rotate {rot_dim} of {head_dim}");
        assert_eq!(cos_sin.len(), rot_dim, "angles for another rotation");
        // SAFETY: by this module's invariant, this CPU has the features.
        unsafe { (self.rope)(x, head_dim, rot_dim, cos_sin, style) }
    }
}

/// Attention.
impl Kernels {
    /// Converts new keys or values to f16 bit patterns: nearest, ties to even; overflow gives infinity.
    ///
    /// # Panics
    /// When lengths differ.
    pub fn to_halves(&self, x: &[f32], out: &mut [u16]) {
        assert_eq!(x.len(), out.len(), "lengths differ");
        // SAFETY: by this module's invariant, this CPU has the features.
        unsafe { (self.to_halves)(x, out) }
    }

    /// Quantizes new keys or values, heads of `head_dim` numbers, to q8_0: a quant a number and a scale for each
    /// [`KV_GROUP`]. A head with a NaN or an infinity gets quants of 0 and scales of NaN.
    ///
    /// # Panics
    /// When lengths do not fit, or `head_dim` is no multiple of [`KV_GROUP`].
    pub fn to_quants(&self, x: &[f32], head_dim: usize, quants: &mut [i8], scales: &mut [f32]) {
        assert!(head_dim > 0 && head_dim.is_multiple_of(KV_GROUP), "heads of {head_dim} are no whole groups");
        assert!(x.len().is_multiple_of(head_dim), "not whole heads of {head_dim}");
        assert_eq!((quants.len(), scales.len()), (x.len(), x.len() / KV_GROUP), "lengths do not fit");
        // SAFETY: by this module's invariant, this CPU has the features.
        unsafe { (self.to_quants)(x, head_dim, quants, scales) }
    }

    /// Attention of the query heads in the columns of `out` `[rows, heads * head_dim]`, all of which share the
    /// key/value head `kv`; `q` has the shape of the whole output, and `rows` says what each row sees.
    ///
    /// # Panics
    /// When shapes do not fit, a row sees no position, a position lies outside `kv`, or a head in q8_0 is no whole
    /// number of groups.
    pub fn attend(
        &self,
        q: &[f32],
        rows: &[Attend<'_>],
        kv: &KvRows<'_>,
        scratch: &mut AttendScratch,
        mut out: ColumnBlock<'_>,
    ) {
        let (columns, head_dim) = (out.columns(), kv.head_dim);
        let whole = columns.start.is_multiple_of(head_dim) && columns.len().is_multiple_of(head_dim);
        assert!(head_dim > 0 && whole, "columns {columns:?} are not whole heads of {head_dim}");
        assert_eq!(q.len(), rows.len() * out.n_out(), "queries have another shape");
        assert_eq!(rows.len(), out.rows(), "output has another shape");
        if let KvNumbers::Q8_0 { .. } = kv.numbers {
            let whole = head_dim.is_multiple_of(KV_GROUP) && kv.width.is_multiple_of(KV_GROUP);
            assert!(whole, "heads of {head_dim} in {} are no whole groups", kv.width);
        }
        for row in rows {
            assert!(row.first <= row.last, "no position between {} and {}", row.first, row.last);
        }
        // SAFETY: by this module's invariant, this CPU has the features.
        unsafe { (self.attend)(q, rows, kv, scratch, &mut out) }
    }
}

/// The machine's own limits; nothing here is part of a result.
impl Kernels {
    /// Reads `bytes` once, ascending, and returns their sum as words, so that the reading is not optimised away.
    pub fn probe_read(&self, bytes: &[u8]) -> u64 {
        // SAFETY: by this module's invariant, this CPU has the features.
        unsafe { (self.probe_read)(bytes) }
    }

    /// Adds products of bytes that are in registers already, the way tiles do; returns how many.
    pub fn probe_multiply(&self, rounds: usize) -> usize {
        // SAFETY: by this module's invariant, this CPU has the features.
        unsafe { (self.probe_multiply)(rounds) }
    }
}
