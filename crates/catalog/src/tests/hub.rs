//! Downloads from the hub: the plain case and every fault.
//!
//! Not here: what is done with files that are in its cache already (`shared_cache`).

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use super::fake_hub::{FakeHub, Reply, bytes, host};
use super::*;
use crate::catalog::{InstalledFrom, Offline};
use crate::error::CatalogError;
use crate::hub_cache::RepoFolder;
use crate::progress::Quiet;

pub(super) struct Scene {
    pub(super) cache: tempfile::TempDir,
    pub(super) content: Vec<u8>,
    pub(super) entries: &'static [Entry],
}

impl Scene {
    pub(super) fn new(len: usize) -> Self {
        let content = content(len, 1);
        let entries = table(Some(&content), vec![hub_source()]);
        Self { cache: tempfile::tempdir().unwrap(), content, entries }
    }

    fn env(&self, hub: &FakeHub) -> Env {
        env(self.cache.path()).with("HF_ENDPOINT", &hub.url())
    }

    pub(super) fn catalog(&self, hub: &FakeHub) -> Catalog {
        catalog(self.env(hub), self.entries)
    }

    pub(super) fn folder(&self) -> RepoFolder {
        RepoFolder::new(&self.cache.path().join("huggingface/hub"), REPO)
    }

    fn incomplete(&self) -> PathBuf {
        self.folder().incomplete(&sha256(&self.content))
    }

    /// What a killed run would have left.
    fn leave(&self, bytes: &[u8]) {
        crate::durable::write_whole(&self.incomplete(), bytes).unwrap();
    }

    fn assert_nothing_visible(&self) {
        assert!(!self.folder().blob(&sha256(&self.content)).exists());
        assert_eq!(self.folder().copies(FILE), Vec::<PathBuf>::new());
        let env = env(self.cache.path());
        assert_eq!(catalog(env, self.entries).installed(), []);
    }
}

#[test]
fn a_file_is_fetched_linked_verified_and_then_needs_no_network() {
    let scene = Scene::new(700_000);
    let hub = FakeHub::hosting(&scene.content);
    let recorder = Recorder::default();
    let catalog = scene.catalog(&hub);
    let model = catalog.resolve(&pilot(), Offline::No, &recorder).unwrap();
    assert_eq!(fs::read(&model.path).unwrap(), scene.content);
    assert_eq!((model.name.as_str(), model.bytes), ("pilot", 700_000));
    assert_eq!(model.sha256.as_deref(), Some(sha256(&scene.content).as_str()));
    assert_eq!(*recorder.totals.borrow(), [Some(700_000)]);
    assert_eq!((recorder.position.get(), recorder.finished.get()), (700_000, 1));
    let root = scene.cache.path().join("huggingface/hub/models--fish--pilot-GGUF");
    assert_eq!(fs::read_to_string(root.join("refs/main")).unwrap(), COMMIT);
    assert_eq!(model.path, root.join("snapshots").join(COMMIT).join(FILE));
    assert!(!scene.incomplete().exists());

    let asked = hub.requests().len();
    let again = catalog.resolve(&pilot(), Offline::Yes, &Quiet).unwrap();
    assert_eq!(again, model);
    let installed = catalog.installed();
    assert_eq!(installed.len(), 1);
    assert_eq!((installed[0].name.as_str(), installed[0].source), ("pilot", InstalledFrom::Hub));
    assert_eq!(hub.requests().len(), asked);

    assert_eq!(catalog.remove(&pilot(), &Quiet).unwrap().bytes, 700_000);
    scene.assert_nothing_visible();
    let error = catalog.remove(&pilot(), &Quiet).unwrap_err();
    assert!(matches!(error, CatalogError::NotInstalled { .. }), "{error}");
}

