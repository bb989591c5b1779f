//! Decoding against the `gguf` Python package, bit for bit, on the blocks of `data/blocks.bin`.
//!
//! Invariant: every block type is in the file.
//! Not here: how the file was made (`data/make_blocks.py`).

use std::collections::BTreeMap;

use pilotfish_tensor::BlockType;

#[test]
fn decoding_equals_the_gguf_package() {
    let mut rest: &[u8] = include_bytes!("data/blocks.bin");
    let mut seen = BTreeMap::new();
    while !rest.is_empty() {
        let (header, tail) = rest.split_first_chunk::<12>().unwrap();
        let field = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        let (bytes, count) = (field(4) as usize, field(8) as usize);
        let (block, tail) = tail.split_at(bytes);
        let (numbers, tail) = tail.split_at(count * 4);
        let block_type = BlockType::from_ggml_id(field(0)).unwrap();
        assert_eq!(block_type.row_bytes(count), Some(bytes), "{}", block_type.name());
        let mut decoded = vec![0f32; count];
        block_type.decode(block, &mut decoded);
        for (i, (ours, theirs)) in decoded.iter().zip(numbers.chunks_exact(4)).enumerate() {
            let theirs = f32::from_le_bytes(theirs.try_into().unwrap());
            assert_eq!(ours.to_bits(), theirs.to_bits(), "{} number {i}: {ours} {theirs}", block_type.name());
        }
        *seen.entry(block_type).or_insert(0) += 1;
        rest = tail;
    }
    assert!(BlockType::ALL.iter().all(|block_type| seen.get(block_type) >= Some(&3)), "{seen:?}");
}
