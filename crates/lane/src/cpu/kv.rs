//! The key-value cache: committed positions first, then the speculative rows of the last pass.
//!
//! Slot `p < len` holds position `p`; speculative row `i` sits in slot `len + i` whatever its
//! position, because siblings of a tree share one. Keeping a path moves its slots down; dropping
//! rows is forgetting them: rollback moves a length.
//!
//! Invariant: slots below `len` are only ever written by rows that were kept.
//! Not here: reading it (`pilotfish_tensor::kernels`).

use crate::LaneError;

/// Keys and values of one layer, f16 bits, `[slots, kv_width]`.
#[derive(Debug, Default)]
pub(super) struct LayerKv {
    pub(super) keys: Vec<u16>,
    pub(super) values: Vec<u16>,
}

/// The cache of one model.
#[derive(Debug)]
pub(super) struct KvCache {
    layers: Vec<LayerKv>,
    widths: Vec<usize>,
    len: usize,
}

impl KvCache {
    /// An empty cache for layers of the given key widths.
    pub(super) fn new(widths: Vec<usize>) -> Self {
        let layers = widths.iter().map(|_| LayerKv::default()).collect();
        Self { layers, widths, len: 0 }
    }

    /// Committed positions.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes it takes now.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.layers.iter().map(|layer| (layer.keys.len() + layer.values.len()) as u64 * 2).sum()
    }

    /// Makes room for `rows` speculative rows behind the committed positions.
    ///
    /// Grows by halves so that a long reply does not copy the cache again and again, and so that
    /// a large context costs nothing before it is used.
    ///
    /// # Errors
    /// [`LaneError::Device`] when there is no memory.
    pub(super) fn reserve(&mut self, rows: usize) -> Result<(), LaneError> {
        let slots = self.len + rows;
        for (layer, &width) in self.layers.iter_mut().zip(&self.widths) {
            for side in [&mut layer.keys, &mut layer.values] {
                let needed = slots * width;
                if side.len() < needed {
                    let target = needed.max(side.len() + side.len() / 2);
                    side.try_reserve_exact(target - side.len()).map_err(|_| LaneError::Device {
                        lane: "cpu".to_owned(),
                        what: format!(
                            "no memory for {} more bytes of key-value cache",
                            (target - side.len()) * 2
                        ),
                    })?;
                    side.resize(target, 0);
                }
            }
        }
        Ok(())
    }

    /// One layer.
    pub(super) fn layer(&self, layer: usize) -> &LayerKv {
        &self.layers[layer]
    }

    /// The key and value slot of speculative row `row`, `[kv_width]` each.
    pub(super) fn row_mut(&mut self, layer: usize, row: usize) -> (&mut [u16], &mut [u16]) {
        let width = self.widths[layer];
        let at = (self.len + row) * width;
        let layer = &mut self.layers[layer];
        (&mut layer.keys[at..at + width], &mut layer.values[at..at + width])
    }

    /// Commits speculative rows, in the order given.
    pub(super) fn keep(&mut self, rows: &[usize]) {
        for (layer, &width) in self.layers.iter_mut().zip(&self.widths) {
            for side in [&mut layer.keys, &mut layer.values] {
                for (to, &row) in rows.iter().enumerate() {
                    // Parents come first in a batch, so `row >= to`: no slot is overwritten unread.
                    let from = (self.len + row) * width;
                    side.copy_within(from..from + width, (self.len + to) * width);
                }
            }
        }
        self.len += rows.len();
    }

    /// Forgets positions from `len` on.
    pub(super) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(cache: &mut KvCache, marks: &[u16]) {
        cache.reserve(marks.len()).unwrap();
        for (row, &mark) in marks.iter().enumerate() {
            let (keys, values) = cache.row_mut(0, row);
            keys.fill(mark);
            values.fill(mark + 100);
        }
    }

    #[test]
    fn kept_rows_move_down_and_others_vanish() {
        let mut cache = KvCache::new(vec![2]);
        fill(&mut cache, &[1, 2]);
        cache.keep(&[0, 1]);
        fill(&mut cache, &[3, 4, 5, 6]);
        cache.keep(&[0, 2, 3]);
        assert_eq!(cache.len(), 5);
        assert_eq!(cache.layer(0).keys[..10], [1, 1, 2, 2, 3, 3, 5, 5, 6, 6]);
        assert_eq!(cache.layer(0).values[8..10], [106, 106]);
        cache.truncate(2);
        fill(&mut cache, &[9]);
        cache.keep(&[0]);
        assert_eq!(cache.layer(0).keys[..6], [1, 1, 2, 2, 9, 9]);
    }
}
