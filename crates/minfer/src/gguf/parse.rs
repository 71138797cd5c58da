//! The header of one file: version, metadata, tensor index. Reads the header's bytes and no others.
//!
//! Nothing is believed before it is checked: no allocation is larger than the bytes that back it,
//! and every error names the field or tensor it is about.
//! Layout: the GGUF specification in ggml's repository, `docs/gguf.md`.

use crate::numeric::GgmlType;

use super::cursor::{Cursor, Short};
use super::error::{Fault, shown};
use super::metadata::Metadata;
use super::tensor::{TensorInfo, check_ranges};
use super::value::{Array, StrArray, Value};
use super::{Alignment, MAX_ARRAY_DEPTH, MAX_DIMS, MAX_NAME};

/// The header may take this many bytes. The largest in use take about 20 MB (vocabulary, merges).
const MAX_HEADER: usize = 128 << 20;
/// Metadata entries in a file; real ones have under a hundred.
const MAX_ENTRIES: u64 = 1 << 16;
/// Tensors in a file; a model of 384 unmerged experts and 60 layers has 70 thousand.
const MAX_TENSORS: u64 = 1 << 18;
/// Arrays inside arrays in a file.
const MAX_INNER_ARRAYS: u64 = 1 << 20;
/// Capacity reserved for a list whose entries have no fixed size; beyond it, it grows as they come.
const FIRST_CAPACITY: u64 = 1024;

/// What the header of one file says.
pub(super) struct Header {
    pub version: u32,
    pub metadata: Metadata,
    /// In file order, `part` 0; offsets already count from the start of the file.
    pub tensors: Vec<TensorInfo>,
}

/// Parses the header of a whole file. The tensors' bytes are not touched, but their ranges are checked.
pub(super) fn parse(bytes: &[u8]) -> Result<Header, Fault> {
    let mut p = Parser {
        cur: Cursor::new(bytes.get(..MAX_HEADER).unwrap_or(bytes)),
        inner: 0,
    };
    let header = p.header(bytes.len() as u64);
    if bytes.len() <= MAX_HEADER {
        return header;
    }
    // The end that was met is the limit's, not the file's.
    let beyond = |field| Fault::HeaderSize {
        field,
        limit: MAX_HEADER as u64,
    };
    header.map_err(|fault| match fault {
        Fault::Truncated { field, .. } => beyond(field),
        Fault::Count { field, count, .. } => beyond(format!("what {field}, {count}, counts")),
        other => other,
    })
}

struct Parser<'a> {
    cur: Cursor<'a>,
    /// Arrays inside arrays met so far.
    inner: u64,
}

/// Where a value stands, for messages: a key, and for elements the index in its array.
#[derive(Clone, Copy)]
struct Place<'a> {
    key: &'a str,
    element: Option<u64>,
}

impl Place<'_> {
    fn name(self) -> String {
        match self.element {
            Some(i) => format!("element {i} of `{}`", shown(self.key)),
            None => format!("value of `{}`", shown(self.key)),
        }
    }

    /// Maps a short read of this value to its error.
    fn short(self) -> impl Fn(Short) -> Fault {
        move |s| s.of(self.name())
    }
}

