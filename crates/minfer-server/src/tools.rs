//! Tools as clients offer them, and which of them a model is to call.

use std::sync::Arc;

use minfer::chat::tools::{Tool, ToolChoice, ToolRules};
use serde_json::{Map, Value, json};

use crate::ApiError;
use crate::fields::{Fields, mismatch};

/// The most tools of a request.
pub const MAX_TOOLS: usize = 512;
/// The longest name of a tool in bytes.
const MAX_NAME: usize = 256;

/// Whether to call a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The model decides.
    Auto,
    /// One at least.
    Required,
    /// This one.
    Named(String),
}

impl Choice {
    /// The same for a grammar.
    pub fn rule(&self) -> ToolChoice<'_> {
        match self {
            Choice::Auto => ToolChoice::Auto,
            Choice::Required => ToolChoice::Required,
            Choice::Named(name) => ToolChoice::Named(name),
        }
    }
}

/// A tool on offer.
#[derive(Clone, Debug)]
pub struct Offered {
    /// For the parser and the grammar.
    pub tool: Tool,
    /// For the template, in OpenAI's shape.
    pub shown: Value,
    /// Where its schema stood in the request.
    pub field: String,
}

/// The tools of a request.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Never none.
    pub list: Vec<Offered>,
    /// Whether to call one.
    pub choice: Choice,
    /// More than one call is allowed.
    pub parallel: bool,
    /// Calls are wanted whole, even in a stream.
    pub whole: bool,
}

/// A tool as a request describes it; surfaces differ in what lies around it.
#[derive(Debug)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: Option<String>,
    /// JSON schema of its arguments.
    pub parameters: Option<Value>,
    /// Its calls must follow the schema.
    pub strict: Option<bool>,
}

impl Offer {
    /// Of tools and the fields they stood in: that of the tool, and that of its schema. `None`: there are none.
    ///
    /// # Errors
    /// Too many; a name that can't be or is there twice; a schema that is none of an object.
    pub fn of(list: Vec<(String, String, Function)>) -> Result<Option<Offer>, ApiError> {
        if list.len() > MAX_TOOLS {
            let why = format!("has {} tools, {MAX_TOOLS} are the most", list.len());
            return Err(ApiError::field("tools", why));
        }
        let mut offered: Vec<Offered> = Vec::new();
        for (field, schema, function) in list {
            let wrong = |why: String| ApiError::field(&format!("{field}.name"), why);
            if !is_name(&function.name) {
                return Err(wrong(format!(
                    "must be 1 to {MAX_NAME} letters, digits or any of _-.:/, is {:?}",
                    function.name
                )));
            }
            if offered.iter().any(|o| o.tool.name == function.name) {
                return Err(wrong(format!("{:?} is there twice", function.name)));
            }
            let parameters = function.parameters.unwrap_or(Value::Null);
            check_parameters(&schema, &parameters)?;
            offered.push(Offered {
                shown: describe(&function.name, function.description, &parameters),
                tool: Tool {
                    name: function.name,
                    parameters,
                    strict: function.strict.unwrap_or(false),
                },
                field: schema,
            });
        }
        let offer = Offer {
            list: offered,
            choice: Choice::Auto,
            parallel: true,
            whole: false,
        };
        Ok(Some(offer).filter(|o| !o.list.is_empty()))
    }

    /// The tools, for the parser and the grammar.
    pub fn tools(&self) -> Arc<[Tool]> {
        self.list.iter().map(|o| o.tool.clone()).collect()
    }

    /// The tools, for the template.
    pub fn shown(&self) -> Value {
        self.list.iter().map(|o| o.shown.clone()).collect()
    }

    /// What a grammar of calls of these tools, which are its [own](Offer::tools), is to say.
    pub fn rules<'a>(&'a self, tools: &'a [Tool]) -> ToolRules<'a> {
        ToolRules {
            tools,
            choice: self.choice.rule(),
            parallel: self.parallel,
            reasoning: None,
            answer: None,
        }
    }

    /// Whether a grammar holds an answer to them: a call that is required, strict or to stay alone.
    pub fn binds(&self) -> bool {
        self.rules(&self.tools()).bind()
    }

    /// Only these tools are to be called.
    ///
    /// # Errors
    /// One of them is not on offer.
    pub fn only(&mut self, field: &str, names: &[String]) -> Result<(), ApiError> {
        for name in names {
            self.knows(field, name)?;
        }
        self.list.retain(|o| names.contains(&o.tool.name));
        Ok(())
    }

    /// # Errors
    /// There is no such tool.
    pub fn knows(&self, field: &str, name: &str) -> Result<(), ApiError> {
        match self.list.iter().any(|o| o.tool.name == name) {
            true => Ok(()),
            false => {
                let why = format!("{name:?} is not one of the tools");
                Err(ApiError::field(field, why))
            }
        }
    }
}

fn is_name(name: &str) -> bool {
    let may = |c: char| c.is_alphanumeric() || "_-.:/".contains(c);
    (1..=MAX_NAME).contains(&name.len()) && name.chars().all(may)
}

