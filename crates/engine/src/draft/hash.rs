//! One hash for n-grams, files and vocabularies: FNV-1a.
//!
//! Each step is a bijection of the state, so two sequences that differ in one place only never collide.
//!
//! Invariant: history files on disk hold this hash; changing it needs a new version of their format.
//! Not here: protection against those who want a collision; every use compares or checks what it finds.

/// FNV-1a, a word at a time.
pub(super) fn fnv(seed: u64, words: impl IntoIterator<Item = u32>) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed;
    words.into_iter().fold(start, |hash, word| (hash ^ u64::from(word)).wrapping_mul(0x100_0000_01b3))
}
