//! What can go wrong while a reply is made.

use pilotfish_lane::LaneError;

use crate::sampling::SamplingError;

/// Why a reply could not be started or continued.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// There is no token to continue from.
    #[error("the prompt is empty: there is no token to continue from")]
    EmptyPrompt,
    /// The prompt leaves no room for a reply.
    #[error("the prompt has {prompt} tokens and the context holds {context}: no room for a reply")]
    ContextOverflow {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens the context holds.
        context: usize,
    },
    /// The session's context is longer than the lane's.
    #[error("a context of {asked} was asked for and the lane holds {lane}")]
    ContextBeyondLane {
        /// Positions the session may use.
        asked: usize,
        /// Positions the lane holds.
        lane: usize,
    },
    /// A prompt token that the model does not have.
    #[error("prompt token {index} has id {token}, outside the vocabulary of {vocab}")]
    PromptToken {
        /// Where in the prompt.
        index: usize,
        /// The id.
        token: u32,
        /// Rows of the vocabulary matrix.
        vocab: usize,
    },
    /// The target's lane failed.
    #[error(transparent)]
    Lane(#[from] LaneError),
    /// No token could be chosen.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
}

/// Why a drafter gave up. The reply goes on without it.
#[derive(Debug, thiserror::Error)]
pub enum DraftError {
    /// The drafter's lane failed.
    #[error("the drafter failed: {0}")]
    Lane(#[from] LaneError),
    /// The drafter's logits could not be sampled from.
    #[error("the drafter failed: {0}")]
    Sampling(#[from] SamplingError),
    /// Anything else, in words.
    #[error("the drafter failed: {0}")]
    Other(String),
}
