//! From a conversation to a prompt, a constraint and how the answer is to be read.

mod fit;
mod limit;

use std::sync::Arc;

use minfer::chat::tools::{Tool, ToolFormat};
use minfer::chat::{Message, ReasoningTags, RenderRequest};
use minfer::engine::{Generate, Part, Reader, Reading, Request, Task};
use minfer::sampling::ConstraintSpec;
use minfer::tokenizer::Tokenizer;

use super::{Chat, Turn, held, held_by};
use crate::ApiError;
use crate::models::Loaded;
use crate::params::Params;
use crate::tools::Choice;
use fit::{Fitted, fit};
use limit::{Limits, schema_of};

/// What the engine gets, and how its answers are read.
pub struct Plan {
    /// Token ids.
    pub prompt: Vec<u32>,
    /// How to generate, and how to read what comes.
    pub params: Params,
    /// How many messages had no room.
    pub left_out: usize,
}

/// How long the prompt may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// As long as the model was loaded for.
    Held,
    /// As long as it is: it is only counted.
    Counted,
}

/// Reasoning that is to come, and whether the prompt, or the answer's given beginning, has opened it.
fn reasoning(
    tags: ReasoningTags,
    text: &str,
    begun: Option<&str>,
) -> Option<(ReasoningTags, bool)> {
    match begun {
        // What has begun to answer does not begin to reason.
        Some(begun) => Some((tags, true)).filter(|_| tags.left_open_by(begun)),
        // Where the prompt has closed the reasoning, none comes.
        None if tags.closed_by(text) => None,
        None => Some((tags, tags.opened_by(text))),
    }
}

/// Whether a beginning of the answer has said content, behind reasoning that it may hold.
///
/// # Errors
/// It ends within a call, whose rest could not be told from content.
fn speaks(
    begun: &str,
    tags: Option<ReasoningTags>,
    tools: Option<(ToolFormat, Arc<[Tool]>)>,
) -> Result<bool, ApiError> {
    let reading = Reading {
        reasoning: tags.map(|tags| (tags, false)),
        tools,
        ..Reading::default()
    };
    let mut reader = Reader::new(&reading, Vec::new());
    let mut parts = reader.push(begun);
    if reader.calls() {
        let why = "the last one ends within a call, which can't be continued: end it before the call, or leave the tools out";
        return Err(ApiError::field("messages", why));
    }
    parts.extend(reader.finish());
    Ok(parts.iter().any(|part| matches!(part, Part::Said(_))))
}

/// The answer's beginning that is given.
///
/// # Errors
/// Something holds the answer from its first character on.
fn beginning(chat: &Chat) -> Result<Option<String>, ApiError> {
    let begun = chat.turn.beginning(&chat.messages);
    let holds = held_by(chat.params.constrained_by(), chat.tools.as_ref());
    match (&begun, holds) {
        (Some(_), Some(field)) => Err(held(field, "end with a message of the user's")),
        _ => Ok(begun),
    }
}

/// Looks at a request before grammars are compiled, which takes its time; how the answer is read is not known yet.
fn check(loaded: &Loaded, prompt: &[u32], params: &Params, length: Length) -> Result<(), ApiError> {
    let plain = Generate {
        reasoning_budget: None,
        constraint: None,
        ..params.generate.clone()
    };
    let n = match length {
        Length::Held => prompt.len(),
        Length::Counted => prompt.len().min(loaded.engine.options().n_ctx),
    };
    let prompt = prompt.iter().take(n).copied().collect();
    let request = Request::new(prompt, Task::Generate(plain));
    Ok(loaded.engine.check(&request)?)
}

/// Whether a constraint is about the whole answer, reasoning or not, as a grammar of the client's own is.
fn is_about_all(spec: &ConstraintSpec) -> bool {
    matches!(spec, ConstraintSpec::Gbnf(_) | ConstraintSpec::Regex(_))
}

/// Renders a conversation, and finds out how its answer is limited and read. May block.
///
/// # Errors
/// A template that refuses the messages; a prompt that is too long; tools or a schema that the answer can't be held to, by the field.
pub fn prepare(loaded: &Loaded, chat: Chat, length: Length) -> Result<Plan, ApiError> {
    let model = loaded.engine.model();
    let begun = beginning(&chat)?;
    let Fitted {
        rendered,
        prompt,
        left_out,
    } = fit(loaded, &chat)?;
    let template = model.chat_template()?;
    let known = template.reasoning_tags();
    let tags = known.filter(|_| chat.split_reasoning);
    let (offer, mut params) = (chat.tools, chat.params);
    let format = template.tool_format();
    let tools = offer.as_ref().map(|offer| (format, offer.tools()));
    let speaks = match &begun {
        Some(begun) => speaks(begun, tags, tools.clone())?,
        None => false,
    };
    check(loaded, &prompt, &params, length)?;
    let own = params.generate.constraint.take();
    let limits = Limits {
        engine: &loaded.engine,
        reasoning: tags.and_then(|t| reasoning(t, &rendered.text, begun.as_deref())),
        shown: shown(model.tokenizer(), known, offer.as_ref().map(|_| format)),
        field: params.constraint_field.unwrap_or("grammar"),
    };
    let all = own.as_ref().is_some_and(is_about_all);
    let reading = Reading {
        reasoning: limits.reasoning.filter(|_| !all),
        whole: offer.as_ref().is_some_and(|o| o.whole),
        beside_json: own.as_ref().is_some_and(|spec| schema_of(spec).is_some())
            && offer.as_ref().is_some_and(|o| o.choice == Choice::Auto),
        begun: speaks,
        forced: offer.as_ref().is_some_and(|o| o.choice != Choice::Auto),
        tools,
    };
    params.generate.constraint = match (&offer, &reading.tools) {
        (Some(offer), Some((format, tools))) => {
            params.constraint_field = Some("tools");
            limits.of_tools(own, offer, *format, tools)?
        }
        _ => limits.of_answer(own)?,
    };
    // Where no reasoning comes, any budget is kept.
    let budget = params.generate.reasoning_budget;
    params.generate.reasoning_budget = budget.filter(|_| reading.reasoning.is_some());
    params.generate.reading = Some(reading).filter(|r| !r.is_plain());
    params.generate.shown = limits.shown;
    Ok(Plan {
        prompt,
        params,
        left_out,
    })
}

impl Turn {
    /// The messages, to be rendered to such an end.
    pub fn request(self, messages: Vec<Message>) -> RenderRequest {
        RenderRequest {
            add_generation_prompt: self == Turn::Opened,
            continue_final_message: self == Turn::Begun,
            ..RenderRequest::new(messages)
        }
    }
}

/// The control tokens that set reasoning and calls apart.
fn shown(
    tokenizer: &Tokenizer,
    tags: Option<ReasoningTags>,
    format: Option<ToolFormat>,
) -> Vec<u32> {
    let marks = tags.into_iter().flat_map(ReasoningTags::markers);
    let marks = marks.chain(format.into_iter().flat_map(ToolFormat::markers));
    let mut ids: Vec<u32> = marks.filter_map(|m| control(tokenizer, m)).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn control(tokenizer: &Tokenizer, text: &str) -> Option<u32> {
    let id = tokenizer.special_id(text)?;
    (tokenizer.is_control(id) && !tokenizer.is_eog(id)).then_some(id)
}
