//! An answer's text as a reader takes it: reasoning, text and calls told apart, and the end that its own words may set.

use std::sync::Arc;

use crate::chat::tools::{Tool, ToolDelta, ToolFormat, ToolParser};
use crate::chat::{ReasoningSplitter, ReasoningTags, Said};
use crate::sampling::StopMatcher;

/// How an answer is read.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// What stands around reasoning, and whether the prompt has opened it; `None`: reasoning is content.
    pub reasoning: Option<(ReasoningTags, bool)>,
    /// The format of calls, and the tools on offer.
    pub tools: Option<(ToolFormat, Arc<[Tool]>)>,
    /// A call is told only once it is complete.
    pub whole: bool,
    /// A grammar holds the answer to calls, or else to JSON of a schema.
    pub beside_json: bool,
    /// The answer's content has begun in the prompt: a call without a marker, which can only be a whole answer, does not come.
    pub begun: bool,
    /// A grammar holds the answer to calls: what begins it is one, also where calls have no marker.
    pub forced: bool,
}

impl Reading {
    /// Whether all of the text is content.
    pub fn is_plain(&self) -> bool {
        self.reasoning.is_none() && self.tools.is_none()
    }
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Of the model's reasoning.
    Reasoning(String),
    /// Content, or of a call.
    Said(ToolDelta),
}

/// Reads an answer as it comes, up to a stop string in its content. Stop strings are not looked for in reasoning and calls, nor across them. How the text is
/// cut changes nothing.
pub struct Reader {
    splitter: Option<ReasoningSplitter>,
    parser: Option<ToolParser>,
    stop: StopMatcher,
}

impl Reader {
    /// At an answer's start.
    pub fn new(reading: &Reading, stops: Vec<String>) -> Reader {
        let parser = reading.tools.as_ref().map(|(format, tools)| {
            let mut parser = ToolParser::new(*format, Arc::clone(tools));
            if reading.beside_json {
                parser = parser.beside_json();
            }
            if reading.begun {
                parser = parser.begun();
            }
            if reading.forced {
                parser = parser.forced();
            }
            match reading.whole {
                true => parser.whole(),
                false => parser,
            }
        });
        let reasoning = reading.reasoning;
        Reader {
            splitter: reasoning.map(|(tags, inside)| ReasoningSplitter::new(tags, inside)),
            parser,
            stop: StopMatcher::new(stops),
        }
    }

    /// Whether the text is within reasoning.
    pub fn reasons(&self) -> bool {
        self.splitter
            .as_ref()
            .is_some_and(ReasoningSplitter::is_inside)
    }

    /// Whether the text ends in what may become the reasoning's closing tag.
    pub fn closes(&self) -> bool {
        let splitter = self.splitter.as_ref();
        splitter.is_some_and(ReasoningSplitter::is_closing)
    }

    /// Whether the text ends within a call.
    pub fn calls(&self) -> bool {
        self.parser.as_ref().is_some_and(ToolParser::is_inside)
    }

    /// The stop string that ended the answer: what comes after it is not told.
    pub fn stop(&self) -> Option<&str> {
        self.stop.found()
    }

