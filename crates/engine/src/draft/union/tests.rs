//! Who drafts in a union, and who is told.
//!
//! Invariant: members write down what was asked of them; nothing here runs a lane.
//! Not here: whether drafts change a reply (they cannot: `tests/speculation.rs`).

use std::sync::{Arc, Mutex};

use super::*;
use crate::sampling::{Sampler, SamplingParams};
use crate::session::{Limits, NoText};
use crate::speculate::{Guess, Source};

/// Proposes `guesses` guesses of one probability, or fails, and notes what it hears.
#[derive(Clone)]
struct Noting {
    name: &'static str,
    costly: bool,
    probability: Arc<Mutex<f32>>,
    fails: bool,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Noting {
    fn new(name: &'static str, costly: bool, probability: f32) -> Self {
        let probability = Arc::new(Mutex::new(probability));
        Self { name, costly, probability, fails: false, heard: Arc::default() }
    }

    fn note(&self, what: String) {
        self.heard.lock().unwrap().push(what);
    }

    fn heard(&self) -> Vec<String> {
        std::mem::take(&mut self.heard.lock().unwrap())
    }

    fn boxed(&self) -> Box<dyn Drafter> {
        Box::new(self.clone())
    }
}

impl Drafter for Noting {
    fn name(&self) -> &str {
        self.name
    }

    fn default_max(&self) -> usize {
        if self.costly { 3 } else { 8 }
    }

    fn prepare(&mut self, _: &Session, _: &AtomicBool) -> Result<(), DraftError> {
        self.note("prepare".into());
        Ok(())
    }

    fn propose(&mut self, session: &Session, limit: usize) -> Result<TokenTree, DraftError> {
        self.note(format!("propose {limit}"));
        if self.fails {
            return Err(DraftError::Other("it broke".into()));
        }
        let mut tree = TokenTree::root(session.last());
        let probability = *self.probability.lock().unwrap();
        if probability > 0.0 {
            let mut at = 0;
            for token in 0..limit.min(4) as u32 {
                at = tree.push(at, Guess { token, probability, source: Source::Model });
            }
        }
        Ok(tree)
    }

    fn observe(&mut self, draft: &TokenTree, _: &Accepted, _: &Rows) {
        self.note(format!("observe {}", draft.drafted()));
    }

    fn finished(&mut self, _: &Session) {
        self.note("finished".into());
    }

    fn is_costly(&self) -> bool {
        self.costly
    }

