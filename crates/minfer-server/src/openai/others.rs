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

/// A field that is refused, unless it has one of these values, which ask for nothing; and the way out.
type Refused = (&'static str, Vec<Value>, &'static str);

/// Those that only chat completions have.
fn of_chat() -> [Refused; 9] {
    const SERVICE: &str = "needs a service that this server has not";
    const TEMPLATE: &str =
        "a template from a request is not rendered: use the model's own, or /v1/completions";
    [
        ("audio", vec![], "this server answers with text only"),
        (
            "modalities",
            vec![json!(["text"])],
            "this server answers with text only",
        ),
        ("web_search_options", vec![], SERVICE),
        ("moderation", vec![], SERVICE),
        (
            "verbosity",
            vec![json!("medium")],
            "how much is said is the model's to decide: ask for it in words",
        ),
        ("chat_template", vec![json!("")], TEMPLATE),
        (
            "n_probs",
            vec![json!(0)],
            "is for /completion: use logprobs and top_logprobs",
        ),
        (
            "truncate_prompt_tokens",
            vec![json!(-1)],
            "a prompt is never cut: shorten the messages",
        ),
        (
            "prompt_logprobs",
            vec![],
            "is not supported here: use echo and logprobs of /v1/completions",
        ),
    ]
}

/// Those that have another way out where a text is completed.
fn of_text() -> [Refused; 4] {
    [
        (
            "n_probs",
            vec![json!(0)],
            "is for /completion: use logprobs",
        ),
        (
            "truncate_prompt_tokens",
            vec![json!(-1)],
            "a prompt is never cut: shorten it",
        ),
        (
            "prompt_logprobs",
            vec![],
            "is another server's name: use echo and logprobs",
        ),
        (
            "add_special_tokens",
            vec![json!(true)],
            "a text gets the control tokens that its model expects: give token ids for others",
        ),
    ]
}

/// Those of everything that is generated.
fn of_both() -> [Refused; 17] {
    const SCHEMA: &str = "is another server's name: use response_format or grammar";
    const PENALTY: &str = "is not supported: use logit_bias or ignore_eos";
    [
        ("regex", vec![json!("")], SCHEMA),
        ("guided_json", vec![], SCHEMA),
        ("guided_regex", vec![json!("")], SCHEMA),
        ("guided_choice", vec![json!([])], SCHEMA),
        ("guided_grammar", vec![json!("")], SCHEMA),
        ("structured_outputs", vec![], SCHEMA),
        (
            "id_slot",
            vec![json!(-1)],
            "sequences have no fixed places here",
        ),
        (
            "lora",
            vec![json!([])],
            "LoRA adapters are not supported yet",
        ),
        ("min_tokens", vec![json!(0)], PENALTY),
        (
            "stop_token_ids",
            vec![json!([])],
            "is not supported: use stop",
        ),
        ("bad_words", vec![json!([])], PENALTY),
        ("allowed_token_ids", vec![json!([])], PENALTY),
        (
            "include_stop_str_in_output",
            vec![json!(false)],
            "is not supported",
        ),
        (
            "use_beam_search",
            vec![json!(false)],
            "is not supported: use n",
        ),
        (
            "length_penalty",
            vec![json!(1.0)],
            "is for beam search, which is not supported",
        ),
        (
            "post_sampling_probs",
            vec![json!(false)],
            "log-probabilities are the model's, before sampling",
        ),
        (
            "t_max_predict_ms",
            vec![json!(0), json!(-1)],
            "answers are limited by max_tokens and stop here, not by time",
        ),
    ]
}

/// Those of chat completions.
///
/// # Errors
/// One of them is there.
pub fn refuse_in_chat(f: &mut Fields) -> Result<(), ApiError> {
    refuse(f, of_chat().into_iter().chain(of_both()))
}

/// Those of completions.
///
/// # Errors
/// One of them is there.
pub fn refuse_in_text(f: &mut Fields) -> Result<(), ApiError> {
    refuse(f, of_text().into_iter().chain(of_both()))
}

/// Those of embeddings: llama-server's and vLLM's ways to make others.
///
/// # Errors
/// One of them is there.
pub fn refuse_in_embeddings(f: &mut Fields) -> Result<(), ApiError> {
    const LENGTH: &str = "vectors have length 1 here: /embedding makes others";
    let all = [
        (
            "truncate_prompt_tokens",
            vec![json!(-1)],
            "a text is never cut: shorten it",
        ),
        ("embd_normalize", vec![json!(2)], LENGTH),
        ("normalize", vec![json!(true)], LENGTH),
    ];
    refuse(f, all)
}

fn refuse(f: &mut Fields, all: impl IntoIterator<Item = Refused>) -> Result<(), ApiError> {
    all.into_iter()
        .try_for_each(|(name, neutral, why)| f.refuse(name, &neutral, why))
}
