//! Names that other surfaces have for what a field says, and misspelled ones. An unknown field is ignored, as other servers do: their clients send each
//! some of their own. One that was meant to change the answer is not, or the client believes that it did.

use serde_json::Value;

use super::Fields;
use crate::ApiError;

/// Something that changes an answer, under each name that one of the surfaces has for it.
struct Meaning {
    names: &'static [&'static str],
    /// Numbers that ask for nothing.
    numbers: &'static [f64],
    /// Words that do, also as an object's `type`.
    words: &'static [&'static str],
}

/// No value of these asks for nothing, but an empty one.
const fn of(names: &'static [&'static str]) -> Meaning {
    but(names, &[])
}

/// The same, but these numbers.
const fn but(names: &'static [&'static str], numbers: &'static [f64]) -> Meaning {
    let words = &[];
    Meaning {
        names,
        numbers,
        words,
    }
}

/// The same, but these words.
const fn unless(names: &'static [&'static str], words: &'static [&'static str]) -> Meaning {
    let numbers = &[];
    Meaning {
        names,
        numbers,
        words,
    }
}

/// All of them. A surface's own name is found by its being asked for, the first of several.
const MEANINGS: &[Meaning] = &[
    but(
        &[
            "max_tokens",
            "max_completion_tokens",
            "max_output_tokens",
            "n_predict",
            "num_predict",
        ],
        &[-1.0],
    ),
    of(&["stop", "stop_sequences"]),
    of(&["temperature"]),
    but(&["top_p"], &[1.0]),
    but(&["top_k"], &[0.0, -1.0]),
    but(&["min_p"], &[0.0]),
    but(&["typical_p"], &[1.0]),
    but(&["top_n_sigma"], &[0.0, -1.0]),
    but(&["xtc_probability"], &[0.0]),
    of(&["xtc_threshold"]),
    but(&["frequency_penalty"], &[0.0]),
    but(&["presence_penalty"], &[0.0]),
    but(&["repeat_penalty", "repetition_penalty"], &[1.0]),
    of(&["repeat_last_n"]),
    but(&["dry_multiplier"], &[0.0]),
    of(&["dry_base"]),
    of(&["dry_allowed_length"]),
    of(&["dry_penalty_last_n"]),
    of(&["dry_sequence_breakers"]),
    but(&["dynatemp_range"], &[0.0]),
    of(&["dynatemp_exponent"]),
    but(&["mirostat"], &[0.0]),
    of(&["mirostat_tau"]),
    of(&["mirostat_eta"]),
    of(&["samplers"]),
    of(&["logit_bias"]),
    but(&["seed"], &[-1.0]),
    unless(&["ignore_eos"], &["false"]),
    but(&["n", "n_cmpl"], &[1.0]),
    but(&["best_of"], &[1.0]),
    unless(
        &[
            "response_format",
            "json_schema",
            "grammar",
            "format",
            "output_format",
        ],
        &["text"],
    ),
    of(&[
        "guided_json",
        "guided_regex",
        "guided_choice",
        "guided_grammar",
    ]),
    of(&["tools"]),
    unless(&["tool_choice"], &["auto", "none"]),
    unless(&["parallel_tool_calls"], &["true"]),
    of(&["system", "instructions"]),
    of(&["reasoning_effort", "reasoning"]),
    of(&["thinking", "think", "enable_thinking"]),
    but(
        &[
            "reasoning_budget",
            "thinking_budget_tokens",
            "thinking_token_budget",
        ],
        &[-1.0],
    ),
    of(&["chat_template_kwargs"]),
    of(&["suffix"]),
    of(&["num_ctx"]),
];

/// The shortest name of which another is taken for a misspelling: of shorter ones too many have a meaning of their own (`top_a` beside `top_k`).
const LONG: usize = 6;
/// Unknown fields that are looked at for misspelled names: no client has more of them, and looking takes its time.
const MISSPELLED: usize = 100;
/// The longest name that can be one of ours, misspelled.
const LONGEST: usize = 64;

/// Each name, and what it stands for.
fn names() -> impl Iterator<Item = (&'static Meaning, &'static str)> {
    let of = |m: &'static Meaning| m.names.iter().map(move |name| (m, *name));
    MEANINGS.iter().flat_map(of)
}

impl Meaning {
    /// Whether a value leaves all as it is.
    fn is_nothing(&self, value: &Value) -> bool {
        let word = |w: &str| self.words.contains(&w);
        match value {
            Value::Null => true,
            Value::Bool(flag) => word(if *flag { "true" } else { "false" }),
            Value::Number(n) => n.as_f64().is_some_and(|n| self.numbers.contains(&n)),
            Value::String(text) => text.is_empty() || word(text),
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => {
                let ty = map.get("type").and_then(Value::as_str);
                map.is_empty() || ty.is_some_and(word)
            }
        }
    }
}

/// Where an endpoint has what others say in a field: a name of that, and words for the place.
pub type Elsewhere = [(&'static str, &'static str)];

