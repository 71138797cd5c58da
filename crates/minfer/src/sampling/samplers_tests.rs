//! Tests of the samplers beyond the plain chain: orders, XTC's draw, mirostat's state, DRY, parameters.

use super::{Sampler, SamplerKind, SamplerParams, SamplerState, SamplingError, draw};
use crate::gguf::{Metadata, Value};

/// No sampler at all.
fn bare() -> SamplerParams {
    SamplerParams {
        samplers: Vec::new(),
        ..SamplerParams::default()
    }
}

/// Logits that fall slowly, in no order.
fn slope(n: usize, salt: u32) -> Vec<f32> {
    let rank = |i: u32| i.wrapping_add(salt).wrapping_mul(2_654_435_761) >> 8;
    (0..n as u32).map(|i| -(rank(i) as f32 / 3e6)).collect()
}

fn ids(sampler: &mut Sampler, logits: &[f32], position: u64) -> Vec<u32> {
    let left = sampler.candidates(&mut logits.to_vec(), position).unwrap();
    left.iter().map(|c| c.id).collect()
}

#[test]
fn the_order_decides() {
    let logits = [3.0, 2.0, 1.0, 0.0];
    let params = |names: &str| SamplerParams {
        top_k: 2,
        repeat_penalty: 100.0,
        temperature: 1.0,
        samplers: SamplerKind::parse_names(names).unwrap(),
        ..bare()
    };
    let left = |names: &str| {
        let mut sampler = Sampler::new(params(names), 4).unwrap();
        sampler.accept(0);
        ids(&mut sampler, &logits, 0)
    };
    assert_eq!(left("penalties;top_k"), [1, 2]);
    assert_eq!(left("top_k;penalties"), [0, 1]);
    assert_eq!(left("top_k"), [0, 1]);
    assert_eq!(left("penalties"), [0, 1, 2, 3]);
}

#[test]
fn xtc_acts_where_the_second_draw_of_a_position_says() {
    let params = SamplerParams {
        xtc_probability: 0.3,
        xtc_threshold: 0.1,
        samplers: vec![SamplerKind::Xtc],
        ..bare()
    };
    let mut sampler = Sampler::new(params, 4).unwrap().with_choice(5);
    let logits = [1.0, 2.0, 1.5, -3.0]; // 0.18, 0.50, 0.31, 0.003
    let mut acted = 0;
    for position in 0..2000 {
        let acts = draw(42, 5, position, 1) < f64::from(0.3f32);
        acted += u32::from(acts);
        let want: &[u32] = if acts { &[0, 3] } else { &[0, 1, 2, 3] };
        assert_eq!(ids(&mut sampler, &logits, position), want);
    }
    assert!((520..680).contains(&acted), "{acted}");
}

#[test]
fn of_equal_top_choices_xtc_leaves_one() {
    let params = SamplerParams {
        xtc_probability: 1.0,
        samplers: vec![SamplerKind::Xtc],
        ..bare()
    };
    let mut sampler = Sampler::new(params, 5).unwrap();
    assert_eq!(ids(&mut sampler, &[1.0, 1.0, -9.0, 1.0, 1.0], 0), [2, 4]);
}

#[test]
fn banned_tokens_count_for_no_deviation() {
    let params = SamplerParams {
        top_n_sigma: 1.0,
        samplers: vec![SamplerKind::TopNSigma],
        logit_bias: vec![(4, f32::NEG_INFINITY)],
        ..bare()
    };
    let mut sampler = Sampler::new(params, 5).unwrap();
    // Deviation of 0, 1, 2, 3: 1.118.
    assert_eq!(ids(&mut sampler, &[0.0, 1.0, 2.0, 3.0, 50.0], 0), [2, 3]);
}

fn mirostat(version: u32) -> SamplerParams {
    SamplerParams {
        mirostat: version,
        mirostat_ent: 3.0,
        mirostat_lr: 0.2,
        temperature: 1.0,
        ..SamplerParams::default()
    }
}

#[test]
fn mirostat_steers_to_its_target() {
    for version in [1, 2] {
        let mut sampler = Sampler::new(mirostat(version), 2000).unwrap();
        let (mut sum, n) = (0.0, 3000u32);
        for position in 0..n {
            let mut logits = slope(2000, position * 31);
            let token = sampler.sample(&mut logits, u64::from(position)).unwrap();
            let left = sampler
                .candidates(&mut logits, u64::from(position))
                .unwrap();
            let total: f64 = left.iter().map(|c| f64::from(c.weight)).sum();
            let weight = left.iter().find(|c| c.id == token).unwrap().weight;
            sum -= (f64::from(weight) / total).log2();
            sampler.accept(token);
        }
        let mean = sum / f64::from(n);
        assert!((mean - 3.0).abs() < 0.1, "version {version}: {mean} bits");
    }
}

