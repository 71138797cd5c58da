//! The graph room's front door: backends, weights, graphs and their memory behind three calls.

use super::cache::{Budget, Compiled, GraphCache};
use super::execute::{self, Observer, PartsWork, Scratch};
use super::inputs::BatchInputs;
use super::pages;
use super::{
    Backend, BackendError, Counters, Counts, Graph, GraphError, GraphParams, LayerKind, Weight,
    WeightId, WeightSet, WeightUse, assign, fuse, plan, split,
};

/// How a scheduler is set up.
#[derive(Clone, Copy, Debug)]
pub struct SchedulerOptions {
    /// Bytes that weights, KV and buffers may take together, over all backends; `None`: no limit.
    pub budget_bytes: Option<usize>,
    /// Graphs kept; the least recently used goes first.
    pub max_graphs: usize,
    /// Builds the graph again at every reuse and asserts that nothing changed. On in debug builds.
    pub check_rebuilds: bool,
}

impl Default for SchedulerOptions {
    fn default() -> SchedulerOptions {
        SchedulerOptions {
            budget_bytes: None,
            max_graphs: 32,
            check_rebuilds: cfg!(debug_assertions),
        }
    }
}

/// Bytes in use, by purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Loaded weights.
    pub weights: usize,
    /// KV regions.
    pub kv: usize,
    /// Activations and inputs.
    pub buffers: usize,
}

/// Weights that one backend takes.
type WeightShare<'w> = Vec<(WeightId, &'w Weight)>;

/// Runs graphs on backends.
pub struct Scheduler {
    backends: Vec<Box<dyn Backend>>,
    options: SchedulerOptions,
    cache: GraphCache,
    weight_names: Vec<String>,
    scratch: Scratch,
    /// The last successful pass: which graph, how many rows.
    last: Option<(usize, Counts)>,
}

impl Scheduler {
    /// A scheduler over backends in priority order, without weights yet.
    pub fn new(backends: Vec<Box<dyn Backend>>, options: SchedulerOptions) -> Scheduler {
        let cache = GraphCache::new(backends.len(), options.max_graphs);
        Scheduler {
            backends,
            options,
            cache,
            weight_names: Vec::new(),
            scratch: Scratch::default(),
            last: None,
        }
    }

    /// Hands every weight to the backends; `progress` hears `(done, total)` in bytes of the file.
    ///
    /// A matrix or table goes to the first backend that takes it; a vector (small, and read by
    /// whoever runs its layer) to every one that does. Where a node runs follows from that, since
    /// a backend claims only nodes whose weights it has.
    ///
    /// # Errors
    /// [`GraphError::NoWeightBackend`] with each backend's reason when none takes a tensor;
    /// [`GraphError::Budget`] when the weights alone pass the budget: both before anything is loaded.
    /// A backend's other failures as they are; [`GraphError::WeightsLoaded`] for a second call.
    pub fn load_weights(
        &mut self,
        weights: &WeightSet,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<(), GraphError> {
        if !self.weight_names.is_empty() {
            return Err(GraphError::WeightsLoaded);
        }
        let (shares, need) = self.share_weights(weights)?;
        self.check_weights_budget(need)?;
        let total = weights.iter().map(|(_, w)| w.data.bytes().len()).sum();
        let mut done = 0;
        progress(done, total);
        for (backend, share) in self.backends.iter_mut().zip(&shares) {
            backend.load_weights(share, &mut |bytes| {
                // Never past the end: a vector is told by every backend that takes it.
                let before = done;
                done = total.min(done + bytes);
                if done > before {
                    progress(done, total);
                }
            })?;
        }
        if done < total {
            progress(total, total);
        }
        self.weight_names
            .extend(weights.iter().map(|(_, w)| w.name.clone()));
        Ok(())
    }

    /// Which weights each backend takes, and the bytes of all there.
    fn share_weights<'w>(
        &self,
        weights: &'w WeightSet,
    ) -> Result<(Vec<WeightShare<'w>>, usize), GraphError> {
        let mut shares = vec![Vec::new(); self.backends.len()];
        let mut need = 0;
        for (id, weight) in weights.iter() {
            let (mut taken, mut reasons) = (false, Vec::new());
            for (backend, share) in self.backends.iter().zip(&mut shares) {
                match backend.weight_bytes(weight) {
                    Ok(bytes) => {
                        (taken, need) = (true, need + bytes);
                        share.push((id, weight));
                    }
                    Err(BackendError::Weight { reason, .. }) => {
                        reasons.push(format!("{}: {reason}", backend.name()));
                    }
                    Err(other) => return Err(other.into()),
                }
                if taken && weight.usage != WeightUse::Vector {
                    break;
                }
            }
            if !taken {
                return Err(GraphError::NoWeightBackend {
                    tensor: weight.name.clone(),
                    reasons: reasons.join("; "),
                });
            }
        }
        Ok((shares, need))
    }

