//! The cache that all Hugging Face tools share: choosing from it, trusting it, and not trusting it.
//!
//! Not here: faults of a transfer (`hub`).

use std::fs;

use super::fake_hub::{FakeHub, host};
use super::hub::Scene;
use super::*;
use crate::catalog::Offline;
use crate::error::CatalogError;
use crate::progress::Quiet;

#[test]
fn a_repository_is_resolved_by_quantization_and_then_by_the_cache() {
    let scene = Scene::new(5000);
    let hub = FakeHub::hosting(&scene.content);
    let catalog = scene.catalog(&hub);
    let spec = ModelSpec::from_hub("fish/pilot-GGUF:q4_k_m", None).unwrap();
    let model = catalog.resolve(&spec, Offline::No, &Quiet).unwrap();
    assert_eq!(model.name, format!("{REPO}/{FILE}"));
    assert_eq!(fs::read(&model.path).unwrap(), scene.content);
    let asked = hub.requests().len();
    for (repo, file) in [(REPO, None), (REPO, Some(FILE)), ("fish/pilot-GGUF:Q4_K_M", None)] {
        let spec = ModelSpec::from_hub(repo, file).unwrap();
        assert_eq!(catalog.resolve(&spec, Offline::No, &Quiet).unwrap(), model);
    }
    assert_eq!(hub.requests().len(), asked);
    let error =
        catalog.resolve(&ModelSpec::from_hub("fish/pilot-GGUF:Q8_0", None).unwrap(), Offline::No, &Quiet);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("no GGUF file for `Q8_0`; it has: pilot-Q4_K_M.gguf"), "{error}");
    let error = catalog.resolve(&ModelSpec::from_hub("fish/other", None).unwrap(), Offline::No, &Quiet);
    assert!(error.unwrap_err().to_string().contains("the hub has no fish/other"));
    assert_eq!(catalog.remove(&spec, &Quiet).unwrap().bytes, 5000);
}

#[test]
fn pull_fetches_a_newer_file_and_resolve_keeps_the_old_one() {
    let scene = Scene::new(5000);
    let old = FakeHub::hosting(&scene.content);
    let spec = ModelSpec::from_hub(REPO, None).unwrap();
    scene.catalog(&old).pull(&spec, Offline::No, &Quiet).unwrap();
    let newer = content(6000, 3);
    let hub = {
        let newer = newer.clone();
        FakeHub::start(move |request, _| {
            let mut reply = host(request, &newer);
            // A new file comes with a new commit.
            for (name, value) in &mut reply.headers {
                if name == "X-Repo-Commit" {
                    *value = COMMIT.replace('0', "f");
                }
            }
            reply
        })
    };
    // The new commit's address is not one the fake knows, so let it answer for any.
    let kept = scene.catalog(&hub).resolve(&spec, Offline::No, &Quiet).unwrap();
    assert_eq!(kept.bytes, 5000);
    assert_eq!(hub.requests().len(), 0);
    let error = scene.catalog(&hub).pull(&spec, Offline::No, &Quiet).unwrap_err();
    assert!(matches!(error, CatalogError::NotOnHub { .. }), "{error}");
    let same_commit = FakeHub::hosting(&newer);
    let fresh = scene.catalog(&same_commit).pull(&spec, Offline::No, &Quiet).unwrap();
    assert_eq!(fs::read(&fresh.path).unwrap(), newer);
    let now = scene.catalog(&same_commit).resolve(&spec, Offline::Yes, &Quiet).unwrap();
    assert_eq!(now.bytes, 6000);
    // An unchanged file is not fetched again.
    let gets = same_commit.gets().len();
    scene.catalog(&same_commit).pull(&spec, Offline::No, &Quiet).unwrap();
    let byte_gets = |hub: &FakeHub| hub.gets().iter().filter(|get| get.path.contains("/resolve/")).count();
    assert_eq!((byte_gets(&same_commit), same_commit.gets().len()), (1, gets + 1));
}

#[test]
fn a_file_that_another_tool_fetched_is_used() {
    let scene = Scene::new(5000);
    let folder = scene.folder();
    let etag = sha256(&scene.content);
    crate::durable::write_whole(&folder.blob(&etag), &scene.content).unwrap();
    let path = folder.publish("main", "abc", FILE, &etag).unwrap();
    let hub = FakeHub::hosting(&scene.content);
    let model = scene.catalog(&hub).resolve(&pilot(), Offline::No, &Quiet).unwrap();
    assert_eq!(model.path, path);
    assert_eq!(hub.requests().len(), 0);
}

#[test]
fn a_damaged_file_in_the_cache_is_never_handed_out() {
    let scene = Scene::new(5000);
    let folder = scene.folder();
    let etag = sha256(&scene.content);
    crate::durable::write_whole(&folder.blob(&etag), &scene.content[..4000]).unwrap();
    folder.publish("main", COMMIT, FILE, &etag).unwrap();
    let hub = FakeHub::hosting(&scene.content);
    let spec = ModelSpec::from_hub(REPO, None).unwrap();
    for spec in [&pilot(), &spec] {
        let error = scene.catalog(&hub).resolve(spec, Offline::Yes, &Quiet).unwrap_err();
        assert!(matches!(error, CatalogError::Damaged { .. }), "{error}");
    }
    let recorder = Recorder::default();
    let model = scene.catalog(&hub).resolve(&pilot(), Offline::No, &recorder).unwrap();
    assert_eq!(fs::read(&model.path).unwrap(), scene.content);
    assert!(recorder.said("damaged"));
}

#[test]
fn another_version_in_the_cache_is_passed_over_unread() {
    let scene = Scene::new(5000);
    let folder = scene.folder();
    // The content does not even match its name, which would be noticed if it were read.
    let other = "f".repeat(64);
    crate::durable::write_whole(&folder.blob(&other), b"other").unwrap();
    folder.publish("main", "abc", FILE, &other).unwrap();
    let error = catalog(env(scene.cache.path()), scene.entries).resolve(&pilot(), Offline::Yes, &Quiet);
    let error = error.unwrap_err();
    assert!(matches!(error, CatalogError::Offline { .. }), "{error}");
}

#[test]
fn a_plain_path_is_taken_as_it_is() {
    let scene = Scene::new(10);
    let path = scene.cache.path().join("my.gguf");
    fs::write(&path, b"hello world").unwrap();
    let catalog = catalog(env(scene.cache.path()), scene.entries);
    let spec = catalog.parse(path.to_str().unwrap()).unwrap();
    let model = catalog.resolve(&spec, Offline::Yes, &Quiet).unwrap();
    assert_eq!((model.name.as_str(), model.bytes, model.sha256), ("my.gguf", 11, None));
    let hash = catalog.sha256(&path, &Quiet).unwrap();
    assert_eq!(hash, "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9");
    assert_eq!(catalog.resolve(&spec, Offline::Yes, &Quiet).unwrap().sha256, Some(hash));
    let error = catalog.remove(&spec, &Quiet).unwrap_err();
    assert!(matches!(error, CatalogError::NotInstalled { .. }) && path.exists(), "{error}");
}
