//! Tiny random drafter heads, as `config.json` and the bytes of a safetensors file.
//!
//! Invariant: the same spec gives the same bytes on every machine.
//! Not here: heads that guess well, which take training.

use std::collections::BTreeMap;

use pilotfish_tensor::BlockType;
use serde_json::{Map, Value, json};

use super::TinySpec;
use super::random::Random;
use crate::heads::HeadFormat;

/// A tensor as a file holds it: type, shape, bytes.
type Tensor = (&'static str, Vec<usize>, Vec<u8>);

/// Shape and kind of a tiny head. Fields and entries may be changed freely, to something wrong too.
#[derive(Clone, Debug)]
pub struct TinyHead {
    /// The fields of `config.json`.
    pub config: Value,
    /// Tensors by name: type, shape, bytes.
    pub tensors: BTreeMap<String, Tensor>,
}

impl TinyHead {
    /// A head of two layers for `target`, in `format`: DSpark, but for z-lab's format. A block of 5; the draft vocabulary
    /// is every other token from 2 on.
    #[must_use]
    pub fn new(target: &TinySpec, format: HeadFormat, seed: u64) -> TinyHead {
        let dspark = format != HeadFormat::Dflash;
        let reduced = format == HeadFormat::Speculators;
        let taps: Vec<usize> = (0..target.layers - 1).collect();
        let (heads, kv_heads, head_dim, ffn, rank, layers) = (4, 2, 32, 96, 16, 2);
        let backbone = json!({
            "model_type": "qwen3", "hidden_size": target.hidden, "num_attention_heads": heads,
            "num_key_value_heads": kv_heads, "head_dim": head_dim, "intermediate_size": ffn,
            "num_hidden_layers": layers, "rms_norm_eps": 1e-6, "vocab_size": target.vocab, "hidden_act": "silu",
            "attention_bias": false, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        });
        let draft_vocab = if reduced { target.vocab / 2 - 1 } else { target.vocab };
        let sequential = json!({
            "markov_rank": rank, "markov_head_type": "vanilla", "enable_confidence_head": true,
            "confidence_head_with_markov": true,
        });
        let config = match format {
            HeadFormat::Speculators => join(&[
                &json!({
                    "architectures": ["DSparkSpeculator"], "speculators_model_type": "dspark", "block_size": 5,
                    "aux_hidden_state_layer_ids": taps.iter().map(|tap| tap + 1).collect::<Vec<_>>(),
                    "mask_token_id": 3, "draft_vocab_size": draft_vocab, "sample_from_anchor": true,
                    "transformer_layer_config": backbone,
                }),
                &sequential,
            ]),
            HeadFormat::DeepSpec => join(&[
                &json!({
                    "architectures": ["Qwen3DSparkModel"], "block_size": 5, "target_layer_ids": taps,
                    "num_target_layers": target.layers, "mask_token_id": 3,
                }),
                &backbone,
                &sequential,
            ]),
            HeadFormat::Dflash => join(&[
                &json!({
                    "architectures": ["DFlashDraftModel"], "block_size": 5, "num_target_layers": target.layers,
                    "dflash_config": {"target_layer_ids": taps, "mask_token_id": 3},
                }),
                &backbone,
            ]),
        };
        let mut head = TinyHead { config, tensors: BTreeMap::new() };
        let mut random = Random::new(seed);
        let hidden = target.hidden;
        head.linear(&mut random, "fc.weight", hidden, taps.len() * hidden);
        head.norms(&mut random, &["hidden_norm.weight", "norm.weight"], hidden);
        for layer in 0..layers {
            let name = |tensor: &str| format!("layers.{layer}.{tensor}.weight");
            let norms = ["input_layernorm", "post_attention_layernorm"].map(&name);
            head.norms(&mut random, &norms.each_ref().map(String::as_str), hidden);
            let norms = ["self_attn.q_norm", "self_attn.k_norm"].map(&name);
            head.norms(&mut random, &norms.each_ref().map(String::as_str), head_dim);
            for (tensor, rows, k) in [
                ("self_attn.q_proj", heads * head_dim, hidden),
                ("self_attn.k_proj", kv_heads * head_dim, hidden),
                ("self_attn.v_proj", kv_heads * head_dim, hidden),
                ("self_attn.o_proj", hidden, heads * head_dim),
                ("mlp.gate_proj", ffn, hidden),
                ("mlp.up_proj", ffn, hidden),
                ("mlp.down_proj", hidden, ffn),
            ] {
                head.linear(&mut random, &name(tensor), rows, k);
            }
        }
        if dspark {
            head.linear(&mut random, "markov_head.markov_w1.weight", target.vocab, rank);
            head.linear(&mut random, "markov_head.markov_w2.weight", draft_vocab, rank);
            head.linear(&mut random, "confidence_head.proj.weight", 1, hidden + rank);
            head.floats("confidence_head.proj.bias", vec![1], &[0.25]);
        }
        if reduced {
            head.linear(&mut random, "lm_head.weight", draft_vocab, hidden);
            // Draft token j is target token 2 j + 2.
            let offsets = (0..draft_vocab as i64).flat_map(|j| (j + 2).to_le_bytes()).collect();
            head.tensors.insert("d2t".to_owned(), ("I64", vec![draft_vocab], offsets));
            let marks = (0..target.vocab).map(|id| u8::from(id >= 2 && id % 2 == 0)).collect();
            head.tensors.insert("t2d".to_owned(), ("BOOL", vec![target.vocab], marks));
        }
        head
    }

    /// `config.json`.
    #[must_use]
    pub fn config_bytes(&self) -> Vec<u8> {
        self.config.to_string().into_bytes()
    }

    /// The tensors as the bytes of a safetensors file.
    #[must_use]
    pub fn safetensors(&self) -> Vec<u8> {
        let (mut header, mut data) = (Map::new(), Vec::new());
        for (name, (dtype, shape, bytes)) in &self.tensors {
            let start = data.len();
            data.extend_from_slice(bytes);
            let entry = json!({"dtype": dtype, "shape": shape, "data_offsets": [start, data.len()]});
            header.insert(name.clone(), entry);
        }
        let header = Value::Object(header).to_string();
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend_from_slice(header.as_bytes());
        file.extend_from_slice(&data);
        file
    }

    /// Sets a field of the configuration.
    pub fn set(&mut self, key: &str, value: Value) {
        self.config[key] = value;
    }

    fn floats(&mut self, name: &str, shape: Vec<usize>, numbers: &[f32]) {
        let mut bytes = Vec::new();
        BlockType::F32.encode(numbers, &mut bytes);
        self.tensors.insert(name.to_owned(), ("F32", shape, bytes));
    }

    fn linear(&mut self, random: &mut Random, name: &str, rows: usize, k: usize) {
        let numbers = random.normals(rows * k, 0.0, 2.0 / (k as f32).sqrt());
        self.floats(name, vec![rows, k], &numbers);
    }

    fn norms(&mut self, random: &mut Random, names: &[&str], n: usize) {
        for name in names {
            let numbers = random.normals(n, 1.0, 0.1);
            self.floats(name, vec![n], &numbers);
        }
    }
}

/// The fields of several objects as one.
fn join(objects: &[&Value]) -> Value {
    let fields = objects.iter().filter_map(|object| object.as_object()).flatten();
    Value::Object(fields.map(|(key, value)| (key.clone(), value.clone())).collect())
}
