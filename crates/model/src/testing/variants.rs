//! The same tiny llama model written in many odd but legal ways, and a few unusual models.
//!
//! A loader that is strict about damage must not be strict about freedom: every file here must load and answer.
//! Those whose name starts with `same-` hold the same model, so they must answer alike.
//!
//! Invariant: names are unique and can be file names.
//! Not here: damaged files (`mutate`).

use pilotfish_tensor::BlockType;

use super::tiny::TinySpec;
use super::vocabulary;
use crate::config::Family;
use crate::files::gguf::{Gguf, GgufWriter, Value, ValueType};

/// Legal files by name; the first is `same-plain`, written in the usual way.
#[must_use]
pub fn variants() -> Vec<(String, Vec<u8>)> {
    let mut out = vec![("same-plain".to_owned(), spec().gguf())];
    let mut add = |name: &str, bytes: Vec<u8>| out.push((name.to_owned(), bytes));
    let same = |change: &dyn Fn(&mut GgufWriter)| {
        let mut w = spec().writer();
        change(&mut w);
        w.finish()
    };

    for alignment in [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 65_536] {
        add(&format!("same-alignment-{alignment}"), same(&|w| _ = w.alignment(alignment)));
    }
    add("same-version-2", same(&|w| _ = w.version(2)));
    add("same-version-2-alignment-64", same(&|w| _ = w.version(2).alignment(64)));

    add("same-keys-sorted", same(&|w| _ = w.reorder_keys(|keys| keys.sort_unstable())));
    add("same-keys-reversed", same(&|w| _ = w.reorder_keys(|keys| keys.reverse())));
    add(
        "same-keys-by-length-alignment-last",
        same(&|w| {
            _ = w
                .alignment(128)
                .reorder_keys(|keys| keys.sort_by_key(|k| (*k == "general.alignment", k.len())))
        }),
    );
    add("same-table-reversed", same(&|w| _ = w.reverse_tensors()));
    add("same-data-reversed", same(&|w| _ = w.reversed_data()));
    add("same-table-and-data-reversed", same(&|w| _ = w.reverse_tensors().reversed_data()));
    add("same-gap-of-1", same(&|w| _ = w.gap(1)));
    add("same-gap-of-7-alignment-4096", same(&|w| _ = w.gap(7).alignment(4096)));
    for n in [1, 31, 4096] {
        let mut bytes = spec().gguf();
        bytes.extend((0..n).map(|i| (i % 251) as u8));
        add(&format!("same-trailing-{n}"), bytes);
    }

    add(
        "same-extra-numbers",
        same(&|w| SCALARS.iter().for_each(|v| _ = w.value(&extra(v.value_type()), *v))),
    );
    add("same-extra-arrays", same(&extra_arrays));
    add("same-extra-empty-arrays", same(&empty_arrays));
    add("same-extra-strings", same(&extra_strings));
    add("same-extra-long-key", same(&|w| _ = w.u32(&"k".repeat(65_535), 1)));
    add("same-extra-long-string", same(&|w| _ = w.str("extra.text", &"pilot fish ".repeat(100_000))));
    add("same-extra-5000-keys", same(&|w| (0..5000).for_each(|i| _ = w.u32(&format!("extra.{i}"), i))));
    add("same-extra-500000-numbers", same(&|w| _ = w.i32s("extra.numbers", &vec![-7; 500_000])));
    add("same-split-count-1", same(&|w| _ = w.value("split.count", Value::U16(1))));
    add("same-no-name", same(&|w| _ = w.remove("general.name").remove("general.type")));

    add("same-sizes-as-u64", same(&|w| _ = w.value("llama.block_count", Value::U64(1))));
    add("same-sizes-as-i32", same(&|w| _ = w.value("llama.embedding_length", Value::I32(128))));
    add("same-sizes-as-u8", same(&|w| _ = w.value("llama.attention.head_count", Value::U8(4))));
    add("same-ids-as-i32", same(&|w| _ = w.value("tokenizer.ggml.eos_token_id", Value::I32(319))));
    add("same-token-types-as-u32", same(&token_types_as_u32));
    add("same-scores-without-use", same(&|w| _ = w.f32s("tokenizer.ggml.scores", &vec![0.0; spec().vocab])));
    add(
        "same-no-head-size",
        same(&|w| {
            _ = w.remove("llama.attention.key_length").remove("llama.attention.value_length");
        }),
    );
    add("same-shapes-padded-with-ones", copy(|dims| dims.resize(4, 1)));
    add("same-copied", copy(|_| ()));
    add(
        "same-extra-tensor",
        same(&|w| _ = w.tensor(&"n".repeat(64), &[3, 5, 7], BlockType::F32, vec![0xff; 420])),
    );

    add("untied", TinySpec { tied: false, ..spec() }.gguf());
    add("all-f32", spec().with_type(BlockType::F32).gguf());
    add("one-head", TinySpec { heads: 1, kv_heads: 1, ..spec() }.gguf());
    add("every-head-its-own-keys", TinySpec { kv_heads: 4, ..spec() }.gguf());
    let mut no_merges = TinySpec { vocab: 259, ..spec() }.writer();
    no_merges.strings::<&str>("tokenizer.ggml.merges", &[]);
    add("no-merges", no_merges.finish());
    add("vocabulary-300000", large_vocabulary());
    out
}

