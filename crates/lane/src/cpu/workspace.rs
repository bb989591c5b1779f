//! Memory kept from pass to pass.
//!
//! Invariant: a buffer that was taken is written before it is read.
//! Not here: which value lives in which buffer (`plan`).

use super::quantized::Quantized;

/// The buffers of a pass.
pub(super) struct Workspace {
    pub(super) buffers: Vec<Vec<f32>>,
    /// Gate and up inside a gated MLP, `[rows, ffn]` each.
    pub(super) inner: [Vec<f32>; 2],
    pub(super) quantized: Quantized,
    poison: Option<f32>,
}

impl Workspace {
    /// Empty buffers.
    pub(super) fn new(n_buffers: usize, poison: Option<f32>) -> Self {
        let buffers = vec![Vec::new(); n_buffers];
        Self { buffers, inner: [const { Vec::new() }; 2], quantized: Quantized::default(), poison }
    }

    /// Bytes of the float buffers, without what is quantized.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        let floats: usize = self.buffers.iter().chain(&self.inner).map(Vec::len).sum();
        (floats * size_of::<f32>()) as u64
    }

    /// Takes a buffer out, sized for `n` elements whose content is arbitrary.
    pub(super) fn take(&mut self, buffer: usize, n: usize) -> Vec<f32> {
        let mut taken = std::mem::take(&mut self.buffers[buffer]);
        sized(&mut taken, n, self.poison);
        taken
    }

    /// Takes the buffers of a gated MLP out, sized for `n` elements each.
    pub(super) fn take_inner(&mut self, n: usize) -> [Vec<f32>; 2] {
        let mut taken = std::mem::take(&mut self.inner);
        taken.iter_mut().for_each(|buffer| sized(buffer, n, self.poison));
        taken
    }
}

fn sized(buffer: &mut Vec<f32>, n: usize, poison: Option<f32>) {
    buffer.resize(n, 0.0);
    if let Some(poison) = poison {
        buffer.fill(poison);
    }
}
