//! The chain itself.

use super::history::History;
use super::select::{self, Scratch};
use super::{Constraint, SamplerParams, SamplingError, draw, math};
use crate::lanes::scan;

/// A token the draw may choose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Token id.
    pub id: u32,
    /// Its logit after bias and penalties, before the temperature.
    pub logit: f32,
    /// Its weight in the draw: probability times the sum of all candidates' weights.
    pub weight: f32,
}

/// Chooses the tokens of one sequence.
#[derive(Clone, Debug)]
pub struct Sampler {
    params: SamplerParams,
    n_vocab: usize,
    choice: u64,
    history: History,
    candidates: Vec<Candidate>,
    scratch: Scratch,
}

impl Sampler {
    /// A sampler for a vocabulary of `n_vocab` tokens. Errors: a parameter out of range, a biased token that does not exist.
    pub fn new(params: SamplerParams, n_vocab: usize) -> Result<Sampler, SamplingError> {
        params.validate()?;
        if let Some((token, _)) = params
            .logit_bias
            .iter()
            .find(|(token, _)| *token as usize >= n_vocab)
        {
            return Err(SamplingError::Parameter {
                field: "logit_bias",
                value: format!("token {token}"),
                range: "a token of the vocabulary",
            });
        }
        let k = params.top_k as usize;
        let room = if params.temperature == 0.0 {
            0
        } else if k == 0 || k >= n_vocab {
            n_vocab
        } else {
            (3 * k + 128).min(n_vocab)
        };
        let history = History::new(params.repeat_last_n);
        Ok(Sampler {
            params,
            n_vocab,
            choice: 0,
            history,
            candidates: Vec::with_capacity(room),
            scratch: Scratch::default(),
        })
    }

    /// The same sampler for another of several answers to one prompt: its draws are independent of the others'.
    pub fn with_choice(mut self, choice: u64) -> Sampler {
        self.choice = choice;
        self
    }

    /// The parameters.
    pub fn params(&self) -> &SamplerParams {
        &self.params
    }

    /// Tells of a token of the sequence: the prompt's, in order, and then each that was chosen. The penalties look at them.
    pub fn accept(&mut self, token: u32) {
        self.history.push(token);
    }

    /// Forgets all accepted tokens.
    pub fn reset(&mut self) {
        self.history.clear();
    }

    /// Chooses the token at `position` (its index in the sequence). `logits` are the model's, one a token of the vocabulary; bias and
    /// penalties are written into them. It does not accept the token. Same logits, history, parameters, choice and position: same token.
    pub fn sample(&mut self, logits: &mut [f32], position: u64) -> Result<u32, SamplingError> {
        self.sample_constrained(logits, position, None)
    }

    /// As [`Sampler::sample`], among the tokens that a constraint allows.
    pub fn sample_constrained(
        &mut self,
        logits: &mut [f32],
        position: u64,
        constraint: Option<&mut dyn Constraint>,
    ) -> Result<u32, SamplingError> {
        self.adjust(logits, constraint)?;
        if self.params.temperature == 0.0 {
            return argmax(logits);
        }
        self.filter(logits)?;
        Ok(self.choose(draw(self.params.seed, self.choice, position, 0)))
    }

    /// What [`Sampler::sample`] would draw from, with weights; by ids.
    pub fn candidates(&mut self, logits: &mut [f32]) -> Result<&[Candidate], SamplingError> {
        self.adjust(logits, None)?;
        if self.params.temperature == 0.0 {
            let id = argmax(logits)?;
            self.candidates.clear();
            self.candidates.push(Candidate {
                id,
                logit: logits[id as usize],
                weight: 1.0,
            });
        } else {
            self.filter(logits)?;
        }
        Ok(&self.candidates)
    }

