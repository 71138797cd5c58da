//! The answer's side of a generation: sampler, constraint, decoder, stop strings, reasoning's budget, and when it ends.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::reading::{Budget, Reader};
use super::request::{Event, FinishReason, Generate};
use super::speculate::Depth;
use crate::Error;
use crate::sampling::{
    Constraint, ConstraintSpec, LogProbs, Sampler, SamplingError, StopMatcher, log_probs,
};
use crate::tokenizer::{Decoder, EncodeOptions, Tokenizer};

/// A generation under way.
pub(super) struct Answer {
    pub params: Generate,
    pub sampler: Sampler,
    pub constraint: Option<Box<dyn Constraint>>,
    /// The token that the constraint began with, as an index into the sequence.
    pub constraint_from: usize,
    watch: Watch,
    budget: Option<Budget>,
    decoder: Decoder<Arc<Tokenizer>>,
    /// Tokens chosen.
    pub count: usize,
    pub depth: Depth,
    pub drafted: usize,
    pub accepted: usize,
}

/// Who looks for stop strings.
enum Watch {
    /// In all of the text, which ends before one. So many bytes of what it holds are shown already.
    Text(StopMatcher, usize),
    /// In what is content. All of the text goes on: whoever shows it reads it, too.
    Content(Box<Reader>),
}

impl Watch {
    fn of(params: &Generate) -> Watch {
        let stops = params.stop.clone();
        let limited = !stops.is_empty() || params.reasoning_budget.is_some();
        match &params.reading {
            Some(reading) if limited => Watch::Content(Box::new(Reader::new(reading, stops))),
            // Without stop strings both are the same.
            _ => Watch::Text(StopMatcher::new(stops), 0),
        }
    }

    /// The text of the next piece that may be shown.
    fn push(&mut self, piece: String) -> String {
        match self {
            Watch::Text(matcher, shown) => unshown(matcher.push(&piece).text, shown),
            Watch::Content(reader) => {
                reader.push(&piece);
                piece
            }
        }
    }

    /// What it holds back, at the end.
    fn finish(&mut self) -> String {
        match self {
            Watch::Text(matcher, shown) => unshown(matcher.finish(), shown),
            Watch::Content(reader) => {
                reader.finish();
                String::new()
            }
        }
    }

    /// The same where the text could have gone on.
    fn cut(&mut self) -> String {
        match self {
            Watch::Text(..) => self.finish(),
            Watch::Content(reader) => {
                reader.cut();
                String::new()
            }
        }
    }

    /// Text that may still become a stop string and is not shown.
    fn held(&self) -> &str {
        match self {
            Watch::Text(matcher, shown) => matcher.held().get(*shown..).unwrap_or_default(),
            Watch::Content(_) => "",
        }
    }

    /// Text that is shown, but not read to its end.
    fn unread(&self) -> String {
        match self {
            Watch::Text(matcher, shown) => {
                let held = matcher.held().get(..*shown);
                held.unwrap_or_default().to_owned()
            }
            Watch::Content(reader) => reader.held(),
        }
    }

    fn found(&self) -> Option<&str> {
        match self {
            Watch::Text(matcher, _) => matcher.found(),
            Watch::Content(reader) => reader.stop(),
        }
    }

    fn reasons(&self) -> bool {
        matches!(self, Watch::Content(reader) if reader.reasons())
    }

    fn closes(&self) -> bool {
        matches!(self, Watch::Content(reader) if reader.closes())
    }
}

/// `text` without the bytes at its beginning that are shown already, so many of them.
fn unshown(mut text: String, shown: &mut usize) -> String {
    let skip = text.len().min(*shown);
    *shown -= skip;
    text.split_off(skip)
}

/// The closing tag of an answer's reasoning as tokens.
fn close(params: &Generate, tokenizer: &Tokenizer) -> Vec<u32> {
    let reasoning = params.reading.as_ref().and_then(|r| r.reasoning);
    let plain = EncodeOptions {
        add_special: false,
        parse_special: false,
    };
    reasoning.map_or_else(Vec::new, |(tags, _)| {
        match tokenizer.special_id(tags.close) {
            Some(id) => vec![id],
            None => tokenizer.encode(tags.close, plain),
        }
    })
}

