//! A loaded model with its drafter, ready to answer prompts one after another.
//!
//! Loading goes find → check → lane → drafter; each prompt becomes token ids here and a [`Generation`] that runs them.
//!
//! Invariant: a drafter that does not fit is refused at load; nothing is drafted with another vocabulary.
//! Not here: the loop (`pilotfish-engine`), which lanes exist (`lanes`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pilotfish_catalog::{LocalModel, Progress, Quiet};
use pilotfish_engine::draft::{
    Drafter, HeadDrafter, ModelDrafter, NgramDrafter, NoDrafter, SuffixDrafter, Union, check_vocabulary,
    fingerprint,
};
use pilotfish_engine::speculate::{Costs, Pipelining, Speculator};
use pilotfish_engine::{CachedLane, MonotonicClock};
use pilotfish_lane::{Lane, LaneInfo};
use pilotfish_model::text::{ChatTemplate, Message, RenderOptions, Specials, Tokenizer};
use pilotfish_model::{DraftHead, Model};

use crate::curves::CurveFile;
use crate::history::HistoryFile;
use crate::load::{LoadedModel, find_model};
use crate::{
    CpuOptions, DEFAULT_CONTEXT, Device, DrafterChoice, Error, GenerateOptions, Generation, KvType,
    LoadOptions, MAX_THREADS, Roofline, lanes,
};

