//! Tool calls and reasoning on every surface, of models that say a known text and of random ones that are held to schemas.

use minfer::gguf::Value as Gguf;
use serde_json::{Value, json};

use crate::harness::{Running, Setup, named_events, on, with};
use crate::models::{FIRST_FREE, Model, Variant, saying};

/// Shows messages, tools and calls, and whose calls stand in `<tool_call>`.
pub const HERMES: &str = "{% for t in tools or [] %}{{ t | tojson }}\n{% endfor %}{% for m in messages %}{{ m.role }}: {{ m.content }}\
{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }}{{ c.function.arguments | tojson }}</tool_call>{% endfor %}\n{% endfor %}";
/// The same of Mistral's calls.
pub const MISTRAL: &str = "{% for t in tools or [] %}{{ t | tojson }}\n{% endfor %}{% for m in messages %}{{ m.role }}: {{ m.content }}\
{% for c in m.tool_calls or [] %}[TOOL_CALLS]{{ c.function.name }}{% endfor %}\n{% endfor %}";
/// Opens reasoning.
pub const THINK: &str =
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}<think>\n{# </think> #}";

pub const ARGUMENTS: &str = r#"{"city": "Rome"}"#;

pub fn weather() -> Value {
    let city = json!({"city": {"type": "string"}});
    json!({"name": "weather", "description": "Of a city", "parameters": {
        "type": "object", "properties": city, "required": ["city"], "additionalProperties": false}})
}

pub fn tools() -> Value {
    json!([{"type": "function", "function": weather()}])
}

/// A model that says two words, then calls the tool twice.
pub fn calling() -> Model {
    let call = br#"<tool_call>{"name": "weather", "arguments": "#;
    let pieces: [&[u8]; 6] = [
        b"I look. ",
        call,
        br#"{"city": "#,
        br#""Rome"}"#,
        b"}</tool_call>\n",
        b"<tool_call>oh",
    ];
    saying(&pieces)
        .text("tokenizer.chat_template", HERMES)
        .set("llama.context_length", Gguf::U32(1024))
        .write()
}

pub fn start(model: &Model) -> (Running, Value) {
    let mut setup = Setup::of(&[model.path()]);
    setup.engine.n_ctx = 1024;
    let server = setup.start();
    let name = server.get("/v1/models").json()["data"][0]["id"].clone();
    let ask =
        json!({"model": name, "temperature": 0, "messages": [{"role": "user", "content": "Hi"}]});
    (server, ask)
}

#[test]
fn llama_cpp_13774_calls_come_whole_and_in_pieces() {
    let model = calling();
    let (server, ask) = start(&model);
    let ask = with(ask, &[("tools", tools())]);
    let whole = server.post("/v1/chat/completions", &ask).json();
    let choice = &whole["choices"][0];
    let message = &choice["message"];
    // What is no call in the end is content: nothing is lost.
    assert_eq!(message["content"], "I look.\n<tool_call>oh", "{whole}");
    assert_eq!(choice["finish_reason"], "tool_calls");
    let calls = message["tool_calls"].as_array().unwrap();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0]["type"], "function");
    assert!(calls[0]["id"].as_str().unwrap().starts_with("call_"));
    assert_eq!(
        calls[0]["function"],
        json!({"name": "weather", "arguments": ARGUMENTS})
    );

    let stream = with(ask, &[("stream", json!(true))]);
    let chunks = server.post("/v1/chat/completions", &stream).chunks();
    let deltas: Vec<&Value> = chunks.iter().map(|c| &c["choices"][0]["delta"]).collect();
    let calls = deltas.iter().filter_map(|d| d["tool_calls"][0].as_object());
    let calls: Vec<_> = calls.collect();
    // Id and name once, then pieces of arguments.
    let (first, rest) = calls.split_first().unwrap();
    assert_eq!(
        first["function"],
        json!({"name": "weather", "arguments": ""})
    );
    assert!(first["id"].is_string() && first["index"] == 0);
    assert!(
        rest.iter()
            .all(|c| c["index"] == 0 && !c.contains_key("id"))
    );
    let pieces = rest
        .iter()
        .map(|c| c["function"]["arguments"].as_str().unwrap());
    assert!(rest.len() > 1);
    assert_eq!(pieces.collect::<String>(), ARGUMENTS);
    let said = deltas.iter().filter_map(|d| d["content"].as_str());
    assert_eq!(said.collect::<String>(), "I look.\n<tool_call>oh");
    let end = chunks.last().unwrap();
    assert_eq!(end["choices"][0]["finish_reason"], "tool_calls");
}

