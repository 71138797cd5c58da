//! Errors in the words of the command line: where the library names a field, the flag that gives it.

use std::error::Error as StdError;

use minfer::Error;
use minfer::engine::EngineError;
use minfer::graph::PAGE;
use minfer::sampling::SamplingError;
use minfer::words::count;

/// The flag of a field, where there is one.
fn flag_of(field: &str) -> Option<&'static str> {
    Some(match field {
        "temperature" => "--temp",
        "dynatemp_range" => "--dynatemp-range",
        "dynatemp_exponent" => "--dynatemp-exp",
        "top_p" => "--top-p",
        "min_p" => "--min-p",
        "typical_p" => "--typical",
        "top_n_sigma" => "--top-n-sigma",
        "xtc_probability" => "--xtc-probability",
        "xtc_threshold" => "--xtc-threshold",
        "repeat_penalty" => "--repeat-penalty",
        "repeat_last_n" => "--repeat-last-n",
        "presence_penalty" => "--presence-penalty",
        "frequency_penalty" => "--frequency-penalty",
        "dry_multiplier" => "--dry-multiplier",
        "dry_base" => "--dry-base",
        "dry_penalty_last_n" => "--dry-penalty-last-n",
        "dry_breakers" => "--dry-sequence-breaker",
        "mirostat" => "--mirostat",
        "mirostat_ent" => "--mirostat-ent",
        "mirostat_lr" => "--mirostat-lr",
        "samplers" => "--samplers (or --sampling-seq)",
        "logit_bias" => "--logit-bias",
        "n_ctx" => "--n-ctx",
        "n_batch" => "--n-batch",
        "n_seqs" => "--parallel",
        "queue" => "--queue",
        _ => return None,
    })
}

/// An error's line, with flags for fields.
pub fn in_flags(e: &(dyn StdError + 'static)) -> String {
    let all = e.downcast_ref::<Error>();
    let sampling = match all {
        Some(Error::Sampling(e)) => Some(e),
        _ => e.downcast_ref(),
    };
    let engine = match all {
        Some(Error::Engine(e)) => Some(e),
        _ => e.downcast_ref(),
    };
    let said = sampling.and_then(of_sampling);
    let said = said.or_else(|| engine.and_then(of_engine));
    said.unwrap_or_else(|| e.to_string())
}

fn of_sampling(e: &SamplingError) -> Option<String> {
    match e {
        SamplingError::Parameter {
            field,
            value,
            range,
        } => {
            let named = SamplingError::Parameter {
                field: flag_of(field)?,
                value: value.clone(),
                range,
            };
            Some(named.to_string())
        }
        SamplingError::State { saved, .. } => Some(format!(
            "the session was made {} mirostat: give --mirostat as it was then",
            if saved == "none" { "without" } else { "with" }
        )),
        _ => None,
    }
}

fn of_engine(e: &EngineError) -> Option<String> {
    match *e {
        EngineError::OptionOutOfRange {
            name,
            value,
            min,
            max,
        } => {
            let name = flag_of(name)?;
            let named = EngineError::OptionOutOfRange {
                name,
                value,
                min,
                max,
            };
            Some(named.to_string())
        }
        EngineError::NothingToShift {
            n_keep,
            n_ctx,
            limit,
        } => Some(format!(
            "a context of {} is too short for --context-shift with {n_keep} kept (--keep): {}",
            count(n_ctx, "token"),
            shift_way_out(n_keep, limit)
        )),
        _ => None,
    }
}

/// What a shift needs that keeps so many tokens, of a model whose context is `limit` long.
fn shift_way_out(n_keep: usize, limit: usize) -> String {
    let least = n_keep.div_ceil(PAGE).saturating_add(2).saturating_mul(PAGE);
    match (least <= limit, 2 * PAGE <= limit) {
        (true, _) => format!("--n-ctx must be at least {least}"),
        (false, true) => format!(
            "the model's limit is {limit}, {least} were needed: keep less, at most {}",
            (limit / PAGE - 2) * PAGE
        ),
        (false, false) => {
            format!("the model's limit is {limit}: leave --context-shift out")
        }
    }
}

#[cfg(test)]
mod tests {
    use minfer::sampling::SamplerParams;

    use super::*;

    #[test]
    fn a_field_becomes_its_flag() {
        let bad = SamplerParams {
            temperature: -1.0,
            ..SamplerParams::default()
        };
        let e = bad.validate().unwrap_err();
        assert!(e.to_string().starts_with("temperature is -1"), "{e}");
        assert!(in_flags(&e).starts_with("--temp is -1: "), "{e}");
        let wrapped = in_flags(&Error::from(e));
        assert!(wrapped.starts_with("--temp is -1: "), "{wrapped}");
    }

    #[test]
    fn what_a_shift_needs_is_what_the_model_can_have() {
        assert_eq!(shift_way_out(80, 512), "--n-ctx must be at least 160");
        assert_eq!(shift_way_out(448, 512), "--n-ctx must be at least 512");
        let less = shift_way_out(449, 512);
        assert!(less.ends_with("keep less, at most 448"), "{less}");
        assert!(shift_way_out(usize::MAX, 512).ends_with("at most 448"));
        assert!(shift_way_out(0, 63).ends_with("leave --context-shift out"));
    }

    #[test]
    fn what_is_no_field_stays_as_it_is() {
        let e = Error::from(EngineError::EmptyPrompt);
        assert_eq!(in_flags(&e), e.to_string());
    }
}
