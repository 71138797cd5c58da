//! Conversations that are longer than the context, on Ollama's surface: its server leaves out the oldest turns (`chatPrompt` of its `server/prompt.go`), unless
//! `truncate` says false.

use minfer::gguf::Value as Gguf;
use serde_json::{Value, json};

use crate::harness::{Running, Setup, refused, with};
use crate::models::saying;

/// Each message in its own marks, a byte a token; users and assistants take turns, as many templates insist on.
const TURNS: &str = "{% set at = namespace(user=true) %}{% for m in messages %}{% if m.role == 'user' and not at.user %}{{ raise_exception('no turns') }}{% endif %}\
    {% if m.role in ['user', 'assistant'] %}{% set at.user = m.role == 'assistant' %}{% endif %}\
    <{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}>{% endfor %}";

/// Positions of the context.
const ROOM: usize = 100;

fn server() -> Running {
    let model = saying(&[b"Yes!"])
        .text("tokenizer.chat_template", TURNS)
        .set("llama.context_length", Gguf::U32(128))
        .write();
    let mut setup = Setup::of(&[model.path()]);
    setup.engine.n_ctx = ROOM;
    setup.start()
}

fn says(role: &str, letter: char, n: usize) -> Value {
    json!({"role": role, "content": letter.to_string().repeat(n)})
}

fn ask(server: &Running, messages: &[Value], more: &[(&str, Value)]) -> Value {
    let options = json!({"temperature": 0, "num_predict": 4});
    let body =
        json!({"model": server.id(), "stream": false, "options": options, "messages": messages});
    let reply = server.post("/api/chat", &with(body, more));
    reply.json()
}

/// How long the prompt was, and how many messages it lacks.
fn read(answer: &Value) -> (u64, Option<u64>) {
    let count = answer["prompt_eval_count"].as_u64();
    let count = count.unwrap_or_else(|| panic!("{answer}"));
    (count, answer["truncated_messages"].as_u64())
}

#[test]
fn the_oldest_turns_are_left_out_and_that_is_said() {
    let server = server();
    let talk = [
        says("system", 's', 8), // 10 with its marks
        says("user", 'a', 28),
        says("assistant", 'b', 28),
        says("user", 'c', 28),
        says("assistant", 'd', 8),
        says("user", 'e', 8),
    ];
    // 10 + 30 are no prompt to cut.
    assert_eq!(read(&ask(&server, &talk[..2], &[])), (40, None));
    // All of it has 120: without the first turn 60.
    let answer = ask(&server, &talk, &[]);
    assert_eq!(read(&answer), (60, Some(2)));
    assert_eq!(answer["message"]["content"], "Yes!");
    assert_eq!(
        read(&ask(&server, &talk, &[("truncate", json!(true))])),
        (60, Some(2))
    );
    // In lines it is said, too, in the last.
    let body = json!({"model": server.id(), "messages": talk, "options": {"num_predict": 1}});
    let lines = server.post("/api/chat", &body).text;
    let last: Value = serde_json::from_str(lines.lines().last().expect("a line")).expect("JSON");
    assert_eq!(read(&last), (60, Some(2)));
}

/// What is left leaves room for the answer: a quarter of the context, or what the answer may take if that is less.
#[test]
fn what_is_cut_leaves_room_for_an_answer() {
    let server = server();
    let talk = [
        says("user", 'a', 18), // 20 with its marks
        says("assistant", 'b', 8),
        says("user", 'c', 38),
        says("assistant", 'd', 18),
        says("user", 'e', 18),
    ];
    // 110; from the second user on 80, from the last 20.
    let few = ("options", json!({"num_predict": 20}));
    assert_eq!(read(&ask(&server, &talk, &[few])), (80, Some(2)));
    for many in [json!({"num_predict": 21}), json!({})] {
        let answer = ask(&server, &talk, &[("options", many)]);
        assert_eq!(read(&answer), (20, Some(4)));
    }
    // What fits is not cut for that.
    let fits = ask(&server, &talk[2..], &[("options", json!({}))]);
    assert_eq!(read(&fits), (80, None));
}

/// Never a result without its call, nor a call without the question.
#[test]
fn a_conversation_begins_with_the_user_and_keeps_its_end() {
    let server = server();
    let call = |n: usize| {
        let function = json!({"name": "f".repeat(n), "arguments": {}});
        json!({"role": "assistant", "content": "", "tool_calls": [{"function": function}]})
    };
    let talk = [
        says("user", 'a', 38),
        says("assistant", 'b', 8),
        says("user", 'c', 18),
        call(8),
        says("tool", 'd', 28),
        call(8),
        says("tool", 'e', 8),
    ];
    // From the last words of the user's on: 20 + 10 + 30 + 10 + 10.
    assert_eq!(read(&ask(&server, &talk, &[])), (80, Some(2)));
    // The greeting before the first of them goes, too, and a system in the midst stays.
    let talk = [
        says("assistant", 'z', 38),
        says("user", 'a', 38),
        says("system", 's', 8),
        says("assistant", 'b', 8),
        says("user", 'c', 8),
    ];
    assert_eq!(read(&ask(&server, &talk, &[])), (70, Some(1)));
}

#[test]
fn what_can_t_be_cut_is_refused() {
    let server = server();
    let talk = [
        says("user", 'a', 58),
        says("assistant", 'b', 8),
        says("user", 'c', 58),
    ];
    let whole = ask(&server, &talk, &[("truncate", json!(false))]);
    let says_so = whole["error"].as_str().unwrap_or_default();
    assert!(
        says_so.starts_with("the prompt has 130 tokens, the context 100"),
        "{whole}"
    );
    assert_eq!(read(&ask(&server, &talk, &[])), (60, Some(2)));
    // One turn is none to drop; of several the last must fit.
    let long = says("user", 'd', 108);
    for talk in [
        vec![long.clone()],
        vec![says("user", 'a', 8), says("assistant", 'b', 8), long],
    ] {
        let answer = ask(&server, &talk, &[]);
        let says_so = answer["error"].as_str().unwrap_or_default();
        assert!(
            says_so.starts_with("the prompt has 110 tokens, the context 100"),
            "{answer}"
        );
    }
    // A prompt has no turns.
    let body = json!({"model": server.id(), "prompt": "a".repeat(110), "truncate": true});
    assert_eq!(server.post("/api/generate", &body).status, 400);
    // Nor does another surface leave out anything.
    let body = json!({"messages": talk});
    let chat = server.post("/v1/chat/completions", &body);
    assert_eq!(chat.json()["error"]["code"], "context_length_exceeded");
}

/// The advice is one that the model can follow.
#[test]
fn a_context_that_is_asked_for_and_too_long_is_told_the_way_out() {
    let begin = "num_ctx: 1000 is more than the";
    for (n_ctx, says) in [
        (
            100,
            "100 positions this model was loaded with: leave it out, or ask for at most 100, or start the server with a larger --n-ctx (the model's limit is 512)",
        ),
        (
            4096,
            "512 positions this model was loaded with: leave it out, or ask for at most 512 (the model's limit)",
        ),
    ] {
        let mut setup = Setup::of(&["llama"]);
        setup.engine.n_ctx = n_ctx;
        let server = setup.start();
        for path in ["/api/chat", "/api/embed"] {
            let more = json!({"options": {"num_ctx": 1000}});
            refused(&server, path, &more, &format!("{begin} {says}"));
        }
    }
}
