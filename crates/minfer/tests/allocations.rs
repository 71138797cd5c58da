//! A steady forward pass allocates nothing on the heap. In a binary of its own, since it counts
//! every allocation of the process.

mod tiny;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use minfer::engine::{EngineOptions, Measure};
use minfer::graph::*;
use minfer::numeric::GgmlType;

struct Counting;

/// Of all threads.
static ALL: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Of this thread alone: the test harness has threads of its own.
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is handed to `System`, whose contract is this trait's; counting touches a
// `Cell` without destructor, which allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|c| c.set(c.get() + 1));
        ALL.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps `System`'s contract, which is ours.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from `System` with this layout, by `alloc` above.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A device that keeps memory and does no work: what is left is the scheduler.
struct Idle {
    scales: bool,
    buffers: Vec<Vec<u8>>,
}

impl Backend for Idle {
    fn name(&self) -> &'static str {
        "idle"
    }
    fn supports_op(&self, node: &Node) -> bool {
        self.scales == matches!(node.op, Op::Scale { .. })
    }
    fn supports_fused(&self, _: FusedKind) -> bool {
        false
    }
    fn weight_bytes(&self, _: &Weight) -> Result<usize, BackendError> {
        Ok(0)
    }
    fn load_weights(
        &mut self,
        _: &[(WeightId, &Weight)],
        _: &mut dyn FnMut(usize),
    ) -> Result<(), BackendError> {
        Ok(())
    }
    fn weights_bytes(&self) -> usize {
        0
    }
    fn kv_bytes(&self, _: &KvShape) -> usize {
        64
    }
    fn alloc(&mut self, bytes: usize, _: &str) -> Result<BufferId, BackendError> {
        self.buffers.push(vec![0; bytes]);
        Ok(BufferId(self.buffers.len() as u32 - 1))
    }
    fn free(&mut self, _: BufferId) {}
    fn write(&mut self, b: BufferId, offset: usize, bytes: &[u8]) -> Result<(), BackendError> {
        self.buffers[b.0 as usize][offset..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    fn read(&mut self, b: BufferId, offset: usize, out: &mut [u8]) -> Result<(), BackendError> {
        out.copy_from_slice(&self.buffers[b.0 as usize][offset..][..out.len()]);
        Ok(())
    }
    fn kv_read(
        &mut self,
        _: BufferId,
        _: &KvShape,
        _: usize,
        _: &mut [u8],
    ) -> Result<(), BackendError> {
        Err(no_pages())
    }
    fn kv_write(
        &mut self,
        _: BufferId,
        _: &KvShape,
        _: usize,
        _: &[u8],
    ) -> Result<(), BackendError> {
        Err(no_pages())
    }
    fn execute(&mut self, run: &Run<'_>) -> Result<(), BackendError> {
        for (id, node) in run.iter() {
            if !matches!(node.op, Op::Input(_) | Op::View { .. }) {
                std::hint::black_box(run.place(id));
            }
        }
        Ok(())
    }
    fn synchronize(&mut self) -> Result<(), BackendError> {
        Ok(())
    }
}

fn no_pages() -> BackendError {
    BackendError::Device {
        backend: "idle",
        reason: "it has no KV regions".into(),
    }
}

/// Embedding, two layers of a norm, a view, something on the other backend, and a head.
fn build(params: &GraphParams) -> Graph {
    let mut b = Builder::new(*params);
    let ids = b.input(Input::TokenIds);
    let mut x = b.get_rows("embed", WeightId(0), ids, 64);
    for layer in 0..2 {
        b.set_layer(Some(layer));
        let half = b.view("half", x, 32, 32);
        let scaled = b.scale("scaled", half, 2.0);
        let part = MatPart {
            weight: WeightId(1),
            bias: None,
            rows: 64,
        };
        let product = b.matmul("product", scaled, part);
        x = b.add("residual", product, x);
    }
    let rows = b.input(Input::OutRows);
    let asked = b.select_rows("asked", x, rows);
    b.finish(asked)
}

fn scheduler() -> Scheduler {
    let backends = [true, false].map(|scales| {
        Box::new(Idle {
            scales,
            buffers: Vec::new(),
        }) as Box<dyn Backend>
    });
    let options = SchedulerOptions {
        check_rebuilds: false, // a debug build's check builds graphs
        ..SchedulerOptions::default()
    };
    let mut scheduler = Scheduler::new(backends.into(), options);
    let mut weights = WeightSet::new();
    for usage in [WeightUse::Table, WeightUse::Matrix] {
        weights.push(Weight {
            name: format!("{usage:?}"),
            ty: GgmlType::F32,
            dims: vec![64, 64],
            usage,
            data: Arc::new(vec![0u8; 64 * 64 * 4]),
        });
    }
    scheduler.load_weights(&weights, &mut |_, _| {}).unwrap();
    scheduler
}

// One test after the other: the second one counts the allocations of all threads.
#[test]
fn a_steady_pass_allocates_nothing() {
    the_scheduler_allocates_nothing();
    the_engine_and_its_threads_allocate_nothing();
}

/// Decode steps of one sequence and of eight, across pages and a segment, on the real backend.
fn the_engine_and_its_threads_allocate_nothing() {
    let types = [GgmlType::Q4_1, GgmlType::Q8_0, GgmlType::F16];
    for model in [tiny::quantized("llama", &types), tiny::model("gemma3")] {
        let options = EngineOptions {
            n_ctx: 512,
            n_seqs: 8,
            whole_windows: true,
            n_threads: Some(2),
            check_rebuilds: false, // a debug build's check builds graphs
            ..EngineOptions::default()
        };
        let engine = tiny::engine(&model, &options);
        for n_seqs in [1, 8] {
            let measure = Measure {
                n_seqs,
                depth: 200,
                n_gen: 100,
                repetitions: 3,
                allocations: Some(|| ALL.load(Ordering::Relaxed)),
                ..Measure::default()
            };
            let (repetitions, _) = tiny::measure(&engine, measure);
            let counts: Vec<u64> = repetitions.iter().map(|r| r.allocations).collect();
            assert!(
                counts[0] > 0,
                "the first steps make the graph: the counter counts"
            );
            assert_eq!(counts[1..], [0, 0], "{n_seqs} sequences");
        }
    }
}

fn the_scheduler_allocates_nothing() {
    let mut scheduler = scheduler();
    let context = ContextParams {
        type_k: KvType::F16,
        type_v: KvType::F16,
        pages_full: 1,
        pages_windowed: 1,
        max_seqs: 1,
        pages_per_seq: 1,
        fuse: true,
    };
    let params = |n_tokens| GraphParams {
        n_tokens,
        n_out: 1,
        kind: GraphKind::Logits,
        context,
        weights_version: 1,
    };
    let (ids, out_rows) = ([1, 2, 3, 4], [0]);
    let mut out = vec![0.0; 64];
    let mut pass = |n: usize| {
        let inputs = BatchInputs {
            token_ids: &ids[..n],
            positions: &ids[..n],
            slots: &ids[..n],
            row_seq: &[0; 4][..n],
            out_rows: &out_rows,
            page_table_full: &[0],
            page_table_windowed: &[],
            ..BatchInputs::default()
        };
        let before = COUNT.with(Cell::get);
        scheduler
            .forward(&params(capacity_class(n)), &build, &inputs, None)
            .unwrap();
        scheduler.read_output(0..1, &mut out).unwrap();
        COUNT.with(Cell::get) - before
    };
    assert!(pass(1) > 0, "the first pass builds: the counter counts");
    assert!(pass(4) > 0);
    for n in [1, 4, 3, 1, 1] {
        assert_eq!(pass(n), 0, "{n} rows");
    }
}
