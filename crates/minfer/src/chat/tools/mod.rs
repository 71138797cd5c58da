//! Tool calls in a model's answer: which format a template teaches, calls read as they come, grammars that allow nothing else.
//!
//! A server asks [`ToolFormat::of_template`] once a model, feeds the answer's content (without reasoning, see
//! [`super::ReasoningSplitter`]) to a [`ToolParser`], and limits it by [`ToolFormat::grammar`]. All of it is text: where a vocabulary holds one
//! of [`ToolFormat::markers`] as a control token, who decodes the answer must show that token's text.

mod grammar;
mod json;
mod literal;
mod notation;
mod parser;
pub(crate) mod plain;
mod schema;
mod tags;
mod teach;
pub(crate) mod vacuous;

#[cfg(test)]
mod any_text_tests;
#[cfg(test)]
mod cut_tests;
#[cfg(test)]
mod tests;

use serde_json::Value;

pub(in crate::chat) use grammar::first_token;
pub use grammar::{ToolChoice, ToolRules, json_after_reasoning};
pub use parser::ToolParser;
pub(super) use teach::{Shows, joined, taught};

/// A tool on offer.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// JSON schema of its arguments, an object; null: it takes none.
    pub parameters: Value,
    /// Its calls must follow the schema, whatever the request's choice.
    pub strict: bool,
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolDelta {
    /// Text that is no call.
    Content(String),
    /// A call begins; the tool is one of those on offer.
    Start {
        /// Which call of the answer, from 0.
        index: usize,
        /// The tool's name.
        name: String,
    },
    /// The next piece of a call's arguments; joined, the pieces are a JSON object.
    Arguments {
        /// Which call.
        index: usize,
        /// The piece.
        piece: String,
    },
    /// A call is complete. Without it, the call was cut or went wrong after its first pieces were told.
    End {
        /// Which call.
        index: usize,
    },
}

/// Why calls can't be constrained.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// A choice without tools.
    #[error("tool_choice asks for a call, but there are no tools: offer one, or ask for none")]
    NoTools,
    /// A choice of a tool that is not on offer.
    #[error("tool_choice names {0:?}, which is not one of the tools")]
    Unknown(String),
    /// A schema that is no object.
    #[error("tool {tool:?}: its parameters must be a JSON schema of an object")]
    Parameters {
        /// The tool.
        tool: String,
    },
    /// A schema for answers that call nothing, which allows what reads as a call, beside tools whose calls must be held.
    #[error(
        "a schema for the answer that allows the keys \"name\" and \"{0}\" can't be used together with strict tools here: this model's calls are JSON without a \
         marker, and one that does not follow its tool's schema could not be told from the answer; give a schema with \"additionalProperties\": false, require a call, or leave strict out"
    )]
    Answer(&'static str),
    /// A schema whose values are too many to be written one by one.
    #[error(
        "tool {tool:?}: its parameters are too many, or refer to themselves too often, for this model's format of calls"
    )]
    Size {
        /// The tool.
        tool: String,
    },
    /// A reference in a schema that would have too much copied.
    #[error("{0}")]
    References(String),
    /// A strict schema that this format's calls can't be held to.
    #[error(
        "tool {tool:?}: {keyword} at {at} can't be enforced in this model's format of calls: remove it, or strict"
    )]
    Strict {
        /// The tool.
        tool: String,
        /// The keyword.
        keyword: String,
        /// The property, by its path.
        at: String,
    },
}

/// How a model writes its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolFormat {
    /// `<tool_call>{"name": …, "arguments": {…}}</tool_call>`: Hermes, Qwen 2.5 and 3, Granite 4. Small ones, Qwen2.5-Coder before all, leave the
    /// tags out or write a fence instead: so also as [`ToolFormat::Json`], where it begins the answer.
    Hermes,
    /// `<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`: Qwen3-Coder, Qwen 3.5, Nemotron 3, Seed-OSS; also
    /// `<function=NAME>{…}</function>`, Llama 3.1's custom tools.
    QwenCoder,
    /// `{"name": …, "parameters": {…}}`, the whole answer, or after `<|python_tag|>`.
    Llama3,
    /// `[TOOL_CALLS][{"name": …, "arguments": {…}}, …]`: Mistral up to 2024.
    Mistral,
    /// `[TOOL_CALLS]NAME[ARGS]{…}` for each call: Mistral since 2025.
    MistralArgs,
    /// `<|tool_call>call:NAME{key:<|"|>text<|"|>,n:3}<tool_call|>`: Gemma 4.
    Gemma,
    /// `<start_function_call>call:NAME{key:<escape>text<escape>}<end_function_call>`: FunctionGemma.
    FunctionGemma,
    /// `[NAME(key="text", n=3)]` or JSON as [`ToolFormat::Json`], bare or in a fence: what Gemma 2 and 3 are told to write; within `<|tool_call_start|>`: LFM2.
    Python,
    /// `{"name": …, "arguments" or "parameters": {…}}` or a list of them, the whole answer, bare, in a fence, or in the tags of [`ToolFormat::markers`].
    Json,
}

