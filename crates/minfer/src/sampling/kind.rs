//! The samplers of the chain by name.

use std::fmt;

use super::SamplingError;

/// A sampler of the chain, under llama.cpp's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplerKind {
    /// Repeat, frequency and presence penalty of recent tokens.
    Penalties,
    /// Penalty of what would continue a repetition ("don't repeat yourself").
    Dry,
    /// Keeps the logits within n standard deviations of the best.
    TopNSigma,
    /// Keeps the k likeliest.
    TopK,
    /// Keeps the most typical surprises.
    TypP,
    /// Keeps the likeliest that reach a probability.
    TopP,
    /// Keeps what is likely enough beside the best.
    MinP,
    /// Excludes the top choices, all but the last of them.
    Xtc,
    /// Divides the logits, by a fixed or a dynamic temperature.
    Temperature,
}

use SamplerKind::*;

/// The names, for messages.
const KNOWN: &str = "penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc, temperature";
/// The letters, for messages.
const LETTERS: &str = "e, d, s, k, y, p, m, x, t";

impl SamplerKind {
    /// All of them, in llama.cpp's order.
    pub const DEFAULT_ORDER: [SamplerKind; 9] = [
        Penalties,
        Dry,
        TopNSigma,
        TopK,
        TypP,
        TopP,
        MinP,
        Xtc,
        Temperature,
    ];

    /// llama.cpp's name.
    pub fn name(self) -> &'static str {
        match self {
            Penalties => "penalties",
            Dry => "dry",
            TopNSigma => "top_n_sigma",
            TopK => "top_k",
            TypP => "typ_p",
            TopP => "top_p",
            MinP => "min_p",
            Xtc => "xtc",
            Temperature => "temperature",
        }
    }

    /// llama.cpp's letter.
    pub fn letter(self) -> char {
        match self {
            Penalties => 'e',
            Dry => 'd',
            TopNSigma => 's',
            TopK => 'k',
            TypP => 'y',
            TopP => 'p',
            MinP => 'm',
            Xtc => 'x',
            Temperature => 't',
        }
    }

    /// The sampler of a name: any case, `-` or nothing for `_`, and llama.cpp's short forms temp, typ and nucleus.
    pub fn by_name(name: &str) -> Result<SamplerKind, SamplingError> {
        let plain = name.trim().to_lowercase().replace('-', "_");
        let kind = match plain.as_str() {
            "temp" => Some(Temperature),
            "typ" => Some(TypP),
            "nucleus" => Some(TopP),
            _ => SamplerKind::DEFAULT_ORDER
                .into_iter()
                .find(|k| k.name() == plain || k.name().replace('_', "") == plain),
        };
        kind.ok_or_else(|| unknown(name.trim(), KNOWN))
    }

    /// An order from names with `;` between them. Errors: a name that no sampler has.
    pub fn parse_names(text: &str) -> Result<Vec<SamplerKind>, SamplingError> {
        text.split(';').map(SamplerKind::by_name).collect()
    }

    /// An order from letters, as in "edskypmxt". Errors: a letter that no sampler has.
    pub fn parse_letters(text: &str) -> Result<Vec<SamplerKind>, SamplingError> {
        let of = |letter: char| {
            SamplerKind::DEFAULT_ORDER
                .into_iter()
                .find(|k| k.letter() == letter)
                .ok_or_else(|| unknown(letter.encode_utf8(&mut [0; 4]), LETTERS))
        };
        text.chars().map(of).collect()
    }
}

fn unknown(name: &str, known: &'static str) -> SamplingError {
    SamplingError::Sampler {
        name: name.chars().take(40).collect(),
        known,
    }
}

impl fmt::Display for SamplerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// llama.cpp's own default, as its help prints it.
    const NAMES: &str = "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature";

    #[test]
    fn the_default_order_is_llama_cpps() {
        let all = SamplerKind::DEFAULT_ORDER.to_vec();
        assert_eq!(SamplerKind::parse_names(NAMES).unwrap(), all);
        assert_eq!(SamplerKind::parse_letters("edskypmxt").unwrap(), all);
    }

    #[test]
    fn names_have_their_other_forms() {
        let parsed = SamplerKind::parse_names("Top-K; topnsigma;temp;nucleus;typ").unwrap();
        assert_eq!(parsed, [TopK, TopNSigma, Temperature, TopP, TypP]);
    }

    #[test]
    fn what_no_sampler_is_called_is_refused() {
        for (text, name) in [("top_k;infill", "infill"), ("", ""), ("top_k;", "")] {
            let error = SamplerKind::parse_names(text).unwrap_err().to_string();
            let words = format!("there is no sampler '{name}' here: there are penalties, dry,");
            assert!(error.starts_with(&words), "{error}");
        }
        let error = SamplerKind::parse_letters("kz").unwrap_err().to_string();
        assert!(error.starts_with("there is no sampler 'z'"), "{error}");
    }
}
