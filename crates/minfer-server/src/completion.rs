//! One task for each of several prompts, the same for every surface: prompts in, events out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use minfer::engine::{Event, Request};

use crate::ApiError;
use crate::answers::Answers;
use crate::chat::blocking;
use crate::models::Loaded;

/// How long to wait where the engine's queue is full and nothing of this request is under way.
const PAUSE: Duration = Duration::from_millis(50);

/// The work on several prompts. Dropping it ends it within a step.
///
/// As many are submitted at once as the engine works on at once, so a long list leaves room in the queue for others.
pub struct Completion {
    /// The model.
    pub loaded: Arc<Loaded>,
    waiting: VecDeque<Vec<u32>>,
    /// What is wanted of each prompt, and how many times.
    request: Request,
    n: usize,
    answers: Answers,
    begun: bool,
}

impl Completion {
    /// Submits the first ones. The request's own prompt is not used.
    ///
    /// # Errors
    /// What the engine refuses.
    pub async fn start(
        loaded: Arc<Loaded>,
        prompts: Vec<Vec<u32>>,
        request: Request,
        n: usize,
    ) -> Result<Completion, ApiError> {
        let mut all = Completion {
            waiting: prompts.into(),
            request,
            n,
            answers: Answers::new(loaded.times.clone(), Vec::new()),
            begun: false,
            loaded,
        };
        all.fill().await?;
        Ok(all)
    }

    /// The next event and which answer's it is: that of prompt p and choice c is p * n + c. Never
    /// [`Event::Error`]; `None` after the last.
    ///
    /// # Errors
    /// The engine failed or refused a later prompt; nothing more comes.
    pub async fn next(&mut self) -> Result<Option<(usize, Event)>, ApiError> {
        loop {
            match self.answers.next().await {
                Some((_, Event::Error(e))) => return Err(e.into()),
                Some((answer, event)) => {
                    if matches!(event, Event::Done(_)) {
                        self.fill().await?;
                    }
                    return Ok(Some((answer, event)));
                }
                None if self.waiting.is_empty() => return Ok(None),
                None => self.fill().await?,
            }
        }
    }

    async fn fill(&mut self) -> Result<(), ApiError> {
        while self.answers.open() < self.loaded.engine.options().n_seqs {
            let Some(prompt) = self.waiting.front() else {
                break;
            };
            let request = Request {
                prompt: prompt.clone(),
                ..self.request.clone()
            };
            let (loaded, n) = (self.loaded.clone(), self.n);
            let sent = blocking(move || Ok(loaded.engine.submit_choices(request, n)?)).await;
            match sent {
                Ok(streams) => {
                    self.waiting.pop_front();
                    self.answers.add(streams);
                    self.begun = true;
                }
                // Who has begun waits, and goes on when something of it has ended.
                Err(e) if self.begun && e.status == StatusCode::TOO_MANY_REQUESTS => {
                    if self.answers.open() > 0 {
                        break;
                    }
                    tokio::time::sleep(PAUSE).await;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}
