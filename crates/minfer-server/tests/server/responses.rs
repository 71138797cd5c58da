//! `POST /v1/responses`. Shapes as the official Python SDK (openai 3.57) has them in its types.

use serde_json::{Value, json};

use crate::harness::{Running, Setup, named_events, with};
use crate::models::saying;

fn ask() -> Value {
    json!({"model": "llama", "input": "Hi", "max_output_tokens": 16, "temperature": 0})
}

/// A server of a model that says `Hello, you`, and a request with instructions.
fn hello() -> (Running, Value) {
    let model = saying(&[b"Hello", b",", b" you"]).write();
    let server = Setup::of(&[model.path()]).start();
    let name = server.get("/v1/models").json()["data"][0]["id"].clone();
    let more = [
        ("model", name),
        ("instructions", json!("Be brief.")),
        ("store", json!(true)),
    ];
    (server, with(ask(), &more))
}

/// The content of its answer.
fn said_hello() -> Value {
    json!([{"type": "output_text", "text": "Hello, you", "annotations": [], "logprobs": []}])
}

#[test]
fn a_known_answer_whole() {
    let (server, ask) = hello();
    let whole = server.post("/v1/responses", &ask).json();
    let item = &whole["output"][0];
    assert_eq!(item["content"], said_hello());
    assert_eq!(item["status"], "completed");
    for (key, value) in [
        ("object", json!("response")),
        ("status", json!("completed")),
        ("store", json!(false)),
        ("instructions", json!("Be brief.")),
        ("incomplete_details", json!(null)),
    ] {
        assert_eq!(whole[key], value, "{key}");
    }
    // Three words and the end.
    assert_eq!(whole["usage"]["output_tokens"], 4);
}

