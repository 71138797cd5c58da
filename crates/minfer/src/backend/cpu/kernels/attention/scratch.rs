//! Memory that one thread reuses from call to call.

use super::phases::{Part, SCORE_STRIDE};

/// A cache line of f32: what keeps vectors from crossing lines. Only its address is used.
#[derive(Clone, Copy)]
#[allow(dead_code)]
#[repr(align(64))]
struct Line([f32; 16]);

/// A thread's working memory for attention; grows to the largest tile it meets and stays.
#[derive(Default)]
pub struct Scratch {
    q: Vec<Line>,
    scores: Vec<Line>,
    parts: Vec<Line>,
}

impl Scratch {
    /// An empty one.
    pub fn new() -> Scratch {
        Scratch::default()
    }

    /// Room for tiles of `rows` query rows.
    pub(super) fn reserve(&mut self, rows: usize, head_dim: usize) {
        grow(&mut self.q, rows * head_dim);
        grow(&mut self.scores, rows * SCORE_STRIDE);
        grow(&mut self.parts, 2 * part_len(rows, head_dim));
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

fn grow(v: &mut Vec<Line>, floats: usize) {
    let lines = floats.div_ceil(16);
    if v.len() < lines {
        v.resize(lines, Line([0.0; 16]));
    }
}
