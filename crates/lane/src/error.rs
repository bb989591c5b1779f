//! What can go wrong in a pass.

/// Why a lane could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum LaneError {
    /// The pass would not fit the context.
    #[error("the context is full: {needed} positions are needed and the context holds {context}")]
    ContextFull {
        /// Positions the pass needs.
        needed: usize,
        /// Positions the cache holds.
        context: usize,
    },
    /// A token id outside the model's vocabulary.
    #[error("token id {token} is outside the vocabulary of {vocab}")]
    BadToken {
        /// The id.
        token: u32,
        /// Rows of the vocabulary matrix.
        vocab: usize,
    },
    /// A batch without rows, or wider than the lane takes.
    #[error("a pass of {width} rows is not possible: the lane takes 1 to {max}")]
    BadWidth {
        /// Rows asked for.
        width: usize,
        /// Most rows the lane takes.
        max: usize,
    },
    /// The residual stream after a layer that the lane does not hand out.
    #[error(
        "the residual stream after layer {layer} is not to be had: the lane hands out those of {layers} layers"
    )]
    BadTap {
        /// The layer asked for, 0-based.
        layer: usize,
        /// Layers it can return.
        layers: usize,
    },
    /// The model computed NaN or infinity.
    #[error("the model produced non-finite logits at position {position}; its weights may be damaged")]
    NonFinite {
        /// Absolute position of the row.
        position: usize,
    },
    /// `keep` was given rows that are not a path of the last batch.
    #[error("rows {rows:?} are not a path of the last pass")]
    NotAPath {
        /// What was given.
        rows: Vec<usize>,
    },
    /// The model cannot be loaded on this lane.
    #[error("cannot load the model on this lane: {0}")]
    Load(String),
    /// The engine itself failed; another lane may still work.
    #[error("the {lane} lane failed: {what}")]
    Device {
        /// Lane name.
        lane: String,
        /// What it said.
        what: String,
    },
}
