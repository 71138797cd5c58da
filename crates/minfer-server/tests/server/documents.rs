//! Blocks of Anthropic's conversations that are more than text: documents of text, reasoning that nobody can read, and tools that only its own models know.

use serde_json::{Value, json};

use crate::harness::{Running, Setup, refused, said, taken, with};
use crate::models::saying;

const PATH: &str = "/v1/messages";
const SHOWS: &str = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";

fn server() -> (Running, Value) {
    let model = saying(&[b"Yes!"])
        .text("tokenizer.chat_template", SHOWS)
        .write();
    let mut setup = Setup::of(&[model.path()]);
    setup.engine.n_ctx = 1024;
    let server = setup.start();
    let model = json!(server.id());
    (server, model)
}

/// How many tokens, which are bytes here, a conversation has.
fn count(server: &Running, messages: Value) -> u64 {
    let body = json!({"model": server.id(), "messages": messages});
    let reply = server.post("/v1/messages/count_tokens", &body);
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()["input_tokens"].as_u64().expect("a count")
}

fn user(blocks: Value) -> Value {
    json!([{"role": "user", "content": blocks}])
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

#[test]
fn a_document_of_text_is_read_as_text() {
    let (server, _) = server();
    let data = |text: &str| json!({"type": "text", "media_type": "text/plain", "data": text});
    let content = |content: Value| json!({"type": "content", "content": content});
    let bare = "<document>\n<document_content>\nOnce.\n</document_content>\n</document>\n";
    let named = "<document>\n<source>T</source>\n<context>C</context>\n<document_content>\nOnce.\n</document_content>\n</document>\n";
    let two = "<document>\n<document_content>\nOn\nce.\n</document_content>\n</document>\n";
    for (source, more, reads) in [
        (data("Once."), json!({}), bare),
        (
            data("Once."),
            json!({"title": null, "context": "", "citations": {"enabled": false}, "cache_control": {"type": "ephemeral"}}),
            bare,
        ),
        (data("Once."), json!({"title": "T", "context": "C"}), named),
        (content(json!("Once.")), json!({}), bare),
        (content(json!([text("On"), text("ce.")])), json!({}), two),
    ] {
        let mut document = json!({"type": "document", "source": source});
        for (key, value) in more.as_object().expect("an object") {
            document[key] = value.clone();
        }
        let asked = user(json!([document, text("Sum it up.")]));
        let as_text = user(json!([text(reads), text("Sum it up.")]));
        assert_eq!(count(&server, asked), count(&server, as_text), "{document}");
    }
    // A tool gives one, too.
    let call = json!({"type": "tool_use", "id": "a", "name": "f", "input": {}});
    let talk = |given: Value| {
        let result = json!({"type": "tool_result", "tool_use_id": "a", "content": [given]});
        json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}])
    };
    let document = json!({"type": "document", "source": data("Once.")});
    assert_eq!(
        count(&server, talk(document)),
        count(&server, talk(text(bare)))
    );
}

#[test]
fn a_document_that_is_no_text_is_refused_by_its_place() {
    let server = Setup::of(&["llama"]).start();
    let at = "messages[0].content[0]";
    let only = "is not supported: this model reads text only, send it as text or content";
    let fine = json!({"type": "text", "media_type": "text/plain", "data": "a"});
    for (document, says) in [
        (json!({}), format!("{at}.source: is required")),
        (
            json!({"source": "a"}),
            format!("{at}.source: must be an object, not a string"),
        ),
        (
            json!({"source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}}),
            format!("{at}.source.type: 'base64' {only}"),
        ),
        (
            json!({"source": {"type": "url", "url": "http://a"}}),
            format!("{at}.source.type: 'url' {only}"),
        ),
        (
            json!({"source": {"type": "text", "media_type": "text/html", "data": "a"}}),
            format!("{at}.source.media_type: must be text/plain"),
        ),
        (
            json!({"source": {"type": "text"}}),
            format!("{at}.source.data: is required"),
        ),
        (
            json!({"source": {"type": "content", "content": [{"type": "image"}]}}),
            format!(
                "{at}.source.content[0].type: 'image' is not supported: text, document (of text), thinking, redacted_thinking, tool_use and tool_result are"
            ),
        ),
        (
            json!({"source": {"type": "content", "content": [{"type": "thinking", "thinking": "a"}]}}),
            format!("{at}.source.content[0]: a document holds texts only"),
        ),
        (
            json!({"source": fine, "title": 7}),
            format!("{at}.title: must be a string, not a number"),
        ),
        (
            json!({"source": fine, "citations": {"enabled": true}}),
            format!("{at}.citations.enabled: this server marks no citations: leave them out"),
        ),
    ] {
        let document = with(document, &[("type", json!("document"))]);
        refused(
            &server,
            PATH,
            &json!({"messages": user(json!([document]))}),
            &says,
        );
    }
    let document = json!({"type": "document", "source": fine});
    let answered =
        json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [document]}]);
    let says = "messages[1].content[0]: is of a type that assistant can't say";
    refused(&server, PATH, &json!({"messages": answered}), says);
}

