//! Heads that are read, and the many that are refused, each by its reason.
#![cfg(test)]

use serde_json::{Value, json};

use super::*;
use crate::testing::{TinyHead, TinySpec};
use crate::{Family, Gguf};

fn target() -> TinySpec {
    TinySpec { layers: 4, ..TinySpec::new(Family::Llama) }
}

fn tiny(format: HeadFormat) -> TinyHead {
    TinyHead::new(&target(), format, 7)
}

fn parse(head: &TinyHead) -> Result<DraftHead, ModelError> {
    DraftHead::parse(&head.config_bytes(), head.safetensors())
}

/// The error of a head after `change`, which must say all of `parts`.
fn refused(format: HeadFormat, change: impl Fn(&mut TinyHead), parts: &[&str]) {
    let mut head = tiny(format);
    change(&mut head);
    let error = parse(&head).expect_err("such a head is refused").to_string();
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
}

#[test]
fn each_format_says_what_it_taps_and_where_guesses_begin() {
    let of = |format| parse(&tiny(format)).unwrap().config().clone();
    let speculators = of(HeadFormat::Speculators);
    // Indices of hidden_states, whose entry 0 is the embedding.
    assert_eq!((speculators.taps, speculators.first_slot), (vec![0, 1, 2], 0));
    assert_eq!((speculators.draft_vocab, speculators.markov_rank), (159, 16));
    assert_eq!(speculators.confidence, Some(true));
    let deepspec = of(HeadFormat::DeepSpec);
    assert_eq!((deepspec.taps, deepspec.first_slot), (vec![0, 1, 2], 0));
    assert_eq!((deepspec.draft_vocab, deepspec.target_layers), (320, Some(4)));
    let dflash = of(HeadFormat::Dflash);
    assert_eq!((dflash.taps, dflash.first_slot), (vec![0, 1, 2], 1));
    assert_eq!((dflash.markov_rank, dflash.confidence), (0, None));
}

#[test]
fn the_first_slot_of_speculators_files_follows_their_rule() {
    let slot = |change: fn(&mut TinyHead)| {
        let mut head = tiny(HeadFormat::Speculators);
        change(&mut head);
        parse(&head).unwrap().config().first_slot
    };
    let proposing = |n: u64| json!({"algorithm": "dspark", "proposal_methods": [{"speculative_tokens": n}]});
    assert_eq!(slot(|_| {}), 0);
    assert_eq!(slot(|head| head.set("sample_from_anchor", json!(false))), 1);
    assert_eq!(slot(|head| head.set("sample_from_anchor", Value::Null)), 1, "older than the flag");
    for (n, expected) in [(5, 0), (4, 1), (6, 0)] {
        let mut head = tiny(HeadFormat::Speculators);
        head.set("speculators_config", proposing(n));
        assert_eq!(parse(&head).unwrap().config().first_slot, expected, "{n} tokens of a block of 5");
    }
}

#[test]
fn draft_ids_are_read_as_offsets() {
    let head = parse(&tiny(HeadFormat::Speculators)).unwrap();
    let ids: Vec<u32> = (0..159).map(|j| 2 * j + 2).collect();
    assert_eq!(head.draft_ids(), Some(&ids[..]));
    assert_eq!(parse(&tiny(HeadFormat::DeepSpec)).unwrap().draft_ids(), None);
}

#[test]
fn other_kinds_are_refused_by_name() {
    use HeadFormat::{DeepSpec, Dflash, Speculators};
    for kind in ["eagle3", "peagle", "mtp", "dflash2"] {
        refused(
            Speculators,
            |head| head.set("speculators_model_type", json!(kind)),
            &[kind, "not supported"],
        );
    }
    for architecture in ["Gemma4DSparkModel", "Lfm2DSparkDraftModel", "LlamaForCausalLMEagle3"] {
        refused(DeepSpec, |head| head.set("architectures", json!([architecture])), &[architecture]);
    }
    let projector = json!({"projector_type": "dspark", "target_layer_ids": [0], "mask_token_id": 3});
    refused(Dflash, |head| head.set("dflash_config", projector.clone()), &["`dspark`"]);
    refused(
        DeepSpec,
        |head| head.set("dflash_query_causal", json!(true)),
        &["dflash_query_causal", "variant"],
    );
    refused(Speculators, |head| head.set("markov_head_type", json!("rnn")), &["`rnn`", "vanilla"]);
    let yarn = json!({"rope_type": "yarn", "factor": 4.0});
    refused(DeepSpec, |head| head.set("rope_scaling", yarn.clone()), &["rope_scaling", "scaled ropes"]);
    refused(Speculators, |head| head.set("aux_hidden_state_layer_ids", json!([0, 2])), &["embedding"]);
    let gguf = DraftHead::open(Path::new("head.gguf")).expect_err("GGUF heads are refused").to_string();
    assert!(gguf.contains("GGUF"), "{gguf}");
}

