//! Partial selection: the k best of a vocabulary, and the best that reach a mass, without sorting it all.

use std::cmp::Ordering;

use super::Candidate;
use crate::lanes::scan;

/// Best first: the higher logit, on ties the lower id. A total order, so every selection has one result.
pub(super) fn better(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}

/// Tokens that a scan looks at together.
const GROUP: usize = 64;

/// Fills `out` with the k best tokens, best first. Tokens at minus infinity are left out. `out` should have room for 3 k + 128.
pub(super) fn top_k(logits: &[f32], k: usize, out: &mut Vec<Candidate>) {
    out.clear();
    let room = 3 * k + GROUP;
    // What is not above the threshold can't be among the k best: k tokens with lower ids are at least as good.
    let mut threshold = f32::NEG_INFINITY;
    let mut start = 0;
    while let Some(group) = scan::group_above(logits, start, threshold) {
        push_above(logits, group, threshold, out);
        if out.len() >= room {
            out.select_nth_unstable_by(k - 1, better);
            out.truncate(k);
            threshold = out[k - 1].logit;
        }
        start = group + GROUP;
    }
    out.sort_unstable_by(better);
    out.truncate(k);
}

/// Fills `out` with the tokens above a logit, in order of their ids.
pub(super) fn above(logits: &[f32], least: f32, out: &mut Vec<Candidate>) {
    out.clear();
    let mut start = 0;
    while let Some(group) = scan::group_above(logits, start, least) {
        push_above(logits, group, least, out);
        start = group + GROUP;
    }
}

/// The tokens of one group above a logit.
fn push_above(logits: &[f32], group: usize, least: f32, out: &mut Vec<Candidate>) {
    let end = logits.len().min(group + GROUP);
    for (id, logit) in logits.iter().enumerate().take(end).skip(group) {
        if *logit > least {
            out.push(Candidate {
                id: id as u32,
                logit: *logit,
                weight: 0.0,
            });
        }
    }
}

/// Fills `out` with all tokens that are not at minus infinity, in order of their ids.
pub(super) fn all(logits: &[f32], out: &mut Vec<Candidate>) {
    above(logits, f32::NEG_INFINITY, out);
}

/// Classes of keys: a key's bits without the low ones. For keys >= 0 the order of classes is the order of keys.
const CLASS_SHIFT: u32 = 19;
const CLASSES: usize = 1 << (31 - CLASS_SHIFT);

fn class(key: f32) -> usize {
    ((key.to_bits() & 0x7fff_ffff) >> CLASS_SHIFT) as usize
}

/// Keeps the candidates with the lowest keys (ties: the lower id) whose weights together satisfy `reached`, which is asked after
/// each candidate with the sum so far; at least one stays. Sums run class by class, so that only one class is sorted; what is
/// kept is in no particular order. Keys are >= 0.
pub(super) fn keep_mass(
    candidates: &mut Vec<Candidate>,
    scratch: &mut Scratch,
    key: impl Fn(&Candidate) -> f32,
    reached: impl Fn(f64) -> bool,
) {
    scratch.mass.clear();
    scratch.mass.resize(CLASSES, 0.0);
    for c in candidates.iter() {
        scratch.mass[class(key(c))] += f64::from(c.weight);
    }
    let mut sum = 0.0;
    let Some(last) = scratch.mass.iter().position(|mass| {
        let over = reached(sum + mass);
        sum += if over { 0.0 } else { *mass };
        over
    }) else {
        return;
    };
    scratch.edge.clear();
    scratch
        .edge
        .extend(candidates.iter().filter(|c| class(key(c)) == last));
    candidates.retain(|c| class(key(c)) < last);
    scratch
        .edge
        .sort_unstable_by(|a, b| key(a).total_cmp(&key(b)).then(a.id.cmp(&b.id)));
    for c in &scratch.edge {
        candidates.push(*c);
        sum += f64::from(c.weight);
        if reached(sum) {
            break;
        }
    }
}

/// Memory that `keep_mass` uses again and again.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    mass: Vec<f64>,
    edge: Vec<Candidate>,
}
