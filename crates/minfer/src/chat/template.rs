//! A model's chat template: chosen from the metadata, rendered within bounds.

use std::collections::BTreeMap;
use std::ops::Range;

use minijinja::Environment;
use serde_json::{Map, Value, json};

use super::jinja::{self, BASE_FUEL, NOW};
use super::message::Shape;
use super::tools::{Shows, ToolFormat, taught};
use super::user_text::{ControlTokens, Marker};
use super::{ChatError, DateTime, ReasoningTags, RenderRequest};
use crate::gguf::{self, Array, Metadata};
use crate::tokenizer::{Part, Tokenizer};

/// The format for models without a template: ChatML.
pub const CHATML: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}\
{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

const NO_TEMPLATE: &str =
    "the model file has no chat template: using ChatML, which this model may not know";

/// `tokenizer.ggml.token_type` of control tokens and of tokens that the model's maker added.
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;

#[derive(Debug)]
struct Compiled {
    source: String,
    env: Environment<'static>,
    /// Text must come as a list of parts: the template shows nothing of a plain string.
    wants_parts: bool,
    /// What else it shows.
    shows: Shows,
}

/// A model's chat template, ready to render.
#[derive(Debug)]
pub struct ChatTemplate {
    default: Compiled,
    tool_use: Option<Compiled>,
    /// `bos_token` and its like, as template variables.
    specials: BTreeMap<&'static str, String>,
    control: ControlTokens,
    notice: Option<&'static str>,
}

/// A rendered conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The prompt's text.
    pub text: String,
    /// Byte ranges of `text`, in order, that the caller supplied and that look like (a piece of) a control token. A control
    /// token may be read from the text only if it touches none of them.
    pub user: Vec<Range<usize>>,
    /// Something the user should know (no template in the file).
    pub notice: Option<String>,
}

impl Rendered {
    /// The text in pieces; joined, they are `text`. User text that looks like no control token is part of the template pieces:
    /// so a tokenizer sees it in its context, as Hugging Face's does.
    pub fn parts(&self) -> Vec<Part<'_>> {
        let mut parts = Vec::new();
        let mut at = 0;
        for range in &self.user {
            parts.push(Part::Template(self.text.get(at..range.start).unwrap_or("")));
            parts.push(Part::User(self.text.get(range.clone()).unwrap_or("")));
            at = range.end;
        }
        parts.push(Part::Template(self.text.get(at..).unwrap_or("")));
        parts.retain(|p| !matches!(p, Part::Template("")));
        parts
    }

    /// What comes after the last place of a text in it; `None` if it does not hold it.
    pub fn after(&self, mark: &str) -> Option<Rendered> {
        let start = self.text.rfind(mark)?.checked_add(mark.len())?;
        let text = self.text.get(start..)?.to_owned();
        let later = self.user.iter().filter(|r| r.start >= start);
        let moved = |r: &std::ops::Range<usize>| {
            Some(r.start.checked_sub(start)?..r.end.checked_sub(start)?)
        };
        Some(Rendered {
            text,
            user: later.filter_map(moved).collect(),
            notice: self.notice.clone(),
        })
    }
}

impl Compiled {
    fn new(source: &str) -> Result<Compiled, ChatError> {
        let env = jinja::environment(source)?;
        let mut compiled = Compiled {
            source: source.to_owned(),
            env,
            wants_parts: false,
            shows: Shows {
                system: true,
                no_system: false,
                tools: true,
                calls: true,
            },
        };
        let user = |content: Value| json!({"role": "user", "content": content});
        let says = |content: Value| compiled.tries(&[user(content)], None) == Some(true);
        compiled.wants_parts =
            !says(json!("needle")) && says(json!([{"type": "text", "text": "needle"}]));
        compiled.shows = compiled.what_shows();
        Ok(compiled)
    }

    /// Whether a rendering shows the word `needle`; `None`: there is none.
    fn tries(&self, messages: &[Value], tools: Option<&Value>) -> Option<bool> {
        let now = Some(DateTime::from_unix(0));
        let context = context(messages, tools, &Map::new(), true, now);
        let text = jinja::render(&self.env, context, BASE_FUEL).ok()?;
        Some(text.contains("needle"))
    }

