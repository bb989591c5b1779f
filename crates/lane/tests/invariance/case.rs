//! One setting of the suite: which model, how it is run, and the comparison with the reference.

use std::collections::HashMap;
use std::sync::Arc;

use pilotfish_lane::cpu::{CpuLane, CpuOptions, KvType};
use pilotfish_lane::{Batch, Lane, Row, Want};
use pilotfish_model::testing::{Random, TinySpec};
use pilotfish_model::{Family, Gguf, Model};
use pilotfish_tensor::BlockType;
use pilotfish_tensor::kernels::Kernels;

const THREADS: [usize; 4] = [1, 2, 3, 8];
const CHUNKS: [usize; 5] = [1, 3, 16, 64, usize::MAX];
const WIDTHS: usize = 33;
const LENGTHS: usize = 9;
/// Longer than one attention split (64), so that prompts cross its border.
const PROMPT: usize = 67;
const TOKENS: usize = PROMPT + 48;

/// The shape of a round's guesses, against the text the reference was made from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Draft {
    /// All right.
    Exact,
    /// The first half right.
    Partial,
    /// All wrong.
    Wrong,
    /// All right, each with a wrong sibling before it.
    Tree,
}

const DRAFTS: [Draft; 4] = [Draft::Exact, Draft::Partial, Draft::Wrong, Draft::Tree];

/// How many values each setting has.
pub(crate) struct Settings {
    pub(crate) families: usize,
    pub(crate) block_types: usize,
    pub(crate) tables: usize,
    pub(crate) threads: usize,
    pub(crate) chunks: usize,
    pub(crate) widths: usize,
    pub(crate) drafts: usize,
    pub(crate) lengths: usize,
    pub(crate) kv_types: usize,
}

impl Settings {
    /// In the order of [`from_rows`].
    pub(crate) fn sizes(&self) -> [usize; 9] {
        let Self { families, block_types, tables, threads, chunks, widths, drafts, lengths, kv_types } =
            *self;
        [widths, block_types, lengths, chunks, families, threads, drafts, kv_types, tables]
    }
}

pub(crate) fn settings() -> Settings {
    Settings {
        families: Family::ALL.len(),
        block_types: BlockType::ALL.len(),
        tables: tables().len(),
        threads: THREADS.len(),
        chunks: CHUNKS.len(),
        widths: WIDTHS,
        drafts: DRAFTS.len(),
        lengths: LENGTHS,
        kv_types: KvType::ALL.len(),
    }
}

fn tables() -> Vec<&'static Kernels> {
    #[cfg(feature = "broken-numerics")]
    return vec![Kernels::broken_numerics()];
    #[cfg(not(feature = "broken-numerics"))]
    Kernels::available()
}

/// Indices into the lists of values above.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) family: usize,
    pub(crate) block_type: usize,
    pub(crate) table: usize,
    pub(crate) threads: usize,
    pub(crate) chunk: usize,
    pub(crate) width: usize,
    pub(crate) draft: usize,
    pub(crate) length: usize,
    pub(crate) kv_type: usize,
    pub(crate) seed: u64,
}

impl Case {
    /// One thread, the prompt in one pass, no guesses, width 1, keys and values in f16.
    pub(crate) fn plain(family: usize, block_type: usize) -> Self {
        let chunk = CHUNKS.len() - 1;
        Self {
            family,
            block_type,
            table: 0,
            threads: 0,
            chunk,
            width: 0,
            draft: 0,
            length: 0,
            kv_type: 0,
            seed: 7,
        }
    }
}

/// Cases from rows of a covering.
pub(crate) fn from_rows(rows: &[Vec<usize>]) -> Vec<Case> {
    let case = |(i, row): (usize, &Vec<usize>)| match row[..] {
        [width, block_type, length, chunk, family, threads, draft, kv_type, table] => {
            Case { family, block_type, table, threads, chunk, width, draft, length, kv_type, seed: i as u64 }
        }
        _ => unreachable!("rows have one value per factor"),
    };
    rows.iter().enumerate().map(case).collect()
}

