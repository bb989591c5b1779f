//! Reads llama.cpp's spelling of flags before clap sees them.
//!
//! Two lists: flags of several letters behind one dash (`-hf`), which clap would take for `-h -f`, become their long
//! form; flags that were renamed, or that have no meaning here, end with a message that names the right one.
//!
//! Invariant: a flag of [`REFUSED`] never does nothing silently; words after `--` are never touched.
//! Not here: what the flags mean (`args`).

use std::ffi::OsString;

/// llama.cpp's short spellings with more than one letter, and the long flag they stand for.
const SPELLINGS: &[(&str, &str)] = &[
    ("-hf", "--hf-repo"),
    ("-hfr", "--hf-repo"),
    ("-hff", "--hf-file"),
    ("-md", "--model-draft"),
    ("-dev", "--device"),
    ("-sys", "--system-prompt"),
    ("-ctk", "--cache-type-k"),
    ("-ctv", "--cache-type-v"),
];

const NO_GPU: &str = "there is no GPU lane yet; -dev cpu is the only device";
const ONE_POOL: &str = "one thread pool serves reading and writing; use -t";
const BATCH: &str = "the prompt is cut into passes by the engine, which never changes the result";
const DRAFT_KV: &str = "a drafting model keeps its keys and values as f16; -ctk and -ctv are the target's";
const CONSTRAINED: &str = "constrained output is not built yet";
const MEMORY: &str = "the file is always mapped and its weights are always packed into memory";
const DRAFT_MIN: &str =
    "there is no shortest draft; a drafter proposes as much as it trusts, and is parked when that loses time";

/// Flags of llama.cpp and its relatives that do not exist here, with what to say instead.
const REFUSED: &[(&[&str], &str)] = &[
    (&["--draft-max", "--draft", "--draft-n", "--num-draft-tokens"], "use --spec-draft-n-max"),
    (&["--draft-p-min"], "use --spec-draft-p-min"),
    (&["--draft-min", "--draft-n-min", "--spec-draft-n-min"], DRAFT_MIN),
    (&["--draft-model"], "use -md"),
    (&["--spec-type"], "use --drafter"),
    (
        &["--spec-ngram-size-n", "--spec-ngram-size-m", "--spec-ngram-mod-n-match"],
        "use --drafter ngram, which sizes itself",
    ),
    (&["--lookup-ngram-min"], "use --drafter ngram"),
    (&["-lcs", "--lookup-cache-static", "-lcd", "--lookup-cache-dynamic"], "use --spec-history"),
    (
        &["-hfd", "-hfrd", "--hf-repo-draft", "--spec-draft-hf"],
        "fetch it with `pilotfish pull` and name it with -md",
    ),
    (&["-devd", "--device-draft", "--spec-draft-device"], "the drafter runs on the target's device for now"),
    (&["-cd", "--ctx-size-draft"], "the drafter uses the target's context"),
    (&["-td", "--threads-draft"], ONE_POOL),
    (&["-tb", "--threads-batch"], ONE_POOL),
    (
        &["-ngl", "--gpu-layers", "--n-gpu-layers", "-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft"],
        NO_GPU,
    ),
    (&["-sm", "--split-mode", "-ts", "--tensor-split", "-mg", "--main-gpu"], NO_GPU),
    (&["-b", "--batch-size", "-ub", "--ubatch-size"], BATCH),
    (&["-fa", "--flash-attn"], "attention is always computed in one way, so that results never depend on it"),
    (&["-ctkd", "--cache-type-k-draft", "--spec-draft-type-k"], DRAFT_KV),
    (&["-ctvd", "--cache-type-v-draft", "--spec-draft-type-v"], DRAFT_KV),
    (
        &["-np", "--parallel"],
        "the server answers one request at a time; others wait, at most --max-queue of them",
    ),
    (&["--mlock", "--no-mmap", "--mmap", "--no-repack"], MEMORY),
    (&["--numa"], "threads are placed by the system"),
    (&["--grammar", "--grammar-file", "-j", "--json-schema", "-jf", "--json-schema-file"], CONSTRAINED),
    (&["--jinja", "--no-jinja"], "chat templates are always rendered as Jinja"),
    (
        &["--chat-template", "--chat-template-file"],
        "the model's own template is used; --raw sends the prompt without it",
    ),
    (
        &["-cnv", "--conversation", "-i", "--interactive", "-if", "--interactive-first"],
        "use `pilotfish chat`",
    ),
    (
        &["-no-cnv", "--no-conversation", "-st", "--single-turn"],
        "use `pilotfish run`, with --raw to leave the template out",
    ),
    (&["--no-display-prompt", "--display-prompt"], "the prompt is never printed again"),
    (&["--no-warmup", "--warmup"], "there is no warm-up to leave out"),
    (&["-mu", "--model-url"], "use -hf user/repo, or download the file and give its path to -m"),
    (&["--lora", "--lora-scaled", "--control-vector"], "adapters are not supported"),
    (
        &[
            "--mirostat",
            "--typical",
            "--xtc-probability",
            "--dry-multiplier",
            "--samplers",
            "--sampler-seq",
            "--top-nsigma",
        ],
        "the samplers are --temp, --top-k, --top-p, --min-p and the penalties, in llama.cpp's order",
    ),
    (&["--dynatemp-range", "--dynatemp-exp"], "use --temp"),
    (&["--keep", "--context-shift", "--no-context-shift"], "a full context is an error and is never cut"),
    (
        &["--rope-scaling", "--rope-scale", "--rope-freq-base", "--rope-freq-scale"],
        "the file's own rope settings are used",
    ),
    (&["--override-kv"], "the file's own metadata is used"),
    (&["-e", "--escape", "--no-escape"], "the prompt is taken as it is; use -f FILE for line breaks"),
    (&["--color", "--colors"], "output has no colours"),
    (&["--simple-io"], "input and output are always simple where they are no terminal"),
    (&["--verbose-prompt"], "`run --json` lists the prompt's tokens"),
    (
        &["--prompt-cache", "--prompt-cache-all", "--prompt-cache-ro"],
        "sessions cannot be saved yet; within a chat nothing is read twice",
    ),
    (&["-sp", "--special"], "control tokens are never printed; `run --json` lists every token's id"),
    (
        &["--log-file", "-lv", "--verbosity", "--log-verbosity", "--log-disable"],
        "use -v, and redirect stderr",
    ),
    (&["--metrics", "--no-slots", "--slots"], "`serve` always has /metrics, and one request runs at a time"),
    (&["--list-devices"], NO_GPU),
];