/// One layer of 128: a file of some 200 KB.
fn spec() -> TinySpec {
    TinySpec { layers: 1, hidden: 128, heads: 4, head_dim: 32, ffn: 256, ..TinySpec::new(Family::Llama) }
}

/// One value of each scalar type, at an edge of its range.
const SCALARS: [Value<'static>; 12] = [
    Value::U8(u8::MAX),
    Value::I8(i8::MIN),
    Value::U16(u16::MAX),
    Value::I16(i16::MIN),
    Value::U32(u32::MAX),
    Value::I32(i32::MIN),
    Value::F32(f32::NAN),
    Value::Bool(true),
    Value::Str("värde\u{0}\n\u{1f41f}"),
    Value::U64(u64::MAX),
    Value::I64(i64::MIN),
    Value::F64(f64::NEG_INFINITY),
];

fn extra(value_type: ValueType) -> String {
    format!("extra.{}", value_type.name().to_lowercase())
}

fn extra_arrays(w: &mut GgufWriter) {
    for value in SCALARS {
        w.array(&extra(value.value_type()), value.value_type(), &[value; 3]);
    }
}

fn empty_arrays(w: &mut GgufWriter) {
    for value_type in ValueType::ALL {
        // An empty array of arrays would still be nested, which is refused.
        if value_type != ValueType::Array {
            w.array(&extra(value_type), value_type, &[]);
        }
    }
}

fn extra_strings(w: &mut GgufWriter) {
    w.str("extra.empty", "").str("extra.schlüssel.鍵", "Ø").str(" ", "a key of one space");
    w.strings("extra.strings", &["", "a", "\u{0}", "\u{10ffff}", "{{ not a template }}"]);
}

fn token_types_as_u32(w: &mut GgufWriter) {
    let n = spec().vocab;
    let types: Vec<Value<'_>> = (0..n).map(|id| Value::U32(if id + 3 < n { 1 } else { 3 })).collect();
    w.array("tokenizer.ggml.token_type", ValueType::U32, &types);
}

/// The model read and written again, with other but equal shapes.
fn copy(reshape: impl Fn(&mut Vec<usize>)) -> Vec<u8> {
    let gguf = Gguf::parse(spec().gguf()).expect("the plain model is legal");
    let mut w = GgufWriter::new();
    gguf.metadata().iter().for_each(|(key, value)| _ = w.value(key, value));
    for tensor in gguf.tensors() {
        let mut dims = tensor.dims.clone();
        reshape(&mut dims);
        let bytes = gguf.tensor_bytes(&tensor.name).expect("it is in the list");
        w.tensor(&tensor.name, &dims, tensor.block_type, bytes.to_vec());
    }
    w.finish()
}

/// 300,000 tokens and more than 500,000 merges on a very small model.
fn large_vocabulary() -> Vec<u8> {
    let small = TinySpec { hidden: 32, head_dim: 8, ffn: 64, vocab: 300_000, ..spec() };
    let mut w = small.with_type(BlockType::Q4_0).writer();
    vocabulary::large_byte_level(&mut w, 300_000);
    w.finish()
}
