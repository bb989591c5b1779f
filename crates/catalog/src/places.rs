//! The folders of the cache.
//!
//! ```text
//! CACHE/pilotfish/models/NAME/FILE           assembled from packages      (CACHE: $XDG_CACHE_HOME or ~/.cache)
//!                            FILE.incomplete, FILE.parts.json             what a broken run left for the next
//! CACHE/pilotfish/locks/NAME.lock            one writer per model
//! CACHE/pilotfish/verified/KEY.json          size, time and sha256 of files that were hashed
//! CACHE/pilotfish/pins/NAME.json             sha256 seen first, where the table has none
//! CACHE/pilotfish/curves/KEY.curve           what passes cost (written by `pilotfish`)
//! HUB/models--USER--REPO/...                 the layout all Hugging Face tools share (`hub_cache`)
//! ```
//!
//! Invariant: only files of ours are written outside `HUB`, and only hub files inside it.
//! Not here: reading variables (`env`).

use std::path::PathBuf;

use crate::env::Env;
use crate::error::CatalogError;

/// Where things are kept. Folders are made when something is first written to them.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// `CACHE/pilotfish`.
    pub(crate) own: PathBuf,
    /// Root of the Hugging Face cache.
    pub(crate) hub: PathBuf,
}

impl Places {
    /// Works the folders out. Errors: `NoCacheFolder` when nothing says where the user's files are.
    pub(crate) fn new(env: &Env) -> Result<Self, CatalogError> {
        let hub = match env.get("HF_HUB_CACHE").or_else(|| env.get("HUGGINGFACE_HUB_CACHE")) {
            Some(path) => Some(env.expand(path)),
            None => env.hf_home().map(|home| home.join("hub")),
        };
        let cache = match (env.get("XDG_CACHE_HOME"), env.get("LOCALAPPDATA")) {
            (Some(path), _) => Some(env.expand(path)),
            (None, Some(path)) if cfg!(windows) => Some(PathBuf::from(path)),
            _ => env.home().map(|home| home.join(".cache")),
        };
        match (cache, hub) {
            (Some(cache), Some(hub)) => Ok(Self { own: cache.join("pilotfish"), hub }),
            // A hub folder alone is enough for hub models, and our few files can live beside it.
            (None, Some(hub)) => Ok(Self { own: hub.join("pilotfish"), hub }),
            _ => Err(CatalogError::NoCacheFolder),
        }
    }

    /// Folder of a model assembled from packages.
    pub(crate) fn model_dir(&self, name: &str) -> PathBuf {
        self.own.join("models").join(name)
    }

    /// Lock of a model.
    pub(crate) fn lock(&self, name: &str) -> PathBuf {
        self.own.join("locks").join(format!("{name}.lock"))
    }

    /// Folder of verified markers.
    pub(crate) fn verified(&self) -> PathBuf {
        self.own.join("verified")
    }

    /// Pin of a model without a hash in the table.
    pub(crate) fn pin(&self, name: &str) -> PathBuf {
        self.own.join("pins").join(format!("{name}.json"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(variables: &[(&str, &str)]) -> Places {
        let env = variables.iter().fold(Env::empty(), |env, (name, value)| env.with(name, value));
        Places::new(&env).unwrap()
    }

    #[test]
    fn the_hub_folder_follows_the_hubs_own_order() {
        let home = [("HOME", "/h")];
        assert_eq!(places(&home).hub, PathBuf::from("/h/.cache/huggingface/hub"));
        let xdg = [("HOME", "/h"), ("XDG_CACHE_HOME", "/x")];
        assert_eq!(places(&xdg).hub, PathBuf::from("/x/huggingface/hub"));
        let hf = [("HOME", "/h"), ("XDG_CACHE_HOME", "/x"), ("HF_HOME", "~/hf")];
        assert_eq!(places(&hf).hub, PathBuf::from("/h/hf/hub"));
        let old = [("HF_HOME", "/hf"), ("HUGGINGFACE_HUB_CACHE", "/old")];
        assert_eq!(places(&[("HOME", "/h"), old[0], old[1]]).hub, PathBuf::from("/old"));
        let all = [("HF_HUB_CACHE", "/new"), ("HUGGINGFACE_HUB_CACHE", "/old"), ("HOME", "/h")];
        assert_eq!(places(&all).hub, PathBuf::from("/new"));
    }

    #[test]
    fn our_folder_follows_the_cache_folder() {
        assert_eq!(places(&[("HOME", "/h")]).model_dir("m"), PathBuf::from("/h/.cache/pilotfish/models/m"));
        assert_eq!(places(&[("XDG_CACHE_HOME", "/x")]).own, PathBuf::from("/x/pilotfish"));
        assert_eq!(places(&[("HF_HOME", "/hf")]).own, PathBuf::from("/hf/hub/pilotfish"));
    }

    #[test]
    fn without_any_folder_it_says_which_variable_to_set() {
        let error = Places::new(&Env::empty()).unwrap_err().to_string();
        assert!(error.contains("XDG_CACHE_HOME"), "{error}");
    }
}
