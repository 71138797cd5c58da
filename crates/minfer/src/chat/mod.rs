//! Chat templates, messages and their rendering.
//!
//! A GGUF file carries its chat template as Jinja source. [`ChatTemplate`] renders it as Hugging Face's
//! `apply_chat_template` does, within bounds (fuel, recursion), and says which bytes of the result came from
//! the caller, so that the tokenizer reads control tokens only where the template wrote them.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod begun;
mod date;
mod heard;
mod hold;
mod jinja;
mod json;
mod message;
mod reasoning;
mod template;
pub mod tools;
mod user_text;

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod heard_tests;
#[cfg(test)]
mod reasoning_tests;
#[cfg(test)]
mod tests;

pub use crate::tokenizer::Part;
pub use date::DateTime;
pub use message::{Content, FunctionCall, Message, RenderRequest, ToolCall};
pub use reasoning::{ReasoningSplitter, ReasoningTags, Said};
pub use template::{CHATML, ChatTemplate, Rendered};

/// Why a conversation could not be rendered.
#[derive(Debug, thiserror::Error)]
pub enum ChatError {
    /// The template called `raise_exception`; the message is the template's own.
    #[error("the model's chat template refuses this conversation: {0}")]
    Raised(String),
    /// The template is not valid Jinja.
    #[error(
        "the model's chat template is not valid Jinja (line {line}): {detail}; run without a template, or with another model file"
    )]
    Syntax {
        /// Line in the template, from 1.
        line: usize,
        /// What the parser says.
        detail: String,
    },
    /// The template failed while rendering.
    #[error("the model's chat template can't render this conversation (line {line}): {detail}")]
    Render {
        /// Line in the template, from 1; 0 if unknown.
        line: usize,
        /// What went wrong.
        detail: String,
    },
    /// The template used up its budget of work and memory.
    #[error(
        "the model's chat template needs more than {fuel} steps for this conversation: stopped"
    )]
    TooLong {
        /// The budget, in Jinja instructions (one also pays for 64 bytes of text).
        fuel: u64,
    },
    /// A conversation needs at least one message.
    #[error("a conversation needs at least one message")]
    NoMessages,
    /// The last message can't be gone on with.
    #[error("the last message can't be continued: {why}; end with a message of the user's")]
    Continue {
        /// Why not.
        why: &'static str,
    },
    /// A system's message that the template does not show, and no words of the user's come behind it that could begin with it.
    #[error(
        "messages[{message}]: this model's chat template shows no system message there, and no user message comes behind it that could begin with what it says: add one"
    )]
    Unheard {
        /// Its place among the messages.
        message: usize,
    },
    /// A metadata field has another type than it must have.
    #[error("{key}: {what}")]
    Metadata {
        /// The field.
        key: String,
        /// What is wrong with it.
        what: String,
    },
    /// User text holds a control token's text, and the template treats it so that the two can't be told apart.
    #[error(
        "a message holds the text of the control token {token:?}, and this model's chat template handles it in a way that does not let \
         user text be told from the template's own: remove it from the message"
    )]
    Ambiguous {
        /// The first such token.
        token: String,
    },
}
