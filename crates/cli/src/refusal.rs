//! Says in one line what is wrong with a command line that clap refused.
//!
//! clap's own tips are left out: they advise `--`, which is hardly ever what was meant.
//!
//! Invariant: the line names the flag or word at fault, the flag in its short form where it has one.
//! Not here: llama.cpp's flags (`argv`), the values of flags (`numbers`, `args`).

use std::error::Error;
use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::exit::escape;

/// Words people try as commands, with what to say.
const OTHER_COMMANDS: &[(&[&str], &str)] = &[
    (&["list", "ls", "catalog"], "use `pilotfish models`"),
    (&["rm", "remove", "delete"], "use `pilotfish models rm`"),
    (&["download", "fetch", "get"], "use `pilotfish pull`"),
    (&["show", "info"], "use `pilotfish inspect`"),
    (&["generate", "complete", "ask"], "use `pilotfish run`"),
    (&["perplexity", "ppl"], "use `pilotfish eval ppl`"),
    (&["server"], "use `pilotfish serve`"),
    (&["quantize", "export", "lint", "plan", "measure", "plot", "session"], "it is not built yet"),
];

/// The line, without `error: `. `words` are the arguments, the program's name first.
pub(crate) fn line(error: &clap::Error, words: &[OsString], root: &Command) -> String {
    let (path, command) = at(words, root);
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => Some(texts.join(", ")),
        _ => None,
    };
    let arg = context(ContextKind::InvalidArg).unwrap_or_default();
    let value = context(ContextKind::InvalidValue).unwrap_or_default();
    let text = match error.kind() {
        ErrorKind::ValueValidation => {
            let why =
                error.source().map_or_else(|| format!("`{value}` is not possible"), ToString::to_string);
            format!("{}: {why}", flag(&arg, command))
        }
        ErrorKind::InvalidValue if value.is_empty() => format!("{} needs a value", flag(&arg, command)),
        ErrorKind::InvalidValue => {
            let known = context(ContextKind::ValidValue).unwrap_or_default();
            format!("{}: `{value}` is not possible; there are {known}", flag(&arg, command))
        }
        ErrorKind::UnknownArgument => {
            let similar = context(ContextKind::SuggestedArg);
            unknown_argument(&arg, similar.as_deref(), words, &path)
        }
        ErrorKind::InvalidSubcommand => {
            let word = context(ContextKind::InvalidSubcommand).unwrap_or_default();
            let similar = context(ContextKind::SuggestedSubcommand).filter(|text| !text.is_empty());
            let other = OTHER_COMMANDS.iter().find(|(names, _)| names.contains(&word.as_str()));
            match (other, similar) {
                (Some((_, instead)), _) => format!("there is no command `{word}`: {instead}"),
                (None, Some(similar)) => format!("there is no command `{word}`; did you mean `{similar}`?"),
                (None, None) => format!("there is no command `{word}`; there are {}", commands(command)),
            }
        }
        ErrorKind::MissingSubcommand => format!("a command is needed: {}", commands(command)),
        _ => clap_text(error),
    };
    escape(&text)
}

/// The command that help is about: `pilotfish run` for the words of a `run`.
pub(crate) fn help_of(words: &[OsString], root: &Command) -> String {
    at(words, root).0.join(" ")
}

/// The path of the command the words ask for, as far as there is one, and that command.
fn at<'a>(words: &[OsString], root: &'a Command) -> (Vec<String>, &'a Command) {
    let mut path = vec![root.get_name().to_owned()];
    let mut command = root;
    // No flag before a command takes a value, so flags can be passed over.
    for word in words.iter().skip(1).filter_map(|word| word.to_str()).filter(|word| !word.starts_with('-')) {
        let Some(next) = command.find_subcommand(word) else { break };
        path.push(word.to_owned());
        command = next;
    }
    (path, command)
}

fn commands(command: &Command) -> String {
    let names: Vec<&str> =
        command.get_subcommands().map(Command::get_name).filter(|name| *name != "help").collect();
    names.join(", ")
}

/// `-n` for clap's `--predict <N>`.
fn flag(shown: &str, command: &Command) -> String {
    let name = shown.split(' ').next().unwrap_or(shown);
    let long = name.strip_prefix("--");
    let arg = command.get_arguments().find(|arg| long.is_some() && arg.get_long() == long);
    arg.and_then(clap::Arg::get_short).map_or_else(|| name.to_owned(), |short| format!("-{short}"))
}

fn unknown_argument(arg: &str, similar: Option<&str>, words: &[OsString], path: &[String]) -> String {
    let run = path.last().is_some_and(|command| command == "run");
    if !arg.starts_with('-') {
        return if run {
            format!("`{arg}` is one word too many: put the prompt in quotes, or give it with -p or -f")
        } else {
            format!("`{arg}` is one word too many")
        };
    }
    // clap names only the first letter of a word it takes for short flags.
    let words = words.iter().filter_map(|word| word.to_str());
    let whole = words.clone().find(|word| word.starts_with(arg) && word.contains(char::is_whitespace));
    match (whole, similar) {
        (Some(word), _) if run => {
            format!("`{word}` is taken for flags: give a prompt that begins with - as -p TEXT")
        }
        (_, Some(similar)) => format!("there is no flag `{arg}`; did you mean `{similar}`?"),
        (_, None) => format!("there is no flag `{arg}`"),
    }
}

/// clap's message without its tips and its usage block.
fn clap_text(error: &clap::Error) -> String {
    let text = error.to_string();
    let mut parts: Vec<&str> = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with("Usage:") || line.starts_with("For more information") {
            break;
        }
        if !line.is_empty() && !line.starts_with("tip:") {
            parts.push(line);
        }
    }
    let joined = parts.join(" ");
    joined.strip_prefix("error: ").unwrap_or(&joined).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn help_is_of_the_innermost_command() {
        let root = crate::args::command();
        for (line, help) in [
            ("pilotfish", "pilotfish"),
            ("pilotfish rum x", "pilotfish"),
            ("pilotfish -v run -n x models", "pilotfish run"),
            ("pilotfish eval ppl text", "pilotfish eval ppl"),
            ("pilotfish models --json rm", "pilotfish models rm"),
        ] {
            assert_eq!(help_of(&words(line), &root), help, "{line}");
        }
    }

    #[test]
    fn nothing_is_said_of_a_command_that_exists() {
        let root = crate::args::command();
        for name in OTHER_COMMANDS.iter().flat_map(|(names, _)| *names) {
            assert!(root.find_subcommand(name).is_none(), "{name}");
        }
    }
}
