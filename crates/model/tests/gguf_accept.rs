//! Odd but legal GGUF files load, fast, and mean what they should.

use std::time::{Duration, Instant};

use pilotfish_model::files::gguf::{MAGIC, Value, ValueType};
use pilotfish_model::testing::{TinySpec, variants};
use pilotfish_model::text::{ChatTemplate, Specials, Tokenizer};
use pilotfish_model::{Family, Gguf, GgufWriter, Model};
use pilotfish_tensor::BlockType;

#[test]
fn every_legal_variant_loads_and_same_means_same() {
    let variants = variants();
    assert!(variants.len() >= 30, "{} variants", variants.len());
    let (first, plain) = &variants[0];
    assert_eq!(first, "same-plain");
    let plain = Gguf::parse(plain.clone()).unwrap();
    let mut names = std::collections::HashSet::new();
    for (name, bytes) in &variants {
        assert!(names.insert(name), "{name} is there twice");
        let gguf = Gguf::parse_named(name, bytes.clone()).unwrap_or_else(|e| panic!("{e}"));
        if name.starts_with("same-") {
            for tensor in plain.tensors() {
                let (ours, theirs) = (gguf.tensor_bytes(&tensor.name), plain.tensor_bytes(&tensor.name));
                assert!(ours.unwrap() == theirs.unwrap(), "{name}: {} differs", tensor.name);
            }
            let tokens = |g: &Gguf| {
                let tokens = g.metadata().require_strings("tokenizer.ggml.tokens").unwrap();
                tokens.iter().map(str::to_owned).collect::<Vec<_>>()
            };
            assert_eq!(tokens(&gguf), tokens(&plain), "{name}");
        }
        let tokenizer = Tokenizer::from_gguf(gguf.metadata()).unwrap_or_else(|e| panic!("{e}"));
        let template = ChatTemplate::from_gguf(gguf.metadata(), &tokenizer).unwrap_or_else(|e| panic!("{e}"));
        assert!(template.is_some(), "{name}");
        let text = "the cat and\n\u{fc}n\u{ef} \u{1f41f}";
        assert_eq!(tokenizer.decode(&tokenizer.encode(text, Specials::Plain)), text, "{name}");
        let model = Model::from_gguf(gguf).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(model.config().n_layers, 1, "{name}");
    }
}

/// Limits must not cost speed: 300,000 tokens and half a million merges, and ten times fewer, per entry.
#[test]
fn a_large_vocabulary_reads_in_linear_time() {
    let vocabulary = |n: usize| {
        let mut w = GgufWriter::new();
        w.strings("tokenizer.ggml.tokens", &(0..n).map(|i| format!("token{i}")).collect::<Vec<_>>());
        w.strings("tokenizer.ggml.merges", &(0..n * 5 / 3).map(|i| format!("left{i} r")).collect::<Vec<_>>());
        w.f32s("tokenizer.ggml.scores", &vec![-1.0; n]);
        w.finish()
    };
    let time = |bytes: &[u8]| {
        let best = (0..5).map(|_| {
            let bytes = bytes.to_vec();
            let start = Instant::now();
            let gguf = Gguf::parse(bytes).unwrap();
            let tokens = gguf.metadata().require_strings("tokenizer.ggml.tokens").unwrap();
            let total: usize = tokens.iter().map(str::len).sum();
            assert!(total > 0);
            start.elapsed()
        });
        best.min().unwrap()
    };
    let (small, large) = (time(&vocabulary(30_000)), time(&vocabulary(300_000)));
    // Linear is 10 times; quadratic would be 100. The second bound is for very coarse clocks.
    assert!(large < small * 40 || large < Duration::from_millis(50), "{small:?} for 30k, {large:?} for 300k");
    assert!(large < Duration::from_secs(1), "{large:?}");

    let gguf = Gguf::parse(vocabulary(300_000)).unwrap();
    let merges = gguf.metadata().require_strings("tokenizer.ggml.merges").unwrap();
    assert_eq!(
        (merges.len(), merges.get(499_999), merges.get(500_000)),
        (500_000, Some("left499999 r"), None)
    );
}

#[test]
fn a_vocabulary_of_two_million_loads() {
    let mut w = GgufWriter::new();
    w.strings("tokenizer.ggml.tokens", &vec![""; 2_000_000]);
    let gguf = Gguf::parse(w.finish()).unwrap();
    let tokens = gguf.metadata().require_strings("tokenizer.ggml.tokens").unwrap();
    assert_eq!((tokens.len(), tokens.get(1_999_999)), (2_000_000, Some("")));
}

#[test]
fn every_value_comes_back() {
    let scalars = [
        Value::U8(200),
        Value::I8(-100),
        Value::U16(60_000),
        Value::I16(-30_000),
        Value::U32(4_000_000_000),
        Value::I32(-2_000_000_000),
        Value::F32(0.1),
        Value::Bool(true),
        Value::Str("ø\u{0}\n"),
        Value::U64(u64::MAX),
        Value::I64(i64::MIN),
        Value::F64(0.1),
    ];
    for version in [2, 3] {
        let mut w = GgufWriter::new();
        w.version(version);
        for value in scalars {
            w.value(value.value_type().name(), value);
            w.array(&format!("{}s", value.value_type()), value.value_type(), &[value; 5]);
        }
        let gguf = Gguf::parse(w.finish()).unwrap();
        assert_eq!((gguf.version(), gguf.metadata().len()), (version, 24));
        for value in scalars {
            let value_type = value.value_type();
            assert_eq!(gguf.metadata().get(value_type.name()), Some(value));
            let Some(Value::Array(array)) = gguf.metadata().get(&format!("{value_type}s")) else {
                panic!("{value_type}s is no array");
            };
            assert_eq!((array.element_type(), array.len(), array.get(5)), (value_type, 5, None));
            assert!(array.iter().eq([value; 5]), "{value_type}");
        }
        let keys: Vec<&str> = gguf.metadata().iter().map(|(key, _)| key).collect();
        assert_eq!(keys[..4], ["UINT8", "UINT8s", "INT8", "INT8s"], "file order");
    }
}

