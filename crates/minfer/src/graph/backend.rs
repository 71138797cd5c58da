//! What a device is to the graph.

use std::ops::Range;

use super::{Graph, KvType, Node, NodeId, Weight, WeightId};

/// Which of the registered backends: an index into the list the scheduler was given, which is in
/// priority order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackendId(pub u8);

/// A buffer of one backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

/// Combinations `fuse` may make of plain nodes, each only where the backend claims it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FusedKind {
    /// `Mul(Act(gate), up)` as one `Glu`.
    Glu,
    /// Several products of one source as one `MatMul` with views.
    MatMulGroup,
    /// `Glu(MatMul(x), MatMul(x))` as one `MatMul` with `glu`.
    MatMulGlu,
    /// `MatMul(RmsNorm(x))` as one.
    NormMatMul,
    /// `Add(MatMul(x), y)` as one.
    MatMulResidual,
}

/// A failure of a backend: names the node or weight and the reason.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// No memory for a buffer or weight.
    #[error("{backend}: cannot allocate {bytes} bytes for {what}")]
    OutOfMemory {
        /// Backend name.
        backend: &'static str,
        /// Bytes asked for.
        bytes: usize,
        /// For what.
        what: String,
    },
    /// A weight that this backend cannot run.
    #[error("tensor '{tensor}': {reason}")]
    Weight {
        /// Tensor name.
        tensor: String,
        /// Why not.
        reason: String,
    },
    /// An operation failed.
    #[error("{backend}: {op} (node {node}): {reason}")]
    Node {
        /// Backend name.
        backend: &'static str,
        /// Operator name.
        op: &'static str,
        /// Node index.
        node: usize,
        /// Why.
        reason: String,
    },
    /// The device itself failed.
    #[error("{backend}: {reason}")]
    Device {
        /// Backend name.
        backend: &'static str,
        /// Why.
        reason: String,
    },
}

/// Size of one layer's K or V region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KvShape {
    /// Format.
    pub ty: KvType,
    /// Pages of 32 positions.
    pub pages: usize,
    /// KV heads.
    pub n_head_kv: usize,
    /// Channels of a head.
    pub head_dim: usize,
}

impl KvShape {
    /// Bytes of a page's values in the region's format.
    ///
    /// # Panics
    /// As [`KvType::head_bytes`].
    pub fn page_bytes(&self) -> usize {
        self.n_head_kv * self.ty.head_bytes(self.head_dim)
    }
}

/// Where a node's output lies: element `(r, c)` is 4-byte element `offset + r * stride + c` of
/// the buffer (a KV region starts at its buffer's start; its layout is the backend's).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The buffer.
    pub buffer: BufferId,
    /// First element.
    pub offset: usize,
    /// Elements from row to row.
    pub stride: usize,
}

/// The true counts of one execution: data, not structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counts {
    /// Token rows in use.
    pub tokens: usize,
    /// Output rows in use.
    pub out: usize,
}

impl Counts {
    /// Rows in use of a node's output.
    pub fn rows(&self, rows: super::Rows) -> usize {
        match rows {
            super::Rows::Tokens => self.tokens,
            super::Rows::Out => self.out,
            super::Rows::Fixed(n) => n,
        }
    }
}

/// What a backend has counted since its start; 0 where it has no such thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counters {
    /// Times that all threads waited for each other.
    pub barriers: u64,
    /// Times that a thread gave its CPU back while it waited.
    pub parks: u64,
    /// Pieces of work that a thread took from another one's share.
    pub steals: u64,
}

impl Counters {
    /// What was counted since `earlier`.
    pub fn since(self, earlier: Counters) -> Counters {
        Counters {
            barriers: self.barriers - earlier.barriers,
            parks: self.parks - earlier.parks,
            steals: self.steals - earlier.steals,
        }
    }
}

impl std::ops::Add for Counters {
    type Output = Counters;
    fn add(self, other: Counters) -> Counters {
        Counters {
            barriers: self.barriers + other.barriers,
            parks: self.parks + other.parks,
            steals: self.steals + other.steals,
        }
    }
}

