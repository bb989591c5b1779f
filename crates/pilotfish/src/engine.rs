//! A loaded model with its drafter, ready to answer prompts one after another.
//!
//! Loading goes find → check → lane → drafter; each prompt becomes token ids here and a [`Generation`] that runs them.
//!
//! Invariant: a drafter that does not fit is refused at load; nothing is drafted with another vocabulary.
//! Not here: the loop (`pilotfish-engine`), which lanes exist (`lanes`).

use std::sync::Arc;

use pilotfish_catalog::{LocalModel, Progress, Quiet};
use pilotfish_engine::CachedLane;
use pilotfish_engine::draft::{Drafter, ModelDrafter, NgramDrafter, NoDrafter, check_vocabulary};
use pilotfish_engine::speculate::Speculator;
use pilotfish_lane::LaneInfo;
use pilotfish_model::Model;
use pilotfish_model::text::{ChatTemplate, Message, RenderOptions, Specials, Tokenizer};

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
    draft_file: Option<LocalModel>,
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
        let choice = drafter_choice(options)?;
        check_threads(options.cpu.threads)?;
        let local = find_model(&options.model, options.offline, progress)?;
        let draft_local = match (choice, &options.draft_model) {
            (DrafterChoice::Model, Some(model)) => Some(find_model(model, options.offline, progress)?),
            _ => None,
        };
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
        let lane = |model: &LoadedModel, context, kv_type| {
            let cpu = CpuOptions { context: Some(context), kv_type, ..options.cpu.clone() };
            lanes::open(options.device, Arc::clone(&model.model), &cpu)
        };
        let target_lane = CachedLane::new(lane(&target, context, options.cpu.kv_type)?);
        let (drafter, draft_file): (Box<dyn Drafter>, _) = match (choice, draft) {
            (_, Some(draft)) => {
                let context = context.min(draft.model.config().context);
                let draft_lane = lane(&draft, context, KvType::default())?;
                let drafter = ModelDrafter::new(draft_lane, target_lane.info().vocab, options.draft_p_min);
                (Box::new(drafter), Some(draft.local))
            }
            (DrafterChoice::None, None) => (Box::new(NoDrafter), None),
            (DrafterChoice::Ngram, None) => (Box::new(NgramDrafter::new()), None),
            (DrafterChoice::Auto | DrafterChoice::Model, None) => {
                unreachable!("`drafter_choice` resolves `Auto`, and refuses `Model` without one")
            }
        };
        let LoadedModel { local, model, tokenizer, template } = target;
        let speculator = Speculator::new(drafter, options.draft_max, options.parking);
        let plain = Speculator::none();
        let (device, cpu) = (options.device, options.cpu.clone());
        Ok(Self {
            local,
            model,
            tokenizer,
            template,
            target: target_lane,
            speculator,
            plain,
            draft_file,
            device,
            cpu,
        })
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
        let speculator = if options.speculate { &mut self.speculator } else { &mut self.plain };
        let model = (&self.model, &self.tokenizer);
        Generation::start(&mut self.target, speculator, model, tokens, options)
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

    /// Name of the drafter: `none`, `ngram`, or `model`.
    pub fn drafter(&self) -> &str {
        self.speculator.name()
    }

    /// The drafting model's file, when a model drafts.
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

/// The drafter that is really used, or why the options contradict each other.
fn drafter_choice(options: &LoadOptions) -> Result<DrafterChoice, Error> {
    let refuse = |option, value: &str, why: &str| {
        Err(Error::Option { option, value: value.to_owned(), why: why.to_owned() })
    };
    if !(0.0..=1.0).contains(&options.draft_p_min) {
        return refuse("--spec-draft-p-min", &options.draft_p_min.to_string(), "it must be 0 to 1");
    }
    match (options.drafter, &options.draft_model) {
        (DrafterChoice::Model, None) => refuse("--drafter", "model", "give the drafting model with -md"),
        (DrafterChoice::Ngram, Some(_)) => {
            refuse("--drafter", "ngram", "a drafting model was given with -md")
        }
        (DrafterChoice::None, Some(_)) => refuse("--drafter", "none", "a drafting model was given with -md"),
        (DrafterChoice::Auto, Some(_)) => Ok(DrafterChoice::Model),
        (DrafterChoice::Auto | DrafterChoice::Ngram, None) => Ok(DrafterChoice::Ngram),
        (DrafterChoice::Model, Some(_)) => Ok(DrafterChoice::Model),
        (DrafterChoice::None, None) => Ok(DrafterChoice::None),
    }
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
