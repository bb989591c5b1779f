//! Tables for 64-bit Arm CPUs.
//!
//! Invariant: a table is listed only when the CPU has every feature it uses.
//! Not here: the loops over tiles (`tiles`).

mod dotprod;
mod neon;
mod products;
mod registers;
mod vector;

use std::arch::is_aarch64_feature_detected;

use super::Kernels;

/// The tables this CPU can run, fastest first.
pub(super) fn available() -> Vec<&'static Kernels> {
    let neon = is_aarch64_feature_detected!("neon");
    let dotprod = neon && is_aarch64_feature_detected!("dotprod");
    [(dotprod, &dotprod::TABLE), (neon, &neon::TABLE)]
        .into_iter()
        .filter_map(|(detected, table)| detected.then_some(table))
        .collect()
}