/// Consecutive nodes of one backend, with everything resolved.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// Which of its nodes; nodes of an `Input` or `View` need no work.
    pub nodes: NodeRange,
    /// By node index: where its output lies on *this run's* backend (a source computed elsewhere
    /// has been copied here before the run); `None` for nodes this backend never sees.
    pub places: &'a [Option<Place>],
    /// True counts.
    pub counts: Counts,
}

/// A copyable range of node indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeRange {
    /// First.
    pub start: usize,
    /// One past the last.
    pub end: usize,
}

impl Run<'_> {
    /// The nodes of the run with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        let r: Range<usize> = self.nodes.start..self.nodes.end;
        r.map(|i| (NodeId(i as u32), &self.graph.nodes[i]))
    }

    /// Where a node's output lies.
    ///
    /// # Panics
    /// If it has no place on this backend: a fault of the allocator, not of the user.
    pub fn place(&self, id: NodeId) -> Place {
        self.places[id.index()].expect("every node of a run and its sources have places")
    }
}

/// Rows of f32 values to be looked at and changed.
pub struct HostRows<'a> {
    values: &'a mut [f32],
    cols: usize,
    stride: usize,
}

impl<'a> HostRows<'a> {
    /// Rows of `cols` values, each `stride` after the one before; the last may end with its values.
    pub fn new(values: &'a mut [f32], cols: usize, stride: usize) -> HostRows<'a> {
        HostRows {
            values,
            cols,
            stride,
        }
    }

    /// A row's values, `[cols]`; `None` if there are not so many.
    pub fn row(&mut self, row: usize) -> Option<&mut [f32]> {
        let first = row.checked_mul(self.stride)?;
        self.values.get_mut(first..)?.get_mut(..self.cols)
    }
}

/// Works on part `i` of some rows.
pub type RowsWork<'a> = dyn Fn(usize, HostRows<'_>) + Sync + 'a;

