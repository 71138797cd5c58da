//! What a model file says of sampling: its `general.sampling.*` fields.

use super::{SamplerKind, SamplerParams, SamplingError};
use crate::gguf::{Metadata, Value};

impl SamplerParams {
    /// The defaults, with the model's own `general.sampling.*` where the file gives them. Errors: a field of another type, or out
    /// of range. A sampler in the file's sequence that this engine does not have is named in a warning and left out, as
    /// llama.cpp leaves out what it does not know.
    pub fn with_model_defaults(metadata: &Metadata) -> Result<SamplerParams, SamplingError> {
        SamplerParams::default().or_model_defaults(metadata)
    }

    /// These parameters, with the model's own where the file gives them. Errors: as [`SamplerParams::with_model_defaults`].
    pub fn or_model_defaults(self, metadata: &Metadata) -> Result<SamplerParams, SamplingError> {
        let mut params = self;
        let floats = [
            ("general.sampling.temp", &mut params.temperature),
            ("general.sampling.top_p", &mut params.top_p),
            ("general.sampling.min_p", &mut params.min_p),
            (
                "general.sampling.xtc_probability",
                &mut params.xtc_probability,
            ),
            ("general.sampling.xtc_threshold", &mut params.xtc_threshold),
            (
                "general.sampling.penalty_repeat",
                &mut params.repeat_penalty,
            ),
            ("general.sampling.mirostat_tau", &mut params.mirostat_ent),
            ("general.sampling.mirostat_eta", &mut params.mirostat_lr),
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
        if let Some(version) = number(metadata, "general.sampling.mirostat")? {
            params.mirostat = mirostat(version)?;
        }
        if let Some(order) = sequence(metadata)? {
            params.samplers = order;
        }
        params.validate()?;
        Ok(params)
    }
}

/// 0, 1 or 2; another number is no version, and would be one once rounded.
fn mirostat(version: f64) -> Result<u32, SamplingError> {
    match version {
        0.0 => Ok(0),
        1.0 => Ok(1),
        2.0 => Ok(2),
        _ => Err(SamplingError::Parameter {
            field: "mirostat",
            value: version.to_string(),
            range: "0 (off), 1 or 2",
        }),
    }
}

/// The file's order of samplers, of those that are known here.
fn sequence(metadata: &Metadata) -> Result<Option<Vec<SamplerKind>>, SamplingError> {
    let key = "general.sampling.sequence";
    let text = match metadata.get(key) {
        None => return Ok(None),
        Some(Value::Str(text)) if text.is_empty() => return Ok(None),
        Some(Value::Str(text)) => text,
        Some(other) => return Err(wrong(key, other, "names of samplers with ; between them")),
    };
    let known = |name: &str| match SamplerKind::by_name(name) {
        Ok(kind) => Some(kind),
        Err(e) => {
            tracing::warn!("{key} in the model file: {e}: left out");
            None
        }
    };
    Ok(Some(text.split(';').filter_map(known).collect()))
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
        Some(other) => return Err(wrong(key, other, "a number")),
    }))
}

fn wrong(key: &'static str, value: &Value, expected: &'static str) -> SamplingError {
    SamplingError::Metadata {
        key,
        value: value.summary(),
        expected,
    }
}
