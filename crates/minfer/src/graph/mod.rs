//! The compute graph: ir, ops, builder, params, assign, fuse, split, alloc, cache, execute, export.
//!
//! A forward pass is data. [`Builder`] makes a [`Graph`] out of nothing but [`GraphParams`]; the
//! passes assign backends, fuse, split into runs and allocate; then the runs are executed. This
//! room knows no device: a device is a [`Backend`]. It knows no architecture: `models` builds.

mod alloc;
mod assign;
mod backend;
mod builder;
mod cache;
mod error;
mod execute;
mod export;
mod fuse;
mod inputs;
mod ir;
mod op;
mod pages;
mod params;
mod profile;
pub mod reference;
mod scheduler;
mod split;
mod weights;

pub use alloc::{BackendPlan, KvRegion, Plan, PlannedPlace, Slot, plan, size_class};
pub use assign::assign;
pub use backend::{
    Backend, BackendError, BackendId, BufferId, Counters, Counts, FusedKind, HostRows, KvShape,
    NodeRange, Place, RowsWork, Run,
};
pub use builder::Builder;
pub use error::GraphError;
pub use execute::{Observer, PartsWork};
pub use export::{to_dot, to_json};
pub use fuse::fuse;
pub use inputs::BatchInputs;
pub use ir::{DType, Graph, Node, NodeId, Rows, Shape};
pub use op::{
    Activation, Attention, Input, KvPart, LayerKind, MatMul, MatPart, Norm, Op, RopeKind,
    RopeScaling, RopeTable,
};
pub use params::{ContextParams, GraphKind, GraphParams, KvType, PAGE, SEGMENT, capacity_class};
pub use profile::{Profile, Spent, Timed};
pub use scheduler::{MemoryUse, Scheduler, SchedulerOptions};
pub use split::{Crossing, Split, split};
pub use weights::{Advice, Weight, WeightData, WeightId, WeightSet, WeightUse};

#[cfg(test)]
mod tests;
