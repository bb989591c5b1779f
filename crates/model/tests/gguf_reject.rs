//! Damaged GGUF files are refused with an error that names the right place.
//!
//! Every case states the words its message must contain. The corpus generator under `tests/corpus` makes files
//! of the same classes, and more, for the command line.

use std::time::{Duration, Instant};

use pilotfish_model::files::gguf::{Value, ValueType};
use pilotfish_model::{Gguf, GgufWriter, ModelError, Section};
use pilotfish_tensor::BlockType;

/// A file put together by hand, so that anything can be wrong in it.
struct Raw {
    magic: [u8; 4],
    version: u32,
    n_tensors: Option<u64>,
    n_keys: Option<u64>,
    keys: Vec<Vec<u8>>,
    tensors: Vec<Vec<u8>>,
    data: usize,
}

impl Raw {
    fn new() -> Raw {
        let keys =
            vec![pair(b"general.architecture", 8, &text(b"llama")), pair(b"llama.block_count", 4, &u32s(1))];
        let tensors = vec![tensor(b"a", &[8, 4], 0, 0), tensor(b"b", &[8], 0, 128)];
        Raw { magic: *b"GGUF", version: 3, n_tensors: None, n_keys: None, keys, tensors, data: 160 }
    }

    fn key(mut self, key: &[u8], value_type: u32, value: &[u8]) -> Raw {
        self.keys.push(pair(key, value_type, value));
        self
    }

    fn first_tensor(mut self, entry: Vec<u8>) -> Raw {
        self.tensors[0] = entry;
        self
    }

    fn second_tensor(mut self, entry: Vec<u8>) -> Raw {
        self.tensors[1] = entry;
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = self.magic.to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.n_tensors.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.n_keys.unwrap_or(self.keys.len() as u64).to_le_bytes());
        out.extend(self.keys.iter().chain(&self.tensors).flatten());
        out.resize(out.len().next_multiple_of(32) + self.data, 0);
        out
    }
}

fn u32s(value: u32) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

fn text(value: &[u8]) -> Vec<u8> {
    [&(value.len() as u64).to_le_bytes(), value].concat()
}

fn pair(key: &[u8], value_type: u32, value: &[u8]) -> Vec<u8> {
    [text(key), u32s(value_type), value.to_vec()].concat()
}

fn array(element: u32, count: u64, items: &[u8]) -> Vec<u8> {
    [&element.to_le_bytes()[..], &count.to_le_bytes(), items].concat()
}

fn tensor(name: &[u8], dims: &[u64], type_id: u32, offset: u64) -> Vec<u8> {
    tensor_with(name, dims.len() as u32, dims, type_id, offset)
}

fn tensor_with(name: &[u8], n_dims: u32, dims: &[u64], type_id: u32, offset: u64) -> Vec<u8> {
    let dims: Vec<u8> = dims.iter().flat_map(|dim| dim.to_le_bytes()).collect();
    [text(name), u32s(n_dims), dims, u32s(type_id), offset.to_le_bytes().to_vec()].concat()
}

/// Parses within a second, and fails; the message must contain all of `words`.
fn refused(bytes: Vec<u8>, words: &[&str]) -> ModelError {
    let start = Instant::now();
    let error = Gguf::parse(bytes).err().unwrap_or_else(|| panic!("accepted, should say {words:?}"));
    assert!(start.elapsed() < Duration::from_secs(1), "took {:?}", start.elapsed());
    let message = error.to_string();
    assert!(message.starts_with("<memory>: "), "{message}");
    for word in words {
        assert!(message.contains(word), "`{message}` should contain `{word}`");
    }
    error
}

#[test]
fn the_control_is_accepted() {
    let gguf = Gguf::parse(Raw::new().bytes()).unwrap();
    assert_eq!((gguf.tensors().len(), gguf.metadata().len()), (2, 2));
}