/// Arguments are an object: a schema of something else fits no call. One without a type is taken for one of an object.
fn check_parameters(field: &str, parameters: &Value) -> Result<(), ApiError> {
    match parameters {
        Value::Null => Ok(()),
        Value::Object(map) => match map.get("type") {
            Some(ty) if ty != "object" => {
                let why = format!("must be a JSON Schema of the type \"object\", its type is {ty}");
                Err(ApiError::field(field, why))
            }
            _ => Ok(()),
        },
        other => Err(mismatch(field, "a JSON Schema of an object", other)),
    }
}

/// A tool as templates expect it.
fn describe(name: &str, description: Option<String>, parameters: &Value) -> Value {
    let mut function = Map::new();
    function.insert("name".to_owned(), json!(name));
    if let Some(description) = description {
        function.insert("description".to_owned(), json!(description));
    }
    let none = json!({"type": "object", "properties": {}});
    let parameters = if parameters.is_null() {
        &none
    } else {
        parameters
    };
    function.insert("parameters".to_owned(), parameters.clone());
    json!({"type": "function", "function": function})
}

/// A function of a list of tools, which stands at `field`.
///
/// # Errors
/// It has not the fields of one.
pub fn function(field: &str, value: Value) -> Result<Function, ApiError> {
    let mut f = Fields::of_value(field, value)?;
    let mut read = || -> Result<Function, ApiError> {
        let parameters = f.value("parameters");
        Ok(Function {
            name: f.need_text("name")?,
            description: f.text("description")?,
            parameters: parameters.or_else(|| f.value("input_schema")),
            strict: f.take("strict")?,
        })
    };
    read().map_err(|e| e.within(field))
}

/// `tools`, each with its `function` within, as chat completions and Ollama have them.
///
/// # Errors
/// What is no tool, by its place.
pub fn take(f: &mut Fields) -> Result<Option<Offer>, ApiError> {
    let mut functions = Vec::new();
    for (i, tool) in f.list("tools")?.into_iter().flatten().enumerate() {
        let field = format!("tools[{i}]");
        let ty = tool.get("type").filter(|t| *t != "function");
        if let Some(ty) = ty {
            let why = format!("must be function, is {ty}");
            return Err(ApiError::field(&format!("{field}.type"), why));
        }
        let field = format!("{field}.function");
        let Some(inner) = tool.get("function").filter(|f| f.is_object()) else {
            return Err(ApiError::field(&field, "is required, an object"));
        };
        let function = function(&field, inner.clone())?;
        functions.push((field.clone(), format!("{field}.parameters"), function));
    }
    Offer::of(functions)
}

/// Where a choice that is an object says more.
pub struct Places {
    /// The tool that is to be called.
    name: &'static str,
    /// The tools that may be.
    tools: &'static str,
    /// Whether one of these must be.
    mode: &'static str,
}

/// In chat completions.
pub const CHAT: Places = Places {
    name: "tool_choice.function.name",
    tools: "tool_choice.allowed_tools.tools",
    mode: "tool_choice.allowed_tools.mode",
};

/// In responses.
pub const RESPONSES: Places = Places {
    name: "tool_choice.name",
    tools: "tool_choice.tools",
    mode: "tool_choice.mode",
};

const CHOICE: &str = "tool_choice";
/// The kinds of a choice that is an object.
const FUNCTION: &str = "function";
const ALLOWED: &str = "allowed_tools";

/// `tool_choice` and `parallel_tool_calls` in OpenAI's shapes (those of chat completions and of responses); the tools that are left.
///
/// # Errors
/// A choice that can't be made, by its surface's `places`.
pub fn choose(
    f: &mut Fields,
    offer: Option<Offer>,
    places: &Places,
) -> Result<Option<Offer>, ApiError> {
    let parallel: Option<bool> = f.take("parallel_tool_calls")?;
    let choice = f.value(CHOICE);
    choice.iter().try_for_each(check_kind)?;
    let Some(mut offer) = offer else {
        return match choice {
            Some(c) if c != "none" && c != "auto" => Err(ApiError::field(
                CHOICE,
                "asks for a call, but there are no tools",
            )),
            _ => Ok(None),
        };
    };
    offer.parallel = parallel.unwrap_or(true);
    match choice {
        None => {}
        Some(Value::String(mode)) if mode == "none" => return Ok(None),
        Some(Value::String(mode)) => offer.choice = mode_of(CHOICE, &mode)?,
        Some(object) => chosen(&mut offer, &object, places)?,
    }
    Ok(Some(offer))
}

/// Looks what kind of a choice it is, which is to be known with or without tools to choose from.
///
/// # Errors
/// It is of none.
fn check_kind(choice: &Value) -> Result<(), ApiError> {
    match choice {
        Value::String(mode) if mode == "none" => Ok(()),
        Value::String(mode) => mode_of(CHOICE, mode).map(drop),
        Value::Object(object) => match object.get("type").unwrap_or(&Value::Null) {
            ty if ty == FUNCTION || ty == ALLOWED => Ok(()),
            ty => {
                let why = format!("must be {FUNCTION} or {ALLOWED}, is {ty}");
                Err(ApiError::field("tool_choice.type", why))
            }
        },
        other => {
            let why = format!("must be none, auto, required or a tool, is {other}");
            Err(ApiError::field(CHOICE, why))
        }
    }
}

