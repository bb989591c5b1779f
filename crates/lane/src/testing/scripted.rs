//! A lane whose logits are a pure function of the token prefix.
//!
//! There is no model: a script maps the tokens up to and including a row to that row's logits. The
//! cache is the list of committed tokens, so a row's prefix is that list, its ancestors and itself.
//!
//! Invariant: keep, truncate, errors and dropped rows behave exactly as the [`Lane`] trait says.
//! Not here: the checks that hold real lanes to the same rules (`agreement`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Batch, Lane, LaneError, LaneInfo, Outputs, Row, Rows, Want};

type Script = Arc<dyn Fn(&[u32]) -> Vec<f32> + Send + Sync>;
type Cost = Arc<dyn Fn(usize) -> u64 + Send + Sync>;

/// What one pass was asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pass {
    /// Committed positions before it.
    pub committed: usize,
    /// Its rows.
    pub rows: Vec<Row>,
}

/// A failure to be played at a given pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The engine breaks: [`LaneError::Device`].
    Device,
    /// The model computes NaN in every row: [`Outputs::NonFinite`].
    NonFinite,
}

/// A lane driven by a script instead of a model.
pub struct ScriptedLane {
    info: LaneInfo,
    script: Script,
    committed: Vec<u32>,
    speculative: Batch,
    passes: Vec<Pass>,
    faults: Vec<(usize, Fault)>,
    cost: Option<(Cost, Arc<AtomicU64>)>,
}

impl ScriptedLane {
    /// A lane with `vocab` tokens and `context` positions; `script` maps a token prefix (never
    /// empty, its last token is the row's own) to logits `[vocab]`.
    pub fn new(
        vocab: usize,
        context: usize,
        script: impl Fn(&[u32]) -> Vec<f32> + Send + Sync + 'static,
    ) -> Self {
        let info = LaneInfo {
            name: "scripted".into(),
            numerics_id: "scripted-1".into(),
            context,
            vocab,
            max_width: 4096,
            threads: 1,
        };
        Self {
            info,
            script: Arc::new(script),
            committed: Vec::new(),
            speculative: Batch::new(),
            passes: Vec::new(),
            faults: Vec::new(),
            cost: None,
        }
    }

    /// Logits hashed from the whole prefix, spread over ±`spread`: no two prefixes agree.
    pub fn hashed(vocab: usize, context: usize, seed: u64, spread: f32) -> Self {
        Self::new(vocab, context, move |prefix| hashed_logits(seed, prefix, vocab, spread))
    }

    /// Logits hashed from the last `order` tokens only, so that text repeats itself and lookups hit.
    pub fn markov(vocab: usize, context: usize, seed: u64, spread: f32, order: usize) -> Self {
        Self::new(vocab, context, move |prefix| {
            hashed_logits(seed, &prefix[prefix.len().saturating_sub(order)..], vocab, spread)
        })
    }

    /// A lane that mostly agrees with this one: its logits plus hashed noise over ±`noise`.
    pub fn perturbed(&self, seed: u64, noise: f32) -> Self {
        let (script, vocab) = (Arc::clone(&self.script), self.info.vocab);
        Self::new(vocab, self.info.context, move |prefix| {
            let mut logits = script(prefix);
            for (logit, shift) in logits.iter_mut().zip(hashed_logits(seed, prefix, vocab, noise)) {
                *logit += shift;
            }
            logits
        })
    }

    /// A second lane with the same script and an empty cache.
    pub fn twin(&self) -> Self {
        let script = Arc::clone(&self.script);
        Self::new(self.info.vocab, self.info.context, move |prefix| script(prefix))
    }

    /// Says that it runs on the device `name`.
    pub fn with_name(mut self, name: &str) -> Self {
        self.info.name = name.to_owned();
        self
    }

    /// Takes passes of at most `width` rows.
    pub fn with_max_width(mut self, width: usize) -> Self {
        self.info.max_width = width;
        self
    }

