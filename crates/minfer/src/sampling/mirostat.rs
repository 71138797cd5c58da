//! Mirostat (Basu, Ramachandran, Keskar, Varshney: "Mirostat: a neural text decoding algorithm that directly controls perplexity",
//! 2021), both versions, as llama.cpp has them.

use super::field::Field;
use super::{Candidate, SamplerParams, math};

/// The tokens from which version 1 estimates how probabilities fall off.
const MOST: usize = 100;

/// Steers the surprise of the chosen tokens by one number, mu. A draw remembers where it would take mu; accepting the drawn token
/// takes it there. So drawing again, or dropping a draft, moves nothing.
#[derive(Clone, Debug)]
pub(super) struct Mirostat {
    version: u32,
    tau: f64,
    eta: f64,
    mu: f64,
    /// The token drawn last, and mu after it.
    drawn: Option<(u32, f64)>,
}

impl Mirostat {
    /// `None` where the parameters ask for none, or for the likeliest token whatever it is.
    pub(super) fn new(p: &SamplerParams) -> Option<Mirostat> {
        let tau = f64::from(p.mirostat_ent);
        (p.mirostat > 0 && p.temperature > 0.0).then_some(Mirostat {
            version: p.mirostat,
            tau,
            eta: f64::from(p.mirostat_lr),
            mu: 2.0 * tau,
            drawn: None,
        })
    }

    pub(super) fn mu(&self) -> f64 {
        self.mu
    }

    pub(super) fn set_mu(&mut self, mu: f64) {
        self.mu = mu;
        self.drawn = None;
    }

    pub(super) fn reset(&mut self) {
        self.set_mu(2.0 * self.tau);
    }

    /// Leaves the tokens that the draw may choose. Of a whole field.
    pub(super) fn cut(&self, field: &mut Field<'_>) {
        if self.version == 1 {
            let (n_vocab, t) = (field.n_vocab(), field.temperature());
            let k = self.count(field.best(MOST.min(n_vocab)), t, n_vocab);
            field.top_k(k);
        } else {
            field.keep_surprise(self.mu * std::f64::consts::LN_2);
        }
    }

    /// How many tokens version 1 keeps, by the slope s of the best: probabilities are taken to fall as rank^-s (Zipf).
    fn count(&self, best: &[Candidate], temperature: f32, n_vocab: usize) -> usize {
        let (mut top, mut bottom) = (0.0, 0.0);
        for (i, pair) in best.windows(2).enumerate() {
            let t = math::ln((i + 2) as f64 / (i + 1) as f64);
            top += t * f64::from((pair[0].logit - pair[1].logit) / temperature);
            bottom += t * t;
        }
        let s = top / bottom;
        let over = s - 1.0;
        let two_mu = math::exp64(self.mu * std::f64::consts::LN_2);
        let ln_n = math::ln(n_vocab as f64);
        let share = if over.abs() < 1e-9 {
            1.0 / ln_n // the limit
        } else {
            over / (1.0 - math::exp64(-over * ln_n))
        };
        // No number (one token, or no slope) counts as 0, infinity as all.
        (math::exp64(math::ln(two_mu * share) / s) as usize).max(1)
    }

    /// A token of this probability among those left was drawn.
    pub(super) fn drew(&mut self, token: u32, probability: f64) {
        let surprise = -math::ln(probability) / std::f64::consts::LN_2;
        self.drawn = Some((token, self.mu - self.eta * (surprise - self.tau)));
    }

    /// The sequence goes on with a token: if it is the one that was drawn, mu follows.
    pub(super) fn accept(&mut self, token: u32) {
        if let Some((drawn, mu)) = self.drawn.take()
            && drawn == token
        {
            self.mu = mu;
        }
    }
}