/// A device. It owns its weights (in its own layout) and its buffers, and executes runs of nodes.
///
/// Contract: a kernel that cannot do what it claimed returns an error; nothing falls back.
/// `execute` may return before the work is done; `synchronize`, `read`, `write` and the `kv_` calls wait for it.
/// Who claims a layer's stores and attention claims its [`Op::KvShift`](super::Op::KvShift), too.
pub trait Backend: Send {
    /// `cpu`, `cuda`, `metal`.
    fn name(&self) -> &'static str;
    /// Whether this node, as it stands, can run here (formats of its weights included).
    fn supports_op(&self, node: &Node) -> bool;
    /// Whether `fuse` may make such nodes for this backend.
    fn supports_fused(&self, kind: FusedKind) -> bool;
    /// Bytes that a weight will take here. Touches none of the weight's own.
    ///
    /// # Errors
    /// [`BackendError::Weight`] with the reason for a weight that can't be run here.
    fn weight_bytes(&self, weight: &Weight) -> Result<usize, BackendError>;
    /// Takes weights in, none of which [`Backend::weight_bytes`] refuses: packs or copies them. All in one call, so
    /// that no thread waits at a tensor's end; an id once. `progress` hears how many bytes of the
    /// weights have been done since it was called last.
    fn load_weights(
        &mut self,
        weights: &[(WeightId, &Weight)],
        progress: &mut dyn FnMut(usize),
    ) -> Result<(), BackendError>;
    /// Bytes the loaded weights take.
    fn weights_bytes(&self) -> usize;
    /// Bytes a KV region of this shape takes here.
    fn kv_bytes(&self, shape: &KvShape) -> usize;
    /// Bytes that [`Backend::kv_read`] gives of one page of such a region.
    fn kv_page_bytes(&self, shape: &KvShape) -> usize {
        shape.page_bytes()
    }
    /// Copies page `from` of a region of this shape onto page `to`; both exist.
    fn kv_copy(
        &mut self,
        region: BufferId,
        shape: &KvShape,
        from: usize,
        to: usize,
    ) -> Result<(), BackendError> {
        let mut bytes = vec![0; self.kv_page_bytes(shape)];
        self.kv_read(region, shape, from, &mut bytes)?;
        self.kv_write(region, shape, to, &bytes)
    }
    /// Copies a page of a region out: `out` has [`Backend::kv_page_bytes`]. Their order is the backend's, and a
    /// promise: the same for every page, machine, thread count and version, since files keep it.
    fn kv_read(
        &mut self,
        region: BufferId,
        shape: &KvShape,
        page: usize,
        out: &mut [u8],
    ) -> Result<(), BackendError>;
    /// Makes a page what [`Backend::kv_read`] gave of any page of a region of the same shape.
    fn kv_write(
        &mut self,
        region: BufferId,
        shape: &KvShape,
        page: usize,
        bytes: &[u8],
    ) -> Result<(), BackendError>;
    /// A new zeroed buffer.
    fn alloc(&mut self, bytes: usize, what: &str) -> Result<BufferId, BackendError>;
    /// A new zeroed buffer for a KV region of this shape, which lives as long as the regions of the other layers.
    fn alloc_kv(&mut self, shape: &KvShape, what: &str) -> Result<BufferId, BackendError> {
        self.alloc(self.kv_bytes(shape), what)
    }
    /// Gives a buffer back.
    fn free(&mut self, buffer: BufferId);
    /// Copies host bytes in, at a byte offset.
    fn write(&mut self, buffer: BufferId, offset: usize, bytes: &[u8]) -> Result<(), BackendError>;
    /// Copies bytes out, from a byte offset.
    fn read(&mut self, buffer: BufferId, offset: usize, out: &mut [u8])
    -> Result<(), BackendError>;
    /// Copies f32 values out, from element `first` of the buffer.
    fn read_f32(
        &mut self,
        buffer: BufferId,
        first: usize,
        out: &mut [f32],
    ) -> Result<(), BackendError> {
        if let Some(values) = self.host_f32(buffer, first, out.len()) {
            out.copy_from_slice(values);
            return Ok(());
        }
        let mut bytes = [0; 4096];
        for (i, part) in out.chunks_mut(bytes.len() / 4).enumerate() {
            let at = 4 * first + bytes.len() * i;
            let bytes = &mut bytes[..4 * part.len()];
            self.read(buffer, at, bytes)?;
            for (value, b) in part.iter_mut().zip(bytes.chunks_exact(4)) {
                *value = f32::from_ne_bytes([b[0], b[1], b[2], b[3]]);
            }
        }
        Ok(())
    }
    /// `len` f32 values from element `first` of the buffer, where they are memory that the host may look
    /// at and change; `None` if they are not, or not all there.
    fn host_f32(&mut self, _buffer: BufferId, _first: usize, _len: usize) -> Option<&mut [f32]> {
        None
    }
    /// Hands rows that lie at `place` to `work`, where they are memory that the host may look at and change: `cols` values each,
    /// part `i` being the next `parts[i]` rows. The parts may be worked on at once. `false`: the host can't look there, and
    /// nothing was done.
    ///
    /// # Errors
    /// A part's work has panicked: then others may not have been worked on.
    fn host_rows(
        &mut self,
        _place: Place,
        _cols: usize,
        _parts: &[usize],
        _work: &RowsWork<'_>,
    ) -> Result<bool, BackendError> {
        Ok(false)
    }
    /// No run of the graph with this uid will come any more: what was made for it may go.
    fn forget(&mut self, _graph: u64) {}
    /// Executes the nodes of a run in order.
    fn execute(&mut self, run: &Run<'_>) -> Result<(), BackendError>;
    /// Waits until everything started is done.
    fn synchronize(&mut self) -> Result<(), BackendError>;
    /// What it has counted.
    fn counters(&self) -> Counters {
        Counters::default()
    }
}
