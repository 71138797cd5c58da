//! Flags of the sampler chain that would do nothing.

use minfer::sampling::{SamplerKind, SamplerParams};

use crate::args::SamplingArgs;
use crate::output::{Failure, Outcome};

/// A flag whose sampler does not run would be a wish that nobody hears.
pub fn refuse_idle(p: &SamplerParams, a: &SamplingArgs) -> Outcome {
    use SamplerKind::*;
    let given = [
        ("--temp", Temperature, a.temp.is_some()),
        ("--dynatemp-range", Temperature, a.dynatemp_range.is_some()),
        ("--dynatemp-exp", Temperature, a.dynatemp_exp.is_some()),
        ("--top-k", TopK, a.top_k.is_some()),
        ("--top-p", TopP, a.top_p.is_some()),
        ("--min-p", MinP, a.min_p.is_some()),
        ("--typical", TypP, a.typical.is_some()),
        ("--top-n-sigma", TopNSigma, a.top_n_sigma.is_some()),
        ("--xtc-probability", Xtc, a.xtc_probability.is_some()),
        ("--xtc-threshold", Xtc, a.xtc_threshold.is_some()),
        ("--repeat-penalty", Penalties, a.repeat_penalty.is_some()),
        ("--repeat-last-n", Penalties, a.repeat_last_n.is_some()),
        (
            "--presence-penalty",
            Penalties,
            a.presence_penalty.is_some(),
        ),
        (
            "--frequency-penalty",
            Penalties,
            a.frequency_penalty.is_some(),
        ),
        ("--dry-multiplier", Dry, a.dry_multiplier.is_some()),
        ("--dry-base", Dry, a.dry_base.is_some()),
        ("--dry-allowed-length", Dry, a.dry_allowed_length.is_some()),
        ("--dry-penalty-last-n", Dry, a.dry_penalty_last_n.is_some()),
        (
            "--dry-sequence-breaker",
            Dry,
            !a.dry_sequence_breaker.is_empty(),
        ),
    ];
    let given = given.into_iter().filter(|g| g.2);
    if p.mirostat > 0 {
        let order = [
            ("--samplers", a.samplers.is_some()),
            ("--sampling-seq", a.sampling_seq.is_some()),
        ];
        let mut idle = given
            .filter(|(flag, _, _)| *flag != "--temp")
            .map(|(flag, _, _)| flag)
            .chain(order.into_iter().filter(|o| o.1).map(|o| o.0));
        return match idle.next() {
            None => Ok(()),
            Some(flag) => Err(Failure::Usage(format!(
                "{flag} does nothing with mirostat, which takes the place of all samplers but the temperature: \
                 leave it out, or give --mirostat 0"
            ))),
        };
    }
    match given
        .into_iter()
        .find(|(_, kind, _)| !p.samplers.contains(kind))
    {
        None => Ok(()),
        Some((flag, kind, _)) => {
            let names: Vec<&str> = p.samplers.iter().map(|k| k.name()).collect();
            Err(Failure::Usage(format!(
                "{flag} does nothing: the order of samplers, '{}', does not name {kind}; see --samplers",
                names.join(";")
            )))
        }
    }
}

/// So would be one that another flag leaves nothing to do: it says how, of what nothing turns on, or turns on what is off. What a
/// model's file may set decides only once it is known, or where a flag sets it.
pub fn refuse_off(p: &SamplerParams, a: &SamplingArgs, of_model: bool) -> Outcome {
    let given = penalties_off(p, a, of_model)
        .into_iter()
        .chain(others_off(p, a, of_model));
    match given
        .filter(|g| g.given)
        .find_map(|g| g.off.map(|off| (g.flag, off)))
    {
        None => Ok(()),
        Some((flag, off)) => Err(Failure::Usage(format!(
            "{flag} does nothing: {off}; change that, or leave {flag} out"
        ))),
    }
}

/// A flag, whether it asks for something, and why that can't be, if so.
struct Asked {
    flag: &'static str,
    given: bool,
    off: Option<String>,
}

impl Asked {
    fn new(flag: &'static str, given: bool, off: &Option<String>) -> Asked {
        let off = off.clone();
        Asked { flag, given, off }
    }
}

