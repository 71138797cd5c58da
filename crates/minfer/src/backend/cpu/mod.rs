//! The CPU backend: threads, packed weights, kernels, executor.
//!
//! A run of nodes is one parallel region: every thread walks the same steps, does its share of
//! each, and meets the others only where the plan says so. Which thread computes a value never
//! changes it.

mod attention;
mod blocks;
pub mod buffer;
mod execute;
mod heads;
#[cfg(test)]
mod host_tests;
pub mod kernels;
mod matmul;
#[cfg(test)]
mod op_tests;
pub mod pack;
#[cfg(test)]
mod page_tests;
mod plan;
pub mod roofline;
pub mod rows;
mod scratch;
mod staged;
pub mod threads;
mod weights;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::graph::{
    Backend, BackendError, BufferId, Counters, Counts, FusedKind, HostRows, KvShape, Node,
    NodeRange, Op, Place, RowsWork, Run, Weight, WeightId,
};
use crate::lanes::{LANES, Machine, MachineError};

use buffer::{AlignedBuffer, Neighbours};
use execute::Region;
use plan::Step;
use rows::Rows;
use scratch::{Shared, ThreadNeeds, ThreadScratch};
use threads::{ThreadPool, ThreadsError};
use weights::Weights;

pub use threads::{available_cpus, default_threads};

/// The environment variable that picks the lane machine.
const CPU_VARIABLE: &str = "MINFER_CPU";

/// Why there is no CPU backend.
#[derive(Debug, thiserror::Error)]
pub enum CpuError {
    /// `MINFER_CPU` names no instruction set that this CPU has.
    #[error("{CPU_VARIABLE}: {0}")]
    Variable(MachineError),
    /// The instruction set asked for is unknown, or this CPU lacks it.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The threads could not be started, or failed.
    #[error(transparent)]
    Threads(#[from] ThreadsError),
    /// There is no memory to measure the reading of.
    #[error("cannot allocate {bytes} bytes to measure how fast memory is read")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
    },
}

/// The CPU as a backend.
pub struct CpuBackend {
    machine: Machine,
    pool: Arc<ThreadPool>,
    weights: Weights,
    buffers: Vec<Option<AlignedBuffer>>,
    /// Where KV regions come from.
    regions: Neighbours,
    /// Activations in the form products take them, shared by all threads.
    scratch: Shared,
    /// What each thread has for itself.
    threads: Vec<Mutex<ThreadScratch>>,
    /// Steps of the runs of the graphs there are, by graph, nodes, and whether token and output rows are many.
    plans: HashMap<(u64, NodeRange, (bool, bool)), Vec<Step>>,
    /// For which pass there is room now: graph, nodes, rows, segments of attention.
    room: Option<(u64, NodeRange, Counts, usize)>,
    /// Whether steps may do blocks of nodes at once. The bits are the same.
    merge: bool,
}

impl CpuBackend {
    /// With so many threads (`None`: [`default_threads`]), on the machine of this
    /// name (`None`: the one that `MINFER_CPU` names, or the fastest there is).
    pub fn new(n_threads: Option<usize>, machine: Option<&str>) -> Result<CpuBackend, CpuError> {
        let machine = machine_of(machine)?;
        CpuBackend::with_machine(machine, n_threads.unwrap_or_else(default_threads))
    }

    /// With so many threads on this machine.
    pub fn with_machine(machine: Machine, n_threads: usize) -> Result<CpuBackend, CpuError> {
        let pool = ThreadPool::new(n_threads)?;
        Ok(CpuBackend {
            machine,
            threads: (0..n_threads).map(|_| Mutex::default()).collect(),
            pool: Arc::new(pool),
            weights: Weights::new(true),
            buffers: Vec::new(),
            regions: Neighbours::default(),
            scratch: Shared::new(n_threads),
            plans: HashMap::new(),
            room: None,
            merge: true,
        })
    }

    /// Whether steps may do blocks of nodes at once.
    #[cfg(test)]
    pub(crate) fn set_merge(&mut self, merge: bool) {
        self.merge = merge;
        self.plans.clear();
    }