    fn what_shows(&self) -> Shows {
        let text = |text: &str| match self.wants_parts {
            true => json!([{"type": "text", "text": text}]),
            false => json!(text),
        };
        let message = |role: &str, said: &str| json!({"role": role, "content": text(said)});
        let user = message("user", "-");
        let function = json!({"name": "needle", "description": "needle", "parameters": {"type": "object", "properties": {}}});
        let tools = json!([{"type": "function", "function": function}]);
        let call = |arguments: Value| {
            let function = json!({"name": "needle", "arguments": arguments});
            let calls = json!([{"type": "function", "id": "callneedl", "function": function}]);
            let called = json!({"role": "assistant", "content": text(""), "tool_calls": calls});
            self.tries(&[user.clone(), called, user.clone()], None)
        };
        // A template that fails on the questions is asked by its source.
        let in_source = |word: &str| self.source.contains(word);
        let shows = |messages: &[Value]| self.tries(messages, None) == Some(true);
        let system = shows(&[message("system", "needle"), user.clone()]);
        Shows {
            system,
            no_system: !system && shows(&[message("user", "needle")]),
            tools: self
                .tries(std::slice::from_ref(&user), Some(&tools))
                .unwrap_or_else(|| in_source("tools")),
            calls: call(json!({}))
                .or_else(|| call(json!("{}")))
                .unwrap_or_else(|| in_source("tool_calls")),
        }
    }
}

fn context(
    messages: &[Value],
    tools: Option<&Value>,
    variables: &Map<String, Value>,
    generate: bool,
    now: Option<DateTime>,
) -> minijinja::Value {
    let messages: minijinja::Value = messages.iter().map(jinja::value).collect();
    let mut pairs = vec![
        ("messages", messages),
        ("tools", tools.map_or_else(|| ().into(), jinja::value)),
        ("documents", ().into()),
        ("add_generation_prompt", generate.into()),
    ];
    pairs.extend(now.map(|now| (NOW, now.unix().into())));
    pairs.extend(
        variables
            .iter()
            .map(|(key, value)| (key.as_str(), jinja::value(value))),
    );
    minijinja::Value::from_pairs(pairs)
}

impl ChatTemplate {
    /// A template from its Jinja source. `specials` are variables such as (`bos_token`, `<s>`); `control` holds the texts of the
    /// vocabulary's control tokens. Errors: [`ChatError::Syntax`].
    pub fn new(
        source: &str,
        specials: impl IntoIterator<Item = (&'static str, String)>,
        control: impl IntoIterator<Item = String>,
    ) -> Result<ChatTemplate, ChatError> {
        let mut specials: BTreeMap<&'static str, String> = specials.into_iter().collect();
        specials.retain(|_, text| !text.is_empty());
        Ok(ChatTemplate {
            default: Compiled::new(source)?,
            tool_use: None,
            control: ControlTokens::new(control.into_iter().chain(specials.values().cloned())),
            specials,
            notice: None,
        })
    }

    /// The template of a GGUF file: `tokenizer.chat_template`, and `tokenizer.chat_template.tool_use` where tools are offered; a
    /// file without one gets ChatML and a notice. Errors: a field of a wrong type, a template that is not Jinja.
    pub fn from_metadata(metadata: &Metadata) -> Result<ChatTemplate, ChatError> {
        let source = text_field(metadata, "tokenizer.chat_template")?;
        let tool_use = text_field(metadata, "tokenizer.chat_template.tool_use")?;
        let named_default = text_field(metadata, "tokenizer.chat_template.default")?;
        let vocabulary = Vocabulary::new(metadata)?;
        let found = source.or(named_default).or(tool_use);
        let mut template = ChatTemplate::new(
            found.unwrap_or(CHATML),
            vocabulary.specials(metadata)?,
            vocabulary.control(),
        )?;
        template.tool_use = tool_use.map(Compiled::new).transpose()?;
        if found.is_none() {
            template.notice = Some(NO_TEMPLATE);
        }
        Ok(template)
    }

    /// The same template with the control tokens that a tokenizer knows: it also counts those that end a generation by their name,
    /// whatever type the file gives them. Whoever encodes the rendering with a tokenizer must tell it here.
    pub fn with_tokenizer(mut self, tokenizer: &Tokenizer) -> ChatTemplate {
        let ids = 0..u32::try_from(tokenizer.n_vocab()).unwrap_or(u32::MAX);
        let control = ids
            .filter(|id| tokenizer.is_control(*id))
            .filter_map(|id| tokenizer.token_text(id))
            .map(str::to_owned);
        self.control = ControlTokens::new(control);
        self
    }

    /// The Jinja source used for conversations without tools.
    pub fn source(&self) -> &str {
        &self.default.source
    }

    /// What the user should know of this template: that it stands in for one that the file does not have.
    pub fn notice(&self) -> Option<&'static str> {
        self.notice
    }