#[test]
fn fields_that_cannot_be_are_refused_with_their_names() {
    use HeadFormat::Speculators;
    for (key, value, part) in [
        ("block_size", json!(1), "block of 1"),
        ("block_size", json!(0), "whole number"),
        ("block_size", json!(1e9), "whole number"),
        ("mask_token_id", json!(320), "outside the vocabulary"),
        ("mask_token_id", Value::Null, "missing"),
        ("draft_vocab_size", json!(321), "more than the vocabulary"),
        ("aux_hidden_state_layer_ids", json!([3, 2]), "ascending"),
        ("aux_hidden_state_layer_ids", json!([]), "ascending"),
        ("aux_hidden_state_layer_ids", json!("all"), "list of whole numbers"),
        ("markov_head_type", json!("gated"), "markov_head.gate_proj"),
        ("markov_rank", json!(0), "needs a Markov head"),
        ("target_hidden_size", json!(128), "128"),
    ] {
        refused(Speculators, |head| head.set(key, value.clone()), &[part]);
    }
    for (key, value) in
        [("num_key_value_heads", json!(3)), ("head_dim", json!(20)), ("hidden_act", json!("gelu"))]
    {
        refused(Speculators, |head| head.config["transformer_layer_config"][key] = value.clone(), &[key]);
    }
    let more_heads_than_numbers = |head: &mut TinyHead| {
        let layer = &mut head.config["transformer_layer_config"];
        layer["head_dim"] = Value::Null;
        layer["num_attention_heads"] = json!(4096);
        layer["num_key_value_heads"] = json!(4096);
    };
    refused(Speculators, more_heads_than_numbers, &["head_dim", "0"]);
}

#[test]
fn tensors_that_do_not_fit_are_refused_with_their_names() {
    use HeadFormat::{DeepSpec, Speculators};
    let names: Vec<String> =
        tiny(Speculators).tensors.into_keys().filter(|name| name != "lm_head.weight").collect();
    for name in &names {
        refused(Speculators, |head| drop(head.tensors.remove(name)), &[name, "missing"]);
        refused(Speculators, |head| head.tensors.get_mut(name).unwrap().1.insert(0, 1), &[name]);
    }
    // A head without its own output matrix is bound to the target's.
    let mut bound = tiny(Speculators);
    bound.tensors.remove("lm_head.weight");
    assert!(parse(&bound).is_ok());
    let gate = ("F32", vec![1], 1.0f32.to_le_bytes().to_vec());
    refused(
        DeepSpec,
        |head| drop(head.tensors.insert("markov_head.gate.weight".into(), gate.clone())),
        &["left out"],
    );
    let nan = f32::NAN.to_le_bytes();
    for name in ["fc.weight", "layers.1.mlp.down_proj.weight", "confidence_head.proj.bias"] {
        let spoil = |head: &mut TinyHead| head.tensors.get_mut(name).unwrap().2[..4].copy_from_slice(&nan);
        refused(Speculators, spoil, &[name, "not finite"]);
    }
    let d2t = |at: usize, value: i64| {
        move |head: &mut TinyHead| {
            head.tensors.get_mut("d2t").unwrap().2[at * 8..][..8].copy_from_slice(&value.to_le_bytes());
        }
    };
    refused(Speculators, d2t(5, 400), &["d2t", "outside the vocabulary"]);
    refused(Speculators, d2t(0, -1), &["d2t", "outside the vocabulary"]);
    refused(Speculators, d2t(5, 0), &["d2t", "does not rise"]);
    refused(Speculators, d2t(5, 8), &["t2d", "other tokens"]);
    refused(Speculators, |head| head.tensors.get_mut("d2t").unwrap().0 = "F64", &["d2t", "I64"]);
}

#[test]
fn damaged_files_are_errors() {
    let head = tiny(HeadFormat::Speculators);
    let (config, tensors) = (head.config_bytes(), head.safetensors());
    for cut in [0, 7, 8, 100, tensors.len() / 2, tensors.len() - 1] {
        assert!(DraftHead::parse(&config, tensors[..cut].to_vec()).is_err(), "{cut} bytes");
    }
    for cut in 0..config.len() {
        assert!(
            DraftHead::parse(&config[..cut], tensors.clone()).is_err(),
            "{cut} bytes of the configuration"
        );
    }
    assert!(DraftHead::parse(b"[1]", tensors).is_err());
    assert!(DraftHead::open(Path::new("no such folder")).is_err());
}

#[test]
fn another_target_is_refused_with_both_sizes() {
    let head = parse(&tiny(HeadFormat::DeepSpec)).unwrap();
    let check = |spec: TinySpec| {
        let model = Model::from_gguf(Gguf::parse(spec.gguf()).unwrap()).unwrap();
        head.check_target(&model).map_err(|error| error.to_string())
    };
    assert_eq!(check(target()), Ok(()));
    for (spec, parts) in [
        (TinySpec { hidden: 128, ..target() }, ["256", "128"]),
        (TinySpec { vocab: 400, ..target() }, ["320", "400"]),
        (TinySpec { layers: 5, ..target() }, ["4 layers", "5"]),
    ] {
        let error = check(spec).unwrap_err();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    let mut late = tiny(HeadFormat::Speculators);
    late.set("aux_hidden_state_layer_ids", json!([1, 2, 4]));
    let error =
        parse(&late).unwrap().check_target(&Model::from_gguf(Gguf::parse(target().gguf()).unwrap()).unwrap());
    assert!(error.unwrap_err().to_string().contains("behind layer 3"));
    let mut endless = parse(&tiny(HeadFormat::DeepSpec)).unwrap();
    endless.config.taps = vec![usize::MAX];
    let error = endless.check_target(&Model::from_gguf(Gguf::parse(target().gguf()).unwrap()).unwrap());
    assert!(error.unwrap_err().to_string().contains("behind layer"));
}
