//! Calls, read from an answer as it comes.

use std::sync::Arc;

use serde_json::Value;

use super::json::{Arguments, Object};
use super::literal::{Gemma, Python};
use super::tags::Tags;
use super::{FENCES, Opener, Tool, ToolDelta, ToolFormat, notation};
use crate::chat::hold::{hold, take};

/// Longest name read; a model that goes on is not naming a tool.
const NAME: usize = 256;
/// Most bytes of a call that is none that are searched for another call, and most white space around calls: so reading takes linear time.
pub(super) const AGAIN: usize = 4096;

/// What a character did to a call.
pub(super) enum Step {
    /// The call goes on.
    More,
    /// It was the call's last.
    Done,
    /// It can't be part of the call.
    Bad,
}

/// Where a call is told.
pub(super) struct Sink {
    tools: Arc<[Tool]>,
    index: usize,
    deltas: Vec<ToolDelta>,
}

impl Sink {
    pub(super) fn knows(&self, name: &str) -> bool {
        self.tool(name).is_some()
    }

    /// Whether a tool's name begins so.
    pub(super) fn names(&self, begin: &str) -> bool {
        self.tools.iter().any(|t| t.name.starts_with(begin))
    }

    pub(super) fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|t| t.name == name)
    }

    pub(super) fn start(&mut self, name: &str) {
        let (index, name) = (self.index, name.to_owned());
        self.deltas.push(ToolDelta::Start { index, name });
    }

    pub(super) fn arguments(&mut self, more: &str) {
        if let Some(ToolDelta::Arguments { piece, .. }) = self.deltas.last_mut() {
            piece.push_str(more);
            return;
        }
        let (index, piece) = (self.index, more.to_owned());
        self.deltas.push(ToolDelta::Arguments { index, piece });
    }

    pub(super) fn end(&mut self) -> Step {
        let index = self.index;
        self.deltas.push(ToolDelta::End { index });
        Step::Done
    }

    /// A call that is told at once.
    pub(super) fn whole(&mut self, name: &str, arguments: &str) -> Step {
        self.start(name);
        self.arguments(arguments);
        self.end()
    }
}

/// A call in one of the notations.
enum Call {
    Object(Object),
    /// Mistral's name, then its arguments.
    Name(String),
    Arguments(Arguments),
    Tags(Tags),
    Gemma(Gemma),
    Python(Python),
}

impl Call {
    fn push(&mut self, c: char, sink: &mut Sink) -> Step {
        match self {
            Call::Object(call) => call.push(c, sink),
            Call::Arguments(call) => match call.push(c, sink) {
                Step::Done => sink.end(),
                step => step,
            },
            Call::Tags(call) => call.push(c, sink),
            Call::Gemma(call) => call.push(c, sink),
            Call::Python(call) => call.push(c, sink),
            Call::Name(head) => {
                if c != '{' {
                    head.push(c);
                    let space = c.is_whitespace() && !head.trim_end().ends_with(']');
                    return match space || head.len() > NAME {
                        true => Step::Bad,
                        false => Step::More,
                    };
                }
                // NAME, NAME[ARGS] or NAME[CALL_ID]id[ARGS].
                let (name, marks) = head.split_once('[').unwrap_or((head, "ARGS]"));
                if !sink.knows(name) || !marks.trim_end().ends_with("ARGS]") {
                    return Step::Bad;
                }
                *self = Call::Arguments(Arguments::opened(name, sink));
                Step::More
            }
        }
    }

    /// Tells the beginning of a call that is cut, if one can be told of.
    fn cut(&self, sink: &mut Sink) {
        if let Call::Object(call) = self {
            call.cut(sink);
        }
    }

    /// Whether a tool on offer is named, in a notation that tells a call only when it is complete.
    fn waits(&self, sink: &Sink) -> bool {
        match self {
            Call::Tags(call) => call.is_named(sink),
            Call::Gemma(call) => call.is_named(),
            Call::Python(call) => call.is_named(),
            Call::Object(_) | Call::Name(_) | Call::Arguments(_) => false,
        }
    }
}

