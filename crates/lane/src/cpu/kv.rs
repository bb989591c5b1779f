//! The key-value cache: committed positions first, then the speculative rows of the last pass.
//!
//! Slot `p < len` holds position `p`; speculative row `i` sits in slot `len + i` whatever its
//! position, because siblings of a tree share one. Keeping a path moves its slots down; dropping
//! rows is forgetting them: rollback moves a length.
//!
//! Invariant: slots below `len` are only ever written by rows that were kept.
//! Not here: what a number of each form means, and reading it (`pilotfish_tensor::kernels`).

use std::fmt;
use std::str::FromStr;

use pilotfish_model::Model;
use pilotfish_tensor::kernels::{KEY_BLOCK, KV_GROUP, KvNumbers, KvPair, key_at};

use crate::LaneError;

/// How keys and values are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvType {
    /// Two bytes a number.
    #[default]
    F16,
    /// A byte a number and four for each 32 of a head: 56 % of f16, at a small loss.
    Q8_0,
}

impl KvType {
    /// Every form, by the names llama.cpp has for them.
    pub const ALL: [KvType; 2] = [KvType::F16, KvType::Q8_0];

    /// `f16` or `q8_0`.
    pub fn name(self) -> &'static str {
        match self {
            KvType::F16 => "f16",
            KvType::Q8_0 => "q8_0",
        }
    }

    /// Bytes of the keys and values of one position of `model`.
    pub fn bytes_per_position(self, model: &Model) -> u64 {
        let numbers = model.config().kv_numbers_per_position();
        match self {
            KvType::F16 => numbers * size_of::<u16>() as u64,
            KvType::Q8_0 => numbers + numbers / KV_GROUP as u64 * size_of::<f32>() as u64,
        }
    }

    /// Whether the heads of `model` can be kept so.
    ///
    /// # Errors
    /// [`LaneError::Load`] naming the width of its heads when they are no whole groups.
    pub fn check(self, model: &Model) -> Result<(), LaneError> {
        let head_dim = model.config().head_dim;
        match self {
            KvType::Q8_0 if !head_dim.is_multiple_of(KV_GROUP) => Err(LaneError::Load(format!(
                "keys and values in q8_0 need heads of a multiple of {KV_GROUP} numbers, and this model's have \
                 {head_dim}; f16 takes any"
            ))),
            KvType::F16 | KvType::Q8_0 => Ok(()),
        }
    }
}

impl fmt::Display for KvType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for KvType {
    type Err = String;

    /// # Errors
    /// A sentence naming what is possible.
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| format!("`{text}` is not possible; keys and values are kept as f16 or q8_0"))
    }
}

/// Entries of keys and values of one layer, `width` a slot: keys as [`key_at`] lays them out, values
/// `[slots, width]`.
#[derive(Debug)]
struct Entries<T> {
    keys: Vec<T>,
    values: Vec<T>,
    width: usize,
}

impl<T: Copy + Default> Entries<T> {
    fn new(width: usize) -> Self {
        Self { keys: Vec::new(), values: Vec::new(), width }
    }

    #[cfg(test)]
    fn bytes(&self) -> u64 {
        ((self.keys.len() + self.values.len()) * size_of::<T>()) as u64
    }

    /// Grows by halves so that a long reply does not copy the cache again and again, and so that
    /// a large context costs nothing before it is used.
    fn reserve(&mut self, slots: usize) -> Result<(), LaneError> {
        let (needed, block) = (slots * self.width, KEY_BLOCK * self.width);
        for side in [&mut self.keys, &mut self.values] {
            if side.len() < needed {
                let target = needed.max((side.len() + side.len() / 2).next_multiple_of(block));
                let more = target - side.len();
                side.try_reserve_exact(more).map_err(|_| LaneError::Device {
                    lane: "cpu".to_owned(),
                    what: format!("no memory for {} more bytes of key-value cache", more * size_of::<T>()),
                })?;
                side.resize(target, T::default());
            }
        }
        Ok(())
    }

    fn write(&mut self, slot: usize, key: &[T], value: &[T]) {
        for (number, &entry) in key.iter().enumerate() {
            self.keys[key_at(self.width, slot, number)] = entry;
        }
        self.values[slot * self.width..][..self.width].copy_from_slice(value);
    }

