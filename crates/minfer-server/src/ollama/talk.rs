//! `POST /api/chat` and `/api/generate`.

use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use minfer::chat::Message;
use serde_json::{Map, Value, json};

use super::Failure;
use super::answer::{Form, Head, nothing_said};
use super::request::{Asked, Wanted, take_params, take_think};
use crate::app::Shared;
use crate::chat::{Chat, Conversation, Systems, Turn, blocking};
use crate::fields::{Elsewhere, Fields};
use crate::gaps::Fim;
use crate::messages::Results;
use crate::models::Loaded;
use crate::params::Params;
use crate::prompts;
use crate::{ApiError, messages, tools};

const NO_IMAGES: &str = "this model reads text only";

/// What other surfaces have names for, and where it is said here.
const SAID_ELSEWHERE: &Elsewhere = &[
    ("guided_json", "format"),
    ("num_predict", "options.num_predict"),
    ("reasoning_effort", "think"),
];
/// And in a conversation.
const SYSTEM: &Elsewhere = &[("system", "a message of the role system")];

/// A conversation.
pub async fn chat(State(app): Shared, body: Bytes) -> Result<Response, Failure> {
    let mut f = Fields::parse(&body)?;
    let wanted = Wanted::take(&app, &mut f)?;
    let messages = take_messages(&mut f)?;
    let empty = messages.is_empty();
    if empty && wanted.is_unwanted() {
        wanted.unload(&app).await?;
        return Ok(nothing_said(&wanted.name, Form::Chat, "unload"));
    }
    let asked = wanted.load(&app).await?;
    let loaded = asked.loaded.clone();
    let chat = blocking(move || take_chat(f, messages, &loaded)).await?;
    if empty {
        asked.accepted();
        return Ok(nothing_said(&asked.name, Form::Chat, "load"));
    }
    let talk = Conversation::start(asked.loaded.clone(), chat).await?;
    asked.accepted();
    Ok(Head::new(asked, Form::Chat).answer(talk).await?)
}

/// The fields beside the messages. May block.
fn take_chat(mut f: Fields, messages: Vec<Message>, loaded: &Loaded) -> Result<Chat, ApiError> {
    let drops_turns = f.take("truncate")?.unwrap_or(true);
    let params = take_params(&mut f, loaded)?;
    let template_kwargs = take_think(&mut f)?;
    let offer = tools::take(&mut f)?;
    // Not Ollama's, but clients of OpenAI's words send it here, too.
    let mut offer = tools::choose(&mut f, offer, &tools::CHAT)?;
    if let Some(offer) = &mut offer {
        offer.whole = true; // a line has whole calls
    }
    f.close("api/chat", &[SAID_ELSEWHERE, SYSTEM].concat())?;
    let last = messages.len().saturating_sub(1);
    let turn = Turn::of(&messages, &format!("messages[{last}].tool_calls"))?;
    Ok(Chat {
        messages,
        systems: Systems::new(),
        turn,
        drops_turns,
        template_kwargs,
        tools: offer,
        split_reasoning: true,
        params,
    })
}

/// `messages`, with Ollama's names in place of OpenAI's; none: the model is only to be loaded.
fn take_messages(f: &mut Fields) -> Result<Vec<Message>, ApiError> {
    const NAME: &str = "messages";
    let mut list = f.list(NAME)?.unwrap_or_default();
    if list.is_empty() {
        return Ok(Vec::new());
    }
    for (i, message) in list.iter_mut().enumerate() {
        let Value::Object(message) = message else {
            continue; // refused below
        };
        let images = message.remove("images").filter(|v| !v.is_null());
        if images.is_some_and(|images| images != json!([])) {
            let name = format!("{NAME}[{i}].images");
            return Err(ApiError::field(&name, NO_IMAGES));
        }
        for (theirs, ours) in [("thinking", "reasoning_content"), ("tool_name", "name")] {
            if let Some(value) = message.remove(theirs) {
                message.insert(ours.to_owned(), value);
            }
        }
    }
    let mut named = Fields::of(Map::from_iter([(NAME.to_owned(), json!(list))]));
    messages::parse(&mut named, Results::Any)
}

