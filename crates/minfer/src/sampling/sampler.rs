//! The sampler of one sequence.

use serde::{Deserialize, Serialize};

use super::breakers::Breakers;
use super::dry::Dry;
use super::field::Field;
use super::history::History;
use super::mirostat::Mirostat;
use super::select::Scratch;
use super::{Constraint, SamplerKind, SamplerParams, SamplingError, draw};
use crate::lanes::scan;
use crate::tokenizer::Tokenizer;

/// The draw at a position that chooses the token.
const TOKEN_DRAW: u64 = 0;
/// The one that says whether XTC acts there.
const XTC_DRAW: u64 = 1;

/// A token the draw may choose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Token id.
    pub id: u32,
    /// Its logit after bias and penalties, before the temperature; where penalties come after it, and with mirostat, after it.
    pub logit: f32,
    /// Its weight in the draw: probability times the sum of all candidates' weights.
    pub weight: f32,
}

/// Chooses the tokens of one sequence.
///
/// A choice depends on parameters, choice number, position, logits and the accepted tokens; with mirostat also on the number mu that
/// the draws have moved (see [`Sampler::state`]).
#[derive(Clone, Debug)]
pub struct Sampler {
    params: SamplerParams,
    n_vocab: usize,
    choice: u64,
    /// The samplers that change anything, in order.
    plan: Vec<SamplerKind>,
    history: History,
    dry: Option<Dry>,
    mirostat: Option<Mirostat>,
    candidates: Vec<Candidate>,
    scratch: Scratch,
}

/// What a sampler knows beyond its parameters and the accepted tokens: mirostat's mu, else nothing. A saved sequence needs it to
/// go on as if it had not been saved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplerState {
    /// As bits, which every format keeps.
    mirostat_mu: Option<u64>,
}

impl Sampler {
    /// A sampler for a vocabulary of `n_vocab` tokens. Errors: a parameter out of range, a biased token that does not exist, DRY with
    /// breakers (see [`Sampler::with_tokenizer`]).
    pub fn new(params: SamplerParams, n_vocab: usize) -> Result<Sampler, SamplingError> {
        params.validate()?;
        if plan(&params).contains(&SamplerKind::Dry) && !params.dry_breakers.is_empty() {
            return Err(SamplingError::NoTokenizer);
        }
        Sampler::build(params, n_vocab, |_| Breakers::default())
    }

    /// A sampler for a tokenizer's vocabulary, which DRY searches for the tokens that have to do with its breakers: once, here, and
    /// only if DRY is on. Errors: as [`Sampler::new`].
    pub fn with_tokenizer(
        params: SamplerParams,
        tokenizer: &Tokenizer,
    ) -> Result<Sampler, SamplingError> {
        let n_vocab = tokenizer.n_vocab();
        Sampler::build(params, n_vocab, |breakers| {
            let pieces = (0..n_vocab as u32).map(|id| tokenizer.piece(id).unwrap_or_default());
            Breakers::new(breakers, pieces)
        })
    }

