//! Sixteen lanes in two 256-bit registers, for CPUs with AVX2, with and without AVX-VNNI.
//!
//! Invariant: a value is made only in code compiled for its features.
//! Not here: 512-bit registers (`zmm`), anything that loops.

use std::arch::asm;
use std::arch::x86_64::*;

use super::vector::Avx2;
use crate::kernels::lanes::Lanes;
use crate::kernels::tiles::records::{Halves, Quads};
use crate::kernels::tiles::{Sums, Wide, tile_entries};

/// 64 bytes: lanes 0 to 7, then 8 to 15.
type Ints = [__m256i; 2];
/// Sixteen floats.
type Floats = [__m256; 2];

/// How bytes are multiplied.
pub(super) trait Products: Copy {
    /// See [`Wide::SHORT`].
    const SHORT: bool;
    /// See [`Wide::LIFT`].
    const LIFT: i32;

    /// See [`Wide::lifted`].
    fn lifted(self, signed: __m256i) -> __m256i;
    /// See [`Wide::add_unsigned`].
    fn add_unsigned(self, part: __m256i, weights: __m256i, acts: __m256i) -> __m256i;
    /// See [`Wide::add_signed`].
    fn add_signed(self, part: __m256i, lifted: __m256i, acts: __m256i) -> __m256i;
    /// See [`Wide::add_part`].
    fn add_part(self, words: __m256i, part: __m256i) -> __m256i;
    /// See [`Wide::add_scaled`].
    fn add_scaled(self, words: __m256i, part: __m256i, scales: __m256i) -> __m256i;
    /// Eight unsigned bytes as scales.
    fn scales(self, bytes: &[u8; 8]) -> __m256i;
    /// See [`Wide::split`].
    fn split(self, pairs: __m256i) -> [__m256i; 2];
}

/// Sixteen lanes whose bytes are multiplied by `P`.
#[derive(Clone, Copy)]
pub(super) struct Ymm<P> {
    floats: Avx2,
    products: P,
}

/// Products of bytes summed in shorts: AVX2.
#[derive(Clone, Copy)]
pub(super) struct Shorts(());

impl Ymm<Shorts> {
    /// The proof, for code that was itself compiled for these features.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn here() -> Ymm<Shorts> {
        Ymm { floats: Avx2::here(), products: Shorts(()) }
    }
}

tile_entries!(Ymm<Shorts>, "avx2,fma,f16c");

impl Products for Shorts {
    const SHORT: bool = true;
    const LIFT: i32 = 0;

    #[inline(always)]
    fn lifted(self, signed: __m256i) -> __m256i {
        signed
    }

    #[inline(always)]
    fn add_unsigned(self, part: __m256i, weights: __m256i, acts: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_add_epi16(part, _mm256_maddubs_epi16(weights, acts)) }
    }

    #[inline(always)]
    fn add_signed(self, part: __m256i, lifted: __m256i, acts: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe {
            let products = _mm256_maddubs_epi16(_mm256_abs_epi8(lifted), _mm256_sign_epi8(acts, lifted));
            _mm256_add_epi16(part, products)
        }
    }

    #[inline(always)]
    fn add_part(self, words: __m256i, part: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { self.add_scaled(words, part, _mm256_set1_epi16(1)) }
    }

    #[inline(always)]
    fn add_scaled(self, words: __m256i, part: __m256i, scales: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_add_epi32(words, _mm256_madd_epi16(part, scales)) }
    }

    /// Each twice in its word, for both shorts of a part.
    #[inline(always)]
    fn scales(self, bytes: &[u8; 8]) -> __m256i {
        // SAFETY: 8 readable bytes, unaligned load; `self` proves the feature.
        unsafe {
            let bytes = _mm_loadl_epi64(bytes.as_ptr().cast());
            _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(bytes, bytes))
        }
    }

    #[inline(always)]
    fn split(self, pairs: __m256i) -> [__m256i; 2] {
        // SAFETY: `self` proves the feature.
        unsafe {
            let low = _mm256_blend_epi16::<0xaa>(pairs, _mm256_slli_epi32::<16>(pairs));
            let high = _mm256_blend_epi16::<0x55>(pairs, _mm256_srli_epi32::<16>(pairs));
            [low, high]
        }
    }
}

