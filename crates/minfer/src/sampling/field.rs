//! The tokens still in play, and what the chain's samplers do to them.

use super::select::{self, Scratch};
use super::{Candidate, SamplerParams, math};
use crate::lanes::scan;

/// The tokens that the samplers so far have left: all of the vocabulary, or a list. Tokens at minus infinity are none. Logits
/// stay undivided: a temperature counts where they are compared.
pub(super) struct Field<'a> {
    logits: &'a mut [f32],
    list: &'a mut Vec<Candidate>,
    scratch: &'a mut Scratch,
    /// The tokens left are those of `logits`, and `list` means nothing.
    whole: bool,
    temperature: f32,
}

impl Field<'_> {
    /// All tokens of the vocabulary; `list` and `scratch` lend their memory.
    pub(super) fn new<'a>(
        logits: &'a mut [f32],
        list: &'a mut Vec<Candidate>,
        scratch: &'a mut Scratch,
    ) -> Field<'a> {
        list.clear();
        Field {
            logits,
            list,
            scratch,
            whole: true,
            temperature: 1.0,
        }
    }

    pub(super) fn n_vocab(&self) -> usize {
        self.logits.len()
    }

    /// What the logits are divided by.
    pub(super) fn temperature(&self) -> f32 {
        self.temperature
    }

    /// Whether no token is left; where none has been looked for yet, false.
    pub(super) fn is_empty(&self) -> bool {
        !self.whole && self.list.is_empty()
    }

    fn gather(&mut self) {
        if self.whole {
            select::all(self.logits, self.list);
            self.whole = false;
        }
    }

    /// The tokens whose logit is this or above.
    fn keep_from(&mut self, least: f32) {
        if self.whole {
            select::above(self.logits, least.next_down(), self.list);
            self.whole = false;
        } else {
            self.list.retain(|c| c.logit >= least);
        }
    }

    fn max(&self) -> f32 {
        if self.whole {
            scan::max(self.logits)
        } else {
            math::max_logit(self.list)
        }
    }

    /// Divides the logits by the temperature so far, for a sampler that changes them.
    fn settle(&mut self) {
        let t = self.temperature;
        if t == 1.0 {
            return;
        }
        let within = |x: f32| {
            if x == f32::NEG_INFINITY {
                x
            } else {
                (x / t).clamp(f32::MIN, f32::MAX)
            }
        };
        if self.whole {
            self.logits.iter_mut().for_each(|x| *x = within(*x));
        } else {
            self.list.iter_mut().for_each(|c| c.logit = within(c.logit));
        }
        self.temperature = 1.0;
    }

    /// Changes the logits of some tokens: `change` is given each one's count.
    pub(super) fn change<C>(
        &mut self,
        some: impl Iterator<Item = (u32, C)>,
        change: impl Fn(f32, C) -> f32,
    ) {
        self.settle();
        if self.whole {
            for (token, count) in some {
                if let Some(logit) = self.logits.get_mut(token as usize) {
                    *logit = change(*logit, count);
                }
            }
            return;
        }
        self.list.sort_unstable_by_key(|c| c.id);
        for (token, count) in some {
            if let Ok(at) = self.list.binary_search_by_key(&token, |c| c.id) {
                self.list[at].logit = change(self.list[at].logit, count);
            }
        }
    }

    /// Keeps the k likeliest. `k` above 0.
    pub(super) fn top_k(&mut self, k: usize) {
        if !self.whole {
            if k < self.list.len() {
                self.list.select_nth_unstable_by(k - 1, select::better);
                self.list.truncate(k);
            }
            self.list.sort_unstable_by(select::better);
        } else if k < self.logits.len() {
            select::top_k(self.logits, k, self.list);
            self.whole = false;
        }
    }

    /// The k likeliest, best first; all stay. For a field that is whole.
    pub(super) fn best(&mut self, k: usize) -> &[Candidate] {
        select::top_k(self.logits, k, self.list);
        self.list
    }

    /// Keeps the likeliest that reach the probability `p`.
    pub(super) fn top_p(&mut self, p: f32) {
        let total = (self.whole && self.temperature == 1.0).then(|| {
            self.whole = false;
            gather_mass(self.logits, p, self.list)
        });
        self.gather();
        let max = self.max();
        let total = total.unwrap_or_else(|| weigh(self.list, max, self.temperature));
        let target = f64::from(p) * total;
        let key = |c: &Candidate| max - c.logit;
        select::keep_mass(self.list, self.scratch, key, |sum| sum >= target);
    }

    /// Keeps those at least `p` times as likely as the best. `p` above 0.
    pub(super) fn min_p(&mut self, p: f32) {
        let ln = math::ln(f64::from(p).max(f64::MIN_POSITIVE)) as f32;
        self.keep_from(self.max() + ln * self.temperature);
    }

    /// Keeps the candidates whose surprise is nearest to the distribution's entropy (Meister et al., "Locally typical sampling",
    /// 2022), until their probability passes p.
    pub(super) fn typical(&mut self, p: f32) {
        self.gather();
        let (max, t) = (self.max(), self.temperature);
        let (total, entropy) = self.entropy();
        let log_total = math::ln(total);
        let surprise = |c: &Candidate| log_total - f64::from((c.logit - max) / t);
        let target = f64::from(p) * total;
        let key = |c: &Candidate| (surprise(c) - entropy).abs() as f32;
        select::keep_mass(self.list, self.scratch, key, |sum| sum > target);
    }

    /// The sum of the weights, which are set, and the entropy (natural) of the list.
    fn entropy(&mut self) -> (f64, f64) {
        let (max, t) = (self.max(), self.temperature);
        let total = weigh(self.list, max, t);
        let log_total = math::ln(total);
        let surprise = |c: &Candidate| log_total - f64::from((c.logit - max) / t);
        let sum: f64 = self
            .list
            .iter()
            .map(|c| f64::from(c.weight) * surprise(c))
            .sum();
        (total, sum / total)
    }

    /// Keeps the logits at most `n` standard deviations below the best (Tang et al., "Top-nσ: not all logits are you need", 2024).
    pub(super) fn top_n_sigma(&mut self, n: f32) {
        let deviation = if self.whole {
            deviation(self.logits.len(), |i| self.logits[i])
        } else {
            deviation(self.list.len(), |i| self.list[i].logit)
        };
        self.keep_from(self.max() - n * deviation);
    }

    /// Excludes the tokens of probability `threshold` and above, but for the least likely of them (p-e-w's XTC, text-generation-webui,
    /// pull request 6335).
    pub(super) fn xtc(&mut self, threshold: f32) {
        self.gather();
        let max = self.max();
        let least = f64::from(threshold) * weigh(self.list, max, self.temperature);
        let top = |c: &&Candidate| f64::from(c.weight) >= least;
        if let Some(last) = self
            .list
            .iter()
            .filter(top)
            .max_by(|a, b| select::better(a, b))
        {
            let last = last.id;
            self.list.retain(|c| c.id == last || !top(&c));
        }
    }

    /// Divides the logits; 0 leaves the likeliest token.
    pub(super) fn divide(&mut self, temperature: f32) {
        if temperature > 0.0 {
            self.temperature *= temperature;
            return;
        }
        let max = self.max();
        let best = if self.whole {
            let first = self.logits.iter().position(|x| *x == max);
            first
                .filter(|_| max > f32::NEG_INFINITY)
                .map(|id| Candidate {
                    id: id as u32,
                    logit: max,
                    weight: 1.0,
                })
        } else {
            self.list
                .iter()
                .min_by(|a, b| select::better(a, b))
                .copied()
        };
        self.list.clear();
        self.list.extend(best);
        self.whole = false;
    }

    /// Divides the logits by a temperature between the lowest and the highest, by the entropy's share of the largest possible.
    pub(super) fn divide_dynamic(&mut self, p: &SamplerParams) {
        self.gather();
        if self.list.len() < 2 {
            return;
        }
        let low = (p.temperature - p.dynatemp_range).max(0.0);
        let high = (p.temperature + p.dynatemp_range).min(f32::MAX);
        let (_, entropy) = self.entropy();
        let share = (entropy / math::ln(self.list.len() as f64)).clamp(0.0, 1.0);
        let along = math::power(share, f64::from(p.dynatemp_exponent));
        self.divide((f64::from(low) + f64::from(high - low) * along) as f32);
    }

    /// Keeps the tokens of this surprise (natural) and below; if there is none, the best. Of a whole field, whose logits become
    /// distances from the best.
    pub(super) fn keep_surprise(&mut self, most: f64) {
        let (max, t) = (self.max(), self.temperature);
        if max > f32::NEG_INFINITY {
            self.logits.iter_mut().for_each(|x| *x = (*x - max) / t);
            self.temperature = 1.0;
            let least = math::ln(scan::sum_exp(self.logits, 0.0)) - most;
            if least <= 0.0 {
                return self.keep_from(least as f32);
            }
        }
        self.divide(0.0);
    }

    /// Leaves the candidates in the order of their ids, with their weights in the draw.
    pub(super) fn finish(&mut self) {
        self.gather();
        let max = self.max();
        self.list.sort_unstable_by_key(|c| c.id);
        weigh(self.list, max, self.temperature);
    }
}

