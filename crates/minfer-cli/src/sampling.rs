//! Sampling parameters: what the flags say, over what the model's file says.

use minfer::engine::Model;
use minfer::sampling::{SamplerKind, SamplerParams};

use crate::args::SamplingArgs;
use crate::flags::in_flags;
use crate::output::{Failure, Outcome};

mod off;

/// Refuses flags that no model could do with.
pub fn check(a: &SamplingArgs) -> Outcome {
    with_flags(SamplerParams::default(), a, false).map(drop)
}

/// Flags over the model's own defaults over minfer's.
pub fn params(a: &SamplingArgs, model: &Model) -> Result<SamplerParams, Failure> {
    // What the file says is no flag's fault.
    let of_model = SamplerParams::with_model_defaults(model.metadata()).map_err(|e| {
        let file = model.file().path().display();
        Failure::Error(format!("{file}: its general.sampling.* can't be used: {e}"))
    })?;
    let p = with_flags(of_model, a, true)?;
    let n_vocab = model.tokenizer().n_vocab();
    if let Some((id, _)) = p.logit_bias.iter().find(|b| b.0 as usize >= n_vocab) {
        return Err(Failure::Error(format!(
            "--logit-bias: token id {id} is not in the vocabulary of {n_vocab}"
        )));
    }
    Ok(p)
}

/// The flags over other parameters, checked. `of_model`: these are a model's own.
fn with_flags(
    mut p: SamplerParams,
    a: &SamplingArgs,
    of_model: bool,
) -> Result<SamplerParams, Failure> {
    fn set<T>(to: &mut T, from: Option<T>) {
        if let Some(v) = from {
            *to = v;
        }
    }
    set(&mut p.temperature, a.temp);
    set(&mut p.dynatemp_range, a.dynatemp_range);
    set(&mut p.dynatemp_exponent, a.dynatemp_exp);
    set(&mut p.top_k, a.top_k);
    set(&mut p.top_p, a.top_p);
    set(&mut p.min_p, a.min_p);
    set(&mut p.typical_p, a.typical);
    set(&mut p.top_n_sigma, a.top_n_sigma);
    set(&mut p.xtc_probability, a.xtc_probability);
    set(&mut p.xtc_threshold, a.xtc_threshold);
    set(&mut p.repeat_penalty, a.repeat_penalty);
    set(&mut p.repeat_last_n, a.repeat_last_n);
    set(&mut p.presence_penalty, a.presence_penalty);
    set(&mut p.frequency_penalty, a.frequency_penalty);
    set(&mut p.dry_multiplier, a.dry_multiplier);
    set(&mut p.dry_base, a.dry_base);
    set(&mut p.dry_allowed_length, a.dry_allowed_length);
    set(&mut p.dry_penalty_last_n, a.dry_penalty_last_n);
    set(&mut p.dry_breakers, breakers(&a.dry_sequence_breaker)?);
    set(&mut p.mirostat, a.mirostat);
    set(&mut p.mirostat_ent, a.mirostat_ent);
    set(&mut p.mirostat_lr, a.mirostat_lr);
    set(&mut p.samplers, order(a)?);
    set(&mut p.seed, a.seed.map(|s| s.value));
    for bias in &a.logit_bias {
        p.logit_bias.push(parse_bias(bias)?);
    }
    p.validate().map_err(|e| Failure::Usage(in_flags(&e)))?;
    off::refuse_idle(&p, a)?;
    off::refuse_off(&p, a, of_model)?;
    Ok(p)
}

/// The order of samplers, where one was given.
fn order(a: &SamplingArgs) -> Result<Option<Vec<SamplerKind>>, Failure> {
    let (flag, parsed) = match (&a.samplers, &a.sampling_seq) {
        (Some(names), _) => ("--samplers", SamplerKind::parse_names(names)),
        (None, Some(letters)) => ("--sampling-seq", SamplerKind::parse_letters(letters)),
        (None, None) => return Ok(None),
    };
    match parsed {
        Ok(order) if order.is_empty() => Err(Failure::Usage(format!(
            "{flag} names no sampler: leave it out for the usual ones"
        ))),
        Ok(order) => Ok(Some(order)),
        Err(e) => Err(Failure::Usage(format!("{flag}: {e}"))),
    }
}

/// The texts of --dry-sequence-breaker, where there is one.
fn breakers(given: &[String]) -> Result<Option<Vec<String>>, Failure> {
    match given {
        [] => Ok(None),
        [none] if none == "none" => Ok(Some(Vec::new())),
        texts => texts
            .iter()
            .map(|t| unescape(t))
            .collect::<Result<_, _>>()
            .map(Some),
    }
}

fn unescape(text: &str) -> Result<String, Failure> {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match chars.next() {
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some(c @ ('\\' | '"' | '\'')) => c,
            _ => {
                return Err(Failure::Usage(format!(
                    "--dry-sequence-breaker '{text}': after \\ comes n, t, r, a quote or another \\"
                )));
            }
        });
    }
    Ok(out)
}