    fn idle_reason(&self) -> Option<String> {
        (*self.probability.lock().unwrap() == 0.0).then(|| format!("{} is tired", self.name))
    }
}

fn session() -> Session {
    let limits = Limits { max_tokens: None, context: 100, end_tokens: vec![], ignore_eos: false };
    let sampler = Sampler::new(SamplingParams::greedy(), 100, 0).unwrap();
    Session::new(vec![1, 2, 3], limits, sampler, Box::new(NoText)).unwrap()
}

/// One round in which `right` guesses were right; returns the probability of the first guess.
fn round(union: &mut Union, right: usize) -> Option<f32> {
    let draft = union.propose(&session(), 8).unwrap();
    let accepted = Accepted { rows: (0..=right).collect(), tokens: vec![0; right + 1] };
    union.observe(&draft, &accepted, &Rows::new(vec![]));
    (draft.drafted() > 0).then(|| draft.guess(1).probability)
}

#[test]
fn speculation_union_takes_the_draft_that_expects_most() {
    let (weak, strong) = (Noting::new("weak", false, 0.3), Noting::new("strong", false, 0.6));
    let mut union = Union::new(vec![weak.boxed(), strong.boxed()], None);
    assert_eq!((union.name(), union.default_max()), ("weak+strong", 8));
    assert_eq!(round(&mut union, 1), Some(0.6));
    assert_eq!(weak.heard(), ["propose 8"], "the draft was not its own");
    assert_eq!(strong.heard(), ["propose 8", "observe 4"]);
    *weak.probability.lock().unwrap() = 0.9;
    assert_eq!(round(&mut union, 0), Some(0.9));
}

#[test]
fn speculation_union_asks_the_costly_one_only_where_others_have_little_to_say() {
    let (lookup, model) = (Noting::new("lookup", false, 0.9), Noting::new("model", true, 0.99));
    let mut union = Union::new(vec![model.boxed(), lookup.boxed()], None);
    assert_eq!(union.name(), "model+lookup");
    assert!(union.is_costly());
    // Until its first draft nobody knows what it brings.
    assert_eq!(round(&mut union, 4), Some(0.9));
    assert_eq!(model.heard(), ["propose 3"], "as deep as it finds useful");
    *lookup.probability.lock().unwrap() = 0.0;
    assert_eq!(round(&mut union, 2), Some(0.99));
    // It brings something below three guesses now; the others expect 3.1.
    model.heard();
    *lookup.probability.lock().unwrap() = 0.9;
    assert_eq!(round(&mut union, 4), Some(0.9));
    assert!(model.heard().is_empty(), "not asked");
    // Where it brings next to nothing, a poor lookup is enough; where there is none, it is asked again.
    *lookup.probability.lock().unwrap() = 0.0;
    (0..40).for_each(|_| assert_eq!(round(&mut union, 0), Some(0.99)));
    model.heard();
    *lookup.probability.lock().unwrap() = 0.1;
    assert_eq!(round(&mut union, 0), Some(0.1));
    assert!(model.heard().is_empty());
    *lookup.probability.lock().unwrap() = 0.0;
    assert_eq!(round(&mut union, 3), Some(0.99));
}

#[test]
fn speculation_union_asks_one_that_brought_less_than_it_costs_where_nobody_else_guesses() {
    let (lookup, model) = (Noting::new("lookup", false, 0.0), Noting::new("model", true, 0.99));
    let mut union = Union::new(vec![model.boxed(), lookup.boxed()], None);
    union.limit_costly(3, &Worth::priced(0.5));
    (0..40).for_each(|_| assert_eq!(round(&mut union, 0), Some(0.99)));
    // It brings 1.5 tokens less than nothing now: any lookup is better, but none is not.
    *lookup.probability.lock().unwrap() = 0.1;
    assert_eq!(round(&mut union, 0), Some(0.1));
    *lookup.probability.lock().unwrap() = 0.0;
    assert_eq!(round(&mut union, 3), Some(0.99));
}

#[test]
fn speculation_union_grants_every_member_what_was_asked_for() {
    let (lookup, model) = (Noting::new("lookup", false, 0.1), Noting::new("model", true, 0.5));
    let mut union = Union::new(vec![lookup.boxed(), model.boxed()], Some(6));
    round(&mut union, 0);
    assert_eq!((&lookup.heard()[0], &model.heard()[0]), (&"propose 6".to_owned(), &"propose 6".to_owned()));
}

#[test]
fn speculation_union_tells_everybody_about_the_reply() {
    let (one, other) = (Noting::new("one", false, 0.5), Noting::new("other", true, 0.5));
    let mut union = Union::new(vec![one.boxed(), other.boxed()], None);
    union.prepare(&session(), &AtomicBool::new(false)).unwrap();
    union.finished(&session());
    for member in [&one, &other] {
        assert_eq!(member.heard(), ["prepare", "finished"]);
    }
    // A plain round is nobody's draft.
    let plain = Accepted { rows: vec![0], tokens: vec![0] };
    union.observe(&TokenTree::root(3), &plain, &Rows::new(vec![]));
    assert!(one.heard().is_empty() && other.heard().is_empty());
}

#[test]
fn speculation_union_goes_on_without_a_member_that_fails_and_says_so() {
    let well = Noting::new("well", false, 0.5);
    let broken = Noting { fails: true, ..Noting::new("broken", true, 0.9) };
    let mut union = Union::new(vec![well.boxed(), broken.boxed()], None);
    assert_eq!(union.idle_reason(), None);
    assert_eq!(round(&mut union, 1), Some(0.5));
    assert_eq!(union.idle_reason().as_deref(), Some("broken: the drafter failed: it broke"));
    broken.heard();
    assert_eq!(round(&mut union, 1), Some(0.5));
    assert!(broken.heard().is_empty());
    *well.probability.lock().unwrap() = 0.0;
    assert_eq!(round(&mut union, 0), None);
    assert_eq!(union.idle_reason().as_deref(), Some("well is tired; broken: the drafter failed: it broke"));
}

#[test]
fn speculation_union_fails_once_all_have_failed() {
    let broken = |name| Noting { fails: true, ..Noting::new(name, false, 0.9) }.boxed();
    let mut union = Union::new(vec![broken("one"), broken("other")], None);
    let error = union.propose(&session(), 4).unwrap_err().to_string();
    assert!(error.contains("one: ") && error.contains("other: "), "{error}");
    assert!(union.prepare(&session(), &AtomicBool::new(false)).is_err());
}
