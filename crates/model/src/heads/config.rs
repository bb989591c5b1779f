//! From a head's `config.json` to one description, whatever the format.
//!
//! Formats differ where it is easy to go wrong without an error, so each states its two rules beside the fields it
//! reads: which residual stream a tap is, and in which slot of a block the guesses begin.
//!
//! Invariant: a format that is not known, or a variant that would compute something else, is refused by its name.
//! Not here: tensors (`tensors`), whether a target fits (`DraftHead::check_target`).

use super::keys::Keys;
use crate::ModelError;

/// How a head is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadFormat {
    /// The `speculators` library (vLLM): DSpark or DFlash.
    Speculators,
    /// DeepSpec, as trained: DSpark or DFlash.
    DeepSpec,
    /// DFlash by its authors (z-lab).
    Dflash,
}

impl HeadFormat {
    /// Its name in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Speculators => "speculators",
            Self::DeepSpec => "DeepSpec",
            Self::Dflash => "z-lab DFlash",
        }
    }
}

/// What the rows of a block see of the context and of each other, in one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadWindow {
    /// Context positions before the block that are seen; `None` sees all.
    pub size: Option<usize>,
    /// Whether a row of the block sees only itself and the rows before it.
    pub causal: bool,
}

/// A head in numbers: a DFlash backbone, with DSpark's Markov and confidence heads where it has them.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadConfig {
    /// How it is stored.
    pub format: HeadFormat,
    /// Layers of the target whose residual stream it reads, in the order it wants them.
    pub taps: Vec<usize>,
    /// Layers of the target it was trained for, where it says.
    pub target_layers: Option<usize>,
    /// Width of its own and of the target's residual stream.
    pub hidden: usize,
    /// Width inside its MLPs.
    pub ffn: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads.
    pub n_kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// RMS norm epsilon.
    pub eps: f32,
    /// Base of the rope, which turns whole heads, halves paired.
    pub rope_base: f32,
    /// What each layer sees.
    pub layers: Vec<HeadWindow>,
    /// Whether its projections have biases.
    pub bias: bool,
    /// Tokens of the target.
    pub vocab: usize,
    /// Tokens it can guess; `vocab` where that is all of them.
    pub draft_vocab: usize,
    /// Rows of a block: the last token, then mask tokens.
    pub block: usize,
    /// First row that guesses: 0 where the last token's row does, 1 where only mask rows do.
    pub first_slot: usize,
    /// Token of the rows behind the last token.
    pub mask_token: u32,
    /// Rank of the Markov head; 0 for none.
    pub markov_rank: usize,
    /// Whether a gate of the row's hidden state and the token before scales the Markov head.
    pub markov_gated: bool,
    /// Whether it has a confidence head, and whether that sees the Markov head's embedding of the token before.
    pub confidence: Option<bool>,
}

impl HeadConfig {
    /// Most guesses of a block.
    pub fn guesses(&self) -> usize {
        self.block - self.first_slot
    }

    /// Finds the format out and reads it.
    pub(super) fn read(keys: Keys<'_>) -> Result<Self, ModelError> {
        let inner = keys.inside("speculators_config").text("algorithm");
        if let Some(kind) = keys.text("speculators_model_type").or(inner) {
            return match kind {
                "dspark" | "dflash" => speculators(keys, kind == "dspark"),
                _ => Err(keys.unsupported("speculators_model_type", not_handled(kind))),
            };
        }
        let architecture = keys.get("architectures").and_then(|list| list.get(0)?.as_str());
        let Some(architecture) = architecture else {
            return Err(keys.wrong("architectures", "must name the kind of head"));
        };
        let projector = keys.inside("dflash_config").text("projector_type");
        match architecture {
            "Qwen3DSparkModel" => deepspec(keys),
            "DFlashDraftModel" if projector.is_none() => dflash(keys),
            "DFlashDraftModel" => {
                Err(keys.unsupported("dflash_config", not_handled(projector.unwrap_or_default())))
            }
            other => Err(keys.unsupported("architectures", not_handled(other))),
        }
    }
}

fn not_handled(kind: &str) -> String {
    let kind = crate::error::printable(kind);
    format!(
        "heads of the kind `{kind}` are not supported; DSpark and DFlash are, as stored by speculators, DeepSpec or \
         z-lab"
    )
}