/// What to answer.
#[derive(Clone, Copy, Debug)]
pub enum Prompt<'a> {
    /// A conversation, rendered by the model's chat template. Control tokens inside messages are plain text.
    Chat(&'a [Message]),
    /// Text as it is, with the begin token the file asks for; control tokens in it are recognised.
    Raw(&'a str),
    /// Token ids as they are.
    Tokens(&'a [u32]),
}

/// A model on a lane with a drafter beside it.
pub struct Engine {
    local: LocalModel,
    model: Arc<Model>,
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
    target: CachedLane,
    speculator: Speculator,
    plain: Speculator,
    curve: Option<CurveFile>,
    draft_file: Option<LocalModel>,
    history: Option<HistoryFile>,
    history_note: Option<String>,
    draft_max: Option<usize>,
    parking: bool,
    device: Device,
    cpu: CpuOptions,
}

impl Engine {
    /// Loads a model, fetching it first when it is not on this machine.
    ///
    /// # Errors
    /// As [`Engine::load_with`].
    pub fn load(options: &LoadOptions) -> Result<Self, Error> {
        Self::load_with(options, &Quiet)
    }

    /// Loads a model and tells `progress` about downloads.
    ///
    /// # Errors
    /// [`Error`] naming the model that could not be found, the file, key or tensor at fault, the option that cannot
    /// be met, or the check in which the drafter failed.
    pub fn load_with(options: &LoadOptions, progress: &dyn Progress) -> Result<Self, Error> {
        check_drafter(options)?;
        check_threads(options.cpu.threads)?;
        let local = find_model(&options.model, options.offline, progress)?;
        let find = |model| find_model(model, options.offline, progress);
        let draft_local = options.draft_model.as_ref().map(find).transpose()?;
        let target = LoadedModel::open(local)?;
        let context = context(&target, options.cpu.context)?;
        let draft = draft_local.map(LoadedModel::open).transpose()?;
        if let Some(draft) = &draft {
            check_vocabulary(&target.tokenizer, &draft.tokenizer).map_err(|reason| Error::Vocabulary {
                drafter: draft.local.name.clone(),
                target: target.local.name.clone(),
                reason,
            })?;
        }
        let cpu = CpuOptions { context: Some(context), ..options.cpu.clone() };
        let (lane, head) = match &options.head {
            None => (lanes::open(options.device, Arc::clone(&target.model), &cpu)?, None),
            Some(path) => {
                let head = DraftHead::open(path)?;
                let file = head_file(path, &head);
                let (lane, head) =
                    lanes::open_with_head(options.device, Arc::clone(&target.model), &cpu, head)?;
                (lane, Some((head, file)))
            }
        };
        let target_lane = CachedLane::new(lane);
        let load_history = |path: &PathBuf| {
            HistoryFile::load(path, fingerprint(&target.tokenizer), SuffixDrafter::PAST_TOKENS)
        };
        let (history, history_note) = options.history.as_ref().map(load_history).unzip();
        let mut drafters = lookups(options, history.as_ref());
        let mut draft_file = None;
        if let Some((head, file)) = head {
            drafters.push(Box::new(HeadDrafter::new(head)));
            draft_file = Some(file);
        }
        if let Some(draft) = draft {
            let context = context.min(draft.model.config().context);
            let draft_lane = draft_lane(options, &draft, context)?;
            let drafter = ModelDrafter::new(draft_lane, target_lane.info().vocab, options.draft_p_min);
            drafters.push(Box::new(drafter));
            draft_file = Some(draft.local);
        }
        let drafter = match drafters.len() {
            0 => Box::new(NoDrafter),
            1 => drafters.remove(0),
            _ => Box::new(Union::new(drafters, options.draft_max)),
        };
        let LoadedModel { local, model, tokenizer, template } = target;
        let mut speculator =
            Speculator::new(drafter, options.draft_max, options.parking).with_pipeline(options.pipeline);
        let plain = Speculator::none();
        let (device, cpu) = (options.device, options.cpu.clone());
        let curve = CurveFile::of(&model, target_lane.info(), cpu.kernels.name());
        recall_costs(&mut speculator, curve.as_ref());
        Ok(Self {
            local,
            model,
            tokenizer,
            template,
            target: target_lane,
            speculator,
            plain,
            curve,
            draft_file,
            history,
            history_note: history_note.flatten(),
            draft_max: options.draft_max,
            parking: options.parking,
            device,
            cpu,
        })
    }

    /// Lets `drafter` guess from now on, in place of whoever did. Whatever it proposes, no answer changes; with
    /// [`LoadOptions::parking`] it is asked less where that pays. What was learned about the one before is forgotten.
    pub fn set_drafter(&mut self, drafter: Box<dyn Drafter>) {
        self.speculator = Speculator::new(drafter, self.draft_max, self.parking);
        self.draft_file = None;
        recall_costs(&mut self.speculator, self.curve.as_ref());
    }

    /// Answers a conversation, through the model's chat template.
    ///
    /// # Errors
    /// [`Error::NoTemplate`], [`Error::Template`], and those of [`Engine::generate`].
    pub fn chat(&mut self, messages: &[Message], options: &GenerateOptions) -> Result<Generation<'_>, Error> {
        self.generate(Prompt::Chat(messages), options)
    }

    /// Continues a text.
    ///
    /// # Errors
    /// Those of [`Engine::generate`].
    pub fn complete(&mut self, text: &str, options: &GenerateOptions) -> Result<Generation<'_>, Error> {
        self.generate(Prompt::Raw(text), options)
    }

    /// Answers a prompt. Nothing runs until the result is read.
    ///
    /// # Errors
    /// An option out of range, or a prompt that is empty or does not fit the context (with both counts).
    pub fn generate(
        &mut self,
        prompt: Prompt<'_>,
        options: &GenerateOptions,
    ) -> Result<Generation<'_>, Error> {
        let tokens = self.tokenize(prompt)?;
        if options.speculate && self.wants_curve() {
            self.measure_curve(&options.cancel)?;
        }
        let drafting = if options.speculate {
            (&mut self.speculator, self.history.as_mut())
        } else {
            (&mut self.plain, None)
        };
        let model = (&self.model, &self.tokenizer);
        Generation::start(&mut self.target, drafting, model, tokens, options)
    }

    /// Whether the next speculative answer begins with measuring what passes cost here: some seconds, once for a
    /// machine and model.
    pub fn wants_curve(&self) -> bool {
        self.speculator.wants_costs()
    }

    /// Measures what passes cost, and keeps it for later processes. [`Engine::generate`] does so by itself.
    ///
    /// # Errors
    /// [`Error::Lane`]: what the target's lane says.
    pub fn measure_curve(&mut self, cancel: &AtomicBool) -> Result<(), Error> {
        let most = self.speculator.most_rows();
        let costs = Costs::measure(&mut self.target, most, &MonotonicClock::default(), cancel)?;
        if !cancel.load(Ordering::Relaxed) {
            // Where it cannot be kept, the next process measures again.
            let _ = self.curve.as_ref().map(|file| file.keep(&costs));
            self.speculator.set_costs(costs);
        }
        Ok(())
    }

    /// The token ids a prompt becomes.
    ///
    /// # Errors
    /// [`Error::NoTemplate`] and [`Error::Template`].
    pub fn tokenize(&self, prompt: Prompt<'_>) -> Result<Vec<u32>, Error> {
        match prompt {
            Prompt::Tokens(tokens) => Ok(tokens.to_vec()),
            Prompt::Raw(text) => Ok(self.tokenizer.encode_prompt(text, Specials::Parse)),
            Prompt::Chat(messages) => {
                let no_template = || Error::NoTemplate { model: self.local.name.clone() };
                let template = self.template.as_ref().ok_or_else(no_template)?;
                let rendered = template.render(messages, &RenderOptions::default())?;
                Ok(self.tokenizer.encode_rendered(&rendered))
            }
        }
    }

    /// Whether the model has a chat template; base models have none and take raw prompts only.
    pub fn has_template(&self) -> bool {
        self.template.is_some()
    }

    /// The model's chat template, where it has one.
    pub fn template(&self) -> Option<&ChatTemplate> {
        self.template.as_ref()
    }

    /// What passes cost here, as far as it is known: drafts are cut by it.
    pub fn costs(&self) -> &Costs {
        self.speculator.costs()
    }

    /// Name of the drafter: `none`, `ngram`, `suffix`, `model` or `head`, or several of them joined by `+`.
    pub fn drafter(&self) -> &str {
        self.speculator.name()
    }

    /// Why the file of [`LoadOptions::history`] was not used, if it was there.
    pub fn history_note(&self) -> Option<&str> {
        self.history_note.as_deref()
    }

    /// The drafting model's file, or the head's, when one of them drafts.
    pub fn draft_file(&self) -> Option<&LocalModel> {
        self.draft_file.as_ref()
    }

    /// The target's file.
    pub fn file(&self) -> &LocalModel {
        &self.local
    }

    /// The target.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The target's tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The lane the target runs on.
    pub fn lane_info(&self) -> &LaneInfo {
        self.target.info()
    }

    /// Bytes of the keys and values the target keeps of one position.
    pub fn kv_bytes_per_position(&self) -> u64 {
        lanes::kv_bytes_per_position(self.device, &self.model, &self.cpu)
    }

    /// Measures what the target's device could do at best: a second or two of work.
    ///
    /// # Errors
    /// [`Error::Lane`] when there is no memory to measure with.
    pub fn roofline(&self) -> Result<Roofline, Error> {
        lanes::roofline(self.device, self.lane_info().threads, &self.cpu)
    }

    /// The target's lane, for measuring single passes. What its cache holds afterwards is forgotten by the engine.
    pub fn target(&mut self) -> &mut CachedLane {
        &mut self.target
    }
}

