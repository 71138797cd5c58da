//! What limits an answer: the client's own constraint, behind reasoning, and the calls of tools.

use minfer::chat::ReasoningTags;
use minfer::chat::tools::{Tool, ToolError, ToolFormat, ToolRules, json_after_reasoning};
use minfer::engine::Engine;
use minfer::sampling::ConstraintSpec;
use serde_json::{Value, json};

use super::control;
use crate::ApiError;
use crate::tools::Offer;

/// The most bytes of the schemas that one answer's calls are held to: more no grammar may have.
const MAX_SCHEMAS: usize = 1 << 18;

/// What the constraints of one answer have in common.
pub struct Limits<'a> {
    /// Compiles them.
    pub engine: &'a Engine,
    /// Reasoning that comes first, and whether the prompt has opened it.
    pub reasoning: Option<(ReasoningTags, bool)>,
    /// The control tokens that set reasoning and calls apart.
    pub shown: Vec<u32>,
    /// Where the client's own constraint stood in the request.
    pub field: &'static str,
}

/// A schema that is put into a grammar, and the field it came from.
struct Part<'a> {
    spec: ConstraintSpec,
    field: &'a str,
}

impl Limits<'_> {
    /// What limits an answer without tools: its own constraint, after reasoning.
    ///
    /// # Errors
    /// It can't be compiled: the field is named.
    pub fn of_answer(
        &self,
        own: Option<ConstraintSpec>,
    ) -> Result<Option<ConstraintSpec>, ApiError> {
        let Some(own) = own else { return Ok(None) };
        let (Some((tags, opened)), Some(schema)) = (self.reasoning, schema_of(&own)) else {
            self.compile(&own, self.field)?;
            return Ok(Some(own));
        };
        let made = || {
            let lark = json_after_reasoning(&schema, tags, opened, &|t| self.control(t));
            let lark = lark.map_err(|e| ApiError::field(self.field, e))?;
            self.marked(lark, self.field)
        };
        let field = self.field;
        self.of_parts(&[Part { spec: own, field }], made).map(Some)
    }

    /// What limits an answer with tools, which are the offer's.
    ///
    /// # Errors
    /// Calls and answer can't be held to what is asked for: the field is named, a schema at fault by its own.
    pub fn of_tools(
        &self,
        own: Option<ConstraintSpec>,
        offer: &Offer,
        format: ToolFormat,
        tools: &[Tool],
    ) -> Result<Option<ConstraintSpec>, ApiError> {
        let answer = own.as_ref().map(|spec| {
            schema_of(spec).ok_or_else(|| {
                let why = "can't be used together with tools: leave one of them out, or say \"tool_choice\": \"none\"";
                ApiError::field(self.field, why)
            })
        });
        let answer = answer.transpose()?;
        let rules = ToolRules {
            reasoning: self.reasoning,
            answer: answer.as_ref(),
            ..offer.rules(tools)
        };
        if !rules.bind() {
            return Ok(None);
        }
        let field = self.field;
        let mut parts: Vec<Part> = own.map(|spec| Part { spec, field }).into_iter().collect();
        parts.extend(held(offer, &rules)?);
        let made = || {
            let lark = format.grammar(&rules, &|t| self.control(t));
            let lark = lark.map_err(|e| match e {
                ToolError::Answer(_) => ApiError::field(self.field, e),
                e => ApiError::field("tools", e),
            });
            let marked = |lark| self.marked(lark, "tools");
            lark?.map(marked).transpose()
        };
        self.of_parts(&parts, made)
    }

    /// What is `made` of parts. Each of them is compiled by itself only where the whole can't be: so the error names the one at fault.
    fn of_parts<T>(
        &self,
        parts: &[Part],
        made: impl FnOnce() -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        for part in parts {
            let read = self.engine.read_constraint(&part.spec);
            read.map_err(|e| ApiError::field(part.field, e))?;
        }
        let at_fault = |part: &Part| {
            let checked = self.engine.check_constraint(&part.spec);
            checked.err().map(|e| ApiError::field(part.field, e))
        };
        made().map_err(|e| parts.iter().find_map(at_fault).unwrap_or(e))
    }

    fn control(&self, text: &str) -> Option<u32> {
        control(self.engine.model().tokenizer(), text)
    }

    fn marked(&self, lark: String, field: &str) -> Result<ConstraintSpec, ApiError> {
        let tokens = self.shown.clone();
        let spec = ConstraintSpec::Marked { lark, tokens };
        self.compile(&spec, field)?;
        Ok(spec)
    }

    /// Compiles a constraint, which is kept for the answers.
    fn compile(&self, spec: &ConstraintSpec, field: &str) -> Result<(), ApiError> {
        let compiled = self.engine.compile_constraint(spec);
        compiled.map_err(|e| ApiError::field(field, e))
    }
}

/// The schemas that calls are held to.
fn held<'a>(offer: &'a Offer, rules: &ToolRules) -> Result<Vec<Part<'a>>, ApiError> {
    let mut room = MAX_SCHEMAS;
    let mut parts = Vec::new();
    for offered in &offer.list {
        if !rules.hold(&offered.tool) || !offered.tool.parameters.is_object() {
            continue;
        }
        let text = offered.tool.parameters.to_string();
        room = room.checked_sub(text.len()).ok_or_else(|| {
            let why =
                format!("the schemas that calls are held to have more than {MAX_SCHEMAS} bytes");
            ApiError::field("tools", why)
        })?;
        parts.push(Part {
            spec: ConstraintSpec::JsonSchema(text),
            field: &offered.field,
        });
    }
    Ok(parts)
}

/// The schema of a constraint that is one.
pub fn schema_of(spec: &ConstraintSpec) -> Option<Value> {
    match spec {
        ConstraintSpec::JsonObject => Some(json!({"type": "object"})),
        ConstraintSpec::JsonSchema(text) => match serde_json::from_str(text) {
            Ok(Value::Bool(true)) => Some(json!({})),
            Ok(schema) => Some(schema),
            Err(_) => None,
        },
        _ => None,
    }
}
