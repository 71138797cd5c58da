//! Weights by id: what a model asked of its file, and how each is used.

use std::sync::Arc;

use crate::numeric::GgmlType;

/// A weight's number in its [`WeightSet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightId(pub u32);

/// How a weight is used; decides how a backend keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightUse {
    /// Multiplied with activations.
    Matrix,
    /// Rows are looked up; never packed, stays in the mapping.
    Table,
    /// A short f32 vector: norm, bias, frequency factors.
    Vector,
}

/// Where a weight's bytes lie: a mapping, or memory.
pub trait WeightData: Send + Sync {
    /// The tensor's bytes, rows of whole blocks.
    fn bytes(&self) -> &[u8];
    /// The backend has its own copy: a mapping may let go of its pages (they can be read again).
    fn done(&self) {}
}

impl WeightData for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// A tensor under an id.
#[derive(Clone)]
pub struct Weight {
    /// GGUF's tensor name.
    pub name: String,
    /// Element type.
    pub ty: GgmlType,
    /// GGUF's dims: values a row first.
    pub dims: Vec<usize>,
    /// What it is for.
    pub usage: WeightUse,
    /// Its bytes.
    pub data: Arc<dyn WeightData>,
}

impl Weight {
    /// Values a row (GGUF's `ne[0]`).
    pub fn cols(&self) -> usize {
        self.dims.first().copied().unwrap_or(1)
    }

    /// Rows (product of the other dims; 1 for a vector).
    pub fn rows(&self) -> usize {
        self.dims.iter().skip(1).product()
    }
}

/// All weights of a model; ids are handed out in the order they are asked for.
#[derive(Clone, Default)]
pub struct WeightSet {
    weights: Vec<Weight>,
}

impl WeightSet {
    /// None yet.
    pub fn new() -> WeightSet {
        WeightSet::default()
    }

    /// Adds one and returns its id.
    pub fn push(&mut self, weight: Weight) -> WeightId {
        self.weights.push(weight);
        WeightId(self.weights.len() as u32 - 1)
    }

    /// The weight of an id.
    ///
    /// # Panics
    /// If the id is of another set.
    pub fn get(&self, id: WeightId) -> &Weight {
        &self.weights[id.0 as usize]
    }

    /// All, with ids.
    pub fn iter(&self) -> impl Iterator<Item = (WeightId, &Weight)> {
        self.weights
            .iter()
            .enumerate()
            .map(|(i, w)| (WeightId(i as u32), w))
    }
}