enum State {
    /// At the start of an answer that is either calls or JSON.
    Either,
    /// Within such JSON: no call comes.
    Json,
    /// Outside of calls. `start`: nothing has come that could not stand before a call; `after`: a call was last.
    Text { start: bool, after: bool },
    /// After an opening marker (the first `mark` bytes of what is raw), or after a call within it.
    Inside {
        mark: usize,
        calls: bool,
        close: &'static str,
    },
    /// Within a call that is to be read from `mark` again if it is none.
    Call {
        call: Box<Call>,
        mark: usize,
        close: &'static str,
    },
}

/// Outside of calls, after other text.
const PLAIN: State = State::Text {
    start: false,
    after: false,
};

/// What stands next within a marker.
enum Next {
    Call(Call),
    /// Perhaps a call's beginning.
    Wait,
    /// No call.
    Nothing,
}

/// The beginning of a JSON text, without the white space between its parts.
fn squeezed(text: &str) -> String {
    let (mut within, mut escaped) = (false, false);
    let keep = |c: &char| {
        match c {
            _ if escaped => escaped = false,
            '\\' if within => escaped = true,
            '"' => within = !within,
            _ => return within || !c.is_whitespace(),
        }
        true
    };
    text.chars().filter(keep).collect()
}

/// Reads calls from an answer that comes in pieces. How it is cut changes nothing.
///
/// Text outside of calls is content, exactly, and only what may become a marker waits; white space, commas and marks around a call belong to it. A call's
/// name is told once it is known to be a tool on offer, its arguments as they come where the format writes them as JSON, else whole.
///
/// What looks like a call and is none (other JSON, an unknown tool, an answer that ends too early) is content, exactly as it came; but of an answer that is
/// [cut off](ToolParser::cut) a marker is not told that no call follows. Once a part of a
/// call was told it can't be taken back: what is wrong then and all that follows is content, an answer that ends leaves the call cut, and in
/// both cases no [`ToolDelta::End`] comes. [`ToolParser::whole`] avoids that where calls are told whole even in a stream, as Ollama's lines have them.
pub struct ToolParser {
    format: ToolFormat,
    whole: bool,
    state: State,
    /// What was not told yet, and what is to be told as content if a call is none.
    raw: String,
    /// What is to be read before the next piece, last character first.
    todo: Vec<char>,
    sink: Sink,
    /// The call at hand was told in part.
    told: bool,
    /// A marker opened what is read, outside of text; of a second call the raw text does not show it.
    marked: bool,
    /// The answer is calls without a marker and nothing else.
    forced: bool,
    out: Vec<ToolDelta>,
}

impl ToolParser {
    /// A parser at the start of an answer of a model that was offered `tools`.
    pub fn new(format: ToolFormat, tools: impl Into<Arc<[Tool]>>) -> ToolParser {
        ToolParser {
            format,
            whole: false,
            state: State::Text {
                start: true,
                after: false,
            },
            raw: String::new(),
            todo: Vec::new(),
            sink: Sink {
                tools: tools.into(),
                index: 0,
                deltas: Vec::new(),
            },
            told: false,
            marked: false,
            forced: false,
            out: Vec::new(),
        }
    }

    /// The same, but a call is told only when it is complete: one that is not is content from its first character on.
    pub fn whole(mut self) -> ToolParser {
        self.whole = true;
        self
    }

    /// The same for an answer that a grammar holds to calls, written as [`ToolFormat::grammar`] does, or else to JSON of a schema
    /// ([`super::ToolRules::answer`]): its first characters tell which it is, and JSON does not wait.
    pub fn beside_json(mut self) -> ToolParser {
        self.state = State::Either;
        self
    }

    /// The same after the answer's beginning, which is content: what only the first characters of an answer can open, a call without a marker, does not come.
    pub fn begun(mut self) -> ToolParser {
        self.state = PLAIN;
        self
    }

