//! Grammars (llguidance's dialect of Lark) of answers that call tools.

use serde_json::{Value, json};

use super::notation::{self, Notation};
use super::schema;
use super::{Tool, ToolError, ToolFormat};
use crate::chat::ReasoningTags;

/// White space between the parts of a JSON text: as in constraints by schema, it can't go on forever.
const SPACE: &str = r" |\n{1,2}[ \t]{0,20}";

/// Whether a model must call a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolChoice<'a> {
    /// It may; only calls of strict tools are held to their schemas.
    Auto,
    /// It must, and the schemas hold.
    Required,
    /// It must call this tool, and its schema holds.
    Named(&'a str),
}

/// What a grammar of calls is to say.
#[derive(Clone, Copy, Debug)]
pub struct ToolRules<'a> {
    /// The tools on offer.
    pub tools: &'a [Tool],
    /// Whether to call one.
    pub choice: ToolChoice<'a>,
    /// More than one call is allowed. Llama 3 knows only one.
    pub parallel: bool,
    /// Reasoning that may stand first, and whether the prompt has opened it.
    pub reasoning: Option<(ReasoningTags, bool)>,
}

/// A grammar's text in the making.
pub(super) struct Lark<'a> {
    /// The id of the control token with a text.
    control: &'a dyn Fn(&str) -> Option<u32>,
    /// Names, and what comes after them.
    rules: Vec<(String, String)>,
}

impl Lark<'_> {
    /// A text, spelled by tokens that are text.
    pub(super) fn text(&self, text: &str) -> String {
        json!(text).to_string()
    }

    /// A marker; one that is a control token is named by its id.
    pub(super) fn mark(&self, mark: &str) -> String {
        match (self.control)(mark) {
            Some(id) => format!("<[{id}]>"),
            None => self.text(mark),
        }
    }

    /// A rule of its own; its name.
    pub(super) fn rule(&mut self, expression: &str) -> String {
        self.defined(format!(": {expression}"))
    }

    /// A rule with a name, once.
    pub(super) fn named(&mut self, name: &str, expression: &str) {
        if !self.rules.iter().any(|(n, _)| n == name) {
            let rest = format!(": {expression}");
            self.rules.push((name.to_owned(), rest));
        }
    }

    /// Any text up to and with a marker.
    pub(super) fn until(&mut self, mark: &str) -> String {
        match (self.control)(mark) {
            Some(id) => self.rule(&format!("/(?s:.+)/? <[{id}]>")),
            None => self.defined(format!("[suffix={}]: /(?s:.*)/", json!(mark))),
        }
    }

    fn defined(&mut self, rest: String) -> String {
        if let Some((name, _)) = self.rules.iter().find(|(_, r)| *r == rest) {
            return name.clone();
        }
        let name = format!("r{}", self.rules.len());
        self.rules.push((name.clone(), rest));
        name
    }

    /// A JSON value of a schema.
    pub(super) fn json(&self, schema: &Value) -> String {
        let mut schema = schema.clone();
        if let Value::Object(map) = &mut schema {
            let space = json!({"whitespace_pattern": SPACE});
            map.insert("x-guidance".to_owned(), space);
        }
        format!("%json {schema}")
    }
}

/// A text as a regular expression between slashes.
fn escaped(text: &str) -> String {
    regex::escape(text).replace('/', "\\/")
}

impl ToolFormat {
    /// A Lark grammar (rule `start`) of answers that call tools as `rules` say; `None`: nothing is to be constrained. `control` gives the id of the
    /// control token with a text, if the vocabulary has one: such a marker stands as `<[id]>` in the grammar, all others as plain text.
    ///
    /// Each format is written in one way, the first in [`ToolFormat`]'s documentation; the parser reads all. Where no marker opens calls, free text can't
    /// begin like one. In calls that are no JSON, types and enumerations hold, and a strict schema that says more of a text is refused.
    ///
    /// # Errors
    /// A choice that no tool answers, a schema of something else than an object, a strict schema that the format can't be held to.
    pub fn grammar(
        self,
        rules: &ToolRules<'_>,
        control: &dyn Fn(&str) -> Option<u32>,
    ) -> Result<Option<String>, ToolError> {
        let auto = rules.choice == ToolChoice::Auto;
        if auto && !rules.tools.iter().any(|t| t.strict) {
            return Ok(None);
        }
        let named = |t: &&Tool| match rules.choice {
            ToolChoice::Named(name) => t.name == name,
            _ => true,
        };
        let tools: Vec<&Tool> = rules.tools.iter().filter(named).collect();
        match rules.choice {
            ToolChoice::Named(name) if tools.is_empty() => {
                return Err(ToolError::Unknown(name.to_owned()));
            }
            _ if tools.is_empty() => return Err(ToolError::NoTools),
            _ => {}
        }
        let mut lark = Lark {
            control,
            rules: Vec::new(),
        };
        let mut calls = Vec::new();
        for tool in &tools {
            let parameters = match auto && !tool.strict {
                true => json!({"type": "object"}),
                false => schema::object(&tool.parameters)
                    .map(Value::Object)
                    .ok_or_else(|| ToolError::Parameters {
                        tool: tool.name.clone(),
                    })?,
            };
            calls.push(self.call(&mut lark, tool, &parameters)?);
        }
        let call = lark.rule(&calls.join(" | "));
        let reasoning = rules.reasoning.map(|(tags, open)| {
            let rest = lark.until(tags.close);
            let gap = "/\\s{1,4}/?";
            match open {
                true => format!("{rest} {gap}"),
                false => format!("({} {rest} {gap})?", lark.mark(tags.open)),
            }
        });
        let reasoning = reasoning.unwrap_or_default();
        let answer = self.answer(&mut lark, &call, &tools, rules);
        let rules = lark
            .rules
            .iter()
            .map(|(name, rest)| format!("{name}{rest}\n"));
        let rules: String = rules.collect();
        Ok(Some(format!("start: {reasoning} {answer}\n{rules}")))
    }

