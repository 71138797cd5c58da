//! The type ids of tensors in a GGUF file: every one that ggml knows, also those not run yet.

/// A tensor's element type as GGUF stores it (ggml's type ids).
///
/// Each type is a sequence of blocks: `block_len` values in `block_bytes` bytes.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum GgmlType {
    /// `F32`: 1 value in 4 bytes.
    F32 = 0,
    /// `F16`: 1 value in 2 bytes.
    F16 = 1,
    /// `Q4_0`: 32 values in 18 bytes.
    Q4_0 = 2,
    /// `Q4_1`: 32 values in 20 bytes.
    Q4_1 = 3,
    /// `Q5_0`: 32 values in 22 bytes.
    Q5_0 = 6,
    /// `Q5_1`: 32 values in 24 bytes.
    Q5_1 = 7,
    /// `Q8_0`: 32 values in 34 bytes.
    Q8_0 = 8,
    /// `Q8_1`: 32 values in 36 bytes.
    Q8_1 = 9,
    /// `Q2_K`: 256 values in 84 bytes.
    Q2_K = 10,
    /// `Q3_K`: 256 values in 110 bytes.
    Q3_K = 11,
    /// `Q4_K`: 256 values in 144 bytes.
    Q4_K = 12,
    /// `Q5_K`: 256 values in 176 bytes.
    Q5_K = 13,
    /// `Q6_K`: 256 values in 210 bytes.
    Q6_K = 14,
    /// `Q8_K`: 256 values in 292 bytes.
    Q8_K = 15,
    /// `IQ2_XXS`: 256 values in 66 bytes.
    IQ2_XXS = 16,
    /// `IQ2_XS`: 256 values in 74 bytes.
    IQ2_XS = 17,
    /// `IQ3_XXS`: 256 values in 98 bytes.
    IQ3_XXS = 18,
    /// `IQ1_S`: 256 values in 50 bytes.
    IQ1_S = 19,
    /// `IQ4_NL`: 32 values in 18 bytes.
    IQ4_NL = 20,
    /// `IQ3_S`: 256 values in 110 bytes.
    IQ3_S = 21,
    /// `IQ2_S`: 256 values in 82 bytes.
    IQ2_S = 22,
    /// `IQ4_XS`: 256 values in 136 bytes.
    IQ4_XS = 23,
    /// `I8`: 1 value in 1 byte.
    I8 = 24,
    /// `I16`: 1 value in 2 bytes.
    I16 = 25,
    /// `I32`: 1 value in 4 bytes.
    I32 = 26,
    /// `I64`: 1 value in 8 bytes.
    I64 = 27,
    /// `F64`: 1 value in 8 bytes.
    F64 = 28,
    /// `IQ1_M`: 256 values in 56 bytes.
    IQ1_M = 29,
    /// `BF16`: 1 value in 2 bytes.
    BF16 = 30,
    /// `TQ1_0`: 256 values in 54 bytes.
    TQ1_0 = 34,
    /// `TQ2_0`: 256 values in 66 bytes.
    TQ2_0 = 35,
    /// `MXFP4`: 32 values in 17 bytes.
    MXFP4 = 39,
    /// `NVFP4`: 64 values in 36 bytes.
    NVFP4 = 40,
    /// `Q1_0`: 128 values in 18 bytes.
    Q1_0 = 41,
    /// `Q2_0`: 64 values in 18 bytes.
    Q2_0 = 42,
}

