//! Plans memory: which buffer of which backend every output lies in, before anything is allocated.
//!
//! Liveness follows build order, which is the order of execution. An output takes the best-fitting
//! buffer that is free at that moment; it takes over its source's where the operator can work in
//! place and nobody else will ever read the source. Views are places inside their source. What
//! crosses to another backend gets a staging buffer there. KV regions are named, not planned:
//! they outlive graphs. What goes into a block that a backend may run as one step ([`block_sources`])
//! stays until the block's end.

use super::split::{Split, computes};
use super::{BackendId, DType, Graph, Input, KvPart, KvShape, LayerKind, NodeId, Op};

/// What a planned place lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Buffer number of the backend's pool.
    Pool(usize),
    /// A persistent region, by index into [`Plan::kv`].
    Kv(usize),
}

/// A place before buffers exist: element `(r, c)` is element `offset + r * stride + c` of the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedPlace {
    /// The buffer.
    pub slot: Slot,
    /// First element.
    pub offset: usize,
    /// Elements from row to row.
    pub stride: usize,
}

/// A KV region that a graph needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvRegion {
    /// Layer.
    pub layer: usize,
    /// Which of its two.
    pub part: KvPart,
    /// Whose pages.
    pub kind: LayerKind,
    /// Where.
    pub backend: BackendId,
    /// How large.
    pub shape: KvShape,
}

/// What one backend holds for a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackendPlan {
    /// By node index; `None` for nodes this backend never sees.
    pub places: Vec<Option<PlannedPlace>>,
    /// Bytes of each pool buffer, largest first, so that graphs share buffers well.
    pub pool: Vec<usize>,
    /// Inputs it reads.
    pub inputs: Vec<(Input, NodeId)>,
}

/// Memory of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// By backend id.
    pub backends: Vec<BackendPlan>,
    /// Persistent regions, in the order of their stores.
    pub kv: Vec<KvRegion>,
}

/// Rounds up to a size class: a multiple of 64 bytes, eight classes an octave, so that graphs of
/// neighbouring sizes find each other's buffers (at most an eighth is wasted).
pub fn size_class(bytes: usize) -> usize {
    let bytes = bytes.max(64);
    let step = (1usize << bytes.ilog2()) / 8;
    bytes.next_multiple_of(step.max(64))
}

/// Plans the memory of an assigned and split graph over `n_backends` backends.
pub fn plan(graph: &Graph, splits: &[Split], n_backends: usize) -> Plan {
    let mut planner = Planner::new(graph, splits, n_backends);
    planner.place_inputs();
    for split in splits {
        planner.place_crossings(split);
        for i in split.nodes.start..split.nodes.end {
            planner.place_node(NodeId(i as u32));
        }
    }
    planner.finish()
}

/// One backend's half-made plan.
#[derive(Default)]
struct Half {
    plan: BackendPlan,
    free: Vec<usize>,
    /// By root node: the pool buffer it owns right now.
    owned: Vec<Option<usize>>,
    /// By root node: when it is read last (a node index; `usize::MAX` for outputs).
    last: Vec<usize>,
}

struct Planner<'a> {
    graph: &'a Graph,
    halves: Vec<Half>,
    kv: Vec<KvRegion>,
    /// How often each output is read, reading by the host included.
    readers: Vec<usize>,
    is_output: Vec<bool>,
    /// By node index: roots beside the node's own sources that may go once it is done.
    held: Vec<Vec<NodeId>>,
}

