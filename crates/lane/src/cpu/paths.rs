//! Where each row of a pass finds its ancestors in the key-value cache.
//!
//! Invariant: a row's path lists one slot per position behind the committed ones, itself last.
//! Not here: the committed positions, which sit in the slot of their own number.

use std::ops::Range;

use crate::Batch;

/// The paths of all rows of one pass.
pub(super) struct Paths {
    committed: usize,
    slots: Vec<u32>,
    spans: Vec<Range<usize>>,
}

impl Paths {
    /// Lists the slots of `batch` behind `committed` positions.
    pub(super) fn new(batch: &Batch, committed: usize) -> Self {
        let slot = |row: usize| u32::try_from(committed + row).expect("contexts are far below 2^32");
        let is_chain = batch.rows().iter().enumerate().all(|(i, row)| row.parent == i.checked_sub(1));
        if is_chain {
            // Every path is a prefix of the last one: a prompt's paths would otherwise be quadratic.
            let slots = (0..batch.width()).map(slot).collect();
            return Self { committed, slots, spans: (0..batch.width()).map(|i| 0..i + 1).collect() };
        }
        let mut slots = Vec::new();
        let mut spans = Vec::with_capacity(batch.width());
        for row in 0..batch.width() {
            let start = slots.len();
            slots.extend(batch.path(row).into_iter().map(slot));
            spans.push(start..slots.len());
        }
        Self { committed, slots, spans }
    }

    /// Committed positions.
    pub(super) fn committed(&self) -> usize {
        self.committed
    }

    /// Slots of the positions behind the committed ones that row `row` sees, itself last.
    pub(super) fn of(&self, row: usize) -> &[u32] {
        &self.slots[self.spans[row].clone()]
    }

    /// Absolute position of row `row`.
    pub(super) fn position(&self, row: usize) -> usize {
        self.committed + self.spans[row].len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Row, Want};

    #[test]
    fn trees_and_chains_list_their_ancestors() {
        let mut batch = Batch::chain(&[1, 2], Want::Nothing);
        let paths = Paths::new(&batch, 5);
        assert_eq!((paths.of(1), paths.position(1)), (&[5, 6][..], 6));
        batch.push(Row { token: 3, parent: Some(0), want: Want::Argmax });
        let paths = Paths::new(&batch, 5);
        assert_eq!((paths.of(1), paths.position(1)), (&[5, 6][..], 6));
        assert_eq!((paths.of(2), paths.position(2)), (&[5, 7][..], 6));
    }
}