/// vLLM's speculators. A tap is an index of `hidden_states`, whose entry 0 is the embedding: the stream after layer
/// i - 1. Guesses begin in slot block - speculative tokens; else in slot 0 if `sample_from_anchor` says so, and in slot 1
/// otherwise: files without the flag were made before there was one.
fn speculators(keys: Keys<'_>, dspark: bool) -> Result<HeadConfig, ModelError> {
    let ids = "aux_hidden_state_layer_ids";
    let mut taps = keys.list(ids)?;
    if taps.contains(&0) {
        return Err(keys.unsupported(ids, "0 is the embedding, which no lane hands out"));
    }
    taps.iter_mut().for_each(|id| *id -= 1);
    let inner = keys.inside("transformer_layer_config");
    let block = keys.size("block_size")?;
    let proposals = keys.inside("speculators_config").get("proposal_methods").and_then(|list| list.get(0));
    let proposal = Keys { file: keys.file, object: proposals.unwrap_or(&serde_json::Value::Null) };
    let first_slot = match proposal.maybe_size("speculative_tokens")?.and_then(|n| block.checked_sub(n)) {
        Some(slot) => slot,
        None => usize::from(keys.maybe_flag("sample_from_anchor")? != Some(true)),
    };
    let causal = keys.maybe_flag("sliding_window_non_causal")? != Some(true);
    let mut head = backbone(HeadFormat::Speculators, inner, causal)?;
    if let Some(width) = keys.maybe_size("target_hidden_size")?.filter(|width| *width != head.hidden) {
        let problem = format!("{width} is another width than the head's own of {}", head.hidden);
        return Err(keys.unsupported("target_hidden_size", problem));
    }
    head.taps = taps;
    head.draft_vocab = keys.maybe_size("draft_vocab_size")?.unwrap_or(head.vocab);
    (head.block, head.first_slot, head.mask_token) = (block, first_slot, mask_token(keys)?);
    if dspark {
        sequential(keys, &mut head, 256)?;
    }
    head.checked(keys)
}

/// DeepSpec. A tap is the stream after layer i; guesses begin in slot 0. The target's own configuration stands at the
/// top, so that only known fields mean anything.
fn deepspec(keys: Keys<'_>) -> Result<HeadConfig, ModelError> {
    let foreign =
        ["dflash_query_causal", "attention_sink_bias", "has_lm_head", "logits_start", "log_snr_conditioning"];
    if let Some(key) = foreign.into_iter().find(|key| keys.get(key).is_some()) {
        return Err(keys.unsupported(key, "this variant of DeepSpec heads is not supported"));
    }
    let mut head = backbone(HeadFormat::DeepSpec, keys, true)?;
    head.taps = keys.list("target_layer_ids")?;
    head.target_layers = keys.maybe_size("num_target_layers")?;
    (head.block, head.mask_token) = (keys.size("block_size")?, mask_token(keys)?);
    head.draft_vocab = keys.maybe_size("draft_vocab_size")?.unwrap_or(head.vocab);
    sequential(keys, &mut head, 0)?;
    head.checked(keys)
}

/// z-lab's DFlash. A tap is the stream after layer i; guesses begin in slot 1. Its fields stand at the top or inside
/// `dflash_config`.
fn dflash(keys: Keys<'_>) -> Result<HeadConfig, ModelError> {
    let inner = keys.inside("dflash_config");
    let of = |key: &str| if inner.get(key).is_some() { inner } else { keys };
    let mut head = backbone(HeadFormat::Dflash, keys, true)?;
    head.taps = of("target_layer_ids").list("target_layer_ids")?;
    head.target_layers = keys.maybe_size("num_target_layers")?;
    head.block = of("block_size").size("block_size")?;
    head.mask_token = mask_token(of("mask_token_id"))?;
    head.first_slot = 1;
    head.checked(keys)
}

/// The fields of the backbone, which are those of a Qwen3 model.
fn backbone(format: HeadFormat, keys: Keys<'_>, causal: bool) -> Result<HeadConfig, ModelError> {
    let (hidden, n_heads) = (keys.size("hidden_size")?, keys.size("num_attention_heads")?);
    if keys.text("hidden_act").is_some_and(|act| act != "silu") {
        return Err(keys.unsupported("hidden_act", "only silu is supported"));
    }
    // Newer files keep the rope together.
    let together = keys.inside("rope_parameters");
    for (key, scaling) in [("rope_scaling", keys.inside("rope_scaling")), ("rope_parameters", together)] {
        let kind = scaling.text("rope_type").or(scaling.text("type")).unwrap_or("default");
        if kind != "default" {
            return Err(keys.unsupported(key, "scaled ropes are not supported in heads"));
        }
    }
    if keys.maybe_flag("rope_is_neox_style")? == Some(false) {
        return Err(keys.unsupported("rope_is_neox_style", "interleaved ropes are not supported in heads"));
    }
    let base = together.maybe_positive("rope_theta")?.or(keys.maybe_positive("rope_theta")?);
    let n_layers = keys.size("num_hidden_layers")?;
    let kinds = keys.get("layer_types").and_then(|list| list.as_array());
    let window = |layer: usize| -> Result<HeadWindow, ModelError> {
        match kinds.map(|list| list.get(layer).and_then(|kind| kind.as_str())) {
            None | Some(Some("full_attention")) => Ok(HeadWindow { size: None, causal: false }),
            Some(Some("sliding_attention")) => {
                Ok(HeadWindow { size: Some(keys.size("sliding_window")?), causal })
            }
            Some(_) => Err(keys.unsupported("layer_types", "must be full_attention or sliding_attention")),
        }
    };
    Ok(HeadConfig {
        format,
        taps: vec![],
        target_layers: None,
        hidden,
        ffn: keys.size("intermediate_size")?,
        n_heads,
        n_kv_heads: keys.maybe_size("num_key_value_heads")?.unwrap_or(n_heads),
        head_dim: keys.maybe_size("head_dim")?.unwrap_or(hidden / n_heads),
        eps: keys.maybe_positive("rms_norm_eps")?.unwrap_or(1e-6),
        rope_base: base.unwrap_or(10_000.0),
        layers: (0..n_layers.min(MOST_LAYERS + 1)).map(window).collect::<Result<_, _>>()?,
        bias: keys.maybe_flag("attention_bias")?.unwrap_or(false),
        vocab: keys.size("vocab_size")?,
        draft_vocab: keys.size("vocab_size")?,
        block: 0,
        first_slot: 0,
        mask_token: 0,
        markov_rank: 0,
        markov_gated: false,
        confidence: None,
    })
}

