//! Trained drafter heads: their files, checked against themselves and against the target.
//!
//! A head (DFlash, arXiv 2602.06036; DSpark, arXiv 2607.05147) guesses a block of tokens from the residual streams of its
//! target. Its context is not text but one vector a token, the target's taps fused; the block is the last token and
//! mask tokens behind it. DSpark adds a low-rank bias by the token before each guess, and a confidence in each.
//!
//! Invariant: a head that does not fit its configuration or its target, or is not whole, is refused with the reason: run
//! wrongly, it would only guess badly, and nobody would know why.
//! Not here: running it (`pilotfish-lane`).

mod config;
mod keys;
mod tensors;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

pub use config::{HeadConfig, HeadFormat, HeadWindow};

use crate::files::mmap::MappedFile;
use crate::files::safetensors::Safetensors;
use crate::{Model, ModelError, Section};
use keys::Keys;

/// Longest `config.json` accepted.
const MAX_CONFIG_BYTES: usize = 1 << 20;

/// A head whose files passed every check.
#[derive(Clone, Debug)]
pub struct DraftHead {
    config: HeadConfig,
    tensors: Safetensors,
    draft_ids: Option<Vec<u32>>,
}

impl DraftHead {
    /// Maps and checks a head: a folder with `config.json` and `model.safetensors` (or its index), or a safetensors file
    /// with `config.json` beside it.
    ///
    /// # Errors
    /// [`ModelError`] naming the file, and the field or tensor at fault; an unsupported kind of head by its name.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        if path.extension().is_some_and(|extension| extension == "gguf") {
            let problem = "heads in GGUF files are not supported; safetensors with config.json are";
            return Err(ModelError::not_a_model(path, problem));
        }
        std::fs::metadata(path).map_err(|error| ModelError::io(path, error))?;
        let config = config_of(path);
        let bytes = MappedFile::open(&config)?;
        let label = config.display().to_string();
        Self::new(&label, &bytes, || Safetensors::open(path))
    }

    /// Checks a head that is already in memory: its `config.json` and its tensors.
    ///
    /// # Errors
    /// As [`DraftHead::open`].
    pub fn parse(config: &[u8], tensors: Vec<u8>) -> Result<Self, ModelError> {
        Self::new("<memory>", config, || Safetensors::parse(tensors))
    }

    fn new(
        label: &str,
        config: &[u8],
        tensors: impl FnOnce() -> Result<Safetensors, ModelError>,
    ) -> Result<Self, ModelError> {
        let wrong = |problem: String| ModelError::malformed(label, Section::Config, None, None, problem);
        if config.len() > MAX_CONFIG_BYTES {
            return Err(wrong(format!("has {} bytes, the limit is {MAX_CONFIG_BYTES}", config.len())));
        }
        let object: serde_json::Value = serde_json::from_slice(config)
            .map_err(|e| wrong(format!("is not JSON (line {}, column {})", e.line(), e.column())))?;
        let config = HeadConfig::read(Keys { file: label, object: &object })?;
        tensors::check(config, tensors()?)
    }

    /// Its numbers.
    pub fn config(&self) -> &HeadConfig {
        &self.config
    }

    /// Its tensors, of which every one that [`HeadConfig`] implies is there with its shape.
    pub fn tensors(&self) -> &Safetensors {
        &self.tensors
    }

    /// The target tokens it can guess, ascending; `None` for all.
    pub fn draft_ids(&self) -> Option<&[u32]> {
        self.draft_ids.as_deref()
    }

    /// Whether it was made for `target`, as far as sizes tell.
    ///
    /// # Errors
    /// [`ModelError`] naming the size that differs.
    pub fn check_target(&self, target: &Model) -> Result<(), ModelError> {
        let (head, config) = (&self.config, target.config());
        let wrong = |name: &str, problem: String| {
            Err(ModelError::malformed(self.tensors.file(), Section::Config, Some(name), None, problem))
        };
        if head.hidden != config.hidden {
            let problem =
                format!("the head is for a width of {}, the target has {}", head.hidden, config.hidden);
            return wrong("hidden_size", problem);
        }
        if head.vocab != config.vocab {
            let problem = format!("the head is for {} tokens, the target has {}", head.vocab, config.vocab);
            return wrong("vocab_size", problem);
        }
        let layers = config.n_layers;
        if let Some(trained) = head.target_layers.filter(|trained| *trained != layers) {
            return wrong(
                "num_target_layers",
                format!("the head is for {trained} layers, the target has {layers}"),
            );
        }
        // What trainers see behind the last layer is normed already.
        let last = layers.saturating_sub(1);
        if let Some(tap) = head.taps.iter().find(|tap| **tap >= last) {
            let problem = format!("the head reads behind layer {tap}; the target's last layer is {last}");
            return wrong("target layers", problem);
        }
        Ok(())
    }
}

/// Where the configuration of the head at `path` is.
fn config_of(path: &Path) -> PathBuf {
    if path.is_dir() { path.join("config.json") } else { path.with_file_name("config.json") }
}