impl Parser<'_> {
    fn header(&mut self, file_len: u64) -> Result<Header, Fault> {
        let version = self.start()?;
        let n_tensors = self.count("the number of tensors", MAX_TENSORS, 24)?;
        let n_entries = self.count("the number of metadata entries", MAX_ENTRIES, 13)?;
        let metadata = self.metadata(n_entries)?;
        let alignment = Alignment::of(&metadata)?;
        let mut tensors = Vec::with_capacity(n_tensors.min(FIRST_CAPACITY) as usize);
        for i in 0..n_tensors {
            tensors.push(self.tensor(i)?);
        }
        let data_start = alignment.pad(self.cur.offset());
        check_ranges(&mut tensors, data_start, alignment, file_len)?;
        Ok(Header {
            version,
            metadata,
            tensors,
        })
    }

    /// Magic and version.
    fn start(&mut self) -> Result<u32, Fault> {
        if self.cur.left() == 0 {
            return Err(Fault::Empty);
        }
        let seen = self.cur.left().min(4);
        let magic = self.cur.take(seen).map_err(|s| s.of("the magic"))?;
        if !b"GGUF".starts_with(magic) {
            return Err(Fault::Magic(magic.escape_ascii().to_string()));
        }
        if seen < 4 {
            return Err(Fault::Truncated {
                field: "the magic \"GGUF\"".into(),
                need: 4,
                offset: 0,
                left: seen,
            });
        }
        match self.cur.u32().map_err(|s| s.of("the version"))? {
            v @ (2 | 3) => Ok(v),
            1 => Err(Fault::Version1),
            v if (1..=3).contains(&v.swap_bytes()) => Err(Fault::BigEndian(v.swap_bytes())),
            v => Err(Fault::Version(v)),
        }
    }

    /// A count of things that take at least `least` bytes each; the two counts of the header stand
    /// before everything they count.
    fn count(&mut self, field: &str, limit: u64, least: u64) -> Result<u64, Fault> {
        let count = self.cur.u64().map_err(|s| s.of(field))?;
        fits(field, count, least, self.cur.left())?;
        if count > limit {
            return Err(Fault::Limit {
                field: field.to_owned(),
                value: count,
                limit,
            });
        }
        Ok(count)
    }

    /// A string of at most `limit` bytes.
    fn text(&mut self, limit: u64, field: impl Fn() -> String) -> Result<String, Fault> {
        let len = self
            .cur
            .u64()
            .map_err(|s| s.of(format!("the length of {}", field())))?;
        if len > limit {
            return Err(Fault::Limit {
                field: format!("the length of {}", field()),
                value: len,
                limit,
            });
        }
        let bytes = self.cur.take(len).map_err(|s| s.of(field()))?;
        // The copy is checked, which nobody changes any more: what another process writes to the file must not become a `str`.
        String::from_utf8(bytes.to_vec()).map_err(|_| Fault::Utf8 { field: field() })
    }

    fn metadata(&mut self, count: u64) -> Result<Metadata, Fault> {
        let mut out = Metadata::new();
        for i in 0..count {
            let key = self.text(MAX_NAME, || format!("the key of metadata entry {i}"))?;
            let id = self
                .cur
                .u32()
                .map_err(|s| s.of(format!("the type of `{}`", shown(&key))))?;
            let value = self.value(
                Place {
                    key: &key,
                    element: None,
                },
                id,
            )?;
            if !out.insert(&key, value) {
                return Err(Fault::DuplicateKey(key));
            }
        }
        Ok(out)
    }

    fn value(&mut self, place: Place, id: u32) -> Result<Value, Fault> {
        let short = place.short();
        let cur = &mut self.cur;
        Ok(match id {
            0 => Value::U8(u8::from_le_bytes(cur.fixed().map_err(short)?)),
            1 => Value::I8(i8::from_le_bytes(cur.fixed().map_err(short)?)),
            2 => Value::U16(u16::from_le_bytes(cur.fixed().map_err(short)?)),
            3 => Value::I16(i16::from_le_bytes(cur.fixed().map_err(short)?)),
            4 => Value::U32(u32::from_le_bytes(cur.fixed().map_err(short)?)),
            5 => Value::I32(i32::from_le_bytes(cur.fixed().map_err(short)?)),
            6 => Value::F32(f32::from_le_bytes(cur.fixed().map_err(short)?)),
            7 => Value::Bool(to_bool(cur.fixed().map_err(short)?, place)?),
            8 => Value::Str(self.text(u64::MAX, || place.name())?),
            9 => Value::Array(self.array(place, 1)?),
            10 => Value::U64(u64::from_le_bytes(cur.fixed().map_err(short)?)),
            11 => Value::I64(i64::from_le_bytes(cur.fixed().map_err(short)?)),
            12 => Value::F64(f64::from_le_bytes(cur.fixed().map_err(short)?)),
            _ => {
                return Err(Fault::ValueType {
                    field: place.name(),
                    id,
                });
            }
        })
    }

    /// An array at nesting `depth` (1 for one that is no element itself).
    fn array(&mut self, place: Place, depth: u32) -> Result<Array, Fault> {
        let id = self
            .cur
            .u32()
            .map_err(|s| s.of(format!("the element type of the {}", place.name())))?;
        let count = self
            .cur
            .u64()
            .map_err(|s| s.of(format!("the length of the {}", place.name())))?;
        Ok(match id {
            0 => Array::U8(self.numbers(count, place, u8::from_le_bytes)?),
            1 => Array::I8(self.numbers(count, place, i8::from_le_bytes)?),
            2 => Array::U16(self.numbers(count, place, u16::from_le_bytes)?),
            3 => Array::I16(self.numbers(count, place, i16::from_le_bytes)?),
            4 => Array::U32(self.numbers(count, place, u32::from_le_bytes)?),
            5 => Array::I32(self.numbers(count, place, i32::from_le_bytes)?),
            6 => Array::F32(self.numbers(count, place, f32::from_le_bytes)?),
            7 => Array::Bool(self.bools(count, place)?),
            8 => Array::Str(self.strings(count, place)?),
            9 => Array::Array(self.arrays(count, place, depth)?),
            10 => Array::U64(self.numbers(count, place, u64::from_le_bytes)?),
            11 => Array::I64(self.numbers(count, place, i64::from_le_bytes)?),
            12 => Array::F64(self.numbers(count, place, f64::from_le_bytes)?),
            _ => {
                return Err(Fault::ValueType {
                    field: format!("the array in the {}", place.name()),
                    id,
                });
            }
        })
    }

    /// Numbers of `N` bytes. The vector is as large as the bytes it is read from.
    fn numbers<T, const N: usize>(
        &mut self,
        count: u64,
        place: Place,
        read: fn([u8; N]) -> T,
    ) -> Result<Vec<T>, Fault> {
        let bytes = self.elements(count, N as u64, place)?;
        let number = |chunk: &[u8]| {
            let mut le = [0; N];
            le.copy_from_slice(chunk);
            read(le)
        };
        Ok(bytes.chunks_exact(N).map(number).collect())
    }

    fn bools(&mut self, count: u64, place: Place) -> Result<Vec<bool>, Fault> {
        let bytes = self.elements(count, 1, place)?;
        (0..)
            .zip(bytes)
            .map(|(i, b)| {
                to_bool(
                    [*b],
                    Place {
                        element: Some(i),
                        ..place
                    },
                )
            })
            .collect()
    }

    fn elements(&mut self, count: u64, size: u64, place: Place) -> Result<&[u8], Fault> {
        fits_in(place, count, size, self.cur.left())?;
        self.cur
            .take(count.saturating_mul(size))
            .map_err(place.short())
    }

    fn strings(&mut self, count: u64, place: Place) -> Result<StrArray, Fault> {
        fits_in(place, count, 8, self.cur.left())?;
        let (n, len) = self.measure(count, place)?;
        let (mut text, mut ends) = (Vec::with_capacity(len), Vec::with_capacity(n));
        for i in 0..count {
            let at = Place {
                element: Some(i),
                ..place
            };
            let len = self
                .cur
                .u64()
                .map_err(|s| s.of(format!("the length of {}", at.name())))?;
            text.extend_from_slice(self.cur.take(len).map_err(at.short())?);
            ends.push(text.len());
        }
        // As in `text`, what is checked is the copy.
        StrArray::from_bytes(text, ends).map_err(|i| {
            let element = Some(i as u64);
            let field = Place { element, ..place }.name();
            Fault::Utf8 { field }
        })
    }

    /// Walks over `count` strings without moving: how many, and the bytes of their text. So their
    /// array is allocated once, and only if they are really there.
    fn measure(&self, count: u64, place: Place) -> Result<(usize, usize), Fault> {
        let mut cur = self.cur.clone();
        let mut text = 0usize;
        for i in 0..count {
            let at = Place {
                element: Some(i),
                ..place
            };
            let len = cur
                .u64()
                .map_err(|s| s.of(format!("the length of {}", at.name())))?;
            text = text.saturating_add(cur.take(len).map_err(at.short())?.len());
        }
        Ok((count as usize, text))
    }

    fn arrays(&mut self, count: u64, place: Place, depth: u32) -> Result<Vec<Array>, Fault> {
        let field = || format!("the nesting of the {}", place.name());
        let deeper = depth.saturating_add(1);
        if deeper > MAX_ARRAY_DEPTH {
            let (value, limit) = (u64::from(deeper), u64::from(MAX_ARRAY_DEPTH));
            return Err(Fault::Limit {
                field: field(),
                value,
                limit,
            });
        }
        fits_in(place, count, 12, self.cur.left())?;
        self.inner = self.inner.saturating_add(count);
        if self.inner > MAX_INNER_ARRAYS {
            let field = format!(
                "the number of arrays in arrays, up to the {},",
                place.name()
            );
            return Err(Fault::Limit {
                field,
                value: self.inner,
                limit: MAX_INNER_ARRAYS,
            });
        }
        let mut out = Vec::with_capacity(count.min(FIRST_CAPACITY) as usize);
        for i in 0..count {
            out.push(self.array(
                Place {
                    element: Some(i),
                    ..place
                },
                deeper,
            )?);
        }
        Ok(out)
    }

    /// Entry `i` of the tensor index; its offset still counts from the start of the tensor data.
    fn tensor(&mut self, i: u64) -> Result<TensorInfo, Fault> {
        let name = self.text(MAX_NAME, || format!("the name of tensor {i}"))?;
        let field = |what: &str| format!("the {what} of tensor `{}`", shown(&name));
        let n_dims = self
            .cur
            .u32()
            .map_err(|s| s.of(field("number of dimensions")))?;
        if n_dims > MAX_DIMS {
            return Err(Fault::tensor(
                &name,
                format!("it has {n_dims} dimensions, at most {MAX_DIMS} are possible"),
            ));
        }
        let mut dims = Vec::with_capacity(n_dims.max(1) as usize);
        for d in 0..n_dims {
            dims.push(
                self.cur
                    .u64()
                    .map_err(|s| s.of(field(&format!("dimension {d}"))))?,
            );
        }
        let id = self.cur.u32().map_err(|s| s.of(field("type")))?;
        let ty = GgmlType::from_id(id)
            .ok_or_else(|| Fault::tensor(&name, format!("it has the unknown type id {id}")))?;
        let offset = self.cur.u64().map_err(|s| s.of(field("offset")))?;
        TensorInfo::new(name, ty, dims, offset)
    }
}

/// Checks that `count` things of at least `least` bytes each can follow in `left` bytes.
fn fits(field: &str, count: u64, least: u64, left: u64) -> Result<(), Fault> {
    match count.checked_mul(least) {
        Some(need) if need <= left => Ok(()),
        _ => Err(Fault::Count {
            field: field.to_owned(),
            count,
            left,
        }),
    }
}

/// As `fits`, for an array; the message is made only when it is needed.
fn fits_in(place: Place, count: u64, least: u64, left: u64) -> Result<(), Fault> {
    fits("", count, least, left).map_err(|_| Fault::Count {
        field: format!("the length of the array in the {}", place.name()),
        count,
        left,
    })
}

fn to_bool([byte]: [u8; 1], place: Place) -> Result<bool, Fault> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Fault::Bool {
            field: place.name(),
            byte,
        }),
    }
}
