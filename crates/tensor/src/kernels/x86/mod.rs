//! Tables for x86-64 CPUs.
//!
//! Invariant: a table is listed only when the CPU has every feature it uses.
//! Not here: the loops over tiles (`tiles`).

mod avx2;
mod avx512vnni;
mod avxvnni;
mod vector;
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
    [(avx512vnni, &avx512vnni::TABLE), (avxvnni, &avxvnni::TABLE), (avx2, &avx2::TABLE)]
        .into_iter()
        .filter_map(|(detected, table)| detected.then_some(table))
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::kernels::{KvNumbers, KvPair};
    use crate::{Activations, Attend, AttendScratch, BlockType, Columns, Kernels, KvRows};

    /// Rounding mode, denormals, masks: the control bits of the SSE unit, all but the sticky flags.
    fn control() -> u32 {
        let mut register = 0u32;
        // SAFETY: stores the 32-bit control register to `register`, nothing else.
        unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut register, options(nostack)) };
        register & !0x3f
    }

    #[test]
    fn kernels_leave_the_floating_point_mode_alone() {
        let before = control();
        assert_eq!(before, 0x1f80, "denormals are kept and rounding is to nearest");
        for table in Kernels::available() {
            let a: [f32; 64] = std::array::from_fn(|i| (i as f32 - 30.0) * 2.0);
            let mut out = [0.0; 64];
            table.silu_mul(&a, &a, &mut out);
            table.gelu_tanh_mul(&a, &a, &mut out);
            table.rms_norm(&a, &a, 1e-6, &mut out);
            let mut halves = [0; 64];
            table.to_halves(&a, &mut halves);
            let numbers = KvNumbers::F16(KvPair { keys: &halves, values: &halves });
            let kv = KvRows { numbers, width: 8, head_dim: 8, committed: 4 };
            let row = Attend { first: 0, last: 3, path: &[], scale: 1.0, softcap: Some(2.0) };
            let block = Columns::new(&mut out, 1, 64).whole();
            table.attend(&a, &[row], &kv, &mut AttendScratch::new(), block);
            for block_type in [BlockType::Q8_0, BlockType::F16] {
                let weight = table.pack(block_type, &vec![1; 16 * block_type.row_bytes(64).unwrap()], 16, 64);
                let mut acts = Activations::new();
                table.quantize(&a, 1, 64, weight.scheme(), &mut acts);
                table.matmul(&weight, &acts, &mut Columns::new(&mut out[..16], 1, 16).whole());
            }
            assert_eq!(control(), before, "{}", table.name());
            let tiny = [1e-40];
            table.add(&tiny, &tiny, &mut out[..1]);
            assert_eq!(out[0], 2.0 * tiny[0], "denormals survive");
        }
    }
}
