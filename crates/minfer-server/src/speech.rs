//! What an answer's text says: reasoning, content and calls told apart, for one answer; and the calls' ids.

use minfer::chat::tools::{ToolDelta, ToolFormat};
use minfer::engine::{Part, Reader, Reading};

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

/// Reads one answer as it comes.
pub struct Speech {
    reader: Reader,
    format: Option<ToolFormat>,
    called: bool,
}

impl Speech {
    /// At the start of an answer that may end at these strings.
    pub fn new(reading: &Reading, stops: &[String]) -> Speech {
        Speech {
            reader: Reader::new(reading, stops.to_vec()),
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
        let parts = self.reader.push(text);
        self.said(parts)
    }

    /// The end of the text: what was held back. `cut`: the answer could have gone on.
    pub fn finish(&mut self, cut: bool) -> Vec<Said> {
        let parts = match cut {
            true => self.reader.cut(),
            false => self.reader.finish(),
        };
        self.said(parts)
    }

    fn said(&mut self, parts: Vec<Part>) -> Vec<Said> {
        let said = parts.into_iter().map(|part| match part {
            Part::Reasoning(text) => Said::Reasoning(text),
            Part::Said(ToolDelta::Content(text)) => Said::Content(text),
            Part::Said(ToolDelta::Start { index, name }) => Said::Call {
                index,
                id: call_id(self.format),
                name,
            },
            Part::Said(ToolDelta::Arguments { index, piece }) => Said::Arguments { index, piece },
            Part::Said(ToolDelta::End { index }) => {
                self.called = true;
                Said::CallEnd { index }
            }
        });
        said.collect()
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
