//! DRY, "don't repeat yourself": a token that would make a repetition longer is penalised, the more the longer it is. The idea is
//! p-e-w's (text-generation-webui, pull request 5677), the details are llama.cpp's.

use std::collections::HashMap;

use super::SamplerParams;
use super::breakers::{Breakers, Follower};

/// The tokens that repetitions are looked for in.
#[derive(Clone, Debug)]
pub(super) struct Dry {
    multiplier: f64,
    base: f64,
    allowed: usize,
    /// `None`: all tokens count.
    limit: Option<usize>,
    /// The last tokens, oldest first: at least as many as count.
    tokens: Vec<u32>,
    breakers: Follower,
    z: Vec<u32>,
    longest: HashMap<u32, u32>,
}

impl Dry {
    pub(super) fn new(p: &SamplerParams, breakers: Breakers) -> Dry {
        Dry {
            multiplier: f64::from(p.dry_multiplier),
            base: f64::from(p.dry_base),
            allowed: p.dry_allowed_length as usize,
            limit: usize::try_from(p.dry_penalty_last_n).ok(),
            tokens: Vec::new(),
            breakers: Follower::new(breakers),
            z: Vec::new(),
            longest: HashMap::new(),
        }
    }

    /// The next token of the sequence.
    pub(super) fn push(&mut self, token: u32) {
        self.breakers.push(token);
        self.tokens.push(token);
        // Half of it goes at once, so that a token costs little on average.
        if let Some(limit) = self.limit
            && self.tokens.len() > limit.saturating_mul(2)
        {
            self.tokens.drain(..self.tokens.len() - limit);
        }
    }

    pub(super) fn clear(&mut self) {
        self.tokens.clear();
        self.breakers.clear();
    }

    /// The tokens that would continue a repetition, each once, and what their logits lose; in no particular order.
    pub(super) fn penalties(&mut self) -> impl Iterator<Item = (u32, f32)> {
        let n = self.tokens.len().min(self.limit.unwrap_or(usize::MAX));
        let recent = &self.tokens[self.tokens.len() - n..];
        let reach = self.breakers.since().min(n);
        self.longest.clear();
        if n > self.allowed && reach >= self.allowed {
            let (reach, least) = (reach as u32, self.allowed as u32);
            repeats(recent, reach, least, &mut self.z, &mut self.longest);
        }
        let breakers = self.breakers.breakers();
        let repeated = self.longest.iter();
        repeated
            .filter(|(token, _)| !breakers.is_breaker(**token))
            .map(|(token, length)| (*token, self.loss(*length)))
    }

    /// What a token loses that would continue a repetition of this length.
    fn loss(&self, length: u32) -> f32 {
        let loss = self.multiplier * power(self.base, length - self.allowed as u32);
        loss.min(f64::from(f32::MAX)) as f32
    }
}

/// For each token: how long a stretch before one of its occurrences equals the end of all tokens; only stretches of `least` and
/// more count, and no more than `reach` of one. Linear time: the Z algorithm (Gusfield, "Algorithms on strings, trees and
/// sequences", 1.4) from the end.
fn repeats(
    tokens: &[u32],
    reach: u32,
    least: u32,
    z: &mut Vec<u32>,
    longest: &mut HashMap<u32, u32>,
) {
    let n = tokens.len();
    let back = |i: usize| tokens[n - 1 - i];
    z.clear();
    z.resize(n, 0);
    // The stretch from `left` to `right` equals the one from 0 on, and no known one goes further.
    let (mut left, mut right) = (0, 0);
    for k in 1..n {
        let known = if k < right {
            (z[k - left] as usize).min(right - k)
        } else {
            0
        };
        let mut same = known;
        if k + known >= right {
            while k + same < n && back(same) == back(k + same) {
                same += 1;
            }
            (left, right) = (k, k + same);
        }
        z[k] = same as u32;
        let length = z[k].min(reach);
        if length >= least {
            let most = longest.entry(back(k - 1)).or_insert(length);
            *most = length.max(*most);
        }
    }
}

/// `base^n` by multiplications alone, no more than the largest f32.
fn power(base: f64, n: u32) -> f64 {
    let (mut result, mut square, mut n) = (1.0f64, base, n);
    while n > 0 {
        if n & 1 == 1 {
            result = (result * square).min(f64::from(f32::MAX));
        }
        square = (square * square).min(f64::from(f32::MAX));
        n >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// The definition, in cubic time.
    fn naive(tokens: &[u32], reach: usize, least: usize) -> BTreeMap<u32, u32> {
        let mut longest = BTreeMap::new();
        for next in 1..tokens.len() {
            let same = (0..next)
                .take_while(|i| tokens[next - 1 - i] == tokens[tokens.len() - 1 - i])
                .count()
                .min(reach);
            if same >= least {
                let most = longest.entry(tokens[next]).or_insert(0);
                *most = (same as u32).max(*most);
            }
        }
        longest
    }

    proptest! {
        #[test]
        fn repeats_are_their_definition(tokens in prop::collection::vec(0u32..4, 0..60), reach in 0usize..70, least in 0usize..4) {
            let mut longest = HashMap::new();
            repeats(&tokens, reach as u32, least as u32, &mut Vec::new(), &mut longest);
            let found: BTreeMap<u32, u32> = longest.into_iter().collect();
            prop_assert_eq!(found, naive(&tokens, reach, least));
        }
    }

    #[test]
    fn powers_stay_finite() {
        assert_eq!(power(1.75, 0), 1.0);
        assert_eq!(power(1.75, 5), 1.75f64.powi(5));
        assert_eq!(power(1.0, u32::MAX), 1.0);
        assert_eq!(power(1.5, 100_000), f64::from(f32::MAX));
    }

    /// A text of one token again and again is where a quadratic search takes its time: 4e10 steps here.
    #[test]
    fn a_long_monotonous_text_takes_linear_time() {
        let tokens = vec![7; 200_000];
        let mut longest = HashMap::new();
        repeats(&tokens, u32::MAX, 2, &mut Vec::new(), &mut longest);
        assert_eq!(longest.into_iter().collect::<Vec<_>>(), [(7, 199_999)]);
    }
}
