//! How grammars write each format's calls; arguments that are no JSON.

use serde_json::Value;

use super::grammar::Lark;
use super::schema::{Kinds, alone, referred};
use super::{Tool, ToolError, ToolFormat};

/// Deepest schema followed.
const DEPTH: usize = 16;
/// Most values written for one tool.
const VALUES: usize = 4096;

/// What stands around calls.
pub(super) struct Notation {
    /// Opens a call, or a list of them; empty: nothing does.
    pub(super) mark: &'static str,
    /// Between the mark and a call.
    pub(super) head: &'static [&'static str],
    /// After it.
    pub(super) tail: &'static [&'static str],
    /// All calls stand in one list.
    pub(super) list: bool,
}

/// A format's notation.
pub(super) fn of(format: ToolFormat) -> Notation {
    let (mark, head, tail): (_, &[_], &[_]) = match format {
        ToolFormat::Hermes => ("<tool_call>", &["\n"], &["\n", "</tool_call>"]),
        ToolFormat::QwenCoder => {
            let tail = &["</function>\n", "</tool_call>"];
            ("<tool_call>", &["\n<function="], tail)
        }
        ToolFormat::Mistral => ("[TOOL_CALLS]", &["["], &["]"]),
        ToolFormat::MistralArgs => ("[TOOL_CALLS]", &[], &[]),
        ToolFormat::Gemma => ("<|tool_call>", &["call:"], &["<tool_call|>"]),
        ToolFormat::FunctionGemma => {
            let tail = &["<end_function_call>"];
            ("<start_function_call>", &["call:"], tail)
        }
        ToolFormat::Llama3 | ToolFormat::Python | ToolFormat::Json => ("", &[], &[]),
    };
    let list = format == ToolFormat::Mistral;
    Notation {
        mark,
        head,
        tail,
        list,
    }
}

/// The arguments' properties, by name; whether each is required; whether others may stand beside them.
fn properties(schema: &Value) -> (Vec<(&String, &Value, bool)>, bool) {
    let required = schema.get("required").and_then(Value::as_array);
    let required = |name: &str| required.is_some_and(|r| r.iter().any(|v| v == name));
    let all = schema.get("properties").and_then(Value::as_object);
    let all = all.into_iter().flatten();
    let all: Vec<_> = all.map(|(n, s)| (n, s, required(n))).collect();
    let open = all.is_empty() && schema.get("additionalProperties") != Some(&false.into());
    (all, open)
}

/// Refuses a strict tool's keyword that these notations can't hold.
fn held(tool: &Tool, schema: &Value, at: &str) -> Result<(), ToolError> {
    const SAY_NOTHING: [&str; 9] = [
        "$comment",
        "$schema",
        "default",
        "deprecated",
        "description",
        "example",
        "examples",
        "title",
        "nullable",
    ];
    const HELD: [&str; 12] = [
        "$defs",
        "$ref",
        "additionalProperties",
        "anyOf",
        "const",
        "definitions",
        "enum",
        "items",
        "oneOf",
        "properties",
        "required",
        "type",
    ];
    let known = |key: &str| SAY_NOTHING.contains(&key) || HELD.contains(&key);
    let key = schema
        .as_object()
        .and_then(|m| m.keys().find(|k| !known(k)));
    match key {
        Some(key) if tool.strict => Err(ToolError::Strict {
            tool: tool.name.clone(),
            keyword: key.clone(),
            at: at.to_owned(),
        }),
        _ => Ok(()),
    }
}

/// The values that a schema lists.
fn listed(schema: &Value) -> Option<Vec<&Value>> {
    let list = schema.get("enum").and_then(Value::as_array);
    let list = list.map(|l| l.iter().collect());
    list.or_else(|| schema.get("const").map(|v| vec![v]))
}

/// Qwen3-Coder's: `NAME>`, then each property between tags.
pub(super) fn tags(lark: &mut Lark, tool: &Tool, schema: &Value) -> Result<String, ToolError> {
    held(tool, schema, "#")?;
    let end = "\n</parameter>\n";
    // Where the parser ends a text.
    let text = lark.until(end.trim());
    let text = lark.rule(&format!("{text} \"\\n\""));
    let mut parts = vec![lark.text(&format!("{}>\n", tool.name))];
    let (all, open) = properties(schema);
    if open {
        let key = "/[A-Za-z0-9_.\\-]+/";
        parts.push(format!("(\"<parameter=\" {key} \">\\n\" {text})*"));
    }
    for (name, property, required) in all {
        let property = referred(property, schema).unwrap_or(property);
        let key = lark.text(&format!("<parameter={name}>\n"));
        let kinds = Kinds::of(property, schema);
        let value = match listed(property) {
            Some(values) => {
                let plain = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
                let values: Vec<String> = values.iter().map(|v| lark.text(&plain(v))).collect();
                format!("({}) {}", values.join(" | "), lark.text(end))
            }
            None if kinds.text() => {
                held(tool, property, &format!("#/properties/{name}"))?;
                text.clone()
            }
            None => {
                let value = lark.json(&alone(property, schema))?;
                format!("{value} {}", lark.text(end))
            }
        };
        let rule = lark.rule(&format!("{key} {value}"));
        parts.push(format!("{rule}{}", if required { "" } else { "?" }));
    }
    Ok(parts.join(" "))
}