    /// Where a test says which segment of attention fails, counted from then.
    #[cfg(test)]
    pub(crate) fn failing_segment(&self) -> std::sync::Arc<std::sync::atomic::AtomicUsize> {
        self.scratch.fail.clone()
    }

    /// Packs matrices when they are loaded (the default), or leaves them in the mapping and packs a few strips at
    /// every use: slower, without memory for a copy, and with the same bits. For weights not loaded yet.
    #[must_use]
    pub fn packing(mut self, pack: bool) -> CpuBackend {
        self.weights = Weights::new(pack);
        self
    }

    /// The slots of the batch's rows.
    fn slots(&self, run: &Run<'_>) -> &[i32] {
        let Some(id) = attention::slots_input(run) else {
            return &[];
        };
        let Some(place) = run.places[id.index()] else {
            return &[];
        };
        let Some(Some(buffer)) = self.buffers.get(place.buffer.0 as usize) else {
            return &[];
        };
        let rows = Rows::new(buffer, place.offset, 1, run.counts.tokens, 1);
        // SAFETY: nobody writes between regions.
        unsafe { rows.dense_i32() }
    }

    /// Makes room for what a run needs beside the graph's buffers. Passes like the one before, which is
    /// what a decode is, need the same: only attention's needs grow with the slots.
    fn make_room(&mut self, run: &Run<'_>) -> Result<(), BackendError> {
        let segments = attention::segments(self.slots(run));
        let like = (run.graph.uid, run.nodes, run.counts, segments);
        if self.room == Some(like) {
            return Ok(());
        }
        self.room = None;
        for (_, node) in run.iter() {
            if let Op::RopeTable(table) = &node.op {
                self.weights.prepare_freqs(table);
            }
        }
        let floats = attention::shared_floats(run, self.pool.n_threads(), segments);
        self.scratch
            .reserve(self.machine, run, &self.weights, floats)?;
        let needs = ThreadNeeds::of(self.machine, run, &self.weights);
        for own in &mut self.threads {
            let own = own.get_mut().unwrap_or_else(PoisonError::into_inner);
            own.reserve(&needs)?;
        }
        self.room = Some(like);
        Ok(())
    }

    /// Gives a buffer a number, if there was memory for it.
    fn hold(
        &mut self,
        buffer: Option<AlignedBuffer>,
        bytes: usize,
        what: &str,
    ) -> Result<BufferId, BackendError> {
        let Some(buffer) = buffer else {
            return Err(BackendError::OutOfMemory {
                backend: "cpu",
                bytes,
                what: what.to_owned(),
            });
        };
        let free = self.buffers.iter().position(Option::is_none);
        let at = free.unwrap_or(self.buffers.len());
        if at == self.buffers.len() {
            self.buffers.push(None);
        }
        self.buffers[at] = Some(buffer);
        // A plan names buffers by number: a number used anew may mean other memory.
        self.plans.clear();
        Ok(BufferId(at as u32))
    }

    /// The bytes of a region of this shape that has this page.
    fn region(
        &mut self,
        id: BufferId,
        shape: &KvShape,
        page: usize,
    ) -> Result<&mut [u8], BackendError> {
        let bytes = self.buffer(id)?.bytes_mut();
        match page < shape.pages && bytes.len() >= kernels::kv::region_bytes(shape) {
            true => Ok(bytes),
            false => Err(fault(format!("buffer {} has no page {page}", id.0))),
        }
    }

    fn buffer(&mut self, id: BufferId) -> Result<&mut AlignedBuffer, BackendError> {
        match self.buffers.get_mut(id.0 as usize) {
            Some(Some(b)) => Ok(b),
            _ => Err(fault(format!("buffer {} does not exist", id.0))),
        }
    }
}

/// That so many bytes are a page.
fn check_page(shape: &KvShape, bytes: usize) -> Result<(), BackendError> {
    let want = shape.page_bytes();
    match bytes == want {
        true => Ok(()),
        false => Err(fault(format!("{bytes} bytes for a page of {want}"))),
    }
}

