//! The coarse operations a graph is made of, and the handles they use.
//!
//! Shapes are written `[rows, width]` for values and `[n_out, k]` for weights (`k` contiguous).

/// Handle of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub(super) usize);

/// Handle of a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightId(pub(super) usize);

/// Handle of a rope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RopeId(pub(super) usize);

impl ValueId {
    /// Position in the graph's value arena.
    pub fn index(self) -> usize {
        self.0
    }
}

impl WeightId {
    /// Position in the graph's weight arena.
    pub fn index(self) -> usize {
        self.0
    }
}

impl RopeId {
    /// Position in the graph's rope arena.
    pub fn index(self) -> usize {
        self.0
    }
}

/// A weight by name, with the shape the graph needs it to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightSpec {
    /// Tensor name, as GGUF files spell it.
    pub name: String,
    /// Output rows; 1 for a vector.
    pub n_out: usize,
    /// Contiguous inputs of one output row.
    pub k: usize,
}

/// Which elements of a head one rotation pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeStyle {
    /// Elements `i` and `i + dims / 2` (GPT-NeoX, Hugging Face).
    Neox,
    /// Elements `2 i` and `2 i + 1` (GGUF files of the llama family).
    Interleaved,
}

/// How positions beyond the trained context are folded back.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Positions as they are.
    None,
    /// Every position divided by this factor.
    Linear(f32),
    /// Each frequency divided by its own factor, `dims / 2` of them (Llama 3's
    /// `rope_freqs.weight`).
    PerFrequency(WeightId),
    /// YaRN (arXiv 2309.00071): interpolates low frequencies, keeps high ones, scales attention.
    Yarn {
        /// Context extension factor.
        factor: f32,
        /// Trained context the factor extends.
        original_context: usize,
        /// Rotations above which a frequency is kept.
        beta_fast: f32,
        /// Rotations below which a frequency is interpolated.
        beta_slow: f32,
        /// Multiplier of the rotated vectors.
        attention_factor: f32,
    },
}

/// Rotary position embedding (arXiv 2104.09864) of one kind of layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Which elements form a pair.
    pub style: RopeStyle,
    /// Rotated elements of each head, an even number; the rest pass through.
    pub dims: usize,
    /// Base of the frequencies, `base^(-2 i / dims)`.
    pub base: f32,
    /// Treatment of long positions.
    pub scaling: RopeScaling,
}

/// The non-linearity of a gated MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// Gaussian error linear unit, tanh form.
    GeluTanh,
}

/// One operation. `out` values are assigned here and nowhere else.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Rows of the token table, `weight: [vocab, hidden]`, times `scale`.
    Embed {
        /// Token table.
        weight: WeightId,
        /// Multiplier.
        scale: f32,
        /// `[rows, hidden]`.
        out: ValueId,
    },
    /// Root-mean-square norm over groups of `group` elements: the whole row, or each head.
    RmsNorm {
        /// `[rows, width]`.
        x: ValueId,
        /// `[group]`.
        weight: WeightId,
        /// Added to the mean square.
        eps: f32,
        /// Elements normed together; divides the width.
        group: usize,
        /// `[rows, width]`.
        out: ValueId,
    },
    /// `x · weightᵀ (+ bias)`.
    Linear {
        /// `[rows, k]`.
        x: ValueId,
        /// `[n_out, k]`.
        weight: WeightId,
        /// `[n_out]`.
        bias: Option<WeightId>,
        /// `[rows, n_out]`.
        out: ValueId,
    },
    /// Rotates every head by its row's position.
    Rope {
        /// `[rows, n_heads * head_dim]`.
        x: ValueId,
        /// Parameters.
        rope: RopeId,
        /// Elements of a head.
        head_dim: usize,
        /// Same shape as `x`.
        out: ValueId,
    },
    /// Causal attention over the layer's cache, to which `k` and `v` are appended first.
    Attention {
        /// `[rows, n_heads * head_dim]`.
        q: ValueId,
        /// `[rows, n_kv_heads * head_dim]`.
        k: ValueId,
        /// `[rows, n_kv_heads * head_dim]`.
        v: ValueId,
        /// Which cache.
        layer: usize,
        /// Query heads; a multiple of `n_kv_heads`.
        n_heads: usize,
        /// Key and value heads.
        n_kv_heads: usize,
        /// Elements of a head.
        head_dim: usize,
        /// Most positions a row sees, itself included; `None` sees all.
        window: Option<usize>,
        /// Multiplier of the scores.
        scale: f32,
        /// `[rows, n_heads * head_dim]`.
        out: ValueId,
    },
    /// `down · (activation(gate · x) * (up · x))`.
    GatedMlp {
        /// `[rows, hidden]`.
        x: ValueId,
        /// `[ffn, hidden]`.
        gate: WeightId,
        /// `[ffn, hidden]`.
        up: WeightId,
        /// `[hidden, ffn]`.
        down: WeightId,
        /// Applied to the gate.
        activation: Activation,
        /// `[rows, hidden]`.
        out: ValueId,
    },
    /// `a + b`.
    Add {
        /// `[rows, width]`.
        a: ValueId,
        /// `[rows, width]`.
        b: ValueId,
        /// `[rows, width]`.
        out: ValueId,
    },
    /// Names the residual stream after layer `layer`, which a drafter head may read.
    Tap {
        /// `[rows, hidden]`.
        x: ValueId,
        /// 0-based layer it comes after.
        layer: usize,
    },
    /// The vocabulary projection: logits `[rows, vocab]`.
    Head {
        /// `[rows, hidden]`.
        x: ValueId,
        /// `[vocab, hidden]`.
        weight: WeightId,
    },
}

impl Op {
    /// Values read.
    pub fn inputs(&self) -> Vec<ValueId> {
        match *self {
            Op::Embed { .. } => Vec::new(),
            Op::RmsNorm { x, .. }
            | Op::Linear { x, .. }
            | Op::Rope { x, .. }
            | Op::GatedMlp { x, .. }
            | Op::Tap { x, .. }
            | Op::Head { x, .. } => vec![x],
            Op::Attention { q, k, v, .. } => vec![q, k, v],
            Op::Add { a, b, .. } => vec![a, b],
        }
    }

    /// The value assigned, if any.
    pub fn output(&self) -> Option<ValueId> {
        match *self {
            Op::Embed { out, .. }
            | Op::RmsNorm { out, .. }
            | Op::Linear { out, .. }
            | Op::Rope { out, .. }
            | Op::Attention { out, .. }
            | Op::GatedMlp { out, .. }
            | Op::Add { out, .. } => Some(out),
            Op::Tap { .. } | Op::Head { .. } => None,
        }
    }
}
