//! The key-value cache: committed positions first, then the speculative rows of the last pass.
//!
//! Slot `p < len` holds position `p`; speculative row `i` sits in slot `len + i` whatever its
//! position, because siblings of a tree share one. Keeping a path moves its slots down; dropping
//! rows is forgetting them: rollback moves a length.
//!
//! Invariant: slots below `len` are only ever written by rows that were kept.
//! Not here: reading it (`pilotfish_tensor::kernels`).

use pilotfish_tensor::kernels::{KEY_BLOCK, key_at};

use crate::LaneError;

/// Keys and values of one layer, f16 bits: keys as [`key_at`] lays them out, values `[slots, kv_width]`.
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
        // Keys lie in whole blocks of slots; values may as well.
        let slots = (self.len + rows).next_multiple_of(KEY_BLOCK);
        for (layer, &width) in self.layers.iter_mut().zip(&self.widths) {
            for side in [&mut layer.keys, &mut layer.values] {
                let needed = slots * width;
                if side.len() < needed {
                    let block = KEY_BLOCK * width;
                    let target = needed.max((side.len() + side.len() / 2).next_multiple_of(block));
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

    /// Writes the key and value of speculative row `row`, `[kv_width]` each.
    pub(super) fn write(&mut self, layer: usize, row: usize, key: &[u16], value: &[u16]) {
        let (width, slot) = (self.widths[layer], self.len + row);
        let layer = &mut self.layers[layer];
        for (number, &half) in key.iter().enumerate() {
            layer.keys[key_at(width, slot, number)] = half;
        }
        layer.values[slot * width..][..width].copy_from_slice(value);
    }

    /// Commits speculative rows, in the order given.
    pub(super) fn keep(&mut self, rows: &[usize]) {
        for (layer, &width) in self.layers.iter_mut().zip(&self.widths) {
            for (to, &row) in rows.iter().enumerate() {
                // Parents come first in a batch, so `row >= to`: no slot is overwritten unread.
                let (from, to) = (self.len + row, self.len + to);
                if from == to {
                    continue;
                }
                for number in 0..width {
                    layer.keys[key_at(width, to, number)] = layer.keys[key_at(width, from, number)];
                }
                layer.values.copy_within(from * width..(from + 1) * width, to * width);
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
            cache.write(0, row, &[mark; 2], &[mark + 100; 2]);
        }
    }

    /// The mark of each slot's key, the same in both numbers.
    fn keys(cache: &KvCache, slots: usize) -> Vec<u16> {
        let at = |slot, number| cache.layer(0).keys[key_at(2, slot, number)];
        (0..slots).inspect(|&slot| assert_eq!(at(slot, 0), at(slot, 1))).map(|slot| at(slot, 0)).collect()
    }

    #[test]
    fn kept_rows_move_down_and_others_vanish() {
        let mut cache = KvCache::new(vec![2]);
        fill(&mut cache, &[1, 2]);
        cache.keep(&[0, 1]);
        fill(&mut cache, &[3, 4, 5, 6]);
        cache.keep(&[0, 2, 3]);
        assert_eq!(cache.len(), 5);
        assert_eq!(keys(&cache, 5), [1, 2, 3, 5, 6]);
        assert_eq!(cache.layer(0).values[8..10], [106, 106]);
        cache.truncate(2);
        fill(&mut cache, &[9]);
        cache.keep(&[0]);
        assert_eq!(keys(&cache, 3), [1, 2, 9]);
    }
}
