//! Two test devices that compute with the reference's operators.
//!
//! `Plain` works at once on row-major memory. `Foreign` is what a GPU is to the scheduler: buffer
//! ids of its own, memory laid out its own way, work that is only queued until something waits,
//! garbage wherever nothing was written, and checks of every rule that the scheduler must keep.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::graph::reference::{self, Decoded, Matrix};
use crate::graph::*;

/// What a test device may do, and what happened to it.
#[derive(Default)]
pub struct Log {
    pub allocs: Vec<(BufferId, usize, String)>,
    pub frees: Vec<BufferId>,
    pub runs: Vec<Vec<&'static str>>,
    pub loaded: Vec<String>,
    pub forgotten: Vec<u64>,
    pub synchronizations: usize,
    pub reads_of_pending_work: usize,
}

/// Which nodes, weights and fusions a device takes.
#[derive(Clone)]
pub struct Claims {
    pub node: fn(&Node) -> bool,
    pub weight: fn(&Weight) -> bool,
    pub fused: Vec<FusedKind>,
}

pub const ALL_FUSED: [FusedKind; 5] = [
    FusedKind::Glu,
    FusedKind::MatMulGroup,
    FusedKind::MatMulGlu,
    FusedKind::NormMatMul,
    FusedKind::MatMulResidual,
];

impl Claims {
    pub fn everything() -> Claims {
        Claims {
            node: |_| true,
            weight: |_| true,
            fused: ALL_FUSED.to_vec(),
        }
    }
}

pub struct TestBackend {
    name: &'static str,
    /// Deferred, poisoned, transposed KV.
    foreign: bool,
    claims: Claims,
    weights: Decoded,
    memory: HashMap<BufferId, Vec<u32>>,
    next: u32,
    limit: usize,
    queue: Vec<Job>,
    log: Arc<Mutex<Log>>,
}

/// A node of a run, self-contained: nothing of the scheduler's is borrowed while it waits.
struct Job {
    node: Node,
    srcs: Vec<(Node, Place)>,
    at: Place,
    counts: Counts,
    kv: Option<(KvType, usize)>,
    capacity: usize,
}

impl TestBackend {
    pub fn plain(claims: Claims) -> TestBackend {
        TestBackend::new("plain", false, claims)
    }

    pub fn foreign(claims: Claims) -> TestBackend {
        TestBackend::new("foreign", true, claims)
    }

    fn new(name: &'static str, foreign: bool, claims: Claims) -> TestBackend {
        TestBackend {
            name,
            foreign,
            claims,
            weights: Decoded::default(),
            memory: HashMap::new(),
            next: if foreign { 1000 } else { 0 },
            limit: usize::MAX,
            queue: Vec::new(),
            log: Arc::default(),
        }
    }

    /// Allocations beyond this many bytes fail.
    pub fn with_limit(mut self, bytes: usize) -> TestBackend {
        self.limit = bytes;
        self
    }

    pub fn log(&self) -> Arc<Mutex<Log>> {
        self.log.clone()
    }

    fn flush(&mut self) {
        for job in std::mem::take(&mut self.queue) {
            self.compute(&job);
        }
    }

    fn load(&self, node: &Node, place: Place, counts: Counts) -> Matrix {
        let memory = &self.memory[&place.buffer];
        if node.dtype == DType::Kv {
            return self.load_region(memory, node.shape.cols);
        }
        let rows = counts.rows(node.shape.rows);
        Matrix::from_fn(rows, node.shape.cols, |r, c| {
            let word = memory[place.offset + r * place.stride + c];
            match node.dtype {
                DType::I32 => f64::from(word as i32),
                _ => f64::from(f32::from_bits(word)),
            }
        })
    }

    /// `Foreign` keeps a region with positions along the rows of a transposed matrix.
    fn load_region(&self, memory: &[u32], cols: usize) -> Matrix {
        let positions = memory.len() / cols;
        Matrix::from_fn(positions, cols, |p, c| {
            let at = match self.foreign {
                true => c * positions + p,
                false => p * cols + c,
            };
            f64::from(f32::from_bits(memory[at]))
        })
    }

