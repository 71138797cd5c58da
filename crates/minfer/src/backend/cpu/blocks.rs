//! Neighbouring nodes that one step can do at once where rows are few: nobody then waits inside. What is
//! found here is a function of the graph; whether a batch is run so is decided when it runs, and
//! never changes a bit, since the merged step does the same operations in the same order.

use crate::graph::{Attention, Graph, Node, NodeId, Norm, Op, RopeKind, Rows, Run};

/// Nodes that belong together.
#[derive(Clone, Debug)]
pub(super) enum Block {
    /// From the products of q, k and v to the attention.
    Heads(Heads),
    /// A norm, a residual sum, and the normed product that follows.
    Entry(Entry),
}

/// Norms of q and k heads, RoPE, both stores, the choice of asked rows, attention.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heads {
    /// The queries before norm and RoPE.
    pub q: NodeId,
    /// Norm of each query head.
    pub q_norm: Option<Norm>,
    /// The keys before norm and RoPE.
    pub k: NodeId,
    /// Norm of each key head.
    pub k_norm: Option<Norm>,
    /// RoPE's pairing.
    pub rope: RopeKind,
    /// RoPE's angles.
    pub angles: NodeId,
    /// The store of keys.
    pub k_store: NodeId,
    /// The store of values.
    pub v_store: NodeId,
    /// Which rows are asked for, if not all.
    pub asked: Option<NodeId>,
    /// The attention.
    pub attention: NodeId,
}

/// `product(norm'(norm(x) + residual))`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// What is normed first.
    pub x: NodeId,
    /// By what.
    pub norm: Norm,
    /// What is added.
    pub residual: NodeId,
    /// Which rows of it, if not all.
    pub asked: Option<NodeId>,
    /// The sum, which later nodes read, too.
    pub sum: NodeId,
    /// The product, with a norm of its own.
    pub product: NodeId,
}

/// A block and its nodes in order.
pub(super) struct Found {
    pub block: Block,
    pub nodes: Vec<NodeId>,
}

/// Looks for blocks that end with a node.
pub(super) struct Finder<'a> {
    run: &'a Run<'a>,
    /// How often each output is read, by nodes and by the host.
    readers: Vec<usize>,
}

/// What comes before a store or an attention: norm and RoPE of heads.
struct Turned {
    from: NodeId,
    norm: Option<Norm>,
    rope: RopeKind,
    angles: NodeId,
}

