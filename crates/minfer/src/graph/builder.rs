//! Builds graphs: one method an operator. Pure: no computation, no I/O, no state outside.
//!
//! A shape that does not fit is a fault of the architecture's code, not of a user's file (the
//! loader has checked the file's shapes), so builder methods assert.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{
    Activation, Attention, DType, Graph, GraphParams, Input, KvPart, LayerKind, MatMul, MatPart,
    Node, NodeId, Norm, Op, RopeKind, RopeTable, Rows, Shape, WeightId,
};

static NEXT_UID: AtomicU64 = AtomicU64::new(1);

/// A number no graph has had yet.
pub(super) fn next_uid() -> u64 {
    NEXT_UID.fetch_add(1, Ordering::Relaxed)
}

/// A graph in the making.
pub struct Builder {
    graph: Graph,
    layer: Option<usize>,
}

impl Builder {
    /// An empty graph of these params.
    pub fn new(params: GraphParams) -> Builder {
        let graph = Graph {
            params,
            nodes: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            uid: next_uid(),
        };
        Builder { graph, layer: None }
    }

    /// The params the graph is a function of.
    pub fn params(&self) -> &GraphParams {
        &self.graph.params
    }

    /// Nodes from here on belong to this layer.
    pub fn set_layer(&mut self, layer: Option<usize>) {
        self.layer = layer;
    }

    /// Marks what the host will read and returns the graph.
    pub fn finish(mut self, output: NodeId) -> Graph {
        self.graph.outputs.push(output);
        self.graph
    }

    /// Shape of a node's output.
    pub fn shape(&self, id: NodeId) -> Shape {
        self.graph.node(id).shape
    }

    fn push(
        &mut self,
        name: &'static str,
        op: Op,
        srcs: Vec<NodeId>,
        shape: Shape,
        dtype: DType,
    ) -> NodeId {
        let layer = self.layer;
        self.graph.nodes.push(Node {
            op,
            srcs,
            shape,
            dtype,
            backend: None,
            layer,
            name,
        });
        NodeId(self.graph.nodes.len() as u32 - 1)
    }

    /// The node of an input; made at the first call.
    pub fn input(&mut self, input: Input) -> NodeId {
        if let Some((_, id)) = self.graph.inputs.iter().find(|(i, _)| *i == input) {
            return *id;
        }
        let c = &self.graph.params.context;
        let shape = match input {
            Input::TokenIds | Input::Positions | Input::Slots | Input::RowSeq | Input::Pages(_) => {
                Shape {
                    rows: Rows::Tokens,
                    cols: 1,
                }
            }
            Input::OutRows => Shape {
                rows: Rows::Out,
                cols: 1,
            },
            Input::PageTable(_) => Shape {
                rows: Rows::Fixed(c.max_seqs),
                cols: c.pages_per_seq,
            },
        };
        let name = match input {
            Input::TokenIds => "token_ids",
            Input::Positions => "positions",
            Input::Slots => "slots",
            Input::RowSeq => "row_seq",
            Input::OutRows => "out_rows",
            Input::PageTable(LayerKind::Full) => "page_table",
            Input::PageTable(LayerKind::Windowed) => "page_table_windowed",
            Input::Pages(LayerKind::Full) => "pages",
            Input::Pages(LayerKind::Windowed) => "pages_windowed",
        };
        let layer = self.layer.take(); // an input belongs to no layer
        let id = self.push(name, Op::Input(input), Vec::new(), shape, DType::I32);
        self.layer = layer;
        self.graph.inputs.push((input, id));
        id
    }

    /// Rows of an embedding table `[n_vocab][cols]` for the token ids.
    pub fn get_rows(
        &mut self,
        name: &'static str,
        weight: WeightId,
        ids: NodeId,
        cols: usize,
    ) -> NodeId {
        let shape = Shape {
            rows: self.shape(ids).rows,
            cols,
        };
        self.push(name, Op::GetRows { weight }, vec![ids], shape, DType::F32)
    }

    /// The asked rows of an activation.
    pub fn select_rows(&mut self, name: &'static str, x: NodeId, rows: NodeId) -> NodeId {
        let shape = Shape {
            rows: self.shape(rows).rows,
            cols: self.shape(x).cols,
        };
        let dtype = self.graph.node(x).dtype;
        self.push(name, Op::SelectRows, vec![x, rows], shape, dtype)
    }

    /// `x * factor`.
    pub fn scale(&mut self, name: &'static str, x: NodeId, factor: f32) -> NodeId {
        self.same(name, Op::Scale { factor }, vec![x])
    }

    /// Root-mean-square norm over groups of `norm.group` channels.
    pub fn rms_norm(&mut self, name: &'static str, x: NodeId, norm: Norm) -> NodeId {
        assert_eq!(self.shape(x).cols % norm.group, 0, "{name}: norm group");
        self.same(name, Op::RmsNorm(norm), vec![x])
    }

    /// `x · Wᵀ (+ bias)`.
    pub fn matmul(&mut self, name: &'static str, x: NodeId, part: MatPart) -> NodeId {
        let shape = Shape {
            rows: self.shape(x).rows,
            cols: part.rows,
        };
        let op = Op::MatMul(MatMul {
            parts: vec![part],
            norm: None,
            glu: None,
            residual: false,
        });
        self.push(name, op, vec![x], shape, DType::F32)
    }

