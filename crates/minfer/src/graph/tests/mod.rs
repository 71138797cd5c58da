//! Tests of the whole room: passes, memory, execution over one and several backends.

mod assigning;
mod backends;
mod caching;
mod execution;
mod exporting;
mod fusion;
mod memory;
mod paging;
mod profiling;
mod random;
mod reference;
mod toy;
