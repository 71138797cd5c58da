//! What is asked of a model in a conversation, the same for every surface: messages in, pieces of answers out.

mod plan;

use std::sync::Arc;

use axum::http::StatusCode;
use minfer::chat::{ChatError, Message};
use minfer::engine::{Event, FinishReason, Reading, Request, Task, Timings};
use minfer::sampling::LogProbs;
use serde_json::{Map, Value};

use crate::ApiError;
use crate::answers::Answers;
use crate::models::Loaded;
use crate::params::Params;
use crate::speech::{Said, Speech};
use crate::tools::Offer;

pub use plan::{Length, prepare};

/// A conversation and how to go on with it.
#[derive(Clone, Debug)]
pub struct Chat {
    /// Oldest first.
    pub messages: Vec<Message>,
    /// Where the client said the system's.
    pub systems: Systems,
    /// How their rendering ends.
    pub turn: Turn,
    /// The oldest turns may be left out where they are more than the context holds; otherwise such a conversation is refused.
    pub drops_turns: bool,
    /// More variables for the template.
    pub template_kwargs: Map<String, Value>,
    /// The tools on offer.
    pub tools: Option<Offer>,
    /// Reasoning is to be told from content.
    pub split_reasoning: bool,
    /// How to generate.
    pub params: Params,
}

/// Messages by their numbers, and the client's names for their places, where these are not `messages` and the number.
pub type Systems = Vec<(usize, String)>;

/// Why a conversation can't be rendered. What a system says may be without a listener: this is told by the client's name for its place. `left_out` messages before it were not
/// rendered.
pub fn not_rendered(e: ChatError, systems: &[(usize, String)], left_out: usize) -> ApiError {
    let ChatError::Unheard { message } = e else {
        return minfer::Error::from(e).into();
    };
    let at = message.saturating_add(left_out);
    let known = systems.iter().find(|(known, _)| *known == at);
    let place = known.map_or_else(|| format!("messages[{at}]"), |(_, place)| place.clone());
    let text = e.to_string();
    let why = text.split_once(": ").map_or(text.as_str(), |(_, why)| why);
    ApiError::field(&place, why)
}

/// How the rendering of a conversation ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Turn {
    /// With the opening of the assistant's turn.
    #[default]
    Opened,
    /// Within the last message, which is the assistant's: its text is the beginning of the answer.
    Begun,
    /// With the end of the last message.
    Closed,
}

impl Turn {
    /// An answer begins with the last message if that is the assistant's.
    ///
    /// # Errors
    /// That message has calls; it is known to the client as `field`.
    pub fn of(messages: &[Message], field: &str) -> Result<Turn, ApiError> {
        match messages.last() {
            Some(last) if last.role != "assistant" => Ok(Turn::Opened),
            Some(last) if last.calls() => {
                let why =
                    "calls can't be continued: their results must come next, or leave them out";
                Err(ApiError::field(field, why))
            }
            Some(_) => Ok(Turn::Begun),
            None => Ok(Turn::Opened),
        }
    }

    /// The beginning of the answer that is given, if it says anything.
    pub fn beginning(self, messages: &[Message]) -> Option<String> {
        let last = messages.last().filter(|_| self == Turn::Begun);
        let said = last.map(Message::text);
        said.filter(|text| !text.trim().is_empty())
    }
}

