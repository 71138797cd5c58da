//! The chain compared with llama.cpp's (`tests/data/sampling`, made by `xtask/golden/sampling.py`).

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Candidate, Sampler, SamplerKind, SamplerParams, SamplerState};
use crate::gguf::GgufFile;
use crate::tokenizer::Tokenizer;

#[derive(Deserialize)]
struct Golden {
    vectors: Vec<Vector>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Vector {
    logits: Vec<f32>,
    history: Vec<u32>,
}

#[derive(Deserialize)]
struct Case {
    vector: usize,
    top_k: u32,
    typical_p: f32,
    top_p: f32,
    min_p: f32,
    temperature: f32,
    repeat_penalty: f32,
    frequency_penalty: f32,
    presence_penalty: f32,
    repeat_last_n: i32,
    ids: Vec<u32>,
    p: Vec<f64>,
}

/// A chain with the other samplers.
#[derive(Deserialize)]
struct Other {
    vector: usize,
    set: Set,
    ids: Vec<u32>,
    p: Vec<f64>,
}

/// A step of mirostat.
#[derive(Deserialize)]
struct Step {
    mu: f64,
    token: u32,
    after: f64,
    #[serde(flatten)]
    case: Other,
}

#[derive(Deserialize)]
struct Samplers {
    chains: Vec<Other>,
    mirostat: Vec<Step>,
}

/// A text in the vocabulary of a family, and what DRY takes from the tokens after it.
#[derive(Deserialize)]
struct Repetition {
    family: String,
    text: String,
    tokens: Vec<u32>,
    set: Set,
    losses: Vec<(u32, f64)>,
}

/// What a case sets, other fields being off.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Set {
    top_k: Option<u32>,
    typical_p: Option<f32>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    temperature: Option<f32>,
    repeat_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    top_n_sigma: Option<f32>,
    xtc_probability: Option<f32>,
    xtc_threshold: Option<f32>,
    dynatemp_range: Option<f32>,
    dynatemp_exponent: Option<f32>,
    mirostat: Option<u32>,
    mirostat_ent: Option<f32>,
    mirostat_lr: Option<f32>,
    dry_multiplier: Option<f32>,
    dry_base: Option<f32>,
    dry_allowed_length: Option<u32>,
    dry_penalty_last_n: Option<i32>,
    dry_breakers: Option<Vec<String>>,
    samplers: Option<String>,
}