#[test]
fn drawing_again_or_dropping_a_draft_moves_nothing() {
    for version in [1, 2] {
        let mut sampler = Sampler::new(mirostat(version), 500).unwrap();
        for position in 0..40u64 {
            let logits = || slope(500, position as u32);
            let before = sampler.state();
            let first = sampler.sample(&mut logits(), position).unwrap();
            let mut draft = sampler.clone();
            draft.accept(first);
            draft.sample(&mut slope(500, 99), position + 1).unwrap();
            assert_eq!(sampler.sample(&mut logits(), position), Ok(first));
            assert_eq!(sampler.state(), before);
            sampler.accept(first);
            assert_ne!(sampler.state(), before);
            assert_eq!(sampler.state(), draft.state());
        }
        // A token that was not drawn, as those of a prompt, moves nothing either.
        let before = sampler.state();
        let drawn = sampler.sample(&mut slope(500, 7), 40).unwrap();
        sampler.accept(drawn + 1);
        sampler.accept(drawn);
        assert_eq!(sampler.state(), before);
    }
}

#[test]
fn a_saved_state_and_the_tokens_make_the_sampler_anew() {
    let dry = SamplerParams {
        dry_multiplier: 0.8,
        dry_breakers: Vec::new(),
        dry_penalty_last_n: 30,
        top_k: 5,
        ..SamplerParams::default()
    };
    for params in [mirostat(1), mirostat(2), SamplerParams::default(), dry] {
        let logits = |position: u64| slope(300, position as u32 % 3);
        let mut one = Sampler::new(params.clone(), 300).unwrap().with_choice(3);
        let mut tokens = vec![1, 2, 3];
        tokens.iter().for_each(|t| one.accept(*t));
        for position in 3..90 {
            let token = one.sample(&mut logits(position), position).unwrap();
            one.accept(token);
            tokens.push(token);
        }
        let saved = serde_json::to_string(&one.state()).unwrap();
        let saved: SamplerState = serde_json::from_str(&saved).unwrap();
        let mut other = Sampler::new(params, 300).unwrap().with_choice(3);
        tokens.iter().for_each(|t| other.accept(*t));
        other.restore(&saved).unwrap();
        for position in 90..150 {
            let token = one.sample(&mut logits(position), position).unwrap();
            assert_eq!(other.sample(&mut logits(position), position), Ok(token));
            one.accept(token);
            other.accept(token);
        }
        assert_eq!(one.state(), other.state());
        other.reset();
        let fresh = Sampler::new(other.params().clone(), 300).unwrap();
        assert_eq!(other.state(), fresh.state());
    }
}

#[test]
fn a_state_that_does_not_fit_is_refused() {
    let with = Sampler::new(mirostat(2), 10).unwrap().state();
    let without = SamplerState::default();
    let mut sampler = Sampler::new(mirostat(2), 10).unwrap();
    assert_eq!(
        sampler.restore(&without).unwrap_err().to_string(),
        "mirostat's mu in the saved state is none: with these sampling parameters it must be a number"
    );
    let mut plain = Sampler::new(SamplerParams::default(), 10).unwrap();
    assert!(plain.restore(&with).is_err() && plain.restore(&without).is_ok());
    let nan = serde_json::json!({ "mirostat_mu": f64::NAN.to_bits() });
    let nan: SamplerState = serde_json::from_value(nan).unwrap();
    assert!(sampler.restore(&nan).is_err());
    assert_eq!(sampler.state(), with);
}

#[test]
fn mirostat_leaves_one_token_at_least() {
    for version in [1, 2] {
        for ent in [0.0, 1e-3, 1e6] {
            for logits in [vec![0.0; 50], vec![0.0; 1], slope(50, 2)] {
                let params = SamplerParams {
                    mirostat_ent: ent,
                    mirostat_lr: 1e3,
                    ..mirostat(version)
                };
                let mut sampler = Sampler::new(params, logits.len()).unwrap();
                for position in 0..20 {
                    let token = sampler.sample(&mut logits.clone(), position).unwrap();
                    sampler.accept(token);
                }
            }
        }
        let banned = SamplerParams {
            logit_bias: vec![(0, f32::NEG_INFINITY)],
            ..mirostat(version)
        };
        let mut sampler = Sampler::new(banned, 1).unwrap();
        assert_eq!(sampler.sample(&mut [1.0], 0), Err(SamplingError::NoneLeft));
    }
}

#[test]
fn every_sampler_says_when_no_token_is_left() {
    let all = SamplerParams {
        top_n_sigma: 1.0,
        typical_p: 0.9,
        min_p: 0.1,
        xtc_probability: 1.0,
        dynatemp_range: 0.5,
        dry_multiplier: 1.0,
        dry_breakers: Vec::new(),
        logit_bias: vec![(0, f32::NEG_INFINITY), (1, f32::NEG_INFINITY)],
        ..SamplerParams::default()
    };
    for kind in SamplerKind::DEFAULT_ORDER {
        let params = SamplerParams {
            samplers: vec![kind],
            ..all.clone()
        };
        let mut sampler = Sampler::new(params, 2).unwrap();
        (0..4).for_each(|_| sampler.accept(0));
        let none = sampler.sample(&mut [1.0, 2.0], 0);
        assert_eq!(none, Err(SamplingError::NoneLeft), "{kind}");
    }
}

