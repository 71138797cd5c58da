//! Architectures: hyper-parameters, tensor names and the graph of each.
