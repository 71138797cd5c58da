//! Keeps what was made for each [`GraphParams`], and owns all buffers.
//!
//! Equal params, same graph: a steady engine builds nothing. The graphs run one at a time, so they
//! share one pool of buffers a backend: buffer `k` of the pool is as large as the largest need of
//! any graph for its buffer `k`. KV regions belong to the cache, not to a graph: they are made once
//! and survive every rebuild.

use super::alloc::{KvRegion, Plan, Slot};
use super::builder::next_uid;
use super::split::Split;
use super::{
    Backend, BackendId, BufferId, Graph, GraphError, GraphKind, GraphParams, Input, Place,
};

/// An input as one backend reads it.
#[derive(Clone, Copy, Debug)]
pub(super) struct InputPlace {
    pub input: Input,
    pub backend: BackendId,
    pub buffer: BufferId,
}

/// A graph ready to run.
pub(super) struct Compiled {
    pub graph: Graph,
    pub splits: Vec<Split>,
    pub plan: Plan,
    /// By backend, by node index.
    pub places: Vec<Vec<Option<Place>>>,
    pub inputs: Vec<InputPlace>,
    /// As built, where rebuilds are checked.
    pub built: Option<Graph>,
    last_used: u64,
}

impl Compiled {
    pub fn new(graph: Graph, splits: Vec<Split>, plan: Plan, built: Option<Graph>) -> Compiled {
        Compiled {
            graph,
            splits,
            plan,
            places: Vec::new(),
            inputs: Vec::new(),
            built,
            last_used: 0,
        }
    }
}

struct PoolBuffer {
    id: BufferId,
    bytes: usize,
}

struct KvBuffer {
    region: KvRegion,
    id: BufferId,
    bytes: usize,
}

/// The graphs of an engine and the memory they run in.
pub(super) struct GraphCache {
    graphs: Vec<Compiled>,
    /// By backend.
    pools: Vec<Vec<PoolBuffer>>,
    /// By layer, K then V.
    kv: Vec<KvBuffer>,
    max_graphs: usize,
    clock: u64,
}

/// What the backends may hold, and what their weights take of it.
#[derive(Clone, Copy)]
pub(super) struct Budget {
    pub bytes: Option<usize>,
    pub weights: usize,
}

impl GraphCache {
    pub fn new(n_backends: usize, max_graphs: usize) -> GraphCache {
        GraphCache {
            graphs: Vec::new(),
            pools: (0..n_backends).map(|_| Vec::new()).collect(),
            kv: Vec::new(),
            max_graphs: max_graphs.max(1),
            clock: 0,
        }
    }

    /// Where the graph of these params is, if it was made.
    pub fn find(&mut self, params: &GraphParams) -> Option<usize> {
        let at = self.graphs.iter().position(|g| g.graph.params == *params)?;
        self.clock += 1;
        self.graphs[at].last_used = self.clock;
        Some(at)
    }

    /// The graph at an index that [`GraphCache::find`] or [`GraphCache::insert`] gave.
    pub fn at(&self, index: usize) -> &Compiled {
        &self.graphs[index]
    }

    /// Graphs kept.
    pub fn len(&self) -> usize {
        self.graphs.len()
    }

    /// Takes a planned graph in: allocates what is missing and resolves its places.
    pub fn insert(
        &mut self,
        compiled: Compiled,
        backends: &mut [Box<dyn Backend>],
        budget: Budget,
    ) -> Result<usize, GraphError> {
        self.check_kv(&compiled.plan)?;
        if compiled.graph.params.kind == GraphKind::KvShift {
            // It names K alone: regions made for it would be half of what a page is.
            let known = |r| self.known_kv(r).is_some();
            if !compiled.plan.kv.iter().all(known) {
                return Err(GraphError::NoKv);
            }
        }
        self.check_budget(&compiled.plan, backends, budget)?;
        self.allocate_kv(&compiled.plan, backends)?;
        let grown = self.grow_pools(&compiled.plan, backends)?;
        self.evict(compiled.graph.params.weights_version, backends);
        for graph in &mut self.graphs {
            if uses_any(&graph.plan, &grown) {
                resolve(graph, &self.pools, &self.kv);
                // What a device captured for the old uid names buffers that are gone.
                forget(backends, graph);
                graph.graph.uid = next_uid();
            }
        }
        self.clock += 1;
        let mut compiled = compiled;
        compiled.last_used = self.clock;
        resolve(&mut compiled, &self.pools, &self.kv);
        self.graphs.push(compiled);
        Ok(self.graphs.len() - 1)
    }

    /// Makes room for one more graph; graphs of older weights go first.
    fn evict(&mut self, weights_version: u64, backends: &mut [Box<dyn Backend>]) {
        self.graphs.retain(|g| {
            let kept = g.graph.params.weights_version >= weights_version;
            if !kept {
                forget(backends, g);
            }
            kept
        });
        while self.graphs.len() >= self.max_graphs {
            let oldest = (0..self.graphs.len()).min_by_key(|&i| self.graphs[i].last_used);
            let gone = self.graphs.remove(oldest.expect("not empty"));
            forget(backends, &gone);
        }
    }

    fn known_kv(&self, region: &KvRegion) -> Option<&KvBuffer> {
        self.kv
            .iter()
            .find(|k| k.region.layer == region.layer && k.region.part == region.part)
    }

