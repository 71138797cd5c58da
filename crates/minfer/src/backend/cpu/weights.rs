//! Weights as this backend keeps them: matrices packed (or in the mapping, if asked), vectors as f32, tables in the mapping.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::graph::{Advice, BackendError, RopeTable, Weight, WeightId, WeightUse};
use crate::numeric;

use super::kernels::matmul::ActKind;
use super::kernels::rope::RopeFreqs;
use super::pack::{PackedLayout, PackedMatrix, pack_all};
use super::staged::Matrix;
use super::threads::ThreadPool;

/// Rows of a table that are looked up before its pages are given back.
const LOOKED_UP: usize = 64;

/// One weight.
enum Kept {
    Matrix(Matrix),
    Vector(Vec<f32>),
    /// With the rows looked up since the mapping last let go of its pages.
    Table(Weight, AtomicUsize),
}

/// All weights by id.
pub(super) struct Weights {
    /// Whether matrices are packed, or stay in the mapping.
    pack: bool,
    kept: Vec<Option<Kept>>,
    bytes: usize,
    /// Frequencies of the tables of angles seen so far.
    freqs: Vec<(RopeTable, RopeFreqs)>,
}

impl Weights {
    /// None yet. Matrices will be packed, or stay in the mapping.
    pub fn new(pack: bool) -> Weights {
        Weights {
            pack,
            kept: Vec::new(),
            bytes: 0,
            freqs: Vec::new(),
        }
    }

    /// Bytes that a weight takes beside the mapping; refuses what can't be run.
    pub fn bytes_of(&self, weight: &Weight) -> Result<usize, BackendError> {
        let bytes = match weight.usage {
            WeightUse::Table => return Ok(0),
            WeightUse::Vector => Ok(4 * weight.cols()),
            WeightUse::Matrix => layout_of(weight).map(|l| if self.pack { l.bytes() } else { 0 }),
        };
        bytes.map_err(|reason| refuse(weight, reason))
    }

    /// Takes weights in: packs them on all threads, decodes them, or leaves them where they are.
    pub fn load(
        &mut self,
        weights: &[(WeightId, &Weight)],
        pool: &ThreadPool,
        progress: &mut dyn FnMut(usize),
    ) -> Result<(), BackendError> {
        let mut others = 0;
        for &(id, weight) in weights {
            let kept = match weight.usage {
                WeightUse::Table => Kept::Table(weight.clone(), AtomicUsize::new(0)),
                WeightUse::Vector => Kept::Vector(decode_vector(weight)?),
                WeightUse::Matrix => Kept::Matrix(self.room_for(weight)?),
            };
            if weight.usage != WeightUse::Matrix || !self.pack {
                others += weight.data.bytes().len();
            }
            self.bytes += self.bytes_of(weight)?;
            let at = id.0 as usize;
            if self.kept.len() <= at {
                self.kept.resize_with(at + 1, || None);
            }
            self.kept[at] = Some(kept);
        }
        progress(others);
        let matrices = weights
            .iter()
            .filter_map(|(id, weight)| match self.get(*id) {
                Kept::Matrix(Matrix::Packed(m)) => Some((m, *weight)),
                _ => None,
            });
        pack_all(matrices, pool, progress)
    }

    /// Memory for a packed matrix, whose pages exist once they are written; or the matrix as it is.
    fn room_for(&self, weight: &Weight) -> Result<Matrix, BackendError> {
        let layout = layout_of(weight).map_err(|reason| refuse(weight, reason))?;
        if !self.pack {
            return Ok(Matrix::Mapped(layout, weight.clone()));
        }
        let room = PackedMatrix::try_zeroed(layout).map(Matrix::Packed);
        room.ok_or_else(|| BackendError::OutOfMemory {
            backend: "cpu",
            bytes: layout.bytes(),
            what: format!("tensor '{}'", weight.name),
        })
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

    /// A matrix.
    ///
    /// # Panics
    /// If the id is of something else: `supports_op` claims only nodes whose weights are here.
    pub fn matrix(&self, id: WeightId) -> &Matrix {
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
            Kept::Table(t, _) => t,
            _ => panic!("weight {} is no table", id.0),
        }
    }

    /// Says that rows of a table were looked up. A touched row brings its neighbours' pages with it, so that an
    /// answer's tokens would soon hold the whole table in memory: now and then the mapping lets go of it.
    pub fn looked_up(&self, id: WeightId, rows: usize) {
        if let Kept::Table(table, since) = self.get(id)
            && since.fetch_add(rows, Relaxed) + rows >= LOOKED_UP
        {
            since.store(0, Relaxed);
            table.data.advise(0..table.data.bytes().len(), Advice::Done);
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

/// The layout of a matrix, if it can be run and its bytes are those of its shape.
fn layout_of(weight: &Weight) -> Result<PackedLayout, String> {
    let layout =
        PackedLayout::new(weight.ty, weight.rows(), weight.cols()).map_err(|e| e.to_string())?;
    let (have, want) = (
        weight.data.bytes().len(),
        layout.source_of(0..layout.strips()).len(),
    );
    match have == want {
        true => Ok(layout),
        false => Err(format!("{have} bytes, its shape asks for {want}")),
    }
}

fn refuse(weight: &Weight, reason: String) -> BackendError {
    BackendError::Weight {
        tensor: weight.name.clone(),
        reason,
    }
}

/// A vector as f32.
fn decode_vector(weight: &Weight) -> Result<Vec<f32>, BackendError> {
    let mut values = vec![0.0; weight.cols()];
    numeric::decode_row(weight.ty, weight.data.bytes(), &mut values)
        .map_err(|e| refuse(weight, e.to_string()))?;
    Ok(values)
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::graph::WeightData;
    use crate::numeric::GgmlType;

    /// Bytes in memory that remember what was given back.
    struct Told(Vec<u8>, Mutex<Vec<Range<usize>>>);

    impl WeightData for Told {
        fn bytes(&self) -> &[u8] {
            &self.0
        }
        fn advise(&self, part: Range<usize>, advice: Advice) {
            assert_eq!(advice, Advice::Done);
            self.1.lock().unwrap().push(part);
        }
    }

    #[test]
    fn a_table_is_given_back_every_so_many_rows_and_a_mapped_matrix_takes_no_memory() {
        let data = Arc::new(Told(vec![0; 16 * 8 * 4], Mutex::default()));
        let weight = |usage| Weight {
            name: "t".into(),
            ty: GgmlType::F32,
            dims: vec![16, 8],
            usage,
            data: data.clone(),
        };
        let (table, matrix) = (weight(WeightUse::Table), weight(WeightUse::Matrix));
        let pool = ThreadPool::new(1).unwrap();
        let mut weights = Weights::new(false);
        let all = [(WeightId(0), &table), (WeightId(1), &matrix)];
        let mut done = 0;
        weights.load(&all, &pool, &mut |n| done += n).unwrap();
        assert_eq!((weights.bytes(), done), (0, 2 * data.0.len()));
        weights.looked_up(WeightId(0), LOOKED_UP - 1);
        assert!(data.1.lock().unwrap().is_empty());
        weights.looked_up(WeightId(0), 1);
        weights.looked_up(WeightId(0), LOOKED_UP + 9);
        weights.looked_up(WeightId(0), LOOKED_UP - 1);
        assert_eq!(*data.1.lock().unwrap(), [0..data.0.len(), 0..data.0.len()]);
    }
}
