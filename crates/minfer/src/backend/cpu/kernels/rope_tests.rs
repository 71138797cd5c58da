//! Tests of `rope`: frequencies against transformers, rotation against f64 and across machines.

use serde_json::Value;

use super::super::testing::on_machines;
use super::*;
use crate::numeric::test_rng::Rng;

fn numbers(v: &Value) -> Vec<f64> {
    v.as_array()
        .unwrap()
        .iter()
        .map(|x| x.as_f64().unwrap())
        .collect()
}

fn table(case: &Value) -> RopeTable {
    let p = &case["params"];
    let number = |name: &str, default: f64| p[name].as_f64().unwrap_or(default) as f32;
    let scaling = match case["name"].as_str().unwrap() {
        "linear" => RopeScaling::Linear {
            factor: number("factor", 0.0),
        },
        "llama3" => RopeScaling::None,
        "yarn" => RopeScaling::Yarn {
            factor: number("factor", 0.0),
            n_ctx_orig: p["original_max_position_embeddings"].as_u64().unwrap() as u32,
            ext_factor: 1.0,
            attn_factor: 1.0,
            beta_fast: number("beta_fast", 32.0),
            beta_slow: number("beta_slow", 1.0),
        },
        other => panic!("unknown case {other}"),
    };
    RopeTable {
        n_dims: case["n_dims"].as_u64().unwrap() as usize,
        freq_base: case["freq_base"].as_f64().unwrap() as f32,
        scaling,
        freq_factors: None,
        turn_only: false,
    }
}

#[test]
fn frequencies_are_those_of_transformers() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/rope/freqs.json");
    let cases: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut kinds = std::collections::BTreeSet::new();
    for case in cases.as_array().unwrap() {
        let factors: Option<Vec<f32>> = case
            .get("factors")
            .map(|f| numbers(f).iter().map(|x| *x as f32).collect());
        let ours = RopeFreqs::new(&table(case), factors.as_deref());
        let want = numbers(&case["freqs"]);
        assert_eq!(ours.freqs.len(), want.len());
        for (i, (a, b)) in ours.freqs.iter().zip(&want).enumerate() {
            // Theirs are f32, with an f32 power.
            assert!(
                (a - b).abs() <= 1e-6 * b,
                "{} pair {i}: {a:e}, transformers {b:e}",
                case["name"]
            );
        }
        let magnitude = case["magnitude"].as_f64().unwrap();
        assert!(
            (ours.magnitude - magnitude).abs() < 1e-12,
            "{}",
            case["name"]
        );
        kinds.insert(case["name"].as_str().unwrap().to_string());
    }
    assert_eq!(kinds.len(), 3, "linear, llama3 and yarn are all there");
}

#[test]
fn angles_stay_exact_at_large_positions() {
    let t = RopeTable {
        n_dims: 64,
        freq_base: 1e4,
        scaling: RopeScaling::None,
        freq_factors: None,
        turn_only: false,
    };
    let f = RopeFreqs::new(&t, None);
    let mut row = vec![0.0; 64];
    for position in [0, 1, 4095, 131_071, 1_000_000] {
        f.fill_row(position, &mut row);
        for i in 0..32 {
            let angle = f64::from(position) * f.freqs[i];
            assert!(
                (f64::from(row[i]) - angle.cos()).abs() < 6.0e-8,
                "cos {position} {i}"
            );
            assert!(
                (f64::from(row[32 + i]) - angle.sin()).abs() < 6.0e-8,
                "sin {position} {i}"
            );
        }
    }
}

#[test]
fn both_pairings_rotate_as_in_f64_and_alike_on_every_machine() {
    let mut rng = Rng::new(11);
    for (head_dim, n_dims) in [(64, 64), (80, 32), (96, 96), (256, 256), (10, 6)] {
        let t = RopeTable {
            n_dims,
            freq_base: 5e5,
            scaling: RopeScaling::None,
            freq_factors: None,
            turn_only: false,
        };
        let mut angles = vec![0.0; n_dims];
        RopeFreqs::new(&t, None).fill_row(77, &mut angles);
        let x = rng.vec(3 * head_dim, 4.0);
        for kind in [RopeKind::Interleaved, RopeKind::Halves] {
            let out = on_machines(|m| {
                let mut row = x.clone();
                rope_row(m, kind, &mut row, head_dim, &angles);
                row
            });
            let mut want: Vec<f64> = x.iter().map(|v| f64::from(*v)).collect();
            for head in want.chunks_exact_mut(head_dim) {
                for i in 0..n_dims / 2 {
                    let (a, b) = match kind {
                        RopeKind::Interleaved => (2 * i, 2 * i + 1),
                        RopeKind::Halves => (i, i + n_dims / 2),
                    };
                    let (c, s) = (f64::from(angles[i]), f64::from(angles[n_dims / 2 + i]));
                    (head[a], head[b]) = (head[a] * c - head[b] * s, head[b] * c + head[a] * s);
                }
            }
            for (i, (a, b)) in out.iter().zip(&want).enumerate() {
                assert!(
                    (f64::from(*a) - b).abs() < 1e-6,
                    "{kind:?} {head_dim}/{n_dims} {i}"
                );
            }
        }
    }
}