/// Hands over the curve of an earlier process, where it is wanted and there is one.
fn recall_costs(speculator: &mut Speculator, curve: Option<&CurveFile>) {
    if let Some(costs) = curve.filter(|_| speculator.wants_costs()).and_then(CurveFile::load) {
        speculator.set_costs(costs);
    }
}

/// The drafters that need no model.
fn lookups(options: &LoadOptions, history: Option<&HistoryFile>) -> Vec<Box<dyn Drafter>> {
    let ngram = || Box::new(NgramDrafter::new());
    let suffix = || {
        let past_tokens = if options.past_replies { SuffixDrafter::PAST_TOKENS } else { 0 };
        let mut drafter = SuffixDrafter::new(past_tokens);
        history.iter().flat_map(|file| file.replies()).for_each(|reply| drafter.learn(reply));
        Box::new(drafter)
    };
    match options.drafter {
        DrafterChoice::None | DrafterChoice::Model | DrafterChoice::Head => vec![],
        DrafterChoice::Ngram => vec![ngram()],
        DrafterChoice::Suffix => vec![suffix()],
        DrafterChoice::Auto => vec![ngram(), suffix()],
    }
}

/// Refuses options that contradict each other.
fn check_drafter(options: &LoadOptions) -> Result<(), Error> {
    let refuse = |option, value: &str, why: &str| {
        Err(Error::Option { option, value: value.to_owned(), why: why.to_owned() })
    };
    if !(0.0..=1.0).contains(&options.draft_p_min) {
        return refuse("--spec-draft-p-min", &options.draft_p_min.to_string(), "it must be 0 to 1");
    }
    let looks_back =
        options.past_replies && matches!(options.drafter, DrafterChoice::Auto | DrafterChoice::Suffix);
    if let Some(path) = options.history.as_ref().filter(|_| !looks_back) {
        let why = "the drafter does not look at earlier replies";
        return refuse("--spec-history", &path.display().to_string(), why);
    }
    if options.pipeline == Pipelining::On && options.draft_model.is_none() {
        return refuse("--pipeline", "on", "only a drafting model works ahead: give one with -md");
    }
    let asked = options.drafter;
    let (model, head) = (options.draft_model.is_some(), options.head.is_some());
    let name = match asked {
        DrafterChoice::Auto => "auto",
        DrafterChoice::None => "none",
        DrafterChoice::Ngram => "ngram",
        DrafterChoice::Suffix => "suffix",
        DrafterChoice::Model => "model",
        DrafterChoice::Head => "head",
    };
    if let Some(path) = options.head.as_ref().filter(|_| model) {
        return refuse(
            "--head",
            &path.display().to_string(),
            "a drafting model was given with -md: use one of them",
        );
    }
    match asked {
        DrafterChoice::Model if !model => refuse("--drafter", name, "give the drafting model with -md"),
        DrafterChoice::Head if !head => refuse("--drafter", name, "give the head with --head"),
        DrafterChoice::Auto => Ok(()),
        _ if model && asked != DrafterChoice::Model => {
            refuse("--drafter", name, "a drafting model was given with -md")
        }
        _ if head && asked != DrafterChoice::Head => {
            refuse("--drafter", name, "a head was given with --head")
        }
        _ => Ok(()),
    }
}