    /// Advances `clock` (microseconds) by `cost(width)` in every pass: time without waiting.
    pub fn with_cost(
        mut self,
        clock: Arc<AtomicU64>,
        cost: impl Fn(usize) -> u64 + Send + Sync + 'static,
    ) -> Self {
        self.cost = Some((Arc::new(cost), clock));
        self
    }

    /// Plays `fault` at pass number `pass`, counted from 0 over the lane's life.
    pub fn with_fault(mut self, pass: usize, fault: Fault) -> Self {
        self.faults.push((pass, fault));
        self
    }

    /// The committed tokens.
    pub fn committed(&self) -> &[u32] {
        &self.committed
    }

    /// Every pass so far, failed ones included.
    pub fn passes(&self) -> &[Pass] {
        &self.passes
    }

    /// Logits the script gives behind `prefix`.
    pub fn logits(&self, prefix: &[u32]) -> Vec<f32> {
        (self.script)(prefix)
    }

    fn check(&self, batch: &Batch) -> Result<(), LaneError> {
        let (width, max) = (batch.width(), self.info.max_width);
        if width == 0 || width > max {
            return Err(LaneError::BadWidth { width, max });
        }
        if let Some(row) = batch.rows().iter().find(|row| row.token as usize >= self.info.vocab) {
            return Err(LaneError::BadToken { token: row.token, vocab: self.info.vocab });
        }
        let needed = self.committed.len() + batch.height();
        if needed > self.info.context {
            return Err(LaneError::ContextFull { needed, context: self.info.context });
        }
        Ok(())
    }

    fn row(&self, batch: &Batch, i: usize, poisoned: bool) -> Outputs {
        let want = batch.rows()[i].want;
        if want == Want::Nothing {
            return Outputs::Nothing;
        }
        if poisoned {
            return Outputs::NonFinite;
        }
        let mut prefix = self.committed.clone();
        prefix.extend(batch.path(i).into_iter().map(|row| batch.rows()[row].token));
        let logits = (self.script)(&prefix);
        assert_eq!(logits.len(), self.info.vocab, "the script returns one logit per token");
        if logits.iter().any(|logit| !logit.is_finite()) {
            return Outputs::NonFinite;
        }
        match want {
            Want::Logits => Outputs::Logits(logits),
            Want::Likeliest => {
                let best = lowest_argmax(&logits);
                let largest = logits[best as usize];
                let mass: f32 = logits.iter().map(|logit| (logit - largest).exp()).sum();
                Outputs::Likeliest(best, 1.0 / mass)
            }
            _ => Outputs::Argmax(lowest_argmax(&logits)),
        }
    }
}

impl Lane for ScriptedLane {
    fn info(&self) -> &LaneInfo {
        &self.info
    }

    fn len(&self) -> usize {
        self.committed.len()
    }

    fn forward(&mut self, batch: &Batch) -> Result<Rows, LaneError> {
        self.speculative = Batch::new();
        let pass = self.passes.len();
        self.passes.push(Pass { committed: self.committed.len(), rows: batch.rows().to_vec() });
        self.check(batch)?;
        if let Some((cost, clock)) = &self.cost {
            clock.fetch_add(cost(batch.width()), Ordering::Relaxed);
        }
        let fault = self.faults.iter().find(|(at, _)| *at == pass).map(|(_, fault)| *fault);
        if fault == Some(Fault::Device) {
            let (lane, what) = (self.info.name.clone(), format!("scripted fault in pass {pass}"));
            return Err(LaneError::Device { lane, what });
        }
        let poisoned = fault == Some(Fault::NonFinite);
        let outputs = (0..batch.width()).map(|i| self.row(batch, i, poisoned)).collect();
        self.speculative = batch.clone();
        Ok(Rows::new(outputs))
    }

    fn keep(&mut self, rows: &[usize]) -> Result<(), LaneError> {
        if !self.speculative.is_path(rows) {
            return Err(LaneError::NotAPath { rows: rows.to_vec() });
        }
        let batch = std::mem::take(&mut self.speculative);
        self.committed.extend(rows.iter().map(|&row| batch.rows()[row].token));
        Ok(())
    }