/// The field of what holds an answer from its first character on: the client's constraint, or tools of which a grammar is made.
pub fn held_by(constraint: Option<&'static str>, tools: Option<&Offer>) -> Option<&'static str> {
    constraint.or(tools.filter(|offer| offer.binds()).map(|_| "tools"))
}

/// Such a thing, which stands in `field`, can't be beside a beginning; `way_out` says what can.
pub fn held(field: &str, way_out: &str) -> ApiError {
    let what = match field {
        "tools" => "hold a whole answer to a call that is required, strict or alone",
        _ => "holds a whole answer",
    };
    let why = format!("{what}, but this one's beginning is given: {way_out}");
    ApiError::field(field, why)
}

/// Tells a template how much to reason: by OpenAI's name, and where that is not at all, by the switch that most templates have.
pub fn reason_as(effort: &str, template_kwargs: &mut Map<String, Value>) {
    let mut put = |key: &str, value: Value| {
        template_kwargs.entry(key).or_insert(value);
    };
    put("reasoning_effort", effort.into());
    if effort == "none" {
        put("enable_thinking", false.into());
    }
}

/// A token of an answer.
#[derive(Clone, Debug)]
pub struct Token {
    /// Its id.
    pub id: u32,
    /// Its log-probabilities, where they were asked for.
    pub logprobs: Option<LogProbs>,
}

/// Something that happened to one answer.
#[derive(Clone, Debug)]
pub enum Piece {
    /// So much of the prompt is in.
    Prompt {
        /// Tokens done.
        done: usize,
        /// Tokens in all.
        total: usize,
    },
    /// A token came; what it says may be nothing yet.
    Token {
        /// The token.
        token: Token,
        /// What can be said now.
        said: Vec<Said>,
    },
    /// The end.
    Done {
        /// What was held back until now.
        said: Vec<Said>,
        /// OpenAI's name of the reason.
        reason: &'static str,
        /// The stop string that ended it; `None`: something else did.
        stop: Option<String>,
        /// Counts and times.
        timings: Timings,
        /// Tokens of reasoning among those predicted.
        reasoning_n: usize,
    },
}

/// The answers to a conversation, as they come. Dropping it ends the work within a step.
pub struct Conversation {
    /// The model.
    pub loaded: Arc<Loaded>,
    /// How to generate, with the seed that is used.
    pub params: Params,
    /// Tokens of the prompt.
    pub prompt_n: usize,
    /// How many of its messages had no room in it.
    pub left_out: usize,
    answers: Answers,
    /// Of each answer: who reads it, and its tokens of reasoning so far.
    speeches: Vec<(Speech, usize)>,
}

impl Conversation {
    /// Renders, tokenizes and submits, on a thread that may block.
    ///
    /// # Errors
    /// A template that refuses the messages; what the engine refuses.
    pub async fn start(loaded: Arc<Loaded>, chat: Chat) -> Result<Conversation, ApiError> {
        blocking(move || {
            let plan = prepare(&loaded, chat, Length::Held)?;
            let talk = Conversation::submit(loaded, plan.prompt, plan.params)?;
            Ok(Conversation {
                left_out: plan.left_out,
                ..talk
            })
        })
        .await
    }

    /// Goes on with a prompt; one that is no conversation has no reading. May block.
    ///
    /// # Errors
    /// What the engine refuses.
    pub fn submit(
        loaded: Arc<Loaded>,
        prompt: Vec<u32>,
        params: Params,
    ) -> Result<Conversation, ApiError> {
        let prompt_n = prompt.len();
        let answers = submit(&loaded, prompt, &params)?;
        let speech = || match &params.generate.reading {
            Some(reading) => Speech::new(reading, &params.generate.stop),
            // The engine ends the text itself.
            None => Speech::new(&Reading::default(), &[]),
        };
        let speeches = (0..params.n).map(|_| (speech(), 0)).collect();
        Ok(Conversation {
            loaded,
            speeches,
            params,
            prompt_n,
            left_out: 0,
            answers,
        })
    }

    /// The next piece and its choice; `None` after the last.
    ///
    /// # Errors
    /// The engine failed; nothing more comes.
    pub async fn next(&mut self) -> Result<Option<(usize, Piece)>, ApiError> {
        while let Some((choice, event)) = self.answers.next().await {
            let Some((speech, reasoning_n)) = self.speeches.get_mut(choice) else {
                continue;
            };
            let piece = match event {
                Event::Prompt { done, total } => Piece::Prompt { done, total },
                Event::Token { id, text, logprobs } => {
                    let said = speech.push(&text);
                    let reasons = said.iter().any(|s| matches!(s, Said::Reasoning(_)));
                    *reasoning_n = reasoning_n.saturating_add(usize::from(reasons));
                    let token = Token { id, logprobs };
                    Piece::Token { token, said }
                }
                Event::Done(done) => {
                    let mut said = speech.push(&done.text);
                    said.extend(speech.finish(done.reason == FinishReason::Length));
                    let reason = match done.reason {
                        FinishReason::Stop if speech.called() => "tool_calls",
                        reason => reason.name(),
                    };
                    Piece::Done {
                        said,
                        reason,
                        stop: done.stop,
                        timings: done.timings,
                        reasoning_n: *reasoning_n,
                    }
                }
                Event::Error(e) => return Err(e.into()),
                _ => continue,
            };
            return Ok(Some((choice, piece)));
        }
        Ok(None)
    }
}

/// Gives a prompt to the engine, for all of its answers.
///
/// # Errors
/// What the engine refuses.
pub fn submit(loaded: &Loaded, prompt: Vec<u32>, params: &Params) -> Result<Answers, ApiError> {
    let mut request = Request::new(prompt, Task::Generate(params.generate.clone()));
    request.no_cache = params.no_cache;
    let streams = loaded.engine.submit_choices(request, params.n);
    let streams = streams.map_err(|e| params.blame(e))?;
    Ok(Answers::new(loaded.times.clone(), streams))
}

/// Runs what may take its time (rendering, tokenizing, compiling a grammar) where it holds up nobody.
///
/// # Errors
/// Its own, or a panic.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| {
        let message = format!("internal error, the server goes on: {e}");
        Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message))
    })
}