    fn store_region(&mut self, buffer: BufferId, region: &Matrix) {
        let foreign = self.foreign;
        let memory = self.memory.get_mut(&buffer).expect("known buffer");
        for p in 0..region.rows {
            for c in 0..region.cols {
                let at = match foreign {
                    true => c * region.rows + p,
                    false => p * region.cols + c,
                };
                memory[at] = (region.at(p, c) as f32).to_bits();
            }
        }
    }

    fn compute(&mut self, job: &Job) {
        let values: Vec<Matrix> = job
            .srcs
            .iter()
            .map(|(node, place)| self.load(node, *place, job.counts))
            .collect();
        let srcs: Vec<&Matrix> = values.iter().collect();
        if let Some((ty, cols)) = job.kv {
            let mut region = self.load_region(&self.memory[&job.at.buffer], cols);
            match job.node.op {
                Op::KvShift { .. } => reference::kv_shift(&mut region, &job.node.op, &srcs),
                _ => reference::kv_store(&mut region, &srcs, ty),
            }
            self.store_region(job.at.buffer, &region);
            return;
        }
        let value = reference::eval(&job.node, &srcs, &self.weights);
        let memory = self.memory.get_mut(&job.at.buffer).expect("known buffer");
        let poisoned = if self.foreign { job.capacity } else { 0 };
        for r in 0..value.rows.max(poisoned) {
            for c in 0..value.cols {
                let at = job.at.offset + r * job.at.stride + c;
                memory[at] = match (r < value.rows, job.node.dtype) {
                    (false, _) => f32::NAN.to_bits(),
                    (true, DType::I32) => value.at(r, c) as i32 as u32,
                    (true, _) => (value.at(r, c) as f32).to_bits(),
                };
            }
        }
    }

    fn job(&self, run: &Run<'_>, id: NodeId, node: &Node) -> Job {
        let srcs: Vec<(Node, Place)> = node
            .srcs
            .iter()
            .map(|s| (run.graph.node(*s).clone(), run.place(*s)))
            .collect();
        let at = run.place(id);
        for (i, (_, place)) in srcs.iter().enumerate() {
            let known = self.memory.contains_key(&place.buffer);
            assert!(known, "{}: source {i} lies elsewhere", node.name);
            let same = place.buffer == at.buffer && !matches!(node.op, Op::KvStore { .. });
            let allowed = node.op.in_place_source() == Some(i) && *place == at;
            assert!(
                !same || allowed,
                "{}: output overwrites source {i}",
                node.name
            );
        }
        let kv = match node.op {
            Op::KvStore { ty, .. } | Op::KvShift { ty, .. } => Some((ty, node.shape.cols)),
            _ => None,
        };
        Job {
            node: node.clone(),
            srcs,
            at,
            counts: run.counts,
            kv,
            capacity: run.graph.capacity(node.shape.rows),
        }
    }
}

impl TestBackend {
    /// Takes in those weights that it claims.
    pub fn take(&mut self, weights: &WeightSet) {
        let claimed = weights.iter().filter(|(_, w)| self.weight_bytes(w).is_ok());
        let claimed: Vec<_> = claimed.collect();
        self.load_weights(&claimed, &mut |_| {}).unwrap();
    }
}

