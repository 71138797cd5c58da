//! Fields that clients of OpenAI, llama-server and vLLM know and that can't be honoured here: refused by name, so that
//! nobody believes they were.

use serde_json::{Value, json};

use crate::ApiError;
use crate::fields::{Fields, Idle};

/// Who asks, in the clients' own words: nothing here depends on it.
pub const USER: [(&str, Idle); 1] = [("user", Idle::Text)];

/// Fields of chat completions that ask for nothing which is done here: accounts, places and prices of OpenAI's service, and guesses at the answer.
pub const IDLE: [(&str, Idle); 9] = [
    ("user", Idle::Text),
    ("safety_identifier", Idle::Text),
    ("metadata", Idle::Texts),
    ("store", Idle::Flag),
    ("service_tier", Idle::Text),
    ("prompt_cache_key", Idle::Text),
    ("prompt_cache_options", Idle::Object),
    ("prompt_cache_retention", Idle::Text),
    ("prediction", Idle::Object),
];

/// Those of responses; there `user` and `metadata` are repeated in the answer.
pub const OF_RESPONSES: [(&str, Idle); 6] = [
    ("safety_identifier", Idle::Text),
    ("store", Idle::Flag), // asked for or not: nothing is kept, and the response says so
    ("service_tier", Idle::Text),
    ("prompt_cache_key", Idle::Text),
    ("prompt_cache_options", Idle::Object),
    ("prompt_cache_retention", Idle::Text),
];

/// What is refused, unless it has a value that asks for nothing; and the way out.
fn refused() -> [(&'static str, Value, &'static str); 26] {
    const SCHEMA: &str = "is another server's name: use response_format or grammar";
    const SERVICE: &str = "needs a service that this server has not";
    const TEMPLATE: &str =
        "a template from a request is not rendered: use the model's own, or /v1/completions";
    const PENALTY: &str = "is not supported: use logit_bias or ignore_eos";
    [
        ("audio", Value::Null, "this server answers with text only"),
        (
            "modalities",
            json!(["text"]),
            "this server answers with text only",
        ),
        ("web_search_options", Value::Null, SERVICE),
        ("moderation", Value::Null, SERVICE),
        (
            "verbosity",
            json!("medium"),
            "how much is said is the model's to decide: ask for it in words",
        ),
        ("regex", json!(""), SCHEMA),
        ("guided_json", Value::Null, SCHEMA),
        ("guided_regex", Value::Null, SCHEMA),
        ("guided_choice", Value::Null, SCHEMA),
        ("guided_grammar", Value::Null, SCHEMA),
        ("structured_outputs", Value::Null, SCHEMA),
        (
            "n_probs",
            json!(0),
            "is for /completion: use logprobs and top_logprobs",
        ),
        ("id_slot", json!(-1), "sequences have no fixed places here"),
        ("lora", json!([]), "LoRA adapters are not supported yet"),
        ("chat_template", json!(""), TEMPLATE),
        ("min_tokens", json!(0), PENALTY),
        ("stop_token_ids", json!([]), "is not supported: use stop"),
        ("bad_words", json!([]), PENALTY),
        ("allowed_token_ids", json!([]), PENALTY),
        (
            "truncate_prompt_tokens",
            json!(-1),
            "a prompt is never cut: shorten the messages",
        ),
        (
            "prompt_logprobs",
            Value::Null,
            "is not supported here: use echo and logprobs of /v1/completions",
        ),
        (
            "include_stop_str_in_output",
            json!(false),
            "is not supported",
        ),
        ("use_beam_search", json!(false), "is not supported: use n"),
        (
            "length_penalty",
            json!(1.0),
            "is for beam search, which is not supported",
        ),
        (
            "post_sampling_probs",
            json!(false),
            "log-probabilities are the model's, before sampling",
        ),
        (
            "t_max_predict_ms",
            json!(0),
            "answers are limited by max_tokens and stop here, not by time",
        ),
    ]
}

/// Refuses them.
///
/// # Errors
/// One of them is there.
pub fn refuse(f: &mut Fields) -> Result<(), ApiError> {
    refused()
        .into_iter()
        .try_for_each(|(name, harmless, why)| f.refuse(name, &[harmless], why))
}
