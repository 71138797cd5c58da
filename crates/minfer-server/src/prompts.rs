//! Prompts that are no conversation: texts, lists of token ids, and what stands around a gap.

use minfer::tokenizer::{EncodeOptions, Tokenizer};
use serde_json::Value;

use crate::ApiError;
use crate::fields::kind;

/// The most prompts of a request; OpenAI's number for embeddings.
pub const MAX_PROMPTS: usize = 2048;

/// A prompt as it came: texts and token ids in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Token(u32),
}

/// A prompt as the model reads it.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// Token ids.
    pub ids: Vec<u32>,
    /// What `echo` says.
    pub text: String,
    /// Whether the first id is a beginning-of-text token that the text does not hold.
    pub added_bos: bool,
}

/// The prompts of a field: a text, a list of texts, token ids, lists of token ids. Nothing is one empty text.
///
/// # Errors
/// What is none of these, a list of texts and ids, or a token id of `n_vocab` or more, by its name and place.
pub fn parse(name: &str, value: Option<Value>, n_vocab: usize) -> Result<Vec<Prompt>, ApiError> {
    let prompts = parse_mixed(name, value, n_vocab)?;
    match prompts.iter().position(Prompt::is_mixed) {
        None => Ok(prompts),
        Some(i) => {
            let name = match prompts.len() {
                1 => name.to_owned(),
                _ => format!("{name}[{i}]"),
            };
            let why = "holds texts and token ids: one list is either several texts or the ids of one (/completion takes both)";
            Err(ApiError::field(&name, why))
        }
    }
}

/// The same, and llama-server's lists of both, which are one prompt.
///
/// # Errors
/// As [`parse`], but for those.
pub fn parse_mixed(
    name: &str,
    value: Option<Value>,
    n_vocab: usize,
) -> Result<Vec<Prompt>, ApiError> {
    let list = match value {
        None => return Ok(vec![Prompt(vec![Part::Text(String::new())])]),
        Some(Value::Array(list)) => list,
        Some(one) => return Ok(vec![prompt(name, one, n_vocab)?]),
    };
    if list.is_empty() {
        return Err(ApiError::field(name, "is an empty list"));
    }
    // Numbers make the list one prompt; texts or lists alone make it several.
    if list.iter().any(Value::is_number) && !list.iter().any(Value::is_array) {
        return Ok(vec![prompt(name, Value::Array(list), n_vocab)?]);
    }
    if list.len() > MAX_PROMPTS {
        let why = format!("has {} prompts, {MAX_PROMPTS} are the most", list.len());
        return Err(ApiError::field(name, why));
    }
    let prompts = list.into_iter().enumerate();
    prompts
        .map(|(i, value)| prompt(&format!("{name}[{i}]"), value, n_vocab))
        .collect()
}

fn prompt(name: &str, value: Value, n_vocab: usize) -> Result<Prompt, ApiError> {
    match value {
        Value::String(text) => Ok(Prompt(vec![Part::Text(text)])),
        Value::Array(parts) if parts.is_empty() => Err(ApiError::field(name, "is an empty list")),
        Value::Array(parts) => {
            let parts = parts.into_iter().map(|p| part(name, p, n_vocab));
            Ok(Prompt(parts.collect::<Result<_, _>>()?))
        }
        other => {
            let why = format!("must be a text or token ids, not {}", kind(&other));
            Err(ApiError::field(name, why))
        }
    }
}

fn part(name: &str, value: Value, n_vocab: usize) -> Result<Part, ApiError> {
    let wrong = |what: String| ApiError::field(name, format!("{what} is no token id"));
    match value {
        Value::String(text) => Ok(Part::Text(text)),
        Value::Number(n) => {
            let id = n.as_u64().and_then(|n| u32::try_from(n).ok());
            let id = id.ok_or_else(|| wrong(n.to_string()))?;
            match (id as usize) < n_vocab {
                true => Ok(Part::Token(id)),
                false => {
                    let why = format!("token id {id} is not in the vocabulary of {n_vocab}");
                    Err(ApiError::field(name, why))
                }
            }
        }
        other => Err(wrong(kind(&other).to_owned())),
    }
}

impl Prompt {
    /// Whether it holds nothing at all.
    pub fn is_empty(&self) -> bool {
        self.0
            .iter()
            .all(|p| matches!(p, Part::Text(t) if t.is_empty()))
    }

