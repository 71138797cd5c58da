//! Builds GGUF bytes by hand, so that they can be wrong.

/// Bytes under construction.
#[derive(Clone, Default)]
pub struct Raw(pub Vec<u8>);

impl Raw {
    /// Magic, version 3 and the two counts.
    pub fn header(n_tensors: u64, n_entries: u64) -> Raw {
        Raw::default()
            .bytes(b"GGUF")
            .u32(3)
            .u64(n_tensors)
            .u64(n_entries)
    }

    pub fn bytes(mut self, b: &[u8]) -> Raw {
        self.0.extend_from_slice(b);
        self
    }

    pub fn u32(self, v: u32) -> Raw {
        self.bytes(&v.to_le_bytes())
    }

    pub fn u64(self, v: u64) -> Raw {
        self.bytes(&v.to_le_bytes())
    }

    pub fn str(self, s: &str) -> Raw {
        self.u64(s.len() as u64).bytes(s.as_bytes())
    }

    /// A metadata entry up to its value.
    pub fn key(self, key: &str, type_id: u32) -> Raw {
        self.str(key).u32(type_id)
    }

    /// An entry of the tensor index.
    pub fn tensor(self, name: &str, dims: &[u64], type_id: u32, offset: u64) -> Raw {
        let head = self.str(name).u32(dims.len() as u32);
        dims.iter()
            .fold(head, |r, d| r.u64(*d))
            .u32(type_id)
            .u64(offset)
    }

    /// Zeros up to the next multiple of 32, and `n` more.
    pub fn data(mut self, n: usize) -> Vec<u8> {
        let start = self.0.len().next_multiple_of(32);
        self.0.resize(start + n, 0);
        self.0
    }
}