/// Products of bytes summed in words: AVX-VNNI.
#[derive(Clone, Copy)]
pub(super) struct Dots(());

impl Ymm<Dots> {
    /// The proof, for code that was itself compiled for these features.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avxvnni")]
    pub(super) fn here() -> Ymm<Dots> {
        Ymm { floats: Avx2::here(), products: Dots(()) }
    }
}

tile_entries!(Ymm<Dots>, "avx2,fma,f16c,avxvnni");

impl Products for Dots {
    const SHORT: bool = false;
    const LIFT: i32 = 128;

    #[inline(always)]
    fn lifted(self, signed: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_xor_si256(signed, _mm256_set1_epi8(-128)) }
    }

    #[inline(always)]
    fn add_unsigned(self, part: __m256i, weights: __m256i, acts: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_dpbusd_avx_epi32(part, weights, acts) }
    }

    #[inline(always)]
    fn add_signed(self, part: __m256i, lifted: __m256i, acts: __m256i) -> __m256i {
        self.add_unsigned(part, lifted, acts)
    }

    #[inline(always)]
    fn add_part(self, words: __m256i, part: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_add_epi32(words, part) }
    }

    #[inline(always)]
    fn add_scaled(self, words: __m256i, part: __m256i, scales: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_add_epi32(words, _mm256_mullo_epi32(part, scales)) }
    }

    #[inline(always)]
    fn scales(self, bytes: &[u8; 8]) -> __m256i {
        // SAFETY: 8 readable bytes, unaligned load; `self` proves the feature.
        unsafe { _mm256_cvtepu8_epi32(_mm_loadl_epi64(bytes.as_ptr().cast())) }
    }

    #[inline(always)]
    fn split(self, pairs: __m256i) -> [__m256i; 2] {
        // SAFETY: `self` proves the feature.
        unsafe {
            let low = _mm256_srai_epi32::<16>(_mm256_slli_epi32::<16>(pairs));
            [low, _mm256_srai_epi32::<16>(pairs)]
        }
    }
}

/// See [`Wide::in_order`].
#[inline]
#[target_feature(enable = "avx2")]
fn in_order(mut part: __m256i) -> __m256i {
    // SAFETY: no instruction at all.
    unsafe { asm!("/* {0} */", inout(ymm_reg) part, options(pure, nomem, nostack, preserves_flags)) };
    part
}

/// The bytes of one register of a pair.
#[inline(always)]
fn half<T, const N: usize>(bytes: &[T], index: usize) -> *const T {
    bytes[index * N..][..N].as_ptr()
}

impl<P: Products> Wide for Ymm<P> {
    type Bytes = Ints;
    type Part = Ints;
    type Words = Ints;
    type Scales = Ints;
    type Pairs = Ints;
    type Floats = Floats;

    const SHORT: bool = P::SHORT;
    const MANY: bool = false;
    const LIFT: i32 = P::LIFT;
    const FLOATS: bool = !P::SHORT;

    #[inline(always)]
    fn load(self, bytes: &Quads) -> Ints {
        // SAFETY: twice 32 readable bytes, unaligned loads; `self` proves the feature.
        unsafe {
            [
                _mm256_loadu_si256(half::<_, 8>(bytes, 0).cast()),
                _mm256_loadu_si256(half::<_, 8>(bytes, 1).cast()),
            ]
        }
    }

    #[inline(always)]
    fn keep(self, bytes: &mut Quads, [first, second]: Ints) {
        let (to_first, to_second) = bytes.split_at_mut(8);
        // SAFETY: twice 32 writable bytes, unaligned stores; `self` proves the feature.
        unsafe {
            _mm256_storeu_si256(to_first.as_mut_ptr().cast(), first);
            _mm256_storeu_si256(to_second.as_mut_ptr().cast(), second);
        }
    }

    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        // SAFETY: a prefetch has no effect on the program, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }

    #[inline(always)]
    fn splat_byte(self, value: u8) -> Ints {
        // SAFETY: `self` proves the feature.
        unsafe { [_mm256_set1_epi8(value as i8); 2] }
    }

