//! The tile registers of AMX: eight of up to 16 rows of 64 bytes.
//!
//! Instructions: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2. The operating system's consent:
//! Linux, `Documentation/arch/x86/xstate.rst`.
//!
//! Registers 0 to 3 hold sums, two for each of two sets; 4 holds activations, 5 and 6 weights.
//!
//! Invariant: tile instructions run only between [`Registers::configure`] and the value's end.
//! Not here: what is multiplied.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use std::marker::PhantomData;

use super::fold::Quarter;
use crate::blocks::SUPER;
use crate::kernels::matrix::TILE;

/// Most rows of a tile register.
pub(super) const MOST_ROWS: usize = 16;

/// Whether this CPU has byte products in tile registers, and the system lets this process use them. Asks for that once
/// the CPU has them: a process starts without.
pub(in super::super) fn allowed() -> bool {
    cfg!(target_os = "linux") && in_cpu() && granted()
}

fn in_cpu() -> bool {
    // The highest leaf, OSXSAVE in leaf 1, AMX-TILE and AMX-INT8 in leaf 7.
    let leaves = __cpuid(0).eax;
    if leaves < 7 || __cpuid(1).ecx & 1 << 27 == 0 {
        return false;
    }
    let (both, state) = (1 << 24 | 1 << 25, 1 << 17 | 1 << 18);
    // SAFETY: OSXSAVE says that the instruction may be used.
    __cpuid_count(7, 0).edx & both == both && unsafe { _xgetbv(0) } & state == state
}

/// Asks Linux for the tile data state of this process (`arch_prctl(ARCH_REQ_XCOMP_PERM, 18)`).
fn granted() -> bool {
    let (arch_prctl, request, tile_data) = (158_i64, 0x1023, 18);
    let result: i64;
    // SAFETY: the call takes two numbers and touches no memory of ours.
    unsafe {
        asm!("syscall", inlateout("rax") arch_prctl => result, in("rdi") request, in("rsi") tile_data,
             out("rcx") _, out("r11") _, options(nostack));
    }
    result == 0
}

/// What LDTILECFG reads.
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// Sums of one tile product: `[activation row][column]`.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(super) struct Words(pub(super) [[i32; TILE]; MOST_ROWS]);

/// Configured tile registers of this thread.
pub(super) struct Registers(PhantomData<*mut ()>);

impl Registers {
    /// Shapes the registers for `rows` activation rows.
    ///
    /// # Safety
    /// [`allowed`] must have said yes, and this thread must not hold another value of this type.
    pub(super) unsafe fn configure(rows: usize) -> Registers {
        assert!((1..=MOST_ROWS).contains(&rows), "{rows} rows in a tile register");
        let (few, all) = (rows as u8, MOST_ROWS as u8);
        let mut shapes =
            Shapes { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        shapes.row_bytes[..7].fill(64);
        shapes.rows[..7].copy_from_slice(&[few, few, few, few, few, all, all]);
        // SAFETY: the caller's word; the shapes are valid: palette 1 has 8 registers of 16 rows of 64 bytes.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const shapes, options(nostack, readonly)) };
        Registers(PhantomData)
    }

    /// Sets the sums of set `SET` to zero.
    #[inline(always)]
    pub(super) fn clear<const SET: usize>(&self) {
        const { assert!(SET < 2) };
        // SAFETY: the registers are configured.
        unsafe {
            asm!("tilezero tmm{low}", "tilezero tmm{high}", low = const 2 * SET, high = const 2 * SET + 1,
                 options(nostack, nomem));
        }
    }

    /// Starts to add the products of 64 numbers of each activation row with folded weights to the sums of set `SET`.
    /// `HIGH_SIGNED` says whether the high parts of the weights are signed.
    ///
    /// # Safety
    /// At `acts`, and every [`SUPER`] bytes behind it, for as many rows as the registers were configured for, 64 bytes
    /// must be readable.
    #[inline(always)]
    pub(super) unsafe fn multiply<const SET: usize, const HIGH_SIGNED: bool>(
        &self,
        acts: *const i8,
        weights: &Quarter,
    ) {
        macro_rules! multiply {
            ($high:literal) => {
                // SAFETY: the registers are configured; those of weights read 16 groups of `weights`, that of
                // activations what the caller says.
                unsafe {
                    asm!(
                        "tileloadd tmm4, [{acts} + {each_acts}*1]",
                        "tileloadd tmm5, [{low} + {each}*1]",
                        "tdpbsud tmm{low_sums}, tmm4, tmm5",
                        "tileloadd tmm6, [{high} + {each}*1]",
                        concat!($high, " tmm{high_sums}, tmm4, tmm6"),
                        acts = in(reg) acts,
                        each_acts = in(reg) SUPER,
                        low = in(reg) weights.low.as_ptr(),
                        high = in(reg) weights.high.as_ptr(),
                        each = in(reg) 64_usize,
                        low_sums = const 2 * SET,
                        high_sums = const 2 * SET + 1,
                        options(nostack, readonly),
                    );
                }
            };
        }
        if HIGH_SIGNED {
            multiply!("tdpbssd");
        } else {
            multiply!("tdpbsud");
        }
    }

    /// Stores the sums of set `SET`: of the low parts, and of the high parts.
    #[inline(always)]
    pub(super) fn store<const SET: usize>(&self, [low, high]: &mut [Words; 2]) {
        // SAFETY: the registers are configured; each store writes up to 16 rows of 64 bytes.
        unsafe {
            asm!(
                "tilestored [{low} + {each}*1], tmm{low_sums}",
                "tilestored [{high} + {each}*1], tmm{high_sums}",
                low = in(reg) &raw mut *low,
                high = in(reg) &raw mut *high,
                each = in(reg) 64_usize,
                low_sums = const 2 * SET,
                high_sums = const 2 * SET + 1,
                options(nostack),
            );
        }
    }
}

impl Drop for Registers {
    fn drop(&mut self) {
        // SAFETY: the registers are configured, and nothing of theirs is needed any more.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}
