//! Reasoning in transcripts, and in any text.

use std::path::Path;

use proptest::prelude::*;

use super::reasoning::{ReasoningSplitter, ReasoningTags, Said};
use super::{ChatTemplate, Message, RenderRequest};

fn think() -> ReasoningTags {
    ReasoningTags::of_template("<think>").unwrap()
}

/// Reasoning and content of an answer that comes in pieces of these sizes, in turn.
fn split(tags: ReasoningTags, inside: bool, answer: &str, sizes: &[usize]) -> (String, String) {
    let mut splitter = ReasoningSplitter::new(tags, inside);
    let mut chars = answer.chars().peekable();
    let mut sizes = sizes.iter().copied().cycle();
    let mut said = Vec::new();
    while chars.peek().is_some() {
        let piece: String = chars
            .by_ref()
            .take(sizes.next().unwrap_or(usize::MAX))
            .collect();
        said.extend(splitter.push(&piece));
    }
    said.extend(splitter.finish());
    let (mut reasoning, mut content) = (String::new(), String::new());
    for part in said {
        match part {
            Said::Reasoning(text) => {
                assert!(content.is_empty());
                reasoning.push_str(&text);
            }
            Said::Content(text) => content.push_str(&text),
        }
    }
    (reasoning, content)
}

#[test]
fn reasoning_is_told_from_the_answer() {
    let cases = [
        // Qwen 3 writes the tag, DeepSeek R1's template does it.
        (
            false,
            "<think>\nTwo\n\nthree.\n</think>\n\nSix.\n",
            "Two\n\nthree.",
            "Six.\n",
        ),
        (true, "\nTwo.\n</think>\n\nSix.", "Two.", "Six."),
        (false, "<think>\n\n</think>\n\nSix.", "", "Six."),
        (false, "Six.", "", "Six."),
        (
            false,
            "\n  Six. <think>a</think>",
            "",
            "\n  Six. <think>a</think>",
        ),
        (false, "<thing>", "", "<thing>"),
        (false, "<thi", "", "<thi"),
        (false, "", "", ""),
        (true, "a <b> </thin", "a <b> </thin", ""),
        (true, "a</think>b</think>", "a", "b</think>"),
        (true, "Cut. ", "Cut. ", ""),
        (false, "<think>a\n", "a\n", ""),
    ];
    for (inside, answer, reasoning, content) in cases {
        let want = (reasoning.to_owned(), content.to_owned());
        assert_eq!(split(think(), inside, answer, &[]), want, "{answer:?}");
    }
    let gemma = ReasoningTags::of_template("'<|channel>thought\\n'").unwrap();
    let answer = "<|channel>thought\nHm.\n<channel|>Six.";
    let want = ("Hm.".to_owned(), "Six.".to_owned());
    assert_eq!(split(gemma, false, answer, &[]), want);
}

#[test]
fn only_what_may_become_a_tag_waits() {
    let mut splitter = ReasoningSplitter::new(think(), false);
    assert_eq!(splitter.push("\n<thi"), []);
    assert_eq!(
        splitter.push("nk>\nI see"),
        [Said::Reasoning("I see".to_owned())]
    );
    assert_eq!(splitter.push(" </th"), []);
    assert_eq!(splitter.push("e"), [Said::Reasoning(" </the".to_owned())]);
    assert_eq!(splitter.push("\n</think>\n"), []);
    assert_eq!(splitter.push("\nYes "), [Said::Content("Yes ".to_owned())]);
    assert_eq!(splitter.finish(), []);
}

/// What templates end a prompt with: reasoning that they open, open and close, or leave to the model.
#[test]
fn prompts_that_open_reasoning() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/chat/templates");
    let source = |name: &str| std::fs::read_to_string(data.join(format!("{name}.jinja"))).unwrap();
    for (name, thinks, open) in [
        ("StepFun3.5-Flash", true, true),
        ("GLM-4.7-Flash", true, true),
        ("Qwen3.5-4B", true, true),
        ("Qwen3.5-4B", false, false),
        ("Qwen-Qwen3-0.6B", true, false),
        ("Qwen-Qwen3-0.6B", false, false),
        ("google-gemma-4-31B-it", false, false),
        ("mistralai-Ministral-3-14B-Reasoning-2512", true, false),
    ] {
        let source = source(name);
        let tags = ReasoningTags::of_template(&source).unwrap();
        let mut request = RenderRequest::new(vec![Message::new("user", "2*3?")]);
        let thinks = ("enable_thinking".to_owned(), thinks.into());
        request.extra.extend([thinks]);
        let template = ChatTemplate::new(&source, [], []).unwrap();
        let prompt = template.render(&request).unwrap().text;
        assert_eq!(tags.opened_by(&prompt), open, "{name} {prompt:?}");
    }
    for name in ["smollm2-135m-instruct", "meta-llama-Llama-3.1-8B-Instruct"] {
        assert_eq!(ReasoningTags::of_template(&source(name)), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn how_an_answer_is_cut_changes_nothing(
        bits in proptest::collection::vec(proptest::sample::select(&["<think>", "</think>", "<", "</th", "\n", " ", "a", "é", "ink>"][..]), 0..20),
        sizes in proptest::collection::vec(1..6usize, 1..20),
        inside: bool,
    ) {
        let answer = bits.concat();
        let (reasoning, content) = split(think(), inside, &answer, &[]);
        prop_assert_eq!(split(think(), inside, &answer, &sizes), (reasoning.clone(), content.clone()));
        // Nothing but the tags and the space around them is missing.
        let rest = answer.strip_suffix(&content).unwrap();
        let rest = if inside { rest } else { rest.trim_start().strip_prefix("<think>").unwrap_or(rest) };
        let rest = rest.trim_start();
        if let Some(end) = rest.strip_prefix(reasoning.as_str()) {
            prop_assert!(end.trim().is_empty() || end.trim() == "</think>", "{:?}", end);
        } else {
            prop_assert!(false, "{:?} of {:?}", reasoning, answer);
        }
    }
}
