//! The AVX2, FMA and F16C instructions the tile loops use, as safe functions.
//!
//! Whoever holds an [`Avx2`] knows the CPU has these features, so the loops over tiles need no unsafe code. Every
//! function here is one instruction (or two), and must be inlined into a function compiled for the features.
//!
//! Invariant: an `Avx2` is made only inside functions that are reached after detection.
//! Not here: anything that loops.

use std::arch::asm;
use std::arch::x86_64::*;

use crate::kernels::lanes::Lanes;

/// Integers: 32 bytes, 16 shorts or 8 words.
pub(super) type Int = __m256i;
/// Eight floats.
pub(super) type Float = __m256;
/// One register of bytes, in memory: four for each of eight lanes.
pub(super) type Bytes = [[u8; 4]; 8];

/// Proof that this CPU has AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

impl Avx2 {
    /// The proof, for code that was itself compiled for these features.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn here() -> Avx2 {
        Avx2(())
    }
}

/// `a`, hidden from the optimizer, which would otherwise regroup long sums of shorts so that every weight of a
/// sub-block is live at once, and spill most registers.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn in_order(mut a: Int) -> Int {
    // SAFETY: no instruction at all.
    unsafe { asm!("/* {0} */", inout(ymm_reg) a, options(pure, nomem, nostack, preserves_flags)) };
    a
}

/// `a`, as if something had looked at it and might have changed it: work that leads here is done each time.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn observed(mut a: Int) -> Int {
    // SAFETY: no instruction at all.
    unsafe { asm!("/* {0} */", inout(ymm_reg) a, options(nomem, nostack, preserves_flags)) };
    a
}

/// Integers in and out of memory.
impl Avx2 {
    #[inline(always)]
    pub(super) fn load_bytes(self, bytes: &Bytes) -> Int {
        // SAFETY: 32 readable bytes, unaligned load; `self` proves the feature.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    pub(super) fn store_bytes(self, bytes: &mut Bytes, value: Int) {
        // SAFETY: 32 writable bytes, unaligned store; `self` proves the feature.
        unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), value) }
    }

    /// Sixteen unsigned bytes as shorts.
    #[inline(always)]
    pub(super) fn widen_u8(self, bytes: &[u8; 16]) -> Int {
        // SAFETY: 16 readable bytes, unaligned load; `self` proves the feature.
        unsafe { _mm256_cvtepu8_epi16(_mm_loadu_si128(bytes.as_ptr().cast())) }
    }

    /// Sixteen signed bytes as shorts.
    #[inline(always)]
    pub(super) fn widen_i8(self, bytes: &[u8; 16]) -> Int {
        // SAFETY: 16 readable bytes, unaligned load; `self` proves the feature.
        unsafe { _mm256_cvtepi8_epi16(_mm_loadu_si128(bytes.as_ptr().cast())) }
    }

    /// Eight unsigned bytes as shorts, each twice.
    #[inline(always)]
    pub(super) fn widen_twice(self, bytes: &[u8; 8]) -> Int {
        // SAFETY: 8 readable bytes, unaligned load; `self` proves the feature.
        unsafe {
            let bytes = _mm_loadl_epi64(bytes.as_ptr().cast());
            _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(bytes, bytes))
        }
    }

    /// The same 16 bytes in both halves, a table for [`Avx2::look_up`].
    #[inline(always)]
    pub(super) fn table(self, bytes: &[i8; 16]) -> Int {
        // SAFETY: 16 readable bytes, unaligned load; `self` proves the feature.
        unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(bytes.as_ptr().cast())) }
    }

    /// Asks for a cache line that will be read soon.
    #[inline(always)]
    pub(super) fn prefetch(self, address: *const u8) {
        // SAFETY: a prefetch has no effect on the program, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }
}

/// Integer arithmetic.
impl Avx2 {
    #[inline(always)]
    pub(super) fn zero(self) -> Int {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    pub(super) fn splat_u8(self, value: u8) -> Int {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_set1_epi8(value as i8) }
    }

