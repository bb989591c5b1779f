//! Tiny random models of every family and block type, as whole GGUF files.
//!
//! Names and keys are those llama.cpp's converter writes, so whatever reads real files reads these. Weights are
//! scaled so that activations stay near one through the layers and logits spread over several units: greedy
//! paths differ from prompt to prompt, and near-ties are rare.
//!
//! Invariant: the same spec gives the same bytes on every machine.
//! Not here: legal oddities of the format (`variants`), damage (`mutate`).

use pilotfish_tensor::BlockType;

use super::random::Random;
use super::vocabulary;
use crate::config::Family;
use crate::files::gguf::GgufWriter;

/// Shape and kind of a tiny model. Fields may be changed freely; rows must be whole blocks.
#[derive(Debug, Clone)]
pub struct TinySpec {
    /// Architecture.
    pub family: Family,
    /// Type of every matrix; norms and biases are F32.
    pub block_type: BlockType,
    /// Transformer blocks.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Elements of a head. `heads * head_dim` need not be `hidden`.
    pub head_dim: usize,
    /// Width inside the MLP.
    pub ffn: usize,
    /// Tokens, at least 263.
    pub vocab: usize,
    /// Positions.
    pub context: usize,
    /// True: the token table is also the output matrix.
    pub tied: bool,
    /// Positions a sliding layer sees (Gemma only).
    pub window: usize,
    /// Every so manyth layer sees everything (Gemma only).
    pub pattern: usize,
    /// Seed of the weights.
    pub seed: u64,
}

impl TinySpec {
    /// A small model: 2 layers of 256 (Gemma: 3, so that one of them is a full layer), 4 heads sharing 2, Q8_0.
    #[must_use]
    pub fn new(family: Family) -> TinySpec {
        let gemma = family == Family::Gemma3;
        TinySpec {
            family,
            block_type: BlockType::Q8_0,
            layers: if gemma { 3 } else { 2 },
            hidden: 256,
            heads: 4,
            kv_heads: 2,
            head_dim: 64,
            ffn: 512,
            vocab: 320,
            context: 512,
            tied: family != Family::Qwen3,
            window: 16,
            pattern: 3,
            seed: 1,
        }
    }

    /// The same with another type of matrices.
    #[must_use]
    pub fn with_type(mut self, block_type: BlockType) -> TinySpec {
        self.block_type = block_type;
        self
    }

