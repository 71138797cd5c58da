//! Answers that end early: by their length, by a stop string, or in the midst of their reasoning.

use minfer::gguf::Value as Gguf;
use serde_json::{Value, json};

use crate::harness::{Reply, Running, named_events, on, with};
use crate::models::{FIRST_FREE, Model, saying};
use crate::tools::{ARGUMENTS, HERMES, THINK, calling, start, thinking, tools, weather};

const CHAT: &str = "/v1/chat/completions";
/// Knows no tools: they are told in words, and calls are JSON without a marker.
const PLAIN: &str = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";

/// What the chunks of a stream say when they are joined, as a message; and the reason of its end.
fn joined(reply: &Reply) -> (Value, Value) {
    let (mut message, mut reason) = (json!({"content": ""}), Value::Null);
    for chunk in reply.chunks() {
        let choice = &chunk["choices"][0];
        let mut add = |key: &str, at: &str, piece: &Value| {
            let Some(piece) = piece.as_str() else { return };
            let map = message.pointer_mut(at).unwrap().as_object_mut().unwrap();
            let known = map.entry(key).or_insert(json!(""));
            *known = json!(format!("{}{piece}", known.as_str().unwrap()));
        };
        let delta = &choice["delta"];
        add("content", "", &delta["content"]);
        add("reasoning_content", "", &delta["reasoning_content"]);
        if let Some(call) = delta["tool_calls"][0].as_object() {
            let at = call["index"].as_u64().unwrap();
            assert_eq!(at, 0, "one call at most, here");
            let function = &call["function"];
            if let Some(name) = function.get("name") {
                message["tool_calls"] = json!([{"name": name, "arguments": ""}]);
            }
            let mut add = |piece: &str| {
                let known = message["tool_calls"][0]["arguments"].as_str().unwrap();
                message["tool_calls"][0]["arguments"] = json!(format!("{known}{piece}"));
            };
            add(function["arguments"].as_str().unwrap_or_default());
        }
        if !choice["finish_reason"].is_null() {
            reason = choice["finish_reason"].clone();
        }
    }
    (message, reason)
}

/// The whole answer and the stream's say the same; that message, and the reason.
pub fn both(server: &Running, ask: &Value) -> (Value, Value) {
    let whole = server.post(CHAT, ask).json();
    let choice = &whole["choices"][0];
    let said = &choice["message"];
    let mut message = json!({"content": said["content"].as_str().unwrap_or_default()});
    if let Some(reasoning) = said.get("reasoning_content") {
        message["reasoning_content"] = reasoning.clone();
    }
    if let Some(call) = said["tool_calls"][0].get("function") {
        message["tool_calls"] = json!([call]);
    }
    let pieces = server.post(CHAT, &with(ask.clone(), &[("stream", json!(true))]));
    let whole = (message, choice["finish_reason"].clone());
    assert_eq!(whole, joined(&pieces), "{ask}");
    whole
}

