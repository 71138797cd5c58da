//! What every operator means, in plain loops over f64: the yardstick of the differential op test
//! and of the graph passes. Nothing here is fast, and no kernel copies its order of operations.
//!
//! Integers are kept as f64 too (exact up to 2^53). A KV region is a matrix with a row a position:
//! row `page * 32 + slot % 32`, columns `[n_head_kv][head_dim]`; real backends have layouts of
//! their own. Stored values are rounded to the region's type, since that is part of the meaning;
//! quantized activations are not, since that is a backend's approximation.

mod attention;
mod rope;

use std::collections::HashMap;

use super::{
    Activation, BatchInputs, Graph, Input, KvPart, KvType, MatMul, Node, Norm, Op, PAGE, Weight,
    WeightId, WeightSet,
};

/// A dense matrix of f64.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// `rows * cols` values, row after row.
    pub data: Vec<f64>,
}

impl Matrix {
    /// All zero.
    pub fn zeros(rows: usize, cols: usize) -> Matrix {
        Matrix {
            rows,
            cols,
            data: vec![0.0; rows * cols],
        }
    }

    /// From a function of row and column.
    pub fn from_fn(rows: usize, cols: usize, mut f: impl FnMut(usize, usize) -> f64) -> Matrix {
        let mut data = Vec::with_capacity(rows * cols);
        for r in 0..rows {
            data.extend((0..cols).map(|c| f(r, c)));
        }
        Matrix { rows, cols, data }
    }

    /// One column of integers.
    pub fn column(values: &[i32]) -> Matrix {
        Matrix::from_fn(values.len(), 1, |r, _| f64::from(values[r]))
    }

    /// A row.
    pub fn row(&self, r: usize) -> &[f64] {
        &self.data[r * self.cols..][..self.cols]
    }

    /// An element.
    pub fn at(&self, r: usize, c: usize) -> f64 {
        self.row(r)[c]
    }

    /// An element that is an index.
    fn index_at(&self, r: usize, c: usize) -> usize {
        self.at(r, c) as usize
    }
}

/// Weights as numbers.
#[derive(Default)]
pub struct Decoded {
    weights: HashMap<WeightId, Vec<f64>>,
}

impl Decoded {
    /// All weights of a set; `decode` turns a tensor's bytes into its values, row after row.
    pub fn new(set: &WeightSet, decode: &dyn Fn(&Weight) -> Vec<f32>) -> Decoded {
        let mut decoded = Decoded::default();
        for (id, weight) in set.iter() {
            decoded.insert(id, &decode(weight));
        }
        decoded
    }

    /// Adds one.
    pub fn insert(&mut self, id: WeightId, values: &[f32]) {
        let values = values.iter().map(|v| f64::from(*v)).collect();
        self.weights.insert(id, values);
    }

    /// Whether a weight is there.
    pub fn has(&self, id: WeightId) -> bool {
        self.weights.contains_key(&id)
    }

    /// Its values.
    ///
    /// # Panics
    /// If it was never added.
    pub fn get(&self, id: WeightId) -> &[f64] {
        &self.weights[&id]
    }
}

/// Values of an F32 tensor: the `decode` of tests that use no other format.
///
/// # Panics
/// For any other type.
pub fn decode_f32(weight: &Weight) -> Vec<f32> {
    assert_eq!(weight.ty, crate::numeric::GgmlType::F32, "{}", weight.name);
    let words = weight.data.bytes().chunks_exact(4);
    words
        .map(|w| f32::from_le_bytes([w[0], w[1], w[2], w[3]]))
        .collect()
}

/// A model's KV and weights, for whole graphs.
pub struct Reference {
    weights: Decoded,
    kv: HashMap<(usize, KvPart), Matrix>,
}

impl Reference {
    /// Over decoded weights, with empty KV.
    pub fn new(weights: Decoded) -> Reference {
        Reference {
            weights,
            kv: HashMap::new(),
        }
    }

