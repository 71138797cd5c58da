//! Queries as the scores read them.

#![allow(unsafe_op_in_unsafe_fn)] // lane methods' precondition is stated at `Lanes`

use crate::lanes::{LANES, Lanes, kernel};

kernel! {
    /// The queries of a KV head's group, `tokens` rows of `q` that lie `stride` values apart, as
    /// `[head_dim][tokens * group]`.
    ///
    /// `q` is the group's first head in the first row, `head_dim` a multiple of 16; `out` has room for all.
    pub unsafe fn turn_queries<L>(
        q: *const f32,
        stride: usize,
        shape: (usize, usize, usize),
        out: *mut f32,
    ) {
        let (tokens, group, head_dim) = shape;
        let n = tokens * group;
        let mut r = 0;
        while r < n {
            if n < LANES {
                let q = q.add(r / group * stride + r % group * head_dim);
                let mut d = 0;
                while d < head_dim {
                    *out.add(d * n + r) = *q.add(d);
                    d += 1;
                }
                r += 1;
            } else {
                // The last sixteen may overlap those before: the same values once more.
                let first = r.min(n - LANES);
                turn::<L>(q, (first, group, stride), head_dim, out.add(first), n);
                r += LANES;
            }
        }
    }
}

/// Sixteen rows (token x group + head) from row `first` on, into columns of `out`, whose rows are `n` long.
#[inline(always)]
unsafe fn turn<L: Lanes>(
    q: *const f32,
    (first, group, stride): (usize, usize, usize),
    head_dim: usize,
    out: *mut f32,
    n: usize,
) {
    let mut rows = [q; LANES];
    let mut i = 0;
    while i < LANES {
        let r = first + i;
        rows[i] = q.add(r / group * stride + r % group * head_dim);
        i += 1;
    }
    let mut d = 0;
    while d < head_dim {
        let v = L::f_load_turned(&rows, d);
        let mut i = 0;
        while i < LANES {
            L::f_store(out.add((d + i) * n), v[i]);
            i += 1;
        }
        d += LANES;
    }
}
