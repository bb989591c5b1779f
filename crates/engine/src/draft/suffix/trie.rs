//! A counted trie of all suffixes of some texts, cut at a fixed depth.
//!
//! A path from the root is an n-gram, and its count says how often the texts hold it. Paths without a
//! branch share one node, whose label is a stretch of a text: at most two nodes for each token, whatever
//! the depth. A token is added by moving on every suffix that is still open, one for each depth:
//!
//! ```text
//! its node has no such child:  a leaf of its own grows by the token, any other node gets a new leaf
//! the child is its only rest:  the border between node and child moves by the token
//! else:                        the child is entered, and cut in two where its label is longer
//! ```
//!
//! Labels are taken from the text that passed last, so the oldest text can go without leaving a label
//! behind. For the same reason the end of a text cannot be taken back.
//!
//! Invariant: a node other than the root has two children, or a suffix that ends in it; its label lies in
//! a text that is still held.
//! Not here: what is proposed (`grow`), which texts are kept (`suffix`).

use std::collections::{HashMap, VecDeque};

const ROOT: u32 = 0;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    /// Where the label lies, counted (wrapping) from the first token ever added.
    start: u32,
    len: u32,
    /// Suffixes that go through the label.
    count: u32,
    /// Of those, suffixes that end at its last token.
    ends: u32,
    parent: u32,
    /// The child that was entered last; its siblings follow in that order.
    child: u32,
    next: u32,
    prev: u32,
}

impl Node {
    /// A node of one token, at which one of `count` suffixes ends.
    fn new(parent: u32, start: u32, count: u32) -> Self {
        Self { start, len: 1, count, ends: 1, parent, child: NONE, next: NONE, prev: NONE }
    }
}

/// A place in the trie: `taken` tokens into a node's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    node: u32,
    taken: u32,
}

/// One way on from a point.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) token: u32,
    pub(super) count: u32,
    pub(super) point: Point,
}

/// The trie. The last text is open until [`Trie::close`].
#[derive(Debug)]
pub(super) struct Trie {
    depth: usize,
    nodes: Vec<Node>,
    free: Vec<u32>,
    children: HashMap<(u32, u32), u32>, // node and first token of the child's label
    tokens: VecDeque<u32>,
    first: u32,              // position of tokens[0]
    closed: VecDeque<usize>, // lengths of the closed texts, oldest first
    open: usize,
    active: VecDeque<u32>, // nodes at whose end the open text's suffixes end, longest first
}

impl Trie {
    /// An empty trie of n-grams of up to `depth` tokens.
    pub(super) fn new(depth: usize) -> Self {
        let root = Node { len: 0, ends: 0, ..Node::new(NONE, 0, 0) };
        Self {
            depth,
            nodes: vec![root],
            free: Vec::new(),
            children: HashMap::new(),
            tokens: VecDeque::new(),
            first: 0,
            closed: VecDeque::new(),
            open: 0,
            active: VecDeque::new(),
        }
    }

    /// Longest n-gram counted.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// Tokens of all texts.
    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Tokens of the open text.
    pub(super) fn open(&self) -> impl Iterator<Item = u32> {
        self.tokens.iter().skip(self.tokens.len() - self.open).copied()
    }

    /// Adds a token to the open text.
    pub(super) fn push(&mut self, token: u32) {
        let at = self.first.wrapping_add(self.tokens.len() as u32);
        self.tokens.push_back(token);
        self.open += 1;
        if self.active.len() == self.depth {
            self.active.pop_front(); // as deep as it may go: it ends where it is
        }
        self.active.push_back(ROOT);
        self.nodes[ROOT as usize].count += 1;
        self.nodes[ROOT as usize].ends += 1;
        for i in 0..self.active.len() {
            self.active[i] = self.advance(self.active[i], at, token);
        }
    }

    /// Ends the open text; the next token begins another.
    pub(super) fn close(&mut self) {
        if self.open > 0 {
            self.closed.push_back(self.open);
        }
        self.open = 0;
        self.active.clear();
    }

    /// Forgets the oldest closed text; what is left counts as if it had never been there.
    pub(super) fn forget_oldest(&mut self) {
        let Some(len) = self.closed.pop_front() else { return };
        for start in 0..len {
            self.forget(start, self.depth.min(len - start));
        }
        self.tokens.drain(..len);
        self.first = self.first.wrapping_add(len as u32);
    }

    /// Where the open text's last `n` tokens are.
    pub(super) fn open_end(&self, n: usize) -> Option<Point> {
        let node = *self.active.get(self.active.len().checked_sub(n)?)?;
        Some(Point { node, taken: self.nodes[node as usize].len })
    }

    /// The point before any token.
    pub(super) fn root(&self) -> Point {
        Point { node: ROOT, taken: 0 }
    }

    /// The point one token on, if any text went on so.
    pub(super) fn step(&self, from: Point, token: u32) -> Option<Point> {
        let node = &self.nodes[from.node as usize];
        if from.taken < node.len {
            let fits = self.token(node.start.wrapping_add(from.taken)) == token;
            return fits.then_some(Point { taken: from.taken + 1, ..from });
        }
        Some(Point { node: *self.children.get(&(from.node, token))?, taken: 1 })
    }

    /// How often the texts went on behind a point, whatever came.
    pub(super) fn total(&self, point: Point) -> u32 {
        let node = &self.nodes[point.node as usize];
        if point.taken < node.len { node.count } else { node.count - node.ends }
    }

