//! Sharing, copying, forgetting: by hand, and by a random schedule beside a plain model of what pages hold.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const W: usize = 40;

/// Tokens of a text: `n` from `start`.
fn text(start: u32, n: usize) -> Vec<u32> {
    (start..start + n as u32).collect()
}

/// A sequence that has computed all of `ids`.
fn computed(kv: &mut KvCache, ids: &[u32]) -> SeqPages {
    let mut found = kv.attach(ids, ids.len() - 1, 0);
    kv.reserve(&mut found.pages, ids.len()).unwrap();
    kv.learn(&mut found.pages, ids, ids.len());
    kv.trim(&mut found.pages, ids.len(), 0);
    found.pages
}

#[test]
fn pages_are_handed_out_once_and_come_back() {
    let mut kv = KvCache::new(4, None);
    let (mut a, mut b) = (SeqPages::default(), SeqPages::default());
    kv.reserve(&mut a, 33).unwrap();
    kv.reserve(&mut b, 32).unwrap();
    kv.reserve(&mut a, 64).unwrap(); // already there
    let of = |p: &SeqPages| p.pages(LayerKind::Full);
    assert_eq!((of(&a), of(&b)), (vec![Some(0), Some(1)], vec![Some(2)]));
    let full = kv.reserve(&mut b, 97).unwrap_err();
    assert_eq!((full.needed, full.free, full.total), (3, 1, 4));
    assert_eq!(of(&b), [Some(2)], "a refusal takes nothing");
    kv.release(a, &[], 0);
    kv.reserve(&mut b, 128).unwrap();
    kv.release(b, &[], 0);
    assert_eq!(kv.usage(LayerKind::Full).free, 4);
}

#[test]
fn a_prefix_is_shared_and_its_end_is_copied() {
    let mut kv = KvCache::new(8, None);
    let ids = text(0, 80);
    let a = computed(&mut kv, &ids);
    // Two whole pages are known while `a` lives; its third is not yet.
    let mut longer = ids.clone();
    longer.extend(text(500, 10));
    let b = kv.attach(&longer, longer.len() - 1, 0);
    assert_eq!((b.positions, b.copies.len()), (64, 0));
    assert_eq!(
        b.pages.pages(LayerKind::Full),
        a.pages(LayerKind::Full)[..2]
    );
    kv.release(b.pages, &longer, 64);
    kv.release(a, &ids, 80);
    assert_eq!(
        kv.usage(LayerKind::Full),
        PageUse {
            total: 8,
            free: 5,
            idle: 3
        }
    );
    // Now the begun page is known, too: its 16 tokens come as a copy.
    let c = kv.attach(&longer, longer.len() - 1, 0);
    assert_eq!(c.positions, 80);
    let (from, to) = (c.copies[0].from, c.copies[0].to);
    assert_ne!(from, to);
    assert_eq!(c.pages.pages(LayerKind::Full)[2], Some(to));
    // The same prompt again: its last token is computed, whatever pages hold.
    let d = kv.attach(&ids, ids.len() - 1, 0);
    assert_eq!(d.positions, 79);
}

#[test]
fn equal_pages_computed_twice_become_one() {
    let mut kv = KvCache::new(8, None);
    let ids = text(0, 64);
    let (mut a, mut b) = (SeqPages::default(), SeqPages::default());
    for pages in [&mut a, &mut b] {
        kv.reserve(pages, 64).unwrap();
    }
    kv.learn(&mut a, &ids, 64);
    kv.learn(&mut b, &ids, 64);
    assert_eq!(a.pages(LayerKind::Full), b.pages(LayerKind::Full));
    assert_eq!(kv.usage(LayerKind::Full).used(), 2);
}

#[test]
fn the_longest_idle_end_of_a_prefix_goes_first() {
    let mut kv = KvCache::new(4, None);
    let (old, new) = (text(0, 64), text(900, 64));
    for ids in [&old, &new] {
        let pages = computed(&mut kv, ids);
        kv.release(pages, ids, 64);
    }
    let mut other = SeqPages::default();
    kv.reserve(&mut other, 32).unwrap();
    assert_eq!(kv.attach(&old, 64, 0).positions, 32, "its second page went");
    assert_eq!(kv.attach(&new, 64, 0).positions, 64);
}