#[test]
fn a_cut_connection_is_continued() {
    let scene = Scene::new(3_000_000);
    let content = scene.content.clone();
    let hub = FakeHub::start(move |request, number| {
        let mut reply = host(request, &content);
        if request.method == "GET" && number < 2 {
            reply.cut = Some(1_200_000);
        }
        reply
    });
    let recorder = Recorder::default();
    let model = scene.catalog(&hub).resolve(&pilot(), Offline::No, &recorder).unwrap();
    assert_eq!(fs::read(&model.path).unwrap(), scene.content);
    let starts: Vec<usize> = hub.gets().iter().map(|request| request.from()).collect();
    assert_eq!(starts, [0, 1_200_000, 2_400_000]);
    assert_eq!(*recorder.totals.borrow(), [Some(3_000_000)]);
    assert_eq!(recorder.position.get(), 3_000_000);
}

#[test]
fn a_truncated_download_is_an_error_and_goes_on_next_time() {
    let scene = Scene::new(100_000);
    let content = scene.content.clone();
    let broken = FakeHub::start(move |request, _| {
        let mut reply = host(request, &content);
        reply.cut = Some(1000);
        reply.unsized_body = request.method == "GET";
        reply
    });
    let recorder = Recorder::default();
    let error = scene.catalog(&broken).resolve(&pilot(), Offline::No, &recorder).unwrap_err();
    let CatalogError::Stopped { got, expected, .. } = error else { panic!("{error}") };
    assert_eq!((got, expected), (3000, Some(100_000)));
    assert_eq!(recorder.finished.get(), 1);
    scene.assert_nothing_visible();

    let hub = FakeHub::hosting(&scene.content);
    let recorder = Recorder::default();
    let model = scene.catalog(&hub).resolve(&pilot(), Offline::No, &recorder).unwrap();
    assert_eq!(fs::read(&model.path).unwrap(), scene.content);
    assert_eq!(hub.gets()[0].from(), 3000);
    assert_eq!(recorder.position.get(), 100_000);
}

#[test]
fn damaged_leftovers_are_noticed_and_replaced() {
    let scene = Scene::new(50_000);
    scene.leave(&content(20_000, 99));
    let hub = FakeHub::hosting(&scene.content);
    let recorder = Recorder::default();
    let model = scene.catalog(&hub).resolve(&pilot(), Offline::No, &recorder).unwrap();
    assert_eq!(fs::read(&model.path).unwrap(), scene.content);
    assert!(recorder.said("from the beginning"));
    assert_eq!(hub.gets().len(), 2);
    assert_eq!(recorder.position.get(), 50_000);
}

#[test]
fn leftovers_of_the_full_length_or_longer_are_handled() {
    for leftover in [Scene::new(50_000).content, content(50_000, 7), content(60_000, 7)] {
        let scene = Scene::new(50_000);
        scene.leave(&leftover);
        let hub = FakeHub::hosting(&scene.content);
        let model = scene.catalog(&hub).resolve(&pilot(), Offline::No, &Quiet).unwrap();
        assert_eq!(fs::read(&model.path).unwrap(), scene.content);
        assert_eq!(hub.gets().len(), usize::from(leftover != scene.content));
    }
}

#[test]
fn wrong_bytes_are_refused_and_leave_nothing() {
    let scene = Scene::new(50_000);
    let (good, bad) = (scene.content.clone(), content(50_000, 2));
    let hub = FakeHub::start(move |request, _| {
        let mut reply = host(request, &good);
        reply.body.clone_from(&bad);
        reply
    });
    let error = scene.catalog(&hub).resolve(&pilot(), Offline::No, &Quiet).unwrap_err();
    assert!(matches!(error, CatalogError::WrongHash { .. }), "{error}");
    assert!(!scene.incomplete().exists());
    scene.assert_nothing_visible();
}

#[test]
fn a_body_longer_than_announced_is_refused() {
    let scene = Scene::new(50_000);
    let good = scene.content.clone();
    let hub = FakeHub::start(move |request, _| {
        let mut reply = host(request, &good);
        reply.body.extend([0; 10]);
        reply
    });
    let error = scene.catalog(&hub).resolve(&pilot(), Offline::No, &Quiet).unwrap_err();
    assert!(matches!(error, CatalogError::WrongSize { expected: 50_000, .. }), "{error}");
    scene.assert_nothing_visible();
}

