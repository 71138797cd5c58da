//! A bounded reader over a file's header.

use super::error::Fault;

/// Reads little-endian fields in order, never past the end.
#[derive(Clone)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// A field did not fit: it needs `need` bytes at `offset`, `left` are there.
pub(super) struct Short {
    need: u64,
    offset: u64,
    left: u64,
}

impl Short {
    /// The error, naming the field.
    pub(super) fn of(self, field: impl Into<String>) -> Fault {
        let Short { need, offset, left } = self;
        Fault::Truncated {
            field: field.into(),
            need,
            offset,
            left,
        }
    }
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, at: 0 }
    }

    /// Bytes read so far.
    pub(super) fn offset(&self) -> u64 {
        self.at as u64
    }

    /// Bytes left.
    pub(super) fn left(&self) -> u64 {
        self.bytes.len().saturating_sub(self.at) as u64
    }

    /// The next `n` bytes.
    pub(super) fn take(&mut self, n: u64) -> Result<&'a [u8], Short> {
        let short = Short {
            need: n,
            offset: self.offset(),
            left: self.left(),
        };
        let Ok(n) = usize::try_from(n) else {
            return Err(short);
        };
        let Some(end) = self.at.checked_add(n) else {
            return Err(short);
        };
        let Some(out) = self.bytes.get(self.at..end) else {
            return Err(short);
        };
        self.at = end;
        Ok(out)
    }

    /// The next `N` bytes.
    pub(super) fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64)?);
        Ok(out)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Short> {
        self.fixed().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Short> {
        self.fixed().map(u64::from_le_bytes)
    }
}
