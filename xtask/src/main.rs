//! Tasks of the project: tidy, golden, models, show.

fn main() {}
