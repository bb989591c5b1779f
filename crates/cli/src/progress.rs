//! Shows downloads: a bar on a terminal, a line at the start and one at the end elsewhere.
//!
//! Invariant: nothing goes to stdout.
//! Not here: downloading (`pilotfish_catalog`).

use std::io::IsTerminal;
use std::sync::Mutex;

use indicatif::{ProgressBar, ProgressStyle};
use pilotfish::Progress;

use crate::env;
use crate::exit::escape;
use crate::interrupt::Listening;
use crate::output::note;
use crate::units::bytes;

/// Downloads of one command.
pub(crate) struct Downloads<'a> {
    listening: &'a Listening,
    bar: Mutex<Option<ProgressBar>>,
    terminal: bool,
}

impl<'a> Downloads<'a> {
    /// Shows downloads that end when `listening` was told to stop.
    pub(crate) fn new(listening: &'a Listening) -> Self {
        Self { listening, bar: Mutex::new(None), terminal: std::io::stderr().is_terminal() }
    }

    fn with_bar(&self, action: impl FnOnce(&ProgressBar)) {
        // A poisoned lock still holds a whole bar, and a bar is only for show.
        let bar = self.bar.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(bar) = bar.as_ref() {
            action(bar);
        }
    }

    fn replace(&self, bar: Option<ProgressBar>) -> Option<ProgressBar> {
        std::mem::replace(&mut *self.bar.lock().unwrap_or_else(std::sync::PoisonError::into_inner), bar)
    }
}

impl Progress for Downloads<'_> {
    fn start(&self, total: Option<u64>) {
        let bar = if self.terminal {
            let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
            bar.set_style(style(total.is_some()));
            bar
        } else {
            match total {
                Some(total) => note!("fetching {}", bytes(total)),
                None => note!("fetching"),
            }
            // Counts, but draws nothing.
            ProgressBar::hidden()
        };
        if let Some(old) = self.replace(Some(bar)) {
            old.finish_and_clear();
        }
    }

    fn advance(&self, more: u64) {
        self.with_bar(|bar| bar.inc(more));
    }

    fn message(&self, text: &str) {
        let text = escape(text);
        match self.replace(None) {
            Some(bar) if self.terminal => {
                bar.suspend(|| note!("{text}"));
                self.replace(Some(bar));
            }
            bar => {
                note!("{text}");
                self.replace(bar);
            }
        }
    }

    fn finish(&self) {
        if let Some(bar) = self.replace(None) {
            let arrived = bar.position();
            bar.finish_and_clear();
            if !self.terminal {
                note!("fetched {}", bytes(arrived));
            }
        }
    }

    fn cancelled(&self) -> bool {
        self.listening.stopped()
    }
}

fn style(sized: bool) -> ProgressStyle {
    let bar = if env::no_color() { "{bar:30}" } else { "{bar:30.cyan}" };
    let template = if sized {
        format!(
            "{bar} {{percent:>3}} % {{decimal_bytes}} of {{decimal_total_bytes}}, {{decimal_bytes_per_sec}}, {{eta}} left"
        )
    } else {
        "{spinner} {decimal_bytes}, {decimal_bytes_per_sec}".to_owned()
    };
    // The template is fixed above, so it parses; the default is only a fallback for the type's sake.
    ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