    /// How the model writes tool calls: as its template shows it, or as it is told where the template shows no tools.
    pub fn tool_format(&self) -> ToolFormat {
        let compiled = self.tool_use.as_ref().unwrap_or(&self.default);
        match compiled.shows.tools {
            true => ToolFormat::of_template(&compiled.source),
            false => ToolFormat::Json,
        }
    }

    /// What the model puts around its reasoning, if the template knows of any.
    pub fn reasoning_tags(&self) -> Option<ReasoningTags> {
        ReasoningTags::of_template(&self.default.source)
    }

    /// The same conversation for a template that does not show all of it: tools that it does not show are described in the system's
    /// message, and calls that it does not show, with what they gave, become words.
    pub fn taught(&self, request: RenderRequest) -> RenderRequest {
        let shows = self.shows(&request);
        let (messages, tools) = taught(&request.messages, request.tools.as_ref(), shows);
        RenderRequest {
            messages,
            tools: request.tools.filter(|_| tools),
            ..request
        }
    }

    /// What is shown of a conversation with or without tools.
    pub(super) fn shows(&self, request: &RenderRequest) -> Shows {
        self.compiled(request).shows
    }

    /// The template for a conversation with or without tools.
    fn compiled(&self, request: &RenderRequest) -> &Compiled {
        let tools = self.tool_use.as_ref();
        tools
            .filter(|_| request.tools.is_some())
            .unwrap_or(&self.default)
    }

    /// Renders a conversation as transformers does. Tool-call arguments given as JSON text are shown to the template as objects, and as text where it
    /// fails on objects; text content is shown as the template expects it (a string, or a list of parts).
    ///
    /// Errors: no message; the template raises, fails or does not end; user text that can't be told from control tokens; a last message that
    /// can't be gone on with.
    pub fn render(&self, request: &RenderRequest) -> Result<Rendered, ChatError> {
        if request.messages.is_empty() {
            return Err(ChatError::NoMessages);
        }
        if request.continue_final_message {
            return self.render_begun(request);
        }
        let compiled = self.compiled(request);
        let shape = Shape {
            object_arguments: true,
            parts: compiled.wants_parts,
        };
        match self.render_shaped(compiled, request, shape) {
            Err(ChatError::Render { .. } | ChatError::Raised(_))
                if request.has_string_arguments() =>
            {
                self.render_shaped(
                    compiled,
                    request,
                    Shape {
                        object_arguments: false,
                        ..shape
                    },
                )
            }
            done => done,
        }
    }

    fn render_shaped(
        &self,
        compiled: &Compiled,
        request: &RenderRequest,
        shape: Shape,
    ) -> Result<Rendered, ChatError> {
        let messages = request.shaped(shape);
        let tools = request.tools.as_ref();
        let all = json!([messages, tools, request.extra]).to_string();
        let fuel = jinja::fuel(all.len());
        let run = |messages: &[Value], tools: Option<&Value>, extra: &Map<String, Value>| {
            let mut variables: Map<String, Value> = self
                .specials
                .iter()
                .map(|(k, v)| ((*k).to_owned(), json!(v)))
                .collect();
            variables.extend(extra.clone());
            let context = context(
                messages,
                tools,
                &variables,
                request.add_generation_prompt,
                request.now,
            );
            jinja::render(&compiled.env, context, fuel)
        };
        let text = run(&messages, tools, &request.extra)?;
        let mut user = Vec::new();
        if let Some(mut marker) = Marker::new(&self.control, &[&all, &compiled.source]) {
            let marked_messages: Vec<Value> = messages.iter().map(|m| marker.value(m)).collect();
            let marked_tools = tools.map(|t| marker.value(t));
            let marked_extra = marker.map(&request.extra);
            if let Some(first) = marker.first() {
                let ambiguous = || ChatError::Ambiguous {
                    token: first.to_owned(),
                };
                let marked = run(&marked_messages, marked_tools.as_ref(), &marked_extra)
                    .map_err(|_| ambiguous())?;
                let (again, ranges) = marker.unmark(&marked);
                if again != text {
                    return Err(ambiguous());
                }
                user = ranges;
            }
        }
        Ok(Rendered {
            text,
            user,
            notice: self.notice.map(str::to_owned),
        })
    }
}

