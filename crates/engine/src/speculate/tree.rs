//! Guessed tokens with their parents.
//!
//! Node 0 is the root: the last committed token, which is not in the cache yet. Every other node is a
//! guess for the token behind its parent; a chain is a tree of width one. Nodes and the rows of the
//! verifying pass have the same indices.
//!
//! A parent's guesses are either picked, like the continuation found by a lookup, or drawn from a law, one
//! after another and none twice. The rule of rejection (`reject`) must know which, and the law; coupled
//! sampling and greedy decoding need neither.
//!
//! Invariant: parents come before children, and siblings differ. Drawn siblings are in the order they were
//! drawn in, and whether one is in the tree never depends on which token it is.
//! Not here: which guesses are right (`accept`).

use std::sync::Arc;

use pilotfish_lane::{Batch, Row, Want};

use crate::sampling::Law;

/// Where a guess comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// N-gram lookup in the session.
    Ngram,
    /// Suffix tree of the session.
    Suffix,
    /// Suffix tree of earlier replies.
    History,
    /// A drafting model.
    Model,
    /// A drafter of the embedding program's own that costs next to nothing; one that takes time is a [`Source::Model`].
    Own,
}

impl Source {
    /// Every source.
    pub const ALL: [Source; 5] = [Source::Ngram, Source::Suffix, Source::History, Source::Model, Source::Own];

    /// Its name in tables and traces.
    pub fn name(self) -> &'static str {
        match self {
            Source::Ngram => "ngram",
            Source::Suffix => "suffix",
            Source::History => "history",
            Source::Model => "model",
            Source::Own => "own",
        }
    }
}

/// A guess as its drafter sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guess {
    /// The token.
    pub token: u32,
    /// How likely the drafter thinks it, given that all guesses before it are right: 0 to 1.
    pub probability: f32,
    /// Where it comes from.
    pub source: Source,
}

/// One node.
#[derive(Clone, Debug, PartialEq)]
struct Node {
    guess: Guess,
    parent: Option<usize>,
    depth: usize,
    law: Option<Arc<Law>>, // of its children, where they are drawn
}

impl Node {
    fn new(guess: Guess, parent: Option<usize>, depth: usize) -> Self {
        Self { guess, parent, depth, law: None }
    }
}

/// A root and the guesses behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenTree {
    nodes: Vec<Node>,
}

impl TokenTree {
    /// Only the root: a plain decoding step.
    pub fn root(token: u32) -> Self {
        let guess = Guess { token, probability: 1.0, source: Source::Ngram };
        Self { nodes: vec![Node::new(guess, None, 0)] }
    }

    /// A root with one sure guess behind another.
    pub fn chain(root: u32, guesses: &[u32]) -> Self {
        let mut tree = Self::root(root);
        let mut at = 0;
        for &token in guesses {
            at = tree.push(at, Guess { token, probability: 1.0, source: Source::Ngram });
        }
        tree
    }

    /// Adds a guess behind node `parent` and returns its index; a guess that is there already is not
    /// added again.
    ///
    /// # Panics
    /// When there is no such parent: a bug in the drafter.
    pub fn push(&mut self, parent: usize, guess: Guess) -> usize {
        if let Some(child) = self.child(parent, guess.token) {
            return child;
        }
        let depth = self.nodes[parent].depth + 1;
        self.nodes.push(Node::new(guess, Some(parent), depth));
        self.nodes.len() - 1
    }

    /// Says that all guesses behind node `parent` are drawn from `law`, each from what the ones before
    /// left of it, and pushed in that order.
    ///
    /// The text follows the target's law only if nothing decides about a guess that knows its token: not
    /// whether it is drawn, not its [`Guess::probability`], by which trees may be cut, and not what is
    /// pushed before it. What *earlier* guesses turned out to be may decide.
    ///
    /// # Panics
    /// When there is no such node: a bug in the drafter.
    pub fn draw_behind(&mut self, parent: usize, law: Arc<Law>) {
        self.nodes[parent].law = Some(law);
    }