/// Every model, table, thread count, chunking and width; drafts, lengths and forms of keys and values take turns.
pub(crate) fn product() -> Vec<Case> {
    let n = settings();
    let mut cases = Vec::new();
    for family in 0..n.families {
        for block_type in 0..n.block_types {
            for i in 0..n.tables * n.threads * n.chunks * n.widths {
                let (i, table) = (i / n.tables, i % n.tables);
                let (i, threads) = (i / n.threads, i % n.threads);
                let (width, chunk) = (i / n.chunks, i % n.chunks);
                let turn = cases.len();
                let (draft, length) = (turn % n.drafts, turn / n.drafts % n.lengths);
                let kv_type = turn / (n.drafts * n.lengths) % n.kv_types;
                let seed = turn as u64;
                cases.push(Case {
                    family,
                    block_type,
                    table,
                    threads,
                    chunk,
                    width,
                    draft,
                    length,
                    kv_type,
                    seed,
                });
            }
        }
    }
    cases
}

/// A model, a text, and the logits of every prefix of the text from the prompt on.
struct Reference {
    model: Arc<Model>,
    tokens: Vec<u32>,
    logits: HashMap<usize, Vec<f32>>,
    /// Token ids whose embeddings are NaN or huge.
    poison: [u32; 2],
}

/// Keeps references between cases and counts compared rows.
#[derive(Default)]
pub(crate) struct Bench {
    references: HashMap<(usize, usize, usize), Reference>,
    pub(crate) rows: usize,
}

impl Bench {
    /// Flips the lowest bit of one logit the case's prompt is compared with.
    pub(crate) fn spoil(&mut self, case: &Case) {
        let logits = self.reference(case).logits.get_mut(&(PROMPT / 2)).expect("the prompt is compared");
        logits[5] = f32::from_bits(logits[5].to_bits() ^ 1);
    }

    fn reference(&mut self, case: &Case) -> &mut Reference {
        self.references.entry((case.family, case.block_type, case.kv_type)).or_insert_with(|| {
            reference(Family::ALL[case.family], BlockType::ALL[case.block_type], KvType::ALL[case.kv_type])
        })
    }

    /// Runs one case; returns a line per row whose bits differ.
    pub(crate) fn run(&mut self, case: &Case) -> Vec<String> {
        let reference = &*self.reference(case);
        let options = CpuOptions {
            threads: Some(THREADS[case.threads]),
            kv_type: KvType::ALL[case.kv_type],
            kernels: tables()[case.table],
            best_of_first: None,
            poison: Some(f32::NAN),
            ..CpuOptions::default()
        };
        let lane = CpuLane::new(Arc::clone(&reference.model), &options).expect("a tiny model loads");
        let mut run = Run { case, reference, lane, at: 0, rows: 0, failures: Vec::new() };
        run.prompt();
        for _ in 0..3 {
            run.round();
        }
        run.beside_poison();
        let (rows, failures) = (run.rows, run.failures);
        self.rows += rows;
        failures
    }
}

struct Run<'a> {
    case: &'a Case,
    reference: &'a Reference,
    lane: CpuLane,
    /// Committed tokens of the text.
    at: usize,
    rows: usize,
    failures: Vec<String>,
}

