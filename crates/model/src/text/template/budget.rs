//! How much a template may do: steps, bytes of work, size of one value, size of the result.
//!
//! Limits are counted, never timed, so that a template that renders on a fast machine renders on a slow one and
//! a conversation never fails because something else was running. They are set so that the worst template ends
//! in about a quarter of a second. Work is charged before it is done.
//!
//! Invariant: all memory a rendering holds at once is bounded by the work it was allowed.
//! Not here: which operations charge what (`operators`, `filters`).

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// Longest template source (R9).
pub(super) const MAX_SOURCE: usize = 1 << 20;
/// Longest rendered prompt and longest single string (R9).
pub(super) const MAX_VALUE: usize = 4 << 20;
/// Instructions of the template engine. A published template takes 50 to 150 for a message.
pub(super) const MAX_STEPS: u64 = 1_000_000;
/// Bytes of work on top of what the input justifies.
const WORK: usize = 32 << 20;
/// Templates copy a message a few times: into each `+`, out of each `split`, into the result.
const WORK_PER_INPUT_BYTE: usize = 24;
/// Charge for looking at one item of a list or map.
pub(super) const ITEM: usize = 8;
/// Charge for keeping one item of a list or map.
pub(super) const NEW_ITEM: usize = 48;
/// Deepest value that is printed, compared or written as JSON; a namespace can contain itself.
pub(super) const MAX_DEPTH: usize = 128;
/// Deepest value a template may build. Values are dropped one stack frame inside another, so depth is stack.
const MAX_BUILT_DEPTH: usize = 64;
/// Charge for a namespace, the one kind of value that can be made to hold another later and so escapes the check
/// of depth; this many bytes allow a few thousand of them, whose depths add up to what the stack can drop.
pub(super) const NAMESPACE: usize = 16 << 10;
/// Longest list an operator makes.
pub(super) const MAX_ITEMS: usize = 100_000;

/// What is left for one rendering.
#[derive(Debug)]
pub(super) struct Budget {
    work: AtomicUsize,
    spent: AtomicBool,
}

impl Budget {
    /// The budget for `input_bytes` of messages and tools.
    pub(super) fn new(input_bytes: usize) -> Self {
        let work = WORK.saturating_add(input_bytes.saturating_mul(WORK_PER_INPUT_BYTE));
        Self { work: AtomicUsize::new(work), spent: AtomicBool::new(false) }
    }

    /// Pays for `work` bytes, or ends the rendering.
    pub(super) fn charge(&self, work: usize) -> Result<(), Error> {
        let left = self.work.load(Ordering::Relaxed);
        match left.checked_sub(work) {
            Some(left) => {
                self.work.store(left, Ordering::Relaxed);
                Ok(())
            }
            None => Err(self.exceeded("it does too much work")),
        }
    }

    /// Pays for a string of `len` bytes.
    pub(super) fn string(&self, len: usize) -> Result<(), Error> {
        if len > MAX_VALUE {
            return Err(self.exceeded("a value of it is longer than 4 MiB"));
        }
        self.charge(len)
    }

    /// Pays for a list of `len` items.
    pub(super) fn list(&self, len: usize) -> Result<(), Error> {
        if len > MAX_ITEMS {
            return Err(self.exceeded("a list of it has more than 100000 items"));
        }
        self.charge(len * NEW_ITEM)
    }

    /// Checks the depth of a value the template built from others, paying for the walk.
    pub(super) fn depth(&self, value: &Value, above: usize) -> Result<(), Error> {
        if !matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable) {
            return Ok(());
        }
        if above > MAX_BUILT_DEPTH {
            return Err(self.exceeded("a value of it is nested too deeply"));
        }
        let is_map = value.kind() == ValueKind::Map;
        for item in value.try_iter()? {
            self.charge(ITEM)?;
            let item = if is_map { value.get_item(&item)? } else { item };
            self.depth(&item, above + 1)?;
        }
        Ok(())
    }

    /// The error that ends a rendering, remembered because a template engine may wrap it.
    pub(super) fn exceeded(&self, what: &'static str) -> Error {
        self.spent.store(true, Ordering::Relaxed);
        Error::new(ErrorKind::OutOfFuel, format!("the template goes beyond its limits: {what}"))
    }

    /// Whether some limit was hit.
    pub(super) fn is_spent(&self) -> bool {
        self.spent.load(Ordering::Relaxed)
    }
}

/// A string that pays for what is written to it.
#[derive(Debug)]
pub(super) struct Paid<'b> {
    budget: &'b Budget,
    pub(super) text: String,
    error: Option<Error>,
}

impl<'b> Paid<'b> {
    pub(super) fn new(budget: &'b Budget) -> Self {
        Self { budget, text: String::new(), error: None }
    }

    /// The text, or why it became too long.
    pub(super) fn finish(self, written: fmt::Result) -> Result<String, Error> {
        match (self.error, written) {
            (Some(error), _) => Err(error),
            (None, Err(fmt::Error)) => Err(self.budget.exceeded("a value of it is nested too deeply")),
            (None, Ok(())) => Ok(self.text),
        }
    }

    /// Pays for looking at one item.
    pub(super) fn item(&mut self) -> fmt::Result {
        self.pay(|budget| budget.charge(ITEM))
    }

    fn pay(&mut self, charge: impl FnOnce(&Budget) -> Result<(), Error>) -> fmt::Result {
        charge(self.budget).map_err(|error| {
            self.error.get_or_insert(error);
            fmt::Error
        })
    }
}

impl fmt::Write for Paid<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        if self.text.len() + s.len() > MAX_VALUE {
            return self.pay(|budget| budget.string(usize::MAX));
        }
        self.pay(|budget| budget.charge(s.len()))?;
        self.text.push_str(s);
        Ok(())
    }
}