#[test]
fn windowed_pages_out_of_sight_are_given_back_and_a_hit_needs_those_in_sight() {
    let mut kv = KvCache::new(16, Some((6, W)));
    let ids = text(0, 160);
    let a = computed(&mut kv, &ids);
    let windowed = a.pages(LayerKind::Windowed);
    // The next row, at 160, sees from 121 on: page 3.
    assert!(windowed[..3].iter().all(Option::is_none) && windowed[3..].iter().all(Option::is_some));
    kv.release(a, &ids, 160);
    let hit = kv.attach(&ids, 160, 0);
    assert_eq!(hit.positions, 160);
    kv.release(hit.pages, &ids, 160);
    // Others need the windowed pages: the prefix is worth nothing without them.
    let mut other = SeqPages::default();
    kv.reserve(&mut other, 6 * PAGE).unwrap();
    assert_eq!(kv.attach(&ids, 160, 0).positions, 0);
}

#[test]
fn a_shift_makes_pages_private_and_unknown() {
    let mut kv = KvCache::new(16, None);
    let ids = text(0, 192);
    let mut a = computed(&mut kv, &ids);
    let b = kv.attach(&ids, 191, 0); // five pages are shared, of six
    let before = a.pages(LayerKind::Full);
    let shifted = kv.shift(&mut a, 1, 2).unwrap();
    let after = a.pages(LayerKind::Full);
    assert_eq!((after.len(), after[0]), (4, before[0]));
    assert_eq!(shifted.full.len(), 3);
    assert_eq!(
        shifted.copies.len(),
        2,
        "pages 3 and 4 are shared, 5 is not"
    );
    assert!(shifted.copies.iter().all(|c| shifted.full.contains(&c.to)));
    kv.release(b.pages, &ids, 160);
    let c = kv.attach(&ids, 192, 0);
    assert_eq!(
        c.positions, 160,
        "what the other held is known, the turned pages are not"
    );
    kv.release(c.pages, &ids, 160);
    kv.release(a, &ids, 128);
    let usage = kv.usage(LayerKind::Full);
    assert_eq!((usage.used(), usage.free + usage.idle), (0, 16));
}

/// One thing that may happen to one of a few sequences.
#[derive(Clone, Debug)]
enum Act {
    Start { seq: usize, text: usize, n: usize },
    Grow { seq: usize, n: usize },
    Shift { seq: usize },
    End { seq: usize },
}

fn act() -> impl Strategy<Value = Act> {
    let seq = 0..4usize;
    prop_oneof![
        3 => (seq.clone(), 0..3usize, 1..200usize).prop_map(|(seq, text, n)| Act::Start { seq, text, n }),
        5 => (seq.clone(), 1..70usize).prop_map(|(seq, n)| Act::Grow { seq, n }),
        1 => seq.clone().prop_map(|seq| Act::Shift { seq }),
        3 => seq.prop_map(|seq| Act::End { seq }),
    ]
}

/// What slots of pages hold, kept apart from what the cache believes: a token and its whole past, as a hash.
#[derive(Default)]
struct Truth {
    full: HashMap<(u32, usize), u64>,
    windowed: HashMap<(u32, usize), u64>,
}

struct Seq {
    pages: SeqPages,
    ids: Vec<u32>,
    /// By slot, what it must read there.
    past: Vec<u64>,
    n: usize,
}

impl Truth {
    fn of(&mut self, kind: LayerKind) -> &mut HashMap<(u32, usize), u64> {
        match kind {
            LayerKind::Full => &mut self.full,
            LayerKind::Windowed => &mut self.windowed,
        }
    }

    fn copy(&mut self, copies: &[PageCopy]) {
        for c in copies {
            let of = self.of(c.kind);
            for i in 0..PAGE {
                match of.get(&(c.from, i)).copied() {
                    Some(x) => of.insert((c.to, i), x),
                    None => of.remove(&(c.to, i)),
                };
            }
        }
    }

