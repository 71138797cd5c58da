//! One test of the sweep.

use minfer::engine::Measure;
use minfer::sampling::SamplerParams;

use crate::allocations;
use crate::args::BenchArgs;

/// What is measured: `n_prompt` or `n_gen` tokens, the other is 0.
pub struct Case {
    /// Tokens in the context before.
    pub depth: usize,
    /// Prompt tokens.
    pub n_prompt: usize,
    /// Decode steps.
    pub n_gen: usize,
    /// Sequences decoded together.
    pub n_seqs: usize,
}

/// Every combination of the lists, as llama-bench orders them: at each depth prompts, then generations.
pub fn cases(a: &BenchArgs) -> Vec<Case> {
    let mut cases = Vec::new();
    for &depth in &a.n_depth {
        for &n_prompt in a.n_prompt.iter().filter(|n| **n > 0) {
            cases.push(Case {
                depth,
                n_prompt,
                n_gen: 0,
                n_seqs: 1,
            });
        }
        for &n_gen in a.n_gen.iter().filter(|n| **n > 0) {
            cases.extend(a.batch.iter().map(|&n_seqs| Case {
                depth,
                n_prompt: 0,
                n_gen,
                n_seqs,
            }));
        }
    }
    cases
}

impl Case {
    /// `pp512`, `tg128 @ d2048`, `tg128 @ d2048 x8`.
    pub fn name(&self) -> String {
        let mut name = match self.n_gen {
            0 => format!("pp{}", self.n_prompt),
            n => format!("tg{n}"),
        };
        if self.depth > 0 {
            name += &format!(" @ d{}", self.depth);
        }
        if self.n_seqs > 1 {
            name += &format!(" x{}", self.n_seqs);
        }
        name
    }

    /// Context that a sequence needs.
    pub fn positions(&self) -> usize {
        self.depth + self.n_prompt + self.n_gen
    }

    /// Tokens that are timed, of all sequences.
    pub fn tokens(&self) -> usize {
        self.n_seqs * (self.n_prompt + self.n_gen)
    }

    /// As the engine takes it.
    pub fn measure(&self, a: &BenchArgs) -> Measure {
        Measure {
            n_seqs: self.n_seqs,
            depth: self.depth,
            n_prompt: self.n_prompt,
            n_gen: self.n_gen,
            repetitions: a.repetitions + usize::from(!a.no_warmup),
            sampling: a.sample.then(SamplerParams::default),
            allocations: Some(allocations::count),
            logits: false,
        }
    }
}