impl Backend for TestBackend {
    fn name(&self) -> &'static str {
        self.name
    }

    fn supports_op(&self, node: &Node) -> bool {
        (self.claims.node)(node) && node.op.weights().iter().all(|w| self.weights.has(*w))
    }

    fn supports_fused(&self, kind: FusedKind) -> bool {
        self.claims.fused.contains(&kind)
    }

    fn weight_bytes(&self, weight: &Weight) -> Result<usize, BackendError> {
        match (self.claims.weight)(weight) {
            true => Ok(64),
            false => Err(BackendError::Weight {
                tensor: weight.name.clone(),
                reason: format!("{} is not taken", weight.ty),
            }),
        }
    }

    fn load_weights(
        &mut self,
        weights: &[(WeightId, &Weight)],
        progress: &mut dyn FnMut(usize),
    ) -> Result<(), BackendError> {
        for &(id, weight) in weights {
            self.weights.insert(id, &reference::decode_f32(weight));
            self.log.lock().unwrap().loaded.push(weight.name.clone());
            progress(weight.data.bytes().len());
        }
        Ok(())
    }

    fn weights_bytes(&self) -> usize {
        self.log.lock().unwrap().loaded.len() * 64
    }

    fn kv_bytes(&self, shape: &KvShape) -> usize {
        shape.pages * PAGE * shape.n_head_kv * shape.head_dim * 4
    }

    /// A page's values as f32, position after position.
    fn kv_page_bytes(&self, shape: &KvShape) -> usize {
        PAGE * shape.n_head_kv * shape.head_dim * 4
    }

    fn kv_read(
        &mut self,
        region: BufferId,
        shape: &KvShape,
        page: usize,
        out: &mut [u8],
    ) -> Result<(), BackendError> {
        self.flush();
        assert_eq!(out.len(), self.kv_page_bytes(shape));
        let cols = shape.n_head_kv * shape.head_dim;
        let values = self.load_region(&self.memory[&region], cols);
        let page = &values.data[page * PAGE * cols..][..PAGE * cols];
        for (to, v) in out.chunks_exact_mut(4).zip(page) {
            to.copy_from_slice(&(*v as f32).to_ne_bytes());
        }
        Ok(())
    }

    fn kv_write(
        &mut self,
        region: BufferId,
        shape: &KvShape,
        page: usize,
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        self.flush();
        assert_eq!(bytes.len(), self.kv_page_bytes(shape));
        let cols = shape.n_head_kv * shape.head_dim;
        let mut values = self.load_region(&self.memory[&region], cols);
        let page = &mut values.data[page * PAGE * cols..][..PAGE * cols];
        for (v, b) in page.iter_mut().zip(bytes.chunks_exact(4)) {
            *v = f64::from(f32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
        }
        self.store_region(region, &values);
        Ok(())
    }

    fn alloc(&mut self, bytes: usize, what: &str) -> Result<BufferId, BackendError> {
        let held: usize = self.memory.values().map(|m| m.len() * 4).sum();
        if held + bytes > self.limit {
            return Err(BackendError::OutOfMemory {
                backend: self.name,
                bytes,
                what: what.to_string(),
            });
        }
        let id = BufferId(self.next);
        self.next += 1;
        // A region starts as zeros; activations start as whatever was there.
        let fill = match self.foreign && what == "activations" {
            true => f32::NAN.to_bits(),
            false => 0,
        };
        self.memory.insert(id, vec![fill; bytes / 4]);
        let mut log = self.log.lock().unwrap();
        log.allocs.push((id, bytes, what.to_string()));
        Ok(id)
    }

    fn free(&mut self, buffer: BufferId) {
        self.flush();
        self.memory.remove(&buffer).expect("freed once");
        self.log.lock().unwrap().frees.push(buffer);
    }

    fn write(&mut self, buffer: BufferId, offset: usize, bytes: &[u8]) -> Result<(), BackendError> {
        self.flush();
        let memory = self.memory.get_mut(&buffer).expect("own buffer");
        for (i, w) in bytes.chunks_exact(4).enumerate() {
            memory[offset / 4 + i] = u32::from_ne_bytes([w[0], w[1], w[2], w[3]]);
        }
        Ok(())
    }

    fn read(
        &mut self,
        buffer: BufferId,
        offset: usize,
        out: &mut [u8],
    ) -> Result<(), BackendError> {
        if !self.queue.is_empty() {
            self.log.lock().unwrap().reads_of_pending_work += 1;
        }
        self.flush();
        let memory = &self.memory[&buffer];
        for (i, w) in out.chunks_exact_mut(4).enumerate() {
            w.copy_from_slice(&memory[offset / 4 + i].to_ne_bytes());
        }
        Ok(())
    }

    fn forget(&mut self, graph: u64) {
        self.log.lock().unwrap().forgotten.push(graph);
    }

    fn execute(&mut self, run: &Run<'_>) -> Result<(), BackendError> {
        let mut names = Vec::new();
        for (id, node) in run.iter() {
            if matches!(node.op, Op::Input(_) | Op::View { .. }) {
                continue;
            }
            names.push(node.name);
            let job = self.job(run, id, node);
            self.queue.push(job);
        }
        self.log.lock().unwrap().runs.push(names);
        if !self.foreign {
            self.flush();
        }
        Ok(())
    }

    fn synchronize(&mut self) -> Result<(), BackendError> {
        self.log.lock().unwrap().synchronizations += 1;
        self.flush();
        Ok(())
    }
}