/// Without tools, or with "none", the same text is content.
#[test]
fn nothing_is_a_call_where_no_tool_is_on_offer() {
    let model = calling();
    let (server, ask) = start(&model);
    for more in [
        vec![],
        vec![("tools", tools()), ("tool_choice", json!("none"))],
    ] {
        let whole = server.post("/v1/chat/completions", &with(ask.clone(), &more));
        let whole = whole.json();
        let message = &whole["choices"][0]["message"];
        let content = message["content"].as_str().unwrap();
        assert!(
            content.contains(r#"<tool_call>{"name": "weather""#),
            "{whole}"
        );
        assert!(message.get("tool_calls").is_none());
        assert_eq!(whole["choices"][0]["finish_reason"], "stop");
    }
}

#[test]
fn anthropic_has_tool_use_blocks() {
    let model = calling();
    let (server, ask) = start(&model);
    let tool = json!([{"name": "weather", "input_schema": weather()["parameters"]}]);
    let ask = with(ask, &[("tools", tool), ("max_tokens", json!(50))]);
    let whole = server.post("/v1/messages", &ask).json();
    let content = whole["content"].as_array().unwrap();
    assert_eq!(whole["stop_reason"], "tool_use", "{whole}");
    assert_eq!(content[0]["text"], "I look.");
    assert_eq!(content[1]["type"], "tool_use");
    assert_eq!(content[1]["input"], json!({"city": "Rome"}));
    assert_eq!(content[2]["text"], "\n<tool_call>oh");

    let events = named_events(&server.post("/v1/messages", &with(ask, &[("stream", json!(true))])));
    let starts = events.iter().filter(|e| e.0 == "content_block_start");
    let blocks: Vec<&Value> = starts.map(|e| &e.1["content_block"]).collect();
    assert_eq!(blocks.len(), 3);
    assert!(blocks[1]["type"] == "tool_use" && blocks[1]["input"] == json!({}));
    let pieces = events
        .iter()
        .filter_map(|e| e.1["delta"]["partial_json"].as_str());
    assert_eq!(pieces.collect::<String>(), ARGUMENTS);
    let stops = events
        .iter()
        .filter(|e| e.0 == "content_block_stop")
        .count();
    assert_eq!(stops, 3);
    let refused = with(
        json!({"model": whole["model"], "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}),
        &[(
            "tools",
            json!([{"type": "web_search_20250305", "name": "web_search"}]),
        )],
    );
    let refused = server.post("/v1/messages", &refused);
    assert!(refused.status == 400 && refused.text.contains("tools[0].type"));
}

/// OpenAI's words on Ollama's path.
#[test]
fn a_choice_is_honoured_on_ollama_s_path() {
    let model = calling();
    let (server, ask) = start(&model);
    let more = [
        ("tools", tools()),
        ("tool_choice", json!("none")),
        ("stream", json!(false)),
    ];
    let ask = on("/api/chat", with(ask, &more));
    let whole = server.post("/api/chat", &ask).json();
    assert!(whole["message"].get("tool_calls").is_none(), "{whole}");
    let content = whole["message"]["content"].as_str().unwrap();
    assert!(content.contains("<tool_call>{"), "{whole}");
}

#[test]
fn ollama_tells_whole_calls() {
    let model = calling();
    let (server, ask) = start(&model);
    for stream in [false, true] {
        let ask = with(
            ask.clone(),
            &[("tools", tools()), ("stream", json!(stream))],
        );
        let reply = server.post("/api/chat", &on("/api/chat", ask));
        assert_eq!(reply.status, 200, "{}", reply.text);
        let lines = reply.text.lines();
        let lines: Vec<Value> = lines.map(|l| serde_json::from_str(l).unwrap()).collect();
        let calls = lines
            .iter()
            .filter_map(|l| l["message"]["tool_calls"].as_array());
        let calls: Vec<&Value> = calls.flatten().collect();
        let want =
            json!({"function": {"index": 0, "name": "weather", "arguments": {"city": "Rome"}}});
        assert_eq!(calls, [&want]);
        let said = lines
            .iter()
            .filter_map(|l| l["message"]["content"].as_str());
        assert_eq!(said.collect::<String>(), "I look.\n<tool_call>oh");
    }
}

#[test]
fn responses_have_function_call_items() {
    let model = calling();
    let (server, ask) = start(&model);
    let mut tool = weather();
    tool["type"] = json!("function");
    let ask = with(ask, &[("tools", json!([tool])), ("input", json!("Hi"))]);
    let whole = server.post("/v1/responses", &ask).json();
    let output = whole["output"].as_array().unwrap();
    let kinds: Vec<&str> = output.iter().map(|i| i["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message", "function_call", "message"], "{whole}");
    assert!(output[1]["name"] == "weather" && output[1]["arguments"] == ARGUMENTS);
    assert!(output[1]["call_id"].as_str().unwrap().starts_with("call_"));
    assert_eq!(whole["tools"][0]["name"], "weather");

    let stream = with(ask, &[("stream", json!(true))]);
    let events = named_events(&server.post("/v1/responses", &stream));
    let delta = "response.function_call_arguments.delta";
    let pieces = events.iter().filter(|e| e.0 == delta);
    let pieces = pieces.map(|e| e.1["delta"].as_str().unwrap());
    assert_eq!(pieces.collect::<String>(), ARGUMENTS);
    let done = events
        .iter()
        .find(|e| e.0 == "response.function_call_arguments.done");
    assert_eq!(done.unwrap().1["arguments"], ARGUMENTS);
    let numbers: Vec<u64> = events
        .iter()
        .map(|e| e.1["sequence_number"].as_u64().unwrap())
        .collect();
    assert!(numbers.windows(2).all(|w| w[1] == w[0] + 1));
}

/// A marker that is a control token, which decoders hide, is seen all the same; and the id is one that Mistral's templates take.
#[test]
fn calls_behind_a_control_token_are_seen() {
    let pieces: [&[u8]; 3] = [
        b"[TOOL_CALLS]",
        br#"[{"name": "weather", "arguments": "#,
        br#"{"city": "Rome"}}]"#,
    ];
    let model = saying(&pieces).token(FIRST_FREE, "[TOOL_CALLS]", 3);
    let model = model.text("tokenizer.chat_template", MISTRAL).write();
    let (server, ask) = start(&model);
    let whole = server.post("/v1/chat/completions", &with(ask, &[("tools", tools())]));
    let whole = whole.json();
    let call = &whole["choices"][0]["message"]["tool_calls"][0];
    assert_eq!(call["function"]["arguments"], ARGUMENTS, "{whole}");
    assert_eq!(call["id"].as_str().unwrap().len(), 9);
}

/// A random model can only write what the tool's schema allows, through a marker that is a control token, too.
#[test]
fn a_call_that_must_be_follows_its_schema() {
    let random = |template: &str| {
        Variant::of("llama3")
            .text("tokenizer.chat_template", template)
            .token(FIRST_FREE, "[TOOL_CALLS]", 3)
            .set("llama.context_length", Gguf::U32(1024))
    };
    for template in [HERMES, MISTRAL, "{{ messages[0].content }}"] {
        let model = random(template).write();
        let mut setup = Setup::of(&[model.path()]);
        setup.engine.n_ctx = 1024;
        let server = setup.start();
        let parameters = json!({"type": "object", "properties": {"unit": {"enum": ["C", "F"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["unit", "days"], "additionalProperties": false});
        let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": parameters}});
        let name = server.get("/v1/models").json()["data"][0]["id"].clone();
        let mut picked = Vec::new();
        for seed in 0..4 {
            let named = json!({"type": "function", "function": {"name": "b"}});
            let choice = if seed % 2 == 0 {
                named
            } else {
                json!("required")
            };
            let ask = json!({"model": name, "seed": seed, "temperature": 1.5, "top_k": 0, "top_p": 1, "messages": [{"role": "user", "content": "Hi"}],
                "tools": [tool("a"), tool("b")], "tool_choice": choice, "parallel_tool_calls": false});
            let whole = server.post("/v1/chat/completions", &ask).json();
            let choice = &whole["choices"][0];
            let call = &choice["message"]["tool_calls"][0]["function"];
            assert_eq!(choice["finish_reason"], "tool_calls", "{template} {whole}");
            let arguments = call["arguments"].as_str().unwrap();
            let arguments: Value = serde_json::from_str(arguments).unwrap();
            assert!(
                arguments["unit"] == "C" || arguments["unit"] == "F",
                "{arguments}"
            );
            assert!((1..=9).contains(&arguments["days"].as_i64().unwrap()));
            assert!(seed % 2 == 1 || call["name"] == "b");
            picked.push(call["name"].clone());
        }
        assert_eq!(picked.len(), 4);
    }
}

/// A request with these fields is refused, by one of them, in words that say this.
fn refused(server: &Running, ask: &Value, more: &[(&str, Value)], param: &str, says: &str) {
    let reply = server.post("/v1/chat/completions", &with(ask.clone(), more));
    assert_eq!(reply.status, 400, "{more:?}: {}", reply.text);
    let error = &reply.json()["error"];
    assert_eq!(error["param"], param, "{}", reply.text);
    assert!(error["message"].as_str().unwrap().contains(says), "{error}");
}

#[test]
fn tools_that_can_t_be_held_to_are_refused_by_field() {
    let (server, ask) = start(&calling());
    let strict = json!([{"type": "function", "function": {"name": "f", "strict": true,
        "parameters": {"type": "object", "properties": {"x": {"not": {"type": "string"}}}}}}]);
    let listed =
        json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "array"}}}]);
    let number = json!([{"type": "function", "function": {"name": 1}}]);
    for (tools, param, says) in [
        (strict, "tools[0].function.parameters", "not"),
        // Nothing holds its calls: it is said at once all the same, as OpenAI does.
        (
            listed,
            "tools[0].function.parameters",
            "its type is \"array\"",
        ),
        (
            number,
            "tools[0].function.name",
            "must be a string, not a number",
        ),
    ] {
        refused(&server, &ask, &[("tools", tools)], param, says);
    }
}

#[test]
fn what_can_t_stand_beside_tools_or_says_them_otherwise_is_refused_by_field() {
    let (server, ask) = start(&calling());
    for (more, param, says) in [
        (
            vec![("tools", tools()), ("grammar", json!("root ::= \"a\""))],
            "grammar",
            "tools",
        ),
        (
            vec![("tools", tools()), ("tool_choice", json!("sometimes"))],
            "tool_choice",
            "sometimes",
        ),
        (
            vec![("tools", tools()), ("tool_choice", json!({"type": "tool"}))],
            "tool_choice.type",
            "is \"tool\"",
        ),
        (
            vec![("functions", json!([weather()]))],
            "functions",
            "tools",
        ),
        (
            vec![("reasoning_format", json!("xml"))],
            "reasoning_format",
            "deepseek",
        ),
        (
            vec![(
                "response_format",
                json!({"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}}),
            )],
            "response_format",
            "not",
        ),
    ] {
        refused(&server, &ask, &more, param, says);
    }
}

/// A schema that can't be held is no matter where another tool is to be called.
#[test]
fn only_the_tool_that_is_to_be_called_is_held() {
    let (server, ask) = start(&calling());
    let loose = json!({"type": "function", "function": {"name": "loose", "parameters": {"type": "object", "not": {}}}});
    let both = json!([{"type": "function", "function": weather()}, loose]);
    let choice = |name: &str| json!({"type": "function", "function": {"name": name}});
    for (name, status) in [("weather", 200), ("loose", 400)] {
        let more = [
            ("tools", both.clone()),
            ("tool_choice", choice(name)),
            ("max_tokens", json!(1)),
        ];
        let reply = server.post("/v1/chat/completions", &with(ask.clone(), &more));
        assert_eq!(reply.status, status, "{name}: {}", reply.text);
    }
    // One call at most says nothing of its arguments: only strict tools are held then, as without it.
    for parallel in [json!(null), json!(true), json!(false)] {
        let more = [
            ("tools", both.clone()),
            ("parallel_tool_calls", parallel.clone()),
            ("max_tokens", json!(1)),
        ];
        let reply = server.post("/v1/chat/completions", &with(ask.clone(), &more));
        assert_eq!(reply.status, 200, "{parallel}: {}", reply.text);
    }
}

/// A call that goes wrong after its first pieces were told is no completed one.
#[test]
fn responses_don_t_complete_a_call_that_went_wrong() {
    let call = br#"<tool_call>{"name": "weather", "arguments": "#;
    let model = saying(&[call, br#"{"city": "#, b"nowhere}}"]);
    let model = model.text("tokenizer.chat_template", HERMES).write();
    let (server, ask) = start(&model);
    let mut tool = weather();
    tool["type"] = json!("function");
    let more = [
        ("tools", json!([tool])),
        ("input", json!("Hi")),
        ("stream", json!(true)),
    ];
    let events = named_events(&server.post("/v1/responses", &with(ask, &more)));
    assert!(
        !events
            .iter()
            .any(|e| e.0 == "response.function_call_arguments.done")
    );
    let items = events.iter().filter(|e| e.0 == "response.output_item.done");
    let call = items
        .map(|e| &e.1["item"])
        .find(|i| i["type"] == "function_call");
    assert_eq!(call.expect("a call")["status"], "incomplete");
}

/// A model that reasons, and then answers.
pub fn thinking(template: &str) -> Model {
    let pieces: [&[u8]; 5] = [b"Hm,", b" so.", b"\n</think>", b"\n\n", b"Yes!"];
    saying(&pieces)
        .text("tokenizer.chat_template", template)
        .write()
}

#[test]
fn reasoning_is_told_from_the_answer() {
    let model = thinking(THINK);
    let (server, ask) = start(&model);
    let whole = server.post("/v1/chat/completions", &ask).json();
    let message = &whole["choices"][0]["message"];
    assert!(
        message["reasoning_content"] == "Hm, so." && message["content"] == "Yes!",
        "{whole}"
    );
    let usage = &whole["usage"]["completion_tokens_details"];
    assert!(usage["reasoning_tokens"].as_u64().unwrap() >= 2);
    let chunks = server.post(
        "/v1/chat/completions",
        &with(ask.clone(), &[("stream", json!(true))]),
    );
    let chunks = chunks.chunks();
    let of = |key: &str| -> String {
        let deltas = chunks
            .iter()
            .filter_map(|c| c["choices"][0]["delta"][key].as_str());
        deltas.collect()
    };
    assert_eq!(
        (of("reasoning_content"), of("content")),
        ("Hm, so.".to_owned(), "Yes!".to_owned())
    );
    let plain = with(ask.clone(), &[("reasoning_format", json!("none"))]);
    let plain = server.post("/v1/chat/completions", &plain).json();
    assert_eq!(
        plain["choices"][0]["message"]["content"],
        "Hm, so.\n</think>\n\nYes!"
    );

    let claude = server
        .post(
            "/v1/messages",
            &with(ask.clone(), &[("max_tokens", json!(50))]),
        )
        .json();
    assert_eq!(
        claude["content"][0],
        json!({"type": "thinking", "thinking": "Hm, so.", "signature": ""})
    );
    assert_eq!(claude["content"][1]["text"], "Yes!");
    let whole = with(ask.clone(), &[("stream", json!(false))]);
    let ollama = server.post("/api/chat", &on("/api/chat", whole)).json();
    assert!(ollama["message"]["thinking"] == "Hm, so." && ollama["message"]["content"] == "Yes!");
    let response = server
        .post("/v1/responses", &with(ask, &[("input", json!("Hi"))]))
        .json();
    assert_eq!(response["output"][0]["type"], "reasoning", "{response}");
    assert_eq!(response["output"][0]["content"][0]["text"], "Hm, so.");
    assert_eq!(response["output"][1]["content"][0]["text"], "Yes!");
}

/// A schema holds the answer, not the reasoning before it.
#[test]
fn a_schema_comes_after_reasoning() {
    let pieces: [&[u8]; 4] = [b"Hm,", b" so.", b"</think>", br#"{"a":1}"#];
    let model = saying(&pieces)
        .text("tokenizer.chat_template", THINK)
        .write();
    let (server, ask) = start(&model);
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    let whole = server.post(
        "/v1/chat/completions",
        &with(ask, &[("response_format", format)]),
    );
    let whole = whole.json();
    let message = &whole["choices"][0]["message"];
    assert!(
        message["reasoning_content"] == "Hm, so." && message["content"] == r#"{"a":1}"#,
        "{whole}"
    );
}

/// Tools, calls and what they gave reach a model whose template knows none of them.
#[test]
fn a_template_without_tools_is_told_in_words() {
    let plain = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
    let model = saying(&[b"Yes!"])
        .text("tokenizer.chat_template", plain)
        .write();
    let server = Setup::of(&[model.path()]).start();
    let messages = json!([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ARGUMENTS}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "Sun"},
    ]);
    let shown = server
        .post(
            "/apply-template",
            &json!({"messages": messages, "tools": tools()}),
        )
        .json();
    let prompt = shown["prompt"].as_str().unwrap();
    for part in [
        "system: ",
        "\"name\":\"weather\"",
        "Of a city",
        r#"assistant: {"name":"weather","arguments":{"city":"Rome"}}"#,
        "user: The tool weather gives:\n\nSun",
    ] {
        assert!(prompt.contains(part), "{part}: {prompt}");
    }
    assert!(!prompt.contains("tool: "), "{prompt}");
}
