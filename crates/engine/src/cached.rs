//! A lane that knows which tokens its cache holds.
//!
//! A [`Lane`] counts positions; it does not remember tokens. Keeping them beside it lets the next
//! prompt reuse the longest common prefix, and lets tests see that nothing rejected was ever kept.
//!
//! Invariant: `held().len()` equals the lane's length, also after an error.
//! Not here: which tokens to run (`speculate`, `draft::model`).

use pilotfish_lane::{Batch, Lane, LaneError, LaneInfo, Rows, Want};

use crate::clock::Clock;
use crate::pace::Pace;

/// A lane and the tokens of its committed positions.
pub struct CachedLane {
    lane: Box<dyn Lane>,
    held: Vec<u32>,
    pending: Vec<u32>, // tokens of the last pass's rows
    taps: Vec<usize>,
    pace: Pace,
}

impl CachedLane {
    /// Takes over `lane`; whatever it holds is forgotten, since its tokens are not known.
    pub fn new(mut lane: Box<dyn Lane>) -> Self {
        lane.truncate(0);
        Self { lane, held: Vec::new(), pending: Vec::new(), taps: Vec::new(), pace: Pace::default() }
    }

    /// What the lane is.
    pub fn info(&self) -> &LaneInfo {
        self.lane.info()
    }

    /// The tokens in the cache, from position 0.
    pub fn held(&self) -> &[u32] {
        &self.held
    }

    /// Asks for the residual streams behind these layers in every pass from now on.
    pub fn set_taps(&mut self, layers: &[usize]) {
        self.taps = layers.to_vec();
    }

    /// Runs a pass; its rows stay speculative until [`CachedLane::keep`].
    ///
    /// # Errors
    /// What the lane says.
    pub fn forward(&mut self, batch: &Batch) -> Result<Rows, LaneError> {
        let rows = match self.taps.is_empty() {
            true => self.lane.forward(batch),
            false => self.lane.forward(&batch.clone().with_taps(&self.taps)),
        };
        self.pending.clear();
        if rows.is_ok() {
            self.pending.extend(batch.rows().iter().map(|row| row.token));
        }
        rows
    }

    /// Commits a path of the last pass's rows and drops the rest.
    ///
    /// # Errors
    /// What the lane says; nothing is committed then.
    pub fn keep(&mut self, rows: &[usize]) -> Result<(), LaneError> {
        match self.lane.keep(rows) {
            Ok(()) => {
                self.held.extend(rows.iter().map(|&row| self.pending[row]));
                self.pending.clear();
                Ok(())
            }
            Err(error) => {
                self.truncate(self.held.len());
                Err(error)
            }
        }
    }

    /// Runs `tokens` as a chain, keeps them all, and returns what the last row wanted.
    ///
    /// # Errors
    /// What the lane says; none of the tokens is committed then.
    pub fn append(&mut self, tokens: &[u32], last: Want) -> Result<Rows, LaneError> {
        let rows = self.forward(&Batch::chain(tokens, last))?;
        self.keep(&(0..tokens.len()).collect::<Vec<_>>())?;
        Ok(rows)
    }

    /// Runs `tokens` as a chain and keeps them all, in passes that take about half a second each, or of `width` rows
    /// where that is given. Before each pass `go_on` hears how many tokens are read, and may stop; returns how many
    /// were read.
    ///
    /// # Errors
    /// What the lane says; tokens of earlier passes stay committed.
    pub fn read(
        &mut self,
        tokens: &[u32],
        width: Option<usize>,
        clock: &dyn Clock,
        go_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<usize, LaneError> {
        self.read_and(tokens, width, clock, go_on, &mut |_, _, _| {})
    }

    /// [`CachedLane::read`], where `passed` sees what each pass returned: the position of its first token, its tokens,
    /// and its rows.
    ///
    /// # Errors
    /// What the lane says; tokens of earlier passes stay committed.
    pub fn read_and(
        &mut self,
        tokens: &[u32],
        width: Option<usize>,
        clock: &dyn Clock,
        go_on: &mut dyn FnMut(usize) -> bool,
        passed: &mut dyn FnMut(usize, &[u32], &Rows),
    ) -> Result<usize, LaneError> {
        let mut read = 0;
        while read < tokens.len() && go_on(read) {
            let rows = width.unwrap_or(self.pace.rows()).clamp(1, self.info().max_width);
            let end = tokens.len().min(read + rows);
            let start = clock.now_ms();
            let position = self.held.len();
            let rows = self.append(&tokens[read..end], Want::Nothing)?;
            passed(position, &tokens[read..end], &rows);
            if width.is_none() {
                self.pace.observe(end - read, clock.now_ms() - start);
            }
            read = end;
        }
        Ok(read)
    }

    /// Forgets everything behind the longest common prefix with `tokens`; returns that prefix's length.
    pub fn sync(&mut self, tokens: &[u32]) -> usize {
        let common = self.held.iter().zip(tokens).take_while(|(held, token)| held == token).count();
        self.truncate(common);
        common
    }

    /// Forgets every position from `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.held.truncate(len);
        self.lane.truncate(len);
        self.pending.clear();
    }
}

#[cfg(test)]
mod tests {
    use pilotfish_lane::testing::{Fault, ScriptedLane};

    use super::*;

    #[test]
    fn the_common_prefix_is_reused() {
        let mut cached = CachedLane::new(Box::new(ScriptedLane::hashed(10, 32, 1, 1.0)));
        cached.append(&[1, 2, 3, 4], Want::Nothing).unwrap();
        assert_eq!(cached.sync(&[1, 2, 9, 4]), 2);
        assert_eq!(cached.held(), [1, 2]);
        assert_eq!(cached.sync(&[1, 2, 9]), 2);
        assert_eq!(cached.sync(&[]), 0);
    }

    #[test]
    fn errors_commit_nothing() {
        let lane = ScriptedLane::hashed(10, 4, 1, 1.0).with_fault(1, Fault::Device);
        let mut cached = CachedLane::new(Box::new(lane));
        cached.append(&[1, 2], Want::Nothing).unwrap();
        assert!(cached.append(&[3], Want::Nothing).is_err());
        assert!(cached.append(&[3, 4, 5], Want::Nothing).is_err(), "longer than the context");
        cached.forward(&Batch::chain(&[7, 8], Want::Nothing)).unwrap();
        assert!(cached.keep(&[1]).is_err());
        assert_eq!(cached.held(), [1, 2]);
        cached.append(&[3, 4], Want::Nothing).unwrap();
        assert_eq!(cached.held(), [1, 2, 3, 4]);
    }
}