    /// The same for an answer that a grammar holds to calls, as [`ToolFormat::grammar`] writes them: what begins it is one, also where no marker says so.
    pub fn forced(mut self) -> ToolParser {
        self.forced = notation::of(self.format).mark.is_empty();
        self
    }

    /// Whether what is read is known to be a call before its tool is.
    fn is_certain(&self) -> bool {
        self.marked || self.forced
    }

    /// Whether the text so far ends within a call: after a marker, or after a tool's name or a part of it. JSON that does not name a tool may be any.
    pub fn is_inside(&self) -> bool {
        match &self.state {
            State::Either | State::Json | State::Text { .. } => false,
            State::Inside { calls, close, .. } => match calls {
                true => close.starts_with('<'),
                false => self.is_certain(),
            },
            State::Call { mark, close, .. } => {
                let head = squeezed(self.raw.get(*mark..).unwrap_or_default());
                let name = head.trim_start_matches('[').strip_prefix("{\"name\":\"");
                let named = name.is_some_and(|name| match name.split_once('"') {
                    Some((name, _)) => self.sink.knows(name),
                    None => !name.is_empty() && self.sink.names(name),
                });
                self.told || named || self.is_certain() || close.starts_with('<')
            }
        }
    }

    /// Text that was taken and is not told yet, unless it is of a call that was told in part.
    pub fn held(&self) -> &str {
        match &self.state {
            State::Call { .. } if self.told => "",
            _ => &self.raw,
        }
    }

    /// Takes the next piece.
    pub fn push(&mut self, piece: &str) -> Vec<ToolDelta> {
        self.todo.extend(piece.chars().rev());
        self.run();
        std::mem::take(&mut self.out)
    }

    /// Ends an answer that was cut off: a marker of which only the beginning came, and one behind which no tool was named yet, are not told, nor what stands
    /// between them and the next call. So llama-server has it. Behind a tool's name more than a marker would be lost: the call is told as far as it came, or,
    /// where it is told whole or not at all (by its notation, or [`ToolParser::whole`]), its text is content.
    pub fn cut(&mut self) -> Vec<ToolDelta> {
        let begins = |raw: &str| {
            let mut openers = self.format.openers().iter();
            !raw.is_empty() && openers.any(|o| o.text.starts_with(raw))
        };
        let untold = self.is_certain() && !self.told;
        let (begun, waits) = match &self.state {
            State::Text { .. } | State::Either => (begins(self.raw.trim_start()), false),
            State::Inside { .. } => (self.is_certain(), false),
            State::Call { call, .. } if untold => {
                if !self.whole {
                    call.cut(&mut self.sink);
                }
                (!self.whole, call.waits(&self.sink))
            }
            State::Call { .. } | State::Json => (false, false),
        };
        if begun || waits {
            let raw = std::mem::take(&mut self.raw);
            self.state = PLAIN;
            for delta in std::mem::take(&mut self.sink.deltas) {
                self.tell(delta);
            }
            if waits {
                self.content(&raw);
            }
        }
        self.finish()
    }

    /// Ends the answer.
    pub fn finish(&mut self) -> Vec<ToolDelta> {
        loop {
            let raw = self.raw.trim_start();
            match &self.state {
                State::Text { after, .. } => {
                    if !(*after && raw.is_empty()) {
                        let raw = std::mem::take(&mut self.raw);
                        self.content(&raw);
                    }
                    break;
                }
                State::Either | State::Json => {
                    let raw = std::mem::take(&mut self.raw);
                    self.content(&raw);
                    break;
                }
                // What may stand after a call is no loss.
                State::Inside { calls, close, .. } if *calls && close.starts_with(raw) => break,
                State::Call { .. } if self.told => break,
                State::Inside { mark, .. } | State::Call { mark, .. } => self.give_up(*mark),
            }
            self.run();
        }
        std::mem::take(&mut self.out)
    }

