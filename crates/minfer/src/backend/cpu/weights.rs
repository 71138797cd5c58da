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

/// Batches of so many rows give pages back. In smaller ones, as a decode's, the next token's row would have to
/// be brought in again while everybody waits for it.
const MANY_ROWS: usize = 32;

/// One weight.
enum Kept {
    Matrix(Matrix),
    Vector(Vec<f32>),
    Table(Table),
}

/// Rows in the mapping.
struct Table {
    weight: Weight,
    /// Whether nobody else reads these bytes in the mapping.
    alone: bool,
    /// Rows looked up since the mapping last let go of its pages.
    since: AtomicUsize,
}

impl Kept {
    /// Bytes beside the mapping.
    fn bytes(&self) -> usize {
        match self {
            Kept::Matrix(Matrix::Packed(m)) => m.layout().bytes(),
            Kept::Vector(v) => 4 * v.len(),
            Kept::Matrix(Matrix::Mapped(..)) | Kept::Table(_) => 0,
        }
    }
}

/// All weights by id.
pub(super) struct Weights {
    /// Whether matrices are packed, or stay in the mapping.
    pack: bool,
    kept: Vec<Option<Kept>>,
    /// Frequencies of the tables of angles seen so far.
    freqs: Vec<(RopeTable, RopeFreqs)>,
}

impl Weights {
    /// None yet. Matrices will be packed, or stay in the mapping.
    pub fn new(pack: bool) -> Weights {
        Weights {
            pack,
            kept: Vec::new(),
            freqs: Vec::new(),
        }
    }

    /// Bytes that a weight takes beside the mapping; refuses what can't be run.
    pub fn bytes_of(&self, weight: &Weight) -> Result<usize, BackendError> {
        let layout = layout_of(weight).map_err(|reason| refuse(weight, reason))?;
        if weight.usage == WeightUse::Vector && layout.rows != 1 {
            let reason = format!("a vector has one row, not {}", layout.rows);
            return Err(refuse(weight, reason));
        }
        Ok(match weight.usage {
            WeightUse::Matrix if self.pack => layout.bytes(),
            WeightUse::Matrix | WeightUse::Table => 0,
            WeightUse::Vector => 4 * layout.cols,
        })
    }

    /// Takes weights in: packs them on all threads, decodes them, or leaves them where they are. After an error
    /// none of them is here.
    pub fn load(
        &mut self,
        weights: &[(WeightId, &Weight)],
        pool: &ThreadPool,
        progress: &mut dyn FnMut(usize),
    ) -> Result<(), BackendError> {
        let done = self.take(weights, pool, progress);
        if done.is_err() {
            for (id, _) in weights {
                if let Some(kept) = self.kept.get_mut(id.0 as usize) {
                    *kept = None;
                }
            }
        }
        done
    }

    fn take(
        &mut self,
        weights: &[(WeightId, &Weight)],
        pool: &ThreadPool,
        progress: &mut dyn FnMut(usize),
    ) -> Result<(), BackendError> {
        let mut others = 0;
        for &(id, weight) in weights {
            let kept = match weight.usage {
                WeightUse::Table => Kept::Table(Table {
                    weight: weight.clone(),
                    alone: self.pack || !read_elsewhere(weight, weights),
                    since: AtomicUsize::new(0),
                }),
                WeightUse::Vector => Kept::Vector(decode_vector(weight)?),
                WeightUse::Matrix => Kept::Matrix(self.room_for(weight)?),
            };
            if weight.usage != WeightUse::Matrix || !self.pack {
                others += weight.data.bytes().len();
            }
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
        self.kept.iter().flatten().map(Kept::bytes).sum()
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
            Kept::Table(t) => &t.weight,
            _ => panic!("weight {} is no table", id.0),
        }
    }

    /// Says that rows of a table were looked up, in a batch of so many. A touched row brings its neighbours' pages
    /// with it, so that a prompt's tokens would soon hold the whole table in memory: now and then the mapping lets
    /// go of it. What answers have touched goes with the next prompt.
    pub fn looked_up(&self, id: WeightId, rows: usize, batch: usize) {
        let Kept::Table(table) = self.get(id) else {
            return;
        };
        let since = table.since.fetch_add(rows, Relaxed) + rows;
        if since >= LOOKED_UP && batch >= MANY_ROWS && table.alone {
            table.since.store(0, Relaxed);
            let data = &table.weight.data;
            data.advise(0..data.bytes().len(), Advice::Done);
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

/// Whether a matrix has the bytes of a table, as a head that is tied to the embedding does.
fn read_elsewhere(table: &Weight, weights: &[(WeightId, &Weight)]) -> bool {
    let place = |w: &Weight| w.data.bytes().as_ptr();
    weights
        .iter()
        .any(|(_, w)| w.usage == WeightUse::Matrix && std::ptr::eq(place(w), place(table)))
}

/// The layout of a matrix, table or vector (one row), if it can be run and its bytes are those of its shape.
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
            if advice == Advice::Done {
                self.1.lock().unwrap().push(part);
            }
        }
    }

