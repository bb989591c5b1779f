//! What a user may write for a model, and what it means.
//!
//! ```text
//! -m TEXT    looks like a path (has / or \, ends in .gguf or .safetensors)?  a file, the catalog is not asked
//!            otherwise a catalog name, otherwise a file of that name here
//! -hf TEXT   user/repo or user/repo:QUANT, with -hff FILE for one file of it
//! ```
//!
//! Invariant: parsing asks the file system at most whether a path exists, and never the network.
//! Not here: turning a hub model into one of its files (`hub`).

use std::path::PathBuf;

use crate::error::CatalogError;
use crate::hub_cache::{is_plain_path, is_repo};
use crate::table::Entry;

/// A model as asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelSpec {
    /// A catalog name.
    Entry(String),
    /// A file that exists.
    Path(PathBuf),
    /// A repository of the hub.
    Hub {
        /// `user/repo`.
        repo: String,
        /// Quantization, such as `Q4_K_M`.
        quant: Option<String>,
        /// Path inside the repository; wins over `quant`.
        file: Option<String>,
    },
}

impl ModelSpec {
    /// Reads the text of `-m`.
    ///
    /// Errors: `UnknownModel` with close names, `NoSuchFile`, `NotAFile`.
    pub fn from_model(text: &str, entries: &[Entry]) -> Result<Self, CatalogError> {
        let path = PathBuf::from(text);
        let looks_like_path = text.contains(['/', '\\'])
            || has_ending(text, ".gguf")
            || has_ending(text, ".safetensors")
            || matches!(text, "." | "..");
        if !looks_like_path {
            let wanted = text.to_ascii_lowercase();
            if let Some(entry) = entries.iter().find(|entry| entry.name == wanted) {
                return Ok(Self::Entry(entry.name.to_owned()));
            }
        }
        if path.is_dir() {
            return Err(CatalogError::NotAFile { path });
        }
        // An existing path that is neither folder nor plain file (a pipe, say) is for the loader to judge.
        if !text.is_empty() && path.exists() {
            return Ok(Self::Path(path));
        }
        if looks_like_path {
            let hint = if is_repo(text.split(':').next().unwrap_or(text)) {
                format!("; a model of the hub is given as -hf {text}")
            } else {
                String::new()
            };
            return Err(CatalogError::NoSuchFile { path, hint });
        }
        Err(CatalogError::UnknownModel { name: text.to_owned(), close: close_names(text, entries) })
    }

    /// Reads the text of `-hf`, and of `-hff` when that was given too.
    ///
    /// Errors: `BadHubModel`.
    pub fn from_hub(text: &str, file: Option<&str>) -> Result<Self, CatalogError> {
        let bad = |why| CatalogError::BadHubModel { text: text.to_owned(), why };
        let (repo, quant) = match text.split_once(':') {
            Some((repo, quant)) => (repo, Some(quant)),
            None => (text, None),
        };
        if !is_repo(repo) {
            return Err(bad("the part before the colon must be user/repo"));
        }
        if quant.is_some_and(|quant| {
            quant.is_empty()
                || !quant.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
        }) {
            return Err(bad("the part after the colon must be a quantization such as Q4_K_M"));
        }
        if let Some(file) = file
            && !is_plain_path(file)
        {
            return Err(CatalogError::BadHubModel {
                text: file.to_owned(),
                why: "-hff takes the path of a file inside the repository",
            });
        }
        Ok(Self::Hub {
            repo: repo.to_owned(),
            quant: quant.map(str::to_owned),
            file: file.map(str::to_owned),
        })
    }

    /// The words that ask for this model again, for messages.
    pub fn argument(&self) -> String {
        match self {
            Self::Entry(name) => name.clone(),
            Self::Path(path) => path.display().to_string(),
            Self::Hub { repo, file: Some(file), .. } => format!("-hf {repo} -hff {file}"),
            Self::Hub { repo, quant: Some(quant), .. } => format!("-hf {repo}:{quant}"),
            Self::Hub { repo, .. } => format!("-hf {repo}"),
        }
    }
}

fn has_ending(text: &str, ending: &str) -> bool {
    text.len() >= ending.len() && text.is_char_boundary(text.len() - ending.len()) && {
        text[text.len() - ending.len()..].eq_ignore_ascii_case(ending)
    }
}

