//! Sums of eight lanes: the one way floats are reduced here.
//!
//! Element `i` of a row goes to lane `i % 8`; a tail goes to the first lanes. Eight because that is one AVX2
//! register; two NEON registers do the same.
//!
//! Invariant: [`sum8`] is the only tree in which lanes are folded.
//! Not here: who sums what.

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

/// Dot product, fused multiply-adds per lane, ascending.
#[inline(always)]
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let [sum] = dots([a], b);
    sum
}

/// The dot products of several rows with `b`: independent sums, side by side only to keep the CPU busy.
#[inline(always)]
pub(super) fn dots<const ROWS: usize>(a: [&[f32]; ROWS], b: &[f32]) -> [f32; ROWS] {
    let mut lanes = [[0f32; 8]; ROWS];
    let (b_chunks, b_tail) = b.as_chunks::<8>();
    let chunks = a.map(|row| row[..b.len()].as_chunks::<8>());
    for (i, b) in b_chunks.iter().enumerate() {
        for r in 0..ROWS {
            let a = &chunks[r].0[i];
            for l in 0..8 {
                lanes[r][l] = a[l].mul_add(b[l], lanes[r][l]);
            }
        }
    }
    for r in 0..ROWS {
        for (l, b) in b_tail.iter().enumerate() {
            lanes[r][l] = chunks[r].1[l].mul_add(*b, lanes[r][l]);
        }
    }
    lanes.map(sum8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_side_by_side_equal_rows_alone() {
        for n in 0..40 {
            let row =
                |seed: usize| -> Vec<f32> { (0..n).map(|i| ((i * 7 + seed * 13) as f32).sin()).collect() };
            let (a, b, c) = (row(1), row(2), row(3));
            let both = dots([&a, &b], &c);
            assert_eq!(both.map(f32::to_bits), [dot(&a, &c), dot(&b, &c)].map(f32::to_bits));
            let exact: f64 = a.iter().zip(&c).map(|(&a, &c)| f64::from(a) * f64::from(c)).sum();
            assert!((f64::from(both[0]) - exact).abs() < 1e-5);
        }
    }
}