impl<'a> Finder<'a> {
    pub fn new(run: &'a Run<'a>) -> Finder<'a> {
        let mut readers = vec![0; run.graph.nodes.len()];
        let sources = run.graph.nodes.iter().flat_map(|n| &n.srcs);
        for id in sources.chain(&run.graph.outputs) {
            readers[id.index()] += 1;
        }
        Finder { run, readers }
    }

    /// The block that ends with node `id`, if there is one and nothing else lies between its nodes.
    pub fn ending_with(&self, id: NodeId) -> Option<Found> {
        let mut nodes = vec![id];
        let block = match &self.node(id).op {
            Op::Attention(a) => Block::Heads(self.heads(a, id, &mut nodes)?),
            Op::MatMul(m) if m.norm.is_some() => Block::Entry(self.entry(id, &mut nodes)?),
            _ => return None,
        };
        nodes.sort();
        nodes.dedup();
        let between = |i: usize| {
            let id = NodeId(i as u32);
            !needs_work(self.node(id)) || nodes.contains(&id)
        };
        let first = nodes[0].index();
        (first >= self.run.nodes.start && (first..id.index()).all(between))
            .then_some(Found { block, nodes })
    }

    fn graph(&self) -> &'a Graph {
        self.run.graph
    }

    fn node(&self, id: NodeId) -> &'a Node {
        self.graph().node(id)
    }

    /// A node that only the block reads joins it: in a merged step its value is never written.
    fn join(&self, id: NodeId, nodes: &mut Vec<NodeId>) -> Option<&'a Node> {
        (self.readers[id.index()] == 1).then(|| nodes.push(id))?;
        Some(self.node(id))
    }

    fn heads(&self, a: &Attention, id: NodeId, nodes: &mut Vec<NodeId>) -> Option<Heads> {
        let srcs = &self.node(id).srcs;
        let (k_store, v_store) = (srcs[1], srcs[2]);
        nodes.extend([k_store, v_store]);
        let (k_srcs, v_srcs) = (&self.node(k_store).srcs, &self.node(v_store).srcs);
        let asked = match self.node(srcs[0]).op {
            Op::SelectRows => Some(self.node(srcs[0]).srcs[1]),
            _ => None,
        };
        // The queries' rows, slots and sequences are those of the stores, or the asked ones of them.
        let of = |selected: NodeId, all: Option<NodeId>, nodes: &mut Vec<NodeId>| {
            let from = match asked {
                None => Some(selected),
                Some(rows) => {
                    let s = self.join(selected, nodes)?;
                    (matches!(s.op, Op::SelectRows) && s.srcs[1] == rows).then(|| s.srcs[0])
                }
            };
            from.filter(|f| all.is_none_or(|a| a == *f))
        };
        let q = of(srcs[0], None, nodes)?;
        of(srcs[3], Some(k_srcs[1]), nodes)?;
        of(srcs[4], Some(k_srcs[2]), nodes)?;
        let same = k_srcs[1..] == v_srcs[1..] && k_srcs[3] == srcs[5];
        let q = self.turned(a, q, nodes)?;
        let k = self.turned(a, k_srcs[0], nodes)?;
        let alike = (q.rope, q.angles) == (k.rope, k.angles);
        let all = [q.from, k.from, v_srcs[0]].map(|s| self.node(s).shape.rows);
        (same && alike && all == [Rows::Tokens; 3]).then_some(Heads {
            q: q.from,
            q_norm: q.norm,
            k: k.from,
            k_norm: k.norm,
            rope: q.rope,
            angles: q.angles,
            k_store,
            v_store,
            asked,
            attention: id,
        })
    }

    fn turned(&self, a: &Attention, id: NodeId, nodes: &mut Vec<NodeId>) -> Option<Turned> {
        let node = self.join(id, nodes)?;
        let Op::Rope { kind, head_dim, .. } = node.op else {
            return None;
        };
        let (mut from, mut norm) = (node.srcs[0], None);
        if let Op::RmsNorm(n) = self.node(from).op
            && n.group == a.head_dim
        {
            norm = Some(n);
            from = self.join(from, nodes)?.srcs[0];
        }
        (head_dim == a.head_dim).then_some(Turned {
            from,
            norm,
            rope: kind,
            angles: node.srcs[1],
        })
    }

    fn entry(&self, id: NodeId, nodes: &mut Vec<NodeId>) -> Option<Entry> {
        let product = self.node(id);
        let sum = product.srcs[0];
        let Op::Add = self.node(sum).op else {
            return None;
        };
        nodes.push(sum);
        let [normed, mut residual] = self.node(sum).srcs[..] else {
            return None;
        };
        let first = self.join(normed, nodes)?;
        let Op::RmsNorm(norm) = first.op else {
            return None;
        };
        let mut asked = None;
        if let Op::SelectRows = self.node(residual).op {
            let select = self.join(residual, nodes)?;
            (residual, asked) = (select.srcs[0], Some(select.srcs[1]));
        }
        let apart = product.srcs.len() == 1 && norm.group == first.shape.cols;
        apart.then_some(Entry {
            x: first.srcs[0],
            norm,
            residual,
            asked,
            sum,
            product: id,
        })
    }
}

/// Whether a node is more than a name for memory.
pub(super) fn needs_work(node: &Node) -> bool {
    !matches!(node.op, Op::Input(_) | Op::View { .. })
}

impl Block {
    /// What a merged step reads and what it writes (beside regions).
    pub fn touches(&self, graph: &Graph) -> (Vec<NodeId>, Vec<NodeId>) {
        match self {
            Block::Heads(h) => {
                let v = graph.node(h.v_store).srcs[0];
                (vec![h.q, h.k, v, h.angles], vec![h.attention])
            }
            Block::Entry(e) => (vec![e.x, e.residual], vec![e.sum, e.product]),
        }
    }
}
