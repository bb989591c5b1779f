//! Ctrl-C, closed pipes and full disks.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pilotfish_model::Family;
use pilotfish_model::testing::TinySpec;

use crate::harness::{Home, Ran};

/// A model that is busy for minutes: its context is long and it never ends by itself.
fn busy_home() -> Home {
    let home = Home::new();
    home.write("model.gguf", &TinySpec { context: 100_000, ..TinySpec::new(Family::Llama) }.gguf());
    home
}

const ENDLESS: [&str; 11] =
    ["run", "-m", "model.gguf", "-c", "100000", "-n", "-1", "--ignore-eos", "-t", "1", "hello"];

fn interrupt(child: &Child) {
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

/// Waits for the child to end, but not for ever.
fn wait(child: Child) -> Ran {
    let start = Instant::now();
    let mut child = child;
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("the command did not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ran::new(child.wait_with_output().unwrap())
}

/// Reads some of the child's stdout, so that it is known to be answering.
fn read_some(child: &mut Child) -> String {
    let mut bytes = [0; 16];
    child.stdout.as_mut().unwrap().read_exact(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn ctrl_c_stops_an_answer_and_keeps_it() {
    let home = busy_home();
    let mut child = home.command(&ENDLESS).spawn().unwrap();
    read_some(&mut child);
    interrupt(&child);
    // The rest may begin inside a character, so it is not read as text.
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("finish: cancelled") && stderr.contains("speculation: "), "{stderr}");
    assert!(output.stdout.ends_with(b"\n"));
}

#[test]
fn ctrl_c_still_gives_the_object() {
    let home = busy_home();
    let mut args = ENDLESS.to_vec();
    args.push("--json");
    let child = home.command(&args).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    interrupt(&child);
    let ran = wait(child);
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    // On a very busy machine the signal may come before the answer has begun.
    if !ran.stdout.is_empty() {
        let object: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(object["finish_reason"], "cancelled");
    } else {
        assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
    }
}

#[test]
fn ctrl_c_ends_a_chat_that_nobody_sits_at() {
    let home = busy_home();
    let args = ["chat", "-m", "model.gguf", "-c", "100000", "-n", "-1", "--ignore-eos", "-t", "1"];
    let mut child = home.command(&args).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"hello\n").unwrap();
    read_some(&mut child);
    interrupt(&child);
    // Were the chat to go on, it would wait for a line.
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(output.stdout.ends_with(b"\n"), "what was said ends as a line");
    drop(stdin);
}

#[test]
fn ctrl_c_is_seen_while_a_prompt_is_read() {
    let home = busy_home();
    home.write("prompt", "z".repeat(90_000).as_bytes());
    let args = ["run", "-m", "model.gguf", "-c", "100000", "-t", "1", "--raw", "-f", "prompt"];
    let child = home.command(&args).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    interrupt(&child);
    let ran = wait(child);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(130), ""), "{}", ran.stderr);
    // On a very busy machine the signal may come before the prompt is read.
    if !ran.stderr.starts_with("error: ") {
        assert!(ran.stderr.contains(" of 90000 tokens, "), "{}", ran.stderr);
        assert!(ran.stderr.contains("finish: cancelled") && !ran.stderr.contains("τ"), "{}", ran.stderr);
    }
}

#[test]
fn a_perplexity_that_was_stopped_is_not_given() {
    let home = busy_home();
    home.write("text", "the cat sat on the mat. ".repeat(100_000).as_bytes());
    let args = ["eval", "ppl", "text", "-m", "model.gguf", "-c", "64", "-t", "1"];
    for json in [&[][..], &["--json"]] {
        let mut child = home.command(&[&args[..], json].concat()).stderr(Stdio::piped()).spawn().unwrap();
        // The lines of finished chunks are read, or the pipe would fill.
        let mut stdout = child.stdout.take().unwrap();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).unwrap();
            text
        });
        std::thread::sleep(Duration::from_millis(1500));
        interrupt(&child);
        let ran = wait(child);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(130), "error: interrupted\n"));
        let text = reader.join().unwrap();
        assert!(text.lines().all(|line| line.starts_with("chunk ")), "{text}");
    }
}

#[test]
fn a_closed_pipe_ends_with_one_line() {
    let home = busy_home();
    for json in [false, true] {
        let mut args = ENDLESS.to_vec();
        if json {
            args.extend(["--json", "-n", "5"]);
        }
        let mut child = home.command(&args).spawn().unwrap();
        drop(child.stdout.take());
        let output = wait(child);
        assert_eq!(output.code, Some(1), "{}", output.stderr);
        assert_eq!(output.stderr, "error: stdout was closed before everything was written\n");
    }
}

#[test]
fn help_into_a_closed_pipe_is_no_panic() {
    let home = Home::new();
    let mut child = home.command(&["run", "--help"]).spawn().unwrap();
    drop(child.stdout.take());
    let output = wait(child);
    assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_ends_with_one_line() {
    let home = Home::with_model();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for args in [
        &["run", "-m", "model.gguf", "hello", "-n", "3"][..],
        &["inspect", "model.gguf"],
        &["models"],
        &["--help"],
    ] {
        let output = home.command(args).stdout(full()).output().unwrap();
        let ran = Ran::new(output);
        assert_eq!(ran.code, Some(1), "{args:?} {}", ran.stderr);
        let last = ran.stderr.lines().last().unwrap();
        assert!(last.starts_with("error: cannot write to stdout"), "{args:?} {}", ran.stderr);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_record_for_a_full_disk_is_an_error() {
    let home = Home::new();
    home.write("model.gguf", &TinySpec { layers: 1, context: 4096, ..TinySpec::new(Family::Llama) }.gguf());
    // A folder nobody can write to: the record appears whole or not at all.
    let args =
        ["bench", "-m", "model.gguf", "-n", "4", "-r", "1", "--only", "math", "--out", "/proc/record.json"];
    let ran = home.run(&args);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(
        ran.stderr.lines().last().unwrap().starts_with("error: record /proc/record.json"),
        "{}",
        ran.stderr
    );
}

#[cfg(target_os = "linux")]
#[test]
fn messages_that_cannot_be_shown_are_lost_without_harm() {
    let home = Home::with_model();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let answer =
        home.command(&["run", "-m", "model.gguf", "hello", "-n", "3", "-v"]).stderr(full()).output().unwrap();
    assert_eq!(answer.status.code(), Some(0), "timings are not worth failing for");
    let refused = home.command(&["run", "-m", "nowhere.gguf", "hello"]).stderr(full()).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
}
