//! The CPU lane: runs a model's graph with the kernels this processor has.
//!
//! Loading packs the weights once (`plan`); a pass walks the graph's operations over a handful of
//! buffers (`run`), with the key-value cache (`kv`) and rope tables (`rope`) beside it.
//!
//! Invariant: a row's bits depend on its token prefix, the weights and the kernel table's
//! numerics; threads only choose who computes a value, never how.
//! Not here: the loops over numbers (`pilotfish_tensor::kernels`).

mod draft_head;
mod head;
mod kv;
mod memory;
mod paths;
mod plan;
mod products;
mod quantized;
mod roofline;
mod rope;
mod run;
mod threads;
mod workspace;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pilotfish_model::Model;
use pilotfish_tensor::kernels::Kernels;

use crate::{Batch, Lane, LaneError, LaneInfo, Rows};
pub use draft_head::{CpuHead, HeadOptions};
use kv::KvCache;
pub use kv::KvType;
pub use memory::Memory;
use paths::Paths;
use plan::Plan;
pub use roofline::Roofline;
use rope::RopeTable;
use threads::Threads;
use workspace::Workspace;

/// Most rows of one pass: bounds the workspace; longer prompts are cut by the caller.
const MAX_WIDTH: usize = 2048;

/// Most worker threads: more than any machine's cores, and few enough that every system can start them.
pub const MAX_THREADS: usize = 512;

/// How to set up a CPU lane.
#[derive(Clone, Debug)]
pub struct CpuOptions {
    /// Worker threads, the caller's included, 1 to [`MAX_THREADS`]; `None` takes one per physical core.
    pub threads: Option<usize>,
    /// Most positions; `None` takes the model's trained context. The cache grows as it fills.
    pub context: Option<usize>,
    /// How keys and values are kept.
    pub kv_type: KvType,
    /// Looks for a row's best token among the first so many ids only; `None` among all. For drafting models: the head
    /// is a good part of a small model's pass, and vocabularies begin with their most frequent tokens. Logits, where
    /// they are asked for, are always whole.
    pub best_of_first: Option<usize>,
    /// Kernel table; the default is the fastest this processor can run.
    pub kernels: &'static Kernels,
    /// Fills every buffer with this value before it is written, so that tests see any read of
    /// what no operation wrote.
    pub poison: Option<f32>,
}

impl Default for CpuOptions {
    fn default() -> Self {
        Self {
            threads: None,
            context: None,
            kv_type: KvType::default(),
            best_of_first: None,
            kernels: Kernels::best(),
            poison: None,
        }
    }
}

/// A model on the processor.
pub struct CpuLane {
    model: Arc<Model>,
    info: LaneInfo,
    kernels: &'static Kernels,
    best_of_first: usize,
    plan: Plan,
    threads: Arc<Mutex<Threads>>, // shared with a head, which works while the lane does not
    kv: KvCache,
    ropes: Vec<RopeTable>,
    workspace: Workspace,
    speculative: Batch,
}

impl CpuLane {
    /// Packs the model's weights for this processor.
    ///
    /// # Errors
    /// [`LaneError::Load`] when the asked context is 0 or beyond the trained one, there are too many threads, the
    /// model's heads cannot be kept as asked, or there is no memory for the packed weights.
    pub fn new(model: Arc<Model>, options: &CpuOptions) -> Result<Self, LaneError> {
        let trained = model.config().context;
        let context = options.context.unwrap_or(trained);
        if context == 0 || context > trained {
            return Err(LaneError::Load(format!(
                "a context of {context} was asked for; the model was trained for {trained}"
            )));
        }
        if let Some(threads) = options.threads.filter(|&threads| threads > MAX_THREADS) {
            return Err(LaneError::Load(format!(
                "{threads} threads were asked for; the most are {MAX_THREADS}"
            )));
        }
        options.kv_type.check(&model)?;
        let kernels = options.kernels;
        let mut threads = Threads::new(options.threads.unwrap_or_else(|| physical_cores().min(MAX_THREADS)));
        let plan = Plan::new(&model, kernels, &mut threads)?;
        let graph = model.graph();
        let kv = KvCache::new(options.kv_type, (0..graph.n_layers()).map(|layer| graph.kv_width(layer)));
        let ropes = graph.ropes().iter().map(|rope| RopeTable::new(rope, &model)).collect();
        let info = LaneInfo {
            name: "cpu".to_owned(),
            numerics_id: format!("{}/kv-{}", kernels.numerics_id(), options.kv_type),
            context,
            vocab: graph.vocab(),
            max_width: MAX_WIDTH,
            threads: threads.n(),
            layers: graph.n_layers(),
            hidden: model.config().hidden,
        };
        let workspace = Workspace::new(plan.n_buffers(), options.poison);
        let best_of_first = options.best_of_first.unwrap_or(info.vocab).clamp(1, info.vocab);
        let speculative = Batch::new();
        let threads = Arc::new(Mutex::new(threads));
        Ok(Self { model, info, kernels, best_of_first, plan, threads, kv, ropes, workspace, speculative })
    }

