use proptest::prelude::*;

use super::{
    Constraint, ConstraintError, Sampler, SamplerParams, SamplingError, StopMatcher, log_probs,
};
use crate::gguf::{Metadata, Value};

/// Everything off: the softmax of the logits.
fn plain() -> SamplerParams {
    SamplerParams {
        temperature: 1.0,
        top_k: 0,
        top_p: 1.0,
        repeat_penalty: 1.0,
        ..SamplerParams::default()
    }
}

/// Logits of 1000 tokens with a hundred plausible ones.
fn logits(n: usize, salt: u32) -> Vec<f32> {
    (0..n as u32)
        .map(|i| {
            ((i.wrapping_add(salt).wrapping_mul(2_654_435_761) >> 8) as f32 / 1e6).sqrt() * 4.0
        })
        .collect()
}

/// The chain by its definition: f64, everything sorted. `None` where a cut lies so near that rounding decides.
fn naive(logits: &[f32], p: &SamplerParams) -> Option<Vec<(u32, f64)>> {
    let mut c: Vec<(u32, f64)> = logits
        .iter()
        .enumerate()
        .map(|(i, x)| (i as u32, f64::from(*x)))
        .collect();
    c.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    if p.top_k > 0 {
        c.truncate(p.top_k as usize);
    }
    let softmax = |c: &[(u32, f64)], t: f64| -> Vec<f64> {
        let max = c.iter().map(|x| x.1).fold(f64::NEG_INFINITY, f64::max);
        let e: Vec<f64> = c.iter().map(|x| ((x.1 - max) / t).exp()).collect();
        let sum: f64 = e.iter().sum();
        e.iter().map(|x| x / sum).collect()
    };
    let cut = |probs: &[f64], limit: f64| -> Option<usize> {
        let mut sum = 0.0;
        for (i, x) in probs.iter().enumerate() {
            sum += x;
            if (sum - limit).abs() < 1e-5 {
                return None;
            }
            if sum >= limit {
                return Some(i + 1);
            }
        }
        Some(probs.len())
    };
    if p.typical_p < 1.0 {
        let probs = softmax(&c, 1.0);
        let entropy: f64 = -probs.iter().map(|x| x * x.ln()).sum::<f64>();
        let mut order: Vec<usize> = (0..c.len()).collect();
        let shift: Vec<f64> = probs.iter().map(|x| (-x.ln() - entropy).abs()).collect();
        order.sort_by(|a, b| shift[*a].total_cmp(&shift[*b]));
        // Two tokens at one distance from the entropy: rounding decides which comes first.
        if order
            .windows(2)
            .any(|w| (shift[w[0]] - shift[w[1]]).abs() < 1e-4 && c[w[0]].1 != c[w[1]].1)
        {
            return None;
        }
        let sorted: Vec<f64> = order.iter().map(|i| probs[*i]).collect();
        let keep = cut(&sorted, f64::from(p.typical_p))?;
        c = order[..keep].iter().map(|i| c[*i]).collect();
        c.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    }
    if p.top_p < 1.0 {
        let keep = cut(&softmax(&c, 1.0), f64::from(p.top_p))?;
        c.truncate(keep);
    }
    if p.min_p > 0.0 {
        let least = c[0].1 + f64::from(p.min_p).ln();
        if c.iter().any(|x| (x.1 - least).abs() < 1e-5) {
            return None;
        }
        c.retain(|x| x.1 >= least);
    }
    let probs = softmax(&c, f64::from(p.temperature));
    let mut out: Vec<(u32, f64)> = c.iter().zip(probs).map(|(x, p)| (x.0, p)).collect();
    out.sort_by_key(|x| x.0);
    Some(out)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn the_chain_is_its_definition(
        logits in prop::collection::vec(-12i32..12, 1..300).prop_flat_map(|coarse| {
            let n = coarse.len();
            (Just(coarse), prop::collection::vec(-1.0f32..1.0, n), any::<bool>())
        }),
        top_k in prop_oneof![Just(0u32), 1u32..60],
        typical_p in prop_oneof![Just(1.0f32), 0.05f32..1.0],
        top_p in prop_oneof![Just(1.0f32), 0.01f32..1.0],
        min_p in prop_oneof![Just(0.0f32), 0.001f32..0.9],
        temperature in 0.1f32..3.0,
    ) {
        // Coarse logits have many ties.
        let (coarse, fine, ties) = logits;
        let mut logits: Vec<f32> = coarse.iter().zip(&fine).map(|(c, f)| *c as f32 + if ties { 0.0 } else { *f }).collect();
        let params = SamplerParams { temperature, top_k, top_p, min_p, typical_p, ..plain() };
        if let Some(want) = naive(&logits, &params) {
            let mut sampler = Sampler::new(params, logits.len()).unwrap();
            let kept = sampler.candidates(&mut logits, 0).unwrap();
            let total: f64 = kept.iter().map(|c| f64::from(c.weight)).sum();
            prop_assert_eq!(kept.iter().map(|c| c.id).collect::<Vec<_>>(), want.iter().map(|c| c.0).collect::<Vec<_>>());
            for (c, w) in kept.iter().zip(&want) {
                prop_assert!((f64::from(c.weight) / total - w.1).abs() < 1e-6, "{:?} {:?}", c, w);
            }
        }
    }

    #[test]
    fn stops_do_not_depend_on_where_pieces_are_cut(text in "[abé]{0,40}", stops in prop::collection::vec("[abé]{1,5}", 0..4), cuts in prop::collection::vec(0usize..40, 0..12)) {
        let ends = stops.iter().filter_map(|s| text.find(s.as_str()).map(|at| (at + s.len(), at)));
        let want = ends.min().map_or(text.as_str(), |(_, at)| &text[..at]);
        let longest = stops.iter().map(String::len).max().unwrap_or(0);
        let mut matcher = StopMatcher::new(stops.clone());
        let (mut shown, mut given) = (String::new(), 0);
        let mut bounds: Vec<usize> = cuts.into_iter().filter(|c| *c < text.len() && text.is_char_boundary(*c)).collect();
        bounds.sort();
        bounds.push(text.len());
        let mut at = 0;
        for end in bounds {
            let step = matcher.push(&text[at..end]);
            given += end - at;
            at = end;
            shown.push_str(&step.text);
            prop_assert!(want.starts_with(&shown));
            prop_assert!(matcher.is_stopped() || given - shown.len() < longest.max(1));
            prop_assert_eq!(step.stop.is_some() || matcher.is_stopped(), matcher.is_stopped());
        }
        shown.push_str(&matcher.finish());
        prop_assert_eq!(shown, want);
    }
}