/// A prompt.
pub async fn generate(State(app): Shared, body: Bytes) -> Result<Response, Failure> {
    let mut f = Fields::parse(&body)?;
    let wanted = Wanted::take(&app, &mut f)?;
    let prompt = Prompt::take(&mut f)?;
    let empty = prompt.text.is_empty() && prompt.suffix.is_empty();
    if empty && wanted.is_unwanted() {
        wanted.unload(&app).await?;
        return Ok(nothing_said(&wanted.name, Form::Generate, "unload"));
    }
    let asked = wanted.load(&app).await?;
    let loaded = asked.loaded.clone();
    let bare = prompt.is_bare();
    let (params, template_kwargs) = blocking(move || {
        let params = take_params(&mut f, &loaded)?;
        let template_kwargs = take_think(&mut f)?;
        if bare && template_kwargs.get("enable_thinking") == Some(&json!(true)) {
            let why = "is told by the model's template, which a raw prompt and one with a suffix go without: \
                       write in the prompt what begins reasoning, or leave them out";
            return Err(ApiError::field("think", why));
        }
        f.close("api/generate", SAID_ELSEWHERE)?;
        Ok((params, template_kwargs))
    })
    .await?;
    if empty {
        asked.accepted();
        return Ok(nothing_said(&asked.name, Form::Generate, "load"));
    }
    let talk = prompt.start(&asked, params, template_kwargs).await?;
    asked.accepted();
    Ok(Head::new(asked, Form::Generate).answer(talk).await?)
}

/// What is to be continued.
struct Prompt {
    text: String,
    suffix: String,
    system: String,
    raw: bool,
}

impl Prompt {
    fn take(f: &mut Fields) -> Result<Prompt, ApiError> {
        f.refuse("images", &[json!([])], NO_IMAGES)?;
        let why = "a template from a request is not rendered: use the model's own, or raw";
        f.refuse("template", &[json!("")], why)?;
        let why = "is no longer how a conversation goes on: send its messages to /api/chat";
        f.refuse("context", &[json!([])], why)?;
        let prompt = Prompt {
            text: f.take("prompt")?.unwrap_or_default(),
            suffix: f.take("suffix")?.unwrap_or_default(),
            system: f.take("system")?.unwrap_or_default(),
            raw: f.flag("raw")?,
        };
        if prompt.is_bare() && !prompt.system.is_empty() {
            return Err(ApiError::field("system", "has no place in a raw prompt"));
        }
        Ok(prompt)
    }

    /// Whether no template is around it.
    fn is_bare(&self) -> bool {
        self.raw || !self.suffix.is_empty()
    }

    async fn start(
        self,
        asked: &Asked,
        params: Params,
        template_kwargs: Map<String, Value>,
    ) -> Result<Conversation, ApiError> {
        let loaded = asked.loaded.clone();
        if self.is_bare() {
            return blocking(move || {
                let model = loaded.engine.model().clone();
                let prompts = prompts::parse(
                    "prompt",
                    Some(Value::String(self.text)),
                    model.hparams().n_vocab,
                )?;
                let Some(prompt) = prompts.first() else {
                    return Err(ApiError::field("prompt", "is required"));
                };
                let ids = match (self.suffix.is_empty(), Fim::of(&model)) {
                    (true, _) => prompt.encode(model.tokenizer(), true).ids,
                    (false, Some(fim)) => fim.encode(model.tokenizer(), prompt, &self.suffix),
                    (false, None) => {
                        return Err(ApiError::field("suffix", "this model fills no gaps"));
                    }
                };
                Conversation::submit(loaded, ids, params)
            })
            .await;
        }
        let system = match self.system.as_str() {
            "" => None,
            text => Some(Message::new("system", text)),
        };
        let user = Message::new("user", &self.text);
        let chat = Chat {
            messages: system.into_iter().chain([user]).collect(),
            systems: Systems::new(),
            turn: Turn::Opened,
            drops_turns: false,
            template_kwargs,
            tools: None,
            split_reasoning: true,
            params,
        };
        Conversation::start(loaded, chat).await
    }
}
