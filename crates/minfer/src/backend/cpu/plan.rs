//! Where a run needs barriers: only where one thread may read or overwrite what another has
//! touched since the last one.

use crate::graph::{BufferId, Node, NodeId, Place, Run};

use super::blocks::{Block, Finder, Found, needs_work};

/// Part of memory a node touches. Columns of equally strided rows that do not overlap do not meet.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Access {
    /// `None` is the scratch that all threads share.
    buffer: Option<BufferId>,
    first: usize,
    end: usize,
    stride: usize,
}

impl Access {
    fn of(node: &Node, place: Place) -> Access {
        let col = place.offset % place.stride.max(1);
        Access {
            buffer: Some(place.buffer),
            first: col,
            end: col + node.shape.cols,
            stride: place.stride,
        }
    }

    const SCRATCH: Access = Access {
        buffer: None,
        first: 0,
        end: 1,
        stride: 0,
    };

    fn meets(&self, other: &Access) -> bool {
        let apart =
            self.stride == other.stride && (self.end <= other.first || other.end <= self.first);
        self.buffer == other.buffer && !apart
    }
}

/// What is read and written.
#[derive(Default)]
struct Accesses {
    reads: Vec<Access>,
    writes: Vec<Access>,
}

impl Accesses {
    fn of(run: &Run<'_>, id: NodeId, scratch: &impl Fn(&Node) -> bool) -> Accesses {
        let node = run.graph.node(id);
        let mut found = Accesses {
            reads: node.srcs.iter().map(|s| access(run, *s)).collect(),
            writes: vec![access(run, id)],
        };
        if scratch(node) {
            found.writes.push(Access::SCRATCH);
        }
        found
    }

    /// Whether what `next` does must wait for this.
    fn block(&self, next: &Accesses) -> bool {
        let meets = |a: &[Access], b: &[Access]| a.iter().any(|x| b.iter().any(|y| x.meets(y)));
        meets(&next.reads, &self.writes)
            || meets(&next.writes, &self.writes)
            || meets(&next.writes, &self.reads)
    }

    fn add(&mut self, next: Accesses) {
        self.reads.extend(next.reads);
        self.writes.extend(next.writes);
    }

    /// Whether `next` needs a barrier; without one what it touches joins the rest.
    fn then(&mut self, next: Accesses) -> bool {
        let barrier = self.block(&next);
        if barrier {
            *self = Accesses::default();
        }
        self.add(next);
        barrier
    }
}

fn access(run: &Run<'_>, id: NodeId) -> Access {
    Access::of(run.graph.node(id), run.place(id))
}

/// One node that needs work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Single {
    /// Index into the graph's nodes.
    pub node: usize,
    /// All threads meet first.
    pub barrier: bool,
}

/// One node, or several that may be done at once.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// All threads meet first.
    pub barrier: bool,
    /// How the nodes are done at once, where that is possible.
    pub block: Option<Block>,
    /// The nodes one by one, with the barriers between them.
    pub nodes: Vec<Single>,
}

/// The nodes of a run that need work, with barriers. `scratch` tells which nodes use the scratch
/// that all threads share; `merge`: whether blocks are looked for.
pub(super) fn plan(run: &Run<'_>, merge: bool, scratch: impl Fn(&Node) -> bool) -> Vec<Step> {
    let ids: Vec<NodeId> = run
        .iter()
        .filter_map(|(id, node)| needs_work(node).then_some(id))
        .collect();
    let mut groups: Vec<(Vec<NodeId>, Option<Block>)> = Vec::new();
    let finder = (merge && ids.len() > 1).then(|| Finder::new(run));
    for id in ids {
        groups.push((vec![id], None));
        let found = finder.as_ref().and_then(|f| f.ending_with(id));
        if let Some(Found { block, nodes }) = found
            && apart(run, &block)
        {
            groups.truncate((groups.len() + 1).saturating_sub(nodes.len()));
            if let Some(last) = groups.last_mut() {
                *last = (nodes, Some(block));
            }
        }
    }
    let mut before = Accesses::default();
    let step = |(nodes, block): (Vec<NodeId>, Option<Block>)| {
        let (mut inside, mut all) = (Accesses::default(), Accesses::default());
        let single = |id: &NodeId| {
            all.add(Accesses::of(run, *id, &scratch));
            Single {
                node: id.index(),
                barrier: inside.then(Accesses::of(run, *id, &scratch)),
            }
        };
        let nodes = nodes.iter().map(single).collect();
        Step {
            barrier: before.then(all),
            block,
            nodes,
        }
    };
    groups.into_iter().map(step).collect()
}

/// Whether nothing that a merged step writes lies where it reads. (The allocator sees to it; another
/// one may not.)
fn apart(run: &Run<'_>, block: &Block) -> bool {
    let (reads, writes) = block.touches(run.graph);
    let writes: Vec<Access> = writes.iter().map(|w| access(run, *w)).collect();
    let mut reads = reads.iter().map(|r| access(run, *r));
    reads.all(|r| !writes.iter().any(|w| w.meets(&r)))
}
