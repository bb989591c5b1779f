//! A model's hyperparameters, read from GGUF metadata and checked as one struct.
//!
//! Invariant: in a [`Config`] every size is positive and bounded, heads divide evenly, and every
//! float is finite, so graph building cannot divide by zero or overflow.
//! Not here: what the family does with them (`families`), tensor shapes (`Model`).

use crate::ModelError;
use crate::files::gguf::{Gguf, Metadata};
use crate::graph::{RopeScaling, RopeStyle};

/// Limits no known model comes near; they bound what a damaged file can make us allocate.
const MAX_LAYERS: usize = 1024;
const MAX_WIDTH: usize = 1 << 20;
const MAX_CONTEXT: usize = 1 << 30;

/// An architecture this crate can build a graph for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Llama 2 and 3, SmolLM2, Mistral.
    Llama,
    /// Qwen 2 and 2.5: biases on the query, key and value projections.
    Qwen2,
    /// Qwen 3: norms on query and key heads.
    Qwen3,
    /// Gemma 3: sandwich norms, sliding-window layers, scaled embeddings.
    Gemma3,
}

impl Family {
    /// Every family.
    pub const ALL: [Self; 4] = [Self::Llama, Self::Qwen2, Self::Qwen3, Self::Gemma3];

    /// Spelling in `general.architecture`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Gemma3 => "gemma3",
        }
    }

    fn from_metadata(metadata: &Metadata) -> Result<Self, ModelError> {
        let key = "general.architecture";
        let name = metadata.require_str(key)?;
        Self::ALL.into_iter().find(|family| family.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            let shown: String = name.chars().take(40).flat_map(char::escape_default).collect();
            metadata.unsupported(key, format!("unknown architecture `{shown}`; known are {known}"))
        })
    }
}

/// Rotary embedding parameters as a file gives them.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeConfig {
    /// Pairing of elements.
    pub style: RopeStyle,
    /// Rotated elements of a head.
    pub dims: usize,
    /// Base of the frequencies.
    pub base: f32,
    /// Long-position treatment; per-frequency factors are added when their tensor exists.
    pub scaling: RopeScaling,
}

/// Layers that see only the most recent positions.
#[derive(Clone, Debug, PartialEq)]
pub struct SlidingConfig {
    /// Positions a row sees, itself included.
    pub window: usize,
    /// Every `pattern`-th layer sees everything; the others slide.
    pub pattern: usize,
    /// Rope base of the sliding layers.
    pub base: f32,
}

/// A model's hyperparameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Architecture.
    pub family: Family,
    /// Transformer blocks.
    pub n_layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width inside the MLP.
    pub ffn: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads.
    pub n_kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Rows of the token table.
    pub vocab: usize,
    /// Positions the model was trained for.
    pub context: usize,
    /// RMS norm epsilon.
    pub eps: f32,
    /// Rope of full-attention layers.
    pub rope: RopeConfig,
    /// Sliding-window layers, where the family has them.
    pub sliding: Option<SlidingConfig>,
    /// Whether a separate output matrix exists (else the token table serves).
    pub has_output: bool,
    /// Whether `rope_freqs.weight` exists.
    pub has_rope_freqs: bool,
    /// Whether query, key and value projections have biases.
    pub has_qkv_bias: bool,
}

impl Config {
    /// Reads and checks the hyperparameters of a GGUF file.
    ///
    /// # Errors
    /// Names the key or tensor that is missing, of the wrong type, out of range, or unsupported.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, ModelError> {
        let metadata = gguf.metadata();
        let family = Family::from_metadata(metadata)?;
        let keys = Keys { metadata, prefix: family.name() };

        if metadata.u32(&keys.name("expert_count"))?.is_some_and(|n| n > 0) {
            return Err(metadata
                .unsupported(&keys.name("expert_count"), "mixture-of-experts models are not supported"));
        }
        if metadata.f32(&keys.name("final_logit_softcapping"))?.is_some_and(|cap| cap != 0.0) {
            return Err(metadata
                .unsupported(&keys.name("final_logit_softcapping"), "capped logits are not supported"));
        }
        let n_layers = keys.size("block_count", MAX_LAYERS)?;
        let hidden = keys.size("embedding_length", MAX_WIDTH)?;
        let ffn = keys.size("feed_forward_length", MAX_WIDTH)?;
        let n_heads = keys.size("attention.head_count", MAX_WIDTH)?;
        let n_kv_heads = keys.optional_size("attention.head_count_kv", MAX_WIDTH)?.unwrap_or(n_heads);
        if n_kv_heads > n_heads || !n_heads.is_multiple_of(n_kv_heads) {
            return Err(keys.invalid(
                "attention.head_count_kv",
                format!("{n_kv_heads} key-value heads do not divide {n_heads} query heads"),
            ));
        }
        let head_dim = match keys.optional_size("attention.key_length", MAX_WIDTH)? {
            Some(head_dim) => head_dim,
            None if hidden.is_multiple_of(n_heads) => hidden / n_heads,
            None => {
                return Err(keys.invalid(
                    "attention.head_count",
                    format!("{n_heads} heads do not divide the embedding length {hidden}"),
                ));
            }
        };
        if keys.optional_size("attention.value_length", MAX_WIDTH)?.is_some_and(|v| v != head_dim) {
            return Err(metadata.unsupported(
                &keys.name("attention.value_length"),
                "value heads of another size than key heads are not supported",
            ));
        }
        let eps_key = "attention.layer_norm_rms_epsilon";
        let eps = metadata.require_f32(&keys.name(eps_key))?;
        if !eps.is_finite() || eps < 0.0 {
            return Err(keys.invalid(eps_key, format!("the norm epsilon is {eps}")));
        }
        let table = gguf.require_tensor("token_embd.weight")?;
        Ok(Self {
            family,
            n_layers,
            hidden,
            ffn,
            n_heads,
            n_kv_heads,
            head_dim,
            vocab: table.n_rows(),
            context: keys.size("context_length", MAX_CONTEXT.max(u32::MAX as usize))?.min(MAX_CONTEXT),
            eps,
            rope: rope(&keys, family, head_dim)?,
            sliding: if family == Family::Gemma3 { sliding(&keys)? } else { None },
            has_output: gguf.tensor("output.weight").is_some(),
            has_rope_freqs: gguf.tensor("rope_freqs.weight").is_some(),
            has_qkv_bias: gguf.tensor("blk.0.attn_q.bias").is_some(),
        })
    }

    /// Whether `layer` sees only a window.
    pub fn slides(&self, layer: usize) -> Option<&SlidingConfig> {
        self.sliding.as_ref().filter(|s| !(layer + 1).is_multiple_of(s.pattern))
    }

    /// Numbers in the keys and values of one position, all layers together.
    pub fn kv_numbers_per_position(&self) -> u64 {
        (self.n_layers as u64) * 2 * (self.n_kv_heads as u64) * (self.head_dim as u64)
    }
}

