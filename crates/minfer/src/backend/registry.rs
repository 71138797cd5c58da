//! Which backends there are, in what order they are asked, and which names are refused.

use crate::backend::cpu::{CpuBackend, CpuError};
use crate::graph::Backend;

/// Why no backend could be made.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// No backend has this name.
    #[error("unknown backend '{name}': there are metal, cuda and cpu")]
    Unknown {
        /// The name.
        name: String,
    },
    /// The backend exists, but not in this build.
    #[error("backend '{name}' is not in this build: it has {built}")]
    NotBuilt {
        /// Its name.
        name: String,
        /// The backends of this build, separated by commas.
        built: String,
    },
    /// The CPU backend could not be made.
    #[error(transparent)]
    Cpu(#[from] CpuError),
}

/// Every backend that will ever be asked, by falling priority.
const PRIORITY: &[(&str, u32)] = &[("metal", 300), ("cuda", 200), ("cpu", 100)];
/// Those of this build.
const BUILT: &[&str] = &["cpu"];

/// Refuses a name that is no backend's, or one whose backend is not in this build.
pub fn check(name: &str) -> Result<(), RegistryError> {
    if !PRIORITY.iter().any(|p| p.0 == name) {
        return Err(RegistryError::Unknown {
            name: name.to_owned(),
        });
    }
    if !BUILT.contains(&name) {
        return Err(RegistryError::NotBuilt {
            name: name.to_owned(),
            built: BUILT.join(", "),
        });
    }
    Ok(())
}

/// Makes the wanted backends (all built ones for `None`) in order of priority. The CPU, which can
/// run everything, is always among them. `cpu` names its instruction set (`None`: `MINFER_CPU`, or the
/// fastest there is); `pack` says whether it copies matrices or leaves them in the file.
pub fn create(
    wanted: Option<&[String]>,
    n_threads: Option<usize>,
    cpu: Option<&str>,
    pack: bool,
) -> Result<Vec<Box<dyn Backend>>, RegistryError> {
    for name in wanted.unwrap_or_default() {
        check(name)?;
    }
    Ok(vec![Box::new(
        CpuBackend::new(n_threads, cpu)?.packing(pack),
    )])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_refused_in_two_ways() {
        let ask = |n: &str| {
            create(Some(&[n.to_owned()]), Some(1), None, true)
                .map(|b| b.len())
                .map_err(|e| e.to_string())
        };
        assert_eq!(ask("cpu"), Ok(1));
        assert!(ask("gpu").unwrap_err().contains("unknown backend 'gpu'"));
        assert!(ask("metal").unwrap_err().contains("not in this build"));
    }
}
