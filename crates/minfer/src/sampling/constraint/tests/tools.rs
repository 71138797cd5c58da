//! Grammars of tool calls (`chat::tools`): they compile, and hold answers to calls that the parser reads.

use serde_json::{Value, json};

use super::*;
use crate::chat::ReasoningTags;
use crate::chat::tools::{
    Tool, ToolChoice, ToolDelta, ToolError, ToolFormat, ToolParser, ToolRules,
};

const FORMATS: [ToolFormat; 9] = [
    ToolFormat::Hermes,
    ToolFormat::QwenCoder,
    ToolFormat::Llama3,
    ToolFormat::Mistral,
    ToolFormat::MistralArgs,
    ToolFormat::Gemma,
    ToolFormat::FunctionGemma,
    ToolFormat::Python,
    ToolFormat::Json,
];

fn tools(strict: bool) -> Vec<Tool> {
    let weather = json!({
        "type": "object",
        "properties": {
            "unit": {"enum": ["C", "F"]},
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "at": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/h~1m"}}, {"type": "null"}]}
        },
        "$defs": {"h/m": {"type": "object", "properties": {"h": {"type": "integer"}}, "required": ["h"], "additionalProperties": false}},
        "required": ["city", "unit"],
        "additionalProperties": false
    });
    let tool = |name: &str, parameters: Value| Tool {
        name: name.to_owned(),
        parameters,
        strict,
    };
    vec![tool("get_weather", weather), tool("now", Value::Null)]
}

pub(super) fn rules<'a>(tools: &'a [Tool], choice: ToolChoice<'a>) -> ToolRules<'a> {
    ToolRules {
        tools,
        choice,
        parallel: true,
        reasoning: None,
        answer: None,
    }
}

pub(super) fn grammar(format: ToolFormat, rules: &ToolRules<'_>) -> ConstraintSpec {
    let text = format.grammar(rules, &|_| None).unwrap().unwrap();
    ConstraintSpec::Lark(text)
}

