//! Weights by id: what a model asked of its file, and how each is used.

use std::ops::Range;
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
    /// Says how a part of these bytes (of the tensor, from 0) is going to be used.
    fn advise(&self, _part: Range<usize>, _advice: Advice) {}
}

/// What a mapping may do with a part of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// It will be read soon: the system may begin to bring it into memory.
    Soon,
    /// It is read next: its pages may be mapped at once instead of one by one as they are touched.
    Now,
    /// It is not needed for now: its pages stop counting as this process's memory. They can be read again.
    Done,
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