#[test]
fn headers() {
    refused(Vec::new(), &["header", "is not a GGUF file"]);
    refused(b"GGU".to_vec(), &["is not a GGUF file"]);
    refused(b"GGUF".to_vec(), &["header (byte 4)", "version needs 4 bytes"]);
    refused(Raw { magic: *b"GGUX", ..Raw::new() }.bytes(), &["is not a GGUF file"]);
    refused(Raw { magic: *b"lmgg", ..Raw::new() }.bytes(), &["is not a GGUF file"]);
    refused(Raw { version: 0, ..Raw::new() }.bytes(), &["GGUF version 0 is not supported"]);
    refused(Raw { version: 1, ..Raw::new() }.bytes(), &["GGUF version 1 is not supported"]);
    refused(Raw { version: 4, ..Raw::new() }.bytes(), &["GGUF version 4 is not supported"]);
    refused(Raw { version: u32::MAX, ..Raw::new() }.bytes(), &["GGUF version 4294967295"]);
    refused(Raw { version: 3 << 24, ..Raw::new() }.bytes(), &["big-endian"]);
    for n in [u64::MAX, (1 << 63) - 1, 1 << 63, 1 << 61, 1 << 32, 1_000_000_000, 65_537] {
        let e = refused(
            Raw { n_tensors: Some(n), ..Raw::new() }.bytes(),
            &["(byte 8)", &format!("the number of tensors is {n}, the limit is 65536")],
        );
        assert_eq!(e.section(), Some(Section::Header));
        refused(
            Raw { n_keys: Some(n), ..Raw::new() }.bytes(),
            &["(byte 16)", &format!("metadata keys is {n}")],
        );
    }
    let cannot_fit = "which cannot fit in the";
    refused(
        Raw { n_tensors: Some(60_000), ..Raw::new() }.bytes(),
        &["the number of tensors is 60000", cannot_fit],
    );
    refused(Raw { n_keys: Some(60_000), ..Raw::new() }.bytes(), &["metadata keys is 60000", cannot_fit]);
    // One key too few: the second is then read as a tensor, whose count of dimensions is its type.
    let last = Raw::new().key(b"t", 8, &text(b"x"));
    refused(Raw { n_keys: Some(2), ..last }.bytes(), &["tensor `t`", "1 to 4 dimensions, has 8"]);
    refused(
        Raw { n_tensors: Some(3), ..Raw::new() }.bytes(),
        &["tensor table", "the name of tensor 2 is empty"],
    );
}

#[test]
fn keys() {
    let end = Raw::new().bytes().len() as u64;
    for n in [u64::MAX, 1 << 63, 1 << 40, end + 1, 65_536] {
        let mut raw = Raw::new();
        raw.keys[0][..8].copy_from_slice(&n.to_le_bytes());
        let words = if n > 65_535 { ["(byte 24)", "the limit is 65535"] } else { ["(byte 32)", "are left"] };
        refused(raw.bytes(), &["<memory>: metadata", &format!(" {n} bytes"), words[0], words[1]]);
    }
    refused(Raw::new().key(b"\xff\xfe", 4, &u32s(1)).bytes(), &["metadata", "key is not valid UTF-8"]);
    refused(Raw::new().key(b"", 4, &u32s(1)).bytes(), &["key 2 is empty"]);
    refused(
        Raw::new().key(&[b'k'; 70_000], 4, &u32s(1)).bytes(),
        &["key has 70000 bytes, the limit is 65535"],
    );
    let twice = Raw::new().key(b"llama.block_count", 4, &u32s(1)).bytes();
    let e = refused(twice, &["metadata key `llama.block_count`", "twice"]);
    assert_eq!((e.section(), e.name()), (Some(Section::Metadata), Some("llama.block_count")));
    // Names are shown escaped and cut, whatever they hold.
    let e = refused(Raw::new().key(b"\x1b[31m\0", 99, b"").bytes(), &[r"`\u{1b}[31m\0`"]);
    assert_eq!(e.name(), Some(r"\u{1b}[31m\0"));
    let e = refused(Raw::new().key(&[b'k'; 60_000], 99, b"").bytes(), &["kkk…`"]);
    assert_eq!(e.name().unwrap().len(), 64);
}

#[test]
fn values() {
    let key = |value_type, value: &[u8]| Raw::new().key(b"x.y", value_type, value).bytes();
    for id in [13, 99, u32::MAX] {
        refused(key(id, &u32s(0)), &["metadata key `x.y`", &format!("value type {id} is not")]);
    }
    refused(key(7, &[2]), &["`x.y`", "a BOOL must be 0 or 1, is 2"]);
    for n in [1u64 << 62, u64::MAX, (16 << 20) + 1] {
        refused(
            key(8, &[&n.to_le_bytes()[..], b"x"].concat()),
            &["`x.y`", &format!("has {n} bytes, the limit")],
        );
    }
    refused(key(8, &[&1000u64.to_le_bytes()[..], b"x"].concat()), &["`x.y`", "needs 1000 bytes"]);
    refused(key(8, &text(b"ab\xffc")), &["`x.y`", "not valid UTF-8"]);
    for n in [u64::MAX, 1 << 62, 1 << 61, 1 << 31] {
        for element in [0, 4, 7, 12] {
            refused(
                key(9, &array(element, n, &u32s(1))),
                &["`x.y`", &format!("array length is {n}"), "cannot fit"],
            );
        }
        refused(key(9, &array(8, n, &text(b"a"))), &["`x.y`", &format!("array length is {n}, the limit is")]);
    }
    refused(key(9, &array(8, 40_000, &text(b"a"))), &["array length is 40000, which cannot fit"]);
    refused(key(9, &array(99, 1, &u32s(1))), &["`x.y`", "array element type 99"]);
    refused(
        key(9, &array(8, 2, &[text(b"ok"), text(b"\xc3")].concat())),
        &["`x.y`", "string in an array is not"],
    );
    refused(key(9, &array(8, 1, &(1u64 << 40).to_le_bytes())), &["`x.y`", "the limit is 16777216"]);
    refused(key(9, &array(7, 3, &[0, 1, 2])), &["`x.y`", "neither 0 nor 1"]);
    for depth in [1, 2, 8, 64, 10_000] {
        let nested = (0..depth).fold(array(0, 1, &[1]), |inner, _| array(9, 1, &inner));
        refused(key(9, &nested), &["`x.y`", "arrays of arrays are not supported"]);
    }
    refused(key(9, &array(9, 1 << 40, &array(0, 0, &[]))), &["arrays of arrays"]);
}

