//! What a user may ask of the sampler, and the ranges it must lie in.
//!
//! Names and neutral values are llama.cpp's. A value outside its range is an error that names the
//! parameter, never a silent clamp; values inside a range but past any effect (`top_k` 1e9) are fine.
//!
//! Invariant: a validated set of parameters keeps at least one candidate for every finite logits row.
//! Not here: what the filters do (`filters`).

use super::SamplingError;

/// How a token is chosen from a logits row.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// Divides the logits; 0 takes the largest logit. At least 0, finite.
    pub temperature: f32,
    /// Keeps this many of the largest logits; 0 or less keeps all.
    pub top_k: i32,
    /// Keeps the smallest set of tokens with at least this probability together; 1 keeps all, 0 one.
    pub top_p: f32,
    /// Keeps tokens with at least this share of the largest probability; 0 keeps all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of recent tokens; 1 is neutral. Above 0.
    pub repeat_penalty: f32,
    /// How many tokens back the three penalties look, prompt included; 0 none, -1 all.
    pub repeat_last_n: i32,
    /// Subtracted from the logit of each recent token. Finite.
    pub presence_penalty: f32,
    /// Subtracted once per occurrence among the recent tokens. Finite.
    pub frequency_penalty: f32,
    /// Added to the logits of these token ids first of all. Finite; repeated ids add up.
    pub logit_bias: Vec<(u32, f32)>,
    /// Names the random numbers.
    pub seed: u64,
}

impl Default for SamplingParams {
    /// llama.cpp's defaults, with seed 0.
    fn default() -> Self {
        Self { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.05, ..Self::greedy() }
    }
}

impl SamplingParams {
    /// Always the largest logit, the lowest id on ties.
    pub fn greedy() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repeat_penalty: 1.0,
            repeat_last_n: 64,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }

    /// Checks every range; `vocab` is the number of logits the target returns.
    ///
    /// # Errors
    /// [`SamplingError::OutOfRange`] or [`SamplingError::BiasOutsideVocabulary`].
    pub fn validate(&self, vocab: usize) -> Result<(), SamplingError> {
        let in_range = |name, value: f32, allowed: bool, range| {
            // NaN fails every comparison, so it ends here too.
            if allowed { Ok(()) } else { Err(SamplingError::OutOfRange { name, value, range }) }
        };
        let share = |name, value| in_range(name, value, (0.0..=1.0).contains(&value), "0 to 1");
        let finite = |name, value: f32| in_range(name, value, value.is_finite(), "finite");
        let t = self.temperature;
        in_range("temperature", t, t >= 0.0 && t.is_finite(), "0 or more, finite")?;
        share("top_p", self.top_p)?;
        share("min_p", self.min_p)?;
        let r = self.repeat_penalty;
        in_range("repeat_penalty", r, r > 0.0 && r.is_finite(), "above 0, finite")?;
        let last = self.repeat_last_n;
        in_range("repeat_last_n", last as f32, last >= -1, "-1 or more")?;
        finite("presence_penalty", self.presence_penalty)?;
        finite("frequency_penalty", self.frequency_penalty)?;
        for &(token, bias) in &self.logit_bias {
            finite("logit_bias", bias)?;
            if token as usize >= vocab {
                return Err(SamplingError::BiasOutsideVocabulary { token, vocab });
            }
        }
        Ok(())
    }

    /// Whether the three penalties change anything.
    pub fn has_penalties(&self) -> bool {
        let neutral =
            self.repeat_penalty == 1.0 && self.presence_penalty == 0.0 && self.frequency_penalty == 0.0;
        self.repeat_last_n != 0 && !neutral
    }

    /// Whether the token is simply the argmax of the lane's own logits.
    pub fn is_plain_argmax(&self) -> bool {
        self.temperature == 0.0 && !self.has_penalties() && self.logit_bias.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl Fn(&mut SamplingParams)) -> Result<(), String> {
        let mut params = SamplingParams::default();
        change(&mut params);
        params.validate(100).map_err(|error| error.to_string())
    }

    #[test]
    fn sampling_ranges_name_the_parameter() {
        let message = |change: fn(&mut SamplingParams)| with(change).unwrap_err();
        assert_eq!(message(|p| p.temperature = -1.0), "temperature is -1; it must be 0 or more, finite");
        assert_eq!(message(|p| p.temperature = f32::NAN), "temperature is NaN; it must be 0 or more, finite");
        assert_eq!(message(|p| p.top_p = 2.0), "top_p is 2; it must be 0 to 1");
        assert_eq!(message(|p| p.top_p = f32::NAN), "top_p is NaN; it must be 0 to 1");
        assert_eq!(message(|p| p.min_p = -0.1), "min_p is -0.1; it must be 0 to 1");
        assert_eq!(message(|p| p.repeat_penalty = 0.0), "repeat_penalty is 0; it must be above 0, finite");
        assert_eq!(message(|p| p.repeat_last_n = -2), "repeat_last_n is -2; it must be -1 or more");
        assert_eq!(
            message(|p| p.presence_penalty = f32::INFINITY),
            "presence_penalty is inf; it must be finite"
        );
        assert_eq!(
            message(|p| p.logit_bias = vec![(5, f32::NEG_INFINITY)]),
            "logit_bias is -inf; it must be finite"
        );
        assert_eq!(
            message(|p| p.logit_bias = vec![(100, 1.0)]),
            "logit_bias names token 100, outside the vocabulary of 100"
        );
    }

    #[test]
    fn sampling_odd_but_legal_values_pass() {
        let changes: [fn(&mut SamplingParams); 8] = [
            |p| p.temperature = 0.0,
            |p| p.temperature = 1e-9,
            |p| p.temperature = 1e9,
            |p| p.top_p = 0.0,
            |p| p.top_k = i32::MAX,
            |p| p.top_k = -1,
            |p| p.min_p = 1.0,
            |p| p.repeat_last_n = -1,
        ];
        for change in changes {
            with(change).unwrap();
        }
    }

    #[test]
    fn sampling_knows_when_argmax_is_enough() {
        assert!(SamplingParams::greedy().is_plain_argmax());
        assert!(!SamplingParams::default().is_plain_argmax());
        assert!(!SamplingParams { repeat_penalty: 1.1, ..SamplingParams::greedy() }.is_plain_argmax());
        assert!(!SamplingParams { logit_bias: vec![(1, 2.0)], ..SamplingParams::greedy() }.is_plain_argmax());
        let no_window = SamplingParams { repeat_penalty: 1.1, repeat_last_n: 0, ..SamplingParams::greedy() };
        assert!(no_window.is_plain_argmax());
    }
}
