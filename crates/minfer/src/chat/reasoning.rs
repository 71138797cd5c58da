//! A model's reasoning, told from its answer.

use super::hold::{hold, take};
use super::tools::first_token;

/// What a model puts around its reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasoningTags {
    /// Before it.
    pub open: &'static str,
    /// After it.
    pub close: &'static str,
}

const KNOWN: [ReasoningTags; 4] = [
    tags("<think>", "</think>"),
    tags("[THINK]", "[/THINK]"),
    tags("<seed:think>", "</seed:think>"),
    tags("<|channel>thought", "<channel|>"),
];

const fn tags(open: &'static str, close: &'static str) -> ReasoningTags {
    ReasoningTags { open, close }
}

impl ReasoningTags {
    /// The tags that a chat template's source writes or looks for; `None`: it knows none of the known ones.
    pub fn of_template(source: &str) -> Option<ReasoningTags> {
        let mut known = KNOWN.into_iter();
        known.find(|t| source.contains(t.open) || source.contains(t.close))
    }

    /// The tags, and the control token that the opening one may begin with: what a decoder must show.
    pub fn markers(self) -> [&'static str; 3] {
        [self.open, self.close, first_token(self.open).0]
    }

    /// Whether a prompt ends with the closing tag: there is no reasoning to come.
    pub fn closed_by(self, prompt: &str) -> bool {
        prompt.trim_end().ends_with(self.close)
    }

    /// Whether a prompt ends with the opening tag, so that the answer begins within reasoning.
    pub fn opened_by(self, prompt: &str) -> bool {
        prompt.trim_end().ends_with(self.open)
    }

    /// Whether a beginning of an answer ends within reasoning that it has opened itself.
    pub fn left_open_by(self, begun: &str) -> bool {
        begun.rfind(self.open) > begun.rfind(self.close)
    }
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// Reasoning.
    Reasoning(String),
    /// The answer proper.
    Content(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Only white space and a beginning of the opening tag have come.
    Start,
    /// Within reasoning; whether any of it was told.
    Inside(bool),
    /// After it, and only white space has come.
    Gap,
    Content,
}

/// Splits an answer that comes in pieces into reasoning and content. Reasoning stands only at an answer's start; white space around it is part of the
/// tags. All other text is told as it is, and only what may become a tag waits: how the text is cut changes nothing.
#[derive(Clone, Debug)]
pub struct ReasoningSplitter {
    tags: ReasoningTags,
    state: State,
    held: String,
    out: Vec<Said>,
}

impl ReasoningSplitter {
    /// A splitter at an answer's start; `inside`: the prompt has opened the reasoning.
    pub fn new(tags: ReasoningTags, inside: bool) -> ReasoningSplitter {
        ReasoningSplitter {
            tags,
            state: if inside {
                State::Inside(false)
            } else {
                State::Start
            },
            held: String::new(),
            out: Vec::new(),
        }
    }

    /// Whether the text so far ends within reasoning.
    pub fn is_inside(&self) -> bool {
        matches!(self.state, State::Inside(_))
    }

    /// Whether the text so far ends within reasoning, in a beginning of the closing tag.
    pub fn is_closing(&self) -> bool {
        self.is_inside() && !self.held.trim_start().is_empty()
    }

    /// Text that was taken and is not told yet.
    pub fn held(&self) -> &str {
        &self.held
    }

    /// Takes the next piece.
    pub fn push(&mut self, piece: &str) -> Vec<Said> {
        for c in piece.chars() {
            // More white space after some changes nothing.
            let more = c.is_whitespace() && self.held.ends_with(char::is_whitespace);
            self.held.push(c);
            if !more {
                self.step();
            }
        }
        std::mem::take(&mut self.out)
    }

    /// Ends the answer. Reasoning that was cut is reasoning.
    pub fn finish(&mut self) -> Vec<Said> {
        let held = std::mem::take(&mut self.held);
        match self.state {
            State::Gap => {}
            State::Inside(told) => self.reasoning(held, told),
            State::Start | State::Content => self.content(held),
        }
        std::mem::take(&mut self.out)
    }

    fn step(&mut self) {
        let begun = self.held.trim_start();
        match self.state {
            State::Start if begun == self.tags.open => {
                self.held.clear();
                self.state = State::Inside(false);
            }
            State::Start if self.tags.open.starts_with(begun) => {}
            State::Inside(told) => {
                let close = self.tags.close;
                let n = hold(&self.held, |end| close.starts_with(end));
                let now = take(&mut self.held, n);
                self.reasoning(now, told);
                if self.held.trim_start() == close {
                    self.held.clear();
                    self.state = State::Gap;
                }
            }
            State::Gap if begun.is_empty() => {}
            State::Gap => {
                let content = begun.to_owned();
                self.held.clear();
                self.content(content);
            }
            State::Start | State::Content => {
                let content = std::mem::take(&mut self.held);
                self.content(content);
            }
        }
    }

    fn reasoning(&mut self, text: String, told: bool) {
        let text = if told { &text } else { text.trim_start() };
        if text.is_empty() {
            return;
        }
        self.state = State::Inside(true);
        match self.out.last_mut() {
            Some(Said::Reasoning(last)) => last.push_str(text),
            _ => self.out.push(Said::Reasoning(text.to_owned())),
        }
    }

    fn content(&mut self, text: String) {
        if text.is_empty() {
            return;
        }
        self.state = State::Content;
        match self.out.last_mut() {
            Some(Said::Content(last)) => last.push_str(&text),
            _ => self.out.push(Said::Content(text)),
        }
    }
}