impl<'a> Planner<'a> {
    fn new(graph: &'a Graph, splits: &[Split], n_backends: usize) -> Planner<'a> {
        let n = graph.nodes.len();
        let half = || Half {
            plan: BackendPlan {
                places: vec![None; n],
                ..BackendPlan::default()
            },
            free: Vec::new(),
            owned: vec![None; n],
            last: vec![0; n],
        };
        let mut planner = Planner {
            graph,
            halves: (0..n_backends).map(|_| half()).collect(),
            kv: Vec::new(),
            readers: vec![0; n],
            is_output: vec![false; n],
            held: vec![Vec::new(); n],
        };
        planner.find_last_reads(splits);
        planner
    }

    fn half(&mut self, backend: BackendId) -> &mut Half {
        &mut self.halves[backend.0 as usize]
    }

    fn home(&self, id: NodeId) -> BackendId {
        let backend = self.graph.node(id).backend;
        backend.expect("assigned before planning")
    }

    /// Who owns the memory that `id` is read from on `backend`: itself, or what it is a view of;
    /// a crossing brings a view's columns alone.
    fn root(&self, id: NodeId, backend: BackendId) -> NodeId {
        let mut at = id;
        while matches!(self.graph.node(at).op, Op::View { .. }) && self.home(at) == backend {
            at = self.graph.node(at).srcs[0];
        }
        at
    }

    fn find_last_reads(&mut self, splits: &[Split]) {
        for split in splits {
            for crossing in &split.crossings {
                let root = self.root(crossing.node, crossing.from);
                let last = &mut self.half(crossing.from).last[root.index()];
                *last = (*last).max(split.nodes.start);
            }
        }
        let graph = self.graph;
        for (i, node) in graph.nodes.iter().enumerate() {
            for s in &node.srcs {
                self.readers[s.index()] += 1;
                if computes(&node.op) {
                    let backend = self.home(NodeId(i as u32));
                    let root = self.root(*s, backend);
                    let last = &mut self.half(backend).last[root.index()];
                    *last = (*last).max(i);
                }
            }
            for s in block_sources(graph, NodeId(i as u32)) {
                if graph.node(s).backend == node.backend {
                    let backend = self.home(s);
                    let root = self.root(s, backend);
                    let last = &mut self.half(backend).last[root.index()];
                    *last = (*last).max(i);
                    self.held[i].push(root);
                }
            }
        }
        for &output in &graph.outputs {
            self.readers[output.index()] += 1;
            let backend = self.home(output);
            let root = self.root(output, backend);
            self.is_output[output.index()] = true;
            self.half(backend).last[root.index()] = usize::MAX;
        }
    }

    /// Every backend that reads an input has a buffer for it that nothing else ever uses: the
    /// host fills all of them before the first run.
    fn place_inputs(&mut self) {
        for &(input, id) in &self.graph.inputs {
            for b in 0..self.halves.len() {
                let backend = BackendId(b as u8);
                let reads =
                    self.graph.nodes.iter().any(|n| {
                        computes(&n.op) && n.backend == Some(backend) && n.srcs.contains(&id)
                    });
                if reads {
                    self.place_fresh(id, backend);
                    let half = self.half(backend);
                    half.last[id.index()] = usize::MAX;
                    half.plan.inputs.push((input, id));
                }
            }
        }
    }

    fn place_crossings(&mut self, split: &Split) {
        for crossing in &split.crossings {
            self.place_fresh(crossing.node, split.backend);
        }
        for crossing in &split.crossings {
            let root = self.root(crossing.node, crossing.from);
            self.release(root, crossing.from, split.nodes.start);
        }
    }

    fn place_node(&mut self, id: NodeId) {
        let (i, node) = (id.index(), self.graph.node(id));
        if matches!(node.op, Op::Input(_)) {
            return;
        }
        let backend = self.home(id);
        match node.op {
            Op::View { offset } => {
                let base = self.half(backend).plan.places[node.srcs[0].index()];
                let mut place = base.expect("a view's source comes before it, on its backend");
                place.offset += offset;
                self.half(backend).plan.places[i] = Some(place);
                return;
            }
            Op::KvStore { .. } | Op::KvShift { .. } => self.place_region(id),
            _ => match self.in_place(id) {
                Some(source) => {
                    let half = self.half(backend);
                    half.owned[i] = half.owned[source.index()].take();
                    half.plan.places[i] = half.plan.places[source.index()];
                }
                None => self.place_fresh(id, backend),
            },
        }
        for s in &node.srcs {
            let root = self.root(*s, backend);
            self.release(root, backend, i);
        }
        for root in std::mem::take(&mut self.held[i]) {
            self.release(root, backend, i);
        }
        self.release(id, backend, i); // an output that nobody reads
    }

    /// The source whose buffer this node may take over.
    fn in_place(&self, id: NodeId) -> Option<NodeId> {
        let node = self.graph.node(id);
        let source = node.srcs[node.op.in_place_source()?];
        let s = self.graph.node(source);
        let plain = computes(&s.op) && s.dtype == node.dtype && s.dtype != DType::Kv;
        let sole = self.readers[source.index()] == 1 && !self.is_output[source.index()];
        (plain && sole && s.backend == node.backend && s.shape == node.shape).then_some(source)
    }

    fn place_region(&mut self, id: NodeId) {
        let region = kv_region(self.graph, id, self.home(id));
        let known = self.kv.iter().position(|r| *r == region);
        let index = known.unwrap_or_else(|| {
            self.kv.push(region);
            self.kv.len() - 1
        });
        let backend = region.backend;
        self.half(backend).plan.places[id.index()] = Some(PlannedPlace {
            slot: Slot::Kv(index),
            offset: 0,
            stride: 0,
        });
    }

    fn place_fresh(&mut self, id: NodeId, backend: BackendId) {
        let shape = self.graph.node(id).shape;
        let bytes = size_class(self.graph.capacity(shape.rows) * shape.cols * 4);
        let half = self.half(backend);
        let slot = half.take(bytes);
        half.owned[id.index()] = Some(slot);
        half.plan.places[id.index()] = Some(PlannedPlace {
            slot: Slot::Pool(slot),
            offset: 0,
            stride: shape.cols,
        });
    }

    /// Gives the buffer of `root` back if it was read for the last time at node `now`.
    fn release(&mut self, root: NodeId, backend: BackendId, now: usize) {
        let half = self.half(backend);
        if half.last[root.index()] > now {
            return;
        }
        half.free.extend(half.owned[root.index()].take());
    }

    fn finish(self) -> Plan {
        Plan {
            backends: self.halves.into_iter().map(Half::sorted).collect(),
            kv: self.kv,
        }
    }
}

impl Half {
    /// The smallest free buffer that holds `bytes`; else the largest free one, grown; else a new one.
    fn take(&mut self, bytes: usize) -> usize {
        let pool = &mut self.plan.pool;
        let best = (0..self.free.len()).min_by_key(|&f| {
            let size = pool[self.free[f]];
            match size >= bytes {
                true => (0, size),
                false => (1, usize::MAX - size),
            }
        });
        match best {
            Some(f) => {
                let slot = self.free.swap_remove(f);
                pool[slot] = pool[slot].max(bytes);
                slot
            }
            None => {
                pool.push(bytes);
                pool.len() - 1
            }
        }
    }