#[test]
fn dry_with_breakers_needs_the_tokenizer() {
    let params = SamplerParams {
        dry_multiplier: 0.8,
        ..SamplerParams::default()
    };
    let error = Sampler::new(params, 10).map(|_| ()).unwrap_err();
    assert_eq!(error, SamplingError::NoTokenizer);
}

#[test]
fn the_largest_dry_penalty_is_no_ban() {
    let params = SamplerParams {
        dry_multiplier: f32::MAX,
        dry_base: 1e30,
        dry_breakers: Vec::new(),
        samplers: vec![SamplerKind::Dry],
        ..bare()
    };
    let mut sampler = Sampler::new(params, 2).unwrap();
    (0..50).for_each(|_| sampler.accept(1));
    let left = sampler.candidates(&mut [0.0, 1.0], 0).unwrap();
    assert_eq!(
        (left[1].logit, left[0].weight, left[1].weight),
        (f32::MIN, 1.0, 0.0)
    );
}

#[test]
fn new_parameters_out_of_range_are_named() {
    let d = SamplerParams::default;
    #[rustfmt::skip]
    let cases = [
        (SamplerParams { top_n_sigma: f32::NAN, ..d() }, "top_n_sigma is NaN: it must be a number"),
        (SamplerParams { xtc_probability: 1.5, ..d() }, "xtc_probability is 1.5: it must be from 0 to 1"),
        (SamplerParams { xtc_threshold: -0.1, ..d() }, "xtc_threshold is -0.1: it must be from 0 to 1"),
        (SamplerParams { dynatemp_range: -1.0, ..d() }, "dynatemp_range is -1: it must be a number from 0 up"),
        (SamplerParams { dynatemp_exponent: f32::INFINITY, ..d() }, "dynatemp_exponent is inf"),
        (SamplerParams { dry_multiplier: -0.5, ..d() }, "dry_multiplier is -0.5: it must be a number from 0 up"),
        (SamplerParams { dry_base: 0.5, ..d() }, "dry_base is 0.5: it must be a number from 1 up"),
        (SamplerParams { dry_penalty_last_n: -2, ..d() }, "dry_penalty_last_n is -2: it must be -1 (all), 0 (off) or more"),
        (SamplerParams { dry_breakers: vec![String::new()], ..d() }, "dry_breakers is \"\": it must be texts of 1 to 40 bytes"),
        (SamplerParams { dry_breakers: vec!["x".repeat(41)], ..d() }, "dry_breakers is \"xxx"),
        (SamplerParams { dry_breakers: vec!["x".into(); 65], ..d() }, "dry_breakers is 65 texts: it must be 64 texts at most"),
        (SamplerParams { mirostat: 3, ..d() }, "mirostat is 3: it must be 0 (off), 1 or 2"),
        (SamplerParams { mirostat_ent: -1.0, ..d() }, "mirostat_ent is -1: it must be a number from 0 up"),
        (SamplerParams { mirostat_lr: f32::NAN, ..d() }, "mirostat_lr is NaN"),
        (SamplerParams { samplers: vec![SamplerKind::TopK; 2], ..d() }, "samplers is top_k twice: it must be a list that names each"),
    ];
    for (params, words) in cases {
        let error = params.validate().unwrap_err().to_string();
        assert!(error.starts_with(words), "{error}");
    }
}

#[test]
fn a_models_other_samplers_are_taken_too() {
    let mut m = Metadata::new();
    let sequence = "top_p;infill;temperature;xtc";
    m.insert("general.sampling.sequence", Value::Str(sequence.into()));
    m.insert("general.sampling.xtc_probability", Value::F32(0.5));
    m.insert("general.sampling.xtc_threshold", Value::F32(0.2));
    m.insert("general.sampling.mirostat", Value::I32(2));
    m.insert("general.sampling.mirostat_tau", Value::F32(4.0));
    m.insert("general.sampling.mirostat_eta", Value::F32(0.3));
    let want = SamplerParams {
        samplers: SamplerKind::parse_names("top_p;temperature;xtc").unwrap(),
        xtc_probability: 0.5,
        xtc_threshold: 0.2,
        mirostat: 2,
        mirostat_ent: 4.0,
        mirostat_lr: 0.3,
        ..SamplerParams::default()
    };
    assert_eq!(SamplerParams::with_model_defaults(&m), Ok(want));
    for (key, value, words) in [
        (
            "sequence",
            Value::F32(1.0),
            "general.sampling.sequence in the model file must be names",
        ),
        (
            "sequence",
            Value::Str("top_k;top_k".into()),
            "samplers is top_k twice",
        ),
        (
            "mirostat",
            Value::F32(1.5),
            "mirostat is 1.5: it must be 0 (off), 1 or 2",
        ),
        ("mirostat_eta", Value::F32(-1.0), "mirostat_lr is -1"),
    ] {
        let mut m = Metadata::new();
        m.insert(&format!("general.sampling.{key}"), value);
        let error = SamplerParams::with_model_defaults(&m).unwrap_err();
        assert!(error.to_string().starts_with(words), "{error}");
    }
}