/// DSpark's Markov and confidence heads.
fn sequential(keys: Keys<'_>, head: &mut HeadConfig, default_rank: usize) -> Result<(), ModelError> {
    let none = keys.get("markov_rank").is_some_and(|rank| rank.as_u64() == Some(0));
    head.markov_rank = if none { 0 } else { keys.maybe_size("markov_rank")?.unwrap_or(default_rank) };
    if head.markov_rank > 0 {
        let kind = keys.text("markov_head_type").unwrap_or("vanilla");
        head.markov_gated = kind == "gated";
        if !matches!(kind, "vanilla" | "gated") {
            let kind = crate::error::printable(kind);
            let problem =
                format!("Markov heads of the kind `{kind}` are not supported; vanilla and gated ones are");
            return Err(keys.unsupported("markov_head_type", problem));
        }
    }
    if keys.maybe_flag("enable_confidence_head")?.unwrap_or(head.format == HeadFormat::Speculators) {
        let with_markov = keys.maybe_flag("confidence_head_with_markov")?.unwrap_or(true);
        if with_markov && head.markov_rank == 0 {
            return Err(keys.wrong("confidence_head_with_markov", "needs a Markov head"));
        }
        head.confidence = Some(with_markov);
    }
    Ok(())
}

fn mask_token(keys: Keys<'_>) -> Result<u32, ModelError> {
    let value = keys.get("mask_token_id");
    let value =
        value.ok_or_else(|| ModelError::missing(keys.file, crate::Section::Config, "mask_token_id"))?;
    let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
    id.ok_or_else(|| keys.wrong("mask_token_id", "must be a token id"))
}

/// Bounds that keep a hostile file from asking for much.
const MOST_LAYERS: usize = 32;
const MOST_BLOCK: usize = 64;
const MOST_TAPS: usize = 64;

impl HeadConfig {
    /// The rules every format shares.
    fn checked(self, keys: Keys<'_>) -> Result<Self, ModelError> {
        let (taps, block) = (&self.taps, self.block);
        if self.layers.len() > MOST_LAYERS {
            return Err(keys.wrong("num_hidden_layers", format!("must be at most {MOST_LAYERS}")));
        }
        if !(2..=MOST_BLOCK).contains(&block) || self.first_slot >= block {
            let problem =
                format!("a block of {block} whose guesses begin in slot {} is not possible", self.first_slot);
            return Err(keys.wrong("block_size", problem));
        }
        if taps.is_empty() || taps.len() > MOST_TAPS || !taps.is_sorted_by(|a, b| a < b) {
            return Err(keys.wrong("target layers", format!("must be 1 to {MOST_TAPS} layers, ascending")));
        }
        if !self.n_heads.is_multiple_of(self.n_kv_heads) {
            let problem = format!("{} do not divide {} query heads", self.n_kv_heads, self.n_heads);
            return Err(keys.wrong("num_key_value_heads", problem));
        }
        if self.head_dim == 0 || !self.head_dim.is_multiple_of(8) {
            let problem = format!("{} is no multiple of 8 above 0", self.head_dim);
            return Err(keys.unsupported("head_dim", problem));
        }
        if self.mask_token as usize >= self.vocab {
            let problem = format!("{} is outside the vocabulary of {}", self.mask_token, self.vocab);
            return Err(keys.wrong("mask_token_id", problem));
        }
        if self.draft_vocab > self.vocab {
            let problem = format!("{} is more than the vocabulary of {}", self.draft_vocab, self.vocab);
            return Err(keys.wrong("draft_vocab_size", problem));
        }
        Ok(self)
    }
}