    /// The law that the children of node `i` are drawn from; `None` where they are picked.
    pub fn law(&self, i: usize) -> Option<&Law> {
        self.nodes[i].law.as_deref()
    }

    /// Number of nodes, root included: the width of the verifying pass.
    pub fn width(&self) -> usize {
        self.nodes.len()
    }

    /// Number of guesses.
    pub fn drafted(&self) -> usize {
        self.nodes.len() - 1
    }

    /// Guesses on the longest path.
    pub fn depth(&self) -> usize {
        self.nodes.iter().map(|node| node.depth).max().unwrap_or(0)
    }

    /// Token of node `i`.
    pub fn token(&self, i: usize) -> u32 {
        self.nodes[i].guess.token
    }

    /// Node `i` as its drafter sees it; of the root, only the token means anything.
    pub fn guess(&self, i: usize) -> Guess {
        self.nodes[i].guess
    }

    /// The parent of node `i`; none for the root.
    pub fn parent(&self, i: usize) -> Option<usize> {
        self.nodes[i].parent
    }

    /// Guesses from the root to node `i`, itself included.
    pub fn depth_of(&self, i: usize) -> usize {
        self.nodes[i].depth
    }

    /// The child of `parent` that guesses `token`.
    pub fn child(&self, parent: usize, token: u32) -> Option<usize> {
        self.nodes.iter().position(|node| node.parent == Some(parent) && node.guess.token == token)
    }

    /// The children of `parent`, in the order they were pushed in.
    pub fn children(&self, parent: usize) -> impl Iterator<Item = usize> {
        (parent + 1..self.nodes.len()).filter(move |&i| self.nodes[i].parent == Some(parent))
    }

    /// The root, the guess behind it that its drafter holds likeliest, the one behind that, and so on; the first of
    /// equals.
    pub fn likeliest_path(&self) -> Vec<usize> {
        let mut path = vec![0];
        let mut at = 0;
        while let Some(child) = self
            .children(at)
            .reduce(|best, i| if self.guess(i).probability > self.guess(best).probability { i } else { best })
        {
            path.push(child);
            at = child;
        }
        path
    }

    /// The nodes as rows, each wanting `want`.
    pub fn to_batch(&self, want: Want) -> Batch {
        let mut batch = Batch::new();
        for node in &self.nodes {
            batch.push(Row { token: node.guess.token, parent: node.parent, want });
        }
        batch
    }

    /// The root and the nodes that `keep` names; what hangs on a node that is not kept goes too. Whether a drawn guess
    /// is kept must not depend on its token: see [`TokenTree::draw_behind`].
    pub fn select(&self, keep: impl Fn(usize) -> bool) -> Self {
        let mut selected = Self::root(self.token(0));
        selected.nodes[0].law.clone_from(&self.nodes[0].law);
        let mut moved = vec![Some(0)]; // old index to new index
        for (i, node) in self.nodes.iter().enumerate().skip(1) {
            let parent = node.parent.and_then(|parent| moved[parent]).filter(|_| keep(i));
            moved.push(parent.map(|parent| {
                let at = selected.push(parent, node.guess);
                selected.nodes[at].law.clone_from(&node.law);
                at
            }));
        }
        selected
    }

