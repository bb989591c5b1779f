//! Qwen 2 and 2.5: Llama's block with biases on query, key and value.
//!
//! GGUF files keep the half-split rope of the original weights, which [`Config`] already says.

use crate::config::Config;
use crate::graph::{Graph, GraphError};

pub(super) fn build(config: &Config) -> Result<Graph, GraphError> {
    super::llama::build(&Config { has_qkv_bias: true, ..config.clone() })
}