    /// Checks the logits; bias, penalties and the constraint.
    fn adjust(
        &self,
        logits: &mut [f32],
        constraint: Option<&mut dyn Constraint>,
    ) -> Result<(), SamplingError> {
        if logits.len() != self.n_vocab {
            return Err(SamplingError::Length {
                got: logits.len(),
                expected: self.n_vocab,
            });
        }
        if let Some(token) = scan::first_non_finite(logits) {
            let value = logits[token];
            return Err(SamplingError::NonFinite { token, value });
        }
        for (token, bias) in &self.params.logit_bias {
            let logit = &mut logits[*token as usize];
            *logit = (*logit + bias).min(f32::MAX);
        }
        let p = &self.params;
        if p.repeat_penalty != 1.0 || p.frequency_penalty != 0.0 || p.presence_penalty != 0.0 {
            for (token, count) in self.history.counts() {
                let Some(logit) = logits.get_mut(token as usize) else {
                    continue;
                };
                *logit = if *logit <= 0.0 {
                    *logit * p.repeat_penalty
                } else {
                    *logit / p.repeat_penalty
                };
                *logit = (*logit - (count as f32 * p.frequency_penalty + p.presence_penalty))
                    .min(f32::MAX);
            }
        }
        if let Some(constraint) = constraint {
            constraint.mask(logits);
        }
        Ok(())
    }

    /// Top-k, typical, top-p, min-p, temperature: leaves the candidates with their final weights, by ids.
    fn filter(&mut self, logits: &[f32]) -> Result<(), SamplingError> {
        let Sampler {
            params: p,
            candidates,
            scratch,
            ..
        } = self;
        let k = p.top_k as usize;
        let whole = k == 0 || k >= logits.len();
        // The sum of all weights, where top-p looks at the whole vocabulary.
        let mut total = None;
        if whole && p.top_p < 1.0 && p.typical_p >= 1.0 {
            total = Some(gather_mass(logits, p.top_p, candidates));
        } else if whole {
            select::all(logits, candidates);
        } else {
            select::top_k(logits, k, candidates);
        }
        if candidates.is_empty() {
            return Err(SamplingError::NoneLeft);
        }
        let max = math::max_logit(candidates);
        if p.typical_p < 1.0 {
            keep_typical(candidates, scratch, max, p.typical_p);
        }
        let max = if p.typical_p < 1.0 {
            math::max_logit(candidates)
        } else {
            max
        };
        if p.top_p < 1.0 {
            let total = total.unwrap_or_else(|| weigh(candidates, max, 1.0));
            let target = f64::from(p.top_p) * total;
            select::keep_mass(candidates, scratch, |c| max - c.logit, |sum| sum >= target);
        }
        if p.min_p > 0.0 {
            let least = max + math::ln(f64::from(p.min_p).max(f64::MIN_POSITIVE)) as f32;
            candidates.retain(|c| c.logit >= least);
        }
        candidates.sort_unstable_by_key(|c| c.id);
        weigh(candidates, max, p.temperature);
        Ok(())
    }

    /// The candidate at `u` of the way through the weights.
    fn choose(&self, u: f64) -> u32 {
        let total: f64 = self.candidates.iter().map(|c| f64::from(c.weight)).sum();
        let mut sum = 0.0;
        let found = self.candidates.iter().find(|c| {
            sum += f64::from(c.weight);
            sum > u * total
        });
        // The best candidate's weight is 1, so the sum passes every u < 1; rounding can't hide it from the last weight above 0.
        found
            .or_else(|| self.candidates.iter().rev().find(|c| c.weight > 0.0))
            .map_or(0, |c| c.id)
    }
}

/// The likeliest token; on ties the lowest id.
fn argmax(logits: &[f32]) -> Result<u32, SamplingError> {
    let best = scan::max(logits);
    if best == f32::NEG_INFINITY {
        return Err(SamplingError::NoneLeft);
    }
    logits
        .iter()
        .position(|x| *x == best)
        .map(|i| i as u32)
        .ok_or(SamplingError::NoneLeft)
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

/// Keeps the candidates whose surprise is nearest to the distribution's entropy (Meister et al., "Locally typical sampling", 2022),
/// until their probability passes p.
fn keep_typical(candidates: &mut Vec<Candidate>, scratch: &mut Scratch, max: f32, p: f32) {
    let total = weigh(candidates, max, 1.0);
    let log_total = math::ln(total);
    let surprise = |c: &Candidate| log_total - f64::from(c.logit - max);
    let entropy: f64 = candidates
        .iter()
        .map(|c| f64::from(c.weight) * surprise(c))
        .sum::<f64>()
        / total;
    let target = f64::from(p) * total;
    select::keep_mass(
        candidates,
        scratch,
        |c| (surprise(c) - entropy).abs() as f32,
        |sum| sum > target,
    );
}
