//! The one error type of this crate: what is wrong with which part of which file.
//!
//! A message names the file, the section, the key or tensor and, where it helps, the byte offset. Names come
//! from the file, so they are escaped and cut to 64 bytes; no other file content is ever quoted.
//!
//! Invariant: building and printing an error cannot panic and cannot print control characters of the file.
//! Not here: what the caller does about it (exit codes and HTTP statuses live in the cli and the server).

use std::fmt;
use std::path::Path;

/// Longest name, in bytes of its escaped form, that a message repeats from a file.
pub(crate) const MAX_NAME: usize = 64;

/// Something in a model file, or in what was built from it, is missing, wrong or beyond this engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The operating system refused to give us the file.
    #[error("{file}: {source}")]
    Io {
        /// Path as the caller gave it.
        file: String,
        /// The operating system's reason.
        #[source]
        source: std::io::Error,
    },
    /// The path is not something that can be read as a model: a directory, a device, an empty file.
    #[error("{file}: {problem}")]
    NotAModel {
        /// Path as the caller gave it.
        file: String,
        /// Why not.
        problem: String,
    },
    /// The file breaks its format, or a value in it breaks a rule of the model.
    #[error("{file}: {}: {problem}", Place(*section, name.as_deref(), *offset))]
    Malformed {
        /// Label of the file, usually its path.
        file: String,
        /// Part of the file.
        section: Section,
        /// Key, tensor or token, escaped and cut.
        name: Option<String>,
        /// Byte offset in the file.
        offset: Option<u64>,
        /// The rule that is broken.
        problem: String,
    },
    /// Something required is not there.
    #[error("{file}: {} is missing", Place(*section, Some(name), None))]
    Missing {
        /// Label of the file, usually its path.
        file: String,
        /// Part of the file.
        section: Section,
        /// Key or tensor.
        name: String,
    },
    /// The file may be fine, but this engine does not handle it.
    #[error("{file}: {}: {problem}", Place(*section, name.as_deref(), None))]
    Unsupported {
        /// Label of the file, usually its path.
        file: String,
        /// Part of the file.
        section: Section,
        /// Key or tensor, escaped and cut.
        name: Option<String>,
        /// What is not handled.
        problem: String,
    },
}

/// Part of a model file that an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Section {
    /// Magic, version and counts.
    Header,
    /// Key-value pairs.
    Metadata,
    /// Names, shapes, types and offsets of the tensors.
    TensorTable,
    /// The weights themselves.
    TensorData,
    /// Vocabulary, merges and special tokens.
    Tokenizer,
    /// The chat template.
    Template,
    /// Hyperparameters.
    Config,
    /// The graph built from the hyperparameters.
    Graph,
    /// The list of shards of a model cut into several files.
    Index,
}

impl Section {
    /// Name for a whole section, and the word in front of a name inside it.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Section::Header => ("header", "header field"),
            Section::Metadata => ("metadata", "metadata key"),
            Section::TensorTable => ("tensor table", "tensor"),
            Section::TensorData => ("tensor data", "data of tensor"),
            Section::Tokenizer => ("tokenizer", "tokenizer field"),
            Section::Template => ("chat template", "chat template"),
            Section::Config => ("model configuration", "hyperparameter"),
            Section::Graph => ("graph", "graph node"),
            Section::Index => ("shard index", "shard index entry"),
        }
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words().0)
    }
}

impl ModelError {
    /// A broken rule, in the file or in what it describes. `name` is escaped and cut here.
    #[must_use]
    pub fn malformed(
        file: &str,
        section: Section,
        name: Option<&str>,
        offset: Option<u64>,
        problem: impl Into<String>,
    ) -> Self {
        let (file, name) = (file.to_owned(), name.map(printable));
        ModelError::Malformed { file, section, name, offset, problem: problem.into() }
    }

    /// A key or tensor that must be there and is not.
    #[must_use]
    pub fn missing(file: &str, section: Section, name: &str) -> Self {
        ModelError::Missing { file: file.to_owned(), section, name: printable(name) }
    }