    fn check_weights_budget(&self, weights: usize) -> Result<(), GraphError> {
        match self.options.budget_bytes {
            Some(budget) if weights > budget => Err(GraphError::Budget {
                need: weights,
                budget,
                weights,
                kv: 0,
                buffers: 0,
            }),
            _ => Ok(()),
        }
    }

    fn weights_bytes(&self) -> usize {
        self.backends.iter().map(|b| b.weights_bytes()).sum()
    }

    /// Makes the graph of these params and all its memory, without running it; nothing if it exists.
    ///
    /// # Errors
    /// As [`Scheduler::forward`], but for inputs.
    pub fn prepare(
        &mut self,
        params: &GraphParams,
        build: &dyn Fn(&GraphParams) -> Graph,
    ) -> Result<&Graph, GraphError> {
        let at = self.find_or_make(params, build)?;
        Ok(&self.cache.at(at).graph)
    }

    /// One forward pass: builds, assigns, fuses, splits and allocates where these params are new,
    /// then writes the inputs and runs. Read the result with [`Scheduler::read_output`].
    ///
    /// # Errors
    /// [`GraphError::NoBackend`], [`GraphError::Budget`], [`GraphError::KvChanged`] for a new
    /// graph, [`GraphError::NoKv`] for a shift before there is anything to shift; [`GraphError::Input`] for a batch that does not fit; a backend's own failures.
    pub fn forward(
        &mut self,
        params: &GraphParams,
        build: &dyn Fn(&GraphParams) -> Graph,
        inputs: &BatchInputs<'_>,
        observer: Option<&mut dyn Observer>,
    ) -> Result<(), GraphError> {
        self.last = None;
        let at = self.find_or_make(params, build)?;
        let compiled = self.cache.at(at);
        inputs.check(&compiled.graph)?;
        execute::execute(
            compiled,
            &mut self.backends,
            inputs,
            &mut self.scratch,
            observer,
        )?;
        self.last = Some((at, inputs.counts()));
        Ok(())
    }

