//! How a loop's items are shared: each thread has a static range of pieces and takes them from the
//! front; a thread that has none left takes pieces from the far end of others' ranges.
//!
//! What is left of a range is one word, `tag << 40 | end << 20 | start` (pieces), with the number of the
//! loop as tag. A word of an earlier loop means "not touched yet in this one", so a thread's range can be
//! taken from before that thread arrives. That is safe because nobody leaves a loop before every piece
//! of it is taken: whoever is in loop L finds words of L, or empty ones of earlier loops.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};

use super::lines::Shared;

const PIECE_BITS: u32 = 20;
const TAG_BITS: u32 = 24;
/// Pieces of one loop, at most.
pub(super) const MAX_PIECES: usize = (1 << PIECE_BITS) - 1;
/// Loops between two barriers, at most: a quarter of the tags, so that "earlier" is never in doubt.
pub(super) const MAX_LOOPS: u64 = 1 << (TAG_BITS - 2);

/// Share `index` of `0..n` in `count` shares of equal size (the first `n % count` have one more).
pub(super) fn static_range(n: usize, index: usize, count: usize) -> Range<usize> {
    let (size, more) = (n / count, n % count);
    let start = index * size + index.min(more);
    start..start + size + usize::from(index < more)
}

/// From which end a piece is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The owner's.
    Front,
    /// A thief's.
    Back,
}

/// Takes one piece of a range in loop `number`; `untouched` is the whole range. `None`: all are taken.
pub(super) fn take(
    word: &AtomicU64,
    number: u64,
    untouched: &Range<usize>,
    end: End,
) -> Option<usize> {
    let mut old = word.load(Relaxed);
    loop {
        let left = match age(old, number) {
            // Others have finished this loop and gone on.
            Age::Later => return None,
            Age::Same => unpack(old),
            Age::Earlier => untouched.clone(),
        };
        let (piece, rest) = match end {
            _ if left.is_empty() => (None, left),
            End::Front => (Some(left.start), left.start + 1..left.end),
            End::Back => (Some(left.end - 1), left.start..left.end - 1),
        };
        // An owner writes its word even if there is nothing in it: tags never grow old.
        if piece.is_none() && (end == End::Back || age(old, number) == Age::Same) {
            return None;
        }
        match word.compare_exchange_weak(old, pack(number, &rest), AcqRel, Relaxed) {
            Ok(_) => return piece,
            Err(now) => old = now,
        }
    }
}

/// Makes every word an empty one of loop `number`, after a region that ended in an error. No thread is
/// in a region.
pub(super) fn reset(shared: &Shared, number: u64) {
    for slot in &shared.slots {
        slot.work.0.store(pack(number, &(0..0)), SeqCst);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Age {
    Earlier,
    Same,
    Later,
}

/// Of which loop the word is, seen from loop `number`: tags wrap, so nearer half is later.
fn age(word: u64, number: u64) -> Age {
    let mask = (1 << TAG_BITS) - 1;
    match ((word >> (2 * PIECE_BITS)).wrapping_sub(number)) & mask {
        0 => Age::Same,
        ahead if ahead < 1 << (TAG_BITS - 1) => Age::Later,
        _ => Age::Earlier,
    }
}

fn pack(number: u64, left: &Range<usize>) -> u64 {
    // The tag's upper bits fall off.
    number << (2 * PIECE_BITS) | (left.end as u64) << PIECE_BITS | left.start as u64
}

fn unpack(word: u64) -> Range<usize> {
    (word & MAX_PIECES as u64) as usize..(word >> PIECE_BITS & MAX_PIECES as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn static_ranges_cover_everything_once() {
        for n in [0, 1, 7, 16, 1000, usize::MAX] {
            for count in [1, 2, 3, 8, 511] {
                let mut next = 0;
                for i in 0..count {
                    let range = static_range(n, i, count);
                    assert_eq!(range.start, next);
                    assert!(range.len() == n / count || range.len() == n / count + 1);
                    next = range.end;
                }
                assert_eq!(next, n);
            }
        }
    }

    #[test]
    fn owner_takes_from_the_front_thief_from_the_back() {
        let word = AtomicU64::new(0);
        let range = 10..14;
        // A thief comes before the owner.
        assert_eq!(take(&word, 1, &range, End::Back), Some(13));
        assert_eq!(take(&word, 1, &range, End::Front), Some(10));
        assert_eq!(take(&word, 1, &range, End::Back), Some(12));
        assert_eq!(take(&word, 1, &range, End::Front), Some(11));
        assert_eq!(take(&word, 1, &range, End::Front), None);
        assert_eq!(take(&word, 1, &range, End::Back), None);
        // The next loop finds it untouched; a thread still in loop 1 then finds nothing.
        assert_eq!(take(&word, 2, &range, End::Back), Some(13));
        assert_eq!(take(&word, 1, &range, End::Back), None);
    }

    #[test]
    fn tags_wrap_and_an_owner_keeps_its_own_fresh() {
        let word = AtomicU64::new(0);
        for number in (0..5 << TAG_BITS).step_by(MAX_LOOPS as usize).skip(1) {
            assert_eq!(take(&word, number - 1, &(0..0), End::Front), None);
            assert_eq!(
                take(&word, number, &(3..4), End::Front),
                Some(3),
                "loop {number}"
            );
            assert_eq!(take(&word, number, &(3..4), End::Back), None);
        }
    }
}