#[test]
fn llama_cpp_11538_stop_over_tokens() {
    let mut m = StopMatcher::new(vec!["lazy dog".into()]);
    let mut shown = String::new();
    let mut stop = None;
    for token in [
        "The", " fox", " jumps", " over", " the", " la", "zy", " d", "og", ".", " More",
    ] {
        let step = m.push(token);
        shown.push_str(&step.text);
        stop = stop.or(step.stop);
    }
    assert_eq!(
        (shown.as_str(), stop.as_deref()),
        ("The fox jumps over the ", Some("lazy dog"))
    );
    assert_eq!(m.finish(), "");
}

#[test]
fn swiftlm_126_what_only_looked_like_a_stop_is_shown() {
    let mut m = StopMatcher::new(vec!["own fox".into()]);
    let shown: Vec<String> = ["br", "own", " f", "rog", " br", "o", "wn fo", "x!"]
        .iter()
        .map(|t| m.push(t).text)
        .collect();
    assert_eq!(shown, ["br", "", "", "own frog", " br", "", "", ""]);
    assert!(m.is_stopped());
    let mut m = StopMatcher::new(vec!["own fox".into()]);
    assert_eq!(m.push("unkn").text, "unkn");
    assert_eq!(m.push("own").text + &m.finish(), "own");
}

