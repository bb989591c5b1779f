//! Everything that can go wrong between a model's name and the last token of its answer.
//!
//! Invariant: each error knows whether the caller asked for something impossible or something failed; exit codes and
//! HTTP statuses are made from that alone.
//! Not here: the errors of single parts, which are wrapped unchanged.

use pilotfish_catalog::CatalogError;
use pilotfish_engine::EngineError;
use pilotfish_engine::draft::VocabularyMismatch;
use pilotfish_engine::sampling::SamplingError;
use pilotfish_lane::LaneError;
use pilotfish_model::ModelError;
use pilotfish_model::text::TemplateError;

/// What kind of error it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// An option has a value that cannot be used: the caller must ask differently.
    Usage,
    /// A file, a download, a prompt or a device failed.
    Failure,
    /// The caller asked to stop.
    Cancelled,
}

/// Why a model could not be loaded or a prompt not be answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model could not be found or fetched.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The model's file is damaged or of an unknown kind.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The lane could not load or run the model.
    #[error(transparent)]
    Lane(#[from] LaneError),
    /// The prompt could not be answered.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A sampling parameter is out of range.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// The chat template refused the conversation.
    #[error("the chat template cannot render this conversation: {0}")]
    Template(#[from] TemplateError),
    /// The drafter's vocabulary is not the target's.
    #[error("`{drafter}` cannot draft for `{target}`: {reason}")]
    Vocabulary {
        /// Name of the drafting model.
        drafter: String,
        /// Name of the target.
        target: String,
        /// The check that failed.
        reason: VocabularyMismatch,
    },
    /// The model has no chat template, so messages cannot become a prompt.
    #[error("`{model}` has no chat template; send the prompt raw")]
    NoTemplate {
        /// Name of the model.
        model: String,
    },
    /// The context asked for is not possible.
    #[error("a context of {asked} is not possible: `{model}` was trained for 1 to {trained} tokens")]
    Context {
        /// What was asked for.
        asked: usize,
        /// What the model was trained for.
        trained: usize,
        /// Name of the model.
        model: String,
    },
    /// An option has a value that cannot be used.
    #[error("{option} cannot be `{value}`: {why}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// Its value.
        value: String,
        /// What would do.
        why: String,
    },
}

impl Error {
    /// Whether the caller asked for something impossible, something failed, or it was stopped.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Catalog(CatalogError::Cancelled) => ErrorKind::Cancelled,
            Self::Catalog(CatalogError::BadHubModel { .. } | CatalogError::BadVariable { .. })
            | Self::Sampling(_)
            | Self::Context { .. }
            | Self::Option { .. } => ErrorKind::Usage,
            _ => ErrorKind::Failure,
        }
    }

    /// Whether the prompt does not fit the context; the message has both counts.
    pub fn is_context_overflow(&self) -> bool {
        matches!(self, Self::Engine(EngineError::ContextOverflow { .. }))
    }
}
