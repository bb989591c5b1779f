//! Eight floats at a time as in AVX2; in attention sixteen, in 512-bit registers.
//!
//! Invariant: an `Avx512` is made only inside functions that are reached after detection.
//! Not here: the loops around the innermost ones.

use std::arch::x86_64::*;

use super::vector::Avx2;
use crate::kernels::attention::{Inner, SPLIT, Seen};
use crate::kernels::cached::{KEY_BLOCK, Number};
use crate::kernels::lanes::Lanes;

/// Proof that this CPU has AVX2, FMA, F16C and AVX-512 F.
#[derive(Clone, Copy)]
pub(super) struct Avx512(Avx2);

impl Avx512 {
    /// The proof, for code that was itself compiled for these features.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f")]
    pub(super) fn here() -> Avx512 {
        Avx512(Avx2::here())
    }

    /// Two eights in one register.
    #[inline(always)]
    fn join(self, first: __m256, second: __m256) -> __m512 {
        // SAFETY: `self` proves the feature.
        unsafe {
            let both = _mm512_castps256_ps512(first);
            _mm512_castpd_ps(_mm512_insertf64x4::<1>(_mm512_castps_pd(both), _mm256_castps_pd(second)))
        }
    }

    #[inline(always)]
    fn halves(self, both: __m512) -> [__m256; 2] {
        // SAFETY: `self` proves the feature.
        unsafe {
            let second = _mm512_extractf64x4_pd::<1>(_mm512_castps_pd(both));
            [_mm512_castps512_ps256(both), _mm256_castpd_ps(second)]
        }
    }

    #[inline(always)]
    fn splat_wide(self, number: f32) -> __m512 {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_set1_ps(number) }
    }

    /// The first number in the first eight lanes, the second in the others.
    #[inline(always)]
    fn splat_each(self, [first, second]: [f32; 2]) -> __m512 {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_mask_blend_ps(0xff00, _mm512_set1_ps(first), _mm512_set1_ps(second)) }
    }

    #[inline(always)]
    fn fma_wide(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
}

impl Inner for Avx512 {
    #[inline(always)]
    fn chains<T: Number, const N: usize>(
        self,
        mut queries: [&[[f32; 2]]; N],
        pairs: &[[[T; KEY_BLOCK]; 2]],
    ) -> [[__m256; 2]; N] {
        for n in 0..N {
            queries[n] = &queries[n][..pairs.len()];
        }
        let mut sums = [self.splat_wide(0.0); N];
        for (i, [even, odd]) in pairs.iter().enumerate() {
            let keys = self.join(T::widen(self, even), T::widen(self, odd));
            for n in 0..N {
                sums[n] = self.fma_wide(self.splat_each(queries[n][i]), keys, sums[n]);
            }
        }
        let mut apart = [[self.splat(0.0); 2]; N];
        for n in 0..N {
            apart[n] = self.halves(sums[n]);
        }
        apart
    }

    #[inline(always)]
    fn weighted<T: Number, const N: usize, const EIGHTS: usize>(
        self,
        seen: &Seen<'_, T>,
        weights: &[[f32; SPLIT]; N],
        at: usize,
    ) -> [[__m256; EIGHTS]; N] {
        // Half of these registers are used; one eight alone lies beside nothing.
        let mut wide = [[self.splat_wide(0.0); EIGHTS]; N];
        for position in seen.positions() {
            let row = seen.eights::<EIGHTS>(position, at);
            for pair in 0..EIGHTS.div_ceil(2) {
                let first = T::widen(self, &row[2 * pair]);
                let second =
                    if 2 * pair + 1 < EIGHTS { T::widen(self, &row[2 * pair + 1]) } else { self.splat(0.0) };
                let values = self.join(first, second);
                for n in 0..N {
                    let weight = self.splat_wide(weights[n][position]);
                    wide[n][pair] = self.fma_wide(weight, values, wide[n][pair]);
                }
            }
        }
        let mut sums = [[self.splat(0.0); EIGHTS]; N];
        for n in 0..N {
            for e in 0..EIGHTS {
                sums[n][e] = self.halves(wide[n][e / 2])[e % 2];
            }
        }
        sums
    }
}

impl Lanes for Avx512 {
    type Eight = <Avx2 as Lanes>::Eight;

    #[inline(always)]
    fn load(self, floats: &[f32; 8]) -> Self::Eight {
        self.0.load(floats)
    }

    #[inline(always)]
    fn store(self, floats: &mut [f32; 8], value: Self::Eight) {
        self.0.store(floats, value);
    }

    #[inline(always)]
    fn splat(self, value: f32) -> Self::Eight {
        self.0.splat(value)
    }

    #[inline(always)]
    fn fma(self, a: Self::Eight, b: Self::Eight, c: Self::Eight) -> Self::Eight {
        self.0.fma(a, b, c)
    }

    #[inline(always)]
    fn add(self, a: Self::Eight, b: Self::Eight) -> Self::Eight {
        self.0.add(a, b)
    }

    #[inline(always)]
    fn sums(self, eights: [Self::Eight; 8]) -> [f32; 8] {
        self.0.sums(eights)
    }

    #[inline(always)]
    fn widen(self, halves: &[u16; 8]) -> Self::Eight {
        self.0.widen(halves)
    }

    #[inline(always)]
    fn widen_quants(self, quants: &[i8; 8]) -> Self::Eight {
        self.0.widen_quants(quants)
    }

    #[inline(always)]
    fn prefetch<T>(self, number: &T) {
        self.0.prefetch(number);
    }

    #[inline(always)]
    fn to_i8(self, x: &[[f32; 8]; 4], factor: f32) -> [i8; 32] {
        self.0.to_i8(x, factor)
    }

    #[inline(always)]
    fn sums_of_16(self, quants: &[i8; 32]) -> [i16; 2] {
        self.0.sums_of_16(quants)
    }
}
