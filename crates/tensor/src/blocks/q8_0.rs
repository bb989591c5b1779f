//! Q8_0: 32 numbers of 8 bits around zero.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..34 | `q`, i8 |
//!
//! `x = q * d`
//!
//! Invariant: quants are in -128..=127; encoders write -127..=127.
//! Not here: quantized activations, whose scales are f32 (`kernels::activations`).

use super::{SmallBlock, half_at, round};

pub(crate) const BYTES: usize = 34;

#[inline(always)]
pub(crate) fn unpack(block: &[u8; BYTES]) -> SmallBlock {
    SmallBlock { quants: std::array::from_fn(|i| block[2 + i] as i8), scale: half_at(block, 0), min: None }
}

pub(crate) fn encode(numbers: &[f32], out: &mut Vec<u8>) {
    let d = round::push_half(round::extreme(numbers).abs() / 127.0, out);
    out.extend(numbers.iter().map(|&x| round::steps(x, d, -127, 127) as i8 as u8));
}