    fn check_kv(&self, plan: &Plan) -> Result<(), GraphError> {
        for region in &plan.kv {
            match self.known_kv(region) {
                Some(known) if known.region != *region => {
                    return Err(GraphError::KvChanged {
                        layer: region.layer,
                        part: region.part,
                        had: known.region,
                        asked: *region,
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn check_budget(
        &self,
        plan: &Plan,
        backends: &[Box<dyn Backend>],
        budget: Budget,
    ) -> Result<(), GraphError> {
        let Some(limit) = budget.bytes else {
            return Ok(());
        };
        let mut kv: usize = self.kv.iter().map(|k| k.bytes).sum();
        for region in &plan.kv {
            if self.known_kv(region).is_none() {
                kv = kv.saturating_add(kv_bytes(region, backends));
            }
        }
        let mut buffers = 0usize;
        for (pool, planned) in self.pools.iter().zip(&plan.backends) {
            for k in 0..pool.len().max(planned.pool.len()) {
                let have = pool.get(k).map_or(0, |b| b.bytes);
                let want = planned.pool.get(k).copied().unwrap_or(0);
                buffers = buffers.saturating_add(have.max(want));
            }
        }
        let need = budget.weights.saturating_add(kv).saturating_add(buffers);
        if need > limit {
            return Err(GraphError::Budget {
                need,
                budget: limit,
                weights: budget.weights,
                kv,
                buffers,
            });
        }
        Ok(())
    }

    fn allocate_kv(
        &mut self,
        plan: &Plan,
        backends: &mut [Box<dyn Backend>],
    ) -> Result<(), GraphError> {
        for region in &plan.kv {
            if self.known_kv(region).is_some() {
                continue;
            }
            let bytes = kv_bytes(region, backends);
            let what = format!("KV of layer {} ({:?})", region.layer, region.part);
            let id = backends[region.backend.0 as usize].alloc_kv(&region.shape, &what)?;
            self.kv.push(KvBuffer {
                region: *region,
                id,
                bytes,
            });
        }
        self.kv.sort_by_key(|k| (k.region.layer, k.region.part));
        Ok(())
    }

    /// Makes the pools large enough; returns the buffers that were replaced.
    fn grow_pools(
        &mut self,
        plan: &Plan,
        backends: &mut [Box<dyn Backend>],
    ) -> Result<Vec<(usize, usize)>, GraphError> {
        let mut replaced = Vec::new();
        for (b, planned) in plan.backends.iter().enumerate() {
            for (k, &bytes) in planned.pool.iter().enumerate() {
                let have = self.pools[b].get(k).map(|p| (p.id, p.bytes));
                if let Some((id, had)) = have {
                    if had >= bytes {
                        continue;
                    }
                    // Freed before its successor exists, so that both never count at once.
                    backends[b].free(id);
                    replaced.push((b, k));
                }
                match backends[b].alloc(bytes, "activations") {
                    Ok(id) if have.is_some() => self.pools[b][k] = PoolBuffer { id, bytes },
                    Ok(id) => self.pools[b].push(PoolBuffer { id, bytes }),
                    Err(e) => {
                        self.drop_pools(backends, have.map(|_| (b, k)));
                        return Err(e.into());
                    }
                }
            }
        }
        Ok(replaced)
    }

    /// After a failed allocation no graph's places can be trusted: all are forgotten. KV stays.
    fn drop_pools(&mut self, backends: &mut [Box<dyn Backend>], gone: Option<(usize, usize)>) {
        self.graphs.drain(..).for_each(|g| forget(backends, &g));
        for (b, pool) in self.pools.iter_mut().enumerate() {
            for (k, buffer) in pool.drain(..).enumerate() {
                if gone != Some((b, k)) {
                    backends[b].free(buffer.id);
                }
            }
        }
    }

    /// The KV regions there are: layer after layer, K then V.
    pub fn regions(&self) -> impl Iterator<Item = (&KvRegion, BufferId)> {
        self.kv.iter().map(|k| (&k.region, k.id))
    }

    /// Bytes of all KV regions and of all pools.
    pub fn bytes(&self) -> (usize, usize) {
        let pools = self.pools.iter().flatten().map(|p| p.bytes).sum();
        (self.kv.iter().map(|k| k.bytes).sum(), pools)
    }
}

fn kv_bytes(region: &KvRegion, backends: &[Box<dyn Backend>]) -> usize {
    backends[region.backend.0 as usize].kv_bytes(&region.shape)
}

/// Tells every backend that this graph, under the uid it has now, does not run any more.
fn forget(backends: &mut [Box<dyn Backend>], compiled: &Compiled) {
    let uid = compiled.graph.uid;
    backends.iter_mut().for_each(|b| b.forget(uid));
}

fn uses_any(plan: &Plan, replaced: &[(usize, usize)]) -> bool {
    replaced
        .iter()
        .any(|&(b, k)| k < plan.backends[b].pool.len())
}

/// Turns planned places into places in real buffers.
fn resolve(compiled: &mut Compiled, pools: &[Vec<PoolBuffer>], kv: &[KvBuffer]) {
    let plan = &compiled.plan;
    let region_buffer = |index: usize| {
        let region = plan.kv[index];
        let known = kv.iter().find(|k| k.region == region);
        known.expect("allocated before resolving").id
    };
    compiled.places = plan
        .backends
        .iter()
        .zip(pools)
        .map(|(planned, pool)| {
            let place = |p: super::alloc::PlannedPlace| Place {
                buffer: match p.slot {
                    Slot::Pool(k) => pool[k].id,
                    Slot::Kv(index) => region_buffer(index),
                },
                offset: p.offset,
                stride: p.stride,
            };
            planned.places.iter().map(|p| p.map(place)).collect()
        })
        .collect();
    compiled.inputs.clear();
    for (b, planned) in plan.backends.iter().enumerate() {
        for &(input, id) in &planned.inputs {
            let place = compiled.places[b][id.index()].expect("inputs are placed where read");
            compiled.inputs.push(InputPlace {
                input,
                backend: BackendId(b as u8),
                buffer: place.buffer,
            });
        }
    }
}
