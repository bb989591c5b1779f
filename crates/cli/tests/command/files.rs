//! Model files: missing, damaged, odd but legal; and what `inspect` says of them.

use std::time::{Duration, Instant};

use pilotfish_model::testing::{TinySpec, variants};
use pilotfish_model::{Family, GgufWriter};

use crate::harness::{Home, ids, keys};

/// Every case of damage must end this fast, in a debug build on a busy machine.
const LONGEST: Duration = Duration::from_secs(5);

#[test]
fn files_that_are_not_there_are_named() {
    let home = Home::new();
    home.run(&["run", "-m", "nowhere.gguf", "x"]).fails(1, &["nowhere.gguf"]);
    home.run(&["run", "-m", "smollm2-135n", "x"]).fails(1, &["smollm2-135n", "smollm2-135m"]);
    home.run(&["run", "-m", ".", "x"]).fails(1, &["folder"]);
    home.run(&["inspect", "nowhere.gguf"]).fails(1, &["nowhere.gguf"]);
    home.run(&["inspect", "smollm2-135m"]).fails(1, &["smollm2-135m", "pilotfish pull"]);
    home.run(&["run", "x"]).fails(1, &["smollm2-135m", "network is off", "pilotfish pull"]);
    home.run(&["pull", "--offline", "smollm2-135m"]).fails(1, &["network is off"]);
    home.run(&["models", "rm", "smollm2-135m"]).fails(1, &["smollm2-135m"]);
}

#[test]
fn files_that_are_not_models_are_refused() {
    let home = Home::with_model();
    for (name, bytes) in [
        ("empty.gguf", &b""[..]),
        ("short.gguf", b"GGU"),
        ("text.gguf", b"hello, this is no model at all"),
        ("zip.gguf", b"PK\x03\x04"),
    ] {
        home.write(name, bytes);
        home.run(&["run", "-m", name, "x"]).fails(1, &[name]);
        home.run(&["inspect", name]).fails(1, &[name]);
    }
    home.run(&["run", "-m", "model.gguf", "-md", "text.gguf", "x"]).fails(1, &["text.gguf"]);
}

#[test]
fn a_file_cut_anywhere_is_refused_at_once() {
    let home = Home::new();
    let whole =
        TinySpec { layers: 1, hidden: 64, heads: 2, head_dim: 32, ffn: 64, ..TinySpec::new(Family::Llama) }
            .gguf();
    let step = whole.len() / 12;
    for len in (0..whole.len()).step_by(step).chain([whole.len() - 1]) {
        home.write("cut.gguf", &whole[..len]);
        let start = Instant::now();
        home.run(&["inspect", "cut.gguf"]).fails(1, &["cut.gguf"]);
        assert!(start.elapsed() < LONGEST, "{len} bytes took {:?}", start.elapsed());
    }
    home.write("whole.gguf", &whole);
    home.run(&["inspect", "whole.gguf"]).ok();
}

/// A header with the counts given, then `rest`.
fn header(n_tensors: u64, n_kv: u64, rest: &[u8]) -> Vec<u8> {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3_u32.to_le_bytes());
    bytes.extend(n_tensors.to_le_bytes());
    bytes.extend(n_kv.to_le_bytes());
    bytes.extend(rest);
    bytes
}

/// A string as GGUF writes it, with any length in front.
fn string(len: u64, text: &[u8]) -> Vec<u8> {
    [&len.to_le_bytes()[..], text].concat()
}

#[test]
fn absurd_headers_are_refused_without_effort() {
    let home = Home::new();
    let key = |kind: u32, rest: &[u8]| [&string(1, b"k"), &kind.to_le_bytes()[..], rest].concat();
    let tensor = |n_dims: u32, dims: &[u64], kind: u32| {
        let dims: Vec<u8> = dims.iter().flat_map(|dim| dim.to_le_bytes()).collect();
        [&string(1, b"t"), &n_dims.to_le_bytes()[..], &dims, &kind.to_le_bytes(), &0_u64.to_le_bytes()]
            .concat()
    };
    let cases = [
        ("tensor-count", header((1 << 63) - 1, 0, &[])),
        ("key-count", header(0, u64::MAX, &[])),
        ("key-length", header(0, 1, &string(1 << 63, b"k"))),
        ("string-length", header(0, 1, &key(8, &string(1 << 63, b"v")))),
        (
            "array-count",
            header(0, 1, &key(9, &[&4_u32.to_le_bytes()[..], &(1_u64 << 61).to_le_bytes()].concat())),
        ),
        ("value-type", header(0, 1, &key(99, &[]))),
        ("five-dims", header(1, 0, &tensor(5, &[1; 5], 0))),
        ("overflowing-dims", header(1, 0, &tensor(2, &[(1 << 63) - 1, 2], 0))),
        ("huge-row", header(1, 0, &tensor(1, &[1 << 62], 0))),
        ("tensor-type", header(1, 0, &tensor(1, &[1], 255))),
        ("version", [&b"GGUF"[..], &77_u32.to_le_bytes(), &[0; 16]].concat()),
    ];
    for (name, bytes) in cases {
        let file = format!("{name}.gguf");
        home.write(&file, &bytes);
        let start = Instant::now();
        home.run(&["inspect", &file]).fails(1, &[&file]);
        home.run(&["run", "-m", &file, "x"]).fails(1, &[&file]);
        assert!(start.elapsed() < 2 * LONGEST, "{name} took {:?}", start.elapsed());
    }
}