/// The file a head's tensors are in, or the first of them.
fn head_file(path: &Path, head: &DraftHead) -> LocalModel {
    let file = PathBuf::from(head.tensors().file());
    let bytes = head.tensors().tensors().iter().map(|tensor| tensor.n_bytes() as u64).sum();
    // A folder says more than `model.safetensors`.
    let named = path.file_name().map(|name| name.to_string_lossy().into_owned());
    LocalModel { name: named.unwrap_or_else(|| path.display().to_string()), path: file, bytes, sha256: None }
}

/// Ids among which a drafting model looks for its best token. Vocabularies made by merging list frequent tokens first,
/// and past these the head of a small model takes a quarter of its pass for one guess in twenty.
const DRAFTED_IDS: usize = 49_152;

fn draft_lane(options: &LoadOptions, draft: &LoadedModel, context: usize) -> Result<Box<dyn Lane>, Error> {
    let cpu = CpuOptions {
        context: Some(context),
        kv_type: KvType::default(),
        best_of_first: Some(DRAFTED_IDS),
        ..options.cpu.clone()
    };
    lanes::open(options.device, Arc::clone(&draft.model), &cpu)
}

fn check_threads(asked: Option<usize>) -> Result<(), Error> {
    match asked {
        Some(threads) if !(1..=MAX_THREADS).contains(&threads) => Err(Error::Option {
            option: "-t",
            value: threads.to_string(),
            why: format!("it must be 1 to {MAX_THREADS}"),
        }),
        _ => Ok(()),
    }
}

fn context(target: &LoadedModel, asked: Option<usize>) -> Result<usize, Error> {
    let trained = target.model.config().context;
    match asked {
        None => Ok(trained.min(DEFAULT_CONTEXT)),
        Some(asked) if (1..=trained).contains(&asked) => Ok(asked),
        Some(asked) => Err(Error::Context { asked, trained, model: target.local.name.clone() }),
    }
}
