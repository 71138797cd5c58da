//! From a conversation to a prompt, a constraint and how the answer is to be read.

use minfer::chat::tools::{ToolError, ToolFormat, ToolRules, json_after_reasoning};
use minfer::chat::{Message, ReasoningTags, RenderRequest, Rendered};
use minfer::engine::{Generate, Model, Part, Reader, Reading, Request, Task};
use minfer::sampling::ConstraintSpec;
use minfer::tokenizer::Tokenizer;
use serde_json::{Value, json};

use super::{Chat, Turn, held, held_by};
use crate::ApiError;
use crate::models::Loaded;
use crate::params::Params;
use crate::tools::{Choice, Offer};

/// The most bytes of the schemas that one answer's calls are held to: more no grammar may have.
const MAX_SCHEMAS: usize = 1 << 18;

/// What the engine gets, and how its answers are read.
pub struct Plan {
    /// Token ids.
    pub prompt: Vec<u32>,
    /// How to generate, and how to read what comes.
    pub params: Params,
}

/// A conversation as the model reads it. May block.
///
/// # Errors
/// A template that refuses the messages.
pub fn prompt(loaded: &Loaded, chat: &Chat) -> Result<Vec<u32>, ApiError> {
    let model = loaded.engine.model();
    Ok(model.encode_rendered(&render(model, chat)?))
}

