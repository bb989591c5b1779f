//! Llama 2 and 3, SmolLM2, Mistral: the plain pre-norm block.
//!
//! GGUF files permute query and key rows so that rotated pairs are neighbours; Llama 3's long
//! context comes as `rope_freqs.weight`.

use super::{block, inverse_sqrt, output_matrix, output_norm, rope, token_table};
use crate::config::Config;
use crate::graph::{Activation, Graph, GraphBuilder, GraphError, Heads};

pub(super) fn build(config: &Config) -> Result<Graph, GraphError> {
    pre_norm(config, false)
}

/// The pre-norm stack; with `head_norms`, every query and key head is normed before the rope.
pub(super) fn pre_norm(config: &Config, head_norms: bool) -> Result<Graph, GraphError> {
    let mut g = GraphBuilder::new();
    let table = token_table(&mut g, config);
    let rope = rope(&mut g, config);
    let heads = Heads {
        n_heads: config.n_heads,
        n_kv_heads: config.n_kv_heads,
        head_dim: config.head_dim,
        window: None,
        scale: inverse_sqrt(config.head_dim),
    };
    let mut x = g.embed(table, 1.0);
    for layer in 0..config.n_layers {
        let mut b = block(&mut g, config, layer);
        let (attn_norm, ffn_norm) = (b.norm("attn_norm.weight"), b.norm("ffn_norm.weight"));
        let head_norms =
            head_norms.then(|| ["attn_q_norm.weight", "attn_k_norm.weight"].map(|t| b.head_norm(t)));
        let ([wq, wk, wv], [bq, bk, bv]) = (b.qkv(), b.qkv_biases());
        let (wo, mlp) = (b.attention_output(), b.mlp());

        let h = g.norm(x, attn_norm, config.eps);
        let (mut q, mut k, v) = (g.linear(h, wq, bq), g.linear(h, wk, bk), g.linear(h, wv, bv));
        if let Some([q_norm, k_norm]) = head_norms {
            q = g.norm_groups(q, q_norm, config.eps, config.head_dim);
            k = g.norm_groups(k, k_norm, config.eps, config.head_dim);
        }
        let (q, k) = (g.rope(q, rope, config.head_dim), g.rope(k, rope, config.head_dim));
        let a = g.attention([q, k, v], layer, heads);
        let a = g.linear(a, wo, None);
        x = g.add(x, a);

        let h = g.norm(x, ffn_norm, config.eps);
        let m = g.gated_mlp(h, mlp, Activation::Silu);
        x = g.add(x, m);
        g.tap(x, layer);
    }
    let (norm, output) = (output_norm(&mut g, config), output_matrix(&mut g, config));
    let x = g.norm(x, norm, config.eps);
    g.finish(x, output)
}
