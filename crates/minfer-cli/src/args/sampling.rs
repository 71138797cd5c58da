//! Flags of the sampler chain.

use std::hash::{BuildHasher, RandomState};

use clap::Args;

use super::at_least;

/// A seed of the draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed {
    /// The number.
    pub value: u64,
    /// Whether it was drawn here: then nobody knows it who is not told.
    pub is_drawn: bool,
}

/// Takes a seed, or draws one: 32 bits, which are typed again soon enough.
fn seed(text: &str) -> Result<Seed, String> {
    let given = |value| Seed {
        value,
        is_drawn: false,
    };
    match text {
        // llama.cpp's and Ollama's -1.
        "random" | "-1" => Ok(Seed {
            // The standard library's hash tables have their keys from the system.
            value: RandomState::new().hash_one(()) >> 32,
            is_drawn: true,
        }),
        _ => text.parse().map(given).map_err(|_| {
            "it must be a whole number from 0 up, or `random` (or -1) for another one each time"
                .to_owned()
        }),
    }
}

/// The sampler chain. Unset flags take the model's own `general.sampling.*`, then minfer's default.
#[derive(Args, Default)]
pub struct SamplingArgs {
    /// Temperature; 0 takes the likeliest token [default: 0.8].
    #[arg(
        long,
        visible_alias = "temperature",
        value_name = "T",
        allow_negative_numbers = true
    )]
    pub temp: Option<f32>,
    /// Dynamic temperature: up to R below or above --temp, by entropy; 0: off [default: 0].
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    pub dynatemp_range: Option<f32>,
    /// Exponent of the entropy in the dynamic temperature [default: 1].
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub dynatemp_exp: Option<f32>,
    /// Keep the K likeliest tokens; 0: all [default: 40].
    #[arg(long, value_name = "K", value_parser = at_least(0_u32), allow_negative_numbers = true)]
    pub top_k: Option<u32>,
    /// Keep the likeliest tokens whose probabilities sum to P; 1: all [default: 0.95].
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub top_p: Option<f32>,
    /// Keep tokens at least P times as likely as the likeliest; 0: all [default: 0].
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub min_p: Option<f32>,
    /// Locally typical sampling; 1: off [default: 1].
    #[arg(
        long,
        visible_alias = "typical-p",
        value_name = "P",
        allow_negative_numbers = true
    )]
    pub typical: Option<f32>,
    /// Keep logits at most N standard deviations below the best; 0 and below: off [default: -1].
    #[arg(
        long,
        visible_alias = "top-nsigma",
        value_name = "N",
        allow_negative_numbers = true
    )]
    pub top_n_sigma: Option<f32>,
    /// XTC: how often the top choices are excluded; 0: never [default: 0].
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub xtc_probability: Option<f32>,
    /// XTC: what counts as a top choice; above 0.5: off [default: 0.1].
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub xtc_threshold: Option<f32>,
    /// Penalty of repeated tokens; 1: off [default: 1.1].
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub repeat_penalty: Option<f32>,
    /// How many last tokens the penalties look at; 0: off, -1: all [default: 64].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub repeat_last_n: Option<i32>,
    /// Flat penalty of tokens that occurred; 0: off [default: 0].
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub presence_penalty: Option<f32>,
    /// Penalty for each occurrence; 0: off [default: 0].
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub frequency_penalty: Option<f32>,
    /// DRY: a token that makes a repetition of n tokens longer loses X * base^(n - allowed length); 0: off [default: 0].
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub dry_multiplier: Option<f32>,
    /// DRY's base [default: 1.75].
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub dry_base: Option<f32>,
    /// DRY: shorter repetitions cost nothing [default: 2].
    #[arg(long, value_name = "N", value_parser = at_least(0_u32), allow_negative_numbers = true)]
    pub dry_allowed_length: Option<u32>,
    /// DRY: how many last tokens it looks at; 0: off, -1: all [default: -1].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub dry_penalty_last_n: Option<i32>,
    /// DRY: a text that breaks repetitions, with \n, \t, \r, \" and \\ for what they mean (repeat for more); replaces
    /// newline, colon, double quote and star; `none`: no text does.
    #[arg(long, value_name = "TEXT")]
    pub dry_sequence_breaker: Vec<String>,
    /// Mirostat 1 or 2 in place of the chain (all but the temperature); 0: off [default: 0].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub mirostat: Option<u32>,
    /// Mirostat's target of surprise, in bits [default: 5].
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub mirostat_ent: Option<f32>,
    /// Mirostat's learning rate [default: 0.1].
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub mirostat_lr: Option<f32>,
    /// The samplers that run, in order
    /// [default: penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature].
    #[arg(long, value_name = "A;B;…")]
    pub samplers: Option<String>,
    /// The same by letters [default: edskypmxt].
    #[arg(
        long,
        visible_alias = "sampler-seq",
        value_name = "LETTERS",
        conflicts_with = "samplers"
    )]
    pub sampling_seq: Option<String>,
    /// Add to a token's logit: ID+BIAS, ID-BIAS, or ID=-inf to ban it (repeat for more).
    #[arg(short = 'l', long, value_name = "ID±BIAS")]
    pub logit_bias: Vec<String>,
    /// Seed of the draws; random (or -1): another one each time, told with the timings [default: 42].
    #[arg(short = 's', long, value_name = "N", value_parser = seed, allow_negative_numbers = true)]
    pub seed: Option<Seed>,
}

#[cfg(test)]
mod tests {
    use super::Seed;

    #[test]
    fn a_random_seed_is_another_one_each_time_and_typed_again_soon() {
        let seed = |text: &str| super::seed(text).unwrap();
        let drawn: Vec<Seed> = ["random", "-1", "random"].map(seed).to_vec();
        for (i, s) in drawn.iter().enumerate() {
            assert!(s.is_drawn && s.value <= u64::from(u32::MAX), "{s:?}");
            assert!(!drawn[..i].contains(s), "{drawn:?}");
        }
        let given = Seed {
            value: 7,
            is_drawn: false,
        };
        assert_eq!(seed("7"), given);
    }
}