/// Penalties of repeated tokens and how far back they look, DRY and how far back it looks.
fn penalties_off(p: &SamplerParams, a: &SamplingArgs, of_model: bool) -> Vec<Asked> {
    let off = |known: bool, why: &str| known.then(|| why.to_owned());
    let none = p.repeat_penalty == 1.0 && p.presence_penalty == 0.0 && p.frequency_penalty == 0.0;
    let none_known = none && (of_model || a.repeat_penalty.is_some());
    let penalties = off(
        none_known,
        "--repeat-penalty is 1, --presence-penalty and --frequency-penalty are 0",
    );
    let last_n_known = of_model || a.repeat_last_n.is_some();
    let last_n = off(last_n_known && p.repeat_last_n == 0, "--repeat-last-n is 0");
    let dry = off(p.dry_multiplier == 0.0, "--dry-multiplier is 0");
    let dry_last_n = off(p.dry_penalty_last_n == 0, "--dry-penalty-last-n is 0");
    let is_on = |flag: Option<f32>, neutral: f32| flag.is_some_and(|x| x != neutral);
    let breaks = !a.dry_sequence_breaker.is_empty();
    vec![
        // 0 says off of what is off.
        Asked::new(
            "--repeat-last-n",
            a.repeat_last_n.is_some_and(|n| n != 0),
            &penalties,
        ),
        Asked::new("--repeat-penalty", is_on(a.repeat_penalty, 1.0), &last_n),
        Asked::new(
            "--presence-penalty",
            is_on(a.presence_penalty, 0.0),
            &last_n,
        ),
        Asked::new(
            "--frequency-penalty",
            is_on(a.frequency_penalty, 0.0),
            &last_n,
        ),
        Asked::new("--dry-base", a.dry_base.is_some(), &dry),
        Asked::new("--dry-allowed-length", a.dry_allowed_length.is_some(), &dry),
        Asked::new("--dry-penalty-last-n", a.dry_penalty_last_n.is_some(), &dry),
        Asked::new("--dry-sequence-breaker", breaks, &dry),
        Asked::new(
            "--dry-multiplier",
            is_on(a.dry_multiplier, 0.0),
            &dry_last_n,
        ),
    ]
}

