//! The graph itself: nodes in topological order.

use super::{BackendId, GraphParams, Input, Op};

/// A node's place in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    /// As an index into [`Graph::nodes`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Element types of node outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// 32-bit float.
    F32,
    /// 32-bit integer.
    I32,
    /// A KV region: its layout belongs to the backend.
    Kv,
}

/// How many rows: a capacity known when the graph is built, a true count known when it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rows {
    /// One a token of the batch.
    Tokens,
    /// One an asked output.
    Out,
    /// As many as that, always.
    Fixed(usize),
}

/// Shape of an output: rows of equal width, row-major.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Rows.
    pub rows: Rows,
    /// Elements a row.
    pub cols: usize,
}

/// One operation and its single output.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What is done, with its whole payload.
    pub op: Op,
    /// Where its operands come from: earlier nodes, in the order the operator documents.
    pub srcs: Vec<NodeId>,
    /// Output shape.
    pub shape: Shape,
    /// Output element type.
    pub dtype: DType,
    /// Who runs it; unset until assigned.
    pub backend: Option<BackendId>,
    /// The layer it belongs to; none for embedding, final norm and head.
    pub layer: Option<usize>,
    /// What it is in the architecture's words (`attn_norm`, `ffn_out`), for dumps and profiles.
    pub name: &'static str,
}

/// A forward pass as data: nodes in topological order, each after its sources.
#[derive(Clone, Debug)]
pub struct Graph {
    /// The identity the topology is a function of.
    pub params: GraphParams,
    /// Nodes in build order, a topological order.
    pub nodes: Vec<Node>,
    /// Input nodes, each input at most once.
    pub inputs: Vec<(Input, NodeId)>,
    /// Nodes whose value the host reads.
    pub outputs: Vec<NodeId>,
    /// Distinct for every built graph: a key for captured device graphs. Not part of equality of topology.
    pub uid: u64,
}

impl Graph {
    /// The node with this id.
    ///
    /// # Panics
    /// If the id is of another graph.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// Ids in order.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// Rows a buffer must hold.
    pub fn capacity(&self, rows: Rows) -> usize {
        match rows {
            Rows::Tokens => self.params.n_tokens,
            Rows::Out => self.params.n_out,
            Rows::Fixed(n) => n,
        }
    }

    /// Equal but for the uid: what equal [`GraphParams`] promise.
    pub fn same_topology(&self, other: &Graph) -> bool {
        self.params == other.params
            && self.nodes == other.nodes
            && self.inputs == other.inputs
            && self.outputs == other.outputs
    }
}
