//! What a pass returns: for each row of the batch, what that row asked for.

use pilotfish_tensor::kernels::Kernels;

/// What one row returned.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Outputs {
    /// Nothing was wanted.
    #[default]
    Nothing,
    /// Id of the largest logit.
    Argmax(u32),
    /// The same and its probability, above 0 and at most 1. It is for drafters: ids whose logits lie far below are left
    /// out of the sum, so its last digits are no part of the lane's numerics.
    Likeliest(u32, f32),
    /// All logits, `[vocab]`, every one finite.
    Logits(Vec<f32>),
    /// The row wanted something, but its logits hold NaN or infinity. It is the row's own result,
    /// not an error of the pass: a rejected guess must not end a reply that never used it.
    NonFinite,
}

/// The outputs of one pass, indexed like the batch's rows.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Rows {
    outputs: Vec<Outputs>,
}

impl Rows {
    /// Wraps one entry per row of the batch.
    pub fn new(outputs: Vec<Outputs>) -> Self {
        Self { outputs }
    }

    /// What row `i` returned.
    pub fn get(&self, i: usize) -> &Outputs {
        &self.outputs[i]
    }

    /// The largest logit's id of row `i`, when it asked for it or for all logits.
    pub fn argmax(&self, i: usize) -> Option<u32> {
        match &self.outputs[i] {
            Outputs::Nothing | Outputs::NonFinite => None,
            Outputs::Argmax(id) | Outputs::Likeliest(id, _) => Some(*id),
            Outputs::Logits(logits) => u32::try_from(Kernels::best().argmax(logits)).ok(),
        }
    }

    /// How likely that id is, when row `i` asked for it with its probability.
    pub fn probability(&self, i: usize) -> Option<f32> {
        match self.outputs[i] {
            Outputs::Likeliest(_, probability) => Some(probability),
            _ => None,
        }
    }

    /// All logits of row `i`, when it asked for them.
    pub fn logits(&self, i: usize) -> Option<&[f32]> {
        match &self.outputs[i] {
            Outputs::Logits(logits) => Some(logits),
            _ => None,
        }
    }

    /// Number of rows.
    pub fn width(&self) -> usize {
        self.outputs.len()
    }
}
