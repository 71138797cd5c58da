//! Sampling parameters: defaults, a model's own, validation.

use super::SamplingError;
use crate::gguf::{Metadata, Value};

/// How to choose tokens. [`Default`] gives the engine's defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerParams {
    /// Divides the logits before the draw; 0: the likeliest token. 0 and up.
    pub temperature: f32,
    /// Keep the k likeliest tokens; 0: all.
    pub top_k: u32,
    /// Keep the likeliest tokens that together reach this probability; 1: all. 0 to 1.
    pub top_p: f32,
    /// Keep tokens at least this fraction as likely as the likeliest; 0: all. 0 to 1.
    pub min_p: f32,
    /// Keep the tokens of most typical surprise that together pass this probability; 1: all. 0 to 1.
    pub typical_p: f32,
    /// Divides positive and multiplies negative logits of recent tokens; 1: off. Above 0.
    pub repeat_penalty: f32,
    /// How many recent tokens the three penalties see; 0: off, -1: all.
    pub repeat_last_n: i32,
    /// Subtracted once for every occurrence among the recent tokens; 0: off. -100 to 100.
    pub frequency_penalty: f32,
    /// Subtracted once if the token is among the recent ones; 0: off. -100 to 100.
    pub presence_penalty: f32,
    /// Added to the logit of a token, first of all; minus infinity bans it. (token, bias).
    pub logit_bias: Vec<(u32, f32)>,
    /// Seed of the draws.
    pub seed: u64,
}

impl Default for SamplerParams {
    fn default() -> SamplerParams {
        SamplerParams {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.0,
            typical_p: 1.0,
            repeat_penalty: 1.1,
            repeat_last_n: 64,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: 42,
        }
    }
}

impl SamplerParams {
    /// The defaults, with the model's own `general.sampling.*` where the file gives them. Errors: a field of another type, or out
    /// of range. Samplers this engine does not have are named in a warning.
    pub fn with_model_defaults(metadata: &Metadata) -> Result<SamplerParams, SamplingError> {
        let mut params = SamplerParams::default();
        let floats = [
            ("general.sampling.temp", &mut params.temperature),
            ("general.sampling.top_p", &mut params.top_p),
            ("general.sampling.min_p", &mut params.min_p),
            (
                "general.sampling.penalty_repeat",
                &mut params.repeat_penalty,
            ),
        ];
        for (key, slot) in floats {
            if let Some(x) = number(metadata, key)? {
                *slot = x as f32;
            }
        }
        if let Some(k) = number(metadata, "general.sampling.top_k")? {
            params.top_k = k.max(0.0) as u32;
        }
        if let Some(n) = number(metadata, "general.sampling.penalty_last_n")? {
            params.repeat_last_n = n as i32;
        }
        for key in [
            "general.sampling.mirostat",
            "general.sampling.xtc_probability",
        ] {
            if number(metadata, key)?.is_some_and(|x| x != 0.0) {
                tracing::warn!(
                    "the model file asks for {key}, which this engine does not have: not used"
                );
            }
        }
        if metadata.get("general.sampling.sequence").is_some() {
            tracing::warn!(
                "the model file gives general.sampling.sequence: the order of samplers is fixed, not used"
            );
        }
        params.validate()?;
        Ok(params)
    }

    /// Checks every range; the error names field, value and range.
    pub fn validate(&self) -> Result<(), SamplingError> {
        let check = |field, x: f32, ok: bool, range| {
            if ok {
                Ok(())
            } else {
                Err(SamplingError::Parameter {
                    field,
                    value: x.to_string(),
                    range,
                })
            }
        };
        let within = |x: f32, low: f32, high: f32| (low..=high).contains(&x);
        let t = self.temperature;
        check(
            "temperature",
            t,
            within(t, 0.0, f32::MAX),
            "a number from 0 up",
        )?;
        for (field, x) in [
            ("top_p", self.top_p),
            ("min_p", self.min_p),
            ("typical_p", self.typical_p),
        ] {
            check(field, x, within(x, 0.0, 1.0), "from 0 to 1")?;
        }
        let r = self.repeat_penalty;
        check(
            "repeat_penalty",
            r,
            r > 0.0 && r.is_finite(),
            "a number above 0",
        )?;
        for (field, x) in [
            ("frequency_penalty", self.frequency_penalty),
            ("presence_penalty", self.presence_penalty),
        ] {
            check(field, x, within(x, -100.0, 100.0), "from -100 to 100")?;
        }
        if self.repeat_last_n < -1 {
            let value = self.repeat_last_n.to_string();
            return Err(SamplingError::Parameter {
                field: "repeat_last_n",
                value,
                range: "-1 (all), 0 (off) or more",
            });
        }
        for (_, bias) in &self.logit_bias {
            check(
                "logit_bias",
                *bias,
                *bias < f32::INFINITY,
                "a finite number, or minus infinity",
            )?;
        }
        Ok(())
    }
}

fn number(metadata: &Metadata, key: &'static str) -> Result<Option<f64>, SamplingError> {
    Ok(Some(match metadata.get(key) {
        None => return Ok(None),
        Some(Value::F32(x)) => f64::from(*x),
        Some(Value::F64(x)) => *x,
        Some(Value::U8(x)) => f64::from(*x),
        Some(Value::I8(x)) => f64::from(*x),
        Some(Value::U16(x)) => f64::from(*x),
        Some(Value::I16(x)) => f64::from(*x),
        Some(Value::U32(x)) => f64::from(*x),
        Some(Value::I32(x)) => f64::from(*x),
        Some(Value::U64(x)) => *x as f64,
        Some(Value::I64(x)) => *x as f64,
        Some(other) => {
            let mut value = format!("{other:?}");
            value.truncate(value.char_indices().nth(60).map_or(value.len(), |c| c.0));
            return Err(SamplingError::Metadata { key, value });
        }
    }))
}