    fn copy(&mut self, from: usize, to: usize) {
        for number in 0..self.width {
            self.keys[key_at(self.width, to, number)] = self.keys[key_at(self.width, from, number)];
        }
        self.values.copy_within(from * self.width..(from + 1) * self.width, to * self.width);
    }

    /// The entries of head `head`, whose heads have `entries` each.
    fn head(&self, head: usize, entries: usize) -> KvPair<'_, T> {
        KvPair { keys: &self.keys[head * entries * KEY_BLOCK..], values: &self.values[head * entries..] }
    }
}

/// Keys and values of one layer.
#[derive(Debug)]
enum LayerKv {
    F16(Entries<u16>),
    Q8_0 { quants: Entries<i8>, scales: Entries<f32> },
}

/// The keys, or the values, of one row, in the form of a cache.
pub(super) enum NewRow {
    F16(Vec<u16>),
    Q8_0 { quants: Vec<i8>, scales: Vec<f32> },
}

impl NewRow {
    /// Room for `width` numbers.
    pub(super) fn new(kind: KvType, width: usize) -> Self {
        match kind {
            KvType::F16 => Self::F16(vec![0; width]),
            KvType::Q8_0 => Self::Q8_0 { quants: vec![0; width], scales: vec![0.0; width / KV_GROUP] },
        }
    }
}

/// The cache of one model.
#[derive(Debug)]
pub(super) struct KvCache {
    kind: KvType,
    layers: Vec<LayerKv>,
    len: usize,
}

impl KvCache {
    /// An empty cache for layers of the given key widths, for q8_0 multiples of [`KV_GROUP`].
    pub(super) fn new(kind: KvType, widths: impl Iterator<Item = usize>) -> Self {
        let layer = |width| match kind {
            KvType::F16 => LayerKv::F16(Entries::new(width)),
            KvType::Q8_0 => {
                LayerKv::Q8_0 { quants: Entries::new(width), scales: Entries::new(width / KV_GROUP) }
            }
        };
        Self { kind, layers: widths.map(layer).collect(), len: 0 }
    }

    /// How keys and values are kept.
    pub(super) fn kind(&self) -> KvType {
        self.kind
    }