/// One row of the table: type, name, values a block, bytes a block.
type Row = (GgmlType, &'static str, usize, usize);

const TABLE: &[Row] = &[
    (GgmlType::F32, "F32", 1, 4),
    (GgmlType::F16, "F16", 1, 2),
    (GgmlType::Q4_0, "Q4_0", 32, 18),
    (GgmlType::Q4_1, "Q4_1", 32, 20),
    (GgmlType::Q5_0, "Q5_0", 32, 22),
    (GgmlType::Q5_1, "Q5_1", 32, 24),
    (GgmlType::Q8_0, "Q8_0", 32, 34),
    (GgmlType::Q8_1, "Q8_1", 32, 36),
    (GgmlType::Q2_K, "Q2_K", 256, 84),
    (GgmlType::Q3_K, "Q3_K", 256, 110),
    (GgmlType::Q4_K, "Q4_K", 256, 144),
    (GgmlType::Q5_K, "Q5_K", 256, 176),
    (GgmlType::Q6_K, "Q6_K", 256, 210),
    (GgmlType::Q8_K, "Q8_K", 256, 292),
    (GgmlType::IQ2_XXS, "IQ2_XXS", 256, 66),
    (GgmlType::IQ2_XS, "IQ2_XS", 256, 74),
    (GgmlType::IQ3_XXS, "IQ3_XXS", 256, 98),
    (GgmlType::IQ1_S, "IQ1_S", 256, 50),
    (GgmlType::IQ4_NL, "IQ4_NL", 32, 18),
    (GgmlType::IQ3_S, "IQ3_S", 256, 110),
    (GgmlType::IQ2_S, "IQ2_S", 256, 82),
    (GgmlType::IQ4_XS, "IQ4_XS", 256, 136),
    (GgmlType::I8, "I8", 1, 1),
    (GgmlType::I16, "I16", 1, 2),
    (GgmlType::I32, "I32", 1, 4),
    (GgmlType::I64, "I64", 1, 8),
    (GgmlType::F64, "F64", 1, 8),
    (GgmlType::IQ1_M, "IQ1_M", 256, 56),
    (GgmlType::BF16, "BF16", 1, 2),
    (GgmlType::TQ1_0, "TQ1_0", 256, 54),
    (GgmlType::TQ2_0, "TQ2_0", 256, 66),
    (GgmlType::MXFP4, "MXFP4", 32, 17),
    (GgmlType::NVFP4, "NVFP4", 64, 36),
    (GgmlType::Q1_0, "Q1_0", 128, 18),
    (GgmlType::Q2_0, "Q2_0", 64, 18),
];

impl GgmlType {
    /// All known types, by id.
    pub fn all() -> impl Iterator<Item = GgmlType> {
        TABLE.iter().map(|r| r.0)
    }

    /// The type with this id in a GGUF file; `None` if ggml has none (or has withdrawn it).
    pub fn from_id(id: u32) -> Option<GgmlType> {
        TABLE.iter().map(|r| r.0).find(|t| *t as u32 == id)
    }

    /// The type with this name (`Q4_K`, any case).
    pub fn from_name(name: &str) -> Option<GgmlType> {
        TABLE
            .iter()
            .find(|r| r.1.eq_ignore_ascii_case(name))
            .map(|r| r.0)
    }

    fn row(self) -> &'static Row {
        // Every variant has a row: `every_type_has_a_row` holds this.
        TABLE.iter().find(|r| r.0 == self).unwrap_or(&TABLE[0])
    }

    /// ggml's name, as in `Q4_K`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Values in one block.
    pub fn block_len(self) -> usize {
        self.row().2
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> usize {
        self.row().3
    }

    /// Bytes of a row of `n` values; `None` if `n` is no whole number of blocks or the product overflows.
    pub fn row_bytes(self, n: usize) -> Option<usize> {
        if n % self.block_len() != 0 {
            return None;
        }
        (n / self.block_len()).checked_mul(self.block_bytes())
    }
}

impl std::fmt::Display for GgmlType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_a_row() {
        for id in 0..64 {
            if let Some(t) = GgmlType::from_id(id) {
                assert_eq!(t as u32, id);
                assert_eq!(t.row().0, t);
                assert_eq!(GgmlType::from_name(t.name()), Some(t));
            }
        }
        assert_eq!(GgmlType::all().count(), TABLE.len());
    }

    #[test]
    fn row_bytes_refuses_part_blocks_and_overflow() {
        assert_eq!(GgmlType::Q4_K.row_bytes(512), Some(288));
        assert_eq!(GgmlType::Q4_K.row_bytes(511), None);
        assert_eq!(GgmlType::F32.row_bytes(usize::MAX), None);
    }
}
