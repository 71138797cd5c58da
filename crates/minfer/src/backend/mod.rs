//! Backends: the registry and one folder a device.

pub mod cpu;
