//! References in tools' schemas and in those of answers beside them.

use serde_json::{Value, json};

use super::tools::{grammar, rules};
use super::*;
use crate::chat::ReasoningTags;
use crate::chat::tools::{
    Tool, ToolChoice, ToolError, ToolFormat, ToolRules, json_after_reasoning,
};

/// A schema that refers to more than is copied is not read as another one, whatever stands around it.
#[test]
fn references_to_too_much_are_refused() {
    let large =
        json!({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"enum": vec![0; 50_001]}, "a~1b": {}}});
    let mut parameters = large.clone();
    parameters["type"] = "object".into();
    let of = |parameters: &Value| Tool {
        name: "large".to_owned(),
        parameters: parameters.clone(),
        strict: true,
    };
    let small = json!({"type": "object", "additionalProperties": false});
    let null = json!({"type": "null"});
    for (tool, choice, answer) in [
        (&parameters, ToolChoice::Required, None),
        (&parameters, ToolChoice::Auto, Some(&null)),
        (&small, ToolChoice::Auto, Some(&large)),
    ] {
        for format in [
            ToolFormat::Hermes,
            ToolFormat::Json,
            ToolFormat::MistralArgs,
        ] {
            let tools = [of(tool)];
            let rules = ToolRules {
                answer,
                ..rules(&tools, choice)
            };
            let e = format.grammar(&rules, &|_| None).unwrap_err();
            let named = e.to_string().starts_with("the reference #/$defs/a~1b ");
            assert!(
                named && matches!(e, ToolError::References(_)),
                "{format:?} {e}"
            );
        }
    }
    let tags = ReasoningTags {
        open: "<think>",
        close: "</think>",
    };
    let e = json_after_reasoning(&large, tags, false, &|_| None).unwrap_err();
    let named = e.to_string().starts_with("the reference #/$defs/a~1b ");
    assert!(named && matches!(e, ToolError::References(_)), "{e}");
}

/// A tool's schema may have a name of its own, and stands within another beside a schema for the answer.
#[test]
fn a_schema_with_an_id_may_stand_within_another() {
    let parameters = json!({"$id": "http://example.com/a", "type": "object", "properties": {"x": {"$ref": "#/$defs/b"}, "y": {"$ref": "#/$defs/c~1d"}, "z": {"$ref": "#"}},
        "$defs": {"b": {"const": 1}, "c/d": {"const": 2}}, "required": ["x", "y"], "additionalProperties": false});
    let tools = [Tool {
        name: "now".to_owned(),
        parameters,
        strict: true,
    }];
    let answer = json!({"type": "null"});
    let rules = ToolRules {
        answer: Some(&answer),
        ..rules(&tools, ToolChoice::Auto)
    };
    let spec = grammar(ToolFormat::Json, &rules);
    let call = |x| {
        let arguments = format!(r#"{{"x": 1, "y": 2, "z": {{"x": {x}, "y": 2}}}}"#);
        format!(r#"{{"name": "now", "arguments": {arguments}}}"#)
    };
    assert!(QWEN.takes(&spec, &call(1)) && QWEN.takes(&spec, "null"));
    assert!(!QWEN.takes(&spec, &call(2)));
}
