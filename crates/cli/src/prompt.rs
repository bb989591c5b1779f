//! Reads a prompt from an argument, a file or stdin.
//!
//! Invariant: the text is exactly what was given, but for one line break at the end of a file or of stdin.
//! Not here: templates and tokens (`pilotfish`).

use std::fs::File;
use std::io::{self, IsTerminal, Read};

use anyhow::Context;

use crate::args::PromptArgs;
use crate::exit::usage;

/// A prompt longer than this is a mistake (a whole disk image, an endless pipe); no context holds as much.
const MAX_BYTES: u64 = 8 << 20;

const HOW: &str = "give it as an argument, with -f FILE, or on stdin";

impl PromptArgs {
    /// The prompt.
    ///
    /// # Errors
    /// A usage error when there is none, or nothing but white space; otherwise what could not be read or is not UTF-8.
    pub(crate) fn read(&self) -> anyhow::Result<String> {
        let text = self.read_any()?;
        if text.trim().is_empty() {
            return Err(usage(format!("the prompt is empty; {HOW}")));
        }
        Ok(text)
    }

    fn read_any(&self) -> anyhow::Result<String> {
        let from_argument = self.prompt.as_ref().or(self.p.as_ref());
        match (from_argument, &self.file) {
            (Some(text), None) if text == "-" && self.p.is_none() => read_text(io::stdin().lock(), "stdin"),
            (Some(text), None) => Ok(text.clone()),
            (_, Some(path)) => {
                let name = format!("`{}`", path.display());
                let file = File::open(path).with_context(|| format!("cannot open the prompt file {name}"))?;
                if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
                    anyhow::bail!("the prompt file {name} is a folder");
                }
                read_text(file, &name)
            }
            (None, None) if !io::stdin().is_terminal() => read_text(io::stdin().lock(), "stdin"),
            (None, None) => Err(usage(format!("there is no prompt; {HOW}"))),
        }
    }
}

fn read_text(source: impl Read, name: &str) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    source
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read the prompt from {name}"))?;
    if bytes.len() as u64 > MAX_BYTES {
        anyhow::bail!("the prompt in {name} has more than {} MiB", MAX_BYTES >> 20);
    }
    let mut text = String::from_utf8(bytes).map_err(|error| {
        anyhow::anyhow!("the prompt in {name} is not UTF-8 from byte {} on", error.utf8_error().valid_up_to())
    })?;
    // Editors and shells end a text with a line break nobody meant to send.
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_break_at_the_end_is_dropped() {
        for (bytes, text) in
            [("a", "a"), ("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("", ""), ("\n", "")]
        {
            assert_eq!(read_text(bytes.as_bytes(), "x").unwrap(), text);
        }
    }

    #[test]
    fn bytes_that_are_not_text_are_named() {
        let error = read_text(&b"ab\xff"[..], "stdin").unwrap_err().to_string();
        assert!(error.contains("stdin") && error.contains("byte 2"), "{error}");
    }
}
