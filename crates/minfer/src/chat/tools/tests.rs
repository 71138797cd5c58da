//! Transcripts of each format, as its publisher documents it or its template writes it; and what must hold for any text.

use std::path::Path;

use serde_json::{Value, json};

use super::{Tool, ToolDelta, ToolFormat, ToolParser};
use crate::chat::{ChatTemplate, RenderRequest};

use ToolFormat::*;

pub(super) fn tools() -> Vec<Tool> {
    let parameters = json!({
        "type": "object",
        "properties": {
            "city": {"type": "string"}, "n": {"type": "integer"}, "deep": {"type": "object"},
            "on": {"type": ["boolean", "null"]}, "unit": {"enum": ["C", "F"]}
        }
    });
    ["get_weather", "now"]
        .map(|name| Tool {
            name: name.to_owned(),
            parameters: parameters.clone(),
            strict: false,
        })
        .into()
}

/// A part of an answer, joined.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part {
    Text(String),
    /// Name, arguments, whether it is complete.
    Call(String, String, bool),
}

pub(super) fn text(text: &str) -> Part {
    Part::Text(text.to_owned())
}

/// A complete call.
pub(super) fn call(name: &str, arguments: &str) -> Part {
    Part::Call(name.to_owned(), arguments.to_owned(), true)
}

/// A call that was cut.
pub(super) fn cut(name: &str, arguments: &str) -> Part {
    Part::Call(name.to_owned(), arguments.to_owned(), false)
}

pub(super) fn join(deltas: impl IntoIterator<Item = ToolDelta>) -> Vec<Part> {
    let (mut parts, mut calls) = (Vec::new(), 0);
    for delta in deltas {
        match (delta, parts.last_mut()) {
            (ToolDelta::Content(more), Some(Part::Text(last))) => last.push_str(&more),
            (ToolDelta::Content(more), _) => parts.push(Part::Text(more)),
            (ToolDelta::Start { index, name }, _) => {
                assert_eq!(index, calls);
                calls += 1;
                parts.push(Part::Call(name, String::new(), false));
            }
            (ToolDelta::Arguments { index, piece }, Some(Part::Call(_, arguments, false))) => {
                assert_eq!(index + 1, calls);
                arguments.push_str(&piece);
            }
            (ToolDelta::End { index }, Some(Part::Call(_, arguments, done @ false))) => {
                assert_eq!(index + 1, calls);
                assert!(
                    serde_json::from_str::<Value>(arguments)
                        .unwrap()
                        .is_object()
                );
                *done = true;
            }
            (delta, last) => panic!("{delta:?} after {last:?}"),
        }
    }
    parts
}

/// Reads an answer in one piece.
pub(super) fn read(mut parser: ToolParser, answer: &str) -> Vec<Part> {
    let first = parser.push(answer);
    join(first.into_iter().chain(parser.finish()))
}

fn streamed(format: ToolFormat, answer: &str) -> Vec<Part> {
    read(ToolParser::new(format, tools()), answer)
}

pub(super) fn whole(format: ToolFormat, answer: &str) -> Vec<Part> {
    read(ToolParser::new(format, tools()).whole(), answer)
}

/// Both ways agree.
fn reads(format: ToolFormat, answer: &str, want: &[Part]) {
    assert_eq!(streamed(format, answer), want, "{format:?} {answer:?}");
    assert_eq!(whole(format, answer), want, "{format:?} {answer:?}");
}

const PARIS: &str = r#"{"city": "Paris"}"#;