fn rope(keys: &Keys<'_>, family: Family, head_dim: usize) -> Result<RopeConfig, ModelError> {
    let style = match family {
        Family::Llama => RopeStyle::Interleaved,
        Family::Qwen2 | Family::Qwen3 | Family::Gemma3 => RopeStyle::Neox,
    };
    let dims = keys.optional_size("rope.dimension_count", MAX_WIDTH)?.unwrap_or(head_dim);
    if dims > head_dim || !dims.is_multiple_of(2) {
        return Err(keys.invalid(
            "rope.dimension_count",
            format!("{dims} rotated elements do not fit heads of {head_dim} (an even number is needed)"),
        ));
    }
    let default_base = if family == Family::Gemma3 { 1e6 } else { 1e4 };
    let base = keys.positive("rope.freq_base")?.unwrap_or(default_base);
    Ok(RopeConfig { style, dims, base, scaling: scaling(keys)? })
}

fn scaling(keys: &Keys<'_>) -> Result<RopeScaling, ModelError> {
    let factor = match keys.positive("rope.scaling.factor")? {
        Some(factor) => Some(factor),
        None => keys.positive("rope.scale_linear")?,
    };
    let kind = match (keys.metadata.str(&keys.name("rope.scaling.type"))?, factor) {
        (Some(kind), _) => kind,
        (None, Some(_)) => "linear",
        (None, None) => "none",
    };
    match kind {
        "none" => Ok(RopeScaling::None),
        "linear" => Ok(RopeScaling::Linear(factor.unwrap_or(1.0))),
        "yarn" => {
            let factor = factor.ok_or_else(|| keys.metadata.missing(&keys.name("rope.scaling.factor")))?;
            let original_context = keys.size("rope.scaling.original_context_length", u32::MAX as usize)?;
            // The paper's attention temperature, on top of what the file asks for.
            let own = keys.positive("rope.scaling.attn_factor")?.unwrap_or(1.0);
            Ok(RopeScaling::Yarn {
                factor,
                original_context,
                beta_fast: keys.positive("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
                beta_slow: keys.positive("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
                attention_factor: own * (1.0 + 0.1 * factor.ln()),
            })
        }
        other => {
            let shown: String = other.chars().take(40).flat_map(char::escape_default).collect();
            let known = "none, linear, yarn";
            Err(keys.metadata.unsupported(
                &keys.name("rope.scaling.type"),
                format!("unknown rope scaling `{shown}`; known are {known}"),
            ))
        }
    }
}

fn sliding(keys: &Keys<'_>) -> Result<Option<SlidingConfig>, ModelError> {
    let Some(window) = keys.optional_size("attention.sliding_window", u32::MAX as usize)? else {
        return Ok(None);
    };
    // Older files leave both out: Gemma 3 alternates five sliding layers with a full one.
    let pattern = keys.optional_size("attention.sliding_window_pattern", MAX_LAYERS)?.unwrap_or(6);
    let base = keys.positive("rope.freq_base_swa")?.unwrap_or(1e4);
    Ok(Some(SlidingConfig { window, pattern, base }))
}

/// Reads keys of the form `{architecture}.{key}`.
struct Keys<'a> {
    metadata: &'a Metadata,
    prefix: &'static str,
}

impl Keys<'_> {
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.prefix)
    }

    fn invalid(&self, key: &str, problem: impl Into<String>) -> ModelError {
        self.metadata.invalid(&self.name(key), problem)
    }

    fn size(&self, key: &str, max: usize) -> Result<usize, ModelError> {
        self.optional_size(key, max)?.ok_or_else(|| self.metadata.missing(&self.name(key)))
    }

    fn optional_size(&self, key: &str, max: usize) -> Result<Option<usize>, ModelError> {
        let Some(value) = self.metadata.u32(&self.name(key))? else { return Ok(None) };
        match usize::try_from(value) {
            Ok(size) if (1..=max).contains(&size) => Ok(Some(size)),
            _ => Err(self.invalid(key, format!("is {value}; 1 to {max} is possible"))),
        }
    }

    fn positive(&self, key: &str) -> Result<Option<f32>, ModelError> {
        match self.metadata.f32(&self.name(key))? {
            Some(value) if !(value.is_finite() && value > 0.0) => {
                Err(self.invalid(key, format!("is {value}; a positive number is needed")))
            }
            value => Ok(value),
        }
    }
}
