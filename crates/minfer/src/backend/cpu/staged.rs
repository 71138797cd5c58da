//! Matrices that stay in the mapping: a few strips at a time are packed for the product at hand.
//!
//! The kernels see packed strips as ever, so the bits are the same and there is no second kernel; what it costs is
//! packing at every use.

use std::ops::Range;

use super::kernels::matmul::Scratch;
use super::pack::{PackedLayout, PackedMatrix, pack_strips};
use crate::graph::Weight;

/// About so many bytes of a matrix are packed at a time: they stay in a core's own cache until they are used.
const STAGE: usize = 128 << 10;

/// A matrix as it is kept.
pub(super) enum Matrix {
    /// Packed once, when it was loaded.
    Packed(PackedMatrix),
    /// In the mapping, row by row.
    Mapped(PackedLayout, Weight),
}

impl Matrix {
    /// Shape and sizes, packed.
    pub fn layout(&self) -> &PackedLayout {
        match self {
            Matrix::Packed(m) => m.layout(),
            Matrix::Mapped(layout, _) => layout,
        }
    }

    /// Bytes that a thread needs to pack strips of it for a product.
    pub fn staged_bytes(&self) -> usize {
        match self {
            Matrix::Packed(_) => 0,
            Matrix::Mapped(layout, _) => strips_at_once(layout) * layout.strip_bytes(),
        }
    }
}

/// Strips packed at a time: an even number, since wide kernels take two.
fn strips_at_once(layout: &PackedLayout) -> usize {
    (STAGE / layout.strip_bytes().max(1))
        .max(1)
        .next_multiple_of(2)
}

/// A thread's own memory for weights.
#[derive(Default)]
pub(super) struct OwnWeights {
    /// Strips unpacked for many columns.
    pub panels: Scratch,
    /// Strips packed from the mapping: of a gated unit, of both matrices.
    staged: [PackedMatrix; 2],
}

impl OwnWeights {
    /// Makes room for so many bytes of a mapped matrix's strips. False when there is no memory.
    #[must_use]
    pub fn reserve_staged(&mut self, bytes: usize) -> bool {
        self.staged.iter_mut().all(|m| m.reserve(bytes))
    }

    /// Calls `f` with packed matrices, strips of them, the rows of the whole that lie there, and memory for panels:
    /// once with the matrices themselves, or with a few strips at a time if they are in the mapping.
    ///
    /// # Panics
    /// If some are packed and some are not, or no memory was reserved.
    pub fn with_packed<const N: usize>(
        &mut self,
        matrices: [&Matrix; N],
        strips: Range<usize>,
        mut f: impl FnMut([&PackedMatrix; N], Range<usize>, Range<usize>, &mut Scratch),
    ) {
        let layout = *matrices[0].layout();
        if let Matrix::Packed(_) = matrices[0] {
            let packed = matrices.map(|m| match m {
                Matrix::Packed(m) => m,
                Matrix::Mapped(..) => panic!("packed matrices beside mapped ones"),
            });
            return f(packed, strips, 0..layout.rows, &mut self.panels);
        }
        // Of matrices of two types, so many that each has the room that was reserved for it alone.
        let each = matrices.map(|m| strips_at_once(m.layout()));
        let step = each.into_iter().min().unwrap_or(1);
        for first in strips.clone().step_by(step) {
            let now = first..strips.end.min(first + step);
            for (to, from) in self.staged.iter_mut().zip(matrices) {
                stage(to, from, now.clone());
            }
            let packed = std::array::from_fn(|i| &self.staged[i]);
            f(packed, 0..now.len(), layout.rows_of(now), &mut self.panels);
        }
    }
}

/// Packs strips of a mapped matrix.
fn stage(to: &mut PackedMatrix, from: &Matrix, strips: Range<usize>) {
    let Matrix::Mapped(layout, weight) = from else {
        panic!("mapped matrices beside packed ones");
    };
    let part = PackedLayout {
        rows: layout.rows_of(strips.clone()).len(),
        ..*layout
    };
    assert!(to.reset(part), "reserved before the region");
    let src = &weight.data.bytes()[layout.source_of(strips)];
    let all = 0..part.strips();
    pack_strips(&part, all.clone(), src, to.strips_mut(all));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::graph::WeightUse;
    use crate::numeric::GgmlType;

    fn mapped(ty: GgmlType, rows: usize, cols: usize) -> Matrix {
        let layout = PackedLayout::new(ty, rows, cols).unwrap();
        let data = Arc::new(vec![0u8; rows * layout.row_bytes()]);
        let weight = Weight {
            name: ty.to_string(),
            ty,
            dims: vec![cols, rows],
            usage: WeightUse::Matrix,
            data,
        };
        Matrix::Mapped(layout, weight)
    }

    #[test]
    fn matrices_of_two_types_stay_within_the_room_of_each() {
        let (rows, cols) = (16 * 40 - 3, 1024);
        let pair = [GgmlType::Q4_0, GgmlType::Q8_0].map(|ty| mapped(ty, rows, cols));
        for [a, b] in [[0, 1], [1, 0]] {
            let mut own = OwnWeights::default();
            let (mut next, all) = (0, 0..pair[0].layout().strips());
            let both = [&pair[a], &pair[b]];
            own.with_packed(both, all, |packed, strips, rows, _| {
                assert_eq!((strips.start, rows.start), (0, next));
                next = rows.end;
                for (packed, matrix) in packed.into_iter().zip(both) {
                    assert_eq!(packed.layout().rows, rows.len());
                    assert!(packed.layout().bytes() <= matrix.staged_bytes());
                }
            });
            assert_eq!(next, rows);
        }
    }
}
