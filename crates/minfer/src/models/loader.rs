//! Finds and checks an architecture's metadata and tensors, and counts which tensors were asked for.

use std::collections::HashSet;
use std::fmt::Display;
use std::ops::Range;
use std::sync::Arc;

use crate::gguf::{GgufError, GgufFile, TensorInfo, shown};
use crate::graph::{Advice, MatPart, Weight, WeightData, WeightId, WeightSet, WeightUse};
use crate::numeric;

/// Why a file is not a model that can be run. Names the key or tensor and the value.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A metadata value has another type.
    #[error("{0}")]
    Gguf(#[from] GgufError),
    /// `general.architecture` is none of those this build runs.
    #[error("unknown architecture '{name}': this build runs {known}")]
    UnknownArchitecture {
        /// The architecture.
        name: String,
        /// Those this build runs, separated by commas.
        known: String,
    },
    /// A metadata key that the architecture needs is not there.
    #[error("metadata key '{key}' is missing")]
    MissingKey {
        /// The key.
        key: String,
    },
    /// A metadata value that can't be followed.
    #[error("metadata key '{key}' is {value}: {reason}")]
    BadValue {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A tensor that the architecture needs is not there.
    #[error("tensor '{name}' is missing")]
    MissingTensor {
        /// The tensor.
        name: String,
    },
    /// A tensor has other sizes than the metadata says.
    #[error("tensor '{name}' has shape {found}, architecture '{arch}' needs {wanted}")]
    WrongShape {
        /// The tensor.
        name: String,
        /// Its sizes, fastest first.
        found: String,
        /// The sizes needed.
        wanted: String,
        /// The architecture.
        arch: String,
    },
    /// The vocabulary is not the embedding's.
    #[error(
        "the tokenizer has {tokens} tokens, tensor 'token_embd.weight' {rows} rows: they must be as many; convert the model again with the tokenizer that belongs to it"
    )]
    Vocabulary {
        /// Tokens of the file's tokenizer, those that only pad it included.
        tokens: usize,
        /// Rows of the embedding.
        rows: usize,
    },
    /// A tensor's type has no kernels.
    #[error("tensor '{name}' is of type {ty}, which can't be run: this build runs {known}")]
    UnrunnableType {
        /// The tensor.
        name: String,
        /// Its type.
        ty: String,
        /// Types that can be run, separated by commas.
        known: String,
    },
    /// Tensors are left over: the file means more than the architecture does.
    #[error(
        "{count} tensor(s) that architecture '{arch}' does not use, first '{first}': the file is of another model or a newer variant"
    )]
    UnusedTensors {
        /// How many.
        count: usize,
        /// The first of them, in file order.
        first: String,
        /// The architecture.
        arch: String,
    },
}

/// A tensor of a mapped file as the graph sees it.
struct Mapped {
    file: Arc<GgufFile>,
    info: TensorInfo,
}

impl WeightData for Mapped {
    fn bytes(&self) -> &[u8] {
        self.file.data(&self.info)
    }

    fn advise(&self, part: Range<usize>, advice: Advice) {
        match advice {
            Advice::Soon => self.file.advise_soon(&self.info, part),
            Advice::Now => self.file.advise_now(&self.info, part),
            Advice::Done => self.file.advise_done(&self.info, part),
        }
    }
}

/// Reads one file for one architecture.
pub struct Loader {
    file: Arc<GgufFile>,
    arch: String,
    weights: WeightSet,
    used: HashSet<String>,
}

impl Loader {
    /// For the file's `general.architecture`.
    pub fn new(file: Arc<GgufFile>) -> Result<Loader, ModelError> {
        let arch = match file.metadata().str("general.architecture")? {
            Some(a) => a.to_owned(),
            None => {
                return Err(ModelError::MissingKey {
                    key: "general.architecture".into(),
                });
            }
        };
        Ok(Loader {
            file,
            arch,
            weights: WeightSet::new(),
            used: HashSet::new(),
        })
    }

