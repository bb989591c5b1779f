//! Eight floats at a time: the one way floats are summed here, and its implementation in plain code.
//!
//! Element `i` of a row goes to lane `i % 8`; rows are padded with zeros to whole eights. Eight because that is
//! one AVX2 register; two NEON registers do the same. The loops that must be fast are written against
//! [`Lanes`], so that they are the same loops for every table.
//!
//! Invariant: [`sum8`] is the only tree in which lanes are folded, and every implementation folds so.
//! Not here: who sums what.

/// An implementation of eight lanes. All of them give the same bits.
pub(super) trait Lanes: Copy {
    /// Eight floats.
    type Eight: Copy;

    fn load(self, floats: &[f32; 8]) -> Self::Eight;
    fn store(self, floats: &mut [f32; 8], value: Self::Eight);
    fn splat(self, value: f32) -> Self::Eight;
    /// `a * b + c` in every lane, rounded once.
    fn fma(self, a: Self::Eight, b: Self::Eight, c: Self::Eight) -> Self::Eight;
    /// `a + b` in every lane.
    fn add(self, a: Self::Eight, b: Self::Eight) -> Self::Eight;
    /// [`sum8`] of each of eight.
    fn sums(self, eights: [Self::Eight; 8]) -> [f32; 8];
    /// Halves as floats, exactly.
    fn widen(self, halves: &[u16; 8]) -> Self::Eight;
    /// Quants as floats, exactly.
    fn widen_quants(self, quants: &[i8; 8]) -> Self::Eight;
    /// Asks for the cache line of a number that will be read soon.
    fn prefetch<T>(self, number: &T);
    /// `x * factor`, which lie in -128..=127, rounded to integers, ties to even.
    fn to_i8(self, x: &[[f32; 8]; 4], factor: f32) -> [i8; 32];
    /// Sums of the first and the last 16.
    fn sums_of_16(self, quants: &[i8; 32]) -> [i16; 2];
}

/// Eight lanes in plain code, for any CPU.
#[derive(Clone, Copy)]
pub(super) struct Plain;

impl Lanes for Plain {
    type Eight = [f32; 8];

    #[inline(always)]
    fn load(self, floats: &[f32; 8]) -> [f32; 8] {
        *floats
    }

    #[inline(always)]
    fn store(self, floats: &mut [f32; 8], value: [f32; 8]) {
        *floats = value;
    }

    #[inline(always)]
    fn splat(self, value: f32) -> [f32; 8] {
        [value; 8]
    }

    #[inline(always)]
    fn fma(self, a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|l| a[l].mul_add(b[l], c[l]))
    }

    #[inline(always)]
    fn add(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|l| a[l] + b[l])
    }

    #[inline(always)]
    fn sums(self, eights: [[f32; 8]; 8]) -> [f32; 8] {
        eights.map(sum8)
    }

    #[inline(always)]
    fn widen(self, halves: &[u16; 8]) -> [f32; 8] {
        halves.map(crate::float16::f16_to_f32)
    }

    #[inline(always)]
    fn widen_quants(self, quants: &[i8; 8]) -> [f32; 8] {
        quants.map(f32::from)
    }

    #[inline(always)]
    fn prefetch<T>(self, _: &T) {}

    #[inline(always)]
    fn to_i8(self, x: &[[f32; 8]; 4], factor: f32) -> [i8; 32] {
        // Adding 1.5 * 2^23 rounds to an integer, ties to even; the low bits of the sum are that integer.
        std::array::from_fn(|i| (x.as_flattened()[i] * factor + 12_582_912.0).to_bits() as u8 as i8)
    }

    #[inline(always)]
    fn sums_of_16(self, quants: &[i8; 32]) -> [i16; 2] {
        let sum = |quants: &[i8]| quants.iter().map(|&q| i16::from(q)).sum();
        [sum(&quants[..16]), sum(&quants[16..])]
    }
}

/// Folds eight lanes: neighbours first.
#[inline(always)]
pub(super) fn sum8(lanes: [f32; 8]) -> f32 {
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + b) + (c + d)) + ((e + f) + (g + h))
}

/// Folds eight lanes in double precision, by the same tree.
#[inline(always)]
pub(super) fn sum8_f64(lanes: [f64; 8]) -> f64 {
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + b) + (c + d)) + ((e + f) + (g + h))
}

/// Eight rows side by side: entry `i` holds numbers `8i..8i + 8` of each.
pub(super) type Rows8 = [[[f32; 8]; 8]];

/// The dot products of `x` with each of eight rows: per lane one fused multiply-add after another, ascending.
/// Eight are computed at once to keep the CPU busy; none knows of the others.
#[inline(always)]
pub(super) fn dots<L: Lanes>(lanes: L, x: &[[f32; 8]], rows: &Rows8) -> [f32; 8] {
    let mut sums = [lanes.splat(0.0); 8];
    for (x, rows) in x.iter().zip(rows) {
        let x = lanes.load(x);
        for r in 0..8 {
            sums[r] = lanes.fma(x, lanes.load(&rows[r]), sums[r]);
        }
    }
    lanes.sums(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_eight_dot_products_is_the_one_alone() {
        for eights in 0..9 {
            let row = |seed: usize| -> Vec<[f32; 8]> {
                (0..eights)
                    .map(|i| std::array::from_fn(|l| ((i * 8 + l) as f32 * 0.7 + seed as f32).sin()))
                    .collect()
            };
            let x = row(99);
            let rows: Vec<_> = (0..eights).map(|i| std::array::from_fn(|r| row(r)[i])).collect();
            for (r, ours) in dots(Plain, &x, &rows).into_iter().enumerate() {
                let mut lanes = [0f32; 8];
                for (x, w) in x.iter().zip(row(r)) {
                    (0..8).for_each(|l| lanes[l] = x[l].mul_add(w[l], lanes[l]));
                }
                assert_eq!(ours.to_bits(), sum8(lanes).to_bits());
            }
        }
    }
}