    fn run(&mut self) {
        while let Some(c) = self.todo.pop() {
            match &mut self.state {
                State::Either => self.either(c),
                State::Json => self.content(c.encode_utf8(&mut [0; 4])),
                State::Text { start, after } => {
                    // After Hermes' tags only tags begin a call.
                    let start = *start && !(*after && self.format == ToolFormat::Hermes);
                    self.text(c, start);
                }
                State::Inside { mark, calls, close } => {
                    let (mark, calls, close) = (*mark, *calls, *close);
                    self.raw.push(c);
                    self.inside(mark, calls, close);
                }
                State::Call { call, mark, close } => {
                    self.raw.push(c);
                    let (mark, close) = (*mark, *close);
                    let step = call.push(c, &mut self.sink);
                    self.called(c, step, mark, close);
                }
            }
        }
    }

    /// Looks whether an answer begins with a marker, or as a call of one of the tools does.
    fn either(&mut self, c: char) {
        self.raw.push(c);
        let begun = squeezed(&self.raw);
        let key = self.format.key();
        let heads = self.sink.tools.iter();
        let heads =
            heads.map(|t| format!("{{\"name\":{},\"{key}\":", Value::from(t.name.as_str())));
        let bare = notation::of(self.format).mark.is_empty();
        let marks = self.format.openers().iter().map(|o| o.text.to_owned());
        let mut all = heads.filter(|_| bare).chain(marks);
        match all.find(|head| head.starts_with(&begun)) {
            Some(head) if head == begun => {
                let raw = std::mem::take(&mut self.raw);
                self.todo.extend(raw.chars().rev());
                self.state = State::Text {
                    start: true,
                    after: false,
                };
            }
            Some(_) if self.raw.len() <= AGAIN => {}
            _ => {
                self.state = State::Json;
                let raw = std::mem::take(&mut self.raw);
                self.content(&raw);
            }
        }
    }

    fn text(&mut self, c: char, start: bool) {
        if start && self.format.bare() && !c.is_whitespace() {
            self.todo.push(c);
            let mark = self.raw.len();
            self.marked = false;
            return self.enter(mark, false, "");
        }
        let more = c.is_whitespace() && self.raw.ends_with(char::is_whitespace);
        self.raw.push(c);
        if more {
            return;
        }
        let openers = self.format.openers();
        let begins = |end: &str| openers.iter().any(|o| o.text.starts_with(end));
        let n = hold(&self.raw, begins);
        if n > 0 {
            let text = take(&mut self.raw, n);
            self.content(&text);
            self.state = PLAIN;
        }
        let found = openers.iter().find(|o| o.text == self.raw.trim_start());
        if let Some(Opener { close, naked, .. }) = found {
            let mark = self.raw.len();
            self.marked = true;
            match naked {
                true => self.call(Call::Tags(Tags::named()), mark, close),
                false => self.enter(mark, false, close),
            }
        }
    }

    fn enter(&mut self, mark: usize, calls: bool, close: &'static str) {
        self.state = State::Inside { mark, calls, close };
    }

    fn call(&mut self, call: Call, mark: usize, close: &'static str) {
        let call = Box::new(call);
        self.told = false;
        self.state = State::Call { call, mark, close };
    }

    fn inside(&mut self, mark: usize, calls: bool, close: &'static str) {
        let skip = |c: char| c.is_whitespace() || (if calls { ",;" } else { "[" }).contains(c);
        let text = self.raw.get(mark..).unwrap_or("").trim_start_matches(skip);
        if calls && text == "]" {
            // The end of a list is no loss, whatever follows.
            self.raw.clear();
            return;
        }
        if !calls && self.format.bare() && text.starts_with('`') {
            return self.fence(mark);
        }
        if self.raw.len().saturating_sub(mark) > AGAIN {
            return self.give_up(mark);
        }
        match self.next(text, calls, close) {
            Next::Call(call) => self.call(call, mark, close),
            Next::Wait => {}
            Next::Nothing if calls && !close.is_empty() && text == close => {
                self.raw.clear();
                self.state = State::Text {
                    start: true,
                    after: true,
                };
            }
            Next::Nothing if calls && close.starts_with(text) => {}
            Next::Nothing => self.give_up(mark),
        }
    }