#[test]
fn alignments() {
    let key = |value_type, value: &[u8]| Raw::new().key(b"general.alignment", value_type, value).bytes();
    for a in [0, 1, 2, 3, 4, 7, 13, 33, 65_537, 131_072, 1 << 31, u32::MAX] {
        let words = ["metadata key `general.alignment`", &format!("power of two from 8 to 65536, is {a}")];
        refused(key(4, &u32s(a)), &words);
    }
    refused(key(10, &32u64.to_le_bytes()), &["`general.alignment`", "must be a UINT32, is UINT64"]);
    refused(key(5, &(-32i32).to_le_bytes()), &["`general.alignment`", "must be a UINT32, is INT32"]);
    refused(key(8, &text(b"32")), &["`general.alignment`", "must be a UINT32, is STRING"]);
}

#[test]
fn split_files() {
    let bytes = Raw::new().key(b"split.count", 2, &3u16.to_le_bytes()).bytes();
    refused(bytes, &["metadata key `split.count`", "split over 3 files, which is not supported"]);
    refused(Raw::new().key(b"split.count", 8, &text(b"3")).bytes(), &["`split.count`", "must be an integer"]);
}

#[test]
fn tensor_names() {
    let named = |name: &[u8]| Raw::new().second_tensor(tensor(name, &[8], 0, 128)).bytes();
    let e = refused(named(b"a"), &["tensor `a`", "twice"]);
    assert_eq!(e.section(), Some(Section::TensorTable));
    refused(named(b""), &["tensor table", "the name of tensor 1 is empty"]);
    refused(named(&[b'n'; 65]), &["tensor name has 65 bytes, the limit is 64"]);
    refused(named(&[b'n'; 300]), &["tensor name has 300 bytes"]);
    refused(named(b"\xff\xfe"), &["tensor name is not valid UTF-8"]);
}

#[test]
fn shapes() {
    for n in [0, 5, 255, u32::MAX] {
        let raw = Raw::new().first_tensor(tensor_with(b"a", n, &[8, 4], 0, 0));
        refused(raw.bytes(), &["tensor `a`", &format!("1 to 4 dimensions, has {n}")]);
    }
    let shaped = |dims: &[u64]| Raw::new().first_tensor(tensor(b"a", dims, 0, 0)).bytes();
    refused(shaped(&[8, 0]), &["tensor `a`", "dimension 0 is not"]);
    refused(shaped(&[0]), &["tensor `a`", "dimension 0 is not"]);
    let too_large = "too large for any file";
    for dims in [
        &[u64::MAX - 31, 16][..],        // negative as a signed number
        &[1 << 32, 1 << 32],             // product wraps to 0
        &[1 << 63, 2, 1, 512],           // product wraps to something small
        &[1 << 62],                      // bytes wrap to 0
        &[(1 << 63) - 1, 2],             // product fits, bytes do not
        &[1 << 40, 1 << 20, 1 << 20, 1], // wraps in the middle
    ] {
        refused(shaped(dims), &["tensor `a`", too_large]);
    }
    // Fits 64 bits, but padding it to the alignment would not.
    refused(shaped(&[(u64::MAX - 15) / 4]), &["tensor `a`", "tensor data"]);
    refused(shaped(&[8, (1 << 42) + 1]), &["data of tensor `a`", "may be cut short"]);
}