fn mode_of(field: &str, mode: &str) -> Result<Choice, ApiError> {
    match mode {
        "auto" => Ok(Choice::Auto),
        "required" => Ok(Choice::Required),
        other => {
            let why = format!("must be none, auto, required or a tool, is {other:?}");
            Err(ApiError::field(field, why))
        }
    }
}

/// A choice that is an object of a known kind: a tool, or a list of allowed ones.
fn chosen(offer: &mut Offer, choice: &Value, places: &Places) -> Result<(), ApiError> {
    let text = |v: &Value, at: &str| v.pointer(at).and_then(Value::as_str).map(str::to_owned);
    let name = |v: &Value| text(v, "/function/name").or_else(|| text(v, "/name"));
    if choice.get("type").is_some_and(|ty| ty == FUNCTION) {
        let name = name(choice).ok_or_else(|| ApiError::field(places.name, "is required"))?;
        offer.knows(places.name, &name)?;
        offer.choice = Choice::Named(name);
        return Ok(());
    }
    let allowed = choice.get(ALLOWED).unwrap_or(choice);
    let tools = allowed.get("tools").and_then(Value::as_array);
    let names: Option<Vec<String>> = tools.and_then(|t| t.iter().map(name).collect());
    let names = names.filter(|n| !n.is_empty());
    let names =
        names.ok_or_else(|| ApiError::field(places.tools, "must be a list of functions"))?;
    offer.only(places.tools, &names)?;
    offer.choice = match allowed.get("mode") {
        None => Choice::Auto,
        Some(Value::String(mode)) => mode_of(places.mode, mode)?,
        Some(other) => return Err(mismatch(places.mode, "auto or required", other)),
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(body: Value) -> Result<Option<Offer>, ApiError> {
        let mut f = Fields::parse(body.to_string().as_bytes()).unwrap();
        let offer = take(&mut f)?;
        choose(&mut f, offer, &CHAT)
    }

    fn tool(name: &str) -> Value {
        json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}})
    }

    #[test]
    fn tools_and_choices_are_read() {
        let two = json!([tool("a"), tool("b")]);
        let offer = taken(json!({"tools": two, "parallel_tool_calls": false}));
        let offer = offer.unwrap().unwrap();
        assert!(offer.choice == Choice::Auto && !offer.parallel && offer.list.len() == 2);
        assert!(
            taken(json!({"tools": two, "tool_choice": "none"}))
                .unwrap()
                .is_none()
        );
        assert!(
            taken(json!({"tools": [], "tool_choice": "auto"}))
                .unwrap()
                .is_none()
        );
        let named = json!({"type": "function", "function": {"name": "b"}});
        let offer = taken(json!({"tools": two, "tool_choice": named})).unwrap();
        assert_eq!(offer.unwrap().choice, Choice::Named("b".to_owned()));
        let allowed = json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [tool("b")]}});
        let offer = taken(json!({"tools": two, "tool_choice": allowed})).unwrap();
        let offer = offer.unwrap();
        assert_eq!(offer.choice, Choice::Required);
        assert!(offer.list.len() == 1 && offer.list[0].tool.name == "b");
        assert_eq!(offer.list[0].field, "tools[1].function.parameters");
        assert_eq!(offer.list[0].shown["function"]["name"], "b");
    }

    #[test]
    fn what_is_no_tool_or_choice_is_refused_by_its_place() {
        let one = json!([tool("a")]);
        for (body, param) in [
            (json!({"tools": {}}), "tools"),
            (json!({"tools": [{"type": "custom"}]}), "tools[0].type"),
            (
                json!({"tools": [{"type": "function"}]}),
                "tools[0].function",
            ),
            (json!({"tools": [tool("a b")]}), "tools[0].function.name"),
            (
                json!({"tools": [tool("a"), tool("a")]}),
                "tools[1].function.name",
            ),
            (
                json!({"tools": [{"function": {"name": "a", "parameters": [1]}}]}),
                "tools[0].function.parameters",
            ),
            (
                json!({"tools": [{"function": {"name": "a", "parameters": {"type": "string"}}}]}),
                "tools[0].function.parameters",
            ),
            (
                json!({"tools": [{"function": {"description": "a"}}]}),
                "tools[0].function.name",
            ),
            (
                json!({"tools": [{"function": {"name": "a", "description": 1}}]}),
                "tools[0].function.description",
            ),
            (json!({"tool_choice": "required"}), "tool_choice"),
            (json!({"tools": one, "tool_choice": "often"}), "tool_choice"),
            (json!({"tools": one, "tool_choice": 1}), "tool_choice"),
            (
                json!({"tools": one, "tool_choice": {"type": "function", "function": {"name": "b"}}}),
                "tool_choice.function.name",
            ),
            (
                json!({"tools": one, "tool_choice": {"type": "x"}}),
                "tool_choice.type",
            ),
        ] {
            let e = taken(body.clone()).unwrap_err();
            assert_eq!(e.param.as_deref(), Some(param), "{body}: {}", e.message);
        }
    }
}