    /// A code fence before a call: its language is known, and it ends in white space.
    fn fence(&mut self, mark: usize) {
        let text = self.raw.get(mark..).unwrap_or("");
        let line = text.trim_end();
        if line.len() < text.len() && FENCES.contains(&line) {
            let mark = self.raw.len();
            self.enter(mark, false, "```");
        } else if line.len() < text.len() || !FENCES.iter().any(|k| k.starts_with(text)) {
            self.give_up(mark);
        }
    }

    /// What `text`, without what may stand before a call, begins. `close` ends what the call stands in.
    fn next(&self, text: &str, calls: bool, close: &str) -> Next {
        let open = |mark: &str, call: Call| match mark {
            _ if mark == text => Next::Call(call),
            _ if mark.starts_with(text) => Next::Wait,
            _ => Next::Nothing,
        };
        let named = text.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        // Within Hermes' own tags, what has a name is a call.
        let tagged = self.format == ToolFormat::Hermes && close.starts_with('<');
        let object = || Call::Object(Object::opened(self.format.bare() && !tagged));
        match self.format {
            _ if text.is_empty() => Next::Wait,
            ToolFormat::QwenCoder => open("<function=", Call::Tags(Tags::named())),
            ToolFormat::Gemma | ToolFormat::FunctionGemma => {
                open("call:", Call::Gemma(Gemma::named()))
            }
            ToolFormat::Mistral | ToolFormat::MistralArgs if named && !calls => {
                Next::Call(Call::Name(text.to_owned()))
            }
            ToolFormat::Python if named => Next::Call(Call::Python(Python::begun(text))),
            _ => open("{", object()),
        }
    }

    /// After a call's character: tells what is known of it.
    fn called(&mut self, c: char, step: Step, mark: usize, close: &'static str) {
        let done = matches!(step, Step::Done);
        if matches!(step, Step::Bad) {
            self.sink.deltas.clear();
            if !self.told {
                return self.give_up(mark);
            }
            // What was told stays; the rest is no call's.
            self.sink.index = self.sink.index.saturating_add(1);
            self.raw.clear();
            self.todo.push(c);
            self.state = PLAIN;
        } else if done || !self.whole {
            self.told |= !self.sink.deltas.is_empty();
            for delta in std::mem::take(&mut self.sink.deltas) {
                self.tell(delta);
            }
        }
        if done {
            self.sink.index = self.sink.index.saturating_add(1);
            self.raw.clear();
            self.enter(0, true, close);
        }
    }

    /// What is raw is no call: up to `mark` it is content, and the rest is read again, unless it is long.
    fn give_up(&mut self, mark: usize) {
        self.sink.deltas.clear();
        let long = self.raw.len() > AGAIN;
        let mark = if long { self.raw.len() } else { mark };
        let marker = take(&mut self.raw, mark);
        self.content(&marker);
        let rest = std::mem::take(&mut self.raw);
        self.todo.extend(rest.chars().rev());
        self.state = PLAIN;
    }

    fn content(&mut self, text: &str) {
        if !text.is_empty() {
            self.tell(ToolDelta::Content(text.to_owned()));
        }
    }

    /// Appends to what is told, joining what belongs together.
    fn tell(&mut self, delta: ToolDelta) {
        match (self.out.last_mut(), delta) {
            (Some(ToolDelta::Content(last)), ToolDelta::Content(more)) => last.push_str(&more),
            (
                Some(ToolDelta::Arguments { piece: last, .. }),
                ToolDelta::Arguments { piece: more, .. },
            ) => last.push_str(&more),
            (_, delta) => self.out.push(delta),
        }
    }
}