    fn build(
        params: SamplerParams,
        n_vocab: usize,
        breakers: impl FnOnce(&[String]) -> Breakers,
    ) -> Result<Sampler, SamplingError> {
        params.validate()?;
        let mut biased = params.logit_bias.iter().map(|(token, _)| *token);
        if let Some(token) = biased.find(|token| *token as usize >= n_vocab) {
            return Err(SamplingError::Parameter {
                field: "logit_bias",
                value: format!("token {token}"),
                range: "a token of the vocabulary",
            });
        }
        let plan = plan(&params);
        let dry = plan
            .contains(&SamplerKind::Dry)
            .then(|| Dry::new(&params, breakers(&params.dry_breakers)));
        Ok(Sampler {
            history: History::new(params.repeat_last_n),
            dry,
            mirostat: Mirostat::new(&params),
            candidates: Vec::with_capacity(room(&params, &plan, n_vocab)),
            scratch: Scratch::default(),
            choice: 0,
            plan,
            n_vocab,
            params,
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

    /// Tells of a token of the sequence: the prompt's, in order, and then each that was chosen. The penalties look at them, and
    /// mirostat's mu goes where the draw of this token takes it.
    pub fn accept(&mut self, token: u32) {
        self.history.push(token);
        if let Some(dry) = &mut self.dry {
            dry.push(token);
        }
        if let Some(mirostat) = &mut self.mirostat {
            mirostat.accept(token);
        }
    }

    /// Forgets all accepted tokens, and what mirostat made of them.
    pub fn reset(&mut self) {
        self.history.clear();
        if let Some(dry) = &mut self.dry {
            dry.clear();
        }
        if let Some(mirostat) = &mut self.mirostat {
            mirostat.reset();
        }
    }

    /// What is needed beside parameters, choice and the accepted tokens to make this sampler anew: [`Sampler::accept`] them, then
    /// [`Sampler::restore`]. To be taken between an `accept` and the next draw.
    pub fn state(&self) -> SamplerState {
        SamplerState {
            mirostat_mu: self.mirostat.as_ref().map(|m| m.mu().to_bits()),
        }
    }

    /// Goes on where the sampler of a saved state was. Errors: the state of a sampler with mirostat for one without, or the other way
    /// round, and a mu that is no number; nothing is changed then.
    pub fn restore(&mut self, state: &SamplerState) -> Result<(), SamplingError> {
        let mu = state.mirostat_mu.map(f64::from_bits);
        match (&mut self.mirostat, mu) {
            (None, None) => {}
            (Some(mirostat), Some(mu)) if mu.is_finite() => mirostat.set_mu(mu),
            (now, mu) => {
                return Err(SamplingError::State {
                    saved: mu.map_or("none".into(), |mu| mu.to_string()),
                    wanted: if now.is_some() { "a number" } else { "none" },
                });
            }
        }
        Ok(())
    }

    /// Chooses the token at `position` (its index in the sequence). `logits` are the model's, one a token of the vocabulary; bias and
    /// penalties are written into them. It does not accept the token. Same logits, history, parameters, choice and position: same
    /// token (with mirostat: same mu, which only [`Sampler::accept`] moves).
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
        self.narrow(logits, position, constraint)?;
        let chosen = self.choose(draw(self.params.seed, self.choice, position, TOKEN_DRAW));
        if let Some(mirostat) = &mut self.mirostat {
            let total: f64 = self.candidates.iter().map(|c| f64::from(c.weight)).sum();
            mirostat.drew(chosen.id, f64::from(chosen.weight) / total);
        }
        Ok(chosen.id)
    }

    /// What [`Sampler::sample`] would draw from at `position`, with weights; by ids.
    pub fn candidates(
        &mut self,
        logits: &mut [f32],
        position: u64,
    ) -> Result<&[Candidate], SamplingError> {
        self.narrow(logits, position, None)?;
        Ok(&self.candidates)
    }

    /// Whether logits can be sampled from.
    ///
    /// # Errors
    /// Not one a token of the vocabulary; one that is no number.
    pub(crate) fn check(&self, logits: &[f32]) -> Result<(), SamplingError> {
        if logits.len() != self.n_vocab {
            return Err(SamplingError::Length {
                got: logits.len(),
                expected: self.n_vocab,
            });
        }
        match scan::first_non_finite(logits) {
            Some(token) => Err(SamplingError::NonFinite {
                token,
                value: logits[token],
            }),
            None => Ok(()),
        }
    }

    /// Checks the logits; bias and the constraint.
    fn adjust(
        &self,
        logits: &mut [f32],
        constraint: Option<&mut dyn Constraint>,
    ) -> Result<(), SamplingError> {
        self.check(logits)?;
        for (token, bias) in &self.params.logit_bias {
            let logit = &mut logits[*token as usize];
            *logit = (*logit + bias).min(f32::MAX);
        }
        if let Some(constraint) = constraint {
            constraint.mask(logits)?;
        }
        Ok(())
    }

    /// The chain: leaves the candidates with their final weights, by ids, at least one.
    fn narrow(
        &mut self,
        logits: &mut [f32],
        position: u64,
        constraint: Option<&mut dyn Constraint>,
    ) -> Result<(), SamplingError> {
        self.adjust(logits, constraint)?;
        let p = &self.params;
        let mut field = Field::new(logits, &mut self.candidates, &mut self.scratch);
        for kind in &self.plan {
            match kind {
                SamplerKind::Penalties => penalise(&mut field, p, &self.history),
                SamplerKind::Dry => {
                    if let Some(dry) = &mut self.dry {
                        field.change(dry.penalties(), lose);
                    }
                }
                SamplerKind::TopNSigma => field.top_n_sigma(p.top_n_sigma),
                SamplerKind::TopK => field.top_k(p.top_k as usize),
                SamplerKind::TypP => field.typical(p.typical_p),
                SamplerKind::TopP => field.top_p(p.top_p),
                SamplerKind::MinP => field.min_p(p.min_p),
                SamplerKind::Xtc => {
                    let chance = draw(p.seed, self.choice, position, XTC_DRAW);
                    if chance < f64::from(p.xtc_probability) {
                        field.xtc(p.xtc_threshold);
                    }
                }
                SamplerKind::Temperature if is_dynamic(p) => field.divide_dynamic(p),
                SamplerKind::Temperature => field.divide(p.temperature),
            }
            if field.is_empty() {
                return Err(SamplingError::NoneLeft);
            }
        }
        if let Some(mirostat) = &self.mirostat {
            mirostat.cut(&mut field);
        }
        field.finish();
        if field.is_empty() {
            return Err(SamplingError::NoneLeft);
        }
        Ok(())
    }

    /// The candidate at `u` of the way through the weights.
    fn choose(&self, u: f64) -> Candidate {
        let total: f64 = self.candidates.iter().map(|c| f64::from(c.weight)).sum();
        let mut sum = 0.0;
        let found = self.candidates.iter().find(|c| {
            sum += f64::from(c.weight);
            sum > u * total
        });
        // The best candidate's weight is 1, so the sum passes every u < 1; rounding can't hide it from the last weight above 0.
        let found = found.or_else(|| self.candidates.iter().rev().find(|c| c.weight > 0.0));
        found.copied().unwrap_or(Candidate {
            id: 0,
            logit: 0.0,
            weight: 0.0,
        })
    }
}

/// Mirostat knows no dynamic temperature.
fn is_dynamic(p: &SamplerParams) -> bool {
    p.dynatemp_range > 0.0 && p.mirostat == 0
}

/// The samplers that change anything, in order.
fn plan(p: &SamplerParams) -> Vec<SamplerKind> {
    let order = match p.mirostat {
        0 => &p.samplers[..],
        _ => &[SamplerKind::Temperature],
    };
    let mut plan: Vec<SamplerKind> = order.iter().copied().filter(|k| p.acts(*k)).collect();
    let last = plan.iter().position(|k| *k == SamplerKind::Temperature);
    if let Some(last) = last
        && p.temperature == 0.0
        && !is_dynamic(p)
    {
        // One token is left there, and the filters right before it never take the likeliest away.
        plan.truncate(last);
        while let Some(
            SamplerKind::TopNSigma | SamplerKind::TopK | SamplerKind::TopP | SamplerKind::MinP,
        ) = plan.last()
        {
            plan.pop();
        }
        plan.push(SamplerKind::Temperature);
    }
    plan
}

/// Most candidates at a time.
fn room(p: &SamplerParams, plan: &[SamplerKind], n_vocab: usize) -> usize {
    let first = plan
        .iter()
        .find(|k| !matches!(k, SamplerKind::Penalties | SamplerKind::Dry));
    match first {
        Some(SamplerKind::TopK) => (p.top_k as usize)
            .saturating_mul(3)
            .saturating_add(128)
            .min(n_vocab),
        Some(SamplerKind::Temperature) if p.temperature == 0.0 && !is_dynamic(p) => 1,
        _ => n_vocab,
    }
}

/// A logit less something; only one at minus infinity stays there.
fn lose(logit: f32, loss: f32) -> f32 {
    if logit == f32::NEG_INFINITY {
        logit
    } else {
        (logit - loss).max(f32::MIN)
    }
}

/// The three penalties.
fn penalise(field: &mut Field<'_>, p: &SamplerParams, history: &History) {
    field.change(history.counts(), |logit, count| {
        let logit = if logit <= 0.0 {
            logit * p.repeat_penalty
        } else {
            logit / p.repeat_penalty
        };
        (logit - (count as f32 * p.frequency_penalty + p.presence_penalty)).min(f32::MAX)
    });
}