/// The machine of this name; without one that which `MINFER_CPU` names, or the fastest there is.
pub fn machine_of(name: Option<&str>) -> Result<Machine, CpuError> {
    Ok(match (name, std::env::var_os(CPU_VARIABLE)) {
        (Some(name), _) => Machine::from_name(name)?,
        (None, Some(name)) => {
            Machine::from_name(&name.to_string_lossy()).map_err(CpuError::Variable)?
        }
        (None, None) => Machine::detect(),
    })
}

/// A failure of the backend itself.
fn fault(reason: String) -> BackendError {
    BackendError::Device {
        backend: "cpu",
        reason,
    }
}

impl Backend for CpuBackend {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn supports_op(&self, node: &Node) -> bool {
        if !node.op.weights().iter().all(|w| self.weights.has(*w)) {
            return false;
        }
        match &node.op {
            Op::MatMul(m) => matmul::supports(m, |w| self.weights.kind(w)),
            Op::Attention(a) => kernels::attention::supports(a.n_head, a.n_head_kv, a.head_dim),
            Op::KvStore { ty, head_dim, .. } | Op::KvShift { ty, head_dim, .. } => {
                head_dim % LANES == 0 && head_dim % ty.block() == 0
            }
            _ => true,
        }
    }

    fn supports_fused(&self, kind: FusedKind) -> bool {
        match kind {
            FusedKind::Glu
            | FusedKind::MatMulGroup
            | FusedKind::MatMulGlu
            | FusedKind::NormMatMul
            | FusedKind::MatMulResidual => true,
        }
    }

    fn weight_bytes(&self, weight: &Weight) -> Result<usize, BackendError> {
        self.weights.bytes_of(weight)
    }

    fn load_weights(
        &mut self,
        weights: &[(WeightId, &Weight)],
        progress: &mut dyn FnMut(usize),
    ) -> Result<(), BackendError> {
        self.weights.load(weights, &self.pool, progress)
    }

    fn weights_bytes(&self) -> usize {
        self.weights.bytes()
    }

    fn kv_bytes(&self, shape: &KvShape) -> usize {
        kernels::kv::region_bytes(shape)
    }

