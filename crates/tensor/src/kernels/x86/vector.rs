//! Eight floats at a time in AVX2, FMA and F16C instructions, as safe functions.
//!
//! Whoever holds an [`Avx2`] knows the CPU has these features, so the shared loops need no unsafe code. Every function
//! here is a few instructions, and must be inlined into a function compiled for the features.
//!
//! Invariant: an `Avx2` is made only inside functions that are reached after detection.
//! Not here: anything that loops.

use std::arch::x86_64::*;

use crate::kernels::attention::Inner;
use crate::kernels::lanes::Lanes;

/// Eight floats.
type Float = __m256;

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

impl Inner for Avx2 {}

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
            let mut words = [_mm256_setzero_si256(); 4];
            for i in 0..4 {
                words[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x[i].as_ptr()), factor));
            }
            let [a, b, c, d] = words;
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
        let [a, b, c, d] = eights;
        [(a + b) as i16 - 16 * 128, (c + d) as i16 - 16 * 128]
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