#[test]
fn types() {
    for id in [4, 5, 31, 36, 255, 1 << 31, u32::MAX] {
        let raw = Raw::new().first_tensor(tensor(b"a", &[8, 4], id, 0));
        let e = refused(raw.bytes(), &["tensor `a`", &format!("type id {id} is not a known tensor type")]);
        assert!(matches!(e, ModelError::Unsupported { .. }));
    }
    let raw = Raw::new().first_tensor(tensor(b"a", &[256], 16, 0));
    refused(raw.bytes(), &["tensor `a`", "type IQ2_XXS (id 16) is not supported"]);
    let typed = |dims: &[u64], id| Raw::new().first_tensor(tensor(b"a", dims, id, 0)).bytes();
    refused(
        typed(&[33, 16], 2),
        &["tensor `a`", "row length 33 is not a multiple of 32, as type Q4_0 needs"],
    );
    refused(typed(&[32, 16], 12), &["row length 32 is not a multiple of 256, as type Q4_K needs"]);
}

#[test]
fn offsets() {
    let at = |offset| Raw::new().second_tensor(tensor(b"b", &[8], 0, offset)).bytes();
    for offset in [u64::MAX - 31, 1 << 63, 1 << 40, 160] {
        let e = refused(at(offset), &["data of tensor `b`", &format!("needs 32 bytes from offset {offset}")]);
        assert_eq!(e.section(), Some(Section::TensorData));
    }
    refused(at(u64::MAX), &["tensor `b`", "is not a multiple of the alignment 32"]);
    refused(at(4), &["tensor `b`", "offset 4 is not a multiple of the alignment 32"]);
    refused(at(96), &["data of tensor `b`", "shares bytes with tensor `a`"]);
    refused(at(0), &["shares bytes with tensor"]);
    // Each fits 64 bits, the sum does not.
    let mut raw = Raw::new();
    raw.tensors = vec![tensor(b"a", &[(1 << 61) - 8], 0, 0), tensor(b"b", &[(1 << 61) - 8], 0, 1 << 63)];
    refused(raw.bytes(), &["data of tensor `a`", "the file has only 160 bytes of tensor data"]);
    // Cut short by one byte.
    refused(Raw { data: 159, ..Raw::new() }.bytes(), &["data of tensor `b`", "has only 159 bytes"]);
}

#[test]
fn every_prefix_of_a_file_is_refused() {
    let whole = Raw::new()
        .key(b"tokens", 9, &array(8, 3, &[text(b"a"), text(b"bc"), text(b"")].concat()))
        .key(b"scores", 9, &array(6, 3, &[0; 12]))
        .bytes();
    Gguf::parse(whole.clone()).unwrap();
    for len in 0..whole.len() {
        refused(whole[..len].to_vec(), &[]);
    }
}

/// Tens of thousands of equal or distinct names must cost time in proportion.
#[test]
fn crowds_of_keys_and_tensors_are_no_burden() {
    let crowd = |n: usize| {
        let mut raw = Raw::new();
        raw.keys = (0..n).map(|i| pair(format!("key.{i}").as_bytes(), 0, &[1])).collect();
        raw.tensors = (0..n).map(|i| tensor(format!("t{i}").as_bytes(), &[1], 0, i as u64 * 32)).collect();
        raw.data = n * 32;
        raw
    };
    let start = Instant::now();
    assert_eq!(Gguf::parse(crowd(65_536).bytes()).unwrap().tensors().len(), 65_536);
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    refused(crowd(65_537).bytes(), &["the limit is 65536"]);
    let mut twice = crowd(60_000);
    twice.tensors[59_999] = tensor(b"t0", &[1], 0, 59_999 * 32);
    refused(twice.bytes(), &["tensor `t0`", "twice"]);
}

#[test]
fn metadata_is_bounded_as_a_whole() {
    let mut w = GgufWriter::new();
    let large = "x".repeat(16 << 20);
    (0..17).for_each(|i| _ = w.str(&format!("large.{i}"), &large));
    let e = Gguf::parse(w.finish()).unwrap_err();
    assert_eq!(e.name(), Some("large.15"), "{e}");
    assert!(e.to_string().contains("larger than the limit"), "{e}");
}

#[test]
fn messages_never_show_content() {
    let mut w = GgufWriter::new();
    w.str("secret", "hunter2").array("numbers", ValueType::U8, &[Value::U8(0xab); 8]);
    w.tensor("t", &[8], BlockType::F32, b"hunter2hunter2hunter2hunter2hunt".to_vec());
    let whole = w.finish();
    for at in 0..whole.len() {
        for value in [0, 0xff, whole[at] ^ 0x80] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            if let Err(e) = Gguf::parse(bytes) {
                let message = format!("{e} {e:?}");
                assert!(!message.contains("hunter2"), "{message}");
            }
        }
    }
}
