//! Conversations through a pipe: commands, history, and turns that fail.

use pilotfish_model::Family;
use pilotfish_model::testing::TinySpec;
use serde_json::Value;

use crate::harness::{Home, Ran};

const CHAT: [&str; 8] = ["chat", "-m", "model.gguf", "-n", "6", "--ignore-eos", "-t", "1"];

fn chat(home: &Home, extra: &[&str], lines: &str) -> Ran {
    home.run_with_input(&[&CHAT[..], extra].concat(), lines.as_bytes())
}

/// The replies, one object each.
fn replies(home: &Home, extra: &[&str], lines: &str) -> Vec<String> {
    let out = chat(home, &[extra, &["--json"]].concat(), lines).ok();
    out.lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["text"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_conversation_remembers_until_it_is_reset() {
    let home = Home::with_model();
    let twice = replies(&home, &[], "hello\nhello\n");
    assert_eq!(twice.len(), 2);
    let reset = replies(&home, &[], "hello\n/reset\nhello\n");
    assert_eq!(reset, [twice[0].clone(), twice[0].clone()]);
    assert_ne!(twice[0], twice[1], "the second turn sees the first");
    let again = replies(&home, &[], "hello\n/regen\nhello\n");
    assert_eq!(again, [twice[0].clone(), twice[0].clone(), twice[1].clone()]);
}

#[test]
fn a_reply_is_what_run_gives() {
    let home = Home::with_model();
    let run = home.answer(&["hello", "-n", "6", "--ignore-eos", "-sys", "be brief"]);
    assert_eq!(replies(&home, &["-sys", "be brief"], "hello\n"), [run["text"].as_str().unwrap()]);
    assert_eq!(replies(&home, &[], "/system be brief\nhello\n"), [run["text"].as_str().unwrap()]);
    let plain = home.answer(&["hello", "-n", "6", "--ignore-eos"]);
    assert_eq!(replies(&home, &["-sys", "x"], "/system\nhello\n"), [plain["text"].as_str().unwrap()]);
    let streamed = chat(&home, &[], "hello\n").ok();
    assert_eq!(streamed, format!("{}\n", plain["text"].as_str().unwrap()));
}

#[test]
fn what_was_read_before_is_not_read_again() {
    let home = Home::with_model();
    let ran = chat(&home, &["-v"], "hello\nand now\n");
    let second = ran.stderr.lines().filter(|line| line.starts_with("prompt eval")).nth(1).unwrap();
    assert!(second.contains("more from the cache"), "{second}");
}

#[test]
fn commands_answer_on_stderr() {
    let home = Home::with_model();
    let ran = chat(&home, &[], "/help\n\n/nonsense\n/regen\n/exit\nnot reached\n");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""));
    for part in ["/reset", "/nonsense", "no reply"] {
        assert!(ran.stderr.contains(part), "{}", ran.stderr);
    }
}

#[test]
fn a_full_context_is_told_and_the_conversation_goes_on() {
    let home = Home::with_model();
    let long = "z".repeat(200);
    let lines = format!("{long}\n/reset\nhello\n");
    let ran = chat(&home, &["-c", "128", "--json"], &lines);
    assert!(ran.stderr.contains("128") && ran.stderr.contains("/reset starts again"), "{}", ran.stderr);
    assert_eq!(ran.ok().lines().count(), 1);
    // A turn that failed leaves no trace.
    let with = replies(&home, &["-c", "128"], &format!("hello\n{long}\nhello\n"));
    assert_eq!(with, replies(&home, &["-c", "128"], "hello\nhello\n"));
}

#[test]
fn a_refusing_template_does_not_end_the_conversation() {
    let home = Home::new();
    let mut w = TinySpec::new(Family::Llama).writer();
    w.str(
        "tokenizer.chat_template",
        "{% for m in messages %}{% if 'secret' in m.content %}{{ raise_exception('not a word') }}{% endif %}\
         {{ m.content }}{% endfor %}",
    );
    home.write("model.gguf", &w.finish());
    let ran = chat(&home, &["--json"], "a secret\nhello\n");
    assert!(ran.stderr.contains("not a word"), "{}", ran.stderr);
    assert_eq!(ran.ok().lines().count(), 1);
}

#[test]
fn input_that_is_not_text_is_an_error() {
    let home = Home::with_model();
    home.run_with_input(&CHAT, b"\xff\n").fails(1, &["UTF-8"]);
}