/// Gathers the likeliest tokens of the whole vocabulary, with weights, until they hold at least the fraction `p` of all weight; returns
/// that whole weight. Usually the few within e^-10 of the best suffice, and the others need no entry.
fn gather_mass(logits: &[f32], p: f32, candidates: &mut Vec<Candidate>) -> f64 {
    let max = scan::max(logits);
    let total = scan::sum_exp(logits, max);
    for range in [10.0, 20.0] {
        select::above(logits, max - range, candidates);
        if weigh(candidates, max, 1.0) >= f64::from(p) * total {
            return total;
        }
    }
    select::all(logits, candidates);
    weigh(candidates, max, 1.0);
    total
}

/// Sets the weights to e^((logit - max) / temperature) and returns their sum.
fn weigh(candidates: &mut [Candidate], max: f32, temperature: f32) -> f64 {
    let mut total = 0.0;
    for c in candidates {
        c.weight = math::exp((c.logit - max) / temperature);
        total += f64::from(c.weight);
    }
    total
}

/// The standard deviation (of a population) of `n` values, but for those at minus infinity; 0 of none.
fn deviation(n: usize, value: impl Fn(usize) -> f32) -> f32 {
    let count = sum(n, &value, |_| 1.0).max(1.0);
    let mean = sum(n, &value, |x| x) / count;
    (sum(n, &value, |x| (x - mean) * (x - mean)) / count).sqrt() as f32
}

/// The sum of a term over values above minus infinity. Eight sums, so that none waits for the one before.
fn sum(n: usize, value: &impl Fn(usize) -> f32, term: impl Fn(f64) -> f64) -> f64 {
    let mut sums = [0.0f64; 8];
    for i in 0..n {
        let x = value(i);
        if x > f32::NEG_INFINITY {
            sums[i % 8] += term(f64::from(x));
        }
    }
    sums.iter().sum()
}