    /// Every node's value for one batch, by node index (of a KV store: the region as it is after
    /// it). KV stays for the next call, whatever graph that brings.
    pub fn run(&mut self, graph: &Graph, inputs: &BatchInputs<'_>) -> Vec<Matrix> {
        let context = &graph.params.context;
        let mut values: Vec<Matrix> = Vec::with_capacity(graph.nodes.len());
        for node in &graph.nodes {
            let srcs: Vec<&Matrix> = node.srcs.iter().map(|s| &values[s.index()]).collect();
            let value = match node.op {
                Op::Input(input) => input_value(input, inputs, context.pages_per_seq),
                Op::KvStore { layer, part, .. } => {
                    let ty = match part {
                        KvPart::K => context.type_k,
                        KvPart::V => context.type_v,
                    };
                    let rows = context.pages_full.max(context.pages_windowed) * PAGE;
                    let region = self
                        .kv
                        .entry((layer, part))
                        .or_insert_with(|| Matrix::zeros(rows, node.shape.cols));
                    kv_store(region, &srcs, ty);
                    region.clone()
                }
                Op::KvShift { layer, .. } => {
                    let region = self.kv.get_mut(&(layer, KvPart::K));
                    let region = region.expect("keys are stored before they are turned");
                    kv_shift(region, &node.op, &srcs);
                    region.clone()
                }
                _ => eval(node, &srcs, &self.weights),
            };
            values.push(value);
        }
        values
    }
}

fn input_value(input: Input, inputs: &BatchInputs<'_>, pages_per_seq: usize) -> Matrix {
    let mut value = Matrix::column(inputs.of(input));
    if let Input::PageTable(_) = input {
        value.cols = pages_per_seq;
        value.rows = value.data.len() / pages_per_seq.max(1);
    }
    value
}

/// The value of one node, any operator but inputs and KV stores. `srcs` in the order that [`Op`]
/// documents; K and V of an attention as regions (see the module's head).
///
/// # Panics
/// For an [`Op::Input`], [`Op::KvStore`] or [`Op::KvShift`], or sources that do not fit.
pub fn eval(node: &Node, srcs: &[&Matrix], weights: &Decoded) -> Matrix {
    let x = srcs[0];
    match &node.op {
        Op::Input(_) | Op::KvStore { .. } | Op::KvShift { .. } => {
            panic!("{} has no value of its own", node.op.name())
        }
        Op::GetRows { weight } => {
            let table = weights.get(*weight);
            let cols = node.shape.cols;
            Matrix::from_fn(x.rows, cols, |r, c| table[x.index_at(r, 0) * cols + c])
        }
        Op::SelectRows => {
            Matrix::from_fn(srcs[1].rows, x.cols, |r, c| x.at(srcs[1].index_at(r, 0), c))
        }
        Op::Scale { factor } => map(x, |v| v * f64::from(*factor)),
        Op::RmsNorm(norm) => rms_norm(x, norm, weights),
        Op::MatMul(m) => matmul(m, srcs, weights),
        Op::View { offset } => Matrix::from_fn(x.rows, node.shape.cols, |r, c| x.at(r, offset + c)),
        Op::RopeTable(table) => {
            let factors = table.freq_factors.map(|w| weights.get(w));
            rope::table(x, table, factors)
        }
        Op::Rope {
            kind,
            head_dim,
            n_dims,
        } => rope::rotate(x, srcs[1], *kind, *head_dim, *n_dims),
        Op::Attention(spec) => attention::attention(spec, srcs),
        Op::Add => Matrix::from_fn(x.rows, x.cols, |r, c| x.at(r, c) + srcs[1].at(r, c)),
        Op::Mul => Matrix::from_fn(x.rows, x.cols, |r, c| x.at(r, c) * srcs[1].at(r, c)),
        Op::Act(act) => map(x, |v| activate(*act, v)),
        Op::Glu(act) => Matrix::from_fn(x.rows, x.cols, |r, c| {
            activate(*act, x.at(r, c)) * srcs[1].at(r, c)
        }),
    }
}

/// Writes rows into a region. Sources as of [`Op::KvStore`]: x, slots, row sequences, page table.
pub fn kv_store(region: &mut Matrix, srcs: &[&Matrix], ty: KvType) {
    let [x, slots, seqs, table] = srcs else {
        panic!("a store has four sources")
    };
    for r in 0..x.rows {
        let at = attention::region_row(table, seqs.index_at(r, 0), slots.index_at(r, 0));
        let kept = kept(ty, x.row(r));
        region.data[at * region.cols..][..x.cols].copy_from_slice(&kept);
    }
}

