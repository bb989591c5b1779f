//! Model files as named, typed, checked views of bytes: GGUF and safetensors.
//!
//! A file is mapped once and shared; parsing copies names and numbers, never weights. Everything a file says is
//! treated as hostile: integers are 64-bit and checked, counts are bounded by the bytes that are left before
//! anything is allocated, and no parser recurses on file content.
//!
//! Invariant: for any bytes, parsing returns a value or a [`crate::ModelError`]; it does not panic, and its
//! memory stays within a small multiple of the header's size.
//! Not here: what the numbers mean (`families`), the vocabulary (`text`), writing folders (the quantizer).

#![deny(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::cast_possible_truncation
)]

mod bytes;
pub mod gguf;
pub mod mmap;
pub mod safetensors;

pub use bytes::FileBytes;
