//! The environment variables this crate reads, all of them, in one list.
//!
//! [`Env`] is a snapshot: the process environment is read once, through [`VARIABLES`], and handed down. Tests
//! build one by hand, so they neither see nor disturb the environment they run in.
//!
//! Invariant: no other file of this crate reads the environment, and no variable outside [`VARIABLES`] counts.
//! Not here: what the folders are used for (`places`), flags of the command line.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::error::CatalogError;

/// One environment variable and what it does here.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Its name, as the system spells it.
    pub name: &'static str,
    /// One sentence for `--help` and the manual.
    pub what: &'static str,
}

/// Every variable that is read, in the order a manual should list them.
pub const VARIABLES: &[Variable] = &[
    Variable { name: "HF_HUB_CACHE", what: "Folder of the Hugging Face cache; wins over HF_HOME." },
    Variable { name: "HUGGINGFACE_HUB_CACHE", what: "Older name of HF_HUB_CACHE, used when that is unset." },
    Variable { name: "HF_HOME", what: "Folder of Hugging Face files; its cache is HF_HOME/hub." },
    Variable {
        name: "HF_ENDPOINT",
        what: "Address of the hub, for mirrors; https://huggingface.co if unset.",
    },
    Variable {
        name: "HF_TOKEN",
        what: "Access token for gated or private repositories, sent to the hub only.",
    },
    Variable { name: "HF_TOKEN_PATH", what: "File with the access token; HF_HOME/token if unset." },
    Variable { name: "HF_HUB_OFFLINE", what: "1, true, yes or on: never use the network, like --offline." },
    Variable { name: "XDG_CACHE_HOME", what: "Folder of caches; ~/.cache if unset." },
    Variable { name: "LOCALAPPDATA", what: "Folder of caches on Windows, when XDG_CACHE_HOME is unset." },
    Variable { name: "HOME", what: "The user's folder." },
    Variable { name: "USERPROFILE", what: "The user's folder on Windows, when HOME is unset." },
    Variable { name: "HTTPS_PROXY", what: "Proxy for https addresses; https_proxy is read too." },
    Variable { name: "https_proxy", what: "See HTTPS_PROXY." },
    Variable { name: "HTTP_PROXY", what: "Proxy for http addresses; http_proxy is read too." },
    Variable { name: "http_proxy", what: "See HTTP_PROXY." },
    Variable {
        name: "ALL_PROXY",
        what: "Proxy for both, when the specific one is unset; all_proxy is read too.",
    },
    Variable { name: "all_proxy", what: "See ALL_PROXY." },
    Variable { name: "NO_PROXY", what: "Hosts reached without the proxy; no_proxy is read too." },
    Variable { name: "no_proxy", what: "See NO_PROXY." },
    Variable {
        name: "PILOTFISH_PIP",
        what: "Command that runs pip, words split at spaces (`python3.12 -m pip`), instead of searching for one.",
    },
];

/// A snapshot of the variables in [`VARIABLES`]; an empty value counts as unset.
#[derive(Clone, Debug, Default)]
pub struct Env {
    values: BTreeMap<&'static str, String>,
}

impl Env {
    /// Reads the process environment. Values that are not UTF-8 are kept with replacement characters.
    pub fn from_process() -> Self {
        let mut env = Self::default();
        for variable in VARIABLES {
            if let Some(value) = std::env::var_os(variable.name) {
                env = env.with(variable.name, &value.to_string_lossy());
            }
        }
        env
    }

    /// An environment in which nothing is set.
    pub fn empty() -> Self {
        Self::default()
    }