    /// Eight rows of sixteen zeros.
    fn told() -> Arc<Told> {
        Arc::new(Told(vec![0; 16 * 8 * 4], Mutex::default()))
    }

    fn weight(data: &Arc<Told>, usage: WeightUse) -> Weight {
        Weight {
            name: "t".into(),
            ty: GgmlType::F32,
            dims: vec![16, 8],
            usage,
            data: data.clone(),
        }
    }

    fn vector(ty: GgmlType, bytes: usize) -> Weight {
        Weight {
            name: "v".into(),
            ty,
            dims: vec![32],
            usage: WeightUse::Vector,
            data: Arc::new(vec![0u8; bytes]),
        }
    }

    /// A table, and a matrix of `head`.
    fn loaded(pack: bool, table: &Arc<Told>, head: &Arc<Told>) -> Weights {
        let pool = ThreadPool::new(1).unwrap();
        let (table, matrix) = (
            weight(table, WeightUse::Table),
            weight(head, WeightUse::Matrix),
        );
        let mut weights = Weights::new(pack);
        let all = [(WeightId(0), &table), (WeightId(1), &matrix)];
        let mut done = 0;
        weights.load(&all, &pool, &mut |n| done += n).unwrap();
        assert_eq!(done, 2 * table.data.bytes().len());
        weights
    }

    #[test]
    fn a_table_is_given_back_every_so_many_rows_but_not_in_a_decode() {
        let (data, head) = (told(), told());
        let weights = loaded(false, &data, &head);
        assert_eq!(weights.bytes(), 0, "a mapped matrix takes no memory");
        let given = || data.1.lock().unwrap().clone();
        weights.looked_up(WeightId(0), LOOKED_UP - 1, 512);
        assert!(given().is_empty());
        weights.looked_up(WeightId(0), 1, 512);
        weights.looked_up(WeightId(0), LOOKED_UP + 9, 512);
        weights.looked_up(WeightId(0), LOOKED_UP - 1, 512);
        assert_eq!(given(), [0..data.0.len(), 0..data.0.len()]);
        for _ in 0..3 * LOOKED_UP {
            weights.looked_up(WeightId(0), 1, 1);
        }
        assert_eq!(given().len(), 2, "a decode gives nothing back");
        weights.looked_up(WeightId(0), 1, MANY_ROWS);
        assert_eq!(given().len(), 3, "the next prompt does");
    }

    #[test]
    fn the_pages_of_a_mapped_head_are_not_taken_from_it() {
        for (pack, times) in [(false, 0), (true, 1)] {
            let data = told();
            let weights = loaded(pack, &data, &data);
            data.1.lock().unwrap().clear(); // packing gives back what it has read
            weights.looked_up(WeightId(0), LOOKED_UP, 512);
            assert_eq!(data.1.lock().unwrap().len(), times, "pack {pack}");
        }
    }

    #[test]
    fn what_cannot_be_decoded_is_refused_before_it_is_loaded() {
        let weights = Weights::new(true);
        assert_eq!(weights.bytes_of(&vector(GgmlType::F16, 64)).unwrap(), 128);
        let rows = Weight {
            dims: vec![16, 2],
            ..vector(GgmlType::F32, 128)
        };
        let table = Weight {
            usage: WeightUse::Table,
            ..vector(GgmlType::Q2_K, 128)
        };
        for (bad, reason) in [
            (vector(GgmlType::Q2_K, 128), "Q2_K"),
            (vector(GgmlType::F32, 124), "124 bytes"),
            (rows, "2"),
            (table, "Q2_K"),
        ] {
            let error = weights.bytes_of(&bad).unwrap_err().to_string();
            assert!(error.contains("'v'") && error.contains(reason), "{error}");
        }
    }

    #[test]
    fn after_a_failed_load_nothing_is_here_and_another_one_counts_once() {
        let pool = ThreadPool::new(1).unwrap();
        let matrix = weight(&told(), WeightUse::Matrix);
        let (good, bad) = (vector(GgmlType::F32, 128), vector(GgmlType::F32, 124));
        let ids = [0, 1, 2].map(WeightId);
        let mut weights = Weights::new(true);
        let mut load = |last: &Weight| {
            let all = [(ids[0], &good), (ids[1], &matrix), (ids[2], last)];
            let done = weights.load(&all, &pool, &mut |_| {});
            (done.is_ok(), weights.bytes(), ids.map(|id| weights.has(id)))
        };
        assert_eq!(load(&bad), (false, 0, [false; 3]));
        let all: usize = [&good, &matrix, &good]
            .map(|w| Weights::new(true).bytes_of(w).unwrap())
            .iter()
            .sum();
        for _ in 0..2 {
            assert_eq!(load(&good), (true, all, [true; 3]));
        }
    }
}