#[test]
fn ollama_586_one_seed_twice_another_seed() {
    let run = |seed: u64| -> Vec<u32> {
        let mut sampler = Sampler::new(
            SamplerParams {
                seed,
                ..SamplerParams::default()
            },
            1000,
        )
        .unwrap();
        (0..50u32)
            .map(|position| {
                let token = sampler
                    .sample(&mut logits(1000, position * 77), u64::from(position))
                    .unwrap();
                sampler.accept(token);
                token
            })
            .collect()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_draw_depends_on_choice_and_position_only() {
    let mut a = Sampler::new(plain(), 1000).unwrap();
    let mut b = Sampler::new(plain(), 1000).unwrap();
    let at = |s: &mut Sampler, position| s.sample(&mut logits(1000, 5), position).unwrap();
    let first: Vec<u32> = (0..20).map(|p| at(&mut a, p)).collect();
    let backwards: Vec<u32> = (0..20).rev().map(|p| at(&mut b, p)).collect();
    assert!(first.iter().eq(backwards.iter().rev()));
    let mut other = Sampler::new(plain(), 1000).unwrap().with_choice(1);
    assert_ne!(
        first,
        (0..20).map(|p| at(&mut other, p)).collect::<Vec<_>>()
    );
}

#[test]
fn draws_follow_the_probabilities() {
    let source = [0.0f32, 1.0, 2.0, -1.0, 1.5];
    let total: f64 = source.iter().map(|x| f64::from(*x).exp()).sum();
    let mut sampler = Sampler::new(plain(), 5).unwrap();
    let mut seen = [0u32; 5];
    for position in 0..50_000 {
        seen[sampler.sample(&mut source.to_vec(), position).unwrap() as usize] += 1;
    }
    for (n, x) in seen.iter().zip(source) {
        let p = f64::from(x).exp() / total;
        assert!(
            (f64::from(*n) / 50_000.0 - p).abs() < 4.0 * (p * (1.0 - p) / 50_000.0).sqrt(),
            "{seen:?}"
        );
    }
}

#[test]
fn temperature_zero_is_the_argmax_after_bias_and_penalties() {
    let params = SamplerParams {
        temperature: 0.0,
        repeat_penalty: 2.0,
        logit_bias: vec![(1, -5.0)],
        ..plain()
    };
    let mut sampler = Sampler::new(params, 4).unwrap();
    let source = [1.0f32, 9.0, 6.0, 4.0];
    assert_eq!(sampler.sample(&mut source.to_vec(), 0), Ok(2)); // 9 - 5 < 6
    sampler.accept(2);
    assert_eq!(sampler.sample(&mut source.to_vec(), 0), Ok(1)); // 6 / 2 < 4: a tie of 1 and 3, the lower id
}

#[test]
fn penalties_see_the_last_n_tokens() {
    let params = SamplerParams {
        temperature: 0.0,
        repeat_last_n: 2,
        presence_penalty: 3.0,
        ..plain()
    };
    let mut sampler = Sampler::new(params.clone(), 3).unwrap();
    let best = |s: &mut Sampler| s.sample(&mut [3.0, 2.0, 1.0], 0).unwrap();
    [0, 1].iter().for_each(|t| sampler.accept(*t));
    assert_eq!(best(&mut sampler), 2);
    sampler.accept(2); // 0 is forgotten
    assert_eq!(best(&mut sampler), 0);
    sampler.reset();
    assert_eq!(best(&mut sampler), 0);
    let mut all = Sampler::new(
        SamplerParams {
            repeat_last_n: -1,
            ..params
        },
        3,
    )
    .unwrap();
    [0, 1, 1, 1].iter().for_each(|t| all.accept(*t));
    assert_eq!(best(&mut all), 2);
}

#[test]
fn a_constraint_and_a_ban_leave_what_is_allowed() {
    struct Only(u32);
    impl Constraint for Only {
        fn mask(&mut self, logits: &mut [f32]) -> Result<(), ConstraintError> {
            for (i, x) in logits.iter_mut().enumerate() {
                if i as u32 != self.0 {
                    *x = f32::NEG_INFINITY;
                }
            }
            Ok(())
        }
        fn accept(&mut self, _: u32) -> Result<(), ConstraintError> {
            Ok(())
        }
        fn is_done(&self) -> bool {
            false
        }
        fn boxed_clone(&self) -> Box<dyn Constraint> {
            Box::new(Only(self.0))
        }
    }
    for temperature in [0.0, 1.0] {
        for top_k in [0, 2] {
            let mut sampler = Sampler::new(
                SamplerParams {
                    temperature,
                    top_k,
                    ..plain()
                },
                50,
            )
            .unwrap();
            assert_eq!(
                sampler.sample_constrained(&mut logits(50, 1), 0, Some(&mut Only(7))),
                Ok(7)
            );
            let banned = SamplerParams {
                temperature,
                top_k,
                logit_bias: vec![(7, f32::NEG_INFINITY)],
                ..plain()
            };
            let mut sampler = Sampler::new(banned, 50).unwrap();
            assert_eq!(
                sampler.sample_constrained(&mut logits(50, 1), 0, Some(&mut Only(7))),
                Err(SamplingError::NoneLeft)
            );
        }
    }
}

#[test]
fn bad_logits_are_an_error_that_names_the_token() {
    let mut sampler = Sampler::new(SamplerParams::default(), 100).unwrap();
    let mut bad = logits(100, 0);
    bad[63] = f32::NAN;
    let error = sampler.sample(&mut bad, 0).unwrap_err().to_string();
    assert!(error.contains("token 63 is NaN"), "{error}");
    assert_eq!(
        sampler.sample(&mut [0.0; 99], 0),
        Err(SamplingError::Length {
            got: 99,
            expected: 100
        })
    );
}

#[test]
fn extreme_settings_still_choose() {
    let d = plain();
    for params in [
        SamplerParams {
            top_p: 0.0,
            ..d.clone()
        },
        SamplerParams {
            typical_p: 0.0,
            ..d.clone()
        },
        SamplerParams {
            temperature: 1e-30,
            ..d.clone()
        },
        SamplerParams {
            repeat_penalty: 1e-38,
            ..d.clone()
        },
        SamplerParams {
            logit_bias: vec![(3, f32::MAX)],
            ..d.clone()
        },
        SamplerParams {
            top_k: u32::MAX,
            repeat_last_n: i32::MAX,
            ..d
        },
    ] {
        let mut sampler = Sampler::new(params.clone(), 100).unwrap();
        sampler.accept(3);
        let kept = sampler.candidates(&mut logits(100, 9), 0).unwrap();
        assert!(
            kept.iter().all(|c| c.weight.is_finite()) && kept.iter().any(|c| c.weight == 1.0),
            "{params:?}: {kept:?}"
        );
    }
}

#[test]
fn parameters_out_of_range_are_named() {
    let d = SamplerParams::default;
    for (params, words) in [
        (
            SamplerParams {
                temperature: f32::NAN,
                ..d()
            },
            "temperature is NaN: it must be a number from 0 up",
        ),
        (
            SamplerParams {
                temperature: -1.0,
                ..d()
            },
            "temperature is -1",
        ),
        (
            SamplerParams { top_p: 1.5, ..d() },
            "top_p is 1.5: it must be from 0 to 1",
        ),
        (SamplerParams { min_p: -0.1, ..d() }, "min_p is -0.1"),
        (
            SamplerParams {
                typical_p: f32::INFINITY,
                ..d()
            },
            "typical_p is inf",
        ),
        (
            SamplerParams {
                repeat_penalty: 0.0,
                ..d()
            },
            "repeat_penalty is 0: it must be a number above 0",
        ),
        (
            SamplerParams {
                repeat_last_n: -2,
                ..d()
            },
            "repeat_last_n is -2",
        ),
        (
            SamplerParams {
                frequency_penalty: 1e9,
                ..d()
            },
            "frequency_penalty is 1000000000",
        ),
        (
            SamplerParams {
                presence_penalty: f32::NAN,
                ..d()
            },
            "presence_penalty is NaN",
        ),
        (
            SamplerParams {
                logit_bias: vec![(1, f32::NAN)],
                ..d()
            },
            "logit_bias is NaN",
        ),
        (
            SamplerParams {
                logit_bias: vec![(10, 1.0)],
                ..d()
            },
            "logit_bias is token 10: it must be a token of the vocabulary",
        ),
    ] {
        let error = Sampler::new(params, 10)
            .map(|_| ())
            .unwrap_err()
            .to_string();
        assert!(error.starts_with(words), "{error}");
    }
}

#[test]
fn a_models_own_settings_are_taken() {
    let mut m = Metadata::new();
    m.insert("general.sampling.temp", Value::F32(0.6));
    m.insert("general.sampling.top_k", Value::I32(20));
    m.insert("general.sampling.penalty_last_n", Value::I32(-1));
    let p = SamplerParams::with_model_defaults(&m).unwrap();
    assert_eq!(
        p,
        SamplerParams {
            temperature: 0.6,
            top_k: 20,
            repeat_last_n: -1,
            ..SamplerParams::default()
        }
    );
    m.insert("general.sampling.top_p", Value::F32(7.0));
    assert!(
        SamplerParams::with_model_defaults(&m)
            .unwrap_err()
            .to_string()
            .starts_with("top_p is 7")
    );
    let mut m = Metadata::new();
    m.insert("general.sampling.min_p", Value::Bool(true));
    assert!(
        SamplerParams::with_model_defaults(&m)
            .unwrap_err()
            .to_string()
            .starts_with("general.sampling.min_p in the model file")
    );
}

#[test]
fn log_probabilities_are_those_of_the_softmax() {
    let source = logits(1000, 3);
    let total: f64 = source.iter().map(|x| f64::from(*x).exp()).sum::<f64>().ln();
    let got = log_probs(&source, 17, 5).unwrap();
    assert!((f64::from(got.chosen) - (f64::from(source[17]) - total)).abs() < 1e-5);
    let mut sorted: Vec<(u32, f32)> = source
        .iter()
        .enumerate()
        .map(|(i, x)| (i as u32, *x))
        .collect();
    sorted.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    assert_eq!(
        got.top.iter().map(|t| t.0).collect::<Vec<_>>(),
        sorted[..5].iter().map(|t| t.0).collect::<Vec<_>>()
    );
    assert!(
        got.top
            .iter()
            .zip(&sorted)
            .all(|(a, b)| (f64::from(a.1) - (f64::from(b.1) - total)).abs() < 1e-5)
    );
    assert_eq!(log_probs(&[1.0, 2.0], 0, 9).unwrap().top.len(), 2);
    assert!(log_probs(&[1.0], 4, 0).is_err());
}
