//! Packing a whole file: all matrices are one list of pieces, in the order of the file, which all threads share.
//!
//! The mapping is asked for ahead of the packing and given back behind it, so that a file that is not in memory
//! streams, and memory holds the packed weights and little of the file.

use std::ops::Range;

use super::{PackedMatrix, pack_strips};
use crate::backend::cpu::threads::ThreadPool;
use crate::graph::{Advice, BackendError, Weight};

/// About so many bytes of the file are packed at a time.
const PIECE: usize = 1 << 20;
/// About so many are one region's work, after which progress is told.
const WINDOW: usize = 64 << 20;

/// Some strips of a matrix.
struct Piece<'a> {
    to: &'a PackedMatrix,
    from: &'a Weight,
    strips: Range<usize>,
}

impl Piece<'_> {
    /// Where its rows lie in the tensor.
    fn source(&self) -> Range<usize> {
        self.to.layout().source_of(self.strips.clone())
    }

    fn advise(&self, advice: Advice) {
        self.from.data.advise(self.source(), advice);
    }

    /// Packs it.
    ///
    /// # Safety
    /// No other thread uses these strips of the matrix now.
    unsafe fn pack(&self) {
        self.advise(Advice::Now);
        // SAFETY: the caller's promise.
        let dst = unsafe { self.to.strips_shared_mut(self.strips.clone()) };
        let src = &self.from.data.bytes()[self.source()];
        pack_strips(self.to.layout(), self.strips.clone(), src, dst);
        self.advise(Advice::Done);
    }
}

/// Packs matrices that nobody uses yet from their weights, on all threads. `progress` hears the bytes of the file
/// that were done since it was called last.
pub fn pack_all<'a>(
    matrices: impl Iterator<Item = (&'a PackedMatrix, &'a Weight)>,
    pool: &ThreadPool,
    progress: &mut dyn FnMut(usize),
) -> Result<(), BackendError> {
    let pieces = pieces(matrices);
    let windows = windows(&pieces);
    let soon = |window: Option<&Range<usize>>| {
        let pieces = window.map_or(&pieces[..0], |w| &pieces[w.clone()]);
        pieces.iter().for_each(|p| p.advise(Advice::Soon));
    };
    soon(windows.first());
    for (i, window) in windows.iter().enumerate() {
        soon(windows.get(i + 1));
        let now = &pieces[window.clone()];
        pool.run(|w| {
            w.for_each(now.len(), 1, |range| {
                for piece in &now[range] {
                    // SAFETY: each strip is in one piece, and each piece in one call on one thread.
                    unsafe { piece.pack() };
                }
            });
        })
        .map_err(|e| BackendError::Device {
            backend: "cpu",
            reason: e.to_string(),
        })?;
        progress(now.iter().map(|p| p.source().len()).sum());
    }
    Ok(())
}

/// The work, in the order of the file.
fn pieces<'a>(matrices: impl Iterator<Item = (&'a PackedMatrix, &'a Weight)>) -> Vec<Piece<'a>> {
    let mut all: Vec<_> = matrices.collect();
    all.sort_by_key(|(_, from)| from.data.bytes().as_ptr().addr());
    let mut pieces = Vec::new();
    for (to, from) in all {
        let (strips, step) = (
            to.layout().strips(),
            (PIECE / to.layout().strip_bytes().max(1)).max(1),
        );
        pieces.extend((0..strips).step_by(step).map(|first| Piece {
            to,
            from,
            strips: first..strips.min(first + step),
        }));
    }
    pieces
}

/// Consecutive pieces of about [`WINDOW`] bytes.
fn windows(pieces: &[Piece<'_>]) -> Vec<Range<usize>> {
    let mut windows = Vec::new();
    let (mut first, mut bytes) = (0, 0);
    for (i, piece) in pieces.iter().enumerate() {
        bytes += piece.source().len();
        if bytes >= WINDOW || i + 1 == pieces.len() {
            windows.push(first..i + 1);
            (first, bytes) = (i + 1, 0);
        }
    }
    windows
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::backend::cpu::pack::{PackedLayout, tests::random_rows};
    use crate::graph::{WeightData, WeightUse};
    use crate::numeric::RUNNABLE;

    /// Bytes in memory that remember what they were told.
    struct Told(Vec<u8>, Mutex<Vec<(Range<usize>, Advice)>>);

    impl WeightData for Told {
        fn bytes(&self) -> &[u8] {
            &self.0
        }
        fn advise(&self, part: Range<usize>, advice: Advice) {
            self.1.lock().unwrap().push((part, advice));
        }
    }

    /// How often each byte was given this advice: the same for all, or `None`.
    fn told(data: &Told, advice: Advice) -> Option<usize> {
        let mut times = vec![0; data.0.len()];
        for (part, a) in data.1.lock().unwrap().iter() {
            if *a == advice {
                times[part.clone()].iter_mut().for_each(|t| *t += 1);
            }
        }
        times.iter().all(|t| *t == times[0]).then(|| times[0])
    }

    #[test]
    fn all_matrices_are_packed_as_each_alone_and_every_byte_is_given_back_once() {
        let pool = ThreadPool::new(3).unwrap();
        let all: Vec<_> = RUNNABLE
            .iter()
            .enumerate()
            .map(|(i, &ty)| {
                // Some are several pieces.
                let (rows, cols) = (37 + 1500 * (i % 2), 1024);
                let layout = PackedLayout::new(ty, rows, cols).unwrap();
                let data = Arc::new(Told(random_rows(ty, rows, cols, 3), Mutex::default()));
                let weight = Weight {
                    name: ty.to_string(),
                    ty,
                    dims: vec![cols, rows],
                    usage: WeightUse::Matrix,
                    data: data.clone(),
                };
                (PackedMatrix::zeroed(layout), weight, data)
            })
            .collect();
        let mut done = 0;
        pack_all(all.iter().map(|(m, w, _)| (m, w)), &pool, &mut |n| {
            done += n
        })
        .unwrap();
        assert_eq!(done, all.iter().map(|a| a.2.0.len()).sum::<usize>());
        for (mut m, weight, data) in all {
            let mut want = PackedMatrix::pack(*m.layout(), &data.0);
            let strips = 0..m.layout().strips();
            assert!(
                m.strips_mut(strips.clone()) == want.strips_mut(strips),
                "{}",
                weight.name
            );
            for advice in [Advice::Soon, Advice::Now, Advice::Done] {
                assert_eq!(told(&data, advice), Some(1), "{} {advice:?}", weight.name);
            }
        }
    }

    #[test]
    fn windows_hold_every_piece_once() {
        let layout = PackedLayout::new(crate::numeric::GgmlType::F32, 64, 16).unwrap();
        let (to, bytes) = (PackedMatrix::zeroed(layout), vec![0u8; 64 * 64]);
        let from = Weight {
            name: String::new(),
            ty: layout.ty,
            dims: vec![16, 64],
            usage: WeightUse::Matrix,
            data: Arc::new(bytes),
        };
        let piece = |strips| Piece {
            to: &to,
            from: &from,
            strips,
        };
        // 4096 bytes each: one more than fit a window.
        let n = WINDOW / 4096 + 1;
        let pieces: Vec<_> = (0..n).map(|_| piece(0..2)).collect();
        assert_eq!(windows(&pieces), [0..n - 1, n - 1..n]);
        assert!(windows(&pieces[..0]).is_empty());
        assert_eq!(windows(&pieces[..1]), std::slice::from_ref(&(0..1)));
    }
}