#[test]
fn a_hub_with_another_hash_than_the_pinned_one_is_not_asked_for_bytes() {
    let scene = Scene::new(50_000);
    let hub = FakeHub::hosting(&content(50_000, 2));
    let error = scene.catalog(&hub).resolve(&pilot(), Offline::No, &Quiet).unwrap_err();
    assert!(matches!(error, CatalogError::NotThePinnedFile { .. }), "{error}");
    assert!(error.to_string().contains(&sha256(&scene.content)), "{error}");
    assert_eq!(hub.gets().len(), 0);
}

#[test]
fn a_model_without_a_hash_in_the_table_is_pinned_when_first_fetched() {
    let mut scene = Scene::new(50_000);
    scene.entries = table(None, vec![hub_source()]);
    let hub = FakeHub::hosting(&scene.content);
    let catalog = scene.catalog(&hub);
    catalog.resolve(&pilot(), Offline::No, &Quiet).unwrap();
    catalog.remove(&pilot(), &Quiet).unwrap();

    let changed = FakeHub::hosting(&content(50_000, 2));
    let error = scene.catalog(&changed).resolve(&pilot(), Offline::No, &Quiet).unwrap_err().to_string();
    assert!(
        error.contains("not the pinned") && error.contains("pins") && error.contains("delete"),
        "{error}"
    );
    fs::remove_file(scene.cache.path().join("pilotfish/pins/pilot.json")).unwrap();
    scene.catalog(&changed).resolve(&pilot(), Offline::No, &Quiet).unwrap();
}

#[test]
fn the_token_goes_to_the_hub_and_not_to_where_it_redirects() {
    let scene = Scene::new(50_000);
    let content = scene.content.clone();
    // The bytes come from the same server under its other name, which is another host for the client.
    let hub = FakeHub::start(move |request, _| {
        let port: u16 = request.header("host").unwrap().rsplit(':').next().unwrap().parse().unwrap();
        if request.path == "/bytes" {
            return bytes(request, &content).with("ETag", "\"of-the-other-host\"");
        }
        let reply = host(request, &content);
        let location = format!("{}/bytes", FakeHub::other_url(port));
        Reply { status: 302, body: Vec::new(), ..reply }.with("Location", &location)
    });
    scene.leave(&scene.content[..10_000]);
    let catalog = catalog(scene.env(&hub).with("HF_TOKEN", "hf_secret"), scene.entries);
    let model = catalog.resolve(&pilot(), Offline::No, &Quiet).unwrap();
    assert_eq!(fs::read(&model.path).unwrap(), scene.content);
    for request in hub.requests() {
        let token = request.header("authorization");
        if request.path == "/bytes" {
            assert_eq!(token, None);
            assert_eq!(request.from(), 10_000, "the range survives the redirect");
        } else {
            assert_eq!(token, Some("Bearer hf_secret"));
        }
    }
    assert!(hub.gets().iter().any(|request| request.path == "/bytes"));
}

#[test]
fn a_renamed_repository_is_followed_and_a_circle_is_not() {
    let scene = Scene::new(5000);
    let content = scene.content.clone();
    let hub = FakeHub::start(move |request, _| match request.path.strip_prefix("/old") {
        None if request.method == "HEAD" => {
            Reply::status(307).with("Location", &format!("/old{}", request.path))
        }
        None => host(request, &content),
        Some(path) => host(&super::fake_hub::Request { path: path.to_owned(), ..request.clone() }, &content),
    });
    scene.catalog(&hub).resolve(&pilot(), Offline::No, &Quiet).unwrap();

    let scene = Scene::new(5000);
    let hub = FakeHub::start(|request, _| Reply::status(307).with("Location", &request.path));
    let error = scene.catalog(&hub).resolve(&pilot(), Offline::No, &Quiet).unwrap_err();
    assert!(matches!(error, CatalogError::NotAHub { .. }), "{error}");
}

