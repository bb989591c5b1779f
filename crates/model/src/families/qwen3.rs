//! Qwen 3: Llama's block with norms on every query and key head, before the rope.

use crate::config::Config;
use crate::graph::{Graph, GraphError};

pub(super) fn build(config: &Config) -> Result<Graph, GraphError> {
    super::llama::pre_norm(config, true)
}