    /// What follows reasoning, from the rule of one call.
    fn answer(self, lark: &mut Lark, call: &str, tools: &[&Tool], rules: &ToolRules) -> String {
        let auto = rules.choice == ToolChoice::Auto;
        let many = rules.parallel && self != ToolFormat::Llama3;
        let Notation {
            mark,
            head,
            tail,
            list,
        } = notation::of(self);
        // A list stands in its marker; other calls have a marker each.
        let (between, again) = match (list, mark.is_empty()) {
            (true, _) => ("\", \"", String::new()),
            (_, true) => ("\"\\n\"", String::new()),
            _ => ("\"\\n\"?", lark.mark(mark)),
        };
        let [head, tail] = [head, tail].map(|parts| {
            let parts: Vec<String> = parts.iter().map(|p| lark.mark(p)).collect();
            parts.join(" ")
        });
        let one = match list {
            true if many => lark.rule(&format!("{head} {call} ({between} {call})* {tail}")),
            _ => lark.rule(&format!("{head} {call} {tail}")),
        };
        let more = match many && !list {
            true => format!("({between} {again} {one})*"),
            false => String::new(),
        };
        if auto && !mark.is_empty() {
            let free = lark.until(mark);
            let times = if many && !list { "*" } else { "?" };
            self.free(lark, tools);
            return format!("({free} {one}){times} FREE?");
        }
        let mark = if mark.is_empty() {
            mark.to_owned()
        } else {
            lark.mark(mark)
        };
        if auto {
            self.free(lark, tools);
            return format!("({one} {more} | FREE)?");
        }
        format!("{mark} {one} {more}")
    }

    /// Defines `FREE`, a text that the parser finds no call in.
    fn free(self, lark: &mut Lark, tools: &[&Tool]) {
        let openers = self.openers().iter().map(|o| escaped(o.text));
        let openers: Vec<String> = openers.collect();
        let mut never = format!("(?s:.*)({})(?s:.*)", openers.join("|"));
        if self.bare() {
            let mut begins = vec!["\\{".to_owned()];
            if self == ToolFormat::Python {
                begins.extend(tools.iter().map(|t| format!("{}\\(", escaped(&t.name))));
            }
            let fences: Vec<String> = super::FENCES.iter().map(|f| escaped(f)).collect();
            let (fences, begins) = (fences.join("|"), begins.join("|"));
            never = format!("({never}|\\s*(({fences})\\s+)*[\\[\\s]*({begins})(?s:.*))");
        }
        lark.named("FREE", &format!("/(?s:.+)/ & ~/{never}/"));
    }

    /// A call between its marks.
    fn call(self, lark: &mut Lark, tool: &Tool, parameters: &Value) -> Result<String, ToolError> {
        let name = json!(tool.name);
        let in_json = |key: &str, lark: &mut Lark| {
            let head = format!("{{\"name\": {name}, \"{key}\": ");
            let arguments = lark.json(parameters);
            format!("{} {arguments} \"}}\"", lark.text(&head))
        };
        Ok(match self {
            ToolFormat::Hermes | ToolFormat::Mistral | ToolFormat::Json => {
                in_json("arguments", lark)
            }
            ToolFormat::Llama3 | ToolFormat::Python => in_json("parameters", lark),
            ToolFormat::MistralArgs => {
                let arguments = lark.json(parameters);
                format!("{name} {} {arguments}", lark.mark("[ARGS]"))
            }
            ToolFormat::QwenCoder => notation::tags(lark, tool, parameters)?,
            ToolFormat::Gemma => notation::gemma(lark, tool, parameters, "<|\"|>")?,
            ToolFormat::FunctionGemma => notation::gemma(lark, tool, parameters, "<escape>")?,
        })
    }
}
