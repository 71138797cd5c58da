//! The plain decoder: embedding, [`PlainLayer`]s that share one table of angles, norm, head. Families
//! that are this and nothing else differ in how they find its parts.

use super::blocks::{Ends, PlainLayer, shift};
use super::{Architecture, HParams};
use crate::graph::{Builder, Graph, GraphKind, GraphParams, RopeTable};

/// A plain decoder.
pub struct Plain {
    /// Its numbers.
    pub h: HParams,
    /// Embedding, final norm and head.
    pub ends: Ends,
    /// The angles of all layers.
    pub rope: RopeTable,
    /// The layers in order.
    pub layers: Vec<PlainLayer>,
}

impl Architecture for Plain {
    fn hparams(&self) -> &HParams {
        &self.h
    }

    fn build(&self, params: &GraphParams) -> Graph {
        let mut b = Builder::new(*params);
        if params.kind == GraphKind::KvShift {
            return shift(b, self.layers.iter().map(|l| (&l.attn, self.rope)));
        }
        let mut x = self.ends.embed(&mut b);
        let angles = b.rope_table("rope", self.rope);
        for (il, layer) in self.layers.iter().enumerate() {
            x = layer.build(&mut b, x, angles, il + 1 == self.layers.len());
        }
        let result = self.ends.result(&mut b, x);
        b.finish(result)
    }
}
