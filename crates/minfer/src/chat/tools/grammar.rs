//! Grammars (llguidance's dialect of Lark) of answers that call tools.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use super::notation::{self, Notation};
use super::plain::plain_schema;
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
    /// More than one call is allowed; if not, a grammar holds the answer to one, whatever the choice. Llama 3 knows only one.
    pub parallel: bool,
    /// Reasoning that may stand first, and whether the prompt has opened it.
    pub reasoning: Option<(ReasoningTags, bool)>,
    /// The schema of an answer in JSON that calls nothing, where the choice allows one; `None`: any text. Such an answer is read by a parser that knows of it
    /// ([`super::ToolParser::beside_json`]); what could be both, where calls have no marker, is a call.
    pub answer: Option<&'a Value>,
}

impl ToolRules<'_> {
    /// Whether they need a grammar: without one an answer is any text.
    pub fn bind(&self) -> bool {
        let strict = self.tools.iter().any(|t| t.strict);
        strict || !self.parallel || self.answer.is_some() || !self.is_auto()
    }

    fn is_auto(&self) -> bool {
        self.choice == ToolChoice::Auto
    }

    /// The tools that may be called.
    fn called(&self) -> Result<Vec<&Tool>, ToolError> {
        let named = |t: &&Tool| match self.choice {
            ToolChoice::Named(name) => t.name == name,
            _ => true,
        };
        let tools: Vec<&Tool> = self.tools.iter().filter(named).collect();
        match self.choice {
            ToolChoice::Named(name) if tools.is_empty() => Err(ToolError::Unknown(name.to_owned())),
            _ if tools.is_empty() => Err(ToolError::NoTools),
            _ => Ok(tools),
        }
    }

    /// Whether calls of a tool are held to its schema.
    pub fn hold(&self, tool: &Tool) -> bool {
        match self.choice {
            ToolChoice::Auto => tool.strict,
            ToolChoice::Required => true,
            ToolChoice::Named(name) => name == tool.name,
        }
    }

    /// What the arguments of a tool's calls are held to.
    fn parameters(&self, tool: &Tool) -> Result<Value, ToolError> {
        if !self.hold(tool) {
            return Ok(json!({"type": "object"}));
        }
        let object = schema::object(&tool.parameters).map(Value::Object);
        object.ok_or_else(|| ToolError::Parameters {
            tool: tool.name.clone(),
        })
    }
}

/// A grammar's text in the making.
pub(super) struct Lark<'a> {
    /// The id of the control token with a text.
    control: &'a dyn Fn(&str) -> Option<u32>,
    /// Names, and what comes after them.
    rules: Vec<(String, String)>,
    /// The first name of each of those.
    names: HashMap<String, String>,
    /// Names that say what they stand for.
    spoken: HashSet<String>,
}

