//! What is told of one round, to those who ask.
//!
//! Invariant: over an answer, the figures add up to its [`Stats`](crate::Stats), and the joined pieces are its text.
//! Not here: counting and timing (`pilotfish_engine::speculate`).

use pilotfish_engine::sampling::Logprobs;
use pilotfish_engine::session::Piece;
use pilotfish_engine::speculate::{Round, RoundFigures, Source, SpeculationReport};

/// One round of an answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RoundRecord {
    /// Which round of the answer it is, from 0.
    pub round: usize,
    /// Counts and times. The width is 0 where the answer was stopped and only text that was held back came out.
    pub figures: RoundFigures,
    /// Who guessed each token it added; nobody guessed the bonus.
    pub sources: Vec<Option<Source>>,
    /// The text that became final, by the tokens it belongs to, some perhaps of earlier rounds.
    pub pieces: Vec<Piece>,
    /// Log-probabilities of its tokens, when they were asked for.
    pub logprobs: Vec<Logprobs>,
    /// Whether drafting is off after it, for now or for good.
    pub parked: bool,
    /// Why, or why the drafter has nothing to say.
    pub reason: Option<String>,
}

impl RoundRecord {
    /// A round that ended when `rounds` were counted, and how speculation stood then.
    pub(crate) fn new(round: Round, rounds: usize, report: SpeculationReport) -> Self {
        let Round { figures, sources, pieces, logprobs, .. } = round;
        // A cancelled round is not counted.
        let before = rounds - usize::from(figures.width > 0);
        let SpeculationReport { parked, reason, .. } = report;
        Self { round: before, figures, sources, pieces, logprobs, parked, reason }
    }
}
