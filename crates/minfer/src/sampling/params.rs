//! Sampling parameters: defaults and validation.

use super::{SamplerKind, SamplingError};

/// How to choose tokens. [`Default`] gives the engine's defaults: those of llama.cpp, but for `min_p` (0.05 there), `repeat_penalty`
/// (1 there) and `seed`.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerParams {
    /// Divides the logits before the draw; 0: the likeliest token of those left. 0 and up.
    pub temperature: f32,
    /// The temperature lies up to this far below or above `temperature`, by the entropy of what is left; 0: off. 0 and up.
    pub dynatemp_range: f32,
    /// Exponent of the entropy's share of the largest possible, in the dynamic temperature. 0 and up.
    pub dynatemp_exponent: f32,
    /// Keep the k likeliest tokens; 0: all.
    pub top_k: u32,
    /// Keep the likeliest tokens that together reach this probability; 1: all. 0 to 1.
    pub top_p: f32,
    /// Keep tokens at least this fraction as likely as the likeliest; 0: all. 0 to 1.
    pub min_p: f32,
    /// Keep the tokens of most typical surprise that together pass this probability; 1: all. 0 to 1.
    pub typical_p: f32,
    /// Keep tokens whose logit is at most this many standard deviations below the best; 0 and below: off.
    pub top_n_sigma: f32,
    /// How often the top choices are excluded; 0: never. 0 to 1.
    pub xtc_probability: f32,
    /// Tokens at least this likely are top choices; all but the least likely of them go. Above 0.5: off. 0 to 1.
    pub xtc_threshold: f32,
    /// Divides positive and multiplies negative logits of recent tokens; 1: off. Above 0.
    pub repeat_penalty: f32,
    /// How many recent tokens the three penalties see; 0: off, -1: all.
    pub repeat_last_n: i32,
    /// Subtracted once for every occurrence among the recent tokens; 0: off. -100 to 100.
    pub frequency_penalty: f32,
    /// Subtracted once if the token is among the recent ones; 0: off. -100 to 100.
    pub presence_penalty: f32,
    /// What would make a repetition of n tokens longer loses `dry_multiplier * dry_base ^ (n - dry_allowed_length)`; 0: off. 0 and up.
    pub dry_multiplier: f32,
    /// See `dry_multiplier`. 1 and up.
    pub dry_base: f32,
    /// Shorter repetitions cost nothing.
    pub dry_allowed_length: u32,
    /// Among how many recent tokens repetitions are looked for; 0: off, -1: all.
    pub dry_penalty_last_n: i32,
    /// No repetition reaches back across one of these texts, and a token that holds one whole is never penalised. 64 at most, each
    /// 1 to 40 bytes.
    pub dry_breakers: Vec<String>,
    /// 1 or 2: the temperature and this version of mirostat (Basu et al., 2021) take the place of the chain; 0: off.
    pub mirostat: u32,
    /// The surprise that mirostat steers to, tau, in bits. 0 and up.
    pub mirostat_ent: f32,
    /// How fast it steers, eta. 0 and up.
    pub mirostat_lr: f32,
    /// The chain's samplers in their order; one that is not named does not run. Each once at most.
    pub samplers: Vec<SamplerKind>,
    /// Added to the logit of a token, first of all; minus infinity bans it. (token, bias).
    pub logit_bias: Vec<(u32, f32)>,
    /// Seed of the draws.
    pub seed: u64,
}

impl Default for SamplerParams {
    fn default() -> SamplerParams {
        SamplerParams {
            temperature: 0.8,
            dynatemp_range: 0.0,
            dynatemp_exponent: 1.0,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.0,
            typical_p: 1.0,
            top_n_sigma: -1.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            repeat_penalty: 1.1,
            repeat_last_n: 64,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            dry_multiplier: 0.0,
            dry_base: 1.75,
            dry_allowed_length: 2,
            dry_penalty_last_n: -1,
            dry_breakers: ["\n", ":", "\"", "*"].map(String::from).to_vec(),
            mirostat: 0,
            mirostat_ent: 5.0,
            mirostat_lr: 0.1,
            samplers: SamplerKind::DEFAULT_ORDER.to_vec(),
            logit_bias: Vec::new(),
            seed: 42,
        }
    }
}

/// Most texts that break repetitions.
const MAX_BREAKERS: usize = 64;
/// Most bytes of one of them, as in llama.cpp (which cuts longer ones).
const MAX_BREAKER_LEN: usize = 40;

const UP: &str = "a number from 0 up";
const FRACTION: &str = "from 0 to 1";
const SIGNED: &str = "from -100 to 100";