    fn kv_read(
        &mut self,
        region: BufferId,
        shape: &KvShape,
        page: usize,
        out: &mut [u8],
    ) -> Result<(), BackendError> {
        let buffer = self.region(region, shape, page)?;
        check_page(shape, out.len())?;
        let out = out.chunks_exact_mut(shape.ty.head_bytes(shape.head_dim));
        for (part, out) in kernels::kv::page_parts(shape, page).zip(out) {
            out.copy_from_slice(&buffer[part]);
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
        let buffer = self.region(region, shape, page)?;
        check_page(shape, bytes.len())?;
        let bytes = bytes.chunks_exact(shape.ty.head_bytes(shape.head_dim));
        for (part, bytes) in kernels::kv::page_parts(shape, page).zip(bytes) {
            buffer[part].copy_from_slice(bytes);
        }
        Ok(())
    }

    fn alloc(&mut self, bytes: usize, what: &str) -> Result<BufferId, BackendError> {
        self.hold(AlignedBuffer::try_zeroed(bytes), bytes, what)
    }

    fn alloc_kv(&mut self, shape: &KvShape, what: &str) -> Result<BufferId, BackendError> {
        let bytes = kernels::kv::region_bytes(shape);
        let buffer = self.regions.try_zeroed(bytes);
        self.hold(buffer, bytes, what)
    }

    fn free(&mut self, buffer: BufferId) {
        if let Some(slot) = self.buffers.get_mut(buffer.0 as usize) {
            *slot = None;
        }
        self.plans.clear();
    }

    fn write(&mut self, buffer: BufferId, offset: usize, bytes: &[u8]) -> Result<(), BackendError> {
        let to = self.buffer(buffer)?.bytes_mut();
        match to.get_mut(offset..).and_then(|t| t.get_mut(..bytes.len())) {
            Some(to) => to.copy_from_slice(bytes),
            None => {
                return Err(fault(format!(
                    "a write of {} bytes past the end of buffer {}",
                    bytes.len(),
                    buffer.0
                )));
            }
        }
        Ok(())
    }

    fn read(
        &mut self,
        buffer: BufferId,
        offset: usize,
        out: &mut [u8],
    ) -> Result<(), BackendError> {
        let from = self.buffer(buffer)?.bytes_mut();
        match from.get(offset..).and_then(|f| f.get(..out.len())) {
            Some(from) => out.copy_from_slice(from),
            None => {
                return Err(fault(format!(
                    "a read of {} bytes past the end of buffer {}",
                    out.len(),
                    buffer.0
                )));
            }
        }
        Ok(())
    }

    fn host_f32(&mut self, buffer: BufferId, first: usize, len: usize) -> Option<&mut [f32]> {
        let from = self.buffer(buffer).ok()?;
        if first.checked_add(len)?.checked_mul(4)? > from.len() {
            return None;
        }
        // SAFETY: inside the buffer; `&mut self`, and nobody writes between regions.
        Some(unsafe { Rows::new(from, first, len, 1, len).row_mut(0) })
    }

    fn host_rows(
        &mut self,
        place: Place,
        cols: usize,
        parts: &[usize],
        work: &RowsWork<'_>,
    ) -> Result<bool, BackendError> {
        let n: usize = parts.iter().sum();
        let len = n.saturating_sub(1) * place.stride + cols * n.min(1);
        let pool = self.pool.clone();
        let Some(mut rest) = self.host_f32(place.buffer, place.offset, len) else {
            return Ok(false);
        };
        let mut jobs = Vec::with_capacity(parts.len());
        for (i, rows) in parts.iter().enumerate() {
            let (own, after) = rest.split_at_mut(rest.len().min(rows * place.stride));
            jobs.push(Mutex::new(Some((
                i,
                HostRows::new(own, cols, place.stride),
            ))));
            rest = after;
        }
        let job = |at: usize| {
            let job = jobs[at]
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            if let Some((i, rows)) = job {
                work(i, rows);
            }
        };
        if n < 2 {
            (0..jobs.len()).for_each(job);
            return Ok(true);
        }
        let done = pool.run(|worker| worker.for_each(jobs.len(), 1, |range| range.for_each(job)));
        done.map(|()| true).map_err(|e| fault(e.to_string()))
    }

    fn forget(&mut self, graph: u64) {
        self.plans.retain(|(uid, ..), _| *uid != graph);
    }

    fn execute(&mut self, run: &Run<'_>) -> Result<(), BackendError> {
        self.make_room(run)?;
        // What shares scratch depends on the counts: few rows, or many.
        let many = (
            scratch::shares(run.counts.tokens),
            scratch::shares(run.counts.out),
        );
        let steps = self
            .plans
            .entry((run.graph.uid, run.nodes, many))
            .or_insert_with(|| {
                plan::plan(run, self.merge, |n| scratch::uses_shared(n, run.counts))
            });
        let region = Region {
            machine: self.machine,
            run,
            weights: &self.weights,
            buffers: &self.buffers,
            shared: &self.scratch,
        };
        let threads = &self.threads;
        let done = self.pool.run(|worker| {
            // Each thread has its own: there is nobody to wait for.
            let mut own = threads[worker.index()]
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            for step in steps.iter() {
                if step.barrier {
                    worker.barrier();
                }
                region.step(step, worker, &mut own);
            }
        });
        if done.is_err() {
            self.scratch.after_error();
        }
        done.map_err(|e| fault(e.to_string()))
    }

    fn synchronize(&mut self) -> Result<(), BackendError> {
        Ok(()) // `execute` returns when all is done
    }

    fn counters(&self) -> Counters {
        let stats = self.pool.stats();
        Counters {
            barriers: stats.barriers,
            parks: stats.parks,
            steals: stats.steals,
        }
    }
}