    /// Columns `offset..offset + cols` of `x`, not copied: a part of a product that one matrix
    /// makes for several uses.
    pub fn view(&mut self, name: &'static str, x: NodeId, offset: usize, cols: usize) -> NodeId {
        let node = self.graph.node(x);
        assert!(
            !matches!(node.op, Op::Input(_)) && node.dtype == DType::F32,
            "{name}: a view is of an activation"
        );
        assert!(offset + cols <= node.shape.cols, "{name}: view width");
        let shape = Shape {
            rows: node.shape.rows,
            cols,
        };
        self.push(name, Op::View { offset }, vec![x], shape, DType::F32)
    }

    /// The table of angles for the batch's positions.
    pub fn rope_table(&mut self, name: &'static str, table: RopeTable) -> NodeId {
        let positions = self.input(Input::Positions);
        let shape = Shape {
            rows: Rows::Tokens,
            cols: table.n_dims,
        };
        let layer = self.layer.take();
        let id = self.push(
            name,
            Op::RopeTable(table),
            vec![positions],
            shape,
            DType::F32,
        );
        self.layer = layer;
        id
    }

    /// Rotates every head of `x` by the table's angles.
    pub fn rope(
        &mut self,
        name: &'static str,
        x: NodeId,
        table: NodeId,
        kind: RopeKind,
        head_dim: usize,
    ) -> NodeId {
        let n_dims = self.shape(table).cols;
        assert!(
            n_dims <= head_dim && self.shape(x).cols % head_dim == 0,
            "{name}: rope width"
        );
        self.same(
            name,
            Op::Rope {
                kind,
                head_dim,
                n_dims,
            },
            vec![x, table],
        )
    }

    /// Stores K or V rows into the layer's region; returns the region.
    pub fn kv_store(
        &mut self,
        name: &'static str,
        x: NodeId,
        part: KvPart,
        spec: &Attention,
    ) -> NodeId {
        assert_eq!(
            self.shape(x).cols,
            spec.n_head_kv * spec.head_dim,
            "{name}: kv width"
        );
        let (slots, seqs) = (self.input(Input::Slots), self.input(Input::RowSeq));
        let table = self.input(Input::PageTable(spec.kind));
        let op = Op::KvStore {
            layer: spec.layer,
            part,
            ty: match part {
                KvPart::K => self.graph.params.context.type_k,
                KvPart::V => self.graph.params.context.type_v,
            },
            n_head_kv: spec.n_head_kv,
            head_dim: spec.head_dim,
            kind: spec.kind,
        };
        self.region(name, op, vec![x, slots, seqs, table], spec)
    }

    /// Turns the layer's kept keys, in the pages of the input, by the angles of `table`; returns the region.
    pub fn kv_shift(
        &mut self,
        name: &'static str,
        table: NodeId,
        rope: RopeKind,
        spec: &Attention,
    ) -> NodeId {
        let n_dims = self.shape(table).cols;
        assert!(n_dims <= spec.head_dim, "{name}: rope width");
        let pages = self.input(Input::Pages(spec.kind));
        let op = Op::KvShift {
            layer: spec.layer,
            ty: self.graph.params.context.type_k,
            n_head_kv: spec.n_head_kv,
            head_dim: spec.head_dim,
            rope,
            n_dims,
            kind: spec.kind,
        };
        self.region(name, op, vec![table, pages], spec)
    }

    /// A node whose output is a region of the layer.
    fn region(
        &mut self,
        name: &'static str,
        op: Op,
        srcs: Vec<NodeId>,
        spec: &Attention,
    ) -> NodeId {
        let shape = Shape {
            rows: Rows::Fixed(0),
            cols: spec.n_head_kv * spec.head_dim,
        };
        self.push(name, op, srcs, shape, DType::Kv)
    }

    /// Attention of q's rows over what the stores hold. `rows` selects (slots, row sequences)
    /// when q has fewer rows than the batch.
    pub fn attention(
        &mut self,
        name: &'static str,
        qkv: [NodeId; 3],
        at: (NodeId, NodeId),
        spec: Attention,
    ) -> NodeId {
        let [q, k, v] = qkv;
        assert_eq!(
            self.shape(q).cols,
            spec.n_head * spec.head_dim,
            "{name}: q width"
        );
        assert_eq!(spec.n_head % spec.n_head_kv, 0, "{name}: head groups");
        let table = self.input(Input::PageTable(spec.kind));
        self.same(name, Op::Attention(spec), vec![q, k, v, at.0, at.1, table])
    }

    /// `a + b`.
    pub fn add(&mut self, name: &'static str, a: NodeId, b: NodeId) -> NodeId {
        assert_eq!(self.shape(a), self.shape(b), "{name}: shapes");
        self.same(name, Op::Add, vec![a, b])
    }

    /// `a * b`.
    pub fn mul(&mut self, name: &'static str, a: NodeId, b: NodeId) -> NodeId {
        assert_eq!(self.shape(a), self.shape(b), "{name}: shapes");
        self.same(name, Op::Mul, vec![a, b])
    }

    /// An activation function.
    pub fn act(&mut self, name: &'static str, act: Activation, x: NodeId) -> NodeId {
        self.same(name, Op::Act(act), vec![x])
    }

    /// A node shaped like its first source.
    fn same(&mut self, name: &'static str, op: Op, srcs: Vec<NodeId>) -> NodeId {
        let shape = self.shape(srcs[0]);
        self.push(name, op, srcs, shape, DType::F32)
    }
}
