//! Tests of the corpus runner's judgement: each kind of bad end must be seen.

use super::*;

fn ended(code: i32, stderr: &str) -> Ended {
    Ended {
        code: Some(code),
        signal: None,
        timed_out: false,
        elapsed: Duration::from_millis(5),
        stdout: String::new(),
        stderr: stderr.to_owned(),
    }
}

const CLEAR: &str = "loading\nerror: model.gguf: key \"x\" has length 9, 3 bytes remain\n";

#[test]
fn clean_ends_pass() {
    assert_eq!(fault_of(Expect::Ok, &ended(0, "timings\n")), None);
    assert_eq!(fault_of(Expect::Either, &ended(0, "")), None);
    assert_eq!(fault_of(Expect::Either, &ended(1, CLEAR)), None);
    assert_eq!(fault_of(Expect::Error, &ended(1, CLEAR)), None);
}

#[test]
fn every_bad_end_is_a_fault() {
    let hung = Ended { code: None, timed_out: true, ..ended(0, "") };
    let crashed = Ended { code: None, signal: Some(6), ..ended(0, CLEAR) };
    let on_stdout = Ended { stdout: "thread 'main' panicked at x.rs:1".to_owned(), ..ended(1, CLEAR) };
    let long = format!("error: model.gguf: bad key {}\n", "k".repeat(1000));
    let twice = CLEAR.repeat(2);
    let cases: [(Expect, Ended, &str); 13] = [
        (Expect::Error, hung, "still running"),
        (Expect::Either, crashed, "signal 6"),
        (Expect::Error, ended(0, ""), "was accepted"),
        (Expect::Ok, ended(1, CLEAR), "was refused"),
        (Expect::Either, ended(0, CLEAR), "exit code 0 with an error line"),
        (Expect::Error, ended(2, CLEAR), "exit code 2"),
        (Expect::Either, ended(101, CLEAR), "exit code 101"),
        (Expect::Error, ended(1, &format!("thread 'main' panicked at x.rs:1\n{CLEAR}")), "panicked"),
        (Expect::Either, on_stdout, "panicked"),
        (Expect::Error, ended(1, ""), "0 error lines"),
        (Expect::Error, ended(1, &twice), "2 error lines"),
        (Expect::Error, ended(1, "error: bad file\n"), "too little"),
        (Expect::Error, ended(1, &long), "quotes too much"),
    ];
    for (expect, ended, message) in cases {
        let fault = fault_of(expect, &ended).unwrap_or_default();
        assert!(fault.contains(message), "{message:?}, got {fault:?}");
    }
    let raw = ended(1, "error: key \"\u{1b}[31m\" is not known\n");
    assert_eq!(fault_of(Expect::Error, &raw).as_deref(), Some("the error line has raw control characters"));
}

#[test]
fn the_manifest_decides_command_and_expectation() {
    let json = r#"[
        {"file": "00_good.gguf", "expect": "ok", "why": "control", "size": 1},
        {"file": "t01_dupname.gguf", "expect": "err", "why": "twice", "size": 2},
        {"file": "st01_empty.safetensors", "expect": "err_or_ok", "why": "empty", "size": 0},
        {"file": "j01_loop.gguf", "expect": "err_on_render", "why": "template", "size": 3},
        {"file": "z_trunc_000000.gguf", "expect": "err", "why": "cut", "size": 0}
    ]"#;
    let cases = read_manifest(json).expect("a good manifest");
    let seen: Vec<_> = cases.iter().map(|case| (case.expect, case.opener)).collect();
    assert_eq!(
        seen,
        [
            (Expect::Ok, Opener::Run),
            (Expect::Error, Opener::Inspect),
            (Expect::Either, Opener::Inspect),
            (Expect::Error, Opener::RunWithTemplate),
            (Expect::Error, Opener::Run),
        ]
    );
    for bad in [
        "{}",
        r#"[{"file": "00_good.gguf", "expect": "maybe", "why": "", "size": 1}]"#,
        r#"[{"file": "q01.gguf", "expect": "ok", "why": "", "size": 1}]"#,
        r#"[{"file": "00_good.gguf", "expect": "ok", "why": ""}]"#,
    ] {
        assert!(read_manifest(bad).is_err(), "{bad}");
    }
}

/// A stand-in for `pilotfish` that accepts only the control, in `sh`.
#[cfg(target_os = "linux")]
fn corpus_with_program(name: &str, script: &str) -> (Scratch, Corpus) {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new(&format!("corpus-{name}")).expect("temporary directory");
    let files = scratch.0.join("files");
    fs::create_dir_all(&files).expect("writable");
    // Written by another process: a file that this one holds open for writing, even in a child just forked by a
    // neighbouring test, could not be executed.
    let (text, binary) = (scratch.0.join("program.txt"), scratch.0.join("program"));
    fs::write(&text, format!("#!/bin/sh\n{script}\n")).expect("writable");
    assert!(Command::new("cp").arg(&text).arg(&binary).status().expect("cp runs").success());
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).expect("ours");
    let corpus = Corpus { binary, files, scratch: scratch.0.join("runs"), baselines: [0; 3] };
    (scratch, corpus)
}

#[cfg(target_os = "linux")]
fn cases() -> Vec<Case> {
    let case = |file: &str, expect| Case {
        file: file.to_owned(),
        why: String::new(),
        size: 10,
        expect,
        opener: opener_of(file).expect("a known kind"),
    };
    vec![case("00_good.gguf", Expect::Ok), case("h01.gguf", Expect::Error), case("p01.gguf", Expect::Error)]
}

#[cfg(target_os = "linux")]
#[test]
fn faults_land_on_their_own_cases() {
    // `inspect h01` is refused as it should be, `run p01` allocates far more than it may.
    let (_scratch, corpus) = corpus_with_program(
        "own",
        "case \"$*\" in\n*h01*) echo 'error: h01.gguf: bad magic' >&2; exit 1;;\n\
         *p01*) exec dd if=/dev/zero of=/dev/null bs=300M count=1;;\nesac",
    );
    let corpus = corpus.with_baselines(&cases()).expect("the control passes");
    assert!(corpus.baselines.iter().all(|kib| (1..=100 << 10).contains(kib)), "{:?}", corpus.baselines);
    let faults = corpus.judge_all(&cases()).expect("sh runs");
    assert_eq!((&faults[0], &faults[1]), (&None, &None));
    assert!(faults[2].as_deref().is_some_and(|fault| fault.contains("error lines")), "{faults:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_program_that_refuses_the_control_is_told_at_once() {
    let (_scratch, corpus) = corpus_with_program("control", "echo 'error: nothing works here' >&2; exit 1");
    let error = corpus.with_baselines(&cases()).expect_err("the control fails");
    assert!(error.to_string().contains("the good control 00_good.gguf does not pass"), "{error}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_slow_case_is_judged_again_alone() {
    let (_scratch, corpus) =
        corpus_with_program("slow", "case \"$*\" in *p01*) sleep 1.3;; *h01*) exit 1;; esac");
    let corpus = Corpus { baselines: [1 << 17; 3], ..corpus };
    let mut cases = cases();
    cases[2].expect = Expect::Either;
    let faults = corpus.judge_all(&cases).expect("sh runs");
    assert!(faults[2].as_deref().is_some_and(|fault| fault.contains("still running after 1.")), "{faults:?}");
}