    /// The tree without guesses deeper than `depth`, past `drafted` in number or outside a vocabulary
    /// of `vocab`, and without what hangs on them.
    ///
    /// Drawn siblings are cut in a way that does not depend on them: of one parent's the first ones
    /// stay, and none where their law reaches outside the vocabulary.
    pub fn clip(&self, depth: usize, drafted: usize, vocab: usize) -> Self {
        // What hangs on a node that is not kept is not kept either.
        let (mut kept, mut count) = (vec![true], 0);
        for node in &self.nodes[1..] {
            let parent = node.parent.expect("only the root has no parent");
            let last_token = self.law(parent).map_or(node.guess.token, Law::last_token);
            let fits =
                node.depth <= depth && count < drafted && (last_token.max(node.guess.token) as usize) < vocab;
            kept.push(kept[parent] && fits);
            count += usize::from(kept[parent] && fits);
        }
        self.select(|i| kept[i])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guess(token: u32) -> Guess {
        Guess { token, probability: 0.5, source: Source::Suffix }
    }

    fn fork() -> TokenTree {
        // 5 ─┬─ 6 ── 8
        //    └─ 7
        let mut tree = TokenTree::chain(5, &[6]);
        tree.push(0, guess(7));
        tree.push(1, guess(8));
        tree
    }

    #[test]
    fn speculation_tree_becomes_rows_with_the_same_indices() {
        let batch = fork().to_batch(Want::Argmax);
        assert_eq!(batch.rows().iter().map(|row| row.token).collect::<Vec<_>>(), [5, 6, 7, 8]);
        assert_eq!(batch.path(3), [0, 1, 3]);
        assert_eq!(batch.path(2), [0, 2]);
        assert_eq!(fork().depth(), 2);
    }

    #[test]
    fn speculation_tree_has_a_likeliest_path() {
        let mut tree = TokenTree::root(5);
        let first = tree.push(0, guess(6));
        tree.push(0, guess(7));
        let below = tree.push(first, guess(8));
        assert_eq!(tree.likeliest_path(), [0, first, below], "the first of equals");
        let likelier = tree.push(0, Guess { probability: 0.6, ..guess(9) });
        assert_eq!(tree.likeliest_path(), [0, likelier]);
        assert_eq!(TokenTree::root(5).likeliest_path(), [0]);
    }

    #[test]
    fn speculation_tree_has_no_twin_siblings() {
        let mut tree = fork();
        assert_eq!(tree.push(0, guess(6)), 1);
        assert_eq!(tree.width(), 4);
        assert_eq!(tree.push(2, guess(6)), 4, "the same token elsewhere is another guess");
    }

    #[test]
    fn speculation_tree_is_clipped_with_its_branches() {
        let tree = fork();
        assert_eq!(tree.clip(9, 9, 100), tree);
        assert_eq!(tree.clip(1, 9, 100).width(), 3);
        assert_eq!(tree.clip(9, 1, 100), TokenTree::chain(5, &[6]));
        assert_eq!(tree.clip(0, 9, 100), TokenTree::root(5));
        // Without token 6 its child 8 goes too.
        let mut low = TokenTree::chain(5, &[60]);
        low.push(1, guess(4));
        low.push(0, guess(7));
        let low = low.clip(9, 9, 50);
        assert_eq!((low.drafted(), low.token(1), low.parent(1)), (1, 7, Some(0)));
    }

    #[test]
    fn speculation_tree_cuts_drawn_siblings_without_looking_at_them() {
        let law = |last: u32| Arc::new(Law::new((0..=last).map(|id| (id, 1.0))).unwrap());
        let mut tree = TokenTree::chain(5, &[9, 3, 7]);
        tree.draw_behind(0, law(9));
        tree.draw_behind(1, law(20));
        tree.push(0, guess(2));
        let whole = tree.clip(9, 9, 21);
        assert_eq!(whole, tree, "the laws stay");
        assert_eq!(whole.children(0).collect::<Vec<_>>(), [1, 4]);
        let first = tree.clip(9, 1, 21);
        assert_eq!((first.drafted(), first.law(0)), (1, tree.law(0)));
        // Behind node 1 token 3 would fit a vocabulary of 15, but 17 might have been drawn as well.
        let narrow = tree.clip(9, 9, 15);
        assert_eq!((1..narrow.width()).map(|i| narrow.token(i)).collect::<Vec<_>>(), [9, 2]);
        assert_eq!(tree.clip(9, 9, 9).drafted(), 0);
    }
}