#[test]
fn a_known_answer_in_events() {
    let (server, ask) = hello();
    let whole = server.post("/v1/responses", &ask).json();
    let reply = server.post("/v1/responses", &with(ask, &[("stream", json!(true))]));
    let events = named_events(&reply);
    let names: Vec<&str> = events.iter().map(|e| e.0.as_str()).collect();
    let delta = "response.output_text.delta";
    assert_eq!(
        names,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            delta,
            delta,
            delta,
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    for (i, (_, data)) in events.iter().enumerate() {
        assert_eq!(data["sequence_number"], i);
    }
    let said = events.iter().filter_map(|e| e.1["delta"].as_str());
    assert_eq!(said.collect::<String>(), "Hello, you");
    assert_eq!(events[0].1["response"]["status"], "in_progress");
    let last = &events[10].1["response"];
    assert_eq!(last["output"][0]["content"], said_hello());
    assert_eq!(last["output"][0]["id"], events[2].1["item"]["id"]);
    assert_eq!(
        last["usage"]["total_tokens"],
        whole["usage"]["total_tokens"]
    );
}

#[test]
fn an_answer_that_is_cut_is_incomplete() {
    let model = saying(&[b"Hello", b",", b" you"]).write();
    let server = Setup::of(&[model.path()]).start();
    let cut = [("model", json!(null)), ("max_output_tokens", json!(2))];
    let whole = server.post("/v1/responses", &with(ask(), &cut)).json();
    assert_eq!(whole["status"], "incomplete");
    assert_eq!(
        whole["incomplete_details"],
        json!({"reason": "max_output_tokens"})
    );
    assert_eq!(whole["output"][0]["content"][0]["text"], "Hello,");
}

#[test]
fn an_answer_follows_a_schema_and_has_log_probabilities() {
    let server = Setup::of(&["llama"]).start();
    let schema = json!({"enum": ["yes", "no"]});
    let format = json!({"type": "json_schema", "name": "choice", "schema": schema, "strict": true});
    let more = [
        ("text", json!({"format": format})),
        ("temperature", json!(1)),
        ("include", json!(["message.output_text.logprobs"])),
        ("top_logprobs", json!(2)),
    ];
    let whole = server.post("/v1/responses", &with(ask(), &more)).json();
    let content = &whole["output"][0]["content"][0];
    let text = content["text"].as_str().expect("a text");
    assert!(text == "\"yes\"" || text == "\"no\"", "{whole}");
    let logprobs = content["logprobs"].as_array().expect("a list");
    let tokens = logprobs
        .iter()
        .map(|l| l["token"].as_str().expect("a token"));
    assert!(tokens.collect::<String>().starts_with(text), "{whole}");
    assert_eq!(
        logprobs[0]["top_logprobs"].as_array().map(Vec::len),
        Some(2)
    );
    assert_eq!(whole["text"]["format"], format);
}

#[test]
fn what_can_t_be_honoured_is_refused_by_name() {
    let server = Setup::of(&["llama"]).start();
    for (key, value) in [
        ("input", json!(null)),
        ("previous_response_id", json!("resp_1")),
        ("conversation", json!("conv_1")),
        ("background", json!(true)),
        ("truncation", json!("auto")),
        ("max_output_tokens", json!(0)),
        ("temperature", json!(-1)),
        ("max_tool_calls", json!("many")),
        ("response_format", json!({"type": "json_object"})),
        ("text.format", json!(null)),
        ("text.format.schema", json!(null)),
        ("text.verbosity", json!(null)),
    ] {
        let more = match key {
            "text.format" => ("text", json!({"format": {"type": "xml"}})),
            "text.format.schema" => (
                "text",
                json!({"format": {"type": "json_schema", "name": "x"}}),
            ),
            "text.verbosity" => ("text", json!({"verbosity": "low"})),
            key => (key, value),
        };
        let reply = server.post("/v1/responses", &with(ask(), &[more]));
        assert_eq!(reply.status, 400, "{key}: {}", reply.text);
        let error = &reply.json()["error"];
        assert_eq!(error["param"], key, "{}", reply.text);
        let message = error["message"].as_str().expect("a message");
        assert!(message.starts_with(key), "{message}");
        // Where it is in responses, as OpenAI's own refusal says.
        assert!(key != "response_format" || message.contains("text.format"));
    }
}

/// It counts calls of tools that the server runs, of which there are none: any number holds, and is said again.
#[test]
fn a_limit_of_calls_is_said_again() {
    let server = Setup::of(&["llama"]).start();
    for (limit, said) in [(json!(2), json!(2)), (json!(null), json!(null))] {
        let ask = with(ask(), &[("max_tool_calls", limit)]);
        let whole = server.post("/v1/responses", &ask).json();
        assert_eq!(whole.get("max_tool_calls"), Some(&said), "{whole}");
    }
}

/// Chat's choice has more levels.
#[test]
fn a_choice_that_can_t_be_made_is_named_by_its_own_place() {
    let server = Setup::of(&["llama"]).start();
    let tool = json!({"type": "function", "name": "f", "parameters": {"type": "object"}});
    for (choice, param, says) in [
        (
            json!({"type": "function", "name": "g"}),
            "tool_choice.name",
            "g",
        ),
        (
            json!({"type": "function"}),
            "tool_choice.name",
            "is required",
        ),
        (
            json!({"type": "web_search"}),
            "tool_choice.type",
            "is \"web_search\"",
        ),
        (json!({}), "tool_choice.type", "is null"),
        (
            json!({"type": "allowed_tools", "mode": "auto", "tools": []}),
            "tool_choice.tools",
            "list",
        ),
        (
            json!({"type": "allowed_tools", "mode": "often", "tools": [{"type": "function", "name": "f"}]}),
            "tool_choice.mode",
            "is \"often\"",
        ),
        (json!("often"), "tool_choice", "is \"often\""),
    ] {
        let more = [("tools", json!([tool])), ("tool_choice", choice)];
        let reply = server.post("/v1/responses", &with(ask(), &more));
        assert_eq!(reply.status, 400, "{param}: {}", reply.text);
        let error = &reply.json()["error"];
        assert_eq!(error["param"], param, "{}", reply.text);
        let message = error["message"].as_str().expect("a message");
        assert!(
            message.contains(says) && !message.contains("Some("),
            "{message}"
        );
    }
}
