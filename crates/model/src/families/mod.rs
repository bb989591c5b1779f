//! Turns a checked [`Config`] into a graph, one screen a family.
//!
//! Every family is a stack of blocks around the same residual stream; what differs (norms,
//! biases, ropes, windows, activations) is spelled out in the family's own file.
//! Tensor names are GGUF's.
//! Not here: hyperparameters (`config`), running anything (`pilotfish-lane`).

mod gemma3;
mod llama;
mod qwen2;
mod qwen3;

use crate::config::{Config, Family};
use crate::graph::{Graph, GraphBuilder, GraphError, Rope, RopeId, RopeScaling, WeightId};

/// Builds the graph of a model.
///
/// # Errors
/// [`GraphError`] when the sizes do not fit together.
pub fn build(config: &Config) -> Result<Graph, GraphError> {
    match config.family {
        Family::Llama => llama::build(config),
        Family::Qwen2 => qwen2::build(config),
        Family::Qwen3 => qwen3::build(config),
        Family::Gemma3 => gemma3::build(config),
    }
}

/// Names the tensors of one block, with the shapes all families share.
struct Block<'a> {
    g: &'a mut GraphBuilder,
    config: &'a Config,
    layer: usize,
}

impl Block<'_> {
    fn name(&self, tensor: &str) -> String {
        format!("blk.{}.{tensor}", self.layer)
    }

    fn norm(&mut self, tensor: &str) -> WeightId {
        let name = self.name(tensor);
        self.g.vector(name, self.config.hidden)
    }

    fn head_norm(&mut self, tensor: &str) -> WeightId {
        let name = self.name(tensor);
        self.g.vector(name, self.config.head_dim)
    }

    /// The weights of the query, key and value projections, in this order.
    fn qkv(&mut self) -> [WeightId; 3] {
        let (q, kv) = (self.q_width(), self.kv_width());
        [("attn_q.weight", q), ("attn_k.weight", kv), ("attn_v.weight", kv)].map(|(tensor, n_out)| {
            let name = self.name(tensor);
            self.g.matrix(name, n_out, self.config.hidden)
        })
    }

    /// Their biases, where the file has them.
    fn qkv_biases(&mut self) -> [Option<WeightId>; 3] {
        if !self.config.has_qkv_bias {
            return [None; 3];
        }
        let (q, kv) = (self.q_width(), self.kv_width());
        [("attn_q.bias", q), ("attn_k.bias", kv), ("attn_v.bias", kv)].map(|(tensor, n)| {
            let name = self.name(tensor);
            Some(self.g.vector(name, n))
        })
    }

    fn attention_output(&mut self) -> WeightId {
        let (name, q) = (self.name("attn_output.weight"), self.q_width());
        self.g.matrix(name, self.config.hidden, q)
    }

    fn mlp(&mut self) -> [WeightId; 3] {
        let (hidden, ffn) = (self.config.hidden, self.config.ffn);
        [("ffn_gate.weight", ffn, hidden), ("ffn_up.weight", ffn, hidden), ("ffn_down.weight", hidden, ffn)]
            .map(|(tensor, n_out, k)| {
                let name = self.name(tensor);
                self.g.matrix(name, n_out, k)
            })
    }

    // Products of sizes that Config bounds; saturating keeps a hostile pair from wrapping.
    fn q_width(&self) -> usize {
        self.config.n_heads.saturating_mul(self.config.head_dim)
    }

    fn kv_width(&self) -> usize {
        self.config.n_kv_heads.saturating_mul(self.config.head_dim)
    }
}

fn block<'a>(g: &'a mut GraphBuilder, config: &'a Config, layer: usize) -> Block<'a> {
    Block { g, config, layer }
}

fn token_table(g: &mut GraphBuilder, config: &Config) -> WeightId {
    g.matrix("token_embd.weight", config.vocab, config.hidden)
}

/// The output matrix: its own where the file has one, else the token table.
fn output_matrix(g: &mut GraphBuilder, config: &Config) -> WeightId {
    let name = if config.has_output { "output.weight" } else { "token_embd.weight" };
    g.matrix(name, config.vocab, config.hidden)
}

fn output_norm(g: &mut GraphBuilder, config: &Config) -> WeightId {
    g.vector("output_norm.weight", config.hidden)
}

/// The rope of full-attention layers.
fn rope(g: &mut GraphBuilder, config: &Config) -> RopeId {
    let rope = &config.rope;
    let scaling = if config.has_rope_freqs {
        RopeScaling::PerFrequency(g.vector("rope_freqs.weight", rope.dims / 2))
    } else {
        rope.scaling.clone()
    };
    g.rope_table(Rope { style: rope.style, dims: rope.dims, base: rope.base, scaling })
}

fn inverse_sqrt(n: usize) -> f32 {
    1.0 / (n as f32).sqrt()
}
