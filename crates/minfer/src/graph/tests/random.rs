//! Random graphs, made of the patterns that fusion and in-place work care about.

use super::toy::{Random, context, weight};
use crate::graph::*;

const WIDTH: usize = 8;

/// A graph of about `size` nodes over activations of two widths, and its weights.
pub fn random_graph(seed: u64, size: usize) -> (WeightSet, Graph) {
    let mut random = Random(seed);
    let mut weights = WeightSet::new();
    let params = GraphParams {
        n_tokens: 4,
        n_out: 4,
        kind: GraphKind::Logits,
        context: context(true),
        weights_version: 1,
    };
    let table = weight(
        &mut weights,
        &mut random,
        "table",
        &[WIDTH, 23],
        WeightUse::Table,
    );
    let mut b = Builder::new(params);
    let ids = b.input(Input::TokenIds);
    let mut alive = vec![b.get_rows("start", table, ids, WIDTH)];
    while b.len() < size {
        let x = alive[random.below(alive.len())];
        let made = grow(&mut b, &mut weights, &mut random, x, &alive);
        alive.push(made);
        if alive.len() > 5 {
            alive.remove(random.below(4));
        }
    }
    // Everything still alive is read once more, so that no chain is dead.
    let sum = alive.clone().into_iter().reduce(|a, x| b.add("sum", a, x));
    (weights, b.finish(sum.expect("never empty")))
}

fn grow(
    b: &mut Builder,
    weights: &mut WeightSet,
    random: &mut Random,
    x: NodeId,
    alive: &[NodeId],
) -> NodeId {
    let other = alive[random.below(alive.len())];
    let act = match random.below(2) {
        0 => Activation::Silu,
        _ => Activation::Gelu,
    };
    let cols = 3 + random.below(3);
    match random.below(9) {
        0 => b.add("add", x, other),
        1 => b.mul("mul", x, other),
        2 => b.scale("scale", x, 0.5),
        3 => {
            let group = [WIDTH, WIDTH / 2][random.below(2)];
            norm(b, weights, random, x, group)
        }
        4 => b.act("act", act, x),
        5 => product(b, weights, random, x, WIDTH),
        6 => {
            let normed = norm(b, weights, random, x, WIDTH);
            let gate = product(b, weights, random, normed, cols);
            let up = product(b, weights, random, normed, cols);
            let gate = b.act("gate", act, gate);
            let gated = b.mul("gated", gate, up);
            let down = product_from(b, weights, random, gated, cols, WIDTH);
            b.add("residual", down, other)
        }
        7 => {
            let p = product(b, weights, random, x, WIDTH);
            let q = product(b, weights, random, x, WIDTH);
            b.mul("pq", p, q)
        }
        _ => {
            let wide = product(b, weights, random, x, WIDTH + cols);
            b.view("view", wide, random.below(cols), WIDTH)
        }
    }
}

fn norm(
    b: &mut Builder,
    weights: &mut WeightSet,
    random: &mut Random,
    x: NodeId,
    group: usize,
) -> NodeId {
    let norm = Norm {
        weight: weight(weights, random, "norm", &[group], WeightUse::Vector),
        eps: 1e-5,
        group,
    };
    b.rms_norm("norm", x, norm)
}

fn product(
    b: &mut Builder,
    weights: &mut WeightSet,
    random: &mut Random,
    x: NodeId,
    rows: usize,
) -> NodeId {
    product_from(b, weights, random, x, WIDTH, rows)
}

fn product_from(
    b: &mut Builder,
    weights: &mut WeightSet,
    random: &mut Random,
    x: NodeId,
    cols: usize,
    rows: usize,
) -> NodeId {
    let matrix = weight(weights, random, "w", &[cols, rows], WeightUse::Matrix);
    let part = MatPart {
        weight: matrix,
        bias: None,
        rows,
    };
    b.matmul("product", x, part)
}
