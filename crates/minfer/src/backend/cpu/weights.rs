//! Weights as this backend keeps them: matrices packed, vectors as f32, tables in the mapping.

use crate::graph::{BackendError, RopeTable, Weight, WeightId, WeightUse};
use crate::numeric;

use super::kernels::matmul::ActKind;
use super::kernels::rope::RopeFreqs;
use super::pack::{PackedLayout, PackedMatrix, pack_strips};
use super::threads::ThreadPool;

/// One weight.
enum Kept {
    Matrix(PackedMatrix),
    Vector(Vec<f32>),
    Table(Weight),
}

/// All weights by id.
#[derive(Default)]
pub(super) struct Weights {
    kept: Vec<Option<Kept>>,
    bytes: usize,
    /// Frequencies of the tables of angles seen so far.
    freqs: Vec<(RopeTable, RopeFreqs)>,
}

impl Weights {
    /// Takes a weight in: packs it on all threads, decodes it, or leaves it where it is.
    pub fn load(
        &mut self,
        id: WeightId,
        weight: &Weight,
        pool: &ThreadPool,
    ) -> Result<(), BackendError> {
        let refuse = |reason: String| BackendError::Weight {
            tensor: weight.name.clone(),
            reason,
        };
        let kept = match weight.usage {
            WeightUse::Table => Kept::Table(weight.clone()),
            WeightUse::Vector => {
                let mut values = vec![0.0; weight.cols()];
                numeric::decode_row(weight.ty, weight.data.bytes(), &mut values)
                    .map_err(|e| refuse(e.to_string()))?;
                self.bytes += 4 * values.len();
                Kept::Vector(values)
            }
            WeightUse::Matrix => {
                let layout = PackedLayout::new(weight.ty, weight.rows(), weight.cols())
                    .map_err(|e| refuse(e.to_string()))?;
                let bytes = weight.data.bytes();
                let Some(mut matrix) = PackedMatrix::try_zeroed(layout) else {
                    let (bytes, what) = (layout.bytes(), format!("tensor '{}'", weight.name));
                    return Err(BackendError::OutOfMemory {
                        backend: "cpu",
                        bytes,
                        what,
                    });
                };
                pack(&mut matrix, bytes, pool).map_err(refuse)?;
                weight.data.done();
                self.bytes += layout.bytes();
                Kept::Matrix(matrix)
            }
        };
        let at = id.0 as usize;
        if self.kept.len() <= at {
            self.kept.resize_with(at + 1, || None);
        }
        self.kept[at] = Some(kept);
        Ok(())
    }

    /// Whether it is here.
    pub fn has(&self, id: WeightId) -> bool {
        matches!(self.kept.get(id.0 as usize), Some(Some(_)))
    }

    /// Bytes of everything that is not left in the mapping.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn get(&self, id: WeightId) -> &Kept {
        match self.kept.get(id.0 as usize) {
            Some(Some(kept)) => kept,
            _ => panic!("weight {} was claimed but is not loaded", id.0),
        }
    }

    /// A packed matrix.
    ///
    /// # Panics
    /// If the id is of something else: `supports_op` claims only nodes whose weights are here.
    pub fn matrix(&self, id: WeightId) -> &PackedMatrix {
        match self.get(id) {
            Kept::Matrix(m) => m,
            _ => panic!("weight {} is no matrix", id.0),
        }
    }

    /// The kind of activations a matrix takes.
    ///
    /// # Panics
    /// As [`Weights::matrix`].
    pub fn kind(&self, id: WeightId) -> ActKind {
        ActKind::of(self.matrix(id).layout().ty)
    }

    /// A vector of f32.
    ///
    /// # Panics
    /// As [`Weights::matrix`].
    pub fn vector(&self, id: WeightId) -> &[f32] {
        match self.get(id) {
            Kept::Vector(v) => v,
            _ => panic!("weight {} is no vector", id.0),
        }
    }

    /// A table in the mapping.
    ///
    /// # Panics
    /// As [`Weights::matrix`].
    pub fn table(&self, id: WeightId) -> &Weight {
        match self.get(id) {
            Kept::Table(t) => t,
            _ => panic!("weight {} is no table", id.0),
        }
    }

    /// Computes the frequencies of a table of angles, once.
    pub fn prepare_freqs(&mut self, table: &RopeTable) {
        if !self.freqs.iter().any(|(have, _)| have == table) {
            let factors = table.freq_factors.map(|id| self.vector(id).to_vec());
            self.freqs
                .push((*table, RopeFreqs::new(table, factors.as_deref())));
        }
    }

    /// The frequencies of a prepared table.
    ///
    /// # Panics
    /// If it was not prepared: `execute` does that before a region.
    pub fn freqs(&self, table: &RopeTable) -> &RopeFreqs {
        let found = self.freqs.iter().find(|(have, _)| have == table);
        &found.expect("prepared before the region").1
    }
}

/// Packs on all threads, each strip on one.
fn pack(matrix: &mut PackedMatrix, src: &[u8], pool: &ThreadPool) -> Result<(), String> {
    let layout = *matrix.layout();
    if src.len() != layout.source_of(0..layout.strips()).len() {
        return Err(format!(
            "{} bytes, its shape asks for {}",
            src.len(),
            layout.source_of(0..layout.strips()).len()
        ));
    }
    let shared = &*matrix;
    // About a megabyte at a time.
    let grain = ((1 << 20) / layout.strip_bytes().max(1)).max(1);
    pool.run(|w| {
        w.for_each(layout.strips(), grain, |strips| {
            // SAFETY: each strip is in one call's range, so its bytes are this thread's alone.
            let dst = unsafe { shared.strips_shared_mut(strips.clone()) };
            pack_strips(&layout, strips.clone(), &src[layout.source_of(strips)], dst);
        });
    })
    .map_err(|e| e.to_string())
}
