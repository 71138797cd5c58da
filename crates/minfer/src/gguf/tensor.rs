//! The tensor index: what a tensor is, where it lies, and the checks that make it safe to read.

use std::ops::Range;

use crate::numeric::GgmlType;

use super::Alignment;
use super::error::{Fault, shown};

/// An entry of the tensor index.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorInfo {
    /// The name, as in `blk.0.attn_q.weight`.
    pub name: String,
    /// The element type.
    pub ty: GgmlType,
    /// Sizes in values, `ne[0]` (the row length) first; one to four, none of them 0. A scalar is `[1]`.
    pub dims: Vec<u64>,
    /// Index of the file part that holds it (0 for a model in one file).
    pub part: usize,
    /// First byte in that file, from its start.
    pub offset: u64,
    /// Bytes of data, at least 1.
    pub n_bytes: u64,
}

impl TensorInfo {
    /// Checks type and sizes; `part` is 0 and `offset` is taken as it is.
    ///
    /// # Errors
    /// A size of 0, a row that is no whole number of blocks, a product that does not fit 64 bits.
    pub(super) fn new(
        name: String,
        ty: GgmlType,
        mut dims: Vec<u64>,
        offset: u64,
    ) -> Result<TensorInfo, Fault> {
        if dims.is_empty() {
            dims.push(1);
        }
        if let Some(i) = dims.iter().position(|d| *d == 0) {
            return Err(Fault::tensor(
                &name,
                format!("it is empty: dimension {i} is 0"),
            ));
        }
        match byte_count(ty, &dims) {
            Ok(n_bytes) => Ok(TensorInfo {
                name,
                ty,
                dims,
                part: 0,
                offset,
                n_bytes,
            }),
            Err(why) => Err(Fault::tensor(&name, why)),
        }
    }

    /// Size of dimension `i`; 1 past the last one, as in ggml.
    pub fn dim(&self, i: usize) -> u64 {
        self.dims.get(i).copied().unwrap_or(1)
    }

    /// Number of values. Fits: the product was checked when the file was opened.
    pub fn n_elements(&self) -> u64 {
        self.dims.iter().fold(1, |n, d| n.saturating_mul(*d))
    }

    /// The bytes in its file; `None` if they can't be addressed on this machine.
    pub(super) fn range(&self) -> Option<Range<usize>> {
        let end = self.offset.checked_add(self.n_bytes)?;
        Some(usize::try_from(self.offset).ok()?..usize::try_from(end).ok()?)
    }
}

fn byte_count(ty: GgmlType, dims: &[u64]) -> Result<u64, String> {
    let row = dims.first().copied().unwrap_or(1);
    let block = ty.block_len() as u64;
    if row.checked_rem(block) != Some(0) {
        return Err(format!(
            "rows of {row} values are no whole number of {ty} blocks of {block}"
        ));
    }
    // Bytes can fit where values do not (types of under a byte a value), so both are checked.
    let values = dims.iter().try_fold(1u64, |n, d| n.checked_mul(*d));
    let bytes = values.and_then(|n| n.checked_div(block)?.checked_mul(ty.block_bytes() as u64));
    // The last bound is that of a file's length.
    match bytes {
        Some(n) if n <= i64::MAX as u64 => Ok(n),
        _ => Err(format!(
            "the size of {dims:?} values of {ty} does not fit 63 bits"
        )),
    }
}

/// Turns offsets that count from `data_start` into offsets in the file, and checks that every
/// tensor lies in the file, aligned, with a name of its own and bytes of its own.
pub(super) fn check_ranges(
    tensors: &mut [TensorInfo],
    data_start: u64,
    alignment: Alignment,
    file_len: u64,
) -> Result<(), Fault> {
    for t in tensors.iter_mut() {
        if !alignment.divides(t.offset) {
            let why = format!(
                "its offset {} is no multiple of the alignment {}",
                t.offset,
                alignment.get()
            );
            return Err(Fault::tensor(&t.name, why));
        }
        let start = data_start.checked_add(t.offset);
        match start.and_then(|s| s.checked_add(t.n_bytes)) {
            Some(end) if end <= file_len => t.offset = data_start.saturating_add(t.offset),
            Some(end) => {
                let why =
                    format!("truncated: its data ends at byte {end}, the file has {file_len}");
                return Err(Fault::tensor(&t.name, why));
            }
            None => {
                let why = format!("its offset {} and size {} overflow", t.offset, t.n_bytes);
                return Err(Fault::tensor(&t.name, why));
            }
        }
    }
    no_overlap(tensors)
}

fn no_overlap(tensors: &[TensorInfo]) -> Result<(), Fault> {
    let mut order: Vec<&TensorInfo> = tensors.iter().collect();
    order.sort_by_key(|t| t.offset);
    for (a, b) in order.iter().zip(order.iter().skip(1)) {
        if a.offset.saturating_add(a.n_bytes) > b.offset {
            return Err(Fault::tensor(
                &b.name,
                format!("its data overlaps that of tensor `{}`", shown(&a.name)),
            ));
        }
    }
    Ok(())
}