#[test]
fn numbers_are_read_strictly_but_width_does_not_matter() {
    let mut w = GgufWriter::new();
    w.value("u8", Value::U8(7)).value("i64", Value::I64(7)).value("minus", Value::I8(-1));
    w.value("large", Value::U64(1 << 32)).f32("float", 7.0).str("text", "7").bool("yes", true);
    w.i32s("i32s", &[1, -2]).array("u32s", ValueType::U32, &[Value::U32(1), Value::U32(1 << 31)]);
    w.array("i8s", ValueType::I8, &[Value::I8(1)]).f32s("f32s", &[0.5]).strings("strings", &["a"]);
    let gguf = Gguf::parse(w.finish()).unwrap();
    let m = gguf.metadata();
    assert_eq!(
        (m.u32("u8").unwrap(), m.u32("i64").unwrap(), m.u32("none").unwrap()),
        (Some(7), Some(7), None)
    );
    assert_eq!((m.u64("large").unwrap(), m.f32("float").unwrap()), (Some(1 << 32), Some(7.0)));
    assert_eq!((m.str("text").unwrap(), m.bool("yes").unwrap()), (Some("7"), Some(true)));
    assert_eq!(
        (m.require_i32s("i32s").unwrap(), m.u32s("u32s").unwrap().unwrap()),
        (vec![1, -2], vec![1, 1 << 31])
    );
    assert_eq!(m.require_f32s("f32s").unwrap(), [0.5]);
    let refused = [
        ("minus", m.u32("minus").err()),
        ("large", m.u32("large").err()),
        ("float", m.u32("float").err()),
        ("text", m.u32("text").err()),
        ("yes", m.u32("yes").err()),
        ("u8", m.f32("u8").err()),
        ("u8", m.bool("u8").err()),
        ("u8", m.str("u8").err()),
        ("strings", m.str("strings").err()),
        ("text", m.strings("text").err()),
        ("i8s", m.i32s("i8s").err()),
        ("u32s", m.i32s("u32s").err()),
        ("i32s", m.u32s("i32s").err()),
        ("i32s", m.f32s("i32s").err()),
        ("f32s", m.strings("f32s").err()),
        ("none", m.require_u32("none").err()),
        ("none", m.require_strings("none").err()),
    ];
    for (index, (key, error)) in refused.into_iter().enumerate() {
        let error = error.unwrap_or_else(|| panic!("case {index} was accepted"));
        assert_eq!(error.name(), Some(key), "{error}");
        assert!(error.to_string().starts_with(&format!("<memory>: metadata key `{key}`")), "{error}");
    }
}

#[test]
fn tensors_come_back_with_their_bytes() {
    let mut w = GgufWriter::new();
    let all: Vec<(String, Vec<u8>)> = BlockType::ALL
        .iter()
        .enumerate()
        .map(|(i, block_type)| {
            let row = block_type.row_bytes(512).unwrap();
            let bytes: Vec<u8> = (0..row * 6).map(|b| (b * 31 + i) as u8).collect();
            (block_type.name().to_owned(), bytes)
        })
        .collect();
    for (block_type, (name, bytes)) in BlockType::ALL.iter().zip(&all) {
        w.tensor(name, &[512, 3, 1, 2], *block_type, bytes.clone());
    }
    let gguf = Gguf::parse(w.finish()).unwrap();
    assert_eq!(gguf.tensors().len(), BlockType::ALL.len());
    for (block_type, (name, bytes)) in BlockType::ALL.iter().zip(&all) {
        let tensor = gguf.require_tensor(name).unwrap();
        assert_eq!((tensor.block_type, tensor.n_bytes), (*block_type, bytes.len()));
        assert_eq!((tensor.row_len(), tensor.n_rows(), tensor.n_elements()), (512, 6, 3072));
        assert_eq!(gguf.tensor_bytes(name).unwrap(), bytes);
    }
    let missing = gguf.tensor_bytes("Q9").unwrap_err().to_string();
    assert_eq!(missing, "<memory>: tensor `Q9` is missing");
}

#[test]
fn a_file_is_mapped_and_labelled_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    let bytes = TinySpec::new(Family::Qwen3).gguf();
    std::fs::write(&path, &bytes).unwrap();
    let gguf = Gguf::open(&path).unwrap();
    assert_eq!((gguf.file(), gguf.file_len()), (path.to_str().unwrap(), bytes.len() as u64));
    assert!(gguf.bytes().mapped().is_some() && gguf.bytes().starts_with(&MAGIC));
    let clone = gguf.clone();
    drop(gguf);
    assert_eq!(clone.metadata().require_str("general.architecture").unwrap(), "qwen3");
}
