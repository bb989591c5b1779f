//! Tables for x86-64 CPUs.
//!
//! Invariant: each constructor returns its table only when the CPU has every feature it uses.
//! Not here: AVX-512 and VNNI, which no machine at hand can run.

mod avx2;
mod records;
mod small_records;
mod small_tiles;
mod super_records;
mod super_tiles;
mod tiles;
mod vector;

use super::Kernels;

/// The AVX2 table, if this CPU has AVX2, FMA and F16C.
pub(super) fn avx2() -> Option<&'static Kernels> {
    let detected = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c");
    detected.then_some(&avx2::TABLE)
}
