//! Hands disjoint columns of one output to several threads.
//!
//! An output `y` is row-major `[rows, n_out]`, but threads split a matmul by columns, because a column of the
//! output is a row of the weight, and each thread should stream its own weights. Columns of a row-major buffer
//! are no slices, so this module cuts them with raw pointers and lends them out row by row.
//!
//! Invariant: the blocks of one split never overlap, and together cover every column.
//! Not here: threads.

use std::marker::PhantomData;
use std::ops::Range;

/// A whole output, ready to be split.
#[derive(Debug)]
pub struct Columns<'a> {
    y: &'a mut [f32],
    rows: usize,
    n_out: usize,
}

impl<'a> Columns<'a> {
    /// Takes `y`, row-major `[rows, n_out]`.
    ///
    /// # Panics
    /// When `y` has another length.
    pub fn new(y: &'a mut [f32], rows: usize, n_out: usize) -> Columns<'a> {
        assert_eq!(Some(y.len()), rows.checked_mul(n_out), "output is not [{rows}, {n_out}]");
        Columns { y, rows, n_out }
    }

    /// Splits into exactly `parts` blocks of nearly equal width, cut at multiples of `tile` columns. Where there
    /// are fewer tiles than parts, some blocks are empty.
    ///
    /// # Panics
    /// When `parts` or `tile` is 0.
    pub fn split(self, parts: usize, tile: usize) -> Vec<ColumnBlock<'a>> {
        assert!(parts > 0 && tile > 0, "a split needs parts and a tile");
        let tiles = self.n_out.div_ceil(tile);
        let start = self.y.as_mut_ptr();
        let cut = |part: usize| (tiles * part / parts * tile).min(self.n_out);
        let block = |part| ColumnBlock {
            start: start.wrapping_add(cut(part)),
            stride: self.n_out,
            rows: self.rows,
            n_out: self.n_out,
            columns: cut(part)..cut(part + 1),
            borrow: PhantomData,
        };
        (0..parts).map(block).collect()
    }

    /// All columns as one block.
    pub fn whole(self) -> ColumnBlock<'a> {
        let Columns { y, rows, n_out } = self;
        ColumnBlock::alone(y, rows, n_out, 0..n_out)
    }
}

/// Some columns of an output, for all its rows: exclusive access that may be sent to a thread.
#[derive(Debug)]
pub struct ColumnBlock<'a> {
    /// This block's first column of row 0.
    start: *mut f32,
    /// Numbers from one row to the next.
    stride: usize,
    rows: usize,
    n_out: usize,
    columns: Range<usize>,
    borrow: PhantomData<&'a mut [f32]>,
}

// SAFETY: a block is an exclusive borrow of plain floats no other block reaches, like a `&mut [f32]`.
unsafe impl Send for ColumnBlock<'_> {}

impl<'a> ColumnBlock<'a> {
    /// Columns `columns` of an output `[rows, n_out]` in memory of their own, row-major `[rows, columns.len()]`: for
    /// outputs that are never wanted as a whole.
    ///
    /// # Panics
    /// When `y` has another length, or `columns` is outside the output.
    pub fn alone(y: &'a mut [f32], rows: usize, n_out: usize, columns: Range<usize>) -> ColumnBlock<'a> {
        assert!(columns.start <= columns.end && columns.end <= n_out, "columns {columns:?} of {n_out}");
        let stride = columns.len();
        assert_eq!(Some(y.len()), rows.checked_mul(stride), "block is not [{rows}, {stride}]");
        ColumnBlock { start: y.as_mut_ptr(), stride, rows, n_out, columns, borrow: PhantomData }
    }
}

impl ColumnBlock<'_> {
    /// Rows of the output.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of the whole output.
    pub fn n_out(&self) -> usize {
        self.n_out
    }

    /// The columns this block owns.
    pub fn columns(&self) -> Range<usize> {
        self.columns.clone()
    }

    /// This block's columns of one row.
    ///
    /// # Panics
    /// When `row` is out of range.
    #[inline]
    pub fn row_mut(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        // SAFETY: the buffer is borrowed for the life of the block and holds `rows` rows, `stride` apart; the range
        // lies in row `row`, and `split` gave its columns to no other block.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.stride), self.columns.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_every_column_once() {
        for (rows, n_out, parts, tile) in
            [(3, 100, 4, 16), (1, 5, 3, 16), (2, 64, 1, 16), (0, 32, 2, 16), (4, 0, 2, 8)]
        {
            let mut y = vec![0.0; rows * n_out];
            let blocks = Columns::new(&mut y, rows, n_out).split(parts, tile);
            assert_eq!(blocks.len(), parts);
            std::thread::scope(|scope| {
                for mut block in blocks {
                    assert_eq!(block.columns().start % tile, 0);
                    scope.spawn(move || {
                        (0..rows).for_each(|r| block.row_mut(r).iter_mut().for_each(|y| *y += 1.0))
                    });
                }
            });
            assert!(y.iter().all(|&y| y == 1.0));
        }
    }

    #[test]
    fn a_block_alone_has_rows_of_its_own_width() {
        let mut y = vec![0.0; 6];
        let mut block = ColumnBlock::alone(&mut y, 2, 100, 16..19);
        assert_eq!((block.columns(), block.n_out()), (16..19, 100));
        block.row_mut(1).fill(1.0);
        assert_eq!(y, [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    }

    #[test]
    #[should_panic(expected = "row 2 of 2")]
    fn rows_are_checked() {
        let mut y = vec![0.0; 8];
        let mut block = Columns::new(&mut y, 2, 4).whole();
        block.row_mut(2);
    }
}
