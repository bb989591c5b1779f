//! Gemma 3: norms on both sides of attention and MLP, and mostly sliding-window layers.
//!
//! Five sliding layers go to one full layer, each kind with its own rope; embeddings are scaled
//! by the root of their width; the MLP's activation is GELU.
//!
//! GGUF files store the norm weights with the 1 already added.

use super::{block, inverse_sqrt, output_matrix, output_norm, rope, token_table};
use crate::config::Config;
use crate::graph::{Activation, Graph, GraphBuilder, GraphError, Heads, Rope, RopeScaling};

/// Layers of the 27B model, which alone scales scores by hidden / heads instead of the head size.
const LAYERS_27B: usize = 62;

pub(super) fn build(config: &Config) -> Result<Graph, GraphError> {
    let mut g = GraphBuilder::new();
    let table = token_table(&mut g, config);
    let full_rope = rope(&mut g, config);
    let sliding_rope = config.sliding.as_ref().map(|sliding| {
        g.rope_table(Rope {
            style: config.rope.style,
            dims: config.rope.dims,
            base: sliding.base,
            scaling: RopeScaling::None,
        })
    });
    let scale = if config.n_layers == LAYERS_27B {
        inverse_sqrt(config.hidden / config.n_heads)
    } else {
        inverse_sqrt(config.head_dim)
    };
    let mut x = g.embed(table, (config.hidden as f32).sqrt());
    for layer in 0..config.n_layers {
        let slides = config.slides(layer);
        let rope = if slides.is_some() { sliding_rope.unwrap_or(full_rope) } else { full_rope };
        let heads = Heads {
            n_heads: config.n_heads,
            n_kv_heads: config.n_kv_heads,
            head_dim: config.head_dim,
            window: slides.map(|s| s.window),
            scale,
        };
        let mut b = block(&mut g, config, layer);
        let (attn_norm, attn_post) = (b.norm("attn_norm.weight"), b.norm("post_attention_norm.weight"));
        let (ffn_norm, ffn_post) = (b.norm("ffn_norm.weight"), b.norm("post_ffw_norm.weight"));
        let (q_norm, k_norm) = (b.head_norm("attn_q_norm.weight"), b.head_norm("attn_k_norm.weight"));
        let ([wq, wk, wv], wo, mlp) = (b.qkv(), b.attention_output(), b.mlp());

        let h = g.norm(x, attn_norm, config.eps);
        let (q, k, v) = (g.linear(h, wq, None), g.linear(h, wk, None), g.linear(h, wv, None));
        let q = g.norm_groups(q, q_norm, config.eps, config.head_dim);
        let k = g.norm_groups(k, k_norm, config.eps, config.head_dim);
        let (q, k) = (g.rope(q, rope, config.head_dim), g.rope(k, rope, config.head_dim));
        let a = g.attention([q, k, v], layer, heads);
        let a = g.linear(a, wo, None);
        let a = g.norm(a, attn_post, config.eps);
        x = g.add(x, a);

        let h = g.norm(x, ffn_norm, config.eps);
        let m = g.gated_mlp(h, mlp, Activation::GeluTanh);
        let m = g.norm(m, ffn_post, config.eps);
        x = g.add(x, m);
        g.tap(x, layer);
    }
    let (norm, output) = (output_norm(&mut g, config), output_matrix(&mut g, config));
    let x = g.norm(x, norm, config.eps);
    g.finish(x, output)
}