    /// The next piece of text.
    pub fn push(&mut self, text: &str) -> Vec<Part> {
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

    /// Text that was taken and is not told yet: a reader that goes on where this one was is given it first.
    pub(super) fn held(&self) -> String {
        let parser = self.parser.as_ref().map_or("", ToolParser::held);
        let splitter = self.splitter.as_ref().map_or("", ReasoningSplitter::held);
        [self.stop.held(), parser, splitter].concat()
    }

    /// The end of a text that was cut off: what was held back, but for a marker of calls that has only begun, or that no call follows. In the text of a call
    /// that is cut no stop string is looked for, even where it is content.
    pub fn cut(&mut self) -> Vec<Part> {
        let mut out = self.close();
        let calls = self.calls() && !self.stop.is_stopped();
        let deltas = self.parser.as_mut().map_or_else(Vec::new, ToolParser::cut);
        if calls {
            self.flush(&mut out);
            out.extend(deltas.into_iter().map(Part::Said));
        } else {
            self.deltas(deltas, &mut out);
            self.flush(&mut out);
        }
        out
    }

    /// The end of the text: what was held back.
    pub fn finish(&mut self) -> Vec<Part> {
        let mut out = self.close();
        let parser = self.parser.as_mut();
        let deltas = parser.map_or_else(Vec::new, ToolParser::finish);
        self.deltas(deltas, &mut out);
        self.flush(&mut out);
        out
    }

    /// What is held back of reasoning and its tags.
    fn close(&mut self) -> Vec<Part> {
        let mut out = Vec::new();
        if let Some(splitter) = &mut self.splitter {
            let parts = splitter.finish();
            self.parts(parts, &mut out);
        }
        out
    }

    fn parts(&mut self, parts: Vec<Said>, out: &mut Vec<Part>) {
        for part in parts {
            match part {
                Said::Reasoning(text) => out.push(Part::Reasoning(text)),
                Said::Content(text) => self.content(&text, out),
            }
        }
    }

    fn content(&mut self, text: &str, out: &mut Vec<Part>) {
        match &mut self.parser {
            None => self.visible(text, out),
            Some(parser) => {
                let deltas = parser.push(text);
                self.deltas(deltas, out);
            }
        }
    }

    fn deltas(&mut self, deltas: Vec<ToolDelta>, out: &mut Vec<Part>) {
        for delta in deltas {
            match delta {
                ToolDelta::Content(text) => self.visible(&text, out),
                _ if self.stop.is_stopped() => {}
                call => {
                    self.flush(out);
                    out.push(Part::Said(call));
                }
            }
        }
    }

    fn visible(&mut self, text: &str, out: &mut Vec<Part>) {
        let text = self.stop.push(text).text;
        say(text, out);
    }

    /// Text that did not become a stop string.
    fn flush(&mut self, out: &mut Vec<Part>) {
        let text = self.stop.finish();
        say(text, out);
    }
}

fn say(text: String, out: &mut Vec<Part>) {
    if !text.is_empty() {
        out.push(Part::Said(ToolDelta::Content(text)));
    }
}

/// Ends an answer's reasoning after so many tokens: the closing tag comes next, whatever the model says.
pub(super) struct Budget {
    left: usize,
    /// Tokens that completed a character.
    over: usize,
    /// Tokens that went on with what may become the closing tag.
    closing: usize,
    close: Vec<u32>,
    /// Tokens of the closing tag that are out.
    done: usize,
}

/// Most bytes that a character still wants; as many tokens may bring them.
const REST: usize = 3;
/// Most tokens that may bring a closing tag; the longest has 13 bytes.
const TAG: usize = 16;

impl Budget {
    /// Of so many tokens, and the closing tag's.
    pub fn new(tokens: usize, close: Vec<u32>) -> Budget {
        Budget {
            left: tokens,
            over: 0,
            closing: 0,
            close,
            done: 0,
        }
    }