/// What stop matcher and decoder hold back of a text that goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Held {
    /// What may become a stop string.
    text: String,
    /// The start of a character that comes after it.
    bytes: Vec<u8>,
    /// Text that is shown already, and that a reader has not made anything of: it may be the beginning of a tag or a stop string.
    #[serde(default)]
    unread: String,
}

impl Held {
    /// As it would be shown if nothing followed.
    pub fn shown(&self) -> String {
        self.text.clone() + &String::from_utf8_lossy(&self.bytes)
    }
}

/// What became of a token.
pub(super) struct Said {
    /// To be told, unless nothing was chosen.
    pub event: Option<Event>,
    /// The token, unless nothing was chosen.
    pub id: Option<u32>,
    /// Whether it was the last, why, and text that was held back.
    pub end: Option<(FinishReason, String)>,
}

impl Answer {
    /// `tokens` are those before the answer.
    ///
    /// # Errors
    /// Sampling parameters that can't be.
    pub fn new(
        params: Generate,
        constraint: Option<Box<dyn Constraint>>,
        tokens: &[u32],
        tokenizer: &Arc<Tokenizer>,
    ) -> Result<Answer, SamplingError> {
        let sampler = Sampler::with_tokenizer(params.sampling.clone(), tokenizer)?;
        let mut sampler = sampler.with_choice(u64::from(params.choice));
        tokens.iter().for_each(|t| sampler.accept(*t));
        Ok(Answer {
            sampler,
            constraint,
            constraint_from: tokens.len(),
            watch: Watch::of(&params),
            budget: params
                .reasoning_budget
                .map(|n| Budget::new(n, close(&params, tokenizer))),
            decoder: Decoder::new(tokenizer.clone(), false).showing(params.shown.clone()),
            count: 0,
            depth: Depth::new(),
            drafted: 0,
            accepted: 0,
            params,
        })
    }

    /// Chooses the token at `position` from `logits` `[n_vocab]`, which it changes. `room` is how many more tokens
    /// the context can take after this one; `None`: any number.
    ///
    /// # Errors
    /// A logit that is no number; no token that is allowed.
    pub fn choose(
        &mut self,
        logits: &mut [f32],
        position: usize,
        tokenizer: &Tokenizer,
        room: Option<usize>,
    ) -> Result<Said, Error> {
        if self.params.n_predict == Some(0) {
            let end = Some(self.cut());
            return Ok(Said {
                event: None,
                id: None,
                end,
            });
        }
        // The sampler writes into the logits: what the model said of them is kept before.
        let raw = self.params.logprobs.map(|_| logits.to_vec());
        let id = self.pick(logits, position)?;
        self.sampler.accept(id);
        self.count += 1;
        let logprobs = self.logprobs(raw.as_deref(), id)?;
        if tokenizer.is_eog(id) && !self.params.ignore_eos {
            // The token counts, but has no text.
            let (_, text) = self.tail(Watch::finish);
            let end = Some((FinishReason::Stop, text));
            return Ok(said(id, String::new(), logprobs, end));
        }
        let mut complete = false;
        if let Some(constraint) = &mut self.constraint {
            constraint.accept(id).map_err(SamplingError::from)?;
            complete = constraint.is_done();
        }
        let piece = self.decoder.push(id);
        let text = self.watch.push(piece);
        let full = self.params.n_predict.is_some_and(|n| self.count >= n) || room == Some(0);
        let end = match (self.watch.found().is_some(), full) {
            (true, _) => Some((FinishReason::Stop, String::new())),
            (false, _) if complete => Some((FinishReason::Stop, self.tail(Watch::finish).1)),
            (false, true) => Some(self.cut()),
            (false, false) => None,
        };
        Ok(said(id, text, logprobs, end))
    }

    /// The token that the reasoning's budget forces, or else the sampler's choice.
    fn pick(&mut self, logits: &mut [f32], position: usize) -> Result<u32, SamplingError> {
        let (reasons, closes) = (self.watch.reasons(), self.watch.closes());
        let whole = self.decoder.is_whole();
        let budget = self.budget.as_mut();
        if let Some(id) = budget.and_then(|b| b.next(reasons, closes, whole)) {
            // What the sampler does not see is to be sound, too.
            self.sampler.check(logits)?;
            return Ok(id);
        }
        let constraint = self.constraint.as_mut();
        let constraint = constraint.map(|c| &mut **c as &mut dyn Constraint);
        self.sampler
            .sample_constrained(logits, position as u64, constraint)
    }

