//! What the numeric room refuses.

use super::GgmlType;

/// Why a row could not be decoded, encoded or multiplied.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NumericError {
    /// The type is known by name and size, but this engine can't compute with it.
    #[error(
        "type {ty} can't be run yet; these can: {}",
        super::row::runnable_names()
    )]
    NotRunnable {
        /// The type asked for.
        ty: GgmlType,
    },
    /// The type can be read, but this engine has no encoder for it.
    #[error(
        "there is no encoder for type {ty}; there is one for F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0"
    )]
    NoEncoder {
        /// The type asked for.
        ty: GgmlType,
    },
    /// A row is no whole number of blocks.
    #[error("{values} values are no whole number of {ty} blocks (of {} values)", ty.block_len())]
    PartBlock {
        /// The row's type.
        ty: GgmlType,
        /// Values in the row.
        values: usize,
    },
    /// Bytes and values of a row don't belong together.
    #[error("a {ty} row of {values} values takes {expected} bytes, not {found}")]
    RowBytes {
        /// The row's type.
        ty: GgmlType,
        /// Values in the row.
        values: usize,
        /// Bytes that so many values take.
        expected: usize,
        /// Bytes that were given.
        found: usize,
    },
    /// A block format has no code for infinities and NaN.
    #[error("value {index} of the row is {value}: {ty} can only hold finite values")]
    NotFinite {
        /// The type to encode to.
        ty: GgmlType,
        /// Where in the row.
        index: usize,
        /// The value.
        value: f32,
    },
}
