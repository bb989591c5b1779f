//! Wrong flags and values end with code 2, one line that says what would be right, and one that says where help is.

use crate::harness::Home;

#[test]
fn help_and_version_go_to_stdout() {
    let home = Home::new();
    let help = home.run(&["--help"]).ok();
    for command in ["run", "chat", "pull", "models", "inspect", "bench", "eval"] {
        assert!(help.contains(command), "{help}");
        let of_command = home.run(&[command, "--help"]).ok();
        assert!(of_command.contains("Usage: pilotfish"), "{of_command}");
        assert_eq!(home.run(&["help", command]).ok(), of_command);
    }
    assert_eq!(home.run(&["help"]).ok(), help);
    assert_eq!(home.run(&["--version"]).ok(), format!("pilotfish {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn no_command_is_an_error_that_helps() {
    let home = Home::new();
    let ran = home.run(&[]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    assert!(ran.stderr.contains("Usage: pilotfish") && ran.stderr.contains("chat"), "{}", ran.stderr);
    home.run(&["-v"]).fails(2, &["command is needed", "run, chat"]);
}

#[test]
fn usage_errors_say_where_help_is() {
    let home = Home::new();
    for (args, command) in [
        (&["run", "--frobnicate", "x"][..], "pilotfish run"),
        (&["run", "--color", "x"], "pilotfish run"),
        (&["run", "-n", "-2", "x"], "pilotfish run"),
        (&["chat", "--temp", "x"], "pilotfish chat"),
        (&["eval", "ppl", "--chunks", "0", "x"], "pilotfish eval ppl"),
        (&["models", "rm"], "pilotfish models rm"),
        (&["rum"], "pilotfish"),
    ] {
        let stderr = home.run(args).fails(2, &[]);
        assert!(stderr.ends_with(&format!("\ntry '{command} --help'\n")), "{stderr}");
    }
}

#[test]
fn no_message_advises_two_dashes() {
    let home = Home::with_model();
    for args in [
        &["run", "--frobnicate", "x"][..],
        &["run", "-m", "model.gguf", "hello", "world"],
        &["run", "-m", "model.gguf", "-5 + 3 = ?"],
        &["run", "-t", "-x", "hello"],
        &["models", "x"],
    ] {
        let stderr = home.run(args).fails(2, &[]);
        assert!(!stderr.contains("-- ") && !stderr.contains("tip"), "{stderr}");
    }
}

#[test]
fn words_that_are_no_prompt_are_explained() {
    let home = Home::with_model();
    home.run(&["run", "-m", "model.gguf", "hello", "world"]).fails(2, &["`world`", "quotes", "-p", "-f"]);
    home.run(&["run", "-m", "model.gguf", "-5 + 3 = ?"]).fails(2, &["`-5 + 3 = ?`", "-p TEXT"]);
    home.run(&["run", "-m", "model.gguf", "-p", "-5 + 3 = ?", "-n", "1"]).ok();
}

#[test]
fn commands_of_other_programs_are_explained() {
    let home = Home::new();
    home.run(&["server"]).fails(2, &["`server`", "pilotfish serve"]);
    home.run(&["quantize"]).fails(2, &["`quantize`", "not built yet"]);
    home.run(&["list"]).fails(2, &["`list`", "pilotfish models"]);
    home.run(&["quantize", "x"]).fails(2, &["`quantize`", "not built yet"]);
}

#[test]
fn unknown_flags_and_commands_are_named() {
    let home = Home::new();
    home.run(&["run", "--frobnicate", "x"]).fails(2, &["--frobnicate"]);
    home.run(&["rum", "x"]).fails(2, &["`rum`", "did you mean `run`?"]);
    home.run(&["run", "--temps", "1", "x"]).fails(2, &["--temps", "--temp"]);
}

#[test]
fn removed_flags_name_the_right_one() {
    let home = Home::new();
    for (flag, right) in [
        ("--draft-max", "--spec-draft-n-max"),
        ("--draft", "--spec-draft-n-max"),
        ("--draft-n", "--spec-draft-n-max"),
        ("--num-draft-tokens", "--spec-draft-n-max"),
        ("--draft-p-min", "--spec-draft-p-min"),
        ("--draft-min", "no shortest draft"),
        ("--draft-model", "-md"),
        ("--spec-type", "--drafter"),
        ("-ngl", "-dev cpu"),
        ("-cnv", "pilotfish chat"),
        ("-hfd", "-md"),
        ("--color", "no colours"),
        ("--simple-io", "simple"),
        ("--verbose-prompt", "--json"),
        ("--prompt-cache", "saved"),
        ("-sp", "control tokens"),
        ("--special", "control tokens"),
    ] {
        home.run(&["run", flag, "1", "x"]).fails(2, &[flag, right]);
    }
}

#[test]
fn wrong_values_name_their_flag() {
    let home = Home::with_model();
    let cases: &[(&[&str], &[&str])] = &[
        (&["-n", "-2"], &["-n"]),
        (&["-n", "abc"], &["error: -n: `abc` is not a whole number"]),
        (&["--predict", "1.5"], &["-n: `1.5` is not a whole number"]),
        (&["-t", "0"], &["-t: `0`", "1 to 512"]),
        (&["-t", "-1"], &["-t: `-1`", "1 to 512"]),
        (&["-t", "513"], &["-t: `513`", "1 to 512"]),
        (&["-t", "20000"], &["-t: `20000`", "1 to 512"]),
        (&["-t", "two"], &["-t: `two` is not a whole number"]),
        (&["-c", "-1"], &["-c: `-1` cannot be negative"]),
        (&["-c", "0"], &["context", "512"]),
        (&["-c", "513"], &["513", "512"]),
        (&["-s", "1.5"], &["--seed"]),
        (&["--temp", "-1"], &["--temp is -1"]),
        (&["--temp", "nan"], &["--temp is NaN"]),
        (&["--temp", "inf"], &["--temp is inf"]),
        (&["--temp", "0,5"], &["--temp: `0,5` is not a number"]),
        (&["--top-p", "2"], &["--top-p is 2"]),
        (&["--top-p", "-0.5"], &["--top-p is -0.5"]),
        (&["--min-p", "1.5"], &["--min-p is 1.5"]),
        (&["--top-k", "x"], &["--top-k: `x`"]),
        (&["--repeat-penalty", "0"], &["--repeat-penalty is 0"]),
        (&["--repeat-last-n", "-2"], &["--repeat-last-n is -2"]),
        (&["--presence-penalty", "nan"], &["--presence-penalty is NaN"]),
        (&["--logit-bias", "5"], &["--logit-bias", "ID+BIAS"]),
        (&["--logit-bias", "999999-100"], &["--logit-bias", "999999", "320"]),
        (&["--logit-bias", "5+inf"], &["--logit-bias is inf"]),
        (&["--stop", ""], &["--stop"]),
        (&["--spec-draft-p-min", "2"], &["--spec-draft-p-min"]),
        (&["--drafter", "eagle"], &["--drafter", "ngram", "suffix"]),
        (&["--drafter", "suffix", "-md", "model.gguf"], &["--drafter", "-md"]),
        (&["--drafter", "none", "--spec-history", "h"], &["--spec-history", "--drafter none"]),
        (&["--drafter", "ngram", "--spec-history", "h"], &["--spec-history", "auto and suffix"]),
        (
            &["--drafter", "model", "-md", "model.gguf", "--spec-history", "h"],
            &["--spec-history", "auto and suffix"],
        ),
        (&["--drafter", "model"], &["--drafter", "-md"]),
        (&["--drafter", "none", "-md", "model.gguf"], &["--drafter", "-md"]),
        (&["--logprobs", "21", "--json"], &["--logprobs", "20"]),
        (&["--spec-sampling", "greedy"], &["--spec-sampling", "coupled", "rejection"]),
        (&["--drafter", "none", "--spec-draft-n-max", "3"], &["--spec-draft-n-max", "--drafter none"]),
        (&["--drafter", "none", "--spec-draft-p-min", "0.5"], &["--spec-draft-p-min", "--drafter none"]),
        (&["--spec-draft-p-min", "0.5"], &["--spec-draft-p-min", "-md"]),
        (&["--pipeline", "on"], &["--pipeline on", "-md"]),
        (&["--pipeline", "on", "--drafter", "suffix"], &["--pipeline on", "-md"]),
        (&["--pipeline", "on", "--drafter", "none"], &["--pipeline on", "--drafter none"]),
        (&["--pipeline", "on", "--spec", "off"], &["--pipeline on", "--spec off"]),
        (&["--pipeline", "both"], &["--pipeline", "auto", "off", "on"]),
        (&["-ctk", "q4_0"], &["--cache-type-k: `q4_0` is not possible", "f16 or q8_0"]),
        (&["-ctv", "bf16"], &["--cache-type-v: `bf16` is not possible", "f16 or q8_0"]),
        (&["-ctk", "q8_0", "-ctv", "f32"], &["`f32`", "f16 or q8_0"]),
        (&["-ctk", "q8_0"], &["-ctk is q8_0 and -ctv is f16", "alike", "both"]),
        (&["-ctk", "f16", "-ctv", "q8_0"], &["-ctk is f16 and -ctv is q8_0", "alike"]),
        (&["-ctkd", "q8_0"], &["-ctkd", "f16"]),
        (&["-dev", "gpu"], &["-dev", "not built"]),
        (&["-dev", "coreml"], &["-dev", "not built"]),
        (&["-dev", "toaster"], &["-dev", "toaster"]),
        (&["--kernels", "abacus"], &["abacus", "portable"]),
        (&["--raw", "-sys", "be brief"], &["--raw"]),
        (&["-m", "model.gguf", "-hf", "a/b"], &["--hf-repo"]),
        (&["-hff", "x.gguf"], &["--hf-repo"]),
    ];
    for (flags, parts) in cases {
        let mut args = vec!["run"];
        if !flags.contains(&"-hf") && !flags.contains(&"-m") {
            args.extend(["-m", "model.gguf"]);
        }
        args.extend(*flags);
        args.push("hello");
        eprintln!("{args:?}");
        home.run(&args).fails(2, parts);
    }
}

#[test]
fn a_prompt_is_needed_once() {
    let home = Home::with_model();
    home.run(&["run", "-m", "model.gguf"]).fails(2, &["prompt", "-f", "stdin"]);
    home.run(&["run", "-m", "model.gguf", "-p", "a", "b"]).fails(2, &["PROMPT"]);
    home.run(&["run", "-m", "model.gguf", "-f", "x", "b"]).fails(2, &["PROMPT"]);
}

#[test]
fn malformed_hub_names_are_usage_errors() {
    let home = Home::new();
    home.run(&["run", "-hf", "nonsense", "x"]).fails(2, &["nonsense", "user/repo"]);
    home.run(&["run", "-hf", "a/b:", "x"]).fails(2, &["a/b:"]);
}

#[test]
fn bench_and_eval_check_their_flags_first() {
    let home = Home::with_model();
    home.run(&["bench", "-m", "model.gguf", "-n", "0"]).fails(2, &["-n"]);
    home.run(&["bench", "-m", "model.gguf", "-r", "0"]).fails(2, &["-r"]);
    home.run(&["bench", "-m", "model.gguf", "--only", "poetry"]).fails(2, &["poetry", "translate"]);
    home.run(&["bench", "-m", "model.gguf", "-t", "20000"]).fails(2, &["-t", "512"]);
    home.run(&["bench", "-m", "model.gguf", "--spec-history", "h"]).fails(2, &["--spec-history", "bench"]);
    home.run(&["bench", "-m", "model.gguf", "-ctk", "q8_0"]).fails(2, &["-ctk", "-ctv"]);
    home.run(&["inspect", "model.gguf", "-ctv", "q8_0"]).fails(2, &["-ctk", "-ctv"]);
    home.run(&["eval"]).fails(2, &["ppl"]);
    home.write("text", b"some text");
    home.run(&["eval", "ppl", "text", "-m", "model.gguf", "-c", "3"]).fails(2, &["-c"]);
    home.run(&["eval", "ppl", "text", "-m", "model.gguf", "-t", "20000"]).fails(2, &["-t", "512"]);
    home.run(&["eval", "ppl", "text", "-m", "model.gguf", "--chunks", "0"])
        .fails(2, &["--chunks", "1 or more"]);
    let help = home.run(&["eval", "ppl", "--help"]).ok();
    assert!(help.contains("[default: 512]") && !help.contains("at most 8192"), "{help}");
    home.run(&["pull"]).fails(2, &["pilotfish models"]);
    home.run(&["models", "rm"]).fails(2, &["pilotfish models"]);
}

#[test]
fn an_unknown_kernel_table_in_the_environment_is_named_too() {
    let home = Home::with_model();
    let run = |name: &str| {
        let output = home
            .command(&["run", "-m", "model.gguf", "-n", "1", "x"])
            .env("PILOTFISH_KERNELS", name)
            .output();
        crate::harness::Ran::new(output.unwrap())
    };
    run("abacus").fails(2, &["abacus"]);
    run("portable").ok();
}