    /// Writes a row, after looking at all that it sees.
    fn row(&mut self, s: &Seq, slot: usize) {
        for kind in [LayerKind::Full, LayerKind::Windowed] {
            let pages = s.pages.pages(kind);
            let first = match kind {
                LayerKind::Full => 0,
                LayerKind::Windowed => (slot + 1).saturating_sub(W),
            };
            let of = self.of(kind);
            let page = pages[slot / PAGE].expect("a row's own page is there");
            of.insert((page, slot % PAGE), s.past[slot]);
            for seen in first..slot {
                let page = pages[seen / PAGE].expect("what a row sees is there");
                assert_eq!(
                    of.get(&(page, seen % PAGE)),
                    Some(&s.past[seen]),
                    "slot {seen}"
                );
            }
        }
    }
}

fn hash(past: u64, token: u64) -> u64 {
    (past ^ token)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(23)
}

/// Grows a sequence by rows that see their past; `false` if pages ran out.
fn grow(kv: &mut KvCache, truth: &mut Truth, s: &mut Seq, to: usize) -> bool {
    while s.n < to {
        let end = to.min(s.n + 24);
        if kv.reserve(&mut s.pages, end).is_err() {
            return false;
        }
        for slot in s.n..end {
            truth.row(s, slot);
        }
        s.n = end;
        kv.learn(&mut s.pages, &s.ids, s.n);
        kv.trim(&mut s.pages, s.n, 0);
    }
    true
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Whatever happens, every row reads what its own tokens have put there, and in the end all pages are back.
    #[test]
    fn every_row_reads_its_own_past(acts in prop::collection::vec(act(), 1..60)) {
        let mut kv = KvCache::new(20, Some((16, W)));
        let mut truth = Truth::default();
        let mut seqs: [Option<Seq>; 4] = Default::default();
        for act in acts {
            match act {
                Act::Start { seq, text, n } => {
                    if seqs[seq].is_some() {
                        continue;
                    }
                    // Three texts that begin alike: the first differs from the others at 40, those at 100.
                    let token = |i: usize| match (text, i) {
                        (0, 40..) => 1000 + i as u32,
                        (1, 100..) => 2000 + i as u32,
                        _ => i as u32,
                    };
                    let ids: Vec<u32> = (0..600).map(token).collect();
                    let past = ids.iter().scan(7, |h, t| {
                        *h = hash(*h, u64::from(*t));
                        Some(*h)
                    });
                    let past = past.collect();
                    let found = kv.attach(&ids[..n], n - 1, 0);
                    truth.copy(&found.copies);
                    let n_past = found.positions;
                    prop_assert!(n_past < n);
                    let mut s = Seq { pages: found.pages, ids, past, n: n_past };
                    grow(&mut kv, &mut truth, &mut s, n);
                    kv.learn_begun(&mut s.pages, &s.ids, s.n);
                    seqs[seq] = Some(s);
                }
                Act::Grow { seq, n } => {
                    if let Some(s) = &mut seqs[seq] {
                        // A shift has taken ids from the front.
                        let to = (s.n + n).min(500).min(s.ids.len());
                        grow(&mut kv, &mut truth, s, to);
                    }
                }
                Act::Shift { seq } => {
                    let Some(s) = &mut seqs[seq] else { continue };
                    let whole = s.n / PAGE;
                    if whole < 2 {
                        continue;
                    }
                    // Nothing is kept: windowed layers need no page from before the gap.
                    let Ok(shifted) = kv.shift(&mut s.pages, 0, whole / 2) else { continue };
                    truth.copy(&shifted.copies);
                    let by = whole / 2 * PAGE;
                    s.past.drain(..by);
                    s.ids.drain(..by);
                    s.n -= by;
                    // The turned pages hold something new from here on.
                    for x in &mut s.past {
                        *x = hash(*x, 99);
                    }
                    for (kind, turned) in [
                        (LayerKind::Full, &shifted.full),
                        (LayerKind::Windowed, &shifted.windowed),
                    ] {
                        for page in turned {
                            for i in 0..PAGE {
                                if let Some(x) = truth.of(kind).get_mut(&(*page, i)) {
                                    *x = hash(*x, 99);
                                }
                            }
                        }
                    }
                }
                Act::End { seq } => {
                    if let Some(s) = seqs[seq].take() {
                        kv.release(s.pages, &s.ids, s.n);
                    }
                }
            }
        }
        for s in seqs.into_iter().flatten() {
            kv.release(s.pages, &s.ids, s.n);
        }
        for kind in [LayerKind::Full, LayerKind::Windowed] {
            let usage = kv.usage(kind);
            prop_assert_eq!(usage.used(), 0);
        }
    }
}
