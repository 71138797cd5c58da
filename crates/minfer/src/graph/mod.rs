//! The compute graph: ir, ops, builder, params, assign, fuse, split, alloc, cache, execute, export.
