//! The environment variables the command reads, all of them, in one list.
//!
//! Invariant: no other file of this crate reads the environment.
//! Not here: variables of caches, hub and proxies, which `pilotfish_catalog::env` lists.

/// Kernel table to use instead of the fastest one; `--kernels` wins.
const KERNELS: &str = "PILOTFISH_KERNELS";
/// Any value that is not empty turns colours off (no-color.org).
const NO_COLOR: &str = "NO_COLOR";
/// Key that requests to `serve` must carry, besides those of `--api-key`.
const API_KEY: &str = "PILOTFISH_API_KEY";

/// A key for `serve`.
pub(crate) fn api_key() -> Option<String> {
    read(API_KEY)
}

/// The kernel table asked for.
pub(crate) fn kernels() -> Option<String> {
    read(KERNELS)
}

/// Whether colours are unwanted.
pub(crate) fn no_color() -> bool {
    read(NO_COLOR).is_some()
}

/// A variable that is set and not empty.
fn read(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()).filter(|value| !value.is_empty())
}
