//! Writes GGUF files, for tests and for tools that make models.

use std::collections::HashSet;
use std::io::{self, Write};

use crate::numeric::GgmlType;

use super::error::{Fault, GgufError, shown};
use super::metadata::Metadata;
use super::tensor::TensorInfo;
use super::value::{Array, Value};
use super::{Alignment, MAX_ARRAY_DEPTH, MAX_DIMS, MAX_NAME};

/// What a file will hold: metadata, and the index of its tensors. Their data follows in order,
/// through the [`TensorWriter`] that [`GgufWriter::start`] gives.
///
/// ```
/// use minfer::gguf::{GgufFile, GgufWriter, Value};
/// use minfer::numeric::GgmlType;
///
/// let mut w = GgufWriter::new(3)?;
/// w.set("general.architecture", Value::Str("llama".into()))?;
/// w.tensor("output_norm.weight", GgmlType::F32, &[2])?;
/// let mut out = w.start(Vec::new())?;
/// out.tensor(&[0; 8])?;
/// let file = GgufFile::from_bytes(out.finish()?)?;
/// assert_eq!(file.metadata().str("general.architecture")?, Some("llama"));
/// # Ok::<(), minfer::gguf::GgufError>(())
/// ```
#[derive(Clone, Debug)]
pub struct GgufWriter {
    version: u32,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    names: HashSet<String>,
}

impl GgufWriter {
    /// A file of this version (2 or 3; they are laid out alike) with nothing in it.
    ///
    /// # Errors
    /// [`GgufError::Unwritable`] for another version.
    pub fn new(version: u32) -> Result<GgufWriter, GgufError> {
        if !matches!(version, 2 | 3) {
            return Err(GgufError::Unwritable(format!(
                "GGUF version {version}: only 2 and 3 can be written"
            )));
        }
        Ok(GgufWriter {
            version,
            metadata: Metadata::new(),
            tensors: Vec::new(),
            names: HashSet::new(),
        })
    }

    /// Adds a metadata entry. `general.alignment` (a u32) sets the alignment of the tensors' data.
    ///
    /// # Errors
    /// [`GgufError::Unwritable`] for a key that is there already or is too long, a bad alignment,
    /// or arrays that are nested more than [`MAX_ARRAY_DEPTH`] deep.
    pub fn set(&mut self, key: &str, value: Value) -> Result<(), GgufError> {
        check_name(key)?;
        let depth = match &value {
            Value::Array(a) => a.depth(),
            _ => 0,
        };
        if depth > MAX_ARRAY_DEPTH {
            let why = format!(
                "arrays in `{}` are nested {depth} deep, at most {MAX_ARRAY_DEPTH} can be",
                shown(key)
            );
            return Err(GgufError::Unwritable(why));
        }
        if !self.metadata.insert(key, value) {
            return Err(unwritable(Fault::DuplicateKey(key.to_owned())));
        }
        Alignment::of(&self.metadata).map(drop).map_err(unwritable)
    }

    /// Adds a tensor: sizes in values, row length first, one to four of them.
    ///
    /// # Errors
    /// [`GgufError::Unwritable`] for a name that is there already or is too long, a size of 0,
    /// another number of sizes, or a row that is no whole number of `ty`'s blocks.
    pub fn tensor(&mut self, name: &str, ty: GgmlType, dims: &[u64]) -> Result<(), GgufError> {
        if dims.is_empty() || dims.len() > MAX_DIMS as usize {
            let why = format!(
                "it has {} dimensions, it must have one to {MAX_DIMS}",
                dims.len()
            );
            return Err(unwritable(Fault::tensor(name, why)));
        }
        check_name(name)?;
        if !self.names.insert(name.to_owned()) {
            return Err(unwritable(Fault::tensor(name, "it occurs twice")));
        }
        self.tensors
            .push(TensorInfo::new(name.to_owned(), ty, dims.to_vec(), 0).map_err(unwritable)?);
        Ok(())
    }

    /// Writes the header. The tensors' data is then given to the result, in the same order.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn start<W: Write>(self, out: W) -> Result<TensorWriter<W>, GgufError> {
        let alignment = Alignment::of(&self.metadata).map_err(unwritable)?;
        let mut out = Counted { out, at: 0 };
        out.write_all(b"GGUF")?;
        out.write_all(&self.version.to_le_bytes())?;
        out.write_all(&(self.tensors.len() as u64).to_le_bytes())?;
        out.write_all(&(self.metadata.len() as u64).to_le_bytes())?;
        for (key, value) in self.metadata.iter() {
            put_str(&mut out, key)?;
            put_value(&mut out, value)?;
        }
        let mut offset = 0u64;
        for t in &self.tensors {
            put_tensor_info(&mut out, t, offset)?;
            offset = alignment.pad(offset.saturating_add(t.n_bytes));
        }
        Ok(TensorWriter {
            out,
            alignment,
            tensors: self.tensors,
            next: 0,
        })
    }
}

/// Takes the tensors' data after the header; every tensor is padded to the alignment.
pub struct TensorWriter<W> {
    out: Counted<W>,
    alignment: Alignment,
    tensors: Vec<TensorInfo>,
    next: usize,
}