#[test]
fn hermes() {
    let one = r#"<tool_call>
{"name": "get_weather", "arguments": {"city": "Paris"}}
</tool_call>"#;
    reads(Hermes, one, &[call("get_weather", PARIS)]);
    // Hermes 2 Pro's documentation has the arguments first.
    let first = r#"<tool_call>
{"arguments": {"city": "Paris"}, "name": "get_weather"}
</tool_call>"#;
    reads(Hermes, first, &[call("get_weather", PARIS)]);
    let said = [
        text("Let me look."),
        call("get_weather", PARIS),
        call("get_weather", PARIS),
    ];
    reads(Hermes, &format!("Let me look.\n{one}\n{one}\n"), &said);
    let inner = "{\"name\": \"now\", \"arguments\": {}}";
    let both = format!("<tool_call>{inner}\n{inner}</tool_call>bye <b>");
    let after = [call("now", "{}"), call("now", "{}"), text("bye <b>")];
    reads(Hermes, &both, &after);
    // As OpenAI writes arguments; none at all; more keys; braces and marks within texts.
    let odd = r#"<tool_call>{"id":1,"name":"now","arguments":"{\"city\":\"a}\"}"}</tool_call><tool_call>{"name" : "now"}</tool_call>
<tool_call>{"arguments":{"city":"</tool_call>{\"\u0041","deep":{"a":[1,-2.5e3,true,null,[]]}},"name":"now","x":{}}</tool_call>"#;
    let want = [
        call("now", r#"{"city":"a}"}"#),
        call("now", "{}"),
        call(
            "now",
            r#"{"city":"</tool_call>{\"\u0041","deep":{"a":[1,-2.5e3,true,null,[]]}}"#,
        ),
    ];
    reads(Hermes, odd, &want);
    // A closing tag that the answer's end leaves out, or cuts.
    let cut = one.strip_suffix("call>").unwrap();
    reads(Hermes, cut, &[call("get_weather", PARIS)]);
}

/// Qwen2.5-Coder-0.5B's own answers to an offer of tools in its template.
#[test]
fn hermes_without_its_tags() {
    let bare = r#"{"name": "get_weather", "arguments": {"city": "Paris"}}"#;
    reads(Hermes, bare, &[call("get_weather", PARIS)]);
    let fenced =
        "```json\n{\n  \"name\": \"get_weather\",\n  \"arguments\": {\"city\": \"Paris\"}\n}\n```";
    reads(Hermes, fenced, &[call("get_weather", PARIS)]);
    let two = [call("get_weather", PARIS), call("get_weather", PARIS)];
    reads(Hermes, &format!("{bare}\n{bare}"), &two);
    for other in [
        r#"{"name": "Ada", "age": 36}"#,
        r#"{"name": "now"}"#,
        &format!("Say {bare} to me."),
        "```json\n{}\n```",
    ] {
        reads(Hermes, other, &[text(other)]);
    }
}

#[test]
fn qwen_coder() {
    // Qwen3-Coder's template.
    let two = "I will.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\n12\n</parameter>\n<parameter=n>\n12\n</parameter>\n\
        <parameter=deep>\n{\"a\": [1]}\n</parameter>\n<parameter=on>\nfalse\n</parameter>\n<parameter=unit>\nC\n</parameter>\n</function>\n\
        </tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>";
    let arguments = r#"{"city":"12","n":12,"deep":{"a":[1]},"on":false,"unit":"C"}"#;
    let want = [
        text("I will."),
        call("get_weather", arguments),
        call("now", "{}"),
    ];
    reads(QwenCoder, two, &want);
    let lines = "<tool_call>\n<function=now>\n<parameter=city>\na\n\n<b> </function>\n\n</parameter>\n</function>\n</tool_call>";
    reads(
        QwenCoder,
        lines,
        &[call("now", r#"{"city":"a\n\n<b> </function>\n"}"#)],
    );
    // Seed-OSS's template; a schema's values without a schema; the tag left out.
    let seed = "<seed:tool_call>\n<function=now>\n<parameter=city>Oslo</parameter>\n<parameter=other>3</parameter>\n</function>\n</seed:tool_call>";
    reads(
        QwenCoder,
        seed,
        &[call("now", r#"{"city":"Oslo","other":3}"#)],
    );
    let bare = "<function=now><parameter=n>many</parameter></function> ok";
    reads(
        QwenCoder,
        bare,
        &[call("now", r#"{"n":"many"}"#), text(" ok")],
    );
    // Llama 3.1's documentation of custom tools.
    let json = r#"<function=get_weather>{"city": "Paris"}</function>"#;
    reads(QwenCoder, json, &[call("get_weather", PARIS)]);
}

#[test]
fn llama3() {
    // Meta's documentation: the whole answer, or after the tag.
    let bare = r#"{"name": "get_weather", "parameters": {"city": "Paris"}}"#;
    reads(Llama3, bare, &[call("get_weather", PARIS)]);
    reads(
        Llama3,
        &format!("\n\n {bare}"),
        &[call("get_weather", PARIS)],
    );
    reads(
        Llama3,
        &format!("<|python_tag|>{bare}"),
        &[call("get_weather", PARIS)],
    );
    let two = format!("{bare}; {bare}\n");
    reads(
        Llama3,
        &two,
        &[call("get_weather", PARIS), call("get_weather", PARIS)],
    );
    let kind = r#"{"type": "function", "name": "get_weather", "parameters": {"city": "Paris"}}"#;
    reads(Llama3, kind, &[call("get_weather", PARIS)]);
    // Other JSON, and JSON that an answer only speaks of.
    for other in [
        r#"{"name": "Ada", "age": 36}"#,
        r#"{"name": "now"}"#,
        r#"{"a": [1, 2"#,
        &format!("Say {bare} to me."),
        "{\n",
        "<|python_tag|>print(1)",
    ] {
        reads(Llama3, other, &[text(other)]);
    }
}

#[test]
fn mistral() {
    // Mistral Nemo's template, and Mistral Small 3's.
    let list = r#"[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "9Ae3bDc2F"}, {"name": "now", "arguments": {}, "id": "1"}]"#;
    let args = r#"[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]now[CALL_ID]9Ae3bDc2F[ARGS]{}"#;
    // Control tokens that were not shown.
    let hidden = r#"[TOOL_CALLS]get_weather{"city": "Paris"}[TOOL_CALLS]now{}"#;
    let want = [call("get_weather", PARIS), call("now", "{}")];
    for format in [Mistral, MistralArgs] {
        for answer in [list, args, hidden] {
            reads(format, answer, &want);
            let said = format!("On it. {answer}\n\nDone.");
            let more = [&[text("On it.")], &want[..], &[text("\n\nDone.")]].concat();
            reads(format, &said, &more);
        }
    }
    for other in [
        "[TOOL_CALLS]",
        "a [TOOL_CALLS] b",
        "[TOOL_CALLS]none[ARGS]{}",
        "[TOOL_CALLS][]",
        "[TOOL",
    ] {
        reads(Mistral, other, &[text(other)]);
    }
}

#[test]
fn gemma() {
    // Gemma 4's template; FunctionGemma's documentation.
    let four = r#"Sure.<|tool_call>call:get_weather{city:<|"|>a "b", }c<|"|>,deep:{k:[1,-2.5,true,null],<|"|>e f<|"|>:{}},n:3}<tool_call|><|tool_call>call:now{}<tool_call|>"#;
    let arguments = r#"{"city":"a \"b\", }c","deep":{"k":[1,-2.5,true,null],"e f":{}},"n":3}"#;
    reads(
        Gemma,
        four,
        &[
            text("Sure."),
            call("get_weather", arguments),
            call("now", "{}"),
        ],
    );
    let function =
        "<start_function_call>call:get_weather{city:<escape>Paris<escape>}<end_function_call>";
    reads(
        FunctionGemma,
        function,
        &[call("get_weather", r#"{"city":"Paris"}"#)],
    );
    for other in [
        "<|tool_call>call:none{}<tool_call|>",
        "<|tool_call>call:now{a b}",
        "<|tool_call>call:now{n:1,n:2}",
    ] {
        reads(Gemma, other, &[text(other)]);
    }
}

#[test]
fn python() {
    // Google's documentation of function calling with Gemma 3: both forms; a fence, as Gemma's models write it.
    let want = [
        call("get_weather", r#"{"city":"Paris","n":3}"#),
        call("now", "{}"),
    ];
    let list = r#"[get_weather(city="Paris", n=3), now()]"#;
    reads(Python, list, &want);
    reads(Python, &format!("```tool_code\n{list}\n```\n"), &want);
    reads(Python, &format!("```python\n{list}\n```"), &want);
    reads(
        Python,
        &format!("I see.<|tool_call_start|>{list}<|tool_call_end|>"),
        &[&[text("I see.")], &want[..]].concat(),
    );
    let json = r#"{"name": "get_weather", "parameters": {"city": "Paris"}}"#;
    reads(Python, json, &[call("get_weather", PARIS)]);
    let odd = r#"now(city='it\'s "(x)" \u00e9\n', on=None, deep={'a': (1, 2.5, [True, False,]), "b": ")"}, n=-3)"#;
    let arguments =
        r#"{"city":"it's \"(x)\" é\n","on":null,"deep":{"a":[1,2.5,[true,false]],"b":")"},"n":-3}"#;
    reads(Python, odd, &[call("now", arguments)]);
    for other in [
        "get_weather is a tool",
        "Hello (world)",
        "[1] a note",
        "now(3)",
        "now(n=3",
        "```tool_code\nprint(1)\n```",
        "```rust\nfn a() {}\n```",
        "now(n=1_0)",
        "no",
    ] {
        reads(Python, other, &[text(other)]);
    }
}

#[test]
fn generic_json() {
    let object = r#"{"name": "get_weather", "arguments": {"city": "Paris"}}"#;
    let one = [call("get_weather", PARIS)];
    let two = [call("get_weather", PARIS), call("get_weather", PARIS)];
    reads(Json, object, &one);
    reads(Json, &format!("```json\n{object}\n```"), &one);
    reads(Json, &format!("[{object},\n {object}]"), &two);
    reads(
        Json,
        &format!("<tool_calls>[{object}, {object}]</tool_calls>"),
        &two,
    );
    reads(Json, &format!("<TOOLCALL>[{object}]</TOOLCALL>"), &one);
    reads(Json, &format!("<|tool_call|>[{object}]"), &one);
    // Command R7B's template.
    let cohere = r#"[
    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Paris"}}
]"#;
    reads(Json, cohere, &one);
    for other in [
        "```json\n{\"a\": 1}\n```",
        "```",
        "[",
        "{}",
        "plain",
        "",
        " \n",
        "a\n",
    ] {
        let want: &[Part] = if other.is_empty() {
            &[]
        } else {
            &[text(other)]
        };
        reads(Json, other, want);
    }
}

#[test]
fn what_is_no_call_is_content_as_it_came() {
    for other in [
        "<tool_call>\n{\"name\": \"none\", \"arguments\": {}}\n</tool_call>",
        "<tool_call>{\"name\": 3}</tool_call>",
        "<tool_call>{\"arguments\": {}}</tool_call> ",
        "<tool_call>{\"name\": \"now\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"name\": \"now\", oops}</tool_call>",
        "<tool_call>\n now",
        "a < b <tool <tool_call",
        "  <tool_call>{\"name\": \"no",
        "\n\n",
    ] {
        reads(Hermes, other, &[text(other)]);
    }
    // The next one counts.
    let good = "<tool_call>{\"name\": \"now\"}</tool_call>";
    reads(
        Hermes,
        &format!("<tool_call>{good}"),
        &[text("<tool_call>"), call("now", "{}")],
    );
    reads(
        Hermes,
        &format!("<tool_call>{{\"a\" {good}"),
        &[text("<tool_call>{\"a\""), call("now", "{}")],
    );
}

#[test]
fn a_call_that_goes_wrong_after_it_was_told() {
    // Streamed, what was told stays, and the rest is content; whole, all is content.
    let wrong = "x<tool_call>{\"name\": \"now\", \"arguments\": {\"n\": oops}}</tool_call> y";
    let rest = "oops}}</tool_call> y";
    assert_eq!(
        streamed(Hermes, wrong),
        [text("x"), cut("now", "{\"n\": "), text(rest)]
    );
    assert_eq!(whole(Hermes, wrong), [text(wrong)]);
    let short = "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"n\": 12";
    assert_eq!(streamed(Hermes, short), [cut("now", "{\"n\": 12")]);
    assert_eq!(whole(Hermes, short), [text(short)]);
    // A later call has the next index.
    let later = format!("{wrong}<tool_call>{{\"name\": \"now\"}}</tool_call>");
    assert_eq!(streamed(Hermes, &later).last(), Some(&call("now", "{}")));
}

#[test]
fn only_what_may_become_a_marker_waits() {
    let mut parser = ToolParser::new(Hermes, tools());
    let content = |text: &str| vec![ToolDelta::Content(text.to_owned())];
    assert_eq!(parser.push("I see \n<to"), content("I see"));
    assert_eq!(
        parser.push("p> <tool_call>{\"name\": \"no"),
        content(" \n<top>")
    );
    assert_eq!(parser.push("w\", \"arguments\""), []);
    let (index, name, piece) = (0, "now".to_owned(), "{\"ci".to_owned());
    let start = vec![
        ToolDelta::Start { index, name },
        ToolDelta::Arguments { index, piece },
    ];
    assert_eq!(parser.push(": {\"ci"), start);
    let piece = "ty\": \"a\"}".to_owned();
    assert_eq!(
        parser.push("ty\": \"a\"}"),
        [ToolDelta::Arguments { index, piece }]
    );
    assert_eq!(parser.push("}"), [ToolDelta::End { index }]);
    assert_eq!(parser.push("\n</tool_call>\n"), []);
    assert_eq!(parser.finish(), []);
    // Without a marker: only an answer that begins like a tool's name.
    let mut parser = ToolParser::new(Python, tools());
    assert_eq!(parser.push("\n no"), []);
    assert_eq!(parser.push("d"), content("\n nod"));
}

/// The templates of `tests/data/chat` that teach one of the formats, as their own rendering of a call has it; the others teach none.
const TEMPLATES: [(ToolFormat, &[&str]); 7] = [
    (
        Hermes,
        &[
            "Bielik-11B-v3.0-Instruct",
            "MiMo-VL",
            "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
            "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
            "Qwen-QwQ-32B",
            "Qwen-Qwen2.5-7B-Instruct",
            "Qwen-Qwen3-0.6B",
            "Reka-Edge",
            "ibm-granite-granite-4.0",
            "ibm-granite-granite-4.1",
            "qwen2.5-coder-0.5b-instruct",
        ],
    ),
    (
        QwenCoder,
        &[
            "ByteDance-Seed-OSS",
            "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
            "Qwen3-Coder",
            "Qwen3.5-4B",
            "StepFun3.5-Flash",
            "meetkai-functionary-medium-v3.1",
        ],
    ),
    (
        Llama3,
        &[
            "meta-llama-Llama-3.1-8B-Instruct",
            "meta-llama-Llama-3.2-3B-Instruct",
            "meta-llama-Llama-3.3-70B-Instruct",
        ],
    ),
    (Mistral, &["mistralai-Mistral-Nemo-Instruct-2407"]),
    (
        MistralArgs,
        &[
            "Mistral-Small-3.2-24B-Instruct-2506",
            "mistralai-Ministral-3-14B-Reasoning-2512",
            "unsloth-mistral-Devstral-Small-2507",
        ],
    ),
    (
        Gemma,
        &["google-gemma-4-31B-it", "google-gemma-4-31B-it-interleaved"],
    ),
    (
        Python,
        &["LFM2-8B-A1B", "LFM2.5-8B-A1B", "google-gemma-2-2b-it"],
    ),
];

fn source(name: &str) -> String {
    let path = format!("tests/data/chat/templates/{name}.jinja");
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

#[test]
fn formats_of_templates() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/chat/templates");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let found = TEMPLATES.iter().find(|(_, names)| names.contains(&name));
        seen += usize::from(found.is_some());
        let want = found.map_or(Json, |(format, _)| *format);
        assert_eq!(ToolFormat::of_template(&source(name)), want, "{name}");
    }
    let names = TEMPLATES.iter().map(|(_, names)| names.len());
    assert_eq!(seen, names.sum::<usize>());
}

/// What a template writes of a call is read as that call.
#[test]
fn calls_that_templates_write_are_read() {
    let arguments = json!({"city": "K\u{f6}ln \"x\"", "deep": {"a": [1, 2.5, true, "y"]}, "n": 3});
    let call = |name: &str, id: &str, arguments: &Value| json!({"type": "function", "id": id, "function": {"name": name, "arguments": arguments}});
    let mut read_back = 0;
    let all = TEMPLATES
        .iter()
        .flat_map(|(f, names)| names.iter().map(move |n| (*f, *n)));
    for (format, name) in all {
        // These two show no calls of their own.
        if matches!(name, "google-gemma-2-2b-it" | "LFM2-8B-A1B") {
            continue;
        }
        let mut calls = vec![call("get_weather", "abcdefgh1", &arguments)];
        if format != Llama3 {
            calls.push(call("now", "abcdefgh2", &json!({})));
        }
        let count = calls.len();
        let messages = json!([
            {"role": "user", "content": "QUESTION"},
            {"role": "assistant", "content": "", "tool_calls": calls},
        ]);
        let mut request = RenderRequest::new(serde_json::from_value(messages).unwrap());
        request.add_generation_prompt = false;
        let tool = |name: &str| json!({"type": "function", "function": {"name": name, "description": "d", "parameters": {"type": "object", "properties": {}}}});
        request.tools = Some(json!([tool("get_weather"), tool("now")]));
        let specials = ["bos_token", "eos_token"].map(|t| (t, "<s>".to_owned()));
        let template = ChatTemplate::new(&source(name), specials, []).unwrap();
        let text = template
            .render(&request)
            .unwrap_or_else(|e| panic!("{name}: {e}"))
            .text;
        let answer = text.rsplit("QUESTION").next().unwrap();
        // A bare call begins the answer, after the turn's head.
        let answer = match format {
            Llama3 => answer.rsplit("<|end_header_id|>\n\n").next().unwrap(),
            _ => answer,
        };
        let parts = whole(format, answer);
        let parts = parts.iter().filter_map(|part| match part {
            Part::Call(name, arguments, _) => {
                Some((name.as_str(), serde_json::from_str(arguments).unwrap()))
            }
            Part::Text(_) => None,
        });
        let want = [("get_weather", arguments.clone()), ("now", json!({}))];
        assert_eq!(
            parts.collect::<Vec<(&str, Value)>>(),
            want[..count],
            "{name} {answer:?}"
        );
        read_back += 1;
    }
    assert_eq!(read_back, 27);
}