/// A format's call of the weather in Oslo and its call of the time, and how the two stand in one answer.
fn written(format: ToolFormat) -> [String; 3] {
    let json = |key: &str| {
        [
            format!(r#"{{"name": "get_weather", "{key}": {{"unit": "C", "city": "Oslo"}}}}"#),
            format!(r#"{{"name": "now", "{key}": {{}}}}"#),
        ]
    };
    let joined = |[a, b]: [String; 2], by: &str| {
        let both = format!("{a}{by}{b}");
        [a, b, both]
    };
    match format {
        ToolFormat::Hermes => {
            let calls = json("arguments").map(|c| format!("<tool_call>\n{c}\n</tool_call>"));
            joined(calls, "\n")
        }
        ToolFormat::QwenCoder => {
            let calls = [
                "get_weather>\n<parameter=unit>\nC\n</parameter>\n<parameter=city>\nOslo\n</parameter>",
                "now>",
            ];
            let calls =
                calls.map(|c| format!("<tool_call>\n<function={c}\n</function>\n</tool_call>"));
            joined(calls, "\n")
        }
        ToolFormat::Mistral => {
            let [a, b] = json("arguments");
            let both = format!("[TOOL_CALLS][{a}, {b}]");
            [
                format!("[TOOL_CALLS][{a}]"),
                format!("[TOOL_CALLS][{b}]"),
                both,
            ]
        }
        ToolFormat::MistralArgs => {
            let weather = r#"[TOOL_CALLS]get_weather[ARGS]{"unit": "C", "city": "Oslo"}"#;
            joined(
                [weather.to_owned(), "[TOOL_CALLS]now[ARGS]{}".to_owned()],
                "",
            )
        }
        ToolFormat::Gemma => {
            let calls = [
                r#"get_weather{city:<|"|>Oslo<|"|>,unit:<|"|>C<|"|>}"#,
                "now{}",
            ];
            joined(
                calls.map(|c| format!("<|tool_call>call:{c}<tool_call|>")),
                "",
            )
        }
        ToolFormat::FunctionGemma => {
            let calls = [
                "get_weather{city:<escape>Oslo<escape>,unit:<escape>C<escape>}",
                "now{}",
            ];
            let calls = calls.map(|c| format!("<start_function_call>call:{c}<end_function_call>"));
            joined(calls, "")
        }
        ToolFormat::Llama3 | ToolFormat::Python => joined(json("parameters"), "\n"),
        ToolFormat::Json => joined(json("arguments"), "\n"),
    }
}

/// The unit is one that its tool does not know.
fn other_unit(call: &str) -> String {
    let call = call.replace("\"C\"", "\"K\"");
    let changed = call.replace("\nC\n", "\nK\n").replace(">C<", ">K<");
    assert_eq!(changed.matches('K').count(), 1, "{changed}");
    changed
}

fn read(format: ToolFormat, tools: &[Tool], answer: &str) -> Vec<ToolDelta> {
    let mut parser = ToolParser::new(format, tools).whole();
    let first = parser.push(answer);
    first.into_iter().chain(parser.finish()).collect()
}

#[test]
fn a_required_call_is_written_as_the_format_has_it() {
    let tools = tools(false);
    for format in FORMATS {
        let [weather, now, both] = written(format);
        let spec = grammar(format, &rules(&tools, ToolChoice::Required));
        assert!(QWEN.takes(&spec, &weather), "{format:?} {weather}");
        assert!(QWEN.takes(&spec, &now), "{format:?} {now}");
        assert_eq!(
            QWEN.takes(&spec, &both),
            format != ToolFormat::Llama3,
            "{format:?} {both}"
        );
        let wrong = [
            "Hello".to_owned(),
            String::new(),
            format!("I say {now}"),
            format!("{now} and more"),
            now.replace("now", "other"),
            other_unit(&weather),
            weather.replace("city", "town"),
        ];
        for answer in wrong {
            assert!(!QWEN.takes(&spec, &answer), "{format:?} {answer}");
        }
        let spec = grammar(format, &rules(&tools, ToolChoice::Named("now")));
        assert!(
            QWEN.takes(&spec, &now) && !QWEN.takes(&spec, &weather),
            "{format:?}"
        );
        let one = ToolRules {
            parallel: false,
            ..rules(&tools, ToolChoice::Required)
        };
        let spec = grammar(format, &one);
        assert!(
            QWEN.takes(&spec, &now) && !QWEN.takes(&spec, &both),
            "{format:?}"
        );
    }
}

#[test]
fn strict_tools_leave_free_text_but_hold_calls() {
    let strict = tools(true);
    for format in FORMATS {
        let [weather, now, both] = written(format);
        assert_eq!(
            format.grammar(&rules(&tools(false), ToolChoice::Auto), &|_| None),
            Ok(None)
        );
        let spec = grammar(format, &rules(&strict, ToolChoice::Auto));
        for answer in [
            "",
            "Hello <b>\n[1], {2}",
            "```rust\n{}\n```",
            "[1]",
            &weather,
            &now,
        ] {
            assert!(QWEN.takes(&spec, answer), "{format:?} {answer}");
        }
        assert_eq!(
            QWEN.takes(&spec, &both),
            format != ToolFormat::Llama3,
            "{format:?}"
        );
        let wrong = [weather.replace("city", "town"), now.replace("now", "other")];
        for answer in wrong {
            assert!(!QWEN.takes(&spec, &answer), "{format:?} {answer}");
        }
        let bare = matches!(
            format,
            ToolFormat::Llama3 | ToolFormat::Python | ToolFormat::Json
        );
        assert!(QWEN.takes(&spec, &format!("I say {now}")), "{format:?}");
        assert_eq!(
            QWEN.takes(&spec, &format!("I say {}", now.replace("now", "other"))),
            bare,
            "{format:?}"
        );
    }
}

/// What a grammar lets through at random, the parser reads as calls of that shape.
#[test]
fn what_a_grammar_allows_the_parser_reads() {
    let tools = tools(true);
    for format in FORMATS {
        let spec = grammar(format, &rules(&tools, ToolChoice::Required));
        let mut ended = 0;
        for seed in 0..40 {
            let mut constraint = QWEN.compile(&spec);
            let Some(answer) = QWEN.try_walk(&mut *constraint, seed, 60) else {
                continue;
            };
            ended += 1;
            let deltas = read(format, &tools, &answer);
            let content = |d: &ToolDelta| matches!(d, ToolDelta::Content(_));
            assert!(
                !deltas.iter().any(content),
                "{format:?} {answer:?} {deltas:?}"
            );
            for delta in &deltas {
                let ToolDelta::Arguments { piece, .. } = delta else {
                    continue;
                };
                let arguments: Value = serde_json::from_str(piece).unwrap();
                let unit = &arguments["unit"];
                let weather = arguments["city"].is_string() && (unit == "C" || unit == "F");
                assert!(
                    arguments == json!({}) || weather,
                    "{format:?} {answer:?} {piece}"
                );
            }
        }
        assert!(ended > 0, "{format:?}");
    }
}

#[test]
fn reasoning_may_come_first() {
    let tools = tools(false);
    let tags = ReasoningTags::of_template("<think>").unwrap();
    for format in FORMATS {
        let [_, now, _] = written(format);
        for (open, begin) in [(true, ""), (false, "<think>\n")] {
            let spec = grammar(
                format,
                &ToolRules {
                    reasoning: Some((tags, open)),
                    ..rules(&tools, ToolChoice::Required)
                },
            );
            let thought = format!("{begin}So. {now}? Yes.</think>\n\n{now}");
            assert!(QWEN.takes(&spec, &thought), "{format:?} {thought}");
            assert_eq!(QWEN.takes(&spec, &now), !open, "{format:?}");
            assert!(!QWEN.takes(&spec, &format!("{begin}So.</think>\n\nNo.")));
        }
    }
}

#[test]
fn control_tokens_are_named_by_their_ids() {
    let tools = tools(false);
    let control = |text: &str| match text {
        "[TOOL_CALLS]" => Some(9),
        "[ARGS]" => Some(32),
        _ => None,
    };
    let rules = rules(&tools, ToolChoice::Named("now"));
    let lark = ToolFormat::MistralArgs
        .grammar(&rules, &control)
        .unwrap()
        .unwrap();
    assert!(
        lark.contains("<[9]>") && lark.contains("\"now\" <[32]> %json"),
        "{lark}"
    );
    assert!(
        !lark.contains("TOOL_CALLS") && !lark.contains("ARGS"),
        "{lark}"
    );
}

/// A control token may come where the grammar names it, and only there; plain grammars name none.
#[test]
fn a_marker_that_is_a_control_token_comes_where_it_is_named() {
    let tokenizer = &QWEN.tokenizer;
    let mark = (0..tokenizer.n_vocab() as u32)
        .find(|id| tokenizer.is_control(*id) && !tokenizer.is_eog(*id))
        .unwrap();
    let lark = format!("start: \"a\" (<[{mark}]> \"b\")?");
    let refusal = QWEN.refusal(&ConstraintSpec::Lark(lark.clone()));
    assert!(refusal.to_string().contains("names tokens"), "{refusal}");
    let tokens = vec![mark];
    let mut constraint = QWEN.compile(&ConstraintSpec::Marked { lark, tokens });
    let [a, b] = [b"a", b"b"].map(|t| QWEN.bytes(t)[0]);
    assert!(!QWEN.allowed_here(&mut *constraint, mark));
    assert!(constraint.accept(mark).is_err());
    constraint.accept(a).unwrap();
    assert!(QWEN.allowed_here(&mut *constraint, mark));
    constraint.accept(mark).unwrap();
    assert_eq!(QWEN.allowed(&mut *constraint), [b]);
    constraint.accept(b).unwrap();
    assert!(constraint.is_done() || QWEN.allowed_here(&mut *constraint, tokenizer.eog()[0]));
}

/// A call without its tags is read as one: so where calls are held to something, none may come so, nor before one with tags.
#[test]
fn a_call_without_its_tags_can_t_slip_through() {
    for (strict, parallel) in [(true, true), (false, false)] {
        let tools = tools(strict);
        let spec = grammar(
            ToolFormat::Hermes,
            &ToolRules {
                parallel,
                ..rules(&tools, ToolChoice::Auto)
            },
        );
        let [_, now, _] = written(ToolFormat::Hermes);
        let bare = r#"{"name": "now", "arguments": {}}"#;
        let fenced = format!("```json\n{bare}\n```");
        for wrong in [bare, &fenced] {
            assert!(!QWEN.takes(&spec, wrong), "{wrong}");
            assert!(!QWEN.takes(&spec, &format!("{wrong}\n{now}")), "{wrong}");
        }
        assert!(QWEN.takes(&spec, &now) && QWEN.takes(&spec, &format!("I look.\n{now}")));
    }
}

/// Schemas that refer to themselves many times over take no time, whatever the format.
#[test]
fn schemas_that_refer_to_themselves_many_times_take_no_time() {
    let properties: serde_json::Map<String, Value> = (0..30)
        .map(|i| (format!("p{i}"), json!({"$ref": "#/$defs/N"})))
        .collect();
    let node = json!({"type": "object", "properties": properties, "additionalProperties": false});
    let choice = json!({"anyOf": vec![json!({"$ref": "#/$defs/A"}); 500]});
    let parameters = json!({"type": "object", "properties": {"n": {"$ref": "#/$defs/N"}, "a": {"$ref": "#/$defs/A"}},
        "$defs": {"N": node, "A": choice}, "additionalProperties": false});
    let tools = [Tool {
        name: "tree".to_owned(),
        parameters,
        strict: false,
    }];
    for format in FORMATS {
        let made = format.grammar(&rules(&tools, ToolChoice::Required), &|_| None);
        let gemma = matches!(format, ToolFormat::Gemma | ToolFormat::FunctionGemma);
        let tool = "tree".to_owned();
        match made {
            Err(e) => assert!(gemma && e == ToolError::Size { tool }, "{format:?} {e}"),
            Ok(grammar) => assert!(!gemma && grammar.is_some(), "{format:?}"),
        }
        let call = "<tool_call>\n<function=tree>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>";
        assert!(!read(format, &tools, call).is_empty());
    }
}

/// Forty properties that may be left out don't nest forty deep.
#[test]
fn gemma_takes_many_optional_properties() {
    let properties: serde_json::Map<String, Value> = (0..40)
        .map(|i| (format!("p{i:02}"), json!({"type": "integer"})))
        .collect();
    let parameters =
        json!({"type": "object", "properties": properties, "additionalProperties": false});
    let tools = [Tool {
        name: "wide".to_owned(),
        parameters,
        strict: true,
    }];
    let spec = grammar(ToolFormat::Gemma, &rules(&tools, ToolChoice::Required));
    let call = |arguments: &str| format!("<|tool_call>call:wide{{{arguments}}}<tool_call|>");
    assert!(QWEN.takes(&spec, &call("p03:1,p39:2")));
    assert!(!QWEN.takes(&spec, &call("p39:2,p03:1")));
}

/// With a schema for answers that call nothing, an answer is calls, or JSON that the schema allows, and the parser tells them apart.
#[test]
fn an_answer_without_calls_may_have_a_schema() {
    let answers = [
        // Keys that begin like a call's, or are a call's.
        (
            json!({"type": "object", "properties": {"n": {"type": "integer"}, "name": {"type": "string"}}, "required": ["n", "name"], "additionalProperties": false}),
            [r#"{"n": 3, "name": "now"}"#, r#"{"n":3,"name":"b"}"#],
        ),
        (
            json!({"type": "array", "items": {"type": "boolean"}}),
            ["[true]", "[]"],
        ),
        (
            json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}),
            [
                r#"{"name": "now"}"#,
                r#"{"name": "<tool_call>", "arguments": 3}"#,
            ],
        ),
    ];
    for (format, strict) in FORMATS.into_iter().flat_map(|f| [(f, false), (f, true)]) {
        let tools = tools(strict);
        let [weather, now, both] = written(format);
        let refers = weather.replace(r#""Oslo"}"#, r#""Oslo", "at": [{"h": 1}]}"#);
        for (schema, json) in &answers {
            let rules = ToolRules {
                answer: Some(schema),
                ..rules(&tools, ToolChoice::Auto)
            };
            let bare = weather.starts_with('{');
            if strict && bare && schema.get("required") == Some(&json!(["name"])) {
                // It allows calls, and any arguments.
                let e = format.grammar(&rules, &|_| None).unwrap_err();
                assert!(matches!(e, ToolError::Answer(_)), "{e}");
                continue;
            }
            let spec = grammar(format, &rules);
            let beside = |answer: &str| {
                let mut parser = ToolParser::new(format, tools.as_slice()).beside_json();
                let mut deltas = parser.push(answer);
                deltas.extend(parser.finish());
                deltas
            };
            for answer in json {
                assert!(QWEN.takes(&spec, answer), "{format:?} {answer}");
                let content = vec![ToolDelta::Content((*answer).to_owned())];
                assert_eq!(beside(answer), content, "{format:?}");
            }
            for answer in [&weather, &now, &refers] {
                assert!(QWEN.takes(&spec, answer), "{format:?} {answer}");
                let deltas = beside(answer);
                let end = matches!(deltas.last(), Some(ToolDelta::End { .. }));
                assert!(end && deltas.len() == 3, "{format:?} {deltas:?}");
            }
            let many = format != ToolFormat::Llama3;
            assert_eq!(QWEN.takes(&spec, &both), many, "{format:?} {both}");
            let town = weather.replace("city", "town");
            assert_eq!(QWEN.takes(&spec, &town), !strict, "{format:?} {town}");
            assert!(!QWEN.takes(&spec, "Three."), "{format:?}");
        }
    }
}

/// JSON does not wait for its end to be told.
#[test]
fn json_beside_tools_comes_as_it_is_made() {
    for format in FORMATS {
        let mut parser = ToolParser::new(format, tools(false)).beside_json();
        let told: Vec<_> = [r#"{"na"#, r#"me": "no"#, r#"", "a""#, ": 1"]
            .into_iter()
            .map(|piece| parser.push(piece).len())
            .collect();
        let bare = written(format)[0].starts_with('{');
        assert_eq!(told, if bare { [0, 0, 1, 1] } else { [1; 4] }, "{format:?}");
    }
}

#[test]
fn what_can_not_be_held_is_refused() {
    let refusal = |format: ToolFormat, tools: &[Tool], choice| {
        format
            .grammar(&rules(tools, choice), &|_| None)
            .unwrap_err()
    };
    let required = ToolChoice::Required;
    assert_eq!(refusal(ToolFormat::Json, &[], required), ToolError::NoTools);
    let unknown = ToolError::Unknown("then".to_owned());
    assert_eq!(
        refusal(ToolFormat::Json, &tools(false), ToolChoice::Named("then")),
        unknown
    );
    let mut tools = tools(true);
    tools[1].parameters = json!({"type": "array"});
    let tool = "now".to_owned();
    assert_eq!(
        refusal(ToolFormat::Json, &tools, required),
        ToolError::Parameters { tool: tool.clone() }
    );
    tools[1].parameters =
        json!({"type": "object", "properties": {"id": {"type": "string", "pattern": "^a+$"}}});
    for format in [ToolFormat::QwenCoder, ToolFormat::Gemma] {
        let (keyword, at) = ("pattern".to_owned(), "#/properties/id".to_owned());
        let strict = ToolError::Strict {
            tool: tool.clone(),
            keyword,
            at,
        };
        assert_eq!(refusal(format, &tools, required), strict);
        assert!(strict.to_string().contains("pattern at #/properties/id"));
    }
    // As JSON it is held.
    let spec = grammar(ToolFormat::Json, &rules(&tools, required));
    assert!(QWEN.takes(&spec, r#"{"name": "now", "arguments": {"id": "aa"}}"#));
    assert!(!QWEN.takes(&spec, r#"{"name": "now", "arguments": {"id": "ab"}}"#));
}

/// Qwen3-Coder's and Gemma's values that are no texts.
#[test]
fn values_without_json_keep_their_types() {
    let tools = tools(false);
    let spec = grammar(ToolFormat::Gemma, &rules(&tools, ToolChoice::Required));
    let call = |at: &str| {
        format!(
            "<|tool_call>call:get_weather{{{at}city:<|\"|>a, b<|\"|>,unit:<|\"|>F<|\"|>}}<tool_call|>"
        )
    };
    for at in ["", "at:null,", "at:[],", "at:[{h:1},{h:22}],"] {
        assert!(QWEN.takes(&spec, &call(at)), "{at}");
    }
    for at in ["at:1,", "at:[{}],", "at:[{h:<|\"|>1<|\"|>}],", "days:1,"] {
        assert!(!QWEN.takes(&spec, &call(at)), "{at}");
    }
    let spec = grammar(ToolFormat::QwenCoder, &rules(&tools, ToolChoice::Required));
    let call = |more: &str| {
        format!(
            "<tool_call>\n<function=get_weather>\n<parameter=unit>\nF\n</parameter>\n<parameter=city>\n<a>\n\n</b>\n</parameter>\n{more}</function>\n</tool_call>"
        )
    };
    for more in [
        "",
        "<parameter=days>\n3\n</parameter>\n",
        "<parameter=at>\n[{\"h\": 1}]\n</parameter>\n",
    ] {
        assert!(QWEN.takes(&spec, &call(more)), "{more}");
    }
    for more in [
        "<parameter=days>\nx\n</parameter>\n",
        "<parameter=at>\n[{\"k\": 1}]\n</parameter>\n",
    ] {
        assert!(!QWEN.takes(&spec, &call(more)), "{more}");
    }
}