/// A marker that opens calls.
struct Opener {
    text: &'static str,
    /// What may stand after the last call.
    close: &'static str,
    /// It is a call's beginning itself.
    naked: bool,
}

const fn tag(text: &'static str, close: &'static str) -> Opener {
    Opener {
        text,
        close,
        naked: false,
    }
}

const HERMES: &[Opener] = &[tag("<tool_call>", "</tool_call>")];
const QWEN_CODER: &[Opener] = &[
    tag("<tool_call>", "</tool_call>"),
    tag("<seed:tool_call>", "</seed:tool_call>"),
    Opener {
        text: "<function=",
        close: "",
        naked: true,
    },
];
const LLAMA3: &[Opener] = &[tag("<|python_tag|>", "")];
const MISTRAL: &[Opener] = &[tag("[TOOL_CALLS]", "")];
const GEMMA: &[Opener] = &[tag("<|tool_call>", "<tool_call|>")];
const FUNCTION_GEMMA: &[Opener] = &[tag("<start_function_call>", "<end_function_call>")];
const PYTHON: &[Opener] = &[tag("<|tool_call_start|>", "<|tool_call_end|>")];
const JSON: &[Opener] = &[
    tag("<tool_calls>", "</tool_calls>"),
    tag("<TOOLCALL>", "</TOOLCALL>"),
    tag("<tool_call>", "</tool_call>"),
    tag("<|tool_call|>", ""),
];

/// Code fences that may stand around bare calls.
const FENCES: [&str; 5] = [
    "```json",
    "```tool_code",
    "```tool_call",
    "```python",
    "```",
];

impl ToolFormat {
    /// The format that a chat template's source (Jinja) shows to the model. A template that shows none of the known formats gets
    /// [`ToolFormat::Json`]: nothing is guessed.
    pub fn of_template(source: &str) -> ToolFormat {
        let has = |text: &str| source.contains(text);
        // Llama 3's own words, not those of models that were made from it.
        let llama = "Respond in the format {\"name\": function name, \"parameters\":";
        match () {
            () if has("<function=") => ToolFormat::QwenCoder,
            // Other things in the same tags: GLM's keys and values, MiniMax's own, lists.
            () if has("<arg_key>") || has("<invoke") || has("<tool_calls>") => ToolFormat::Json,
            () if has("<tool_call>") => ToolFormat::Hermes,
            () if has("[TOOL_CALLS]") && has("[ARGS]") => ToolFormat::MistralArgs,
            () if has("[TOOL_CALLS]") => ToolFormat::Mistral,
            () if has("<|tool_call>call:") => ToolFormat::Gemma,
            () if has("<start_function_call>call:") => ToolFormat::FunctionGemma,
            () if has("<|tool_call_start|>") || has("<|tool_list_start|>") => ToolFormat::Python,
            () if has("<|python_tag|>") || has(llama) => ToolFormat::Llama3,
            () if has("<start_of_turn>") => ToolFormat::Python,
            () => ToolFormat::Json,
        }
    }

    /// The texts that set calls apart. In some vocabularies they are control tokens, which a decoder hides unless told otherwise.
    pub fn markers(self) -> Vec<&'static str> {
        let inner: &[&str] = match self {
            ToolFormat::Mistral | ToolFormat::MistralArgs => &["[ARGS]", "[CALL_ID]"],
            ToolFormat::Gemma => &["<|\"|>"],
            ToolFormat::FunctionGemma => &["<escape>"],
            _ => &[],
        };
        let openers = self.openers().iter();
        let all = openers
            .flat_map(|o| [o.text, o.close])
            .chain(inner.iter().copied());
        all.filter(|t| !t.is_empty()).collect()
    }

    fn openers(self) -> &'static [Opener] {
        match self {
            ToolFormat::Hermes => HERMES,
            ToolFormat::QwenCoder => QWEN_CODER,
            ToolFormat::Llama3 => LLAMA3,
            ToolFormat::Mistral | ToolFormat::MistralArgs => MISTRAL,
            ToolFormat::Gemma => GEMMA,
            ToolFormat::FunctionGemma => FUNCTION_GEMMA,
            ToolFormat::Python => PYTHON,
            ToolFormat::Json => JSON,
        }
    }

    /// The key of a call's arguments, where calls are JSON with names for their parts.
    fn key(self) -> &'static str {
        match self {
            ToolFormat::Llama3 | ToolFormat::Python => "parameters",
            _ => "arguments",
        }
    }

    /// Whether an answer that begins like a call is one, without a marker.
    fn bare(self) -> bool {
        matches!(
            self,
            ToolFormat::Hermes | ToolFormat::Llama3 | ToolFormat::Python | ToolFormat::Json
        )
    }
}
