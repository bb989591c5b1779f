//! Models that are named by their place on the hub (`-hf`), and the hub's files in its shared cache.
//!
//! ```text
//! which file?   -hff says it; else the quantization's file in the cache; else the hub's list decides
//! cached, right, and no newer one wanted?   use it      otherwise ask the hub, download, link
//! ```
//!
//! Invariant: a blob that is named by a sha256 is only handed out with that sha256.
//! Not here: models of the catalog that happen to be on the hub, except for the download itself.

use std::path::PathBuf;

use super::{Catalog, LocalModel, blob_name, offline_error};
use crate::download::download;
use crate::error::CatalogError;
use crate::hub::{Hub, RemoteFile, choose};
use crate::lock::Lock;
use crate::progress::Progress;
use crate::spec::ModelSpec;
use crate::verified;

impl Catalog {
    /// A model of the hub, from its cache unless `fresh` asks whether the hub has a newer one.
    pub(super) fn hub_model(
        &self,
        repo: &str,
        quant: Option<&str>,
        file: Option<&str>,
        offline: bool,
        fresh: bool,
        progress: &dyn Progress,
    ) -> Result<LocalModel, CatalogError> {
        let folder = self.repo(repo);
        let cached: Vec<String> = folder.files().into_iter().collect();
        let local_choice = match file {
            Some(file) => cached.iter().any(|cached| cached == file).then(|| file.to_owned()),
            None => choose(repo, &cached, quant).ok(),
        };
        // Without a quantization another file of the repository may be the better choice, unless it is the one
        // that always wins.
        let settled = file.is_some() || quant.is_some() || {
            let best = choose(repo, &cached, Some("Q4_K_M")).ok();
            best.is_some() && best == local_choice
        };
        if let Some(file) = &local_choice
            && (offline || settled && !fresh)
            && let Some(model) = self.look_hub(repo, file, offline, progress)?
        {
            return Ok(model);
        }
        let name = file.map_or_else(|| repo.to_owned(), |file| format!("{repo}/{file}"));
        let argument = || {
            let (repo, quant, file) = (repo.to_owned(), quant.map(str::to_owned), file.map(str::to_owned));
            ModelSpec::Hub { repo, quant, file }.argument()
        };
        if offline {
            return Err(offline_error(&name, &argument()));
        }
        let hub = Hub::new(&self.env, &self.tuning)?;
        let asked = self.ask_hub(&hub, repo, quant, file, progress);
        let remote = match (asked, local_choice) {
            (Ok(remote), _) => remote,
            (Err(error @ CatalogError::Unreachable { .. }), Some(file)) => {
                progress.message(&format!("{error}; using the copy in the cache"));
                return self.look_hub(repo, &file, false, progress)?.ok_or(error);
            }
            (Err(error), _) => return Err(error),
        };
        let (path, sha256) = self.fetch(&hub, &remote, "main", progress)?;
        self.local(path, &format!("{repo}/{}", remote.file), sha256)
    }

    fn ask_hub(
        &self,
        hub: &Hub,
        repo: &str,
        quant: Option<&str>,
        file: Option<&str>,
        progress: &dyn Progress,
    ) -> Result<RemoteFile, CatalogError> {
        progress.message(&format!("looking for {repo} at {}", hub.endpoint()));
        let file = match file {
            Some(file) => file.to_owned(),
            None => choose(repo, &hub.list(repo, "main", progress)?, quant)?,
        };
        hub.describe(repo, &file, "main", progress)
    }

    /// A copy of a hub file in the cache whose hash is that of its blob's name, where that is a hash.
    fn look_hub(
        &self,
        repo: &str,
        file: &str,
        offline: bool,
        progress: &dyn Progress,
    ) -> Result<Option<LocalModel>, CatalogError> {
        let mut damaged = None;
        for path in self.repo(repo).copies(file) {
            let sha256 = verified::sha256(&self.places, &path, progress)?;
            match blob_name(&path) {
                Some(expected) if expected != sha256 => {
                    damaged = Some(CatalogError::Damaged { path, expected })
                }
                _ => return self.local(path, &format!("{repo}/{file}"), sha256).map(Some),
            }
        }
        match damaged {
            Some(error) if offline => Err(error),
            _ => Ok(None),
        }
    }

    /// Downloads a described file into the Hugging Face cache, unless its blob is there and right.
    pub(super) fn fetch(
        &self,
        hub: &Hub,
        remote: &RemoteFile,
        revision: &str,
        progress: &dyn Progress,
    ) -> Result<(PathBuf, String), CatalogError> {
        let folder = self.repo(&remote.repo);
        let _lock = Lock::take(&folder.lock(&remote.etag), &remote.file, progress)?;
        let blob = folder.blob(&remote.etag);
        let there = if blob.is_file() {
            Some(verified::sha256(&self.places, &blob, progress)?)
                .filter(|sha256| remote.sha256.as_ref().is_none_or(|expected| expected == sha256))
        } else {
            None
        };
        let sha256 = match there {
            Some(sha256) => sha256,
            None => {
                let incomplete = folder.incomplete(&remote.etag);
                let sha256 = download(hub, remote, &incomplete, &blob, &self.tuning, progress)?;
                verified::remember(&self.places, &blob, &sha256);
                sha256
            }
        };
        let path = folder.publish(revision, &remote.commit, &remote.file, &remote.etag)?;
        Ok((path, sha256))
    }
}
