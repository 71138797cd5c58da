//! Renderings compared with those of transformers (`tests/data/chat`, made by `xtask/golden/chat.py`).

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{ChatError, ChatTemplate, DateTime, Message, RenderRequest};

#[derive(Deserialize)]
struct Conversation {
    name: String,
    messages: Vec<Message>,
    tools: Option<Value>,
    add_generation_prompt: bool,
    #[serde(default)]
    continue_final_message: bool,
    #[serde(default)]
    extra: Map<String, Value>,
}

fn fnv1a(data: &[u8]) -> u64 {
    data.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| {
        (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Where transformers fails and we do not, or the other way round; each for one reason.
fn known_difference(template: &str, conversation: &str, tools: bool) -> bool {
    match template {
        // Iterates `tools` although it is None: an error in Python, an empty list here. These are named `tool_use` templates.
        "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use"
        | "NousResearch-Hermes-3-Llama-3.1-8B-tool_use" => !tools,
        "CohereForAI-c4ai-command-r-plus-tool_use" => !tools || conversation == "reasoning",
        // Gives a generator to tojson: an error in Python, a list here.
        "llama-cpp-deepseek-r1" => tools,
        // `text|safe + json`: Python's Markup then escapes the JSON for HTML, surely not what the model was trained on.
        "meetkai-functionary-medium-v3.1" => tools,
        // Shows what is said several times: transformers cuts at the last place, here none is the text's own.
        "minfer-features" => conversation.starts_with("begun"),
        _ => false,
    }
}

const CONTROL: [&str; 5] = [
    "<|im_end|>",
    "<|im_start|>",
    "<|eot_id|>",
    "</s>",
    "<end_of_turn>",
];

/// Renders every conversation with the templates that `wanted` picks; returns how many of each kind agreed.
fn compare(wanted: impl Fn(&str) -> bool) -> HashMap<String, usize> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/chat");
    let read = |p: &str| std::fs::read_to_string(data.join(p)).unwrap();
    let conversations: Vec<Conversation> =
        serde_json::from_str(&read("conversations.json")).unwrap();
    let mut templates: HashMap<String, ChatTemplate> = HashMap::new();
    let mut failures = Vec::new();
    let mut counts: HashMap<String, usize> = HashMap::new();
    for line in read("renderings.tsv").lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let (name, conversation, kind) = (fields[0], fields[1], fields[2]);
        let c = conversations
            .iter()
            .find(|c| c.name == conversation)
            .unwrap();
        if !wanted(name) || known_difference(name, conversation, c.tools.is_some()) {
            continue;
        }
        let template = templates.entry(name.to_owned()).or_insert_with(|| {
            let source = read(&format!("templates/{name}.jinja"));
            let specials = [
                ("bos_token", "<BOS>".to_owned()),
                ("eos_token", "<EOS>".to_owned()),
            ];
            // The feature template slices and reverses what users say: no place for control tokens.
            let control: &[&str] = if name == "minfer-features" {
                &[]
            } else {
                &CONTROL
            };
            ChatTemplate::new(&source, specials, control.iter().map(|t| (*t).to_owned()))
                .unwrap_or_else(|e| panic!("{name}: {e}"))
        });
        let ours = template.render(&RenderRequest {
            messages: c.messages.clone(),
            tools: c.tools.clone(),
            add_generation_prompt: c.add_generation_prompt,
            now: Some(DateTime::from_unix(1_741_338_302)),
            continue_final_message: c.continue_final_message,
            extra: c.extra.clone(),
        });
        let agrees = match (kind, &ours) {
            ("ok", Ok(r)) => {
                fields[3] == r.text.len().to_string()
                    && fields[4] == format!("{:016x}", fnv1a(r.text.as_bytes()))
            }
            ("raise", Err(ChatError::Raised(message))) => {
                serde_json::from_str::<String>(fields[3]).unwrap() == *message
            }
            ("error", Err(_)) => true,
            _ => false,
        };
        *counts.entry(kind.to_owned()).or_default() += usize::from(agrees);
        if !agrees {
            failures.push(format!(
                "{name}/{conversation}: want {kind}, got {:?}",
                ours.map(|r| r.text)
            ));
        }
    }
    assert!(
        failures.is_empty(),
        "{} failures\n{}",
        failures.len(),
        failures.join("\n")
    );
    counts
}

#[test]
fn every_template_renders_as_transformers_does() {
    let counts = compare(|_| true);
    assert!(
        counts["ok"] > 900 && counts["raise"] > 10 && counts["error"] > 30,
        "{counts:?}"
    );
}

#[test]
fn gpt4all_3282_node_llama_cpp_366_pythons_jinja() {
    let counts = compare(|name| name == "minfer-features");
    assert_eq!((counts["ok"], counts["raise"]), (14, 1));
}

#[test]
fn llama_cpp_11402_a_raising_template_is_an_error_with_its_own_words() {
    let counts = compare(|name| name == "google-gemma-2-2b-it");
    assert!(counts["raise"] >= 2, "{counts:?}"); // two users in a row; a system message
}
