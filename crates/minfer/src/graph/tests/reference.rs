//! The reference against torch and transformers (`cargo xtask golden graph_ops`, `rope`).

use serde_json::Value;

use crate::graph::reference::{Decoded, Matrix, eval, kv_store};
use crate::graph::*;

fn load(path: &str) -> Value {
    let path = format!("{}/tests/data/{path}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(&path).expect(&path)).expect(&path)
}

fn numbers(v: &Value) -> Vec<f64> {
    let all = v.as_array().expect("an array");
    all.iter().map(|n| n.as_f64().expect("a number")).collect()
}

fn size(v: &Value) -> usize {
    v.as_u64().expect("a size") as usize
}

fn matrix(v: &Value) -> Matrix {
    Matrix {
        rows: size(&v["rows"]),
        cols: size(&v["cols"]),
        data: numbers(&v["data"]),
    }
}

fn node(op: Op, cols: usize) -> Node {
    Node {
        op,
        srcs: Vec::new(),
        shape: Shape {
            rows: Rows::Tokens,
            cols,
        },
        dtype: DType::F32,
        backend: None,
        layer: None,
        name: "tested",
    }
}

fn assert_same(got: &Matrix, want: &Matrix, what: &str) {
    assert_eq!((got.rows, got.cols), (want.rows, want.cols), "{what}");
    for (i, (g, w)) in got.data.iter().zip(&want.data).enumerate() {
        assert!(
            (g - w).abs() <= 1e-12 * w.abs().max(1.0),
            "{what}[{i}]: {g}, expected {w}"
        );
    }
}

const W: WeightId = WeightId(0);
const BIAS: WeightId = WeightId(1);
const NORM: WeightId = WeightId(2);

fn weights(golden: &Value) -> Decoded {
    let mut decoded = Decoded::default();
    for (id, v) in [
        (W, &golden["w"]["data"]),
        (BIAS, &golden["bias"]),
        (NORM, &golden["norm"]),
    ] {
        let values: Vec<f32> = numbers(v).iter().map(|n| *n as f32).collect();
        decoded.insert(id, &values);
    }
    decoded
}

fn product() -> MatMul {
    MatMul {
        parts: vec![MatPart {
            weight: W,
            bias: Some(BIAS),
            rows: 5,
        }],
        norm: None,
        glu: None,
        residual: false,
    }
}

#[test]
fn plain_operators_equal_torch() {
    let golden = load("graph/ops.json");
    let weights = weights(&golden);
    let (x, y) = (matrix(&golden["x"]), matrix(&golden["y"]));
    let norm = Norm {
        weight: NORM,
        eps: golden["eps"].as_f64().unwrap() as f32,
        group: 4,
    };
    let ids = Matrix::column(&[4, 0, 4]);
    let cases = [
        ("rms_norm", Op::RmsNorm(norm), vec![&x]),
        ("matmul", Op::MatMul(product()), vec![&x]),
        ("add", Op::Add, vec![&x, &y]),
        ("mul", Op::Mul, vec![&x, &y]),
        ("scale", Op::Scale { factor: 0.75 }, vec![&x]),
        ("silu", Op::Act(Activation::Silu), vec![&x]),
        ("gelu", Op::Act(Activation::Gelu), vec![&x]),
        ("swiglu", Op::Glu(Activation::Silu), vec![&x, &y]),
        ("get_rows", Op::GetRows { weight: W }, vec![&ids]),
    ];
    for (name, op, srcs) in cases {
        let want = matrix(&golden[name]);
        let got = eval(&node(op, want.cols), &srcs, &weights);
        assert_same(&got, &want, name);
    }
}

#[test]
fn rope_equals_transformers_in_both_pairings() {
    let golden = &load("graph/ops.json")["rope"];
    let (n_dims, head_dim) = (size(&golden["n_dims"]), size(&golden["head_dim"]));
    let table = RopeTable {
        n_dims,
        freq_base: golden["freq_base"].as_f64().unwrap() as f32,
        scaling: RopeScaling::None,
        freq_factors: None,
        turn_only: false,
    };
    let positions = numbers(&golden["positions"]);
    let positions = Matrix::from_fn(positions.len(), 1, |r, _| positions[r]);
    let none = Decoded::default();
    let angles = eval(&node(Op::RopeTable(table), n_dims), &[&positions], &none);
    assert_same(&angles, &matrix(&golden["table"]), "table");
    let x = matrix(&golden["x"]);
    for (name, kind) in [
        ("halves", RopeKind::Halves),
        ("interleaved", RopeKind::Interleaved),
    ] {
        let op = Op::Rope {
            kind,
            head_dim,
            n_dims,
        };
        let got = eval(&node(op, x.cols), &[&x, &angles], &none);
        assert_same(&got, &matrix(&golden[name]), name);
    }
}

#[test]
fn stretched_frequencies_equal_transformers() {
    for case in load("rope/freqs.json").as_array().unwrap() {
        let number = |v: &Value, or: f64| v.as_f64().unwrap_or(or) as f32;
        let (p, name) = (&case["params"], case["name"].as_str().unwrap());
        let factor = number(&p["factor"], 1.0);
        let mut weights = Decoded::default();
        let (mut scaling, mut freq_factors) = (RopeScaling::None, None);
        match name {
            "linear" => scaling = RopeScaling::Linear { factor },
            "yarn" => {
                scaling = RopeScaling::Yarn {
                    factor,
                    n_ctx_orig: p["original_max_position_embeddings"].as_u64().unwrap() as u32,
                    ext_factor: 1.0,
                    attn_factor: 1.0,
                    beta_fast: number(&p["beta_fast"], 32.0),
                    beta_slow: number(&p["beta_slow"], 1.0),
                }
            }
            _ => {
                let factors: Vec<f32> = numbers(&case["factors"])
                    .iter()
                    .map(|n| *n as f32)
                    .collect();
                weights.insert(W, &factors);
                freq_factors = Some(W);
            }
        }
        let table = RopeTable {
            n_dims: size(&case["n_dims"]),
            freq_base: number(&case["freq_base"], 0.0),
            scaling,
            freq_factors,
            turn_only: false,
        };
        let at_one = Matrix::column(&[1]);
        let got = eval(
            &node(Op::RopeTable(table), table.n_dims),
            &[&at_one],
            &weights,
        );
        let magnitude = case["magnitude"].as_f64().unwrap();
        for (pair, freq) in numbers(&case["freqs"]).iter().enumerate() {
            let (cos, sin) = (got.at(0, pair), got.at(0, table.n_dims / 2 + pair));
            // Theirs are f32.
            let what = format!("{name} {} pair {pair}", table.n_dims);
            assert!((cos - magnitude * freq.cos()).abs() < 1e-6, "{what}");
            assert!(
                (sin - magnitude * freq.sin()).abs() < 1e-6 * freq.max(1e-3),
                "{what}"
            );
        }
    }
}

#[test]
fn attention_over_scattered_pages_equals_torch() {
    let golden = &load("graph/ops.json")["attention"];
    // Two sequences: 40 positions need two pages, five need one. Lines are 0 and 1.
    let table = Matrix {
        rows: 2,
        cols: 2,
        data: vec![3.0, 0.0, 2.0, -1.0],
    };
    let spec = Attention {
        layer: 0,
        n_head: size(&golden["n_head"]),
        n_head_kv: size(&golden["n_head_kv"]),
        head_dim: size(&golden["head_dim"]),
        scale: golden["scale"].as_f64().unwrap() as f32,
        window: None,
        kind: LayerKind::Full,
    };
    let width = spec.n_head_kv * spec.head_dim;
    for ty in [KvType::F32, KvType::F16] {
        let region = |name: &str| {
            let mut region = Matrix::from_fn(4 * PAGE, width, |_, _| f64::NAN);
            for seq in 0..2 {
                let rows = matrix(&golden[name][seq]);
                let slots = Matrix::from_fn(rows.rows, 1, |r, _| r as f64);
                let seqs = Matrix::from_fn(rows.rows, 1, |_, _| seq as f64);
                kv_store(&mut region, &[&rows, &slots, &seqs, &table], ty);
            }
            region
        };
        let (k, v) = (region("k"), region("v"));
        let rows: Vec<Vec<f64>> = golden["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(numbers)
            .collect();
        let seqs = Matrix::from_fn(rows.len(), 1, |r, _| rows[r][0]);
        let slots = Matrix::from_fn(rows.len(), 1, |r, _| rows[r][1]);
        let q = matrix(&golden["q"]);
        for (name, window) in [("full", None), ("windowed", Some(size(&golden["window"])))] {
            let op = Op::Attention(Attention { window, ..spec });
            let srcs = [&q, &k, &v, &slots, &seqs, &table];
            let got = eval(&node(op, q.cols), &srcs, &Decoded::default());
            assert_same(&got, &matrix(&golden[name]), name);
        }
    }
}

#[test]
fn a_fused_product_is_its_parts() {
    let golden = load("graph/ops.json");
    let weights = weights(&golden);
    let (x, y) = (matrix(&golden["x"]), matrix(&golden["y"]));
    let norm = Norm {
        weight: NORM,
        eps: 0.5,
        group: 4,
    };
    let one = |op, srcs: &[&Matrix]| eval(&node(op, 5), srcs, &weights);
    let normed = one(Op::RmsNorm(norm), &[&x]);
    let p = one(Op::MatMul(product()), &[&normed]);
    let mut fused = product();
    fused.norm = Some(norm);
    assert_eq!(one(Op::MatMul(fused.clone()), &[&x]), p);
    fused.parts.push(fused.parts[0]);
    let pair = one(Op::MatMul(fused.clone()), &[&x]);
    assert_eq!(pair.cols, 10);
    assert_eq!(one(Op::View { offset: 5 }, &[&pair]), p);
    fused.glu = Some(Activation::Gelu);
    let gated = one(Op::Glu(Activation::Gelu), &[&p, &p]);
    assert_eq!(one(Op::MatMul(fused), &[&x]), gated);
    let mut added = product();
    added.residual = true;
    let added_to = one(Op::View { offset: 2 }, &[&y]);
    let want = one(Op::Add, &[&one(Op::MatMul(product()), &[&x]), &added_to]);
    assert_eq!(one(Op::MatMul(added), &[&x, &added_to]), want);
}