    #[inline(always)]
    pub(super) fn splat_i16(self, value: i16) -> Int {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_set1_epi16(value) }
    }

    #[inline(always)]
    pub(super) fn splat_i32(self, value: i32) -> Int {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_set1_epi32(value) }
    }

    /// Four bytes in every word.
    #[inline(always)]
    pub(super) fn splat_quad(self, quad: [i8; 4]) -> Int {
        self.splat_i32(i32::from_ne_bytes(quad.map(|byte| byte as u8)))
    }

    /// Two shorts in every word.
    #[inline(always)]
    pub(super) fn splat_pair(self, [low, high]: [i16; 2]) -> Int {
        self.splat_i32(i32::from(low) & 0xffff | i32::from(high) << 16)
    }

    #[inline(always)]
    pub(super) fn and(self, a: Int, b: Int) -> Int {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_and_si256(a, b) }
    }

    #[inline(always)]
    pub(super) fn or(self, a: Int, b: Int) -> Int {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_or_si256(a, b) }
    }

    /// Shifts shorts left by `N`.
    #[inline(always)]
    pub(super) fn left<const N: i32>(self, a: Int) -> Int {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_slli_epi16::<N>(a) }
    }

    /// Shifts shorts right by `N`.
    #[inline(always)]
    pub(super) fn right<const N: i32>(self, a: Int) -> Int {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_srli_epi16::<N>(a) }
    }

    /// Sixteen-entry table look-up by the low half of each byte (high halves must be 0).
    #[inline(always)]
    pub(super) fn look_up(self, table: Int, indices: Int) -> Int {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_shuffle_epi8(table, indices) }
    }

    #[inline(always)]
    pub(super) fn abs_i8(self, a: Int) -> Int {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_abs_epi8(a) }
    }

    /// `a`, negated or zeroed as the sign of `b` says, byte by byte.
    #[inline(always)]
    pub(super) fn sign_i8(self, a: Int, b: Int) -> Int {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_sign_epi8(a, b) }
    }

    /// Products of unsigned and signed bytes, neighbours added, saturating to shorts.
    #[inline(always)]
    pub(super) fn mul_bytes(self, unsigned: Int, signed: Int) -> Int {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_maddubs_epi16(unsigned, signed) }
    }

    /// Products of shorts, neighbours added, as words.
    #[inline(always)]
    pub(super) fn mul_shorts(self, a: Int, b: Int) -> Int {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_madd_epi16(a, b) }
    }

    #[inline(always)]
    pub(super) fn add_i16(self, a: Int, b: Int) -> Int {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_add_epi16(a, b) }
    }

    #[inline(always)]
    pub(super) fn add_i32(self, a: Int, b: Int) -> Int {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_add_epi32(a, b) }
    }

    #[inline(always)]
    pub(super) fn sub_i32(self, a: Int, b: Int) -> Int {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_sub_epi32(a, b) }
    }

    /// Shifts words left by `N`.
    #[inline(always)]
    pub(super) fn left_i32<const N: i32>(self, a: Int) -> Int {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_slli_epi32::<N>(a) }
    }

    /// In every word, the low short twice and the high short twice.
    #[inline(always)]
    pub(super) fn split_pairs(self, pairs: Int) -> [Int; 2] {
        // SAFETY: `self` proves the feature.
        unsafe {
            let low = _mm256_blend_epi16::<0xaa>(pairs, _mm256_slli_epi32::<16>(pairs));
            let high = _mm256_blend_epi16::<0x55>(pairs, _mm256_srli_epi32::<16>(pairs));
            [low, high]
        }
    }
}

/// Floats.
impl Avx2 {
    /// Words as floats, to nearest, ties to even.
    #[inline(always)]
    pub(super) fn to_floats(self, words: Int) -> Float {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_cvtepi32_ps(words) }
    }

    #[inline(always)]
    pub(super) fn mul(self, a: Float, b: Float) -> Float {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_mul_ps(a, b) }
    }

    /// `-(a * b) + c`, rounded once.
    #[inline(always)]
    pub(super) fn negated_fma(self, a: Float, b: Float, c: Float) -> Float {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_fnmadd_ps(a, b, c) }
    }
}

