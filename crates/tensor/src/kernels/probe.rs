//! What the machine itself can do, for measuring how far the kernels are from it.
//!
//! Invariant: nothing here is part of any result.
//! Not here: clocks and threads (`lane`).

/// The sum of all bytes, as words: reads them once, in ascending order.
#[inline(always)]
pub(super) fn read(bytes: &[u8]) -> u64 {
    let (chunks, tail) = bytes.as_chunks::<256>();
    let mut sums = [0u64; 32];
    for chunk in chunks {
        for (sum, word) in sums.iter_mut().zip(chunk.as_chunks::<8>().0) {
            *sum = sum.wrapping_add(u64::from_ne_bytes(*word));
        }
    }
    let tail = tail.iter().map(|&b| u64::from(b)).sum::<u64>();
    sums.iter().fold(tail, |total, sum| total.wrapping_add(*sum))
}

/// Multiplies and adds bytes in plain code; returns how many products were added.
pub(super) fn multiply(rounds: usize) -> usize {
    let (a, mut sums) = ([3i8; 32], [0i32; 32]);
    for _ in 0..rounds {
        let b = std::hint::black_box([5i8; 32]);
        for i in 0..32 {
            sums[i] = sums[i].wrapping_add(i32::from(a[i]) * i32::from(b[i]));
        }
    }
    std::hint::black_box(sums);
    32 * rounds
}