fn render(model: &Model, chat: &Chat) -> Result<Rendered, ApiError> {
    let request = RenderRequest {
        extra: chat.template_kwargs.clone(),
        tools: chat.tools.as_ref().map(|t| t.shown.clone()),
        ..chat.turn.request(chat.messages.clone())
    };
    let template = model.chat_template()?;
    let rendered = template.render(&template.taught(request));
    Ok(rendered.map_err(minfer::Error::from)?)
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
    format: ToolFormat,
    tools: Option<&Offer>,
) -> Result<bool, ApiError> {
    let reading = Reading {
        reasoning: tags.map(|tags| (tags, false)),
        tools: tools.map(|t| (format, t.tools.clone().into())),
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

/// Renders a conversation, and finds out how its answer is limited and read. May block.
///
/// # Errors
/// A template that refuses the messages; tools or a schema that the answer can't be held to, by the field.
pub fn plan(loaded: &Loaded, chat: Chat) -> Result<Plan, ApiError> {
    let model = loaded.engine.model();
    let begun = chat.turn.beginning(&chat.messages);
    let holds = held_by(chat.params.constrained_by(), chat.tools.as_ref());
    if let (Some(_), Some(field)) = (&begun, holds) {
        return Err(held(field, "end with a message of the user's"));
    }
    let begun = begun.as_deref();
    let rendered = render(model, &chat)?;
    let tools = chat.tools;
    let prompt = model.encode_rendered(&rendered);
    let template = model.chat_template()?;
    let known = template.reasoning_tags();
    let tags = known.filter(|_| chat.split_reasoning);
    let text = rendered.text.as_str();
    let mut params = chat.params;
    let format = template.tool_format();
    let grammar = Grammar {
        tokenizer: model.tokenizer(),
        format,
        reasoning: tags.and_then(|t| reasoning(t, text, begun)),
        shown: shown(model.tokenizer(), known, tools.as_ref().map(|_| format)),
    };
    let own = params.generate.constraint.take();
    let speaks = match begun {
        Some(begun) => speaks(begun, tags, format, tools.as_ref())?,
        None => false,
    };
    // Before grammars are compiled, which takes its time; how the answer is read is not known yet.
    let plain = Generate {
        reasoning_budget: None,
        ..params.generate.clone()
    };
    let request = Request::new(prompt.clone(), Task::Generate(plain));
    loaded.engine.check(&request)?;
    let beside_json = own.as_ref().is_some_and(|spec| schema_of(spec).is_some())
        && tools.as_ref().is_some_and(|t| t.choice == Choice::Auto);
    // A grammar of the client's own is about the whole answer, reasoning or not.
    let whole = matches!(
        &own,
        Some(ConstraintSpec::Gbnf(_) | ConstraintSpec::Regex(_))
    );
    params.generate.constraint = match &tools {
        Some(offer) => {
            let grammar = grammar.of_tools(loaded, offer, own, &params)?;
            params.constraint_field = Some("tools");
            grammar
        }
        None => grammar.of_answer(loaded, own, &params)?,
    };
    let reading = Reading {
        reasoning: grammar.reasoning.filter(|_| !whole),
        whole: tools.as_ref().is_some_and(|t| t.whole),
        tools: tools.map(|t| (grammar.format, t.tools.into())),
        beside_json,
        begun: speaks,
    };
    // Where no reasoning comes, any budget is kept.
    let budget = params.generate.reasoning_budget;
    params.generate.reasoning_budget = budget.filter(|_| reading.reasoning.is_some());
    params.generate.reading = Some(reading).filter(|r| !r.is_plain());
    params.generate.shown = grammar.shown;
    Ok(Plan { prompt, params })
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

/// What grammars of one answer have in common.
struct Grammar<'a> {
    tokenizer: &'a Tokenizer,
    format: ToolFormat,
    reasoning: Option<(ReasoningTags, bool)>,
    shown: Vec<u32>,
}

impl Grammar<'_> {
    fn control(&self, text: &str) -> Option<u32> {
        control(self.tokenizer, text)
    }

    fn marked(&self, lark: String) -> ConstraintSpec {
        ConstraintSpec::Marked {
            lark,
            tokens: self.shown.clone(),
        }
    }

    /// What limits an answer without tools: its own constraint, after reasoning.
    fn of_answer(
        &self,
        loaded: &Loaded,
        own: Option<ConstraintSpec>,
        params: &Params,
    ) -> Result<Option<ConstraintSpec>, ApiError> {
        let (Some(spec), Some((tags, opened))) = (&own, self.reasoning) else {
            return Ok(own);
        };
        let Some(schema) = schema_of(spec) else {
            return Ok(own);
        };
        check(loaded, spec, params)?;
        let lark = json_after_reasoning(&schema, tags, opened, &|t| self.control(t));
        Ok(Some(self.marked(lark)))
    }

    /// What limits an answer with tools.
    fn of_tools(
        &self,
        loaded: &Loaded,
        offer: &Offer,
        own: Option<ConstraintSpec>,
        params: &Params,
    ) -> Result<Option<ConstraintSpec>, ApiError> {
        let answer = match &own {
            None => None,
            Some(spec) => {
                check(loaded, spec, params)?;
                let field = params.constraint_field.unwrap_or("grammar");
                let schema = schema_of(spec).ok_or_else(|| {
                    let why = "can't be used together with tools: leave one of them out, or say \"tool_choice\": \"none\"";
                    ApiError::field(field, why)
                })?;
                Some(schema)
            }
        };
        self.check_tools(loaded, offer)?;
        let rules = ToolRules {
            tools: &offer.tools,
            choice: offer.choice.rule(),
            parallel: offer.parallel,
            reasoning: self.reasoning,
            answer: answer.as_ref(),
        };
        let lark = self.format.grammar(&rules, &|t| self.control(t));
        let lark = lark.map_err(|e| {
            let field = match e {
                ToolError::Answer(_) => params.constraint_field.unwrap_or("grammar"),
                _ => "tools",
            };
            ApiError::field(field, e)
        })?;
        Ok(lark.map(|lark| self.marked(lark)))
    }

    /// Schemas that calls are held to must be such as can be held to: one by one, so that the error can name it.
    fn check_tools(&self, loaded: &Loaded, offer: &Offer) -> Result<(), ApiError> {
        let mut room = MAX_SCHEMAS;
        for (tool, field) in offer.tools.iter().zip(&offer.fields) {
            let held = match &offer.choice {
                Choice::Auto => tool.strict,
                Choice::Required => true,
                Choice::Named(name) => *name == tool.name,
            };
            if held && tool.parameters.is_object() {
                let text = tool.parameters.to_string();
                room = room.checked_sub(text.len()).ok_or_else(|| {
                    let why = format!(
                        "the schemas that calls are held to have more than {MAX_SCHEMAS} bytes"
                    );
                    ApiError::field("tools", why)
                })?;
                let spec = ConstraintSpec::JsonSchema(text);
                let checked = loaded.engine.check_constraint(&spec);
                checked.map_err(|e| ApiError::field(field, e))?;
            }
        }
        Ok(())
    }
}

fn check(loaded: &Loaded, spec: &ConstraintSpec, params: &Params) -> Result<(), ApiError> {
    let checked = loaded.engine.check_constraint(spec);
    checked.map_err(|e| params.blame(e))
}

/// The schema of a constraint that is one.
fn schema_of(spec: &ConstraintSpec) -> Option<Value> {
    match spec {
        ConstraintSpec::JsonObject => Some(json!({"type": "object"})),
        ConstraintSpec::JsonSchema(text) => match serde_json::from_str(text) {
            Ok(Value::Bool(true)) => Some(json!({})),
            Ok(schema) => Some(schema),
            Err(_) => None,
        },
        _ => None,
    }
}