    /// Something legal or plausible that this engine does not handle.
    #[must_use]
    pub fn unsupported(file: &str, section: Section, name: Option<&str>, problem: impl Into<String>) -> Self {
        let (file, name) = (file.to_owned(), name.map(printable));
        ModelError::Unsupported { file, section, name, problem: problem.into() }
    }

    /// The operating system's refusal to open, inspect or read `path`.
    #[must_use]
    pub fn io(path: &Path, source: std::io::Error) -> Self {
        ModelError::Io { file: path.display().to_string(), source }
    }

    /// A path that exists but cannot be a model.
    #[must_use]
    pub fn not_a_model(path: &Path, problem: impl Into<String>) -> Self {
        ModelError::NotAModel { file: path.display().to_string(), problem: problem.into() }
    }

    /// Label of the file.
    #[must_use]
    pub fn file(&self) -> &str {
        match self {
            ModelError::Io { file, .. }
            | ModelError::NotAModel { file, .. }
            | ModelError::Malformed { file, .. }
            | ModelError::Missing { file, .. }
            | ModelError::Unsupported { file, .. } => file,
        }
    }

    /// Part of the file, when the file could be read at all.
    #[must_use]
    pub fn section(&self) -> Option<Section> {
        match self {
            ModelError::Io { .. } | ModelError::NotAModel { .. } => None,
            ModelError::Malformed { section, .. }
            | ModelError::Missing { section, .. }
            | ModelError::Unsupported { section, .. } => Some(*section),
        }
    }

    /// Key, tensor or field, escaped and cut to 64 bytes.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            ModelError::Io { .. } | ModelError::NotAModel { .. } => None,
            ModelError::Missing { name, .. } => Some(name),
            ModelError::Malformed { name, .. } | ModelError::Unsupported { name, .. } => name.as_deref(),
        }
    }
}

/// Escapes control characters, quotes and backslashes, and cuts to [`MAX_NAME`] bytes with an ellipsis.
#[must_use]
pub(crate) fn printable(name: &str) -> String {
    let mut out = String::new();
    // Where to cut if the whole does not fit: the last place that leaves room for the ellipsis.
    let mut cut = 0;
    for c in name.chars() {
        out.extend(c.escape_debug());
        if out.len() > MAX_NAME {
            out.truncate(cut);
            out.push('…');
            return out;
        }
        if out.len() + '…'.len_utf8() <= MAX_NAME {
            cut = out.len();
        }
    }
    out
}

struct Place<'a>(Section, Option<&'a str>, Option<u64>);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place(section, name, offset) = *self;
        let (whole, each) = section.words();
        match name {
            Some(name) => write!(f, "{each} `{name}`")?,
            None => f.write_str(whole)?,
        }
        match offset {
            Some(offset) => write!(f, " (byte {offset})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_cut() {
        assert_eq!(printable("llama.block_count"), "llama.block_count");
        assert_eq!(printable("a\0b\n\"\u{1b}[31m"), "a\\0b\\n\\\"\\u{1b}[31m");
        assert_eq!(printable(&"k".repeat(64)), "k".repeat(64));
        let cut = printable(&"k".repeat(65));
        assert_eq!(cut, format!("{}…", "k".repeat(61)));
        for n in 0..200 {
            assert!(printable(&"\u{1}é".repeat(n)).len() <= MAX_NAME);
        }
    }

    #[test]
    fn messages_name_file_section_key_and_offset() {
        let e = ModelError::malformed("m.gguf", Section::Metadata, Some("a.b"), Some(24), "must be UTF-8");
        assert_eq!(e.to_string(), "m.gguf: metadata key `a.b` (byte 24): must be UTF-8");
        let e = ModelError::missing("m.gguf", Section::TensorTable, "output.weight");
        assert_eq!(e.to_string(), "m.gguf: tensor `output.weight` is missing");
        let e = ModelError::malformed("m.gguf", Section::Header, None, None, "ends early");
        assert_eq!(e.to_string(), "m.gguf: header: ends early");
        assert_eq!((e.file(), e.section(), e.name()), ("m.gguf", Some(Section::Header), None));
    }
}