    /// The ids of its parts in their order, with nothing around them.
    pub fn parts(&self, tokenizer: &Tokenizer, options: EncodeOptions) -> Vec<u32> {
        let ids = self.0.iter().map(|part| match part {
            Part::Token(id) => vec![*id],
            Part::Text(text) => tokenizer.encode(text, options),
        });
        ids.flatten().collect()
    }

    /// Whether it holds texts and ids.
    fn is_mixed(&self) -> bool {
        let is_text = |p: &Part| matches!(p, Part::Text(_));
        self.0.iter().any(is_text) && !self.0.iter().all(is_text)
    }

    /// For the model. What begins with a text gets the tokens that the model's file wants around texts; `special`: a
    /// text may name control tokens, as raw prompts do.
    pub fn encode(&self, tokenizer: &Tokenizer, special: bool) -> Encoded {
        let (mut ids, mut text) = (Vec::new(), String::new());
        for (i, part) in self.0.iter().enumerate() {
            match part {
                Part::Token(id) => {
                    ids.push(*id);
                    text.push_str(&tokenizer.decode(&[*id], true));
                }
                Part::Text(t) => {
                    let options = EncodeOptions {
                        add_special: i == 0,
                        parse_special: special,
                    };
                    ids.extend(tokenizer.encode(t, options));
                    text.push_str(t);
                }
            }
        }
        if self.0.iter().all(|p| matches!(p, Part::Token(_))) {
            // Characters may be spread over tokens.
            text = tokenizer.decode(&ids, true);
        }
        let bos = tokenizer
            .bos()
            .filter(|bos| ids.first() == Some(bos))
            .filter(|_| matches!(self.0.first(), Some(Part::Text(_))));
        let written = bos.and_then(|bos| tokenizer.token_text(bos));
        Encoded {
            added_bos: bos.is_some() && !written.is_some_and(|w| text.starts_with(w)),
            ids,
            text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_are_several_prompts_unless_they_hold_numbers() {
        let count = |v: Value| parse_mixed("prompt", Some(v), 1000).unwrap().len();
        assert_eq!(count(json!("a")), 1);
        assert_eq!(count(json!(["a", "b"])), 2);
        assert_eq!(count(json!([1, 2, 3])), 1);
        assert_eq!(count(json!([[1, 2], [3]])), 2);
        assert_eq!(count(json!([1, "a", 2])), 1);
        assert_eq!(count(json!([[1, "a"], "b", [2]])), 3);
    }

    #[test]
    fn a_list_of_texts_and_ids_is_no_prompt_for_openai() {
        for (value, param) in [
            (json!([1, "a", 2]), "prompt"),
            (json!(["a", 1]), "prompt"),
            (json!(["b", [1, "a"]]), "prompt[1]"),
        ] {
            let e = parse("prompt", Some(value), 1000).unwrap_err();
            assert_eq!(e.param.as_deref(), Some(param), "{}", e.message);
            assert!(e.message.contains("texts and token ids"), "{}", e.message);
        }
        assert_eq!(
            parse("prompt", Some(json!(["b", [1]])), 1000)
                .unwrap()
                .len(),
            2
        );
    }

    #[test]
    fn what_is_no_prompt_is_named_by_its_place() {
        for (value, param, says) in [
            (json!(7), "prompt", "not a number"),
            (json!([]), "prompt", "empty"),
            (json!([1, -2]), "prompt", "-2 is no token id"),
            (json!([1, 2.5]), "prompt", "2.5 is no token id"),
            (
                json!([999, 1000]),
                "prompt",
                "token id 1000 is not in the vocabulary of 1000",
            ),
            (json!(["a", {"b": 1}]), "prompt[1]", "not an object"),
            (json!([[1], [[2]]]), "prompt[1]", "a list is no token id"),
            (json!([[1], []]), "prompt[1]", "empty"),
            (json!(vec!["a"; 2049]), "prompt", "2049"),
        ] {
            let e = parse("prompt", Some(value), 1000).unwrap_err();
            assert_eq!(e.param.as_deref(), Some(param), "{}", e.message);
            assert!(e.message.contains(says), "{}", e.message);
        }
    }
}