    /// One row of the last pass's output, to look at and to change until the next pass: not copied where
    /// the host can look into the backend's memory, else in `room`.
    ///
    /// # Errors
    /// [`GraphError::Output`] if nothing ran or there is no such row.
    pub fn output_row<'a>(
        &'a mut self,
        row: usize,
        room: &'a mut Vec<f32>,
    ) -> Result<&'a mut [f32], GraphError> {
        let Some((at, counts)) = self.last else {
            return Err(GraphError::Output("no forward pass has finished".into()));
        };
        let compiled = self.cache.at(at);
        execute::output_row(compiled, &mut self.backends, row, counts, room)
    }

    /// All rows of the last pass's output in parts, part `i` the next `parts[i]` rows: each is handed to `work` once, several
    /// at once if the backend has threads. Where the host can't look into the backend's memory they are copied to `room`,
    /// part by part; a part that can't be is handed over as an error.
    ///
    /// # Errors
    /// [`GraphError::Output`] if nothing ran or there are not so many rows; a backend's failure to work on them.
    pub fn output_parts(
        &mut self,
        parts: &[usize],
        room: &mut Vec<f32>,
        work: &PartsWork<'_>,
    ) -> Result<(), GraphError> {
        let Some((at, counts)) = self.last else {
            return Err(GraphError::Output("no forward pass has finished".into()));
        };
        let compiled = self.cache.at(at);
        execute::output_parts(compiled, &mut self.backends, parts, counts, room, work)
    }

    /// Rows of the last pass's output, row after row; `out` holds exactly that many values.
    ///
    /// # Errors
    /// [`GraphError::Output`] if nothing ran, or rows or sizes do not fit.
    pub fn read_output(
        &mut self,
        rows: std::ops::Range<usize>,
        out: &mut [f32],
    ) -> Result<(), GraphError> {
        let Some((at, counts)) = self.last else {
            return Err(GraphError::Output("no forward pass has finished".into()));
        };
        let compiled = self.cache.at(at);
        execute::read_output(compiled, &mut self.backends, rows, counts, out)
    }

    /// Copies a page, K and V, onto another one in all layers of a kind.
    ///
    /// # Errors
    /// [`GraphError::NoKv`] before the first graph was made ([`Scheduler::prepare`]), [`GraphError::KvPage`] for a
    /// page that does not exist; a backend's own failures.
    pub fn kv_copy(&mut self, kind: LayerKind, from: u32, to: u32) -> Result<(), GraphError> {
        pages::copy(&self.cache, &mut self.backends, kind, [from, to])
    }

    /// Bytes of a page, K and V, in all layers of a kind; 0 without such layers, and before the first graph
    /// was made.
    pub fn kv_page_bytes(&self, kind: LayerKind) -> usize {
        pages::page_bytes(&self.cache, &self.backends, kind)
    }

    /// Appends [`Scheduler::kv_page_bytes`] to `out`: a page of all layers of a kind, layer after layer, K then V.
    /// On the CPU a layer's part is `[kv head]` and then what `backend::cpu::kernels::kv` says of a head's part
    /// of a page. The order depends on neither page nor thread count nor CPU.
    ///
    /// # Errors
    /// As [`Scheduler::kv_copy`]; `out` is then as it was.
    pub fn kv_read(
        &mut self,
        kind: LayerKind,
        page: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), GraphError> {
        pages::read(&self.cache, &mut self.backends, (kind, page), out)
    }

    /// Makes a page what [`Scheduler::kv_read`] gave, of this or another page, here or in another process
    /// with the same model and context.
    ///
    /// # Errors
    /// As [`Scheduler::kv_copy`]; [`GraphError::KvBytes`] for bytes that are not one page, before any is written.
    pub fn kv_write(&mut self, kind: LayerKind, page: u32, bytes: &[u8]) -> Result<(), GraphError> {
        pages::write(&self.cache, &mut self.backends, (kind, page), bytes)
    }

    /// Bytes in use.
    pub fn memory(&self) -> MemoryUse {
        let (kv, buffers) = self.cache.bytes();
        MemoryUse {
            weights: self.weights_bytes(),
            kv,
            buffers,
        }
    }

    /// What all backends have counted since their start.
    pub fn counters(&self) -> Counters {
        let counted = self.backends.iter().map(|b| b.counters());
        counted.fold(Counters::default(), |a, b| a + b)
    }

    /// Graphs kept at the moment.
    pub fn graphs(&self) -> usize {
        self.cache.len()
    }

    /// The backends, in priority order.
    pub fn backends(&self) -> &[Box<dyn Backend>] {
        &self.backends
    }

    fn find_or_make(
        &mut self,
        params: &GraphParams,
        build: &dyn Fn(&GraphParams) -> Graph,
    ) -> Result<usize, GraphError> {
        if let Some(at) = self.cache.find(params) {
            if let Some(built) = &self.cache.at(at).built {
                let again = build(params);
                assert!(
                    again.same_topology(built),
                    "a graph is a function of its params alone, but building {params:?} again differs"
                );
            }
            return Ok(at);
        }
        self.last = None; // an eviction may move graphs
        let built = build(params);
        let mut graph = built.clone();
        assign(&mut graph, &self.backends, &self.weight_names)?;
        if params.context.fuse {
            graph = fuse(&graph, &self.backends);
        }
        let splits = split(&graph);
        let plan = plan(&graph, &splits, self.backends.len());
        let kept = self.options.check_rebuilds.then_some(built);
        let compiled = Compiled::new(graph, splits, plan, kept);
        let budget = Budget {
            bytes: self.options.budget_bytes,
            weights: self.weights_bytes(),
        };
        self.cache.insert(compiled, &mut self.backends, budget)
    }
}
