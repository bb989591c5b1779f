//! How the catalog tells what it is doing, without printing anything.
//!
//! The command line implements [`Progress`] with bars, a server with log lines, tests with a list.
//!
//! Invariant: every `start` is followed by a `finish`, also when the transfer fails.
//! Not here: bars and terminals.

/// Receives what a slow operation does. All methods take `&self`, so that one value can serve a whole command.
pub trait Progress {
    /// A transfer of `total` bytes begins (`None` when the size is unknown). Called again when a transfer has
    /// to begin anew, which sets the count back to zero.
    fn start(&self, total: Option<u64>);
    /// `bytes` more have arrived or were already there.
    fn advance(&self, bytes: u64);
    /// One line worth showing, for instance why a source was passed over.
    fn message(&self, text: &str);
    /// The transfer has ended, well or not.
    fn finish(&self);
    /// Asked several times a second; `true` makes the operation end with `CatalogError::Cancelled`, keeping
    /// what has arrived for the next try.
    fn cancelled(&self) -> bool {
        false
    }
}

/// Shows nothing and never cancels.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Progress for Quiet {
    fn start(&self, _total: Option<u64>) {}
    fn advance(&self, _bytes: u64) {}
    fn message(&self, _text: &str) {}
    fn finish(&self) {}
}

/// One running transfer: turns positions into steps and ends it when dropped.
pub(crate) struct Transfer<'a> {
    progress: &'a dyn Progress,
    total: Option<u64>,
    shown: u64,
}

impl<'a> Transfer<'a> {
    /// Starts a transfer of which the first `already` bytes are there.
    pub(crate) fn start(progress: &'a dyn Progress, total: Option<u64>, already: u64) -> Self {
        progress.start(total);
        let mut transfer = Self { progress, total, shown: 0 };
        transfer.at(already);
        transfer
    }

    /// Moves to a position; an estimate that falls back or runs past the end moves nothing.
    pub(crate) fn at(&mut self, position: u64) {
        let position = self.total.map_or(position, |total| position.min(total));
        if position > self.shown {
            self.progress.advance(position - self.shown);
            self.shown = position;
        }
    }

    /// Begins again at `position`, after bytes had to be thrown away.
    pub(crate) fn restart(&mut self, total: Option<u64>, position: u64) {
        self.progress.start(total);
        self.total = total;
        self.shown = 0;
        self.at(position);
    }
}

impl Drop for Transfer<'_> {
    fn drop(&mut self) {
        self.progress.finish();
    }
}