/// The dynamic temperature, XTC and mirostat.
fn others_off(p: &SamplerParams, a: &SamplingArgs, of_model: bool) -> Vec<Asked> {
    let off = |known: bool, why: &str| known.then(|| why.to_owned());
    let dynatemp = off(p.dynatemp_range == 0.0, "--dynatemp-range is 0");
    let xtc_known = of_model || a.xtc_probability.is_some();
    let xtc = off(
        xtc_known && p.xtc_probability == 0.0,
        "--xtc-probability is 0",
    );
    let threshold_known = of_model || a.xtc_threshold.is_some();
    let threshold = (threshold_known && p.xtc_threshold > 0.5).then(|| {
        format!(
            "--xtc-threshold is {}, and above 0.5 nothing is excluded",
            p.xtc_threshold
        )
    });
    let temp_known = of_model || a.temp.is_some();
    let greedy = off(
        temp_known && p.temperature == 0.0,
        "--temp is 0, which takes the likeliest token",
    );
    let mirostat_known = of_model || a.mirostat.is_some();
    let mirostat = off(mirostat_known && p.mirostat == 0, "--mirostat is 0");
    let excludes = a.xtc_probability.is_some_and(|x| x > 0.0);
    let steers = a.mirostat.is_some_and(|n| n > 0);
    let steered = mirostat.or_else(|| greedy.clone());
    vec![
        Asked::new("--dynatemp-exp", a.dynatemp_exp.is_some(), &dynatemp),
        Asked::new("--xtc-threshold", a.xtc_threshold.is_some(), &xtc),
        Asked::new("--xtc-probability", excludes, &threshold),
        Asked::new("--mirostat", steers, &greedy),
        Asked::new("--mirostat-ent", a.mirostat_ent.is_some(), &steered),
        Asked::new("--mirostat-lr", a.mirostat_lr.is_some(), &steered),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::{parse, parse_over};
    use super::*;

    #[test]
    fn a_flag_of_what_nothing_turns_on_is_refused() {
        for (flag, value, on, off) in [
            ("--dynatemp-exp", "2", "0.5", "--dynatemp-range"),
            ("--dry-base", "2", "0.5", "--dry-multiplier"),
            ("--dry-allowed-length", "3", "0.5", "--dry-multiplier"),
            ("--dry-penalty-last-n", "9", "0.5", "--dry-multiplier"),
            ("--dry-sequence-breaker", "x", "0.5", "--dry-multiplier"),
            ("--xtc-threshold", "0.2", "0.5", "--xtc-probability"),
            ("--mirostat-ent", "3", "2", "--mirostat"),
            ("--mirostat-lr", "0.2", "2", "--mirostat"),
        ] {
            let words = format!("{flag} does nothing: {off} is 0");
            let plain = SamplerParams::default;
            for (of_model, flags) in [
                (true, &[flag, value][..]),
                (true, &[flag, value, off, "0"]),
                (false, &[flag, value, off, "0"]),
            ] {
                let error = parse_over(plain(), flags, of_model).unwrap_err();
                assert!(error.starts_with(&words), "{flags:?}: {error}");
            }
            let both = parse_over(plain(), &[flag, value, off, on], true);
            assert!(both.is_ok(), "{both:?}");
        }
        // A model's file may turn these on: not before it is known is anything said.
        assert!(parse(&["--xtc-threshold", "0.2", "--mirostat-ent", "3"]).is_ok());
        let own = SamplerParams {
            mirostat: 2,
            ..SamplerParams::default()
        };
        assert!(parse_over(own, &["--mirostat-ent", "3"], true).is_ok());
    }

    #[test]
    fn a_flag_that_another_one_undoes_is_refused() {
        let off = ["--repeat-penalty", "1"];
        let none = ["--repeat-last-n", "0"];
        for (flags, words) in [
            (
                [&off[..], &["--repeat-last-n", "64"]].concat(),
                "--repeat-last-n does nothing: --repeat-penalty is 1, --presence-penalty and",
            ),
            (
                [&none[..], &["--repeat-penalty", "1.2"]].concat(),
                "--repeat-penalty does nothing: --repeat-last-n is 0",
            ),
            (
                [&none[..], &["--presence-penalty", "1"]].concat(),
                "--presence-penalty does nothing: --repeat-last-n is 0",
            ),
            (
                [&none[..], &["--frequency-penalty", "-1"]].concat(),
                "--frequency-penalty does nothing: --repeat-last-n is 0",
            ),
            (
                vec!["--dry-multiplier", "1", "--dry-penalty-last-n", "0"],
                "--dry-multiplier does nothing: --dry-penalty-last-n is 0",
            ),
            (
                vec!["--xtc-probability", "0.5", "--xtc-threshold", "0.6"],
                "--xtc-probability does nothing: --xtc-threshold is 0.6, and above 0.5",
            ),
            (
                vec!["--mirostat", "2", "--temp", "0"],
                "--mirostat does nothing: --temp is 0, which takes the likeliest",
            ),
        ] {
            // Whatever a model's file says: the flags say it all.
            for of_model in [false, true] {
                let error = parse_over(SamplerParams::default(), &flags, of_model).unwrap_err();
                assert!(error.starts_with(words), "{flags:?}: {error}");
                assert!(error.contains("leave --"), "{error}");
            }
        }
        for flags in [
            [&off[..], &none].concat(),
            [
                &off[..],
                &["--repeat-last-n", "64", "--presence-penalty", "1"],
            ]
            .concat(),
            vec!["--repeat-last-n", "0"],
            vec!["--xtc-probability", "0.5", "--xtc-threshold", "0.5"],
            vec![
                "--dry-multiplier",
                "0",
                "--temp",
                "0",
                "--seed",
                "3",
                "--mirostat",
                "0",
            ],
        ] {
            assert!(parse(&flags).is_ok(), "{flags:?}: {:?}", parse(&flags));
        }
    }

    #[test]
    fn what_a_model_sets_decides_once_it_is_known() {
        let own = |set: fn(&mut SamplerParams)| {
            let mut p = SamplerParams::default();
            set(&mut p);
            p
        };
        for (of_model, flags, words) in [
            (
                own(|p| p.repeat_penalty = 1.0),
                ["--repeat-last-n", "9"],
                "--repeat-penalty is 1",
            ),
            (
                own(|p| p.repeat_last_n = 0),
                ["--presence-penalty", "1"],
                "--repeat-last-n is 0",
            ),
            (
                own(|p| p.xtc_threshold = 0.75),
                ["--xtc-probability", "1"],
                "--xtc-threshold is 0.75",
            ),
            (
                own(|p| p.temperature = 0.0),
                ["--mirostat", "1"],
                "--temp is 0",
            ),
        ] {
            assert!(parse(&flags).is_ok(), "{flags:?}");
            let error = parse_over(of_model, &flags, true).unwrap_err();
            assert!(error.contains(words), "{flags:?}: {error}");
        }
        // They turn off what the file turns on.
        let xtc = own(|p| p.xtc_probability = 0.5);
        assert!(parse_over(xtc, &["--xtc-threshold", "0.6"], true).is_ok());
        let mirostat = own(|p| p.mirostat = 2);
        assert!(parse_over(mirostat, &["--temp", "0"], true).is_ok());
    }
}
