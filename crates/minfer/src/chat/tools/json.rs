//! JSON that comes character by character, and the calls that are written in it.

use serde_json::Value;

use super::parser::{Sink, Step};

/// Deepest nesting; `serde_json`'s own.
const DEPTH: usize = 128;

/// What must come next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    Value,
    /// The first item of a list, or its end.
    Item,
    Key,
    /// The first key of an object, or its end.
    Member,
    Colon,
    /// A comma or the end of what is open.
    Next,
    Text,
    Escape,
    Hex(u8),
    /// More of a number, true, false or null.
    Word,
}

/// What a character is to the outermost object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Part of a key, with its quotes.
    Key,
    /// Between key and value.
    Colon,
    /// Part of a value.
    Value,
    /// White space, a comma, the end.
    Other,
}

/// Follows a JSON object (RFC 8259).
struct Json {
    open: Vec<char>,
    want: Want,
    key: bool,
    word: String,
}

impl Json {
    /// After an object's brace.
    fn opened() -> Json {
        Json {
            open: vec!['{'],
            want: Want::Member,
            key: false,
            word: String::new(),
        }
    }

    /// Whether the object has ended.
    fn ended(&self) -> bool {
        self.open.is_empty()
    }

    /// The next character; `None`: it can't stand here.
    fn push(&mut self, c: char) -> Option<Role> {
        let inner = self.open.len() > 1;
        let role = self.next(c)?;
        Some(if inner { Role::Value } else { role })
    }

    fn next(&mut self, c: char) -> Option<Role> {
        let space = matches!(c, ' ' | '\t' | '\r' | '\n');
        match self.want {
            Want::Text | Want::Escape | Want::Hex(_) => return self.text(c),
            Want::Word if !space && !matches!(c, ',' | '}' | ']') => {
                self.word.push(c);
                return Some(Role::Value);
            }
            Want::Word => {
                serde_json::from_str::<Value>(&self.word).ok()?;
                self.want = Want::Next;
            }
            _ => {}
        }
        if space {
            return Some(Role::Other);
        }
        match (self.want, c) {
            (Want::Key | Want::Member, '"') => {
                self.key = true;
                self.want = Want::Text;
                Some(Role::Key)
            }
            (Want::Colon, ':') => {
                self.want = Want::Value;
                Some(Role::Colon)
            }
            (Want::Next, ',') => {
                let object = self.open.last() == Some(&'{');
                self.want = if object { Want::Key } else { Want::Value };
                Some(Role::Other)
            }
            (Want::Next | Want::Member, '}') | (Want::Next | Want::Item, ']') => {
                let opening = if c == '}' { '{' } else { '[' };
                self.want = Want::Next;
                (self.open.pop()? == opening).then_some(Role::Other)
            }
            (Want::Value | Want::Item, _) => self.value(c),
            _ => None,
        }
    }

    fn value(&mut self, c: char) -> Option<Role> {
        match c {
            '"' => {
                self.key = false;
                self.want = Want::Text;
            }
            '{' | '[' if self.open.len() < DEPTH => {
                self.open.push(c);
                self.want = if c == '{' { Want::Member } else { Want::Item };
            }
            '-' | '0'..='9' | 't' | 'f' | 'n' => {
                self.word = c.to_string();
                self.want = Want::Word;
            }
            _ => return None,
        }
        Some(Role::Value)
    }

    fn text(&mut self, c: char) -> Option<Role> {
        self.want = match (self.want, c) {
            (Want::Hex(left), '0'..='9' | 'a'..='f' | 'A'..='F') => match left.checked_sub(1) {
                Some(left @ 1..) => Want::Hex(left),
                _ => Want::Text,
            },
            (Want::Escape, 'u') => Want::Hex(4),
            (Want::Escape, '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't') => Want::Text,
            (Want::Text, '"') if self.key => Want::Colon,
            (Want::Text, '"') => Want::Next,
            (Want::Text, '\\') => Want::Escape,
            (Want::Text, ' '..) => Want::Text,
            _ => return None,
        };
        Some(if self.key { Role::Key } else { Role::Value })
    }
}

/// A call's arguments alone, after their brace: `…}`.
pub(super) struct Arguments(Json);

impl Arguments {
    /// Tells the call's beginning.
    pub(super) fn opened(name: &str, sink: &mut Sink) -> Arguments {
        sink.start(name);
        sink.arguments("{");
        Arguments(Json::opened())
    }