impl Fields {
    /// What was not taken is unknown. A name that another surface has for something that changes the answer is refused, and so is one that differs by a letter, by
    /// its underscores or capitals from what is known here; the rest is ignored, and listed at debug level. `places`: what stands elsewhere than at
    /// its own name.
    ///
    /// # Errors
    /// There is such a name; the error says where the thing belongs.
    pub fn close(self, what: &str, places: &Elsewhere) -> Result<(), ApiError> {
        for (meaning, name) in names() {
            let value = self.map.get(name);
            if value.is_none_or(|v| meaning.is_nothing(v)) {
                continue;
            }
            let why = match self.place(meaning, name, places) {
                Some(place) => format!("is another surface's name: here it is {place}"),
                // How long a context is changes no answer that there is.
                None if name == "num_ctx" => continue,
                None => "is another surface's, and there is nothing like it here: leave it out, or use an endpoint that has it".to_owned(),
            };
            return Err(ApiError::field(name, why));
        }
        let unknown = self.map.iter();
        let unknown = unknown.filter(|(name, value)| name.len() <= LONGEST && !value.is_null());
        let unknown = unknown.filter(|(name, _)| names().all(|(_, known)| known != *name));
        for (name, _) in unknown.take(MISSPELLED) {
            if let Some(place) = self.meant(name, places) {
                let why = format!("there is no such field: did you mean {place}?");
                return Err(ApiError::field(name, why));
            }
        }
        self.finish(what);
        Ok(())
    }

    /// Where a thing is said here.
    fn place(&self, meaning: &Meaning, name: &str, places: &Elsewhere) -> Option<String> {
        let elsewhere = places.iter().find(|(n, _)| meaning.names.contains(n));
        let elsewhere = elsewhere.map(|(_, place)| (*place).to_owned());
        let mut names = [name].into_iter().chain(meaning.names.iter().copied());
        let own = names.find(|n| self.asked.contains(n));
        let within = |(outer, inner): &(&str, Vec<&str>)| {
            let found = inner.iter().find(|n| meaning.names.contains(n));
            found.map(|inner| format!("{outer}.{inner}"))
        };
        elsewhere
            .or_else(|| own.map(str::to_owned))
            .or_else(|| self.within.iter().find_map(within))
    }

    /// What a name that nobody knows may have been meant to be.
    fn meant(&self, name: &str, places: &Elsewhere) -> Option<String> {
        let mut near = names().filter(|(_, known)| is_near(name, known));
        near.find_map(|(meaning, known)| self.place(meaning, known, places))
    }
}

/// Whether a name is another, written otherwise.
fn is_near(name: &str, known: &str) -> bool {
    let plain = |name: &str| -> String {
        let letters = name.chars().filter(char::is_ascii_alphanumeric);
        letters.map(|c| c.to_ascii_lowercase()).collect()
    };
    known.len() > 1 && plain(name) == plain(known)
        || known.len() >= LONG && is_one_off(name.as_bytes(), known.as_bytes())
}

/// Whether a letter is missing, too much or another, or two have changed places.
fn is_one_off(mut a: &[u8], mut b: &[u8]) -> bool {
    while let ([x, more_a @ ..], [y, more_b @ ..]) = (a, b)
        && x == y
    {
        (a, b) = (more_a, more_b);
    }
    while let ([more_a @ .., x], [more_b @ .., y]) = (a, b)
        && x == y
    {
        (a, b) = (more_a, more_b);
    }
    match (a, b) {
        ([_], [] | [_]) | ([], [_]) => true,
        ([p, q], [r, s]) => p == s && q == r,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_letter_is_one_off() {
        for (name, off) in [
            ("temprature", true),
            ("temperatuer", true),
            ("temperatures", true),
            ("tamperature", true),
            ("etmperature", true),
            ("temperature", false),
            ("temprture", false),
            ("temporal", false),
            ("", false),
        ] {
            let known = "temperature";
            assert_eq!(is_one_off(name.as_bytes(), known.as_bytes()), off, "{name}");
            assert_eq!(is_one_off(known.as_bytes(), name.as_bytes()), off, "{name}");
        }
    }

    #[test]
    fn what_is_near_is_known_by_its_letters() {
        for (name, known, near) in [
            ("maxTokens", "max_tokens", true),
            ("max-tokens", "max_tokens", true),
            ("Top_P", "top_p", true),
            ("topk", "top_k", true),
            ("top_a", "top_k", false),
            ("stops", "stop", false),
            ("N", "n", false),
            ("presense_penalty", "presence_penalty", true),
            ("min_tokens", "max_tokens", false),
            ("", "n", false),
            ("_", "n", false),
        ] {
            assert_eq!(is_near(name, known), near, "{name} {known}");
        }
    }

    /// What one surface takes no other may take for a misspelling of something else.
    #[test]
    fn no_name_is_near_another_thing_s() {
        for (of_a, a) in names() {
            for (of_b, b) in names() {
                assert!(std::ptr::eq(of_a, of_b) || !is_near(a, b), "{a} {b}");
            }
        }
    }
}
