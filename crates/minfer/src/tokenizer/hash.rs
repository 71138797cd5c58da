//! Hash tables made for tokenizing: text to token id, pair of ids to merge, and the words already
//! encoded in one text. Seeded per process, so that a file cannot choose its collisions; nothing
//! that comes out depends on the seed.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

static SEED: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0u8));

const K: u64 = 0x9e37_79b9_7f4a_7c15;

/// Multiplies to 128 bits and folds: every input bit reaches every output bit.
fn fold(a: u64, b: u64) -> u64 {
    let p = u128::from(a).wrapping_mul(u128::from(b));
    (p as u64) ^ ((p >> 64) as u64)
}

/// Hash of a byte string.
pub(super) fn bytes(text: &[u8]) -> u64 {
    let mut h = *SEED ^ (text.len() as u64).wrapping_mul(K);
    let mut words = text.chunks_exact(8);
    for w in &mut words {
        let word: [u8; 8] = w.try_into().unwrap_or_default();
        h = fold(h ^ u64::from_le_bytes(word), K);
    }
    let rest = words.remainder();
    let tail = rest.iter().fold(1u64, |n, b| n << 8 | u64::from(*b));
    fold(h ^ tail, K | 0xff51_afd7_ed55_8ccd)
}

fn mask_for(n: usize) -> usize {
    n.saturating_mul(2)
        .max(8)
        .next_power_of_two()
        .wrapping_sub(1)
}

/// Token ids by text. The texts stay with the caller, who compares them.
#[derive(Default)]
pub(super) struct TextMap {
    /// High half: hash; low half: id + 1, so that 0 is an empty slot.
    slots: Vec<u64>,
    mask: usize,
}

impl TextMap {
    /// An empty map for up to `n` texts.
    pub(super) fn with_capacity(n: usize) -> TextMap {
        let mask = mask_for(n);
        TextMap {
            slots: vec![0; mask.saturating_add(1)],
            mask,
        }
    }

    /// The id stored under a hash whose text `same` accepts.
    pub(super) fn get(&self, hash: u64, mut same: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut at = hash as usize & self.mask;
        loop {
            let slot = *self.slots.get(at)?;
            let id = (slot as u32).checked_sub(1)?;
            if slot >> 32 == hash >> 32 && same(id) {
                return Some(id);
            }
            at = at.wrapping_add(1) & self.mask;
        }
    }

    /// Reads the slot where a search for a hash begins, so that the search finds it in the cache:
    /// reads that depend on nothing overlap, searches hardly do.
    pub(super) fn touch(&self, hash: u64) -> u64 {
        self.slots
            .get(hash as usize & self.mask)
            .copied()
            .unwrap_or(0)
    }

    /// Stores an id under the hash of its text, unless `same` accepts an id that is there already.
    /// True if it was stored. At most as many as the capacity says.
    pub(super) fn insert(&mut self, hash: u64, id: u32, mut same: impl FnMut(u32) -> bool) -> bool {
        let mut at = hash as usize & self.mask;
        while let Some(slot) = self.slots.get_mut(at) {
            match (*slot as u32).checked_sub(1) {
                None => {
                    *slot = hash >> 32 << 32 | u64::from(id).wrapping_add(1);
                    return true;
                }
                Some(there) if *slot >> 32 == hash >> 32 && same(there) => return false,
                Some(_) => at = at.wrapping_add(1) & self.mask,
            }
        }
        false
    }
}

/// Merges by pair of ids.
pub(super) struct PairMap {
    /// High half: hash; low half: rank + 1, so that 0 is an empty slot.
    slots: Vec<u64>,
    mask: usize,
    /// Left, right and merged id by rank.
    rules: Vec<[u32; 3]>,
}

impl PairMap {
    /// An empty map for up to `n` pairs.
    pub(super) fn with_capacity(n: usize) -> PairMap {
        let mask = mask_for(n);
        PairMap {
            slots: vec![0; mask.saturating_add(1)],
            mask,
            rules: Vec::with_capacity(n),
        }
    }

    fn hash(left: u32, right: u32) -> u64 {
        fold((u64::from(left) << 32 | u64::from(right)) ^ *SEED, K)
    }

    /// Rank and merged id of a pair.
    pub(super) fn get(&self, left: u32, right: u32) -> Option<(u32, u32)> {
        let hash = PairMap::hash(left, right);
        let mut at = hash as usize & self.mask;
        loop {
            let slot = *self.slots.get(at)?;
            let rank = (slot as u32).checked_sub(1)?;
            if slot >> 32 == hash >> 32
                && let Some([l, r, merged]) = self.rules.get(rank as usize)
                && (*l, *r) == (left, right)
            {
                return Some((rank, *merged));
            }
            at = at.wrapping_add(1) & self.mask;
        }
    }

    /// Adds the next merge by rank; of equal pairs the first counts. At most as many as the
    /// capacity says.
    pub(super) fn push(&mut self, left: u32, right: u32, merged: u32) {
        let known = self.get(left, right).is_some();
        self.rules.push([left, right, merged]);
        if known {
            return;
        }
        let hash = PairMap::hash(left, right);
        let mut at = hash as usize & self.mask;
        while let Some(slot) = self.slots.get_mut(at) {
            if *slot == 0 {
                // Fewer than 2^32 rules: their texts would not fit a file that can be read.
                *slot = hash >> 32 << 32 | (self.rules.len() as u64 & u64::from(u32::MAX));
                return;
            }
            at = at.wrapping_add(1) & self.mask;
        }
    }
}

/// Words of the text being encoded, with the ids they got: a text repeats most of its words.
pub(super) struct Memo {
    slots: Vec<Word>,
    mask: usize,
}

#[derive(Clone, Default)]
struct Word {
    hash: u64,
    text: (usize, usize),
    ids: (usize, usize),
}

/// A word is looked for in this many slots; after that it is encoded anew.
const PROBES: usize = 4;

impl Memo {
    /// A memo for a text of so many bytes.
    pub(super) fn for_text(bytes: usize) -> Memo {
        let mask = (bytes / 2)
            .clamp(16, 1 << 15)
            .next_power_of_two()
            .wrapping_sub(1);
        Memo {
            slots: vec![Word::default(); mask.saturating_add(1)],
            mask,
        }
    }

    /// Appends the ids of the word `text[start..end]` to `out`, running `encode` if it is new.
    pub(super) fn word(
        &mut self,
        text: &[u8],
        (start, end): (usize, usize),
        out: &mut Vec<u32>,
        encode: impl FnOnce(&[u8], &mut Vec<u32>),
    ) {
        let Some(word) = text.get(start..end) else {
            return;
        };
        let hash = bytes(word);
        for probe in 0..PROBES {
            let at = (hash as usize).wrapping_add(probe) & self.mask;
            let Some(slot) = self.slots.get_mut(at) else {
                break;
            };
            if slot.text.1 == 0 {
                let first = out.len();
                encode(word, out);
                *slot = Word {
                    hash,
                    text: (start, end),
                    ids: (first, out.len()),
                };
                return;
            }
            if slot.hash == hash && text.get(slot.text.0..slot.text.1) == Some(word) {
                out.extend_from_within(slot.ids.0..slot.ids.1);
                return;
            }
        }
        encode(word, out);
    }
}
