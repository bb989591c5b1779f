//! The test that no table changes how floats are rounded or denormals treated, neither for its caller nor for itself.
//!
//! Invariant: it runs every table this CPU has.
//! Not here: what the tables compute.

use crate::kernels::{KvNumbers, KvPair};
use crate::{Activations, Attend, AttendScratch, BlockType, Columns, Kernels, KvRows};

/// Rounding mode, denormals, masks: the control bits of the SSE unit, all but the sticky flags.
#[cfg(target_arch = "x86_64")]
fn control() -> u64 {
    let mut register = 0u32;
    // SAFETY: stores the 32-bit control register to `register`, nothing else.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut register, options(nostack)) };
    u64::from(register & !0x3f)
}

/// All exceptions masked, nothing flushed, to nearest.
#[cfg(target_arch = "x86_64")]
const PLAIN: u64 = 0x1f80;

/// Rounding mode, denormals, form of halves, traps: the control register, which has no flags in it.
#[cfg(target_arch = "aarch64")]
fn control() -> u64 {
    let register;
    // SAFETY: reads the control register, nothing else.
    unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) register, options(nomem, nostack)) };
    register
}

/// Nothing trapped, nothing flushed, IEEE halves, to nearest.
#[cfg(target_arch = "aarch64")]
const PLAIN: u64 = 0;

#[test]
fn kernels_leave_the_floating_point_mode_alone() {
    let before = control();
    assert_eq!(before, PLAIN, "denormals are kept and rounding is to nearest");
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