/// The arguments with long flags for llama.cpp's short ones, or the message for a flag that does not exist here.
///
/// # Errors
/// One sentence naming the flag and what to use instead.
pub(crate) fn translate(args: impl Iterator<Item = OsString>) -> Result<Vec<OsString>, String> {
    let mut out = Vec::new();
    let mut verbatim = false;
    for (i, arg) in args.enumerate() {
        let Some(text) = arg.to_str().filter(|text| i > 0 && !verbatim && text.starts_with('-')) else {
            out.push(arg);
            continue;
        };
        verbatim = text == "--";
        let (flag, value) = match text.split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            None => (text, None),
        };
        if let Some((_, instead)) = REFUSED.iter().find(|(names, _)| names.contains(&flag)) {
            return Err(format!("{flag} is not a flag of pilotfish: {instead}"));
        }
        let long = SPELLINGS.iter().find(|(short, _)| *short == flag).map(|(_, long)| *long);
        out.push(match (long, value) {
            (Some(long), Some(value)) => format!("{long}={value}").into(),
            (Some(long), None) => long.into(),
            (None, _) => arg,
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(line: &str) -> Result<String, String> {
        let words = translate(line.split(' ').map(OsString::from))?;
        Ok(words.iter().map(|word| word.to_str().expect("text")).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn short_spellings_become_long() {
        assert_eq!(
            translated("pilotfish run -hf user/repo:Q4_K_M -md=x.gguf -dev cpu -sys hi").unwrap(),
            "pilotfish run --hf-repo user/repo:Q4_K_M --model-draft=x.gguf --device cpu --system-prompt hi"
        );
        assert_eq!(
            translated("pilotfish run -ctk q8_0 -ctv=q8_0").unwrap(),
            "pilotfish run --cache-type-k q8_0 --cache-type-v=q8_0"
        );
    }

    #[test]
    fn other_words_stay() {
        let line = "pilotfish run -m x -n 3 --temp=0.5 -- -hf --draft-max";
        assert_eq!(translated(line).unwrap(), line);
    }

    #[test]
    fn renamed_flags_name_the_right_one() {
        for (line, right) in [
            ("p run --draft-max 3", "--spec-draft-n-max"),
            ("p run --draft=3", "--spec-draft-n-max"),
            ("p run -ctkd q8_0", "-ctk"),
            ("p run --draft-p-min 0.1", "--spec-draft-p-min"),
            ("p run -ngl 99", "-dev cpu"),
            ("p run -cnv", "pilotfish chat"),
            ("p run --color", "no colours"),
            ("p run --simple-io", "simple"),
            ("p run --verbose-prompt", "--json"),
            ("p run --prompt-cache x", "saved"),
            ("p run -sp", "--json"),
            ("p run --special", "--json"),
        ] {
            let error = translated(line).unwrap_err();
            assert!(error.contains(right), "{line}: {error}");
        }
    }

    #[test]
    fn no_flag_is_listed_twice() {
        let mut seen = std::collections::BTreeSet::new();
        for flag in
            REFUSED.iter().flat_map(|(names, _)| *names).chain(SPELLINGS.iter().map(|(short, _)| short))
        {
            assert!(seen.insert(flag), "{flag} is listed twice");
        }
    }
}