impl SamplerParams {
    /// Checks every range; the error names field, value and range.
    pub fn validate(&self) -> Result<(), SamplingError> {
        let (max, above_0) = (f32::MAX, f32::from_bits(1));
        for (field, x, low, high, range) in [
            ("temperature", self.temperature, 0.0, max, UP),
            ("top_p", self.top_p, 0.0, 1.0, FRACTION),
            ("min_p", self.min_p, 0.0, 1.0, FRACTION),
            ("typical_p", self.typical_p, 0.0, 1.0, FRACTION),
            (
                "repeat_penalty",
                self.repeat_penalty,
                above_0,
                max,
                "a number above 0",
            ),
            (
                "frequency_penalty",
                self.frequency_penalty,
                -100.0,
                100.0,
                SIGNED,
            ),
            (
                "presence_penalty",
                self.presence_penalty,
                -100.0,
                100.0,
                SIGNED,
            ),
            (
                "top_n_sigma",
                self.top_n_sigma,
                -max,
                max,
                "a number; 0 and below: off",
            ),
            ("xtc_probability", self.xtc_probability, 0.0, 1.0, FRACTION),
            ("xtc_threshold", self.xtc_threshold, 0.0, 1.0, FRACTION),
            ("dynatemp_range", self.dynatemp_range, 0.0, max, UP),
            ("dynatemp_exponent", self.dynatemp_exponent, 0.0, max, UP),
            ("dry_multiplier", self.dry_multiplier, 0.0, max, UP),
            ("dry_base", self.dry_base, 1.0, max, "a number from 1 up"),
            ("mirostat_ent", self.mirostat_ent, 0.0, max, UP),
            ("mirostat_lr", self.mirostat_lr, 0.0, max, UP),
        ] {
            check(field, x, (low..=high).contains(&x), range)?;
        }
        let last_n = "-1 (all), 0 (off) or more";
        let n = self.repeat_last_n;
        check("repeat_last_n", n, n >= -1, last_n)?;
        let n = self.dry_penalty_last_n;
        check("dry_penalty_last_n", n, n >= -1, last_n)?;
        check(
            "mirostat",
            self.mirostat,
            self.mirostat <= 2,
            "0 (off), 1 or 2",
        )?;
        self.validate_lists()
    }

    fn validate_lists(&self) -> Result<(), SamplingError> {
        let n = self.dry_breakers.len();
        let many = format_args!("{n} texts");
        check("dry_breakers", many, n <= MAX_BREAKERS, "64 texts at most")?;
        for text in &self.dry_breakers {
            let fits = (1..=MAX_BREAKER_LEN).contains(&text.len());
            let value = format_args!("{text:?}");
            check("dry_breakers", value, fits, "texts of 1 to 40 bytes")?;
        }
        for (i, kind) in self.samplers.iter().enumerate() {
            let again = self.samplers.iter().take(i).any(|k| k == kind);
            let value = format_args!("{kind} twice");
            check(
                "samplers",
                value,
                !again,
                "a list that names each sampler once at most",
            )?;
        }
        for (_, bias) in &self.logit_bias {
            let range = "a finite number, or minus infinity";
            check("logit_bias", bias, *bias < f32::INFINITY, range)?;
        }
        Ok(())
    }

    /// Whether a sampler of the chain changes anything under these settings.
    pub(super) fn acts(&self, kind: SamplerKind) -> bool {
        match kind {
            SamplerKind::Penalties => {
                self.repeat_penalty != 1.0
                    || self.frequency_penalty != 0.0
                    || self.presence_penalty != 0.0
            }
            SamplerKind::Dry => self.dry_multiplier > 0.0 && self.dry_penalty_last_n != 0,
            SamplerKind::TopNSigma => self.top_n_sigma > 0.0,
            SamplerKind::TopK => self.top_k > 0,
            SamplerKind::TypP => self.typical_p < 1.0,
            SamplerKind::TopP => self.top_p < 1.0,
            SamplerKind::MinP => self.min_p > 0.0,
            SamplerKind::Xtc => self.xtc_probability > 0.0 && self.xtc_threshold <= 0.5,
            SamplerKind::Temperature => self.temperature != 1.0 || self.dynatemp_range > 0.0,
        }
    }
}

fn check(
    field: &'static str,
    value: impl std::fmt::Display,
    ok: bool,
    range: &'static str,
) -> Result<(), SamplingError> {
    if ok {
        return Ok(());
    }
    Err(SamplingError::Parameter {
        field,
        value: value.to_string(),
        range,
    })
}