/// As OpenAI's: the arguments as far as they came.
#[test]
fn a_call_that_is_cut_is_the_same_whole_and_in_pieces() {
    let (server, ask) = start(&calling());
    let ask = with(ask, &[("tools", tools())]);
    for (tokens, arguments) in [(1, None), (3, Some(r#"{"city": "#)), (4, Some(ARGUMENTS))] {
        let ask = with(ask.clone(), &[("max_tokens", json!(tokens))]);
        let (message, reason) = both(&server, &ask);
        assert_eq!(reason, "length", "{message}");
        let call = &message["tool_calls"][0];
        assert_eq!(call["arguments"].as_str(), arguments, "{tokens}: {message}");
        // The space before a call belongs to it; where none came, it is text.
        let content = if tokens == 1 { "I look. " } else { "I look." };
        assert_eq!(message["content"], content);
    }
}

/// A model whose calls stand in `<tool_call>`, and that says this.
fn hermes(pieces: &[&[u8]]) -> Model {
    saying(pieces)
        .text("tokenizer.chat_template", HERMES)
        .set("llama.context_length", Gguf::U32(1024))
        .write()
}

/// A call whose marker comes in two pieces.
const MARKED: [&[u8]; 5] = [
    b"I look.",
    b" <tool",
    b"_call>",
    br#"{"name": "we"#,
    br#"ather", "arguments": {"city": "Rome"}}</tool_call>"#,
];

/// A marker that is cut off within says nothing yet, and one behind which no tool is named: as in llama-server, whose parser takes a marker's beginning at
/// the end of a text for the marker (`common_peg_until_parser`). What the model itself ends so is what it says.
#[test]
fn a_marker_that_is_cut_is_not_told() {
    let (server, ask) = start(&hermes(&MARKED));
    let ask = with(ask, &[("tools", tools())]);
    for tokens in 1..=4 {
        let cut = [("max_tokens", json!(tokens))];
        let (message, reason) = both(&server, &with(ask.clone(), &cut));
        let want = (json!({"content": "I look."}), json!("length"));
        assert_eq!((message, reason), want, "{tokens}");
    }
    let (server, ask) = start(&hermes(&MARKED[..2]));
    let (message, reason) = both(&server, &with(ask, &[("tools", tools())]));
    let want = (json!({"content": "I look. <tool"}), json!("stop"));
    assert_eq!((message, reason), want);
}

#[test]
fn a_stop_string_within_a_call_that_is_cut_ends_nothing() {
    let lines: [&[u8]; 4] = [
        b"I look.",
        b" <tool_call>",
        b"\n{\"na",
        b"me\": \"weather\"",
    ];
    let (stops, ask) = start(&hermes(&lines));
    let stop = [
        ("tools", tools()),
        ("stop", json!(["\n"])),
        ("max_tokens", json!(3)),
    ];
    let (message, reason) = both(&stops, &with(ask, &stop));
    let want = (json!({"content": "I look."}), json!("length"));
    assert_eq!((message, reason), want);
}

/// A line of Ollama's has whole calls only.
#[test]
fn a_cut_call_is_not_lost_in_ollama_s_lines() {
    let (server, ask) = start(&hermes(&MARKED));
    let ask = with(ask, &[("tools", tools())]);
    let cut = |n: u32| {
        [
            ("options", json!({"num_predict": n, "temperature": 0})),
            ("stream", json!(false)),
        ]
    };
    for (tokens, content) in [
        (2, "I look."),
        (3, "I look."),
        (4, "I look. <tool_call>{\"name\": \"we"),
    ] {
        let ask = on("/api/chat", with(ask.clone(), &cut(tokens)));
        let said = server.post("/api/chat", &ask).json();
        assert_eq!(said["message"]["content"], content, "{said}");
    }
}

/// Where calls have no marker, what a grammar holds to one is one all the same.
#[test]
fn a_forced_call_that_is_cut_is_no_content() {
    let pieces: [&[u8]; 5] = [
        br#"{"name": "wea"#,
        br#"ther","#,
        br#" "arguments": "#,
        br#"{"city": "Rome"#,
        br#""}}"#,
    ];
    let model = saying(&pieces)
        .text("tokenizer.chat_template", PLAIN)
        .set("llama.context_length", Gguf::U32(1024))
        .write();
    let (server, ask) = start(&model);
    let ask = with(ask, &[("tools", tools())]);
    let named = json!({"type": "function", "function": {"name": "weather"}});
    for choice in [json!("required"), named] {
        for (tokens, arguments) in [
            (1, None),
            (2, Some("{")),
            (3, Some("{")),
            (4, Some(r#"{"city": "Rome"#)),
        ] {
            let more = [
                ("max_tokens", json!(tokens)),
                ("tool_choice", choice.clone()),
            ];
            let (message, reason) = both(&server, &with(ask.clone(), &more));
            assert_eq!(reason, "length", "{message}");
            let call = &message["tool_calls"][0];
            assert_eq!(call["arguments"].as_str(), arguments, "{tokens}: {message}");
            assert_eq!(message["content"], "", "{tokens}");
        }
        let (message, reason) = both(&server, &with(ask.clone(), &[("tool_choice", choice)]));
        assert_eq!(
            message["tool_calls"][0]["arguments"], ARGUMENTS,
            "{message}"
        );
        assert_eq!(reason, "tool_calls");
    }
    // One that is free may be any JSON.
    let (message, _) = both(&server, &with(ask, &[("max_tokens", json!(1))]));
    assert_eq!(message["content"], r#"{"name": "wea"#);
}

#[test]
fn a_cut_call_is_an_unfinished_block_and_item() {
    let (server, ask) = start(&calling());
    let tool = json!([{"name": "weather", "input_schema": weather()["parameters"]}]);
    let claude = with(ask.clone(), &[("tools", tool)]);
    for (tokens, input, json) in [
        (3, json!({}), r#"{"city": "#),
        (4, json!({"city": "Rome"}), ARGUMENTS),
    ] {
        let claude = with(claude.clone(), &[("max_tokens", json!(tokens))]);
        let whole = server.post("/v1/messages", &claude).json();
        assert_eq!(whole["stop_reason"], "max_tokens", "{whole}");
        assert_eq!(whole["content"][0]["text"], "I look.");
        let block = &whole["content"][1];
        assert!(block["type"] == "tool_use" && block["name"] == "weather");
        assert_eq!(block["input"], input);
        let stream = with(claude, &[("stream", json!(true))]);
        let events = named_events(&server.post("/v1/messages", &stream));
        let pieces = events
            .iter()
            .filter_map(|e| e.1["delta"]["partial_json"].as_str());
        assert_eq!(pieces.collect::<String>(), json);
    }

    let mut tool = weather();
    tool["type"] = json!("function");
    let more = [
        ("tools", json!([tool])),
        ("input", json!("Hi")),
        ("max_output_tokens", json!(3)),
    ];
    let ask = with(ask, &more);
    let whole = server.post("/v1/responses", &ask).json();
    assert_eq!(whole["status"], "incomplete", "{whole}");
    assert_eq!(whole["incomplete_details"]["reason"], "max_output_tokens");
    let call = &whole["output"][1];
    assert!(call["type"] == "function_call" && call["status"] == "incomplete");
    assert_eq!(call["arguments"], r#"{"city": "#);
    let stream = with(ask, &[("stream", json!(true))]);
    let events = named_events(&server.post("/v1/responses", &stream));
    let last = &events.last().unwrap().1["response"]["output"][1];
    let fields = ["type", "status", "name", "arguments"];
    assert!(fields.iter().all(|f| last[*f] == call[*f]), "{last}");
}

/// A line break or a brace would break every call.
#[test]
fn stop_strings_are_looked_for_in_the_answer_s_text_alone() {
    let (server, ask) = start(&calling());
    let offered = with(ask.clone(), &[("tools", tools())]);
    let stop = |ask: &Value, stops: Value| with(ask.clone(), &[("stop", stops)]);
    for (stops, content) in [
        (
            json!(["}", "Rome", "tool_call>{"]),
            "I look.\n<tool_call>oh",
        ),
        (json!("oh"), "I look.\n<tool_call>"),
        (json!("\n"), "I look."),
    ] {
        let (message, reason) = both(&server, &stop(&offered, stops));
        assert_eq!(
            message["tool_calls"][0]["arguments"], ARGUMENTS,
            "{message}"
        );
        assert!(message["content"] == content && reason == "tool_calls");
    }
    let (message, reason) = both(&server, &stop(&offered, json!("look")));
    assert_eq!((message, reason), (json!({"content": "I "}), json!("stop")));
    // Without tools the same text is content.
    let (message, reason) = both(&server, &stop(&ask, json!(["}", "Rome"])));
    let content = message["content"].as_str().unwrap();
    assert!(
        content.ends_with(r#"{"city": ""#) && reason == "stop",
        "{message}"
    );

    let (server, ask) = start(&thinking(THINK));
    let (message, _) = both(&server, &stop(&ask, json!([",", "so", "\n", "s!"])));
    let want = json!({"reasoning_content": "Hm, so.", "content": "Ye"});
    assert_eq!(message, want);
    let more = [
        ("stop_sequences", json!([",", "es"])),
        ("max_tokens", json!(50)),
    ];
    let claude = server.post("/v1/messages", &with(ask, &more)).json();
    assert_eq!(claude["content"][0]["thinking"], "Hm, so.", "{claude}");
    assert_eq!(claude["content"][1]["text"], "Y");
    assert!(claude["stop_reason"] == "stop_sequence" && claude["stop_sequence"] == "es");
}

/// Reasons for two tokens, and closes with one that is a control token.
fn reasoning(answer: &[u8]) -> Model {
    saying(&[b"Hm,", b" so.", b"</think>", answer])
        .token(FIRST_FREE + 2, "</think>", 3)
        .text("tokenizer.chat_template", THINK)
        .write()
}

#[test]
fn llama_cpp_20297_reasoning_ends_when_its_budget_is_spent() {
    let (server, ask) = start(&reasoning(b"Yes!"));
    let budget = |n: i64| ("reasoning_budget", json!(n));
    for (n, reasoning) in [
        (0, None),
        (1, Some("Hm,")),
        (2, Some("Hm, so.")),
        (-1, Some("Hm, so.")),
        (100, Some("Hm, so.")),
    ] {
        let (message, reason) = both(&server, &with(ask.clone(), &[budget(n)]));
        assert_eq!(message["reasoning_content"].as_str(), reasoning, "{n}");
        assert!(
            message["content"] == "Yes!" && reason == "stop",
            "{message}"
        );
    }
    let thinking = json!({"type": "enabled", "budget_tokens": 1});
    let more = [("thinking", thinking), ("max_tokens", json!(50))];
    let claude = server
        .post("/v1/messages", &with(ask.clone(), &more))
        .json();
    assert_eq!(claude["content"][0]["thinking"], "Hm,", "{claude}");
    assert_eq!(claude["content"][1]["text"], "Yes!");
    for (more, says) in [
        (vec![budget(-2)], "-2"),
        (
            vec![budget(1), ("reasoning_format", json!("none"))],
            "reasoning_format",
        ),
        (
            vec![budget(1), ("grammar", json!("root ::= \"a\""))],
            "grammar",
        ),
        (
            vec![budget(1), ("thinking_budget_tokens", json!(2))],
            "something else",
        ),
    ] {
        let reply = server.post(CHAT, &with(ask.clone(), &more));
        assert!(
            reply.status == 400 && reply.text.contains(says),
            "{}",
            reply.text
        );
        let param = reply.json()["error"]["param"].clone();
        assert_eq!(param, "reasoning_budget", "{}", reply.text);
    }
}

/// A closing tag that is no token of its own is forced piece by piece, and a grammar goes on behind it.
#[test]
fn a_forced_end_is_text_and_a_schema_follows_it() {
    let (server, ask) = start(&thinking(THINK));
    let ask = with(ask, &[("reasoning_budget", json!(1))]);
    let (message, _) = both(&server, &ask);
    assert_eq!(message["reasoning_content"], "Hm,");
    // A token that this model does not know makes it begin again.
    assert_eq!(message["content"], "Hm, so.\n</think>\n\nYes!");

    let (server, ask) = start(&reasoning(br#"{"a":1}"#));
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    let more = [("response_format", format), ("reasoning_budget", json!(1))];
    let (message, _) = both(&server, &with(ask, &more));
    let want = json!({"reasoning_content": "Hm,", "content": r#"{"a":1}"#});
    assert_eq!(message, want);
}