    /// The kernel table in use.
    pub fn kernels(&self) -> &'static Kernels {
        self.kernels
    }

    fn check(&self, batch: &Batch) -> Result<(), LaneError> {
        let width = batch.width();
        if width == 0 || width > self.info.max_width {
            return Err(LaneError::BadWidth { width, max: self.info.max_width });
        }
        let needed = self.kv.len() + batch.height();
        if needed > self.info.context {
            return Err(LaneError::ContextFull { needed, context: self.info.context });
        }
        self.info.check_taps(batch)?;
        let vocab = self.info.vocab;
        match batch.rows().iter().find(|row| row.token as usize >= vocab) {
            Some(row) => Err(LaneError::BadToken { token: row.token, vocab }),
            None => Ok(()),
        }
    }
}

impl Lane for CpuLane {
    fn info(&self) -> &LaneInfo {
        &self.info
    }

    fn len(&self) -> usize {
        self.kv.len()
    }

    fn forward(&mut self, batch: &Batch) -> Result<Rows, LaneError> {
        self.speculative = Batch::new();
        self.check(batch)?;
        self.kv.reserve(batch.width())?;
        for rope in &mut self.ropes {
            rope.extend(self.kv.len() + batch.height());
        }
        let paths = Paths::new(batch, self.kv.len());
        let rows = run::Pass {
            model: &self.model,
            kernels: self.kernels,
            plan: &self.plan,
            ropes: &self.ropes,
            batch,
            paths: &paths,
            best_of_first: self.best_of_first,
        }
        .run(&mut lock(&self.threads), &mut self.kv, &mut self.workspace);
        self.speculative = batch.clone();
        Ok(rows)
    }

    fn keep(&mut self, rows: &[usize]) -> Result<(), LaneError> {
        if !self.speculative.is_path(rows) {
            return Err(LaneError::NotAPath { rows: rows.to_vec() });
        }
        self.kv.keep(rows);
        self.speculative = Batch::new();
        Ok(())
    }

    fn truncate(&mut self, len: usize) {
        self.speculative = Batch::new();
        self.kv.truncate(len);
    }
}

/// The threads, for one job after another. A job that panicked left them usable.
fn lock(threads: &Mutex<Threads>) -> MutexGuard<'_, Threads> {
    threads.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Physical cores this process may use; hyper-threads share the multipliers that matter here.
fn physical_cores() -> usize {
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    physical_share().map_or(allowed, |(cores, logical)| (allowed * cores).div_ceil(logical)).max(1)
}

/// Physical and logical processors of the machine, where the system tells.
fn physical_share() -> Option<(usize, usize)> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let mut cores = std::collections::BTreeSet::new();
    let mut logical = 0;
    let (mut package, mut core) = (None, None);
    for line in text.lines() {
        let value = || line.split(':').nth(1).map(str::trim);
        if line.starts_with("physical id") {
            package = value().map(str::to_owned);
        } else if line.starts_with("core id") {
            core = value().map(str::to_owned);
        } else if line.trim().is_empty() {
            logical += 1;
            cores.insert((package.take()?, core.take()?));
        }
    }
    (logical > 0 && !cores.is_empty()).then_some((cores.len(), logical))
}