    /// The plan with its pool sorted, largest first.
    fn sorted(mut self) -> BackendPlan {
        let old = &self.plan.pool;
        let mut order: Vec<usize> = (0..old.len()).collect();
        order.sort_by_key(|&slot| (std::cmp::Reverse(old[slot]), slot));
        let mut renamed = vec![0; order.len()];
        for (new, &slot) in order.iter().enumerate() {
            renamed[slot] = new;
        }
        for place in self.plan.places.iter_mut().flatten() {
            if let Slot::Pool(slot) = &mut place.slot {
                *slot = renamed[*slot];
            }
        }
        self.plan.pool = order.iter().map(|&slot| old[slot]).collect();
        self.plan
    }
}

/// What a backend reads when it runs the block that ends with node `id` as one step, from the block's
/// sources to its last node: of an attention all that lies between it and the products of q, k and v;
/// of a product behind a norm the sum that is normed, and what is normed and selected for that sum.
fn block_sources(graph: &Graph, id: NodeId) -> Vec<NodeId> {
    let node = graph.node(id);
    let mut found = Vec::new();
    let mut walk = match &node.op {
        Op::Attention(_) => node.srcs.clone(),
        Op::MatMul(m) if m.norm.is_some() => match graph.node(node.srcs[0]).op {
            Op::Add => graph.node(node.srcs[0]).srcs.clone(),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    };
    while let Some(at) = walk.pop() {
        found.push(at);
        let inside = matches!(
            graph.node(at).op,
            Op::Rope { .. } | Op::RmsNorm(_) | Op::KvStore { .. } | Op::SelectRows
        );
        if inside {
            walk.extend(&graph.node(at).srcs);
        }
    }
    found.retain(|s| computes(&graph.node(*s).op) || matches!(graph.node(*s).op, Op::View { .. }));
    found
}

/// The region a store or a shift writes to: its own payload and the context.
fn kv_region(graph: &Graph, id: NodeId, backend: BackendId) -> KvRegion {
    let context = &graph.params.context;
    let (layer, part, kind, ty, n_head_kv, head_dim) = match graph.node(id).op {
        Op::KvStore {
            layer,
            part,
            kind,
            ty,
            n_head_kv,
            head_dim,
        } => (layer, part, kind, ty, n_head_kv, head_dim),
        Op::KvShift {
            layer,
            kind,
            ty,
            n_head_kv,
            head_dim,
            ..
        } => (layer, KvPart::K, kind, ty, n_head_kv, head_dim),
        _ => unreachable!("asked for stores and shifts only"),
    };
    KvRegion {
        layer,
        part,
        kind,
        backend,
        shape: KvShape {
            ty,
            pages: context.pages(kind),
            n_head_kv,
            head_dim,
        },
    }
}
