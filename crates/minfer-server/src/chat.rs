//! What is asked of a model in a conversation, the same for every surface: messages in, pieces of answers out.

use std::sync::Arc;

use axum::http::StatusCode;
use minfer::chat::{Message, RenderRequest};
use minfer::engine::{Event, FinishReason, Request, Task, Timings};
use minfer::sampling::LogProbs;
use serde_json::{Map, Value};

use crate::ApiError;
use crate::answers::Answers;
use crate::models::Loaded;
use crate::params::Params;

/// A conversation and how to go on with it.
#[derive(Clone, Debug)]
pub struct Chat {
    /// Oldest first.
    pub messages: Vec<Message>,
    /// More variables for the template.
    pub template_kwargs: Map<String, Value>,
    /// How to generate.
    pub params: Params,
}

/// A token of an answer.
#[derive(Clone, Debug)]
pub struct Token {
    /// Its id.
    pub id: u32,
    /// Its log-probabilities, where they were asked for.
    pub logprobs: Option<LogProbs>,
}

/// A piece of what an answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// Of the answer's text.
    Content(String),
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
    answers: Answers,
}

impl Conversation {
    /// Renders, tokenizes and submits, on a thread that may block.
    ///
    /// # Errors
    /// A template that refuses the messages; what the engine refuses.
    pub async fn start(loaded: Arc<Loaded>, chat: Chat) -> Result<Conversation, ApiError> {
        blocking(move || {
            let prompt = prompt(&loaded, chat.messages, chat.template_kwargs)?;
            Conversation::submit(loaded, prompt, chat.params)
        })
        .await
    }

    /// Goes on with a prompt that is no conversation. May block.
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
        Ok(Conversation {
            loaded,
            params,
            prompt_n,
            answers,
        })
    }

    /// The next piece and its choice; `None` after the last.
    ///
    /// # Errors
    /// The engine failed; nothing more comes.
    pub async fn next(&mut self) -> Result<Option<(usize, Piece)>, ApiError> {
        while let Some((choice, event)) = self.answers.next().await {
            let piece = match event {
                Event::Prompt { done, total } => Piece::Prompt { done, total },
                Event::Token { id, text, logprobs } => Piece::Token {
                    token: Token { id, logprobs },
                    said: content(text),
                },
                Event::Done(done) => Piece::Done {
                    said: content(done.text),
                    reason: reason(done.reason),
                    stop: done.stop,
                    timings: done.timings,
                },
                Event::Error(e) => return Err(e.into()),
                _ => continue,
            };
            return Ok(Some((choice, piece)));
        }
        Ok(None)
    }
}

/// A conversation as the model reads it. May block.
///
/// # Errors
/// A template that refuses the messages.
pub fn prompt(
    loaded: &Loaded,
    messages: Vec<Message>,
    template_kwargs: Map<String, Value>,
) -> Result<Vec<u32>, ApiError> {
    let request = RenderRequest {
        extra: template_kwargs,
        ..RenderRequest::new(messages)
    };
    let (prompt, _) = loaded.engine.model().chat_prompt(&request)?;
    Ok(prompt)
}

fn content(text: String) -> Vec<Said> {
    match text.is_empty() {
        true => Vec::new(),
        false => vec![Said::Content(text)],
    }
}

fn reason(reason: FinishReason) -> &'static str {
    reason.name()
}

/// Gives a prompt to the engine, for all of its answers.
///
/// # Errors
/// What the engine refuses.
pub fn submit(loaded: &Loaded, prompt: Vec<u32>, params: &Params) -> Result<Answers, ApiError> {
    let mut request = Request::new(prompt, Task::Generate(params.generate.clone()));
    request.no_cache = params.no_cache;
    let streams = loaded.engine.submit_choices(request, params.n)?;
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