/// Up to three catalog names that resemble `text`, nearest first.
fn close_names(text: &str, entries: &[Entry]) -> Vec<String> {
    let wanted: String = text.to_ascii_lowercase().chars().take(100).collect();
    let mut scored: Vec<(usize, &str)> = Vec::new();
    for entry in entries {
        let distance = edit_distance(&wanted, entry.name);
        let part = wanted.len() >= 3 && (entry.name.contains(&wanted) || wanted.contains(entry.name));
        // A third of the letters wrong is still a typing error; more is another word.
        if part || distance <= (entry.name.len() / 3).max(2) {
            scored.push((distance, entry.name));
        }
    }
    scored.sort();
    scored.into_iter().take(3).map(|(_, name)| name.to_owned()).collect()
}

/// Levenshtein distance, counted in characters.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let change = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::ENTRIES;

    fn model(text: &str) -> Result<ModelSpec, CatalogError> {
        ModelSpec::from_model(text, ENTRIES)
    }

    #[test]
    fn a_catalog_name_in_any_case() {
        assert_eq!(model("SmolLM2-135M").unwrap(), ModelSpec::Entry("smollm2-135m".to_owned()));
    }

    #[test]
    fn an_unknown_name_lists_its_neighbours() {
        let error = model("smolm2-135m").unwrap_err().to_string();
        assert!(error.contains("did you mean smollm2-135m?"), "{error}");
        let error = model("qwen2.5-coder").unwrap_err().to_string();
        assert!(error.contains("qwen2.5-coder-0.5b or qwen2.5-coder-1.5b"), "{error}");
        let error = model("completely-different-thing").unwrap_err().to_string();
        assert!(!error.contains("did you mean") && error.contains("pilotfish models"), "{error}");
        assert!(matches!(model(""), Err(CatalogError::UnknownModel { .. })));
        assert!(matches!(model("é"), Err(CatalogError::UnknownModel { .. })));
    }

    #[test]
    fn a_path_never_asks_the_catalog() {
        let error = model("./smollm2-135m").unwrap_err();
        assert!(matches!(error, CatalogError::NoSuchFile { .. }), "{error}");
        let error = model("smollm2-135m.gguf").unwrap_err();
        assert!(matches!(error, CatalogError::NoSuchFile { .. }), "{error}");
        assert!(error.to_string().starts_with("there is no file at `smollm2-135m.gguf`"), "{error}");
    }

    #[test]
    fn an_existing_path_is_taken_and_a_folder_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("weights.bin");
        std::fs::write(&file, b"x").unwrap();
        assert_eq!(model(file.to_str().unwrap()).unwrap(), ModelSpec::Path(file));
        assert!(matches!(model(dir.path().to_str().unwrap()), Err(CatalogError::NotAFile { .. })));
        assert!(matches!(model("."), Err(CatalogError::NotAFile { .. })));
    }

    #[test]
    fn a_repository_given_as_a_path_is_pointed_to_hf() {
        let error = model("Qwen/Qwen3-4B-GGUF:Q4_K_M").unwrap_err().to_string();
        assert!(error.contains("-hf Qwen/Qwen3-4B-GGUF:Q4_K_M"), "{error}");
    }

    #[test]
    fn hub_models_parse() {
        let spec = ModelSpec::from_hub("Qwen/Qwen3-4B-GGUF:Q4_K_M", None).unwrap();
        let quant = Some("Q4_K_M".to_owned());
        assert_eq!(spec, ModelSpec::Hub { repo: "Qwen/Qwen3-4B-GGUF".to_owned(), quant, file: None });
        assert_eq!(spec.argument(), "-hf Qwen/Qwen3-4B-GGUF:Q4_K_M");
        let spec = ModelSpec::from_hub("a/b", Some("sub/x.gguf")).unwrap();
        assert_eq!(spec.argument(), "-hf a/b -hff sub/x.gguf");
        for bad in ["qwen", "a/b/c", "a/b:", "a/b:Q4 K", "../b", "a/..", "/b", "a/", "", "a b/c", "a/b:Q4/x"]
        {
            let error = ModelSpec::from_hub(bad, None).unwrap_err();
            assert!(matches!(error, CatalogError::BadHubModel { .. }), "{bad}");
        }
        for bad in ["../x.gguf", "/x.gguf", "a//b.gguf", "a\\b.gguf", ""] {
            assert!(ModelSpec::from_hub("a/b", Some(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn distances() {
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("same", "same"), 0);
    }
}