    /// The ways on from a point, the one taken last first.
    pub(super) fn steps(&self, from: Point) -> impl Iterator<Item = Step> {
        let node = &self.nodes[from.node as usize];
        let inside = (from.taken < node.len).then(|| Step {
            token: self.token(node.start.wrapping_add(from.taken)),
            count: node.count,
            point: Point { taken: from.taken + 1, ..from },
        });
        let first = if inside.is_none() { node.child } else { NONE };
        let listed = |id: u32| (id != NONE).then_some(id);
        let children = std::iter::successors(listed(first), move |&id| listed(self.nodes[id as usize].next));
        inside.into_iter().chain(children.map(|id| {
            let child = &self.nodes[id as usize];
            Step { token: self.token(child.start), count: child.count, point: Point { node: id, taken: 1 } }
        }))
    }

    fn token(&self, at: u32) -> u32 {
        self.tokens[at.wrapping_sub(self.first) as usize]
    }

    /// Moves a suffix that ends at `from` on by the token at position `at`; returns where it ends now.
    fn advance(&mut self, from: u32, at: u32, token: u32) -> u32 {
        let node = self.nodes[from as usize];
        let Some(&child) = self.children.get(&(from, token)) else {
            if node.count == 1 && from != ROOT {
                self.nodes[from as usize].len += 1;
                return from;
            }
            self.nodes[from as usize].ends -= 1;
            return self.add(Node::new(from, at, 1));
        };
        let Node { len, count, .. } = self.nodes[child as usize];
        if from != ROOT && node.ends == 1 && node.count == count + 1 {
            return self.move_border(from, child);
        }
        self.nodes[from as usize].ends -= 1;
        if len == 1 {
            let entered = &mut self.nodes[child as usize];
            (entered.start, entered.count, entered.ends) = (at, count + 1, entered.ends + 1);
            self.unlink(child);
            self.link(child);
            return child;
        }
        self.detach(child);
        let upper = self.add(Node::new(from, at, count + 1));
        self.shorten(child);
        self.nodes[child as usize].parent = upper;
        self.attach(child);
        upper
    }

    /// Gives the first token of the only child's label to `from`, which one suffix ends at.
    fn move_border(&mut self, from: u32, child: u32) -> u32 {
        self.detach(child);
        if self.nodes[child as usize].len > 1 {
            self.nodes[from as usize].len += 1;
            self.shorten(child);
            self.attach(child);
            return from;
        }
        let upper = self.nodes[from as usize];
        self.detach(from);
        let lower = &mut self.nodes[child as usize];
        (lower.start, lower.len, lower.parent) = (upper.start, upper.len + 1, upper.parent);
        (lower.count, lower.ends) = (upper.count, lower.ends + 1);
        self.free.push(from);
        self.attach(child);
        child
    }

    /// Takes the suffix of `len` tokens from the oldest text's token `start` on out of the counts.
    fn forget(&mut self, start: usize, len: usize) {
        self.nodes[ROOT as usize].count -= 1;
        let (mut at, mut depth) = (ROOT, 0);
        while depth < len {
            let next = self.children[&(at, self.tokens[start + depth])];
            let node = &mut self.nodes[next as usize];
            node.count -= 1;
            if node.count == 0 {
                self.detach(next);
                self.free.push(next);
                self.join(at);
                return;
            }
            depth += node.len as usize;
            at = next;
        }
        self.nodes[at as usize].ends -= 1;
        self.join(at);
    }

    /// Makes one node of `at` and its child where nothing keeps them apart.
    fn join(&mut self, at: u32) {
        let upper = self.nodes[at as usize];
        let child = upper.child;
        if at == ROOT || upper.ends > 0 || child == NONE || self.nodes[child as usize].next != NONE {
            return;
        }
        self.detach(child);
        self.detach(at);
        let lower = &mut self.nodes[child as usize];
        // Whoever passed the child last came through the node above with the same tokens.
        (lower.start, lower.len) = (lower.start.wrapping_sub(upper.len), lower.len + upper.len);
        lower.parent = upper.parent;
        self.free.push(at);
        self.attach(child);
    }

    fn shorten(&mut self, id: u32) {
        let node = &mut self.nodes[id as usize];
        (node.start, node.len) = (node.start.wrapping_add(1), node.len - 1);
    }

    /// Takes up a node as its parent's first child.
    fn add(&mut self, node: Node) -> u32 {
        let id = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(node);
            u32::try_from(self.nodes.len() - 1).expect("two nodes a token, and positions are 32 bits")
        });
        self.nodes[id as usize] = node;
        self.attach(id);
        id
    }

    /// Hangs a node on its parent.
    fn attach(&mut self, id: u32) {
        let Node { start, parent, .. } = self.nodes[id as usize];
        self.children.insert((parent, self.token(start)), id);
        self.link(id);
    }

    /// Takes a node from its parent.
    fn detach(&mut self, id: u32) {
        let Node { start, parent, .. } = self.nodes[id as usize];
        self.children.remove(&(parent, self.token(start)));
        self.unlink(id);
    }

    /// Puts a node in front of its siblings.
    fn link(&mut self, id: u32) {
        let parent = self.nodes[id as usize].parent;
        let next = std::mem::replace(&mut self.nodes[parent as usize].child, id);
        let node = &mut self.nodes[id as usize];
        (node.prev, node.next) = (NONE, next);
        if next != NONE {
            self.nodes[next as usize].prev = id;
        }
    }

    /// Closes the gap a node leaves among its siblings.
    fn unlink(&mut self, id: u32) {
        let Node { parent, prev, next, .. } = self.nodes[id as usize];
        if prev == NONE {
            self.nodes[parent as usize].child = next;
        } else {
            self.nodes[prev as usize].next = next;
        }
        if next != NONE {
            self.nodes[next as usize].prev = prev;
        }
    }
}

#[cfg(test)]
mod tests;