impl Run<'_> {
    fn prompt(&mut self) {
        let prompt = &self.reference.tokens[..PROMPT];
        for chunk in prompt.chunks(CHUNKS[self.case.chunk].min(PROMPT)) {
            let mut batch = Batch::new();
            for (i, &token) in chunk.iter().enumerate() {
                batch.push(Row { token, parent: i.checked_sub(1), want: Want::Logits });
            }
            let path: Vec<usize> = (0..chunk.len()).collect();
            self.pass(&batch, &path);
        }
    }

    /// One round of a decoding loop whose guesses have the case's shape and length.
    fn round(&mut self) {
        let text = &self.reference.tokens[self.at..];
        let length = self.case.length;
        let wrong = |token: u32| (token + 1) % 100;
        let mut batch = Batch::new();
        let mut path = vec![batch.push(Row { token: text[0], parent: None, want: Want::Logits })];
        let mut parent = path[0];
        for (i, &token) in text[1..=length].iter().enumerate() {
            let row = |token| Row { token, parent: Some(parent), want: Want::Logits };
            let right = match DRAFTS[self.case.draft] {
                Draft::Exact => true,
                Draft::Partial => i < length / 2,
                Draft::Wrong => false,
                Draft::Tree => {
                    batch.push(row(wrong(token)));
                    true
                }
            };
            parent = batch.push(row(if right { token } else { wrong(token) }));
            if right {
                path.push(parent);
            }
        }
        self.pass(&batch, &path);
    }

    /// A pass of the case's width whose other rows hold poisoned tokens, hung anywhere.
    fn beside_poison(&mut self) {
        let mut random = Random::new(self.case.seed);
        let width = self.case.width + 1;
        let length = width.min(3);
        let mut batch = Batch::new();
        let mut path: Vec<usize> = Vec::new();
        while batch.width() < width {
            let left = width - batch.width();
            let wanted = length - path.len();
            if wanted > 0 && (left == wanted || random.below(left) < wanted) {
                let token = self.reference.tokens[self.at + path.len()];
                let parent = path.last().copied();
                path.push(batch.push(Row { token, parent, want: Want::Logits }));
            } else {
                let token = self.reference.poison[random.below(2)];
                let any = random.below(batch.width() + 1);
                batch.push(Row { token, parent: any.checked_sub(1), want: Want::Logits });
            }
        }
        self.pass(&batch, &path);
        // What was kept must not carry poison either.
        let next = Batch::chain(&self.reference.tokens[self.at..=self.at], Want::Logits);
        self.pass(&next, &[0]);
    }

    /// Runs a batch, compares the rows of `path` with the reference, and keeps them.
    fn pass(&mut self, batch: &Batch, path: &[usize]) {
        let outputs = self.lane.forward(batch).expect("the batch fits");
        for (depth, &row) in path.iter().enumerate() {
            let position = self.at + depth;
            let expected = &self.reference.logits[&position];
            let same = outputs.logits(row).is_some_and(|logits| {
                logits.len() == expected.len()
                    && logits.iter().zip(expected).all(|(a, b)| a.to_bits() == b.to_bits())
            });
            self.rows += 1;
            if !same {
                let (family, block) = (Family::ALL[self.case.family], BlockType::ALL[self.case.block_type]);
                let kv = KvType::ALL[self.case.kv_type];
                self.failures.push(format!("{family:?} {block:?} {kv} position {position}: {:?}", self.case));
            }
        }
        self.lane.keep(path).expect("the path is one");
        self.at += path.len();
    }
}

/// A tiny model with two poisoned tokens, run one token at a time on one thread.
fn reference(family: Family, block_type: BlockType, kv_type: KvType) -> Reference {
    // Two layers, one of them sliding in Gemma's case; small, since some tables are slow.
    let spec = TinySpec {
        tied: false,
        layers: 2,
        pattern: 2,
        ffn: 256,
        ..TinySpec::new(family).with_type(block_type)
    };
    let mut bytes = spec.gguf();
    let gguf = Gguf::parse(bytes.clone()).expect("the tiny model parses");
    let table = gguf.tensor_bytes("token_embd.weight").expect("every family has a token table");
    let at = bytes.windows(table.len()).position(|w| w == table).expect("the table lies in the file");
    let row = table.len() / spec.vocab;
    let poison = [spec.vocab - 1, spec.vocab - 2];
    // As f16 or bf16 scales and as f32 values: NaN, and NaN or an enormous number.
    for (&token, byte) in poison.iter().zip([0xff, 0x7c]) {
        bytes[at + token * row..at + (token + 1) * row].fill(byte);
    }
    let model = Model::from_gguf(Gguf::parse(bytes).expect("still parses")).expect("the tiny model loads");
    let model = Arc::new(model);

    let mut random = Random::new(11);
    let tokens: Vec<u32> = (0..TOKENS).map(|_| random.below(100) as u32).collect();
    #[cfg(feature = "broken-numerics")]
    let kernels = tables()[0];
    #[cfg(not(feature = "broken-numerics"))]
    let kernels = Kernels::best();
    let options = CpuOptions { threads: Some(1), kernels, kv_type, ..CpuOptions::default() };
    let mut lane = CpuLane::new(Arc::clone(&model), &options).expect("a tiny model loads");
    let mut logits = HashMap::new();
    for (position, &token) in tokens.iter().enumerate() {
        let rows = lane.forward(&Batch::chain(&[token], Want::Logits)).expect("one token fits");
        let row = rows.logits(0).expect("the model's own logits are finite");
        assert_eq!(row.len(), spec.vocab);
        logits.insert(position, row.to_vec());
        lane.keep(&[0]).expect("one row is a path");
    }
    Reference { model, tokens, logits, poison: poison.map(|t| t as u32) }
}
