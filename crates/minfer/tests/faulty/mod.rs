//! The CPU, but for its faults: runs, page copies, reads and writes, inputs and outputs that fail or panic.
#![allow(dead_code)] // each test binary uses a part

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use minfer::backend;
use minfer::engine::{Engine, EngineOptions, Model};
use minfer::graph::{
    Backend, BackendError, BufferId, Counters, FusedKind, HostRows, KvShape, Node, Place, RowsWork,
    Run, Weight, WeightId,
};

/// What goes wrong with the calls of one kind.
#[derive(Default)]
pub struct Fault {
    /// Every so many calls fail; 0: none.
    pub fail: AtomicU32,
    /// Every so many calls panic; 0: none.
    pub panic: AtomicU32,
    pub calls: AtomicU32,
    /// Calls that failed or panicked.
    pub hits: AtomicU32,
}

impl Fault {
    pub fn set(&self, fail: u32, panic: u32) {
        self.fail.store(fail, Ordering::Relaxed);
        self.panic.store(panic, Ordering::Relaxed);
    }

    pub fn hits(&self) -> u32 {
        self.hits.load(Ordering::Relaxed)
    }

    /// One more call; its number.
    fn count(&self) -> u32 {
        self.calls.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// What becomes of call `n`.
    fn strike(&self, n: u32) -> Result<(), BackendError> {
        let hit = |every: &AtomicU32| match every.load(Ordering::Relaxed) {
            0 => false,
            every => n % every == 0,
        };
        let (panics, fails) = (hit(&self.panic), hit(&self.fail));
        if panics || fails {
            self.hits.fetch_add(1, Ordering::Relaxed);
        }
        if panics {
            panic!("injected panic");
        }
        match fails {
            true => Err(BackendError::Device {
                backend: "cpu",
                reason: "injected failure".into(),
            }),
            false => Ok(()),
        }
    }

    fn call(&self) -> Result<(), BackendError> {
        self.strike(self.count())
    }
}

/// What happens to the next calls.
#[derive(Default)]
pub struct Faults {
    pub runs: Fault,
    /// A layer's part of a page copied, read out, written back.
    pub copies: Fault,
    pub reads: Fault,
    pub writes: Fault,
    /// Token ids, positions, page tables.
    pub inputs: Fault,
    /// Logits. While this one can strike, the host can't look into the backend's memory.
    pub outputs: Fault,
    /// What a sequence makes of its logits, several at once; these only panic.
    pub choices: Fault,
    /// Runs after these wait until more are allowed; 0: none waits.
    pub allowed: AtomicU32,
}

impl Faults {
    /// All kinds.
    pub fn all(&self) -> [(&'static str, &Fault); 7] {
        [
            ("runs", &self.runs),
            ("copies", &self.copies),
            ("reads", &self.reads),
            ("writes", &self.writes),
            ("inputs", &self.inputs),
            ("outputs", &self.outputs),
            ("choices", &self.choices),
        ]
    }
}

/// The CPU, but for its faults.
struct Faulty {
    inner: Box<dyn Backend>,
    faults: Arc<Faults>,
}

impl Backend for Faulty {
    fn name(&self) -> &'static str {
        self.inner.name()
    }
    fn supports_op(&self, node: &Node) -> bool {
        self.inner.supports_op(node)
    }
    fn supports_fused(&self, kind: FusedKind) -> bool {
        self.inner.supports_fused(kind)
    }
    fn weight_bytes(&self, weight: &Weight) -> Result<usize, BackendError> {
        self.inner.weight_bytes(weight)
    }
    fn load_weights(
        &mut self,
        weights: &[(WeightId, &Weight)],
        progress: &mut dyn FnMut(usize),
    ) -> Result<(), BackendError> {
        self.inner.load_weights(weights, progress)
    }
    fn weights_bytes(&self) -> usize {
        self.inner.weights_bytes()
    }
    fn kv_bytes(&self, shape: &KvShape) -> usize {
        self.inner.kv_bytes(shape)
    }
    fn kv_page_bytes(&self, shape: &KvShape) -> usize {
        self.inner.kv_page_bytes(shape)
    }
    fn kv_copy(
        &mut self,
        region: BufferId,
        shape: &KvShape,
        from: usize,
        to: usize,
    ) -> Result<(), BackendError> {
        self.faults.copies.call()?;
        self.inner.kv_copy(region, shape, from, to)
    }
    fn kv_read(
        &mut self,
        region: BufferId,
        shape: &KvShape,
        page: usize,
        out: &mut [u8],
    ) -> Result<(), BackendError> {
        self.faults.reads.call()?;
        self.inner.kv_read(region, shape, page, out)
    }
    fn kv_write(
        &mut self,
        region: BufferId,
        shape: &KvShape,
        page: usize,
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        self.faults.writes.call()?;
        self.inner.kv_write(region, shape, page, bytes)
    }
    fn alloc(&mut self, bytes: usize, what: &str) -> Result<BufferId, BackendError> {
        self.inner.alloc(bytes, what)
    }
    fn alloc_kv(&mut self, shape: &KvShape, what: &str) -> Result<BufferId, BackendError> {
        self.inner.alloc_kv(shape, what)
    }
    fn free(&mut self, buffer: BufferId) {
        self.inner.free(buffer);
    }
    fn write(&mut self, buffer: BufferId, offset: usize, bytes: &[u8]) -> Result<(), BackendError> {
        self.faults.inputs.call()?;
        self.inner.write(buffer, offset, bytes)
    }
    fn read(
        &mut self,
        buffer: BufferId,
        offset: usize,
        out: &mut [u8],
    ) -> Result<(), BackendError> {
        self.faults.outputs.call()?;
        self.inner.read(buffer, offset, out)
    }
    fn host_f32(&mut self, buffer: BufferId, first: usize, len: usize) -> Option<&mut [f32]> {
        let outputs = &self.faults.outputs;
        let faults = [&outputs.fail, &outputs.panic];
        match faults.iter().all(|f| f.load(Ordering::Relaxed) == 0) {
            true => self.inner.host_f32(buffer, first, len),
            false => None,
        }
    }
    fn host_rows(
        &mut self,
        place: Place,
        cols: usize,
        parts: &[usize],
        work: &RowsWork<'_>,
    ) -> Result<bool, BackendError> {
        match self.host_f32(place.buffer, place.offset, 0).is_some() {
            true => {
                let choices = &self.faults.choices;
                let struck = |i: usize, rows: HostRows<'_>| {
                    choices.call().expect("they only panic");
                    work(i, rows);
                };
                self.inner.host_rows(place, cols, parts, &struck)
            }
            false => Ok(false),
        }
    }
    fn forget(&mut self, graph: u64) {
        self.inner.forget(graph);
    }
    fn execute(&mut self, run: &Run<'_>) -> Result<(), BackendError> {
        let n = self.faults.runs.count();
        while (1..n).contains(&self.faults.allowed.load(Ordering::Relaxed)) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        self.faults.runs.strike(n)?;
        self.inner.execute(run)
    }
    fn synchronize(&mut self) -> Result<(), BackendError> {
        self.inner.synchronize()
    }
    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

/// An engine on it.
pub fn engine(model: &Arc<Model>, options: EngineOptions) -> (Engine, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    let backends = backend::create(None, options.n_threads, None, true).expect("there is a CPU");
    let wrap = |inner| {
        let faults = faults.clone();
        Box::new(Faulty { inner, faults }) as Box<dyn Backend>
    };
    let backends = backends.into_iter().map(wrap).collect();
    let engine = Engine::with_backends(model.clone(), options, backends, &mut |_, _| {});
    (engine.unwrap_or_else(|e| panic!("{e}")), faults)
}