    /// `general.architecture`.
    pub fn architecture(&self) -> &str {
        &self.arch
    }

    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.arch)
    }

    /// The error of a value that can't be.
    pub fn bad(&self, name: &str, value: impl Display, reason: impl Display) -> ModelError {
        ModelError::BadValue {
            key: self.key(name),
            value: value.to_string(),
            reason: reason.to_string(),
        }
    }

    /// A count under the architecture's prefix. Some converters write it once a layer, as an
    /// array: all entries must agree. Absent: none.
    pub fn optional_size(&self, name: &str) -> Result<Option<usize>, ModelError> {
        let key = self.key(name);
        let meta = self.file.metadata();
        let value = match meta.get(&key) {
            Some(crate::gguf::Value::Array(_)) => {
                let per_layer = meta.u32_arr(&key)?.unwrap_or_default();
                match per_layer.split_first() {
                    Some((first, rest)) if rest.iter().all(|x| x == first) => Some(*first),
                    _ => {
                        return Err(self.bad(
                            name,
                            "an array",
                            "layers that differ are not supported",
                        ));
                    }
                }
            }
            _ => meta.u32(&key)?,
        };
        Ok(value.map(|v| v as usize))
    }

    /// A required count, at least 1 and at most 2^24 (more is no model).
    pub fn size(&self, name: &str) -> Result<usize, ModelError> {
        match self.optional_size(name)? {
            Some(n) if (1..=1 << 24).contains(&n) => Ok(n),
            Some(n) => Err(self.bad(name, n, "must be between 1 and 16777216")),
            None => Err(ModelError::MissingKey {
                key: self.key(name),
            }),
        }
    }

    /// A count with a default.
    pub fn size_or(&self, name: &str, default: usize) -> Result<usize, ModelError> {
        match self.optional_size(name)? {
            Some(_) => self.size(name),
            None => Ok(default),
        }
    }

    /// A count with a default, whose list would have another meaning and is refused.
    pub fn single_size_or(&self, name: &str, default: usize) -> Result<usize, ModelError> {
        match self.file.metadata().get(&self.key(name)) {
            Some(crate::gguf::Value::Array(_)) => Err(self.bad(
                name,
                "an array",
                "only one number for all layers is supported",
            )),
            _ => self.size_or(name, default),
        }
    }

    /// A truth value with a default.
    pub fn flag_or(&self, name: &str, default: bool) -> Result<bool, ModelError> {
        let value = self.file.metadata().bool(&self.key(name))?;
        Ok(value.unwrap_or(default))
    }

    /// A number, if there. One that is not finite is refused: no architecture means anything by it, and what holds a NaN
    /// never equals itself.
    fn optional_float(&self, name: &str) -> Result<Option<f32>, ModelError> {
        match self.file.metadata().f32(&self.key(name))? {
            Some(x) if !x.is_finite() => Err(self.bad(name, x, "must be a finite number")),
            other => Ok(other),
        }
    }

    /// A required number, finite.
    pub fn float(&self, name: &str) -> Result<f32, ModelError> {
        self.optional_float(name)?
            .ok_or_else(|| ModelError::MissingKey {
                key: self.key(name),
            })
    }

    /// A number with a default, finite.
    pub fn float_or(&self, name: &str, default: f32) -> Result<f32, ModelError> {
        Ok(self.optional_float(name)?.unwrap_or(default))
    }

    /// A text, if there.
    pub fn optional_text(&self, name: &str) -> Result<Option<String>, ModelError> {
        Ok(self
            .file
            .metadata()
            .str(&self.key(name))?
            .map(str::to_owned))
    }

    /// Whether the file has this tensor.
    pub fn has(&self, name: &str) -> bool {
        self.file.tensor(name).is_some()
    }

    /// Rows of a two-dimensional tensor, without using it.
    pub fn table_rows(&self, name: &str) -> Result<usize, ModelError> {
        let info = self.info(name)?;
        Ok(info.dims.get(1).copied().unwrap_or(1) as usize)
    }

    fn info(&self, name: &str) -> Result<&TensorInfo, ModelError> {
        self.file
            .tensor(name)
            .ok_or_else(|| ModelError::MissingTensor {
                name: name.to_owned(),
            })
    }

    fn take(
        &mut self,
        name: &str,
        dims: &[usize],
        usage: WeightUse,
    ) -> Result<WeightId, ModelError> {
        let info = self.info(name)?.clone();
        let found: Vec<usize> = info.dims.iter().map(|d| *d as usize).collect();
        // GGUF drops trailing dimensions of 1.
        let trim = |d: &[usize]| d.iter().rposition(|x| *x != 1).map_or(0, |i| i + 1);
        if found[..trim(&found)] != dims[..trim(dims)] {
            return Err(ModelError::WrongShape {
                name: name.to_owned(),
                found: format!("{found:?}"),
                wanted: format!("{dims:?}"),
                arch: self.arch.clone(),
            });
        }
        if !numeric::is_runnable(info.ty) {
            return Err(ModelError::UnrunnableType {
                name: name.to_owned(),
                ty: info.ty.to_string(),
                known: numeric::RUNNABLE
                    .iter()
                    .map(|t| t.name())
                    .collect::<Vec<_>>()
                    .join(", "),
            });
        }
        self.used.insert(name.to_owned());
        let data = Arc::new(Mapped {
            file: self.file.clone(),
            info: info.clone(),
        });
        let weight = Weight {
            name: name.to_owned(),
            ty: info.ty,
            dims: dims.to_vec(),
            usage,
            data,
        };
        Ok(self.weights.push(weight))
    }

    /// A vector of `n`.
    pub fn vector(&mut self, name: &str, n: usize) -> Result<WeightId, ModelError> {
        self.take(name, &[n], WeightUse::Vector)
    }

    /// A vector of `n`, if the file has it.
    pub fn optional_vector(
        &mut self,
        name: &str,
        n: usize,
    ) -> Result<Option<WeightId>, ModelError> {
        if self.has(name) {
            self.vector(name, n).map(Some)
        } else {
            Ok(None)
        }
    }

    /// A table whose rows are looked up.
    pub fn table(&mut self, name: &str, rows: usize, cols: usize) -> Result<WeightId, ModelError> {
        self.take(name, &[cols, rows], WeightUse::Table)
    }

    /// A matrix `name.weight`, with `name.bias` if the file has it.
    pub fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<MatPart, ModelError> {
        let weight = self.take(&format!("{name}.weight"), &[cols, rows], WeightUse::Matrix)?;
        let bias = self.optional_vector(&format!("{name}.bias"), rows)?;
        Ok(MatPart { weight, bias, rows })
    }

    /// The weights, if every tensor of the file was asked for.
    pub fn finish(self) -> Result<WeightSet, ModelError> {
        let unused: Vec<&str> = self
            .file
            .tensors()
            .iter()
            .map(|t| t.name.as_str())
            .filter(|n| !self.used.contains(*n))
            .collect();
        match unused.first() {
            None => Ok(self.weights),
            Some(first) => Err(ModelError::UnusedTensors {
                count: unused.len(),
                first: shown(first),
                arch: self.arch,
            }),
        }
    }
}
