//! Wrong flags and values end with code 2 and one line that says what would be right.

use crate::harness::Home;

#[test]
fn help_and_version_go_to_stdout() {
    let home = Home::new();
    let help = home.run(&["--help"]).ok();
    for command in ["run", "chat", "pull", "models", "inspect", "bench", "eval"] {
        assert!(help.contains(command), "{help}");
        let of_command = home.run(&[command, "--help"]).ok();
        assert!(of_command.contains("Usage: pilotfish"), "{of_command}");
    }
    assert_eq!(home.run(&["--version"]).ok(), format!("pilotfish {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn no_command_is_an_error() {
    Home::new().run(&[]).fails(2, &["subcommand", "run", "chat"]);
}

#[test]
fn unknown_flags_and_commands_are_named() {
    let home = Home::new();
    home.run(&["run", "--frobnicate", "x"]).fails(2, &["--frobnicate"]);
    home.run(&["rum", "x"]).fails(2, &["rum"]);
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
    ] {
        home.run(&["run", flag, "1", "x"]).fails(2, &[flag, right]);
    }
}

#[test]
fn wrong_values_name_their_flag() {
    let home = Home::with_model();
    let cases: &[(&[&str], &[&str])] = &[
        (&["-n", "-2"], &["-n"]),
        (&["-n", "x"], &["--predict"]),
        (&["-t", "0"], &["-t"]),
        (&["-c", "0"], &["context", "512"]),
        (&["-c", "513"], &["513", "512"]),
        (&["-s", "1.5"], &["--seed"]),
        (&["--temp", "-1"], &["temperature", "-1"]),
        (&["--temp", "nan"], &["temperature", "NaN"]),
        (&["--temp", "inf"], &["temperature"]),
        (&["--top-p", "2"], &["top_p", "2"]),
        (&["--top-p", "-0.5"], &["top_p"]),
        (&["--min-p", "1.5"], &["min_p"]),
        (&["--top-k", "x"], &["--top-k"]),
        (&["--repeat-penalty", "0"], &["repeat_penalty"]),
        (&["--repeat-last-n", "-2"], &["repeat_last_n"]),
        (&["--presence-penalty", "nan"], &["presence_penalty"]),
        (&["--logit-bias", "5"], &["--logit-bias", "ID+BIAS"]),
        (&["--logit-bias", "999999-100"], &["logit_bias", "999999", "320"]),
        (&["--logit-bias", "5+inf"], &["logit_bias"]),
        (&["--stop", ""], &["--stop"]),
        (&["--spec-draft-p-min", "2"], &["--spec-draft-p-min"]),
        (&["--drafter", "suffix"], &["--drafter", "ngram"]),
        (&["--drafter", "model"], &["--drafter", "-md"]),
        (&["--drafter", "none", "-md", "model.gguf"], &["--drafter", "-md"]),
        (&["--logprobs", "21", "--json"], &["--logprobs", "20"]),
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
    home.run(&["eval"]).fails(2, &["ppl"]);
    home.write("text", b"some text");
    home.run(&["eval", "ppl", "text", "-m", "model.gguf", "-c", "3"]).fails(2, &["-c"]);
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
