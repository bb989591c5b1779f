//! From the words a user types to a model file, and from the file to a model with its text rules.
//!
//! Invariant: a path needs no cache folder and no network.
//! Not here: what the words may be (`pilotfish_catalog::ModelSpec`), opening lanes (`lanes`).

use std::sync::Arc;

use pilotfish_catalog::{Catalog, Env, LocalModel, ModelSpec, Offline, Progress, table};
use pilotfish_model::Model;
use pilotfish_model::text::{ChatTemplate, Tokenizer};

use crate::Error;

/// A model as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelRef {
    /// A catalog name or a path, as after `-m`.
    Named(String),
    /// `user/repo[:QUANT]` of the Hugging Face hub, as after `-hf`, and one file of it, as after `-hff`.
    Hub {
        /// `user/repo` or `user/repo:QUANT`.
        repo: String,
        /// Path inside the repository.
        file: Option<String>,
    },
}

impl ModelRef {
    /// Reads the words, without asking the network.
    ///
    /// # Errors
    /// [`Error::Catalog`] for an unknown name, a missing file, a folder, or a malformed hub name.
    pub fn spec(&self) -> Result<ModelSpec, Error> {
        Ok(match self {
            Self::Named(text) => ModelSpec::from_model(text, table::ENTRIES)?,
            Self::Hub { repo, file } => ModelSpec::from_hub(repo, file.as_deref())?,
        })
    }
}

/// Name of the model used when none is named.
pub fn default_model() -> &'static str {
    table::DEFAULT
}

/// Finds a model's file, fetching it when it is not here and the network may be used.
///
/// # Errors
/// [`Error::Catalog`], as `pilotfish_catalog::Catalog::resolve` gives it.
pub fn find_model(model: &ModelRef, offline: bool, progress: &dyn Progress) -> Result<LocalModel, Error> {
    let spec = model.spec()?;
    if let ModelSpec::Path(path) = &spec {
        // No catalog: a path must work on a machine without a home folder too.
        let bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        let name =
            path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
        return Ok(LocalModel { path: path.clone(), name, bytes, sha256: None });
    }
    Ok(Catalog::new(Env::from_process())?.resolve(&spec, Offline::from(offline), progress)?)
}

/// A model file that passed every check, with its tokenizer and template.
pub(crate) struct LoadedModel {
    pub(crate) local: LocalModel,
    pub(crate) model: Arc<Model>,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) template: Option<ChatTemplate>,
}

impl LoadedModel {
    pub(crate) fn open(local: LocalModel) -> Result<Self, Error> {
        let model = Model::open(&local.path)?;
        let tokenizer = Tokenizer::from_gguf(model.metadata())?;
        let template = ChatTemplate::from_gguf(model.metadata(), &tokenizer)?;
        Ok(Self { local, model: Arc::new(model), tokenizer, template })
    }
}
