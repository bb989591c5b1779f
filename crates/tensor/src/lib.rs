//! Numbers in memory and the loops over them: quantized blocks, and one set of kernels per instruction set.
//!
//! [`BlockType`] says what the bytes of a weight mean; its scalar decode is the specification. [`Kernels`]
//! packs weights and runs the loops of a forward pass over them.
//!
//! Invariant: every table of kernels gives the same bits, so a result depends on its inputs alone: never on
//! the number of rows, the threads, the neighbours or the instruction set.
//! Not here: files, graphs, threads (the crates above own those).

mod block;
mod blocks;
mod float16;
pub mod kernels;
pub mod math;

pub use block::BlockType;
pub use float16::{f16_to_f32, f32_to_f16};
pub use kernels::{
    ActScheme, Activations, Arena, Attend, AttendScratch, ColumnBlock, Columns, Kernels, KvRows, Matrix,
    PackPart, Packing, RopeStyle,
};