/// Gemma's: `NAME{key:value,…}`, keys in alphabetical order, texts between quotes that nothing escapes.
pub(super) fn gemma(
    lark: &mut Lark,
    tool: &Tool,
    schema: &Value,
    quote: &str,
) -> Result<String, ToolError> {
    let until = lark.until(quote);
    let opened = lark.mark(quote);
    lark.named("text", &format!("{opened} {until}"));
    lark.named("pair", "/[A-Za-z0-9_\\-]+/ \":\" any");
    lark.named(
        "any",
        "text | /-?[0-9]+(\\.[0-9]+)?([eE][-+]?[0-9]+)?/ | \"true\" | \"false\" | \"null\" \
         | \"[\" (any (\",\" any)*)? \"]\" | members",
    );
    lark.named("members", "\"{\" (pair (\",\" pair)*)? \"}\"");
    let root = schema;
    let mut gemma = Gemma {
        lark,
        tool,
        root,
        quote,
        left: VALUES,
    };
    let arguments = gemma.object(schema, "#", DEPTH)?;
    Ok(format!("{} {arguments}", gemma.lark.text(&tool.name)))
}

struct Gemma<'a, 'l> {
    lark: &'a mut Lark<'l>,
    tool: &'a Tool,
    root: &'a Value,
    quote: &'a str,
    /// Values that may still be written: one that refers to itself is written again and again.
    left: usize,
}

impl Gemma<'_, '_> {
    fn object(&mut self, schema: &Value, at: &str, depth: usize) -> Result<String, ToolError> {
        held(self.tool, schema, at)?;
        let (mut all, open) = properties(schema);
        if open {
            return Ok("members".to_owned());
        }
        all.sort_by_key(|(name, _, _)| *name);
        // `first`: what comes if nothing has come yet; `later`: if something has.
        let (mut first, mut later) = (String::new(), String::new());
        for (name, property, required) in all.into_iter().rev() {
            let value = self.value(property, &format!("{at}/properties/{name}"), depth)?;
            let pair = format!("{} {value}", self.lark.text(&format!("{name}:")));
            let pair = self.lark.rule(&pair);
            first = match (required, first.as_str()) {
                (true, _) => format!("{pair} {later}"),
                (false, "") => format!("({pair} {later})?"),
                (false, first) => format!("({pair} {later} | {first})"),
            };
            later = match required {
                true => format!("\",\" {pair} {later}"),
                false => format!("(\",\" {pair})? {later}"),
            };
            later = self.lark.rule(&later);
            // Parentheses nest only so deep.
            first = self.lark.rule(&first);
        }
        Ok(format!("\"{{\" {first} \"}}\""))
    }

    fn value(&mut self, schema: &Value, at: &str, depth: usize) -> Result<String, ToolError> {
        let Some(depth) = depth.checked_sub(1) else {
            let deep = serde_json::json!({"(nesting)": true});
            return held(self.tool, &deep, at).map(|()| "any".to_owned());
        };
        self.left = self.left.checked_sub(1).ok_or_else(|| ToolError::Size {
            tool: self.tool.name.clone(),
        })?;
        if let Some(schema) = referred(schema, self.root) {
            return self.value(schema, at, depth);
        }
        if let Some(values) = listed(schema) {
            let quoted = |v: &Value| match v {
                Value::String(text) => {
                    let quote = self.lark.mark(self.quote);
                    format!("{quote} {} {quote}", self.lark.text(text))
                }
                other => self.lark.text(&other.to_string()),
            };
            let values: Vec<String> = values.into_iter().map(quoted).collect();
            return Ok(format!("({})", values.join(" | ")));
        }
        let each = |key: &str| schema.get(key).and_then(Value::as_array);
        let alternatives: Vec<Value> = match (schema.get("type"), each("anyOf").or(each("oneOf"))) {
            (Some(Value::Array(kinds)), _) => kinds
                .iter()
                .filter_map(|kind| {
                    let mut one = schema.as_object()?.clone();
                    one.insert("type".to_owned(), kind.clone());
                    Some(Value::Object(one))
                })
                .collect(),
            (None, Some(list)) => list.clone(),
            _ => return self.typed(schema, at, depth),
        };
        let all: Result<Vec<String>, ToolError> = alternatives
            .iter()
            .map(|s| self.value(s, at, depth))
            .collect();
        Ok(format!("({})", all?.join(" | ")))
    }

    /// A value of one type.
    fn typed(&mut self, schema: &Value, at: &str, depth: usize) -> Result<String, ToolError> {
        match schema.get("type").and_then(Value::as_str) {
            Some("integer" | "number" | "boolean" | "null") => self.lark.json(schema),
            Some("object") => self.object(schema, at, depth),
            Some("array") => {
                held(self.tool, schema, at)?;
                let item = match schema.get("items") {
                    Some(items) => self.value(items, &format!("{at}/items"), depth)?,
                    None => "any".to_owned(),
                };
                let item = self.lark.rule(&item);
                Ok(format!("\"[\" ({item} (\",\" {item})*)? \"]\""))
            }
            Some("string") => held(self.tool, schema, at).map(|()| "text".to_owned()),
            _ => held(self.tool, schema, at).map(|()| "any".to_owned()),
        }
    }
}