#[test]
fn names_in_messages_cannot_command_a_terminal() {
    let home = Home::new();
    let mut w = TinySpec::new(Family::Llama).writer();
    w.str("general.architecture", "evil\u{1b}[2J\n\rarchitecture");
    home.write("evil.gguf", &w.finish());
    let line = home.run(&["run", "-m", "evil.gguf", "x"]).fails(1, &["architecture", "llama", "gemma3"]);
    assert!(!line.contains('\u{1b}'), "{line:?}");
    let shown = home.run(&["inspect", "evil.gguf"]).ok();
    assert!(!shown.contains('\u{1b}') && shown.contains("cannot run"), "{shown:?}");
}

#[test]
fn odd_but_legal_files_load_and_answer_alike() {
    let home = Home::new();
    let all = variants();
    assert!(all.len() >= 30, "{}", all.len());
    let mut plain = None;
    for (name, bytes) in all {
        home.write("model.gguf", &bytes);
        let start = Instant::now();
        home.run(&["inspect", "model.gguf", "--json"]).json();
        let answer = home.answer(&["-n", "3", "--raw", "the fish"]);
        // 300,000 tokens and 500,000 merges included: limits must not make loading slow.
        assert!(start.elapsed() < Duration::from_secs(40), "{name} took {:?}", start.elapsed());
        let tokens = ids(&answer["tokens"]);
        assert!(!tokens.is_empty() && tokens.len() <= 3, "{name}: {tokens:?}");
        if name.starts_with("same-") {
            let same = plain.get_or_insert_with(|| tokens.clone());
            assert_eq!(*same, tokens, "{name}");
        }
    }
}

#[test]
fn inspect_tells_what_a_model_needs() {
    let home = Home::with_model();
    let report = home.run(&["inspect", "model.gguf", "--json", "-c", "100"]).json();
    assert_eq!(
        keys(&report),
        [
            "file",
            "format",
            "version",
            "alignment",
            "bytes",
            "metadata",
            "tensor_count",
            "parameters",
            "types",
            "runs"
        ]
    );
    let runs = &report["runs"];
    assert_eq!(runs["possible"], true);
    assert_eq!((runs["family"].as_str(), runs["trained_context"].as_u64()), (Some("llama"), Some(512)));
    // 2 layers × keys and values × 2 heads of 64 × 2 bytes.
    assert_eq!(runs["kv_bytes"], 100 * 2 * 2 * 2 * 64 * 2);
    let parts = ["weight_bytes", "kv_bytes", "work_bytes", "text_bytes"];
    let total: u64 = parts.iter().map(|part| runs[part].as_u64().unwrap()).sum();
    assert_eq!(runs["total_bytes"], total);
    assert!(runs["loading_bytes"].as_u64() >= Some(total), "{runs}");
    assert!(runs["work_bytes"].as_u64() > Some(0), "{runs}");
    assert_eq!(report["metadata"]["general.architecture"], "llama");
    let types = report["types"].as_array().unwrap();
    let sum: u64 = types.iter().map(|t| t["bytes"].as_u64().unwrap()).sum();
    assert!(sum < report["bytes"].as_u64().unwrap());
    home.run(&["inspect", "model.gguf", "-c", "513"]).fails(2, &["513", "512"]);
    let kept = ["inspect", "model.gguf", "--json", "-c", "100", "-ctk", "q8_0", "-ctv", "q8_0"];
    // A byte a number, and four for each 32.
    assert_eq!(home.run(&kept).json()["runs"]["kv_bytes"], 100 * 2 * 2 * 2 * (64 + 64 / 32 * 4));

    let text = home.run(&["inspect", "model.gguf", "--tensors"]).ok();
    assert!(text.contains("blk.1.ffn_down.weight") && text.contains("Q8_0"), "{text}");
    let short = home.run(&["inspect", "model.gguf"]).ok();
    assert!(!short.contains("blk.1.ffn_down.weight") && short.contains("[STRING; 320]"), "{short}");
    let full = home.run(&["inspect", "model.gguf", "--full", "--json"]).json();
    assert_eq!(full["metadata"]["tokenizer.ggml.tokens"].as_array().unwrap().len(), 320);
}

#[test]
fn inspect_shows_files_that_cannot_run() {
    let home = Home::new();
    let mut w = GgufWriter::new();
    w.str("general.architecture", "mamba").f32("odd.nan", f32::NAN);
    home.write("other.gguf", &w.finish());
    let report = home.run(&["inspect", "other.gguf", "--json"]).json();
    assert_eq!(report["runs"]["possible"], false);
    assert!(report["runs"]["reason"].as_str().unwrap().contains("mamba"));
    assert_eq!(report["metadata"]["odd.nan"], "NaN");
    home.run(&["run", "-m", "other.gguf", "x"]).fails(1, &["mamba", "llama", "qwen2", "qwen3", "gemma3"]);
}

#[test]
fn inspect_reads_safetensors() {
    let home = Home::new();
    let head = br#"{"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}"#;
    let mut bytes = (head.len() as u64).to_le_bytes().to_vec();
    bytes.extend(head);
    bytes.extend([0; 16]);
    home.write("x.safetensors", &bytes);
    let report = home.run(&["inspect", "x.safetensors", "--json", "--tensors"]).json();
    assert_eq!(report["format"], "safetensors");
    assert_eq!(report["tensors"][0]["shape"], serde_json::json!([2, 2]));
    home.write("cut.safetensors", &bytes[..bytes.len() - 1]);
    home.run(&["inspect", "cut.safetensors"]).fails(1, &["cut.safetensors"]);
}

#[test]
fn template_errors_are_found_at_load() {
    let home = Home::new();
    let mut w = TinySpec::new(Family::Llama).writer();
    w.str("tokenizer.chat_template", "{% for message in messages %}{{ message.content }");
    home.write("model.gguf", &w.finish());
    home.run(&["run", "-m", "model.gguf", "--raw", "x"]).fails(1, &["model.gguf", "template"]);
    home.run(&["chat", "-m", "model.gguf"]).fails(1, &["model.gguf", "template"]);
}