/// `ID+BIAS`, `ID-BIAS` or `ID=BIAS`.
fn parse_bias(text: &str) -> Result<(u32, f32), Failure> {
    let bad = || {
        Failure::Usage(format!(
            "--logit-bias '{text}': write ID+BIAS or ID-BIAS, as in 15043+1.5"
        ))
    };
    let at = text.find(['+', '-', '=']).ok_or_else(bad)?;
    let (id, bias) = text.split_at(at);
    let bias = bias.strip_prefix(['=', '+']).unwrap_or(bias);
    Ok((
        id.parse().map_err(|_| bad())?,
        bias.parse().map_err(|_| bad())?,
    ))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        sampling: SamplingArgs,
    }

    /// What the flags make of the defaults; the message where they are refused.
    pub fn parse(flags: &[&str]) -> Result<SamplerParams, String> {
        parse_over(SamplerParams::default(), flags, false)
    }

    /// The same over other parameters than the defaults.
    pub fn parse_over(
        p: SamplerParams,
        flags: &[&str],
        of_model: bool,
    ) -> Result<SamplerParams, String> {
        let flags = Flags::parse_from(std::iter::once(&"minfer").chain(flags));
        with_flags(p, &flags.sampling, of_model).map_err(|e| match e {
            Failure::Usage(e) | Failure::Error(e) => e,
            _ => String::new(),
        })
    }

    #[test]
    fn a_bias_is_an_id_and_a_signed_number() {
        assert!(matches!(parse_bias("5+1.5"), Ok((5, 1.5))));
        assert!(matches!(parse_bias("5-2"), Ok((5, -2.0))));
        assert!(matches!(parse_bias("5=-inf"), Ok((5, f32::NEG_INFINITY))));
        assert!(
            parse_bias("x+1").is_err() && parse_bias("5").is_err() && parse_bias("5+x").is_err()
        );
    }

    #[test]
    fn every_flag_has_its_field() {
        let all = [
            "--temp=0.5 --dynatemp-range=0.25 --dynatemp-exp=2 --top-k=7 --top-p=0.5 --min-p=0.25 --typical=0.75",
            "--top-nsigma=2 --xtc-probability=0.5 --xtc-threshold=0.25 --repeat-penalty=1.5 --repeat-last-n=-1",
            "--presence-penalty=0.5 --frequency-penalty=0.25 --dry-multiplier=0.5 --dry-base=2 --dry-allowed-length=3",
            "--dry-penalty-last-n=99 --dry-sequence-breaker=\\n\\\\ --dry-sequence-breaker=User: --mirostat-ent=3",
            "--mirostat-lr=0.5 --sampler-seq=kpmxtedsy --logit-bias=3+1 --seed=9",
        ];
        let flags: Vec<&str> = all.iter().flat_map(|l| l.split(' ')).collect();
        let want = SamplerParams {
            temperature: 0.5,
            dynatemp_range: 0.25,
            dynatemp_exponent: 2.0,
            top_k: 7,
            top_p: 0.5,
            min_p: 0.25,
            typical_p: 0.75,
            top_n_sigma: 2.0,
            xtc_probability: 0.5,
            xtc_threshold: 0.25,
            repeat_penalty: 1.5,
            repeat_last_n: -1,
            presence_penalty: 0.5,
            frequency_penalty: 0.25,
            dry_multiplier: 0.5,
            dry_base: 2.0,
            dry_allowed_length: 3,
            dry_penalty_last_n: 99,
            dry_breakers: vec!["\n\\".into(), "User:".into()],
            mirostat: 0,
            mirostat_ent: 3.0,
            mirostat_lr: 0.5,
            samplers: SamplerKind::parse_letters("kpmxtedsy").unwrap(),
            logit_bias: vec![(3, 1.0)],
            seed: 9,
        };
        assert_eq!(parse(&flags), Ok(want));
        assert_eq!(
            parse(&["--mirostat", "2", "--temp", "1"]).unwrap().mirostat,
            2
        );
        let none = ["--dry-multiplier", "1", "--dry-sequence-breaker", "none"];
        let none = parse(&none).unwrap();
        assert!(none.dry_breakers.is_empty());
    }

    #[test]
    fn what_can_not_be_done_is_refused_by_name() {
        for (flags, words) in [
            (
                &["--samplers", "top_k;infill"][..],
                "--samplers: there is no sampler 'infill' here",
            ),
            (
                &["--sampling-seq", "kz"],
                "--sampling-seq: there is no sampler 'z' here",
            ),
            (
                &["--samplers", "top_k;top-k"],
                "--samplers (or --sampling-seq) is top_k twice",
            ),
            (
                &["--samplers", "top_k", "--temp", "0"],
                "--temp does nothing: the order of samplers, 'top_k',",
            ),
            (
                &["--mirostat", "1", "--top-k", "4"],
                "--top-k does nothing with mirostat",
            ),
            (
                &["--mirostat", "1", "--samplers", "top_k"],
                "--samplers does nothing with mirostat",
            ),
            (
                &["--mirostat", "3"],
                "--mirostat is 3: it must be 0 (off), 1 or 2",
            ),
            (
                &["--dry-sequence-breaker", "\\q"],
                "--dry-sequence-breaker '\\q': after \\ comes",
            ),
            (
                &["--dry-multiplier", "1", "--dry-sequence-breaker", ""],
                "--dry-sequence-breaker is \"\": it must be texts of 1 to 40 bytes",
            ),
        ] {
            let error = parse(flags).unwrap_err();
            assert!(error.starts_with(words), "{error}");
        }
    }
}