fn text_field<'a>(metadata: &'a Metadata, key: &str) -> Result<Option<&'a str>, ChatError> {
    match metadata.get(key) {
        None => Ok(None),
        Some(gguf::Value::Str(text)) => Ok(Some(text)),
        Some(_) => Err(ChatError::Metadata {
            key: key.to_owned(),
            what: "must be a string".to_owned(),
        }),
    }
}

/// What the metadata say about token texts.
struct Vocabulary<'a> {
    tokens: Option<&'a gguf::StrArray>,
    types: &'a [i32],
}

impl<'a> Vocabulary<'a> {
    fn new(metadata: &'a Metadata) -> Result<Vocabulary<'a>, ChatError> {
        let wrong = |key: &str, what: &str| ChatError::Metadata {
            key: key.to_owned(),
            what: what.to_owned(),
        };
        let tokens = match metadata.get("tokenizer.ggml.tokens") {
            None => None,
            Some(gguf::Value::Array(Array::Str(tokens))) => Some(tokens),
            Some(_) => {
                return Err(wrong(
                    "tokenizer.ggml.tokens",
                    "must be an array of strings",
                ));
            }
        };
        let types = match metadata.get("tokenizer.ggml.token_type") {
            None => &[][..],
            Some(gguf::Value::Array(Array::I32(types))) => types,
            Some(_) => {
                return Err(wrong(
                    "tokenizer.ggml.token_type",
                    "must be an array of i32",
                ));
            }
        };
        Ok(Vocabulary { tokens, types })
    }

    fn text(&self, metadata: &Metadata, key: &str) -> Result<Option<String>, ChatError> {
        let wrong = |what: String| ChatError::Metadata {
            key: key.to_owned(),
            what,
        };
        let id = match (metadata.get(key), self.tokens) {
            (None, _) | (_, None) => return Ok(None),
            (Some(gguf::Value::U32(id)), _) => *id,
            (Some(gguf::Value::I32(-1)), _) => return Ok(None),
            (Some(other), _) => return Err(wrong(format!("must be a u32, is {other:?}"))),
        };
        let text = usize::try_from(id)
            .ok()
            .and_then(|i| self.tokens.and_then(|t| t.get(i)));
        text.map(|t| Some(t.to_owned()))
            .ok_or_else(|| wrong(format!("{id} is not an id of this vocabulary")))
    }

    fn specials(&self, metadata: &Metadata) -> Result<Vec<(&'static str, String)>, ChatError> {
        const NAMES: [(&str, &str); 4] = [
            ("bos_token", "bos"),
            ("eos_token", "eos"),
            ("unk_token", "unknown"),
            ("pad_token", "padding"),
        ];
        let mut out = Vec::new();
        for (name, field) in NAMES {
            let text = self.text(metadata, &format!("tokenizer.ggml.{field}_token_id"))?;
            out.extend(text.map(|t| (name, t)));
        }
        Ok(out)
    }

    /// Control tokens by type; and, as converters also write them, added tokens of the form `<|…|>`.
    fn control(&self) -> Vec<String> {
        let tokens = self
            .tokens
            .into_iter()
            .flat_map(gguf::StrArray::iter)
            .zip(self.types);
        let is_control = |text: &str, kind: i32| {
            kind == CONTROL
                || (kind == USER_DEFINED && text.starts_with("<|") && text.ends_with("|>"))
        };
        tokens
            .filter(|(text, kind)| is_control(text, **kind))
            .map(|(text, _)| text.to_owned())
            .collect()
    }
}
