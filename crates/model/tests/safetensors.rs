//! Safetensors files and folders: what is legal loads, what is not is refused by name.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use pilotfish_model::files::safetensors::{Dtype, Safetensors};

const GOOD: &str = r#"{"a":{"dtype":"F32","shape":[4,4],"data_offsets":[0,64]}}"#;

fn file(header: impl AsRef<[u8]>, data: usize) -> Vec<u8> {
    let header = header.as_ref();
    [&(header.len() as u64).to_le_bytes()[..], header, &vec![0; data]].concat()
}

fn one(entry: &str, data: usize) -> Vec<u8> {
    file(format!(r#"{{"a":{entry}}}"#), data)
}

fn refused(bytes: Vec<u8>, word: &str) {
    let start = Instant::now();
    let error = Safetensors::parse(bytes).err().unwrap_or_else(|| panic!("accepted, should say {word}"));
    assert!(start.elapsed() < Duration::from_secs(1), "took {:?}", start.elapsed());
    let message = error.to_string();
    assert!(message.contains(word), "`{message}` should contain `{word}`");
    assert!(message.len() < 400 && !message.chars().any(char::is_control), "{message}");
}

#[test]
fn numbers_come_back() {
    let header = r#"{"__metadata__":{"format":"pt"},
        "h":{"dtype":"F16","shape":[2],"data_offsets":[8,12]},
        "b":{"dtype":"BF16","shape":[1,2],"data_offsets":[12,16]},
        "f":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
        "i":{"dtype":"I64","shape":[],"data_offsets":[16,24]},
        "none":{"dtype":"U8","shape":[0,3],"data_offsets":[24,24]}}"#;
    let mut bytes = file(header, 0);
    bytes.extend([1.5f32, -2.0].iter().flat_map(|x| x.to_le_bytes()));
    bytes.extend([0x00, 0x3e, 0x00, 0xc0, 0xc0, 0x3f, 0x00, 0xc0]);
    bytes.extend(7u64.to_le_bytes());
    let model = Safetensors::parse(bytes).unwrap();
    for name in ["f", "h", "b"] {
        assert_eq!(model.f32s(name).unwrap(), [1.5, -2.0], "{name}");
    }
    assert_eq!(
        model.tensors().iter().map(|t| t.name.as_str()).collect::<Vec<_>>(),
        ["f", "h", "b", "i", "none"]
    );
    let tensor = model.require_tensor("b").unwrap();
    assert_eq!((tensor.dtype, tensor.shape.as_slice(), tensor.n_bytes()), (Dtype::BF16, &[1, 2][..], 4));
    assert_eq!(model.bytes("i").unwrap(), 7u64.to_le_bytes());
    assert_eq!(model.bytes("none").unwrap(), b"");
    assert_eq!(model.metadata()["format"], "pt");
    assert_eq!(
        model.f32s("i").unwrap_err().to_string(),
        "<memory>: tensor `i`: has type I64; F32, F16 or BF16 is needed"
    );
    assert_eq!(model.bytes("x").unwrap_err().to_string(), "<memory>: tensor `x` is missing");
}

#[test]
fn broken_headers() {
    refused(Vec::new(), "has only 0 bytes");
    refused(b"1234567".to_vec(), "has only 7 bytes");
    let with_length = |n: u64| [&n.to_le_bytes()[..], GOOD.as_bytes(), &[0; 64]].concat();
    refused(with_length(0), "must start with {");
    refused(with_length(1), "is not the JSON");
    refused(with_length(1_000_000), "the header needs 1000000 bytes");
    for n in [100_000_001, 1 << 63, u64::MAX] {
        refused(with_length(n), "the limit is");
    }
    refused(file(r#"{"a":"#, 64), "is not the JSON");
    refused(file(b"{\"\xff\":1}", 64), "is not the JSON");
    refused(file("[]", 64), "must start with {");
    refused(file(format!(" {GOOD}"), 64), "must start with {");
    refused(file(format!("{GOOD}\0\0\0"), 64), "is not the JSON");
    refused(file(format!("{GOOD}{{}}"), 64), "is not the JSON");
    refused(
        file(format!(r#"{{"a":{}1{}}}"#, "[".repeat(100_000), "]".repeat(100_000)), 64),
        "is not the JSON",
    );
    let deep = format!(r#"{{"a":{{"x":{}{}}}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    refused(file(deep, 64), "is not the JSON");
    refused(file(format!(r#"{{"__metadata__":{{"x":1}},{}"#, &GOOD[1..]), 64), "is not the JSON");
    let twice = r#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"a":{"dtype":"F32","shape":[4],"data_offsets":[16,32]}}"#;
    refused(file(twice, 32), "tensor `a`: stands in the header twice");
    refused(file(r#"{"__metadata__":{},"__metadata__":{}}"#, 0), "twice");
}

#[test]
fn broken_tensors() {
    for (entry, word) in [
        (r#"{"dtype":"F32","shape":[4,4],"data_offsets":[64,0]}"#, "tensor `a`: has bytes 64 to 0"),
        (r#"{"dtype":"F32","shape":[4,8],"data_offsets":[0,128]}"#, "cover 128 bytes, but the file has 64"),
        (r#"{"dtype":"F32","shape":[4,3],"data_offsets":[0,64]}"#, "tensor `a`: its shape needs 384 bits"),
        (
            r#"{"dtype":"F32","shape":[4,2],"data_offsets":[32,64]}"#,
            "tensor `a`: has bytes 32 to 64; they must follow byte 0",
        ),
        (
            r#"{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}"#,
            "tensor `a`: the product of the dimensions",
        ),
        (
            r#"{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}"#,
            "tensor `a`: the product of the dimensions",
        ),
        (r#"{"dtype":"F32","shape":[-4,-4],"data_offsets":[0,64]}"#, "is not the JSON"),
        (r#"{"dtype":"F32","shape":[4.0,4],"data_offsets":[0,64]}"#, "is not the JSON"),
        (r#"{"dtype":"F32","shape":[4,4],"data_offsets":[-64,0]}"#, "is not the JSON"),
        (
            r#"{"dtype":"F32","shape":[4,4],"data_offsets":[18446744073709551552,18446744073709551616]}"#,
            "JSON",
        ),
        (r#"{"dtype":"Z99","shape":[4,4],"data_offsets":[0,64]}"#, "is not the JSON"),
        (r#"{"shape":[4,4],"data_offsets":[0,64]}"#, "dtype"),
        (r#"{"dtype":"F32","shape":[4,4],"data_offsets":[0,32,64]}"#, "is not the JSON"),
    ] {
        refused(one(entry, 64), word);
    }
    let many = format!(r#"{{"dtype":"F32","shape":{:?},"data_offsets":[0,4]}}"#, vec![1; 10_000]);
    refused(one(&many, 4), "has 10000 dimensions");
    let overlap = r#"{"a":{"dtype":"F32","shape":[8],"data_offsets":[0,32]},"b":{"dtype":"F32","shape":[8],"data_offsets":[16,48]}}"#;
    refused(file(overlap, 48), "tensor `b`: has bytes 16 to 48; they must follow byte 32");
    refused(file(GOOD, 96), "cover 64 bytes, but the file has 96");
    Safetensors::parse(one(r#"{"dtype":"F32","shape":[0,4],"data_offsets":[0,0]}"#, 0)).unwrap();
}

/// Offsets that chain up to the end of the address space, where adding the header's length would wrap.
#[test]
fn sums_cannot_wrap() {
    let step = (1u64 << 61) - 1;
    let tensors: Vec<String> = (0..8)
        .map(|i| {
            let (start, end) = (i * step, (i + 1) * step);
            format!(r#""t{i}":{{"dtype":"U8","shape":[{step}],"data_offsets":[{start},{end}]}}"#)
        })
        .collect();
    refused(file(format!("{{{}}}", tensors.join(",")), 64), "but the file has 64 of data");
}

#[test]
fn a_hundred_thousand_tensors_are_no_burden() {
    let tensors: Vec<String> = (0..100_000)
        .map(|i| format!(r#""t{i}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#))
        .collect();
    let bytes = file(format!("{{{}}}", tensors.join(",")), 0);
    let start = Instant::now();
    assert_eq!(Safetensors::parse(bytes).unwrap().tensors().len(), 100_000);
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

#[test]
fn every_prefix_of_a_file_is_refused() {
    let whole = file(GOOD, 64);
    Safetensors::parse(whole.clone()).unwrap();
    for len in 0..whole.len() {
        assert!(Safetensors::parse(whole[..len].to_vec()).is_err(), "{len}");
    }
}

fn index(folder: &Path, map: &str) -> String {
    let path = folder.join("model.safetensors.index.json");
    fs::write(&path, format!(r#"{{"metadata":{{"total_size":1}},"weight_map":{map}}}"#)).expect("written");
    match Safetensors::open(&path) {
        Ok(model) => format!("ok {}", model.tensors().len()),
        Err(e) => e.to_string(),
    }
}

#[test]
fn a_folder_of_shards_is_one_model() {
    let folder = tempfile::tempdir().unwrap();
    let shard = |name: &str, tensor: &str, value: f32| {
        let mut bytes =
            file(format!(r#"{{"{tensor}":{{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}}}"#), 0);
        bytes.extend(value.to_le_bytes());
        fs::write(folder.path().join(name), bytes).unwrap();
    };
    shard("one.safetensors", "a", 1.0);
    shard("two.safetensors", "b", 2.0);
    assert!(Safetensors::open(folder.path()).unwrap_err().to_string().contains("has neither"));
    assert_eq!(index(folder.path(), r#"{"a":"one.safetensors","b":"two.safetensors"}"#), "ok 2");
    let model = Safetensors::open(folder.path()).unwrap();
    assert_eq!((model.f32s("a").unwrap(), model.f32s("b").unwrap()), (vec![1.0], vec![2.0]));

    let wrong = |map: &str| index(folder.path(), map);
    assert!(
        wrong(r#"{"a":"one.safetensors","x":"two.safetensors"}"#).contains("`x`: is listed in the index")
    );
    assert!(wrong(r#"{"a":"two.safetensors"}"#).contains("`a`: is listed in the index"));
    assert!(wrong(r#"{"a":"one.safetensors","b":"one.safetensors"}"#).contains("`b`: is listed"));
    shard("more.safetensors", "a", 3.0);
    assert!(wrong(r#"{"b":"two.safetensors","a":"nope.safetensors"}"#).contains("nope.safetensors"));
    assert!(wrong("{}").contains("`weight_map` is missing"));
    assert!(wrong("[]").contains("is not the JSON"));
    assert!(wrong(r#"{"a":1}"#).contains("is not the JSON"));

    let single = tempfile::tempdir().unwrap();
    fs::write(single.path().join("model.safetensors"), file(GOOD, 64)).unwrap();
    assert_eq!(Safetensors::open(single.path()).unwrap().tensors().len(), 1);
}

#[test]
fn shards_are_plain_files_beside_the_index() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("outside.safetensors"), file(GOOD, 64)).unwrap();
    let inner = folder.path().join("inner");
    fs::create_dir_all(inner.join("dir.safetensors")).unwrap();
    for name in [
        "../outside.safetensors",
        "../../../../etc/passwd",
        "/dev/zero",
        "/etc/passwd",
        "inner/../outside.safetensors",
        "..\\\\outside.safetensors",
        "C:outside.safetensors",
        ".hidden.safetensors",
        "outside.safetensors\\u0000",
        "",
        ".",
        "..",
    ] {
        let message = index(&inner, &format!(r#"{{"a":"{name}"}}"#));
        assert!(message.contains("is not the plain name of a .safetensors file"), "{name}: {message}");
    }
    assert!(index(&inner, r#"{"a":"dir.safetensors"}"#).contains("is a directory"));
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("/dev/zero", inner.join("zero.safetensors")).unwrap();
        assert!(index(&inner, r#"{"a":"zero.safetensors"}"#).contains("is not a regular file"));
    }
}
