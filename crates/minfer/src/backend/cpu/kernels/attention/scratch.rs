//! Memory that one thread reuses from call to call.

use super::phases::{Part, SCORE_STRIDE};
use crate::backend::cpu::buffer::AlignedBuffer;

/// A thread's working memory for attention; grows to the largest tile it meets and stays.
#[derive(Default)]
pub struct Scratch {
    q: AlignedBuffer,
    scores: AlignedBuffer,
    parts: AlignedBuffer,
}

impl Scratch {
    /// An empty one.
    pub fn new() -> Scratch {
        Scratch::default()
    }

    /// Bytes that tiles of `rows` query rows need.
    pub fn bytes(rows: usize, head_dim: usize) -> usize {
        4 * (rows * head_dim + rows * SCORE_STRIDE + 2 * part_len(rows, head_dim))
    }

    /// Makes room for tiles of `rows` query rows (tokens x heads of a group), so that no smaller tile
    /// allocates. False when there is no memory.
    #[must_use]
    pub fn reserve(&mut self, rows: usize, head_dim: usize) -> bool {
        self.q.grow(4 * rows * head_dim)
            && self.scores.grow(4 * rows * SCORE_STRIDE)
            && self.parts.grow(4 * 2 * part_len(rows, head_dim))
    }

    /// As large as for such tiles, all of it not a number: what is read was written before.
    #[cfg(test)]
    pub(super) fn spoil(&mut self, rows: usize, head_dim: usize) {
        assert!(self.reserve(rows, head_dim));
        for buffer in [&mut self.q, &mut self.scores, &mut self.parts] {
            let n = buffer.len() / 4;
            buffer.floats_mut(n).fill(f32::NAN);
        }
    }

    /// Packed queries.
    pub(super) fn q(&mut self) -> *mut f32 {
        self.q.as_mut_ptr().cast()
    }

    /// Scores, `[rows][SCORE_STRIDE]`.
    pub(super) fn scores(&mut self) -> *mut f32 {
        self.scores.as_mut_ptr().cast()
    }

    /// The running and the segment's partial result.
    pub(super) fn parts(&mut self, rows: usize, head_dim: usize) -> (Part, Part) {
        let p: *mut f32 = self.parts.as_mut_ptr().cast();
        // SAFETY: `reserve` made room for two.
        unsafe {
            (
                Part::at(p, rows, head_dim),
                Part::at(p.add(part_len(rows, head_dim)), rows, head_dim),
            )
        }
    }
}

/// A partial result's length, rounded up to whole lines.
fn part_len(rows: usize, head_dim: usize) -> usize {
    (rows * (head_dim + 2)).next_multiple_of(16)
}