    /// The token that must come next, if one must. `reasons`: the text so far ends within reasoning; `closes`: in what may become its closing tag;
    /// `whole`: not within a character.
    pub fn next(&mut self, reasons: bool, closes: bool, whole: bool) -> Option<u32> {
        if self.done == 0 {
            if !reasons {
                return None;
            }
            if let Some(left) = self.left.checked_sub(1) {
                self.left = left;
                return None;
            }
            // The model may be closing it itself.
            if closes && self.closing < TAG {
                self.closing += 1;
                return None;
            }
            if !whole && self.over < REST {
                self.over += 1;
                return None;
            }
        }
        let id = self.close.get(self.done).copied();
        self.done += 1;
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(text: &str) -> Reading {
        let tool = Tool {
            name: "now".to_owned(),
            parameters: serde_json::Value::Null,
            strict: false,
        };
        let tags = ReasoningTags::of_template("<think>");
        Reading {
            reasoning: tags.map(|t| (t, text.starts_with("hm"))),
            tools: Some((ToolFormat::Hermes, [tool].into())),
            ..Reading::default()
        }
    }

    /// What is told of a text that comes in pieces of `n` characters, joined; and the stop string.
    fn told(text: &str, stops: &[&str], n: usize) -> (String, Option<String>) {
        let stops = stops.iter().map(|s| (*s).to_owned()).collect();
        let mut reader = Reader::new(&call(text), stops);
        let chars: Vec<char> = text.chars().collect();
        let mut parts = Vec::new();
        for piece in chars.chunks(n) {
            parts.extend(reader.push(&piece.iter().collect::<String>()));
        }
        parts.extend(reader.finish());
        let told = parts.into_iter().map(|part| match part {
            Part::Reasoning(text) => text.to_uppercase(),
            Part::Said(ToolDelta::Content(text)) => text,
            Part::Said(ToolDelta::Start { name, .. }) => format!("<{name}>"),
            Part::Said(ToolDelta::Arguments { piece, .. }) => piece,
            Part::Said(ToolDelta::End { .. }) => "</>".to_owned(),
        });
        (told.collect(), reader.stop().map(str::to_owned))
    }

    #[test]
    fn stop_strings_end_content_and_nothing_else() {
        const CALL: &str =
            "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"b\"}}</tool_call>";
        let now = "<now>{\"a\": \"b\"}</>";
        for n in [1, 2, 3, 100] {
            // Not in reasoning, nor in a call; after them it ends the answer.
            let text = format!("hm b }}</think>a{CALL}c b}} d {CALL}");
            let want = format!("HM B }}a{now}c b");
            assert_eq!(told(&text, &["}"], n), (want, Some("}".to_owned())), "{n}");
            // Nor across a call: what was held before it is told.
            let text = format!("xa{CALL}b");
            let want = format!("xa{now}b");
            assert_eq!(told(&text, &["ab", "a<"], n), (want, None), "{n}");
            // What looked like a call is content in the end.
            let text = "{\"name\": \"now\", \"arg\": 1} and 2 and 3";
            let want = "{\"name\": \"now\", \"arg\": 1}".to_owned();
            let stop = Some(" and".to_owned());
            assert_eq!(told(text, &[" and"], n), (want, stop), "{n}");
        }
    }

    #[test]
    fn a_stop_string_in_a_call_that_is_cut_ends_nothing() {
        let coder = "<tool_call>\n<function=now>\n<parameter=a>\nb";
        let hermes = "<tool_call>\n{\"name\": \"now\", \"argu";
        for (format, whole, text, want) in [
            (ToolFormat::Hermes, false, "<tool_call>\n{\"na", ""),
            (ToolFormat::Hermes, true, hermes, hermes),
            (ToolFormat::QwenCoder, false, coder, coder),
        ] {
            let mut reading = Reading { whole, ..call("") };
            reading.tools = reading.tools.map(|(_, tools)| (format, tools));
            let stops = vec!["\n".to_owned(), "k<".to_owned()];
            let mut reader = Reader::new(&reading, stops.clone());
            let mut parts = reader.push(&format!("I look{text}"));
            parts.extend(reader.cut());
            let told = parts.into_iter().map(|part| match part {
                Part::Said(ToolDelta::Content(text)) => text,
                part => panic!("{part:?}"),
            });
            assert_eq!(told.collect::<String>(), format!("I look{want}"));
            assert_eq!(reader.stop(), None, "{text}");
            // Outside of one it does.
            let mut reader = Reader::new(&reading, stops);
            reader.push("I look \n");
            reader.cut();
            assert_eq!(reader.stop(), Some("\n"));
        }
    }

    #[test]
    fn a_budget_is_spent_on_reasoning_and_waits_for_a_character() {
        let mut budget = Budget::new(2, vec![7, 8]);
        let mut next = |reasons, whole| budget.next(reasons, false, whole);
        assert_eq!((next(false, true), next(false, true)), (None, None));
        assert_eq!((next(true, true), next(true, false)), (None, None));
        assert_eq!((next(true, false), next(true, true)), (None, Some(7)));
        // The rest of the tag comes, whatever it reads like; then nothing more is forced.
        assert_eq!((next(true, true), next(true, true)), (Some(8), None));
        let mut never_whole = Budget::new(0, vec![7]);
        let forced: Vec<_> = (0..4)
            .map(|_| never_whole.next(true, false, false))
            .collect();
        assert_eq!(forced, [None, None, None, Some(7)]);
    }

    #[test]
    fn a_budget_lets_the_model_close_its_reasoning_itself() {
        // The closing tag in three tokens, and one that begins like it and goes on otherwise.
        for (pieces, forced) in [
            (["hm", "</", "think", ">", "a"], [false; 5]),
            (
                ["hm", "</", "b", "c", "d"],
                [false, false, false, true, true],
            ),
        ] {
            let tags = ReasoningTags::of_template("<think>").map(|t| (t, true));
            let reading = Reading {
                reasoning: tags,
                ..Reading::default()
            };
            let mut reader = Reader::new(&reading, Vec::new());
            let mut budget = Budget::new(2, vec![7, 8]);
            let told = pieces.map(|piece| {
                let id = budget.next(reader.reasons(), reader.closes(), true);
                reader.push(piece);
                id.is_some()
            });
            assert_eq!(told, forced, "{pieces:?}");
        }
    }
}
