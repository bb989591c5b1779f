//! Values quantized as weights need them, each once a pass.
//!
//! Invariant: within a pass a value never changes once assigned, so what was made of it holds until the pass ends.
//! Not here: who multiplies with them (`products`).

use pilotfish_model::graph::ValueId;
use pilotfish_tensor::kernels::{ActPart, ActScheme, Activations};

use super::threads::Threads;

/// What was quantized.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// Nothing yet.
    Nothing,
    /// A value of the graph.
    Value(ValueId),
    /// The inside of the current gated MLP, or the gathered rows of the head.
    Inner,
}

/// What was quantized so far. Buffers are kept from pass to pass.
#[derive(Default)]
pub(super) struct Quantized {
    slots: Vec<(Source, Activations)>,
}

impl Quantized {
    /// Starts a pass.
    pub(super) fn forget(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.0 = Source::Nothing);
    }

    /// `of` under this scheme, which was quantized before.
    pub(super) fn get(&self, of: Source, scheme: ActScheme) -> &Activations {
        let found = self.slots.iter().find(|slot| slot.0 == of && slot.1.scheme() == scheme);
        &found.expect("quantized just before").1
    }

    /// Room for `of`, `[rows, k]`, under this scheme, to be filled; none when it is there already.
    pub(super) fn room(
        &mut self,
        of: Source,
        scheme: ActScheme,
        rows: usize,
        k: usize,
    ) -> Option<&mut Activations> {
        // Inner results change within a pass.
        let inner = of == Source::Inner;
        if !inner && self.slots.iter().any(|slot| slot.0 == of && slot.1.scheme() == scheme) {
            return None;
        }
        // One slot a scheme for values and one for inner results: nothing older is read again.
        let same =
            |slot: &(Source, Activations)| slot.1.scheme() == scheme && (slot.0 == Source::Inner) == inner;
        let known = self.slots.iter().position(same);
        let free = known.or_else(|| self.slots.iter().position(|slot| slot.0 == Source::Nothing));
        let at = free.unwrap_or_else(|| {
            self.slots.push((of, Activations::new()));
            self.slots.len() - 1
        });
        let (source, activations) = &mut self.slots[at];
        *source = of;
        activations.reshape(rows, k, scheme);
        Some(activations)
    }
}

/// Fills all of `to`: `fill` gets parts of it, on all threads where there is enough to do.
pub(super) fn fill(threads: &mut Threads, to: &mut Activations, fill: impl Fn(ActPart<'_>) + Sync) {
    let parts = threads.share(to.rows() * to.k());
    threads.for_each(to.split(parts), fill);
}
