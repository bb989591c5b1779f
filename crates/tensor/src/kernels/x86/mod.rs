//! Tables for x86-64 CPUs.
//!
//! Invariant: a table is listed only when the CPU has every feature it uses.
//! Not here: the loops over tiles (`tiles`).

mod amx;
mod avx2;
mod avx512vnni;
mod avxvnni;
mod vector;
mod vector512;
mod ymm;
mod zmm;

use super::Kernels;

/// The tables this CPU can run, fastest first.
pub(super) fn available() -> Vec<&'static Kernels> {
    let avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c");
    let avx512vnni = avx2
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni");
    let avxvnni = avx2 && is_x86_feature_detected!("avxvnni");
    // Asked last, because it changes what the system keeps for this process.
    let amx = avx512vnni && amx::allowed();
    [(amx, &amx::TABLE), (avx512vnni, &avx512vnni::TABLE), (avxvnni, &avxvnni::TABLE), (avx2, &avx2::TABLE)]
        .into_iter()
        .filter_map(|(detected, table)| detected.then_some(table))
        .collect()
}