    /// Committed positions.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes it takes now.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        let bytes = |layer: &LayerKv| match layer {
            LayerKv::F16(halves) => halves.bytes(),
            LayerKv::Q8_0 { quants, scales } => quants.bytes() + scales.bytes(),
        };
        self.layers.iter().map(bytes).sum()
    }

    /// Makes room for `rows` speculative rows behind the committed positions.
    ///
    /// # Errors
    /// [`LaneError::Device`] when there is no memory.
    pub(super) fn reserve(&mut self, rows: usize) -> Result<(), LaneError> {
        // Keys lie in whole blocks of slots; values may as well.
        let slots = (self.len + rows).next_multiple_of(KEY_BLOCK);
        for layer in &mut self.layers {
            match layer {
                LayerKv::F16(halves) => halves.reserve(slots)?,
                LayerKv::Q8_0 { quants, scales } => {
                    quants.reserve(slots)?;
                    scales.reserve(slots)?;
                }
            }
        }
        Ok(())
    }

    /// Keys and values of head `head` of a layer, whose heads have `head_dim` numbers.
    pub(super) fn head(&self, layer: usize, head: usize, head_dim: usize) -> KvNumbers<'_> {
        match &self.layers[layer] {
            LayerKv::F16(halves) => KvNumbers::F16(halves.head(head, head_dim)),
            LayerKv::Q8_0 { quants, scales } => KvNumbers::Q8_0 {
                quants: quants.head(head, head_dim),
                scales: scales.head(head, head_dim / KV_GROUP),
            },
        }
    }

    /// Writes the key and value of speculative row `row`, in the cache's form and of the layer's width.
    pub(super) fn write(&mut self, layer: usize, row: usize, key: &NewRow, value: &NewRow) {
        let slot = self.len + row;
        match (&mut self.layers[layer], key, value) {
            (LayerKv::F16(halves), NewRow::F16(key), NewRow::F16(value)) => halves.write(slot, key, value),
            (
                LayerKv::Q8_0 { quants, scales },
                NewRow::Q8_0 { quants: key, scales: key_scales },
                NewRow::Q8_0 { quants: value, scales: value_scales },
            ) => {
                quants.write(slot, key, value);
                scales.write(slot, key_scales, value_scales);
            }
            _ => unreachable!("rows are made in the form of the cache"),
        }
    }

    /// Commits speculative rows, in the order given.
    pub(super) fn keep(&mut self, rows: &[usize]) {
        for layer in &mut self.layers {
            for (to, &row) in rows.iter().enumerate() {
                // Parents come first in a batch, so `row >= to`: no slot is overwritten unread.
                let (from, to) = (self.len + row, self.len + to);
                if from == to {
                    continue;
                }
                match layer {
                    LayerKv::F16(halves) => halves.copy(from, to),
                    LayerKv::Q8_0 { quants, scales } => {
                        quants.copy(from, to);
                        scales.copy(from, to);
                    }
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

    const WIDTH: usize = 64;

    /// A row of one mark everywhere, scales included.
    fn row(kind: KvType, mark: u8) -> NewRow {
        match NewRow::new(kind, WIDTH) {
            NewRow::F16(mut halves) => {
                halves.fill(u16::from(mark));
                NewRow::F16(halves)
            }
            NewRow::Q8_0 { mut quants, mut scales } => {
                quants.fill(mark as i8);
                scales.fill(f32::from(mark));
                NewRow::Q8_0 { quants, scales }
            }
        }
    }

    fn fill(cache: &mut KvCache, marks: &[u8]) {
        cache.reserve(marks.len()).unwrap();
        for (i, &mark) in marks.iter().enumerate() {
            cache.write(0, i, &row(cache.kind(), mark), &row(cache.kind(), mark + 100));
        }
    }

    /// The marks of each slot's key and value, the same in all their entries.
    fn marks(cache: &KvCache, slots: usize) -> Vec<(u8, u8)> {
        fn of<T: Copy + Default + PartialEq + fmt::Debug>(entries: &Entries<T>, slot: usize) -> (T, T) {
            let key = |number| entries.keys[key_at(entries.width, slot, number)];
            let values = &entries.values[slot * entries.width..][..entries.width];
            for number in 0..entries.width {
                assert_eq!((key(number), values[number]), (key(0), values[0]));
            }
            (key(0), values[0])
        }
        let mark = |slot| match &cache.layers[0] {
            LayerKv::F16(halves) => {
                let (key, value) = of(halves, slot);
                (key as u8, value as u8)
            }
            LayerKv::Q8_0 { quants, scales } => {
                let (key, value) = of(quants, slot);
                assert_eq!(of(scales, slot), (f32::from(key as u8), f32::from(value as u8)));
                (key as u8, value as u8)
            }
        };
        (0..slots).map(mark).collect()
    }

    #[test]
    fn kept_rows_move_down_and_others_vanish() {
        for kind in KvType::ALL {
            let mut cache = KvCache::new(kind, [WIDTH].into_iter());
            fill(&mut cache, &[1, 2]);
            cache.keep(&[0, 1]);
            fill(&mut cache, &[3, 4, 5, 6]);
            cache.keep(&[0, 2, 3]);
            assert_eq!(cache.len(), 5);
            assert_eq!(marks(&cache, 5), [(1, 101), (2, 102), (3, 103), (5, 105), (6, 106)]);
            cache.truncate(2);
            fill(&mut cache, &[9]);
            cache.keep(&[0]);
            assert_eq!(marks(&cache, 3), [(1, 101), (2, 102), (9, 109)]);
            // Growing loses nothing.
            fill(&mut cache, &[7; 40]);
            cache.keep(&(0..40).collect::<Vec<_>>());
            assert_eq!(marks(&cache, 43)[2..], [&[(9, 109)][..], &[(7, 107); 40]].concat());
        }
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for kind in KvType::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        for text in ["q4_0", "bf16", "f32", "Q8_0", ""] {
            let error = text.parse::<KvType>().unwrap_err();
            assert!(error.contains("f16 or q8_0"), "{error}");
        }
    }
}
