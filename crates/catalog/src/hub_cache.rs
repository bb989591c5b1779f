//! The folder layout that all Hugging Face tools share, so a file fetched by one serves the others.
//!
//! ```text
//! HUB/models--USER--REPO/blobs/ETAG                 the bytes (the etag of a large file is its sha256)
//!                        blobs/ETAG.incomplete      the bytes so far
//!                        snapshots/COMMIT/FILE      link to ../../blobs/ETAG
//!                        refs/main                  COMMIT
//! HUB/.locks/models--USER--REPO/ETAG.lock           the lock that the hub's own library takes too
//! ```
//!
//! Invariant: a snapshot link appears only after its blob is whole.
//! Not here: talking to the hub (`hub`), deciding whether a file's hash is right (`catalog`).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::durable::{make_parent, remove_if_there, write_whole};
use crate::error::CatalogError;

/// Repositories nest folders rarely and never deeply.
const MAX_DEPTH: usize = 6;

/// Whether `text` is `user/repo` as the hub allows it.
pub(crate) fn is_repo(text: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && part.len() <= 96
            && !part.starts_with(['.', '-'])
            && !part.contains("--")
            && !part.contains("..")
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    text.split_once('/').is_some_and(|(user, repo)| part(user) && part(repo))
}

/// Whether `text` is a relative path that stays inside its folder on every system.
pub(crate) fn is_plain_path(text: &str) -> bool {
    let bad = |c: char| c.is_control() || matches!(c, '\\' | ':');
    text.len() <= 1000
        && !text.contains(bad)
        && text.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
}