    /// The same with other weights.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> TinySpec {
        self.seed = seed;
        self
    }

    /// The model as the bytes of a GGUF file.
    ///
    /// # Panics
    /// When rows are not whole blocks of `block_type`, or the vocabulary is too small.
    #[must_use]
    pub fn gguf(&self) -> Vec<u8> {
        self.writer().finish()
    }

    /// The model as a writer, for tests that want to change something before writing.
    ///
    /// # Panics
    /// As [`TinySpec::gguf`].
    #[must_use]
    pub fn writer(&self) -> GgufWriter {
        let mut w = GgufWriter::new();
        self.hyperparameters(&mut w);
        match self.family {
            Family::Llama => vocabulary::byte_level(&mut w, "smollm", self.vocab),
            Family::Qwen2 | Family::Qwen3 => vocabulary::byte_level(&mut w, "qwen2", self.vocab),
            Family::Gemma3 => vocabulary::sentence_piece(&mut w, self.vocab),
        }
        w.u32("general.quantization_version", 2);
        self.tensors(&mut w);
        w
    }

    fn hyperparameters(&self, w: &mut GgufWriter) {
        let name = self.family.name();
        let key = |key: &str| format!("{name}.{key}");
        w.str("general.architecture", name).str("general.type", "model");
        w.str("general.name", &format!("Tiny {name} {}", self.block_type.name()));
        for (field, value) in [
            ("block_count", self.layers),
            ("context_length", self.context),
            ("embedding_length", self.hidden),
            ("feed_forward_length", self.ffn),
            ("attention.head_count", self.heads),
            ("attention.head_count_kv", self.kv_heads),
            ("attention.key_length", self.head_dim),
            ("attention.value_length", self.head_dim),
        ] {
            w.u32(&key(field), value as u32);
        }
        w.f32(&key("attention.layer_norm_rms_epsilon"), 1e-6);
        match self.family {
            Family::Llama => {
                w.u32(&key("rope.dimension_count"), self.head_dim as u32);
                w.u32(&key("vocab_size"), self.vocab as u32).f32(&key("rope.freq_base"), 1e4);
            }
            Family::Qwen2 | Family::Qwen3 => {
                w.f32(&key("rope.freq_base"), 1e6);
            }
            Family::Gemma3 => {
                w.f32(&key("rope.freq_base"), 1e6);
                w.u32(&key("attention.sliding_window"), self.window as u32);
                w.u32(&key("attention.sliding_window_pattern"), self.pattern as u32);
            }
        }
    }

    fn tensors(&self, w: &mut GgufWriter) {
        let mut weights = Weights { spec: self, random: Random::new(self.seed), w };
        let gemma = self.family == Family::Gemma3;
        let (hidden, q, kv) = (self.hidden, self.heads * self.head_dim, self.kv_heads * self.head_dim);
        // With these scales logits have a deviation near 3. A tied output sees its own input again, and Gemma
        // multiplies embeddings by the root of their width: what the layers add must outweigh that, or every
        // model would repeat its last token for ever.
        let (table, last_norm) = if gemma { (0.05, 4.0) } else { (3.0 / (hidden as f32).sqrt(), 1.0) };
        let back = if gemma { 8.0 } else { 5.0 };
        weights.matrix("token_embd.weight", hidden, self.vocab, table);
        weights.vector("output_norm.weight", hidden, last_norm, 0.1);
        if !self.tied {
            weights.matrix("output.weight", hidden, self.vocab, table);
        }
        for layer in 0..self.layers {
            let name = |tensor: &str| format!("blk.{layer}.{tensor}");
            weights.vector(&name("attn_norm.weight"), hidden, 1.0, 0.1);
            for (tensor, rows) in [("attn_q", q), ("attn_k", kv), ("attn_v", kv)] {
                weights.linear(&name(&format!("{tensor}.weight")), hidden, rows, 1.0);
                if self.family == Family::Qwen2 {
                    weights.vector(&name(&format!("{tensor}.bias")), rows, 0.0, 0.1);
                }
            }
            if matches!(self.family, Family::Qwen3 | Family::Gemma3) {
                weights.vector(&name("attn_q_norm.weight"), self.head_dim, 1.2, 0.1);
                weights.vector(&name("attn_k_norm.weight"), self.head_dim, 1.2, 0.1);
            }
            weights.linear(&name("attn_output.weight"), q, hidden, back);
            if gemma {
                weights.vector(&name("post_attention_norm.weight"), hidden, back, 0.1);
            }
            weights.vector(&name("ffn_norm.weight"), hidden, 1.0, 0.1);
            weights.linear(&name("ffn_gate.weight"), hidden, self.ffn, 1.0);
            weights.linear(&name("ffn_up.weight"), hidden, self.ffn, 1.0);
            weights.linear(&name("ffn_down.weight"), self.ffn, hidden, back);
            if gemma {
                weights.vector(&name("post_ffw_norm.weight"), hidden, back, 0.1);
            }
        }
    }
}

/// Adds random tensors to a file.
struct Weights<'a> {
    spec: &'a TinySpec,
    random: Random,
    w: &'a mut GgufWriter,
}

impl Weights<'_> {
    /// `rows` rows of `k` numbers with the given deviation, in the spec's type.
    fn matrix(&mut self, name: &str, k: usize, rows: usize, deviation: f32) {
        let mut bytes = Vec::new();
        for _ in 0..rows {
            self.spec.block_type.encode(&self.random.normals(k, 0.0, deviation), &mut bytes);
        }
        self.w.tensor(name, &[k, rows], self.spec.block_type, bytes);
    }

    /// A matrix that multiplies the size of what goes through it by `gain`.
    fn linear(&mut self, name: &str, k: usize, rows: usize, gain: f32) {
        self.matrix(name, k, rows, gain / (k as f32).sqrt());
    }

    fn vector(&mut self, name: &str, n: usize, mean: f32, deviation: f32) {
        let mut bytes = Vec::new();
        BlockType::F32.encode(&self.random.normals(n, mean, deviation), &mut bytes);
        self.w.tensor(name, &[n], BlockType::F32, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    #[test]
    fn every_family_and_block_type_is_a_model() {
        for family in Family::ALL {
            for block_type in BlockType::ALL {
                let spec = TinySpec { layers: 1, vocab: 263, ..TinySpec::new(family).with_type(block_type) };
                let gguf = crate::Gguf::parse(spec.gguf()).unwrap();
                assert_eq!(gguf.tensor("token_embd.weight").unwrap().block_type, block_type);
                Model::from_gguf(gguf).unwrap_or_else(|e| panic!("{family:?} {block_type:?}: {e}"));
            }
        }
    }

    #[test]
    fn the_bytes_follow_from_the_spec() {
        let spec = TinySpec { layers: 1, ..TinySpec::new(Family::Qwen3) };
        assert_eq!(spec.gguf(), spec.gguf());
        assert_ne!(spec.gguf(), spec.clone().with_seed(2).gguf());
    }
}
