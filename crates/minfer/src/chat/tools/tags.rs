//! Calls in Qwen3-Coder's tags: `NAME><parameter=KEY>VALUE</parameter></function>`, after `<function=`.

use serde_json::{Map, Value};

use super::json::Arguments;
use super::parser::{AGAIN, Sink, Step};
use super::schema::Kinds;

const KEY: &str = "<parameter=";
const VALUE_END: &str = "</parameter>";
const END: &str = "</function>";

/// A call, after its opening.
pub(super) struct Tags {
    name: String,
    parameters: Map<String, Value>,
    part: Part,
    text: String,
}

enum Part {
    Name,
    /// Between values; whether arguments as JSON may still stand here.
    Between(bool),
    Key,
    Value(String),
    Json(Arguments),
    /// The arguments were JSON, and have ended.
    End,
}

impl Tags {
    /// After `<function=`.
    pub(super) fn named() -> Tags {
        Tags {
            name: String::new(),
            parameters: Map::new(),
            part: Part::Name,
            text: String::new(),
        }
    }

    /// Whether a tool on offer is named.
    pub(super) fn is_named(&self, sink: &Sink) -> bool {
        sink.knows(&self.name)
    }

    pub(super) fn push(&mut self, c: char, sink: &mut Sink) -> Step {
        if let Part::Json(json) = &mut self.part {
            return match json.push(c, sink) {
                Step::Done => {
                    self.part = Part::End;
                    Step::More
                }
                step => step,
            };
        }
        self.text.push(c);
        match &self.part {
            Part::Name if c == '>' => {
                self.name = self.taken(1);
                self.part = Part::Between(true);
                return match sink.knows(&self.name) {
                    true => Step::More,
                    false => Step::Bad,
                };
            }
            Part::Name if c == '\n' || c == '<' => return Step::Bad,
            Part::Between(json) => return self.between(*json, sink),
            Part::End => {
                return match self.text.trim_start() {
                    END => sink.end(),
                    _ if self.text.len() > AGAIN => Step::Bad,
                    text if END.starts_with(text) => Step::More,
                    _ => Step::Bad,
                };
            }
            Part::Key if c == '>' => {
                let key = self.taken(1);
                self.part = Part::Value(key);
            }
            Part::Key if c == '\n' || c == '<' => return Step::Bad,
            Part::Value(key) if c == '>' && self.text.ends_with(VALUE_END) => {
                let key = key.clone();
                let text = self.taken(VALUE_END.len());
                let text = text.strip_prefix('\n').unwrap_or(&text);
                let text = text.strip_suffix('\n').unwrap_or(text);
                let schema = sink.tool(&self.name).map(|t| &t.parameters);
                let kinds = schema.map_or_else(Kinds::default, |s| Kinds::of_property(s, &key));
                self.parameters.insert(key, kinds.value(text));
                self.part = Part::Between(false);
            }
            _ => {}
        }
        Step::More
    }

    fn between(&mut self, json: bool, sink: &mut Sink) -> Step {
        match self.text.trim_start() {
            END => {
                let arguments = Value::Object(std::mem::take(&mut self.parameters));
                sink.whole(&self.name, &arguments.to_string())
            }
            KEY => {
                self.text.clear();
                self.part = Part::Key;
                Step::More
            }
            "{" if json => {
                self.text.clear();
                self.part = Part::Json(Arguments::opened(&self.name, sink));
                Step::More
            }
            _ if self.text.len() > AGAIN => Step::Bad,
            text if END.starts_with(text) || KEY.starts_with(text) => Step::More,
            _ => Step::Bad,
        }
    }

    /// The text without its last `n` bytes; a new one begins.
    fn taken(&mut self, n: usize) -> String {
        let mut text = std::mem::take(&mut self.text);
        text.truncate(text.len().saturating_sub(n));
        text
    }
}