#[test]
fn passing_faults_are_waited_out() {
    let scene = Scene::new(50_000);
    let content = scene.content.clone();
    let hub = FakeHub::start(move |request, number| match number {
        0 => Reply::status(503),
        1 => Reply::status(429).with("Retry-After", "0"),
        _ => host(request, &content),
    });
    let model = scene.catalog(&hub).resolve(&pilot(), Offline::No, &Quiet).unwrap();
    assert_eq!(fs::read(&model.path).unwrap(), scene.content);
    assert_eq!(hub.requests().len(), 6);
}

#[test]
fn a_server_without_ranges_or_with_wrong_ones_is_read_from_the_start() {
    for wrong_place in [false, true] {
        let scene = Scene::new(50_000);
        scene.leave(&scene.content[..20_000]);
        let content = scene.content.clone();
        let hub = FakeHub::start(move |request, _| {
            let plain = super::fake_hub::Request { headers: Vec::new(), ..request.clone() };
            let reply = host(&plain, &content);
            if wrong_place && request.from() > 0 {
                return Reply { status: 206, ..reply }.with("Content-Range", "bytes 0-49999/50000");
            }
            reply
        });
        let recorder = Recorder::default();
        let model = scene.catalog(&hub).resolve(&pilot(), Offline::No, &recorder).unwrap();
        assert_eq!(fs::read(&model.path).unwrap(), scene.content);
        assert_eq!(recorder.position.get(), 50_000);
    }
}

#[test]
fn refusals_say_what_to_do() {
    let scene = Scene::new(10);
    let cases: [(u16, &str, &str); 5] = [
        (401, "GatedRepo", "set HF_TOKEN"),
        (403, "", "accept its terms at http://127.0.0.1"),
        (401, "RepoNotFound", "the hub has no fish/pilot-GGUF"),
        (404, "EntryNotFound", "the hub has no fish/pilot-GGUF/pilot-Q4_K_M.gguf"),
        (418, "", "answered with status 418"),
    ];
    for (status, code, words) in cases {
        let hub = FakeHub::start(move |_, _| Reply::status(status).with("X-Error-Code", code));
        let error = scene.catalog(&hub).resolve(&pilot(), Offline::No, &Quiet).unwrap_err().to_string();
        assert!(error.contains(words), "{status} {code}: {error}");
        assert_eq!(hub.requests().len(), 1, "a refusal is not repeated");
    }
    let hub = FakeHub::start(|_, _| Reply::status(500));
    let error = scene.catalog(&hub).resolve(&pilot(), Offline::No, &Quiet).unwrap_err().to_string();
    assert!(error.contains("status 500, 3 times"), "{error}");
    for (name, value) in [("X-Repo-Commit", "../.."), ("X-Linked-Etag", "\"../../evil\""), ("X-Other", "")] {
        let hub = FakeHub::start(move |_, _| {
            let reply = Reply::status(200).with(name, value);
            if name == "X-Repo-Commit" { reply } else { reply.with("X-Repo-Commit", COMMIT) }
        });
        let error = scene.catalog(&hub).resolve(&pilot(), Offline::No, &Quiet).unwrap_err();
        assert!(matches!(error, CatalogError::NotAHub { .. }), "{error}");
    }
}

#[test]
fn without_the_network_nothing_is_asked() {
    let scene = Scene::new(10);
    let hub = FakeHub::hosting(&scene.content);
    let error = scene.catalog(&hub).resolve(&pilot(), Offline::Yes, &Quiet).unwrap_err().to_string();
    assert!(error.contains("run `pilotfish pull pilot` once"), "{error}");
    let by_variable = catalog(scene.env(&hub).with("HF_HUB_OFFLINE", "1"), scene.entries);
    let spec = ModelSpec::from_hub("fish/pilot-GGUF:Q4_K_M", None).unwrap();
    for spec in [pilot(), spec] {
        for error in [
            by_variable.resolve(&spec, Offline::No, &Quiet).unwrap_err(),
            by_variable.pull(&spec, Offline::No, &Quiet).unwrap_err(),
        ] {
            assert!(matches!(error, CatalogError::Offline { .. }), "{error}");
        }
    }
    assert_eq!(hub.requests().len(), 0);
}