impl Set {
    fn params(&self) -> SamplerParams {
        let d = SamplerParams::default();
        let order = self.samplers.as_deref().map(|names| match names {
            "" => Vec::new(),
            names => SamplerKind::parse_names(names).unwrap(),
        });
        SamplerParams {
            top_k: self.top_k.unwrap_or(0),
            typical_p: self.typical_p.unwrap_or(1.0),
            top_p: self.top_p.unwrap_or(1.0),
            min_p: self.min_p.unwrap_or(0.0),
            temperature: self.temperature.unwrap_or(1.0),
            repeat_penalty: self.repeat_penalty.unwrap_or(1.0),
            frequency_penalty: self.frequency_penalty.unwrap_or(0.0),
            presence_penalty: self.presence_penalty.unwrap_or(0.0),
            top_n_sigma: self.top_n_sigma.unwrap_or(d.top_n_sigma),
            xtc_probability: self.xtc_probability.unwrap_or(d.xtc_probability),
            xtc_threshold: self.xtc_threshold.unwrap_or(d.xtc_threshold),
            dynatemp_range: self.dynatemp_range.unwrap_or(d.dynatemp_range),
            dynatemp_exponent: self.dynatemp_exponent.unwrap_or(d.dynatemp_exponent),
            mirostat: self.mirostat.unwrap_or(d.mirostat),
            mirostat_ent: self.mirostat_ent.unwrap_or(d.mirostat_ent),
            mirostat_lr: self.mirostat_lr.unwrap_or(d.mirostat_lr),
            dry_multiplier: self.dry_multiplier.unwrap_or(0.0),
            dry_base: self.dry_base.unwrap_or(d.dry_base),
            dry_allowed_length: self.dry_allowed_length.unwrap_or(d.dry_allowed_length),
            dry_penalty_last_n: self.dry_penalty_last_n.unwrap_or(d.dry_penalty_last_n),
            dry_breakers: self.dry_breakers.clone().unwrap_or(d.dry_breakers),
            samplers: order.unwrap_or(d.samplers),
            repeat_last_n: 64,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

/// A file of the golden data.
fn read<T: DeserializeOwned>(name: &str) -> T {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/sampling/");
    serde_json::from_str(&std::fs::read_to_string(format!("{folder}{name}")).unwrap()).unwrap()
}

/// Compares ids and probabilities, the latter to `off` of themselves.
fn compare(kept: &[Candidate], ids: &[u32], p: &[f64], off: f64, case: &str) {
    // What has no weight was rounded away there.
    let kept: Vec<&Candidate> = kept.iter().filter(|c| c.weight > 0.0).collect();
    let total: f64 = kept.iter().map(|c| f64::from(c.weight)).sum();
    let is_in = |c: &&&Candidate| f64::from(c.weight) / total > 1e-30;
    let found: Vec<u32> = kept.iter().filter(is_in).map(|c| c.id).collect();
    let wanted: Vec<u32> = ids
        .iter()
        .zip(p)
        .filter(|c| *c.1 > 1e-30)
        .map(|c| *c.0)
        .collect();
    assert_eq!(found, wanted, "{case}");
    for (candidate, want) in kept
        .iter()
        .filter(is_in)
        .zip(p.iter().filter(|p| **p > 1e-30))
    {
        let got = f64::from(candidate.weight) / total;
        assert!(
            (got - want).abs() < off * want.max(1e-3),
            "{case}: token {} has {got}, not {want}",
            candidate.id
        );
    }
}

#[test]
fn keeps_what_llama_cpp_keeps_with_the_same_probabilities() {
    let golden: Golden = read("chain.json");
    assert!(golden.cases.len() > 60);
    for (i, c) in golden.cases.iter().enumerate() {
        let params = SamplerParams {
            top_k: c.top_k,
            typical_p: c.typical_p,
            top_p: c.top_p,
            min_p: c.min_p,
            temperature: c.temperature,
            repeat_penalty: c.repeat_penalty,
            frequency_penalty: c.frequency_penalty,
            presence_penalty: c.presence_penalty,
            repeat_last_n: c.repeat_last_n,
            ..SamplerParams::default()
        };
        let vector = &golden.vectors[c.vector];
        let mut sampler = Sampler::new(params.clone(), vector.logits.len()).unwrap();
        vector.history.iter().for_each(|t| sampler.accept(*t));
        let kept = sampler
            .candidates(&mut vector.logits.clone(), 0)
            .unwrap()
            .to_vec();
        let ids: Vec<u32> = kept.iter().map(|c| c.id).collect();
        assert_eq!(ids, c.ids, "case {i}: {params:?}");
        compare(&kept, &c.ids, &c.p, 2e-6, &format!("case {i}: {params:?}"));
    }
}

#[test]
fn other_samplers_and_orders_keep_what_llama_cpp_keeps() {
    let vectors = read::<Golden>("chain.json").vectors;
    let cases = read::<Samplers>("samplers.json").chains;
    assert!(cases.len() > 90);
    for (i, c) in cases.iter().enumerate() {
        let vector = &vectors[c.vector];
        let mut sampler = Sampler::new(c.set.params(), vector.logits.len()).unwrap();
        vector.history.iter().for_each(|t| sampler.accept(*t));
        let kept = sampler.candidates(&mut vector.logits.clone(), 0).unwrap();
        compare(kept, &c.ids, &c.p, 1e-5, &format!("case {i}: {:?}", c.set));
    }
}

/// The whole of a state is mirostat's mu.
fn state(mu: f64) -> SamplerState {
    serde_json::from_value(serde_json::json!({ "mirostat_mu": mu.to_bits() })).unwrap()
}

#[test]
fn mirostat_keeps_what_llama_cpp_keeps_and_moves_mu_as_it_does() {
    let vectors = read::<Golden>("chain.json").vectors;
    let steps = read::<Samplers>("samplers.json").mirostat;
    assert!(steps.len() > 50);
    for (i, step) in steps.iter().enumerate() {
        let c = &step.case;
        let source = &vectors[c.vector].logits;
        let mut sampler = Sampler::new(c.set.params(), source.len()).unwrap();
        sampler.restore(&state(step.mu)).unwrap();
        let kept = sampler.candidates(&mut source.clone(), 0).unwrap();
        let case = format!("step {i}: mu {}, {:?}", step.mu, c.set);
        compare(kept, &c.ids, &c.p, 1e-5, &case);
        // At some position this token is drawn too.
        let place = (0..100_000)
            .find(|place| sampler.sample(&mut source.clone(), *place) == Ok(step.token));
        assert!(place.is_some(), "{case}");
        sampler.accept(step.token);
        let serde_json::Value::Number(bits) =
            serde_json::to_value(sampler.state()).unwrap()["mirostat_mu"].take()
        else {
            panic!("{case}");
        };
        let after = f64::from_bits(bits.as_u64().unwrap());
        assert!(
            (after - step.after).abs() < 1e-4,
            "{case}: {after}, not {}",
            step.after
        );
    }
}

#[test]
fn dry_takes_what_llama_cpp_takes() {
    let cases: Vec<Repetition> = read("dry.json");
    assert!(cases.iter().filter(|c| !c.losses.is_empty()).count() > 80);
    for c in &cases {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tokenizer/");
        let file = GgufFile::open(format!("{folder}{}.gguf", c.family).as_ref()).unwrap();
        let tokenizer = Tokenizer::from_metadata(file.metadata()).unwrap();
        let mut params = c.set.params();
        params.dry_multiplier = c.set.dry_multiplier.unwrap_or(0.8);
        let mut sampler = Sampler::with_tokenizer(params, &tokenizer).unwrap();
        c.tokens.iter().for_each(|t| sampler.accept(*t));
        let mut zeros = vec![0.0; tokenizer.n_vocab()];
        let left = sampler.candidates(&mut zeros, 0).unwrap();
        let case = format!("{} {}: {:?}", c.family, c.text, c.set);
        let lost: Vec<(u32, f64)> = left
            .iter()
            .filter(|c| c.logit != 0.0)
            .map(|c| (c.id, -f64::from(c.logit)))
            .collect();
        let ids = |losses: &[(u32, f64)]| losses.iter().map(|l| l.0).collect::<Vec<_>>();
        assert_eq!(ids(&lost), ids(&c.losses), "{case}");
        for (got, want) in lost.iter().zip(&c.losses) {
            assert!(
                (got.1 - want.1).abs() <= 1e-6 * want.1,
                "{case}: {got:?} {want:?}"
            );
        }
    }
}
