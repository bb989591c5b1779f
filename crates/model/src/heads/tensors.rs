//! The tensors a head must have, and checks of all of them.
//!
//! Names are those of the published trainers and the same in every format read here. A tensor that is not known would be
//! left out of the computation, so it is refused, as is a number that is not finite.
//!
//! Invariant: after `check`, every tensor the configuration implies is there, with its shape and finite.
//! Not here: what is computed with them (lanes).

use std::collections::BTreeMap;

use super::{DraftHead, HeadConfig};
use crate::files::safetensors::{Dtype, Safetensors};
use crate::{ModelError, Section};

/// Target tokens of the draft vocabulary, as offsets.
const D2T: &str = "d2t";
/// Which target tokens are in the draft vocabulary.
const T2D: &str = "t2d";

/// A head whose tensors were all looked at.
pub(super) fn check(config: HeadConfig, tensors: Safetensors) -> Result<DraftHead, ModelError> {
    let wanted = wanted(&config);
    let wrong = |name: &str, problem: String| {
        ModelError::malformed(tensors.file(), Section::TensorTable, Some(name), None, problem)
    };
    for (name, (shape, required)) in &wanted {
        match tensors.tensor(name) {
            None if *required => return Err(ModelError::missing(tensors.file(), Section::TensorTable, name)),
            None => {}
            Some(tensor) if tensor.shape != *shape => {
                let problem = format!("has shape {:?}; the configuration needs {shape:?}", tensor.shape);
                return Err(wrong(name, problem));
            }
            Some(_) if !all_finite(&tensors, name)? => {
                let problem = "holds a number that is not finite";
                return Err(ModelError::malformed(
                    tensors.file(),
                    Section::TensorData,
                    Some(name),
                    None,
                    problem,
                ));
            }
            Some(_) => {}
        }
    }
    let ignored = |name: &str| {
        name.starts_with("verifier_") || name == D2T || name == T2D || name.ends_with("inv_freq")
    };
    if let Some(extra) = tensors.tensors().iter().find(|t| !wanted.contains_key(&t.name) && !ignored(&t.name))
    {
        let problem = "is no part of a head of this kind, and would be left out";
        return Err(ModelError::unsupported(
            tensors.file(),
            Section::TensorTable,
            Some(&extra.name),
            problem,
        ));
    }
    let draft_ids = draft_ids(&config, &tensors)?;
    Ok(DraftHead { config, tensors, draft_ids })
}

/// Names, shapes, and whether a head must have them.
fn wanted(config: &HeadConfig) -> BTreeMap<String, (Vec<usize>, bool)> {
    let HeadConfig { hidden, ffn, head_dim, vocab, draft_vocab, markov_rank, .. } = *config;
    let (q, kv) = (config.n_heads * head_dim, config.n_kv_heads * head_dim);
    let mut all = BTreeMap::new();
    let mut add = |name: String, shape: &[usize], required: bool| {
        all.insert(name, (shape.to_vec(), required));
    };
    add("fc.weight".into(), &[hidden, config.taps.len() * hidden], true);
    add("hidden_norm.weight".into(), &[hidden], true);
    add("norm.weight".into(), &[hidden], true);
    add("embed_tokens.weight".into(), &[vocab, hidden], false);
    add("lm_head.weight".into(), &[draft_vocab, hidden], false);
    for layer in 0..config.layers.len() {
        let name = |tensor: &str| format!("layers.{layer}.{tensor}");
        add(name("input_layernorm.weight"), &[hidden], true);
        add(name("post_attention_layernorm.weight"), &[hidden], true);
        for (proj, rows, k) in [("q", q, hidden), ("k", kv, hidden), ("v", kv, hidden), ("o", hidden, q)] {
            add(name(&format!("self_attn.{proj}_proj.weight")), &[rows, k], true);
            if config.bias {
                add(name(&format!("self_attn.{proj}_proj.bias")), &[rows], true);
            }
        }
        add(name("self_attn.q_norm.weight"), &[head_dim], true);
        add(name("self_attn.k_norm.weight"), &[head_dim], true);
        add(name("mlp.gate_proj.weight"), &[ffn, hidden], true);
        add(name("mlp.up_proj.weight"), &[ffn, hidden], true);
        add(name("mlp.down_proj.weight"), &[hidden, ffn], true);
    }
    if markov_rank > 0 {
        add("markov_head.markov_w1.weight".into(), &[vocab, markov_rank], true);
        add("markov_head.markov_w2.weight".into(), &[draft_vocab, markov_rank], true);
    }
    if config.markov_gated {
        add("markov_head.gate_proj.weight".into(), &[markov_rank, hidden + markov_rank], true);
        add("markov_head.gate_proj.bias".into(), &[markov_rank], true);
    }
    if let Some(with_markov) = config.confidence {
        let width = hidden + if with_markov { markov_rank } else { 0 };
        add("confidence_head.proj.weight".into(), &[1, width], true);
        add("confidence_head.proj.bias".into(), &[1], true);
    }
    all
}

/// Looks at a tensor piece by piece, so that a large one costs no memory of its size.
fn all_finite(tensors: &Safetensors, name: &str) -> Result<bool, ModelError> {
    let rows = tensors.require_tensor(name)?.shape.first().copied().unwrap_or(1);
    let mut row = Vec::new();
    for at in 0..rows {
        tensors.row_f32s(name, at, &mut row)?;
        if !row.iter().all(|x| x.is_finite()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The target tokens a head can guess, ascending; none where it guesses all.
fn draft_ids(config: &HeadConfig, tensors: &Safetensors) -> Result<Option<Vec<u32>>, ModelError> {
    let HeadConfig { vocab, draft_vocab, .. } = *config;
    if draft_vocab == vocab {
        return Ok(None);
    }
    let wrong = |name: &str, problem: String| {
        ModelError::malformed(tensors.file(), Section::TensorData, Some(name), None, problem)
    };
    let offsets = typed(tensors, D2T, Dtype::I64, draft_vocab)?;
    let mut ids: Vec<u32> = Vec::with_capacity(draft_vocab);
    for (at, bytes) in offsets.as_chunks::<8>().0.iter().enumerate() {
        let target = i64::from_le_bytes(*bytes).checked_add(at as i64);
        match target.and_then(|id| u32::try_from(id).ok()).filter(|id| (*id as usize) < vocab) {
            Some(id) if ids.last().is_none_or(|last| *last < id) => ids.push(id),
            Some(_) => return Err(wrong(D2T, format!("entry {at} does not rise"))),
            None => return Err(wrong(D2T, format!("entry {at} leads outside the vocabulary of {vocab}"))),
        }
    }
    let mask = typed(tensors, T2D, Dtype::BOOL, vocab)?;
    let marked = mask.iter().enumerate().filter(|(_, byte)| **byte != 0).map(|(id, _)| id as u32);
    if !marked.eq(ids.iter().copied()) {
        return Err(wrong(T2D, "marks other tokens than `d2t` leads to".to_owned()));
    }
    Ok(Some(ids))
}

/// The bytes of a list of `len` elements.
fn typed<'a>(tensors: &'a Safetensors, name: &str, dtype: Dtype, len: usize) -> Result<&'a [u8], ModelError> {
    let tensor = tensors.require_tensor(name)?;
    if tensor.dtype != dtype || tensor.shape != [len] {
        let problem =
            format!("must be {len} numbers of type {dtype}, and is {:?} of {}", tensor.shape, tensor.dtype);
        return Err(ModelError::malformed(tensors.file(), Section::TensorTable, Some(name), None, problem));
    }
    tensors.bytes(name)
}
