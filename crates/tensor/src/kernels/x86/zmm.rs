//! Sixteen lanes in one 512-bit register, for CPUs with AVX-512 VNNI.
//!
//! Invariant: a value is made only in code compiled for its features.
//! Not here: anything that loops.

use std::arch::x86_64::*;

use crate::kernels::tiles::records::{Halves, Quads};
use crate::kernels::tiles::{Sums, Wide, tile_entries};

/// Proof that this CPU has AVX-512 F, BW, VL and VNNI.
#[derive(Clone, Copy)]
pub(super) struct Zmm(());

impl Zmm {
    /// The proof, for code that was itself compiled for these features.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
    pub(super) fn here() -> Zmm {
        Zmm(())
    }

    #[inline(always)]
    pub(super) fn load_words(self, words: &[i32; 16]) -> __m512i {
        // SAFETY: 64 readable bytes, unaligned load; `self` proves the feature.
        unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
    }
}

tile_entries!(Zmm, "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni");

impl Wide for Zmm {
    type Bytes = __m512i;
    type Part = __m512i;
    type Words = __m512i;
    type Scales = __m512i;
    type Pairs = __m512i;
    type Floats = __m512;

    const SHORT: bool = false;
    const MANY: bool = true;
    const FLOATS: bool = true;
    const LIFT: i32 = 128;

    #[inline(always)]
    fn load(self, bytes: &Quads) -> __m512i {
        // SAFETY: 64 readable bytes, unaligned load; `self` proves the feature.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn keep(self, bytes: &mut Quads, value: __m512i) {
        // SAFETY: 64 writable bytes, unaligned store; `self` proves the feature.
        unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), value) }
    }

    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        // SAFETY: a prefetch has no effect on the program, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }

    #[inline(always)]
    fn splat_byte(self, value: u8) -> __m512i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_set1_epi8(value as i8) }
    }

    #[inline(always)]
    fn and(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_and_si512(a, b) }
    }

    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_or_si512(a, b) }
    }

    #[inline(always)]
    fn left<const N: i32>(self, a: __m512i) -> __m512i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_sll_epi16(a, _mm_cvtsi32_si128(N)) }
    }

    #[inline(always)]
    fn right<const N: i32>(self, a: __m512i) -> __m512i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_srl_epi16(a, _mm_cvtsi32_si128(N)) }
    }

    #[inline(always)]
    fn look_up(self, table: &[i8; 16], indices: __m512i) -> __m512i {
        // SAFETY: 16 readable bytes, unaligned load; `self` proves the feature.
        unsafe {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, indices)
        }
    }

    #[inline(always)]
    fn lifted(self, signed: __m512i) -> __m512i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_xor_si512(signed, _mm512_set1_epi8(-128)) }
    }

    #[inline(always)]
    fn no_part(self) -> __m512i {
        self.splat_word(0)
    }

    #[inline(always)]
    fn add_unsigned(self, part: __m512i, weights: __m512i, acts: &[[i8; 4]], at: usize) -> __m512i {
        let acts = self.splat_word(i32::from_ne_bytes(acts[at].map(|act| act as u8)));
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_dpbusd_epi32(part, weights, acts) }
    }

    #[inline(always)]
    fn add_signed(self, part: __m512i, lifted: __m512i, acts: &[[i8; 4]], at: usize) -> __m512i {
        self.add_unsigned(part, lifted, acts, at)
    }

    #[inline(always)]
    fn in_order(self, part: __m512i) -> __m512i {
        part
    }

    #[inline(always)]
    fn splat_word(self, value: i32) -> __m512i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_set1_epi32(value) }
    }

    #[inline(always)]
    fn sub(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_sub_epi32(a, b) }
    }

    #[inline(always)]
    fn left_words<const N: u32>(self, a: __m512i) -> __m512i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_slli_epi32::<N>(a) }
    }

    #[inline(always)]
    fn add_part(self, words: __m512i, part: __m512i) -> __m512i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_add_epi32(words, part) }
    }

    #[inline(always)]
    fn add_scaled(self, words: __m512i, part: __m512i, scales: __m512i) -> __m512i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_add_epi32(words, _mm512_mullo_epi32(part, scales)) }
    }

    #[inline(always)]
    fn add_scaled_floats(self, floats: __m512, part: __m512i, scales: __m512i) -> __m512 {
        self.fma(self.floats(part), self.floats(scales), floats)
    }

    #[inline(always)]
    fn add_pairs(self, words: __m512i, pairs: __m512i, [low, high]: [i16; 2]) -> __m512i {
        let pair = self.splat_word(i32::from(low) & 0xffff | i32::from(high) << 16);
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_dpwssd_epi32(words, pairs, pair) }
    }

    #[inline(always)]
    fn scales(self, bytes: &[u8; 16]) -> __m512i {
        // SAFETY: 16 readable bytes, unaligned load; `self` proves the feature.
        unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(bytes.as_ptr().cast())) }
    }

    #[inline(always)]
    fn pairs_unsigned(self, bytes: &[u8; 32]) -> __m512i {
        // SAFETY: 32 readable bytes, unaligned load; `self` proves the feature.
        unsafe { _mm512_cvtepu8_epi16(_mm256_loadu_si256(bytes.as_ptr().cast())) }
    }

    #[inline(always)]
    fn pairs_signed(self, bytes: &[u8; 32]) -> __m512i {
        // SAFETY: 32 readable bytes, unaligned load; `self` proves the feature.
        unsafe { _mm512_cvtepi8_epi16(_mm256_loadu_si256(bytes.as_ptr().cast())) }
    }

    #[inline(always)]
    fn split(self, pairs: __m512i) -> [__m512i; 2] {
        // SAFETY: `self` proves the feature.
        unsafe {
            let low = _mm512_srai_epi32::<16>(_mm512_slli_epi32::<16>(pairs));
            [low, _mm512_srai_epi32::<16>(pairs)]
        }
    }

    #[inline(always)]
    fn load_sums(self, sums: &Sums) -> __m512 {
        // SAFETY: 16 readable floats, unaligned load; `self` proves the feature.
        unsafe { _mm512_loadu_ps(sums.as_ptr()) }
    }

    #[inline(always)]
    fn store_sums(self, sums: &mut Sums, value: __m512) {
        // SAFETY: 16 writable floats, unaligned store; `self` proves the feature.
        unsafe { _mm512_storeu_ps(sums.as_mut_ptr(), value) }
    }

    #[inline(always)]
    fn splat(self, value: f32) -> __m512 {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    fn widen(self, halves: &Halves) -> __m512 {
        // SAFETY: 16 readable halves, unaligned load; `self` proves the feature.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(halves.as_ptr().cast())) }
    }

    #[inline(always)]
    fn floats(self, words: __m512i) -> __m512 {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_cvtepi32_ps(words) }
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn negated_fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_fnmadd_ps(a, b, c) }
    }
}