    /// Tells the next character; the call's end is not told.
    pub(super) fn push(&mut self, c: char, sink: &mut Sink) -> Step {
        if self.0.push(c).is_none() {
            return Step::Bad;
        }
        sink.arguments(c.encode_utf8(&mut [0; 4]));
        match self.0.ended() {
            true => Step::Done,
            false => Step::More,
        }
    }
}

/// A call as an object: name, arguments, and what else a model adds, in any order.
pub(super) struct Object {
    json: Json,
    /// A call without arguments has none to say, or is no call.
    needs_arguments: bool,
    key: Option<String>,
    part: String,
    name: Option<String>,
    /// Arguments that came before the name.
    early: Option<String>,
    state: State,
}

#[derive(PartialEq, Eq)]
enum State {
    Before,
    /// Arguments are told as they come.
    Streaming,
    Told,
}

impl Object {
    /// After the call's brace.
    pub(super) fn opened(needs_arguments: bool) -> Object {
        Object {
            json: Json::opened(),
            needs_arguments,
            key: None,
            part: String::new(),
            name: None,
            early: None,
            state: State::Before,
        }
    }

    pub(super) fn push(&mut self, c: char, sink: &mut Sink) -> Step {
        let Some(role) = self.json.push(c) else {
            return Step::Bad;
        };
        match role {
            Role::Value if self.state == State::Streaming => {
                sink.arguments(c.encode_utf8(&mut [0; 4]));
            }
            Role::Value | Role::Key => {
                self.part.push(c);
                self.stream(sink);
            }
            Role::Colon => self.key = serde_json::from_str(&std::mem::take(&mut self.part)).ok(),
            Role::Other if self.value(sink).is_none() => return Step::Bad,
            Role::Other => {}
        }
        match self.json.ended() {
            true => self.end(sink),
            false => Step::More,
        }
    }

    /// Begins to tell the arguments, if they are what comes and the name is known.
    fn stream(&mut self, sink: &mut Sink) {
        let arguments = matches!(self.key.as_deref(), Some("arguments" | "parameters"));
        if let (true, "{", State::Before, Some(name)) =
            (arguments, self.part.as_str(), &self.state, &self.name)
        {
            sink.start(name);
            sink.arguments("{");
            self.state = State::Streaming;
        }
    }

    /// A value may have ended; `None`: it can't be.
    fn value(&mut self, sink: &mut Sink) -> Option<()> {
        // Space before a colon or a value ends none.
        if self.part.is_empty() || self.key.is_none() {
            return Some(());
        }
        let (key, part) = (self.key.take()?, std::mem::take(&mut self.part));
        match key.as_str() {
            "name" | "tool_name" => {
                let name: String = serde_json::from_str(&part).ok()?;
                if self.name.is_some() || !sink.knows(&name) {
                    return None;
                }
                self.name = Some(name);
            }
            "arguments" | "parameters" if self.state == State::Streaming => {
                self.state = State::Told;
            }
            "arguments" | "parameters" => {
                if self.state == State::Told || self.early.is_some() {
                    return None;
                }
                self.early = Some(object(&part)?);
            }
            _ => {}
        }
        if let (Some(name), Some(arguments)) = (&self.name, &self.early)
            && self.state == State::Before
        {
            sink.start(name);
            sink.arguments(arguments);
            self.state = State::Told;
        }
        Some(())
    }

    /// Tells a call that is cut before its arguments began, if its name is known: whatever they are, so they begin.
    pub(super) fn cut(&self, sink: &mut Sink) {
        if let (Some(name), State::Before) = (&self.name, &self.state) {
            sink.start(name);
            sink.arguments("{");
        }
    }

    fn end(&mut self, sink: &mut Sink) -> Step {
        match (&self.name, &self.state) {
            (Some(_), State::Told) => {}
            (Some(name), State::Before) if !self.needs_arguments => {
                sink.start(name);
                sink.arguments("{}");
            }
            _ => return Step::Bad,
        }
        sink.end()
    }
}

/// Arguments as an object's text: also those in a string, as OpenAI writes them, and null.
fn object(text: &str) -> Option<String> {
    match serde_json::from_str(text).ok()? {
        Value::Object(_) => Some(text.to_owned()),
        Value::Null => Some("{}".to_owned()),
        Value::String(inner) => matches!(serde_json::from_str(&inner), Ok(Value::Object(_)))
            .then(|| inner.trim().to_owned()),
        _ => None,
    }
}