impl Lanes for Avx2 {
    type Eight = Float;

    #[inline(always)]
    fn load(self, floats: &[f32; 8]) -> Float {
        // SAFETY: 8 readable floats, unaligned load; `self` proves the feature.
        unsafe { _mm256_loadu_ps(floats.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, floats: &mut [f32; 8], value: Float) {
        // SAFETY: 8 writable floats, unaligned store; `self` proves the feature.
        unsafe { _mm256_storeu_ps(floats.as_mut_ptr(), value) }
    }

    #[inline(always)]
    fn splat(self, value: f32) -> Float {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_set1_ps(value) }
    }

    #[inline(always)]
    fn fma(self, a: Float, b: Float, c: Float) -> Float {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn add(self, a: Float, b: Float) -> Float {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_add_ps(a, b) }
    }

    #[inline(always)]
    fn sums(self, eights: [Float; 8]) -> [f32; 8] {
        let mut sums = [0.0; 8];
        // SAFETY: `self` proves the feature; the store is to 8 floats, unaligned.
        unsafe {
            // Neighbours are added within each half of four lanes, twice; then the halves are added.
            let [a, b, c, d, e, f, g, h] = eights;
            let first = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
            let last = _mm256_hadd_ps(_mm256_hadd_ps(e, f), _mm256_hadd_ps(g, h));
            let low = _mm256_permute2f128_ps::<0x20>(first, last);
            let high = _mm256_permute2f128_ps::<0x31>(first, last);
            _mm256_storeu_ps(sums.as_mut_ptr(), _mm256_add_ps(low, high));
        }
        sums
    }

    #[inline(always)]
    fn widen(self, halves: &[u16; 8]) -> Float {
        // SAFETY: 8 readable halves, unaligned load; `self` proves the feature.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(halves.as_ptr().cast())) }
    }

    #[inline(always)]
    fn to_i8(self, x: &[[f32; 8]; 4], factor: f32) -> [i8; 32] {
        let mut bytes = [0; 32];
        // SAFETY: `self` proves the feature; the store is to 32 bytes, unaligned. Conversion rounds as the mode
        // says, which is to nearest, ties to even, as Rust requires it to be.
        unsafe {
            let factor = _mm256_set1_ps(factor);
            let [a, b, c, d] =
                x.map(|x| _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x.as_ptr()), factor)));
            let packed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
            // Packing works within halves and leaves fours in the order 0 2 4 6 1 3 5 7.
            let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
            _mm256_storeu_si256(bytes.as_mut_ptr().cast(), _mm256_permutevar8x32_epi32(packed, order));
        }
        bytes
    }

    #[inline(always)]
    fn sums_of_16(self, quants: &[i8; 32]) -> [i16; 2] {
        let mut eights = [0u64; 4];
        // SAFETY: `self` proves the feature; load and store are of 32 bytes, unaligned.
        unsafe {
            let quants = _mm256_loadu_si256(quants.as_ptr().cast());
            // Moved up by 128, bytes are unsigned, and those the CPU can sum by eights.
            let unsigned = _mm256_xor_si256(quants, _mm256_set1_epi8(-128));
            let sums = _mm256_sad_epu8(unsigned, _mm256_setzero_si256());
            _mm256_storeu_si256(eights.as_mut_ptr().cast(), sums);
        }
        let [a, b, c, d] = eights.map(|sum| sum as i16 - 8 * 128);
        [a + b, c + d]
    }

    #[inline(always)]
    fn widen_quants(self, quants: &[i8; 8]) -> Float {
        // SAFETY: 8 readable bytes, unaligned load; `self` proves the feature.
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(quants.as_ptr().cast()))) }
    }

    #[inline(always)]
    fn prefetch<T>(self, number: &T) {
        // SAFETY: a prefetch has no effect on the program, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(number).cast()) }
    }
}