/// It is another model's and encrypted: Anthropic's own pass over what they can't use.
#[test]
fn reasoning_that_nobody_can_read_is_passed_over() {
    let (server, model) = server();
    let redacted = json!({"type": "redacted_thinking", "data": "EmwKAhgB"});
    let talk = |said: Value| json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": said}, {"role": "user", "content": "So?"}]);
    let with_it = count(&server, talk(json!([redacted, text("Ho")])));
    assert_eq!(with_it, count(&server, talk(json!([text("Ho")]))));
    // A turn is one, whatever is left of it.
    let alone = json!({"model": model, "messages": talk(json!([redacted])), "max_tokens": 1});
    assert_eq!(server.post(PATH, &alone).status, 200);
    // Nor does it trouble templates that join what a turn says.
    let joins = "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}";
    let file = saying(&[b"Yes!"]).text("tokenizer.chat_template", joins);
    let joining = Setup::of(&[file.write().path()]).start();
    let cut = json!({"type": "thinking", "thinking": "Hm", "signature": "s"});
    for block in [&redacted, &cut] {
        let ask = json!({"model": joining.id(), "messages": talk(json!([block])), "max_tokens": 1});
        let reply = joining.post(PATH, &ask);
        assert_eq!(reply.status, 200, "{}", reply.text);
    }
    for (block, says) in [
        (
            json!({"type": "redacted_thinking"}),
            "messages[1].content[0].data: is required",
        ),
        (
            json!({"type": "redacted_thinking", "data": 1}),
            "messages[1].content[0].data: must be a string, not a number",
        ),
    ] {
        let more = json!({"model": model, "messages": talk(json!([block]))});
        refused(&server, PATH, &more, says);
    }
    let users = json!({"model": model, "messages": user(json!([redacted]))});
    refused(
        &server,
        PATH,
        &users,
        "messages[0].content[0]: is of a type that user can't say",
    );
}

#[test]
fn tools_that_only_anthropic_s_models_know_are_told_the_way_out() {
    let mut setup = Setup::of(&["llama"]);
    setup.engine.n_ctx = 512;
    let server = setup.start();
    let ask = |ty: &str| {
        let tool = json!({"type": ty, "name": "t"});
        said(&server, PATH, &json!({"tools": [tool]})).json()["error"]["message"].clone()
    };
    for ty in [
        "bash_20250124",
        "text_editor_20250728",
        "computer_20250124",
        "memory_20250818",
    ] {
        let says = format!(
            "tools[0].type: \"{ty}\" is a tool whose schema only Anthropic's models know: describe it as one of your own, with name, description and input_schema"
        );
        assert_eq!(ask(ty), says);
    }
    for ty in ["web_search_20250305", "code_execution_20250825"] {
        let says =
            format!("tools[0].type: \"{ty}\" is a tool that a server runs: this one runs none");
        assert_eq!(ask(ty), says);
    }
    let own = json!({"type": "custom", "name": "bash", "input_schema": {"type": "object"}});
    taken(&server, PATH, &json!({"tools": [own]}));
}