    /// The end of an answer that could go on. One that is saved does: what is held back is said then.
    fn cut(&mut self) -> (FinishReason, String) {
        if self.params.save {
            return (FinishReason::Length, String::new());
        }
        match self.tail(Watch::cut) {
            (true, text) => (FinishReason::Stop, text),
            (false, text) => (FinishReason::Length, text),
        }
    }

    /// What is held back. Nothing comes after a stop string.
    pub fn held(&self) -> Held {
        if self.watch.found().is_some() {
            return Held::default();
        }
        Held {
            text: self.watch.held().to_owned(),
            bytes: self.decoder.pending().to_vec(),
            unread: self.watch.unread(),
        }
    }

    /// Goes on with what another one held back.
    pub fn with_held(mut self, held: Held) -> Answer {
        let mut bytes = held.bytes;
        match &mut self.watch {
            Watch::Text(matcher, shown) => {
                let after = std::mem::take(matcher).after(held.unread);
                *shown = after.held().len();
                let text = after.held().to_owned() + &held.text;
                *matcher = after.with_held(text);
            }
            Watch::Content(reader) => {
                reader.push(&held.unread);
                // Nothing is held back of what a reader takes: it comes with the next piece.
                bytes.splice(..0, held.text.into_bytes()).for_each(drop);
            }
        }
        self.decoder = self.decoder.with_pending(bytes);
        self
    }

    /// The stop string that ended it.
    pub fn stop(&self) -> Option<&str> {
        self.watch.found()
    }

    /// What limits the answer and is not fulfilled, and the token it began with.
    pub fn open_constraint(&self) -> Option<(ConstraintSpec, usize)> {
        let constraint = self.constraint.as_ref().filter(|c| !c.is_done());
        constraint.and_then(|_| Some((self.params.constraint.clone()?, self.constraint_from)))
    }

    fn logprobs(&self, raw: Option<&[f32]>, id: u32) -> Result<Option<LogProbs>, SamplingError> {
        let top = self.params.logprobs.unwrap_or(0);
        raw.map(|raw| log_probs(raw, id, top)).transpose()
    }

    /// What decoder and stop matcher hold back, and whether it ends in a stop string after all.
    fn tail(&mut self, end: impl Fn(&mut Watch) -> String) -> (bool, String) {
        let mut text = self.watch.push(self.decoder.finish());
        if self.watch.found().is_none() {
            text.push_str(&end(&mut self.watch));
        }
        (self.watch.found().is_some(), text)
    }
}

fn said(
    id: u32,
    text: String,
    logprobs: Option<LogProbs>,
    end: Option<(FinishReason, String)>,
) -> Said {
    let event = Event::Token { id, text, logprobs };
    Said {
        event: Some(event),
        id: Some(id),
        end,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Model, Reading};
    use super::*;
    use crate::chat::ReasoningTags;

    /// What a broken model says is an error, even where the sampler is passed by.
    #[test]
    fn a_forced_token_hides_no_broken_logits() {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/data/tiny_models/llama.gguf"
        );
        let model = Model::open(std::path::Path::new(file)).unwrap();
        let tokenizer = model.tokenizer();
        let reading = Reading {
            reasoning: ReasoningTags::of_template("<think>").map(|tags| (tags, true)),
            ..Reading::default()
        };
        let params = Generate {
            reading: Some(reading),
            reasoning_budget: Some(0),
            ..Generate::default()
        };
        let forced = close(&params, tokenizer).first().copied();
        for broken in [None, Some(f32::NAN), Some(f32::INFINITY)] {
            let mut answer = Answer::new(params.clone(), None, &[], tokenizer).unwrap();
            let mut logits = vec![0.0; tokenizer.n_vocab()];
            logits[3] = broken.unwrap_or_default();
            match answer.choose(&mut logits, 0, tokenizer, None) {
                Ok(said) => assert!(broken.is_none() && said.id == forced && forced.is_some()),
                Err(Error::Sampling(SamplingError::NonFinite { token, .. })) => {
                    assert!(broken.is_some() && token == 3);
                }
                Err(e) => panic!("{e}"),
            }
        }
    }
}
