//! What an answer's text says: reasoning, content and calls told apart, for one answer.

use minfer::chat::tools::{Tool, ToolDelta, ToolFormat, ToolParser};
use minfer::chat::{self, ReasoningSplitter, ReasoningTags};

use crate::id;

/// A piece of what an answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// Of the model's reasoning.
    Reasoning(String),
    /// Of the answer's text.
    Content(String),
    /// A call begins.
    Call {
        /// Which call of the answer, from 0.
        index: usize,
        /// Its id, by which its result will name it.
        id: String,
        /// The tool's name.
        name: String,
    },
    /// More of a call's arguments: joined, they are a JSON object.
    Arguments {
        /// Which call.
        index: usize,
        /// The piece.
        piece: String,
    },
    /// A call is complete. A call without it was cut, or went wrong after its first pieces were told.
    CallEnd {
        /// Which call.
        index: usize,
    },
}

/// How a model's answers are read.
#[derive(Clone, Debug)]
pub struct Reading {
    /// What stands around reasoning, and whether the prompt has opened it; `None`: reasoning is content.
    pub reasoning: Option<(ReasoningTags, bool)>,
    /// The format of calls, and the tools on offer.
    pub tools: Option<(ToolFormat, Vec<Tool>)>,
    /// A call is told only once it is complete.
    pub whole: bool,
}

impl Reading {
    /// Everything is content.
    pub fn plain() -> Reading {
        Reading {
            reasoning: None,
            tools: None,
            whole: false,
        }
    }
}

/// Reads one answer as it comes.
pub struct Speech {
    splitter: Option<ReasoningSplitter>,
    parser: Option<ToolParser>,
    format: Option<ToolFormat>,
    called: bool,
}

impl Speech {
    /// At an answer's start.
    pub fn new(reading: &Reading) -> Speech {
        let parser = reading.tools.as_ref().map(|(format, tools)| {
            let parser = ToolParser::new(*format, tools);
            match reading.whole {
                true => parser.whole(),
                false => parser,
            }
        });
        Speech {
            splitter: reading
                .reasoning
                .map(|(tags, inside)| ReasoningSplitter::new(tags, inside)),
            parser,
            format: reading.tools.as_ref().map(|(format, _)| *format),
            called: false,
        }
    }

    /// Whether a call has been completed.
    pub fn called(&self) -> bool {
        self.called
    }

    /// The next piece of text.
    pub fn push(&mut self, text: &str) -> Vec<Said> {
        let mut out = Vec::new();
        match &mut self.splitter {
            None => self.content(text, &mut out),
            Some(splitter) => {
                let parts = splitter.push(text);
                self.parts(parts, &mut out);
            }
        }
        out
    }

    /// The end of the text: what was held back.
    pub fn finish(&mut self) -> Vec<Said> {
        let mut out = Vec::new();
        if let Some(splitter) = &mut self.splitter {
            let parts = splitter.finish();
            self.parts(parts, &mut out);
        }
        if let Some(parser) = &mut self.parser {
            let deltas = parser.finish();
            self.deltas(deltas, &mut out);
        }
        out
    }

    fn parts(&mut self, parts: Vec<chat::Said>, out: &mut Vec<Said>) {
        for part in parts {
            match part {
                chat::Said::Reasoning(text) => out.push(Said::Reasoning(text)),
                chat::Said::Content(text) => self.content(&text, out),
            }
        }
    }

    fn content(&mut self, text: &str, out: &mut Vec<Said>) {
        match &mut self.parser {
            None if text.is_empty() => {}
            None => out.push(Said::Content(text.to_owned())),
            Some(parser) => {
                let deltas = parser.push(text);
                self.deltas(deltas, out);
            }
        }
    }

    fn deltas(&mut self, deltas: Vec<ToolDelta>, out: &mut Vec<Said>) {
        for delta in deltas {
            out.push(match delta {
                ToolDelta::Content(text) => Said::Content(text),
                ToolDelta::Start { index, name } => Said::Call {
                    index,
                    id: call_id(self.format),
                    name,
                },
                ToolDelta::Arguments { index, piece } => Said::Arguments { index, piece },
                ToolDelta::End { index } => {
                    self.called = true;
                    Said::CallEnd { index }
                }
            });
        }
    }
}

/// The id of a tool call. Mistral's templates want nine letters and digits, and no other.
fn call_id(format: Option<ToolFormat>) -> String {
    match format {
        Some(ToolFormat::Mistral | ToolFormat::MistralArgs) => {
            id::named("").chars().take(9).collect()
        }
        _ => id::named("call_"),
    }
}
