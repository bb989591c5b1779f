//! A token tree as the rows of one forward pass.
//!
//! Rows are stored parents first, so a chain is rows `0..n` with parents `None, 0, 1, …`.
//!
//! Invariant: a row's parent has a smaller index; only rows without a parent hang directly
//! behind the committed positions.
//! Not here: choosing the tokens (`pilotfish-engine`).

/// What a row must return. Logits of a large vocabulary are costly to write, so ask for little.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Want {
    /// Only fill the cache (prompt rows).
    #[default]
    Nothing,
    /// The id of the largest logit, the lowest id on ties.
    Argmax,
    /// That id and how likely it is: its share of the softmax, over the ids it was looked for among.
    Likeliest,
    /// All logits, `[vocab]`.
    Logits,
}

/// One token position of a forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Token id.
    pub token: u32,
    /// Index of the row this one follows; `None` follows the last committed position.
    pub parent: Option<usize>,
    /// What to return for it.
    pub want: Want,
}

/// The rows of one pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    rows: Vec<Row>,
    depths: Vec<usize>,
}

impl Batch {
    /// A batch without rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// A chain of tokens in which only the last row returns something.
    pub fn chain(tokens: &[u32], last: Want) -> Self {
        let mut batch = Self::new();
        for (i, &token) in tokens.iter().enumerate() {
            let want = if i + 1 == tokens.len() { last } else { Want::Nothing };
            batch.push(Row { token, parent: i.checked_sub(1), want });
        }
        batch
    }

    /// Appends a row and returns its index.
    ///
    /// # Panics
    /// When the parent is not an earlier row: a bug in the caller.
    pub fn push(&mut self, row: Row) -> usize {
        let index = self.rows.len();
        let depth = match row.parent {
            None => 0,
            Some(parent) => {
                assert!(parent < index, "row {index} names the later row {parent} as its parent");
                self.depths[parent] + 1
            }
        };
        self.rows.push(row);
        self.depths.push(depth);
        index
    }

    /// The rows, parents first.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Number of rows: the pass's width.
    pub fn width(&self) -> usize {
        self.rows.len()
    }

    /// Rows between row `i` and the committed positions.
    pub fn depth(&self, i: usize) -> usize {
        self.depths[i]
    }

    /// Positions the deepest row needs behind the committed ones.
    pub fn height(&self) -> usize {
        self.depths.iter().max().map_or(0, |d| d + 1)
    }

    /// Row indices from the root of row `i`'s branch down to `i` itself.
    pub fn path(&self, i: usize) -> Vec<usize> {
        let mut path = vec![i];
        let mut at = i;
        while let Some(parent) = self.rows[at].parent {
            path.push(parent);
            at = parent;
        }
        path.reverse();
        path
    }

    /// Whether `rows` leads from a row without parent downwards, one child at a time.
    pub fn is_path(&self, rows: &[usize]) -> bool {
        let mut above = None;
        rows.iter().all(|&i| {
            let follows = self.rows.get(i).is_some_and(|row| row.parent == above);
            above = Some(i);
            follows
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fork() -> Batch {
        // 10 ─┬─ 11 ── 13
        //     └─ 12
        let mut batch = Batch::new();
        let row = |token, parent| Row { token, parent, want: Want::Argmax };
        batch.push(row(10, None));
        batch.push(row(11, Some(0)));
        batch.push(row(12, Some(0)));
        batch.push(row(13, Some(1)));
        batch
    }

    #[test]
    fn depths_and_paths_follow_parents() {
        let batch = fork();
        assert_eq!((0..4).map(|i| batch.depth(i)).collect::<Vec<_>>(), [0, 1, 1, 2]);
        assert_eq!(batch.path(3), [0, 1, 3]);
        assert_eq!(batch.height(), 3);
    }

    #[test]
    fn only_connected_rows_are_a_path() {
        let batch = fork();
        assert!(batch.is_path(&[]));
        assert!(batch.is_path(&[0, 1, 3]));
        assert!(batch.is_path(&[0, 2]));
        assert!(!batch.is_path(&[1]));
        assert!(!batch.is_path(&[0, 2, 3]));
        assert!(!batch.is_path(&[0, 9]));
    }

    #[test]
    #[should_panic(expected = "later row")]
    fn a_parent_comes_first() {
        Batch::new().push(Row { token: 1, parent: Some(0), want: Want::Nothing });
    }
}
