//! The 16-lane machine: one trait, several instruction sets, equal bits.