impl<W: Write> TensorWriter<W> {
    /// Writes the next tensor's bytes.
    ///
    /// # Errors
    /// [`GgufError::Unwritable`] if no tensor is left or `data` has another length than its type
    /// and sizes say; errors of the output.
    pub fn tensor(&mut self, data: &[u8]) -> Result<(), GgufError> {
        let Some(t) = self.tensors.get(self.next) else {
            let why = format!(
                "there are data for more than the {} tensors that were declared",
                self.tensors.len()
            );
            return Err(GgufError::Unwritable(why));
        };
        if data.len() as u64 != t.n_bytes {
            let why = format!(
                "its {:?} values of {} take {} bytes, got {}",
                t.dims,
                t.ty,
                t.n_bytes,
                data.len()
            );
            return Err(unwritable(Fault::tensor(&t.name, why)));
        }
        pad(&mut self.out, self.alignment)?;
        self.out.write_all(data)?;
        self.next = self.next.saturating_add(1);
        Ok(())
    }

    /// Pads the end, flushes, and gives the output back.
    ///
    /// # Errors
    /// [`GgufError::Unwritable`] if a tensor's data was not given; errors of the output.
    pub fn finish(mut self) -> Result<W, GgufError> {
        if let Some(t) = self.tensors.get(self.next) {
            return Err(unwritable(Fault::tensor(&t.name, "its data was not given")));
        }
        pad(&mut self.out, self.alignment)?;
        self.out.flush()?;
        Ok(self.out.out)
    }
}

fn check_name(name: &str) -> Result<(), GgufError> {
    if name.len() as u64 <= MAX_NAME {
        return Ok(());
    }
    let why = format!("the name `{}` is longer than {MAX_NAME} bytes", shown(name));
    Err(GgufError::Unwritable(why))
}

fn unwritable(fault: Fault) -> GgufError {
    GgufError::Unwritable(fault.to_string())
}

/// A writer that knows how many bytes went through it.
struct Counted<W> {
    out: W,
    at: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.out.write(bytes)?;
        self.at = self.at.saturating_add(n as u64);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn pad<W: Write>(out: &mut Counted<W>, alignment: Alignment) -> io::Result<()> {
    let missing = alignment.pad(out.at).saturating_sub(out.at);
    io::copy(&mut io::Read::take(io::repeat(0), missing), out).map(drop)
}

fn put_str(out: &mut impl Write, s: &str) -> io::Result<()> {
    out.write_all(&(s.len() as u64).to_le_bytes())?;
    out.write_all(s.as_bytes())
}

fn put_tensor_info(out: &mut impl Write, t: &TensorInfo, offset: u64) -> io::Result<()> {
    put_str(out, &t.name)?;
    out.write_all(&(t.dims.len() as u32).to_le_bytes())?;
    for d in &t.dims {
        out.write_all(&d.to_le_bytes())?;
    }
    out.write_all(&(t.ty as u32).to_le_bytes())?;
    out.write_all(&offset.to_le_bytes())
}

/// The id of a value type, and its little-endian bytes.
fn put_value(out: &mut impl Write, value: &Value) -> io::Result<()> {
    let mut put = |id: u32, bytes: &[u8]| {
        out.write_all(&id.to_le_bytes())?;
        out.write_all(bytes)
    };
    match value {
        Value::U8(v) => put(0, &v.to_le_bytes()),
        Value::I8(v) => put(1, &v.to_le_bytes()),
        Value::U16(v) => put(2, &v.to_le_bytes()),
        Value::I16(v) => put(3, &v.to_le_bytes()),
        Value::U32(v) => put(4, &v.to_le_bytes()),
        Value::I32(v) => put(5, &v.to_le_bytes()),
        Value::F32(v) => put(6, &v.to_le_bytes()),
        Value::Bool(v) => put(7, &[u8::from(*v)]),
        Value::Str(v) => {
            put(8, &[])?;
            put_str(out, v)
        }
        Value::Array(v) => {
            put(9, &[])?;
            put_array(out, v)
        }
        Value::U64(v) => put(10, &v.to_le_bytes()),
        Value::I64(v) => put(11, &v.to_le_bytes()),
        Value::F64(v) => put(12, &v.to_le_bytes()),
    }
}

fn put_array(out: &mut impl Write, array: &Array) -> io::Result<()> {
    match array {
        Array::U8(v) => put_all(out, 0, v, |x| x.to_le_bytes()),
        Array::I8(v) => put_all(out, 1, v, |x| x.to_le_bytes()),
        Array::U16(v) => put_all(out, 2, v, |x| x.to_le_bytes()),
        Array::I16(v) => put_all(out, 3, v, |x| x.to_le_bytes()),
        Array::U32(v) => put_all(out, 4, v, |x| x.to_le_bytes()),
        Array::I32(v) => put_all(out, 5, v, |x| x.to_le_bytes()),
        Array::F32(v) => put_all(out, 6, v, |x| x.to_le_bytes()),
        Array::Bool(v) => put_all(out, 7, v, |x| [u8::from(*x)]),
        Array::Str(v) => {
            put_array_start(out, 8, v.len())?;
            v.iter().try_for_each(|s| put_str(out, s))
        }
        Array::Array(v) => {
            put_array_start(out, 9, v.len())?;
            v.iter().try_for_each(|a| put_array(out, a))
        }
        Array::U64(v) => put_all(out, 10, v, |x| x.to_le_bytes()),
        Array::I64(v) => put_all(out, 11, v, |x| x.to_le_bytes()),
        Array::F64(v) => put_all(out, 12, v, |x| x.to_le_bytes()),
    }
}

fn put_array_start(out: &mut impl Write, id: u32, len: usize) -> io::Result<()> {
    out.write_all(&id.to_le_bytes())?;
    out.write_all(&(len as u64).to_le_bytes())
}

fn put_all<T, const N: usize>(
    out: &mut impl Write,
    id: u32,
    v: &[T],
    bytes: fn(&T) -> [u8; N],
) -> io::Result<()> {
    put_array_start(out, id, v.len())?;
    v.iter().try_for_each(|x| out.write_all(&bytes(x)))
}