/// Whether `text` can be the name of a blob or a commit.
pub(crate) fn is_plain_name(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// One repository's folder.
#[derive(Debug)]
pub(crate) struct RepoFolder {
    root: PathBuf,
    locks: PathBuf,
}

impl RepoFolder {
    /// The folder of `repo`, which passed [`is_repo`]. Nothing is made yet.
    pub(crate) fn new(hub: &Path, repo: &str) -> Self {
        let name = format!("models--{}", repo.replace('/', "--"));
        Self { root: hub.join(&name), locks: hub.join(".locks").join(name) }
    }

    /// Every repository in the cache, as `user/repo`.
    pub(crate) fn all(hub: &Path) -> Vec<String> {
        let mut repos: Vec<String> = names_in(hub)
            .iter()
            .filter_map(|name| name.strip_prefix("models--"))
            .map(|name| name.replacen("--", "/", 1))
            .filter(|repo| is_repo(repo))
            .collect();
        repos.sort();
        repos
    }

    /// Path of a blob.
    pub(crate) fn blob(&self, etag: &str) -> PathBuf {
        self.root.join("blobs").join(etag)
    }

    /// Path of a blob that is still growing.
    pub(crate) fn incomplete(&self, etag: &str) -> PathBuf {
        self.root.join("blobs").join(format!("{etag}.incomplete"))
    }

    /// Path of the lock of a blob.
    pub(crate) fn lock(&self, etag: &str) -> PathBuf {
        self.locks.join(format!("{etag}.lock"))
    }

    /// Existing copies of `file`, the one of `refs/main` first.
    pub(crate) fn copies(&self, file: &str) -> Vec<PathBuf> {
        self.snapshots().iter().map(|snapshot| snapshot.join(file)).filter(|path| path.is_file()).collect()
    }

    /// The files of all snapshots, as paths inside the repository.
    pub(crate) fn files(&self) -> BTreeSet<String> {
        let mut files = BTreeSet::new();
        for snapshot in self.snapshots() {
            walk(&snapshot, "", MAX_DEPTH, &mut files);
        }
        files
    }

    /// Links a whole blob into a snapshot and moves `refs/REVISION`. Returns the snapshot's path.
    pub(crate) fn publish(
        &self,
        revision: &str,
        commit: &str,
        file: &str,
        etag: &str,
    ) -> Result<PathBuf, CatalogError> {
        let link = self.root.join("snapshots").join(commit).join(file);
        let ups = "../".repeat(file.split('/').count() + 1);
        let blob = self.blob(etag);
        if fs::canonicalize(&link).ok() != fs::canonicalize(&blob).ok() {
            make_parent(&link)?;
            place(&blob, Path::new(&format!("{ups}blobs/{etag}")), &link)?;
        }
        if revision != commit && is_plain_path(revision) {
            write_whole(&self.root.join("refs").join(revision), commit.as_bytes())?;
        }
        Ok(link)
    }

    /// Deletes every copy of `file`, and its blobs where no other link needs them. Returns the bytes freed.
    pub(crate) fn remove(&self, file: &str) -> Result<u64, CatalogError> {
        let mut freed = 0;
        for copy in self.copies(file) {
            let blob = fs::canonicalize(&copy).map_err(CatalogError::io("read", &copy))?;
            let size = fs::metadata(&blob).map_err(CatalogError::io("read", &blob))?.len();
            // A link may lead anywhere; only what lies in this repository's own folder is ours to delete.
            let ours = fs::canonicalize(&self.root).is_ok_and(|root| blob.starts_with(root));
            remove_if_there(&copy)?;
            if !blob.exists() {
                freed += size;
            } else if ours && !self.is_linked(&blob) {
                remove_if_there(&blob)?;
                freed += size;
            }
        }
        Ok(freed)
    }

    fn is_linked(&self, blob: &Path) -> bool {
        self.snapshots().iter().any(|snapshot| {
            let mut files = BTreeSet::new();
            walk(snapshot, "", MAX_DEPTH, &mut files);
            files.iter().any(|file| fs::canonicalize(snapshot.join(file)).is_ok_and(|path| path == blob))
        })
    }

    fn snapshots(&self) -> Vec<PathBuf> {
        let dir = self.root.join("snapshots");
        let main = fs::read_to_string(self.root.join("refs").join("main")).unwrap_or_default();
        let mut names = names_in(&dir);
        // Newest first would need times that copies do not keep; after `main` any fixed order is as good.
        names.sort_by_key(|name| (name != main.trim(), name.clone()));
        names.iter().map(|name| dir.join(name)).collect()
    }
}

fn names_in(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn walk(dir: &Path, prefix: &str, depth: usize, files: &mut BTreeSet<String>) {
    for name in names_in(dir) {
        let path = dir.join(&name);
        let inside = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        if path.is_file() {
            files.insert(inside);
        } else if depth > 0 && path.is_dir() {
            walk(&path, &inside, depth - 1, files);
        }
    }
}

/// Makes `link` show the blob: a relative link where the system lets us, otherwise the file itself.
fn place(blob: &Path, target: &Path, link: &Path) -> Result<(), CatalogError> {
    let mut fresh = link.as_os_str().to_owned();
    fresh.push(format!(".{}.new", std::process::id()));
    let fresh = PathBuf::from(fresh);
    remove_if_there(&fresh)?;
    if symlink(target, &fresh).is_ok() {
        return fs::rename(&fresh, link).map_err(CatalogError::io("write", link));
    }
    // Windows allows links only to some users. Moving the blob is what the hub's own library does then.
    remove_if_there(link)?;
    fs::rename(blob, link).map_err(CatalogError::io("write", link))
}

#[cfg(unix)]
fn symlink(target: &Path, link: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(windows)]
fn symlink(target: &Path, link: &Path) -> std::io::Result<()> {
    std::os::windows::fs::symlink_file(target, link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_their_folder_are_refused() {
        assert!(is_repo("Qwen/Qwen2.5-Coder_0.5B"));
        for bad in
            ["a", "a/b/c", "../a", "a/..", "a/b--c", "-a/b", "a/.b", "a/b c", "a\\b/c", "/", "a/", "/b"]
        {
            assert!(!is_repo(bad), "{bad}");
        }
        assert!(is_plain_path("Q4_K_M/model name.gguf"));
        for bad in ["", "/a", "a/", "a//b", "../a", "a/../b", "./a", "c:\\a", "c:a", "a\\b", "a\nb"] {
            assert!(!is_plain_path(bad), "{bad}");
        }
        assert!(!is_plain_name("..") && !is_plain_name("a/b") && !is_plain_name(""));
    }

    #[test]
    fn a_published_blob_is_found_listed_and_removed() {
        let hub = tempfile::tempdir().unwrap();
        let repo = RepoFolder::new(hub.path(), "user/repo");
        make_parent(&repo.blob("e1")).unwrap();
        fs::write(repo.blob("e1"), b"12345").unwrap();
        let flat = repo.publish("main", "c1", "a.gguf", "e1").unwrap();
        let nested = repo.publish("main", "c2", "deep/er/b.gguf", "e1").unwrap();
        assert_eq!(fs::read(&flat).unwrap(), b"12345");
        assert_eq!(fs::read(&nested).unwrap(), b"12345");
        assert_eq!(fs::read_to_string(hub.path().join("models--user--repo/refs/main")).unwrap(), "c2");
        assert_eq!(repo.copies("a.gguf"), [flat]);
        assert_eq!(RepoFolder::all(hub.path()), ["user/repo"]);
        let files: Vec<String> = repo.files().into_iter().collect();
        assert_eq!(files, ["a.gguf", "deep/er/b.gguf"]);
        // Publishing again changes nothing.
        repo.publish("main", "c2", "deep/er/b.gguf", "e1").unwrap();
        assert_eq!(repo.remove("a.gguf").unwrap(), 0, "the blob is still linked");
        assert!(repo.blob("e1").exists());
        assert_eq!(repo.remove("deep/er/b.gguf").unwrap(), 5);
        assert!(!repo.blob("e1").exists());
    }

    #[cfg(unix)]
    #[test]
    fn removing_a_link_that_leads_outside_leaves_what_it_leads_to() {
        let hub = tempfile::tempdir().unwrap();
        let outside = hub.path().join("precious.gguf");
        fs::write(&outside, b"12345").unwrap();
        let repo = RepoFolder::new(hub.path(), "user/repo");
        let copy = hub.path().join("models--user--repo/snapshots/c1/a.gguf");
        make_parent(&copy).unwrap();
        std::os::unix::fs::symlink(&outside, &copy).unwrap();
        assert_eq!(repo.remove("a.gguf").unwrap(), 0);
        assert!(fs::symlink_metadata(&copy).is_err(), "the link is gone");
        assert_eq!(fs::read(&outside).unwrap(), b"12345");
    }

    #[test]
    fn the_copy_of_main_comes_first() {
        let hub = tempfile::tempdir().unwrap();
        let repo = RepoFolder::new(hub.path(), "user/repo");
        for etag in ["e1", "e2", "e3"] {
            make_parent(&repo.blob(etag)).unwrap();
            fs::write(repo.blob(etag), etag).unwrap();
        }
        repo.publish("main", "aaa", "m.gguf", "e1").unwrap();
        repo.publish("main", "ccc", "m.gguf", "e3").unwrap();
        repo.publish("main", "bbb", "m.gguf", "e2").unwrap();
        let first = fs::read_to_string(&repo.copies("m.gguf")[0]).unwrap();
        assert_eq!(first, "e2");
        assert_eq!(repo.copies("m.gguf").len(), 3);
    }
}
