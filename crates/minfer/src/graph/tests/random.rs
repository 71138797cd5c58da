//! Random graphs, made of the patterns that fusion and in-place work care about.

use super::toy::{context, weight};
use crate::graph::*;
use crate::numeric::test_rng::Rng;

const WIDTH: usize = 8;

/// A graph grown in `steps` (one to seven nodes each) and its weights. Nodes lie in layers 0 to 2 at random, so that
/// tests can place one layer apart; a weight's name starts with its layer, as in `0.norm`.
pub fn random_graph(seed: u64, steps: usize) -> (WeightSet, Graph) {
    let params = GraphParams {
        n_tokens: 4,
        n_out: 4,
        kind: GraphKind::Logits,
        context: context(true),
        weights_version: 1,
    };
    let mut maker = Maker {
        b: Builder::new(params),
        weights: WeightSet::new(),
        random: Rng::new(seed),
        layer: 2,
    };
    let table = maker.weight("table", &[WIDTH, 23], WeightUse::Table);
    let ids = maker.b.input(Input::TokenIds);
    let mut alive = vec![maker.b.get_rows("start", table, ids, WIDTH)];
    for _ in 0..steps {
        maker.layer = maker.random.below(3);
        maker.b.set_layer(Some(maker.layer));
        let made = maker.grow(&alive);
        alive.push(made);
        if alive.len() > 5 {
            alive.remove(maker.random.below(4));
        }
    }
    let Maker { mut b, weights, .. } = maker;
    let sum = alive.into_iter().reduce(|a, x| b.add("sum", a, x));
    (weights, b.finish(sum.expect("never empty")))
}

struct Maker {
    b: Builder,
    weights: WeightSet,
    random: Rng,
    layer: usize,
}

impl Maker {
    fn grow(&mut self, alive: &[NodeId]) -> NodeId {
        let x = alive[self.random.below(alive.len())];
        let other = alive[self.random.below(alive.len())];
        let act = [Activation::Silu, Activation::Gelu][self.random.below(2)];
        let cols = 3 + self.random.below(3);
        match self.random.below(9) {
            0 => self.b.add("add", x, other),
            1 => {
                // Squashed first: products of products would leave every scale behind.
                let x = self.norm(x, WIDTH);
                self.b.mul("mul", x, other)
            }
            2 => self.b.scale("scale", x, 0.5),
            3 => {
                let group = [WIDTH, WIDTH / 2][self.random.below(2)];
                self.norm(x, group)
            }
            4 => self.b.act("act", act, x),
            5 => self.product(x, WIDTH, WIDTH),
            6 => {
                let normed = self.norm(x, WIDTH);
                let gate = self.product(normed, WIDTH, cols);
                let up = self.product(normed, WIDTH, cols);
                let gate = self.b.act("gate", act, gate);
                let gated = self.b.mul("gated", gate, up);
                let down = self.product(gated, cols, WIDTH);
                self.b.add("residual", down, other)
            }
            7 => {
                let p = self.product(x, WIDTH, WIDTH);
                let q = self.product(x, WIDTH, WIDTH);
                self.b.add("pq", p, q)
            }
            _ => {
                let wide = self.product(x, WIDTH, WIDTH + cols);
                let offset = self.random.below(cols);
                self.b.view("view", wide, offset, WIDTH)
            }
        }
    }

    fn weight(&mut self, name: &str, dims: &[usize], usage: WeightUse) -> WeightId {
        let name = format!("{}.{name}", self.layer);
        weight(&mut self.weights, &mut self.random, &name, dims, usage)
    }

    fn norm(&mut self, x: NodeId, group: usize) -> NodeId {
        let norm = Norm {
            weight: self.weight("norm", &[group], WeightUse::Vector),
            eps: 1e-5,
            group,
        };
        self.b.rms_norm("norm", x, norm)
    }

    fn product(&mut self, x: NodeId, cols: usize, rows: usize) -> NodeId {
        let part = MatPart {
            weight: self.weight("w", &[cols, rows], WeightUse::Matrix),
            bias: None,
            rows,
        };
        self.b.matmul("product", x, part)
    }
}