    /// The same environment with one variable set; setting it to the empty string unsets it.
    ///
    /// Panics when the name is not in [`VARIABLES`], which is a bug of the caller.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        let known = registered(name);
        if value.is_empty() {
            self.values.remove(known);
        } else {
            self.values.insert(known, value.to_owned());
        }
        self
    }

    /// The value of a variable, or `None` when it is unset or empty.
    ///
    /// Panics when the name is not in [`VARIABLES`], which is a bug of the caller.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(registered(name)).map(String::as_str)
    }

    /// Whether `HF_HUB_OFFLINE` asks for no network, with the spellings the hub's own library accepts.
    pub fn offline(&self) -> bool {
        let value = self.get("HF_HUB_OFFLINE").unwrap_or_default().to_ascii_lowercase();
        matches!(value.as_str(), "1" | "true" | "yes" | "on")
    }

    /// The hub's address without a trailing slash.
    pub(crate) fn endpoint(&self) -> Result<String, CatalogError> {
        let value = self.get("HF_ENDPOINT").unwrap_or("https://huggingface.co").trim_end_matches('/');
        if value.starts_with("https://") || value.starts_with("http://") {
            return Ok(value.to_owned());
        }
        Err(CatalogError::BadVariable {
            name: "HF_ENDPOINT",
            value: value.to_owned(),
            why: "it must start with https:// or http://",
        })
    }

    /// The access token, from `HF_TOKEN` or the token file that `hf auth login` writes.
    pub(crate) fn token(&self) -> Option<String> {
        if let Some(token) = self.get("HF_TOKEN") {
            return Some(token.trim().to_owned());
        }
        let file = match self.get("HF_TOKEN_PATH") {
            Some(path) => self.expand(path),
            None => self.hf_home()?.join("token"),
        };
        let text = std::fs::read_to_string(file).ok()?;
        let token = text.trim();
        (!token.is_empty()).then(|| token.to_owned())
    }

    /// Proxy address for the scheme of `url`, if one is set.
    pub(crate) fn proxy_for(&self, url: &str) -> Option<(&'static str, &str)> {
        let names: [&'static str; 4] = if url.starts_with("https://") {
            ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]
        } else {
            ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]
        };
        names.into_iter().find_map(|name| self.get(name).map(|value| (name, value)))
    }

    /// Hosts that are reached without the proxy, as one comma-separated list.
    pub(crate) fn no_proxy(&self) -> Option<&str> {
        self.get("NO_PROXY").or_else(|| self.get("no_proxy"))
    }

    /// The user's folder.
    pub(crate) fn home(&self) -> Option<PathBuf> {
        self.get("HOME").or_else(|| self.get("USERPROFILE")).map(PathBuf::from)
    }

    /// The folder Hugging Face tools share, which holds `hub/` and `token`.
    pub(crate) fn hf_home(&self) -> Option<PathBuf> {
        if let Some(path) = self.get("HF_HOME") {
            return Some(self.expand(path));
        }
        // The hub's own library ignores LOCALAPPDATA, and the point of this folder is to share it.
        let cache = match self.get("XDG_CACHE_HOME") {
            Some(path) => self.expand(path),
            None => self.home()?.join(".cache"),
        };
        Some(cache.join("huggingface"))
    }

    /// A path with a leading `~/` replaced, as the hub's own library does for its variables.
    pub(crate) fn expand(&self, path: &str) -> PathBuf {
        match (path.strip_prefix("~/"), self.home()) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => PathBuf::from(path),
        }
    }
}

fn registered(name: &str) -> &'static str {
    let found = VARIABLES.iter().find(|variable| variable.name == name);
    found.unwrap_or_else(|| panic!("environment variable {name} is not in VARIABLES")).name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_value_is_unset() {
        let env = Env::empty().with("HF_TOKEN", "x").with("HF_TOKEN", "");
        assert_eq!(env.get("HF_TOKEN"), None);
    }

    #[test]
    fn offline_accepts_the_hubs_spellings() {
        for value in ["1", "true", "YES", "On"] {
            assert!(Env::empty().with("HF_HUB_OFFLINE", value).offline(), "{value}");
        }
        for value in ["0", "false", "no", ""] {
            assert!(!Env::empty().with("HF_HUB_OFFLINE", value).offline(), "{value}");
        }
    }

    #[test]
    fn endpoint_must_be_an_http_address() {
        let mirror = Env::empty().with("HF_ENDPOINT", "http://127.0.0.1:9/");
        assert_eq!(mirror.endpoint().unwrap(), "http://127.0.0.1:9");
        assert_eq!(Env::empty().endpoint().unwrap(), "https://huggingface.co");
        let error = Env::empty().with("HF_ENDPOINT", "mirror.example").endpoint().unwrap_err();
        assert!(error.to_string().contains("HF_ENDPOINT"), "{error}");
    }

    #[test]
    fn token_file_is_read_when_the_variable_is_unset() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("token"), "from-file\n").unwrap();
        let env = Env::empty().with("HF_HOME", dir.path().to_str().unwrap());
        assert_eq!(env.token().as_deref(), Some("from-file"));
        assert_eq!(env.with("HF_TOKEN", "from-variable").token().as_deref(), Some("from-variable"));
    }

    #[test]
    fn the_proxy_follows_the_scheme() {
        let env = Env::empty().with("https_proxy", "http://a:1").with("ALL_PROXY", "http://b:2");
        assert_eq!(env.proxy_for("https://hub"), Some(("https_proxy", "http://a:1")));
        assert_eq!(env.proxy_for("http://hub"), Some(("ALL_PROXY", "http://b:2")));
    }
}