/// Turns the keys of pages in a region. Sources as of [`Op::KvShift`], which `op` is: angles, pages.
///
/// # Panics
/// For another operator.
pub fn kv_shift(region: &mut Matrix, op: &Op, srcs: &[&Matrix]) {
    let Op::KvShift {
        ty,
        head_dim,
        rope,
        n_dims,
        ..
    } = *op
    else {
        panic!("{} is no shift", op.name())
    };
    let (angles, pages) = (srcs[0], srcs[1]);
    for r in (0..pages.rows).filter(|r| pages.at(*r, 0) >= 0.0) {
        let table = Matrix {
            rows: 1,
            cols: angles.cols,
            data: angles.row(r).to_vec(),
        };
        for at in (0..PAGE).map(|t| pages.index_at(r, 0) * PAGE + t) {
            let key = Matrix {
                rows: 1,
                cols: region.cols,
                data: region.row(at).to_vec(),
            };
            let turned = rope::rotate(&key, &table, rope, head_dim, n_dims);
            region.data[at * region.cols..][..region.cols].copy_from_slice(&kept(ty, &turned.data));
        }
    }
}

/// Values as a region of this type keeps them: one row, or whole heads of it.
///
/// # Panics
/// If they are not whole blocks of the type.
pub fn kept(ty: KvType, row: &[f64]) -> Vec<f64> {
    let row: Vec<f32> = row.iter().map(|v| *v as f32).collect();
    match ty {
        KvType::F32 => row.into_iter().map(f64::from).collect(),
        KvType::F16 => {
            let half = row.into_iter().map(half::f16::from_f32);
            half.map(f64::from).collect()
        }
        KvType::Q8_0 => {
            let (blocks, rest) = row.as_chunks::<32>();
            assert!(rest.is_empty(), "{} values are no whole blocks", row.len());
            let blocks = blocks.iter().flat_map(|block| {
                let (d, q) = crate::numeric::quantize_kv_block(block);
                q.map(|q| f64::from(d) * f64::from(q))
            });
            blocks.collect()
        }
    }
}

fn map(x: &Matrix, f: impl Fn(f64) -> f64) -> Matrix {
    Matrix {
        rows: x.rows,
        cols: x.cols,
        data: x.data.iter().map(|v| f(*v)).collect(),
    }
}

fn activate(act: Activation, x: f64) -> f64 {
    match act {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Gelu => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        }
    }
}

fn rms_norm(x: &Matrix, norm: &Norm, weights: &Decoded) -> Matrix {
    let weight = weights.get(norm.weight);
    let mut out = x.clone();
    for group in out.data.chunks_exact_mut(norm.group) {
        let square: f64 = group.iter().map(|v| v * v).sum();
        let rms = (square / norm.group as f64 + f64::from(norm.eps)).sqrt();
        for (v, w) in group.iter_mut().zip(weight) {
            *v = *v / rms * w;
        }
    }
    out
}

fn matmul(m: &MatMul, srcs: &[&Matrix], weights: &Decoded) -> Matrix {
    let normed = m.norm.as_ref().map(|norm| rms_norm(srcs[0], norm, weights));
    let x = normed.as_ref().unwrap_or(srcs[0]);
    let products: Vec<Matrix> = m
        .parts
        .iter()
        .map(|part| {
            let w = weights.get(part.weight);
            assert_eq!(w.len(), part.rows * x.cols, "weight size");
            let bias = part.bias.map(|b| weights.get(b));
            Matrix::from_fn(x.rows, part.rows, |r, c| {
                let row = &w[c * x.cols..][..x.cols];
                let sum: f64 = x.row(r).iter().zip(row).map(|(a, b)| a * b).sum();
                sum + bias.map_or(0.0, |b| b[c])
            })
        })
        .collect();
    let mut out = match m.glu {
        Some(act) => {
            let (gate, up) = (&products[0], &products[1]);
            Matrix::from_fn(gate.rows, gate.cols, |r, c| {
                activate(act, gate.at(r, c)) * up.at(r, c)
            })
        }
        None => side_by_side(&products),
    };
    if m.residual {
        let added = srcs[srcs.len() - 1];
        for (v, a) in out.data.iter_mut().zip(&added.data) {
            *v += a;
        }
    }
    out
}

fn side_by_side(parts: &[Matrix]) -> Matrix {
    let rows = parts[0].rows;
    let mut data = Vec::new();
    for r in 0..rows {
        for part in parts {
            data.extend_from_slice(part.row(r));
        }
    }
    Matrix {
        rows,
        cols: parts.iter().map(|p| p.cols).sum(),
        data,
    }
}
