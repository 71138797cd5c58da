//! The chain compared with llama.cpp's (`tests/data/sampling`, made by `xtask/golden/sampling.py`).

use serde::Deserialize;

use super::{Sampler, SamplerParams};

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

#[test]
fn keeps_what_llama_cpp_keeps_with_the_same_probabilities() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/data/sampling/chain.json"
    );
    let golden: Golden = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
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
            .candidates(&mut vector.logits.clone())
            .unwrap()
            .to_vec();
        let ids: Vec<u32> = kept.iter().map(|c| c.id).collect();
        assert_eq!(ids, c.ids, "case {i}: {params:?}");
        let total: f64 = kept.iter().map(|c| f64::from(c.weight)).sum();
        for (candidate, want) in kept.iter().zip(&c.p) {
            let p = f64::from(candidate.weight) / total;
            assert!(
                (p - want).abs() < 2e-6 * want.max(1e-3),
                "case {i}: token {} has {p}, not {want}: {params:?}",
                candidate.id
            );
        }
    }
}