impl<'a> Lark<'a> {
    fn new(control: &'a dyn Fn(&str) -> Option<u32>) -> Lark<'a> {
        Lark {
            control,
            rules: Vec::new(),
            names: HashMap::new(),
            spoken: HashSet::new(),
        }
    }

    /// A text, spelled by tokens that are text.
    pub(super) fn text(&self, text: &str) -> String {
        json!(text).to_string()
    }

    /// A marker; one that is a control token, or begins with one, is named by its id.
    pub(super) fn mark(&self, mark: &str) -> String {
        let (token, rest) = first_token(mark);
        match ((self.control)(mark), (self.control)(token)) {
            (Some(id), _) => format!("<[{id}]>"),
            (None, Some(id)) => format!("<[{id}]> {}", self.text(rest)),
            (None, None) => self.text(mark),
        }
    }

    /// Reasoning that comes first, after an opening marker unless the prompt has `opened` it.
    fn reasoning(&mut self, tags: ReasoningTags, opened: bool) -> String {
        let rest = self.until(tags.close);
        let gap = "/\\s{1,4}/?";
        match opened {
            true => format!("{rest} {gap}"),
            false => format!("({} {rest} {gap})?", self.mark(tags.open)),
        }
    }

    /// The whole grammar, of an expression for the answer.
    fn grammar(&self, start: &str) -> String {
        let rules = self.rules.iter();
        let rules: String = rules
            .map(|(name, rest)| format!("{name}{rest}\n"))
            .collect();
        format!("start: {start}\n{rules}")
    }

    /// A rule of its own; its name.
    pub(super) fn rule(&mut self, expression: &str) -> String {
        self.defined(format!(": {expression}"))
    }

    /// A rule with a name, once.
    pub(super) fn named(&mut self, name: &str, expression: &str) {
        if self.spoken.insert(name.to_owned()) {
            self.define(name.to_owned(), format!(": {expression}"));
        }
    }

    /// Any text up to and with a marker.
    pub(super) fn until(&mut self, mark: &str) -> String {
        self.text_until("(?s:.+)", mark)
    }

    /// A text of a regular expression, or none, up to and with a marker.
    fn text_until(&mut self, text: &str, mark: &str) -> String {
        match (self.control)(mark) {
            Some(id) => self.rule(&format!("/{text}/? <[{id}]>")),
            None => self.defined(format!("[suffix={}]: /({text})?/", json!(mark))),
        }
    }

    fn defined(&mut self, rest: String) -> String {
        if let Some(name) = self.names.get(&rest) {
            return name.clone();
        }
        let name = format!("r{}", self.rules.len());
        self.define(name.clone(), rest);
        name
    }

    fn define(&mut self, name: String, rest: String) {
        self.names
            .entry(rest.clone())
            .or_insert_with(|| name.clone());
        self.rules.push((name, rest));
    }

    /// A JSON value of a schema.
    pub(super) fn json(&self, schema: &Value) -> Result<String, ToolError> {
        let plain = plain_schema(schema, "#").map_err(ToolError::References)?;
        Ok(self.plain_json(plain))
    }

    /// A JSON value of a schema in plain words.
    fn plain_json(&self, mut schema: Value) -> String {
        if let Value::Object(map) = &mut schema {
            let space = json!({"whitespace_pattern": SPACE});
            map.insert("x-guidance".to_owned(), space);
        }
        format!("%json {schema}")
    }
}

/// The control token that a marker may begin with, by its form, and what follows it.
pub(in crate::chat) fn first_token(mark: &str) -> (&str, &str) {
    let end = mark.find("|>").and_then(|at| at.checked_add(2));
    let end = end.or_else(|| mark.find('>').and_then(|at| at.checked_add(1)));
    mark.split_at_checked(end.unwrap_or(mark.len()))
        .unwrap_or((mark, ""))
}

/// A Lark grammar of a JSON text of a schema that comes after reasoning: `opened` says whether the prompt has opened that, otherwise there may be
/// none. `control` as in [`ToolFormat::grammar`].
///
/// # Errors
/// A reference in the schema that would have too much copied.
pub fn json_after_reasoning(
    schema: &Value,
    tags: ReasoningTags,
    opened: bool,
    control: &dyn Fn(&str) -> Option<u32>,
) -> Result<String, ToolError> {
    let mut lark = Lark::new(control);
    let reasoning = lark.reasoning(tags, opened);
    let json = lark.json(schema)?;
    let json = lark.rule(&json);
    Ok(lark.grammar(&format!("{reasoning} {json}")))
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
    /// A choice that no tool answers, a schema of something else than an object, one with a reference to too much, a strict schema that the format can't
    /// be held to.
    pub fn grammar(
        self,
        rules: &ToolRules<'_>,
        control: &dyn Fn(&str) -> Option<u32>,
    ) -> Result<Option<String>, ToolError> {
        if !rules.bind() {
            return Ok(None);
        }
        let beside = self.beside(rules)?;
        let tools = rules.called()?;
        let mut lark = Lark::new(control);
        let mut calls = Vec::new();
        for tool in &tools {
            let parameters = rules.parameters(tool)?;
            calls.push(match beside {
                // Of the same parts as the answer, or the first of them would decide which it is.
                true => lark.plain_json(schema::named(&tool.name, self.key(), &parameters)?),
                false => self.call(&mut lark, tool, &parameters)?,
            });
        }
        let call = lark.rule(&calls.join(" | "));
        let reasoning = rules
            .reasoning
            .map(|(tags, open)| lark.reasoning(tags, open));
        let reasoning = reasoning.unwrap_or_default();
        let answer = self.answer(&mut lark, &call, &tools, rules)?;
        Ok(Some(lark.grammar(&format!("{reasoning} {answer}"))))
    }

    /// Whether an answer in JSON stands beside calls that are JSON without a marker.
    ///
    /// # Errors
    /// It could say what reads as a call that does not follow its strict tool's schema.
    fn beside(self, rules: &ToolRules<'_>) -> Result<bool, ToolError> {
        let unmarked = notation::of(self).mark.is_empty();
        let answer = rules.answer.filter(|_| rules.is_auto() && unmarked);
        let Some(schema) = answer else {
            return Ok(false);
        };
        let strict = rules.tools.iter().any(|t| t.strict);
        let mut keys = ["name", self.key()].into_iter();
        match strict && !keys.any(|key| schema::never_has(schema, key)) {
            true => Err(ToolError::Answer(self.key())),
            false => Ok(true),
        }
    }

    /// What follows reasoning, from the rule of one call.
    fn answer(
        self,
        lark: &mut Lark,
        call: &str,
        tools: &[&Tool],
        rules: &ToolRules,
    ) -> Result<String, ToolError> {
        let auto = rules.is_auto();
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
        let marked = match mark.is_empty() {
            true => String::new(),
            false => lark.mark(mark),
        };
        if let (true, Some(schema)) = (auto, rules.answer) {
            let json = lark.json(schema)?;
            let json = lark.rule(&json);
            return Ok(format!("({marked} {one} {more} | {json})"));
        }
        if auto && !mark.is_empty() {
            // A call without its marker is read as one, too: the text before a marker does not begin so.
            let free = match self.bare() {
                true => lark.text_until("(\\s+|\\s*[^\\s{\\[`](?s:.*))", mark),
                false => lark.until(mark),
            };
            let times = if many && !list { "*" } else { "?" };
            self.free(lark, tools);
            return Ok(format!("({free} {one}){times} FREE?"));
        }
        if auto {
            self.free(lark, tools);
            return Ok(format!("({one} {more} | FREE)?"));
        }
        Ok(format!("{marked} {one} {more}"))
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
        let in_json = |lark: &mut Lark| -> Result<String, ToolError> {
            let head = format!("{{\"name\": {name}, \"{}\": ", self.key());
            let arguments = lark.json(parameters)?;
            Ok(format!("{} {arguments} \"}}\"", lark.text(&head)))
        };
        Ok(match self {
            ToolFormat::Hermes
            | ToolFormat::Mistral
            | ToolFormat::Json
            | ToolFormat::Llama3
            | ToolFormat::Python => in_json(lark)?,
            ToolFormat::MistralArgs => {
                let arguments = lark.json(parameters)?;
                format!("{name} {} {arguments}", lark.mark("[ARGS]"))
            }
            ToolFormat::QwenCoder => notation::tags(lark, tool, parameters)?,
            ToolFormat::Gemma => notation::gemma(lark, tool, parameters, "<|\"|>")?,
            ToolFormat::FunctionGemma => notation::gemma(lark, tool, parameters, "<escape>")?,
        })
    }
}
