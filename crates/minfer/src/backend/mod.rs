//! Backends: the registry and one folder a device.

pub mod cpu;
mod registry;

pub use registry::{RegistryError, check, create};