#[test]
fn a_hub_that_cannot_be_reached_fails_at_once() {
    let scene = Scene::new(10);
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let start = Instant::now();
    for endpoint in [closed.as_str(), "http://no-such-host.invalid"] {
        let catalog =
            Catalog::with_entries(env(scene.cache.path()).with("HF_ENDPOINT", endpoint), scene.entries);
        let error = catalog.unwrap().resolve(&pilot(), Offline::No, &Quiet).unwrap_err();
        assert!(matches!(error, CatalogError::Unreachable { .. }), "{error}");
        assert!(error.to_string().starts_with(&format!("cannot reach {endpoint}")), "{error}");
    }
    // Two connection attempts at their limit of five seconds each, and no pauses.
    assert!(start.elapsed() < Duration::from_secs(12), "{:?}", start.elapsed());
}

#[test]
fn a_silent_connection_is_given_up() {
    let scene = Scene::new(50_000);
    let content = scene.content.clone();
    let hub = FakeHub::start(move |request, number| {
        let mut reply = host(request, &content);
        if request.method == "GET" && number == 0 {
            reply.slow = Duration::from_millis(2000);
        }
        reply
    });
    let tuning = Tuning { silence: Duration::from_millis(300), ..quick() };
    let catalog = scene.catalog(&hub).tuned(tuning);
    let model = catalog.resolve(&pilot(), Offline::No, &Quiet).unwrap();
    assert_eq!(fs::read(&model.path).unwrap(), scene.content);
    assert!(hub.gets().len() >= 2);
}

#[test]
fn a_full_disk_is_reported_before_anything_is_fetched() {
    let scene = Scene::new(50_000);
    let hub = FakeHub::hosting(&scene.content);
    let error =
        scene.catalog(&hub).tuned(full_disk(49_999)).resolve(&pilot(), Offline::No, &Quiet).unwrap_err();
    assert!(matches!(error, CatalogError::DiskFull { needs: 50_000, has: 49_999, .. }), "{error}");
    assert_eq!(hub.gets().len(), 0);
    // What is there already is not needed again.
    scene.leave(&scene.content[..10_000]);
    scene.catalog(&hub).tuned(full_disk(40_000)).resolve(&pilot(), Offline::No, &Quiet).unwrap();
}

#[test]
fn a_wish_to_stop_keeps_what_arrived() {
    let scene = Scene::new(2_000_000);
    let hub = FakeHub::hosting(&scene.content);
    let recorder = Recorder::default();
    recorder.cancel_at.set(Some(1));
    let error = scene.catalog(&hub).resolve(&pilot(), Offline::No, &recorder).unwrap_err();
    // The recorder wants to stop as soon as one byte is there.
    assert!(matches!(error, CatalogError::Cancelled), "{error}");
    let kept = fs::metadata(scene.incomplete()).unwrap().len();
    assert!(kept > 0 && kept < 2_000_000, "{kept}");
    scene.assert_nothing_visible();
    scene.catalog(&hub).resolve(&pilot(), Offline::No, &Quiet).unwrap();
    assert_eq!(hub.gets()[1].from() as u64, kept);
}

#[test]
fn two_at_once_fetch_once() {
    let scene = Scene::new(400_000);
    let content = scene.content.clone();
    let hub = FakeHub::start(move |request, _| {
        let mut reply = host(request, &content);
        reply.slow = Duration::from_millis(3);
        reply
    });
    let waited = thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let recorder = Recorder::default();
                    let model = scene.catalog(&hub).resolve(&pilot(), Offline::No, &recorder).unwrap();
                    assert_eq!(fs::read(&model.path).unwrap(), scene.content);
                    recorder.said("waiting for another process")
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).filter(|waited| *waited).count()
    });
    assert_eq!(hub.gets().len(), 1);
    assert!(waited >= 1, "nobody said that it was waiting");
}
