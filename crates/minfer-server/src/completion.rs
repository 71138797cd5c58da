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
    /// Looks at all prompts and submits the first ones. `field` is the name under which they came; the request's own
    /// prompt is not used.
    ///
    /// # Errors
    /// What the engine refuses, of any prompt: nothing has been computed then.
    pub async fn start(
        loaded: Arc<Loaded>,
        field: &str,
        prompts: Vec<Vec<u32>>,
        request: Request,
        n: usize,
    ) -> Result<Completion, ApiError> {
        let prompts = check(&loaded, field, prompts, &request)?;
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

/// The prompts, if each of them can be served.
fn check(
    loaded: &Loaded,
    field: &str,
    prompts: Vec<Vec<u32>>,
    request: &Request,
) -> Result<Vec<Vec<u32>>, ApiError> {
    let (mut request, several) = (request.clone(), prompts.len() > 1);
    let one = |(i, prompt): (usize, Vec<u32>)| {
        request.prompt = prompt;
        match loaded.engine.check(&request) {
            Ok(()) => Ok(std::mem::take(&mut request.prompt)),
            Err(e) if several => Err(ApiError::from(e).of_field(&format!("{field}[{i}]"))),
            Err(e) => Err(ApiError::from(e).of_field(field)),
        }
    };
    prompts.into_iter().enumerate().map(one).collect()
}
