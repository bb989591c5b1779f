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
    out.lines().map(|line| field(line, "text")).collect()
}

/// One field of a line's object, which is a text.
fn field(line: &str, name: &str) -> String {
    let object: Value = serde_json::from_str(line).unwrap();
    object[name].as_str().unwrap_or_else(|| panic!("no {name} in {line}")).to_owned()
}

/// What a chat gave in which some lines failed.
fn with_failures(ran: &Ran) -> Vec<&str> {
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    ran.stdout.lines().collect()
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
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "nobody saw the errors");
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
    let lines = with_failures(&ran);
    assert_eq!(lines.len(), 2);
    assert!(field(lines[0], "error").contains("128"), "{lines:?}");
    field(lines[1], "text");
    // A turn that failed leaves no trace.
    let ran = chat(&home, &["-c", "128", "--json"], &format!("hello\n{long}\nhello\n"));
    let lines = with_failures(&ran);
    let around = [lines[0], lines[2]].map(|line| field(line, "text"));
    assert_eq!(around[..], replies(&home, &["-c", "128"], "hello\nhello\n"));
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
    let lines = with_failures(&ran);
    assert!(field(lines[0], "error").contains("not a word") && lines.len() == 2, "{lines:?}");
    field(lines[1], "text");
}

#[test]
fn a_line_that_is_not_text_is_an_error_of_that_line() {
    let home = Home::with_model();
    let args = [&CHAT[..], &["--json"]].concat();
    let ran = home.run_with_input(&args, b"hello\n\xff\nhello\n");
    let lines = with_failures(&ran);
    assert!(field(lines[1], "error").contains("UTF-8") && ran.stderr.contains("UTF-8"), "{lines:?}");
    let around = [lines[0], lines[2]].map(|line| field(line, "text"));
    assert_eq!(around[..], replies(&home, &[], "hello\nhello\n"));
}

#[test]
fn every_line_that_wants_a_reply_gives_an_object() {
    let home = Home::with_model();
    let ran = chat(&home, &["--json"], "/regen\n\nhello\n/system x\n/nonsense\n");
    let lines = with_failures(&ran);
    assert_eq!(lines.len(), 3, "{lines:?}");
    for (line, name) in lines.into_iter().zip(["error", "text", "error"]) {
        field(line, name);
    }
}

#[test]
fn another_reply_takes_the_next_seed() {
    let home = Home::with_model();
    let sampled = |seed: &str, lines: &str| replies(&home, &["--temp", "1", "-s", seed], lines);
    let thrice = sampled("5", "hello\n/regen\n/regen\n");
    assert_eq!(thrice, [sampled("5", "hello\n"), sampled("6", "hello\n"), sampled("7", "hello\n")].concat());
    assert!(thrice[0] != thrice[1] && thrice[1] != thrice[2], "{thrice:?}");
    let next = sampled("5", "hello\n/regen\nhello\n/regen\n");
    assert_ne!(next[2], next[3], "each turn counts its own");
    let last = sampled("18446744073709551615", "hello\n/regen\n");
    assert_eq!(last[1..], sampled("0", "hello\n"), "behind the last seed comes the first");
    let greedy = chat(&home, &[], "hello\n/regen\n");
    assert!(greedy.stderr.contains("greedy answer does not change"), "{}", greedy.stderr);
    assert!(!chat(&home, &["--temp", "1"], "hello\n/regen\n").stderr.contains("greedy"));
}
