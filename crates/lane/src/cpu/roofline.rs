//! What this machine could do at best: how fast weights can be read, and how fast bytes can be multiplied.
//!
//! No pass can be quicker than its bytes at this bandwidth, or its products at this rate; the distance from both is
//! what is left to gain.
//!
//! Invariant: the best of several tries is reported, because anything else on the machine only slows them.
//! Not here: which bytes and products a pass needs (`pilotfish_model`).

use std::io;
use std::time::Instant;

use pilotfish_tensor::kernels::{Arena, Kernels};

use super::threads::Threads;

/// Bytes read in one try: well beyond any cache.
const BYTES: usize = 384 << 20;
/// Rounds of multiplications in one try, some milliseconds.
const ROUNDS: usize = 200_000;
/// Tries of each.
const TRIES: usize = 8;

/// Limits of a machine for a number of threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roofline {
    /// Bytes read from memory in a second, on large pages where the system gives them.
    pub bytes_per_second: f64,
    /// Products of bytes added in a second, on registers alone.
    pub macs_per_second: f64,
}

impl Roofline {
    /// Measures `threads` threads together.
    ///
    /// # Errors
    /// When there is no memory to read.
    pub fn measure(kernels: &'static Kernels, threads: usize) -> io::Result<Roofline> {
        let mut threads = Threads::new(threads);
        let each = BYTES / threads.n();
        let mut arena = Arena::new(each * threads.n())?;
        let mut memory: Vec<_> = (0..threads.n()).map(|_| arena.bytes(each)).collect();
        // Touched by the threads that will read, or the system would give one shared page of zeros.
        threads.for_each(memory.iter_mut().collect(), |part| part.bytes_mut().fill(1));
        let mut read = 0.0f64;
        let mut multiplied = 0.0f64;
        for _ in 0..TRIES {
            let start = Instant::now();
            threads.for_each(memory.iter().collect(), |part| {
                std::hint::black_box(kernels.probe_read(part.bytes()));
            });
            read = read.max((each * threads.n()) as f64 / start.elapsed().as_secs_f64());
            let start = Instant::now();
            let mut macs = vec![0; threads.n()];
            threads.for_each(macs.iter_mut().collect(), |macs| *macs = kernels.probe_multiply(ROUNDS));
            multiplied = multiplied.max(macs.iter().sum::<usize>() as f64 / start.elapsed().as_secs_f64());
        }
        Ok(Roofline { bytes_per_second: read, macs_per_second: multiplied })
    }

    /// The better of two measurements.
    #[must_use]
    pub fn max(self, other: Roofline) -> Roofline {
        Roofline {
            bytes_per_second: self.bytes_per_second.max(other.bytes_per_second),
            macs_per_second: self.macs_per_second.max(other.macs_per_second),
        }
    }

    /// Milliseconds no pass can beat that reads `bytes` and adds `macs` products.
    pub fn floor_ms(self, bytes: u64, macs: u64) -> f64 {
        1e3 * (bytes as f64 / self.bytes_per_second).max(macs as f64 / self.macs_per_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_is_the_slower_of_reading_and_multiplying() {
        let roofline = Roofline { bytes_per_second: 1e9, macs_per_second: 1e9 };
        assert_eq!(roofline.floor_ms(2_000_000, 1_000_000), 2.0);
        assert_eq!(roofline.floor_ms(2_000_000, 5_000_000), 5.0);
    }

    #[test]
    fn this_machine_has_limits() {
        let roofline = Roofline::measure(Kernels::best(), 2).unwrap();
        assert!(roofline.bytes_per_second > 1e8 && roofline.macs_per_second > 1e8, "{roofline:?}");
    }
}
