//! Where a run needs barriers: only where one thread may read or overwrite what another has
//! touched since the last one.

use crate::graph::{BufferId, Node, Op, Place, Run};

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

/// One node that needs work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Index into the graph's nodes.
    pub node: usize,
    /// All threads meet first.
    pub barrier: bool,
}

/// The nodes of a run that need work, with barriers. `scratch` tells which nodes use the scratch
/// that all threads share.
pub(super) fn plan(run: &Run<'_>, scratch: impl Fn(&Node) -> bool) -> Vec<Step> {
    let (mut reads, mut writes): (Vec<Access>, Vec<Access>) = (Vec::new(), Vec::new());
    let mut steps = Vec::new();
    for (id, node) in run.iter() {
        if matches!(node.op, Op::Input(_) | Op::View { .. }) {
            continue;
        }
        let read: Vec<Access> = node
            .srcs
            .iter()
            .map(|s| Access::of(run.graph.node(*s), run.place(*s)))
            .collect();
        let mut write = vec![Access::of(node, run.place(id))];
        if scratch(node) {
            write.push(Access::SCRATCH);
        }
        let meets = |a: &[Access], b: &[Access]| a.iter().any(|x| b.iter().any(|y| x.meets(y)));
        let barrier = meets(&read, &writes) || meets(&write, &writes) || meets(&write, &reads);
        if barrier {
            reads.clear();
            writes.clear();
        }
        reads.extend(read);
        writes.extend(write);
        steps.push(Step {
            node: id.index(),
            barrier,
        });
    }
    steps
}