    #[inline(always)]
    fn and(self, a: Ints, b: Ints) -> Ints {
        // SAFETY: `self` proves the feature.
        unsafe { [_mm256_and_si256(a[0], b[0]), _mm256_and_si256(a[1], b[1])] }
    }

    #[inline(always)]
    fn or(self, a: Ints, b: Ints) -> Ints {
        // SAFETY: `self` proves the feature.
        unsafe { [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])] }
    }

    #[inline(always)]
    fn left<const N: i32>(self, a: Ints) -> Ints {
        // SAFETY: `self` proves the feature.
        unsafe { [_mm256_slli_epi16::<N>(a[0]), _mm256_slli_epi16::<N>(a[1])] }
    }

    #[inline(always)]
    fn right<const N: i32>(self, a: Ints) -> Ints {
        // SAFETY: `self` proves the feature.
        unsafe { [_mm256_srli_epi16::<N>(a[0]), _mm256_srli_epi16::<N>(a[1])] }
    }

    #[inline(always)]
    fn look_up(self, table: &[i8; 16], indices: Ints) -> Ints {
        // SAFETY: 16 readable bytes, unaligned load; `self` proves the feature.
        unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            [_mm256_shuffle_epi8(table, indices[0]), _mm256_shuffle_epi8(table, indices[1])]
        }
    }

    #[inline(always)]
    fn lifted(self, signed: Ints) -> Ints {
        [self.products.lifted(signed[0]), self.products.lifted(signed[1])]
    }

    #[inline(always)]
    fn no_part(self) -> Ints {
        self.splat_word(0)
    }

    #[inline(always)]
    fn add_unsigned(self, part: Ints, weights: Ints, acts: &[[i8; 4]], at: usize) -> Ints {
        let acts = self.splat_word(i32::from_ne_bytes(acts[at].map(|act| act as u8)))[0];
        let add = |i: usize| self.products.add_unsigned(part[i], weights[i], acts);
        [add(0), add(1)]
    }

    #[inline(always)]
    fn add_signed(self, part: Ints, lifted: Ints, acts: &[[i8; 4]], at: usize) -> Ints {
        let acts = self.splat_word(i32::from_ne_bytes(acts[at].map(|act| act as u8)))[0];
        let add = |i: usize| self.products.add_signed(part[i], lifted[i], acts);
        [add(0), add(1)]
    }

    #[inline(always)]
    fn in_order(self, [mut first, mut second]: Ints) -> Ints {
        if P::SHORT {
            // SAFETY: `self` proves the feature.
            unsafe { (first, second) = (in_order(first), in_order(second)) }
        }
        [first, second]
    }

    #[inline(always)]
    fn splat_word(self, value: i32) -> Ints {
        // SAFETY: `self` proves the feature.
        unsafe { [_mm256_set1_epi32(value); 2] }
    }

    #[inline(always)]
    fn sub(self, a: Ints, b: Ints) -> Ints {
        // SAFETY: `self` proves the feature.
        unsafe { [_mm256_sub_epi32(a[0], b[0]), _mm256_sub_epi32(a[1], b[1])] }
    }

    #[inline(always)]
    fn left_words<const N: u32>(self, a: Ints) -> Ints {
        // SAFETY: `self` proves the feature.
        unsafe {
            let by = _mm_cvtsi32_si128(N as i32);
            [_mm256_sll_epi32(a[0], by), _mm256_sll_epi32(a[1], by)]
        }
    }

    #[inline(always)]
    fn add_part(self, words: Ints, part: Ints) -> Ints {
        [self.products.add_part(words[0], part[0]), self.products.add_part(words[1], part[1])]
    }

    #[inline(always)]
    fn add_scaled(self, words: Ints, part: Ints, scales: Ints) -> Ints {
        let add = |i: usize| self.products.add_scaled(words[i], part[i], scales[i]);
        [add(0), add(1)]
    }

    #[inline(always)]
    fn add_scaled_floats(self, floats: Floats, part: Ints, scales: Ints) -> Floats {
        self.fma(self.floats(part), self.floats(scales), floats)
    }

    #[inline(always)]
    fn add_pairs(self, words: Ints, pairs: Ints, [low, high]: [i16; 2]) -> Ints {
        let pair = self.splat_word(i32::from(low) & 0xffff | i32::from(high) << 16)[0];
        // SAFETY: `self` proves the feature.
        unsafe {
            [
                _mm256_add_epi32(words[0], _mm256_madd_epi16(pairs[0], pair)),
                _mm256_add_epi32(words[1], _mm256_madd_epi16(pairs[1], pair)),
            ]
        }
    }

    #[inline(always)]
    fn scales(self, bytes: &[u8; 16]) -> Ints {
        let [first, second] = *bytes.as_chunks::<8>().0 else { unreachable!("twice 8 are 16") };
        [self.products.scales(&first), self.products.scales(&second)]
    }

    #[inline(always)]
    fn pairs_unsigned(self, bytes: &[u8; 32]) -> Ints {
        // SAFETY: twice 16 readable bytes, unaligned loads; `self` proves the feature.
        unsafe {
            [
                _mm256_cvtepu8_epi16(_mm_loadu_si128(half::<_, 16>(bytes, 0).cast())),
                _mm256_cvtepu8_epi16(_mm_loadu_si128(half::<_, 16>(bytes, 1).cast())),
            ]
        }
    }

    #[inline(always)]
    fn pairs_signed(self, bytes: &[u8; 32]) -> Ints {
        // SAFETY: twice 16 readable bytes, unaligned loads; `self` proves the feature.
        unsafe {
            [
                _mm256_cvtepi8_epi16(_mm_loadu_si128(half::<_, 16>(bytes, 0).cast())),
                _mm256_cvtepi8_epi16(_mm_loadu_si128(half::<_, 16>(bytes, 1).cast())),
            ]
        }
    }

    #[inline(always)]
    fn split(self, pairs: Ints) -> [Ints; 2] {
        let [a, b] = self.products.split(pairs[0]);
        let [c, d] = self.products.split(pairs[1]);
        [[a, c], [b, d]]
    }

    #[inline(always)]
    fn load_sums(self, sums: &Sums) -> Floats {
        // SAFETY: twice 8 readable floats, unaligned loads; `self` proves the feature.
        unsafe { [_mm256_loadu_ps(half::<_, 8>(sums, 0)), _mm256_loadu_ps(half::<_, 8>(sums, 1))] }
    }

    #[inline(always)]
    fn store_sums(self, sums: &mut Sums, [first, second]: Floats) {
        let (to_first, to_second) = sums.split_at_mut(8);
        // SAFETY: twice 8 writable floats, unaligned stores; `self` proves the feature.
        unsafe {
            _mm256_storeu_ps(to_first.as_mut_ptr(), first);
            _mm256_storeu_ps(to_second.as_mut_ptr(), second);
        }
    }

    #[inline(always)]
    fn splat(self, value: f32) -> Floats {
        [self.floats.splat(value); 2]
    }

    #[inline(always)]
    fn widen(self, halves: &Halves) -> Floats {
        // SAFETY: twice 8 readable halves, unaligned loads; `self` proves the feature.
        unsafe {
            [
                _mm256_cvtph_ps(_mm_loadu_si128(half::<_, 8>(halves, 0).cast())),
                _mm256_cvtph_ps(_mm_loadu_si128(half::<_, 8>(halves, 1).cast())),
            ]
        }
    }

    #[inline(always)]
    fn floats(self, words: Ints) -> Floats {
        // SAFETY: `self` proves the feature.
        unsafe { [_mm256_cvtepi32_ps(words[0]), _mm256_cvtepi32_ps(words[1])] }
    }

    #[inline(always)]
    fn mul(self, a: Floats, b: Floats) -> Floats {
        // SAFETY: `self` proves the feature.
        unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn fma(self, a: Floats, b: Floats, c: Floats) -> Floats {
        // SAFETY: `self` proves the feature.
        unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
    }

    #[inline(always)]
    fn negated_fma(self, a: Floats, b: Floats, c: Floats) -> Floats {
        // SAFETY: `self` proves the feature.
        unsafe { [_mm256_fnmadd_ps(a[0], b[0], c[0]), _mm256_fnmadd_ps(a[1], b[1], c[1])] }
    }
}