    fn truncate(&mut self, len: usize) {
        self.committed.truncate(len);
        self.speculative = Batch::new();
    }
}

/// Hash of a token sequence: order and length matter.
pub fn hash_tokens(seed: u64, tokens: &[u32]) -> u64 {
    tokens.iter().fold(mix(seed ^ 0x51ed_270b), |hash, &token| mix(hash ^ u64::from(token)))
}

/// Logits in ±`spread`, one per token, hashed from the seed and the prefix.
fn hashed_logits(seed: u64, prefix: &[u32], vocab: usize, spread: f32) -> Vec<f32> {
    let hash = hash_tokens(seed, prefix);
    (0..vocab as u64).map(|id| spread * signed_unit(mix(hash ^ (id + 1)))).collect()
}

/// A hash as a number in [-1, 1) with 24 bits, so that it is exact in `f32`.
fn signed_unit(hash: u64) -> f32 {
    (hash >> 40) as f32 / (1 << 23) as f32 - 1.0
}

/// The finalizer of SplitMix64: every input bit reaches every output bit.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Id of the largest logit, the lowest id on ties; the logits are finite.
fn lowest_argmax(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (id, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = id;
        }
    }
    best as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane() -> ScriptedLane {
        ScriptedLane::hashed(11, 64, 7, 4.0)
    }

    #[test]
    fn the_scripted_lane_passes_the_agreement_suite() {
        super::super::agreement::all(&mut || Box::new(lane()));
    }

    #[test]
    fn passes_are_recorded() {
        let mut lane = lane();
        lane.forward(&Batch::chain(&[1, 2], Want::Argmax)).unwrap();
        lane.keep(&[0, 1]).unwrap();
        lane.forward(&Batch::chain(&[3], Want::Nothing)).unwrap();
        assert_eq!(lane.passes().len(), 2);
        assert_eq!(lane.passes()[1].committed, 2);
        assert_eq!(lane.committed(), [1, 2]);
    }

    #[test]
    fn faults_strike_once_and_leave_the_cache_alone() {
        let mut lane = lane().with_fault(1, Fault::Device).with_fault(2, Fault::NonFinite);
        let batch = Batch::chain(&[5], Want::Argmax);
        lane.forward(&batch).unwrap();
        assert!(matches!(lane.forward(&batch), Err(LaneError::Device { .. })));
        assert!(matches!(lane.keep(&[0]), Err(LaneError::NotAPath { .. })));
        assert_eq!(lane.forward(&batch).unwrap().get(0), &Outputs::NonFinite);
        assert!(lane.forward(&batch).unwrap().argmax(0).is_some());
    }

    #[test]
    fn costs_move_the_clock() {
        let clock = Arc::new(AtomicU64::new(0));
        let mut lane = lane().with_cost(Arc::clone(&clock), |width| 100 + 10 * width as u64);
        lane.forward(&Batch::chain(&[1, 2, 3], Want::Nothing)).unwrap();
        assert_eq!(clock.load(Ordering::Relaxed), 130);
    }

    #[test]
    fn a_script_that_computes_nan_is_reported_only_where_wanted() {
        let mut lane =
            ScriptedLane::new(3, 8, |prefix| vec![if prefix.len() > 1 { f32::NAN } else { 0.0 }; 3]);
        let mut batch = Batch::new();
        batch.push(Row { token: 0, parent: None, want: Want::Argmax });
        batch.push(Row { token: 1, parent: Some(0), want: Want::Nothing });
        batch.push(Row { token: 1, parent: Some(0), want: Want::Logits });
        let rows = lane.forward(&batch).unwrap();
        assert_eq!(rows.get(0), &Outputs::Argmax(0));
        assert_eq!(rows.get(1), &Outputs::Nothing);
        assert_eq!(rows.get(2), &Outputs::NonFinite);
    }
}
