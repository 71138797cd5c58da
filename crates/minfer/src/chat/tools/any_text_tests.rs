//! What must hold for any text.

use proptest::prelude::*;

use super::tests::{Part, join, read, text, tools, whole};
use super::{ToolFormat, ToolParser};

use ToolFormat::*;

const FORMATS: [ToolFormat; 9] = [
    Hermes,
    QwenCoder,
    Llama3,
    Mistral,
    MistralArgs,
    Gemma,
    FunctionGemma,
    Python,
    Json,
];

/// Hostile answers are content. They take a second together; if reading were quadratic, a minute.
#[test]
fn long_answers_are_read_in_linear_time() {
    for (format, unit) in [
        (Hermes, "<tool_call>{\"name\": \""),
        (Hermes, "<tool_call>{\"a\":["),
        (Json, "["),
        (Python, "now(a="),
        (QwenCoder, "<function=now><parameter=a>"),
        (QwenCoder, "<function=now> "),
        (Mistral, "[TOOL_CALLS]now"),
        (Hermes, " "),
        (Hermes, "<tool_call> "),
    ] {
        let answer = unit.repeat(20_000);
        assert_eq!(whole(format, &answer), [text(&answer)], "{format:?} {unit}");
    }
    for (format, unit, end) in [
        (QwenCoder, "<function=now><parameter=a>", "</parameter>x"),
        (Python, "now(a=[],", "b"),
        (Hermes, "<tool_call> {", "\n"),
    ] {
        let answer = unit.repeat(20_000) + end;
        assert_eq!(whole(format, &answer), [text(&answer)], "{format:?} {unit}");
    }
    let space = " ".repeat(200_000);
    let answer = format!("a{space}<tool_call>{space}{{b");
    assert_eq!(whole(Hermes, &answer), [text(&answer)]);
    let items = "[],".repeat(20_000);
    let call = format!("now(a=[{items}])");
    assert!(matches!(
        &whole(Python, &call)[..],
        [Part::Call(_, _, true)]
    ));
}

/// What answers are made of.
fn answers() -> impl Strategy<Value = String> {
    const BITS: &[&str] = &[
        "<tool_call>",
        "</tool_call>",
        "<function=",
        "now>",
        "<parameter=",
        "n>",
        "</parameter>",
        "</function>",
        "[TOOL_CALLS]",
        "now",
        "[ARGS]",
        "[",
        "]",
        "{",
        "}",
        "(",
        ")",
        "\"",
        "name",
        "\"name\": \"now\"",
        ", ",
        "\"arguments\": {\"n\": 1}",
        "{}",
        ":",
        "=",
        "call:now{",
        "<|tool_call>",
        "<tool_call|>",
        "<|\"|>",
        "```json\n",
        "```",
        "\n",
        " ",
        "text",
        "é",
        "<",
        "\\",
        "1",
        "<|python_tag|>",
        "{\"name\": \"now\", \"arguments\": {\"city\": \"x y\"}}",
        "now(n=1)",
        ";",
    ];
    let bit = proptest::sample::select(BITS);
    proptest::collection::vec(bit, 0..24).prop_map(|bits| bits.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]
    #[test]
    fn how_an_answer_is_cut_changes_nothing_and_nothing_is_lost(answer in answers(), cuts in proptest::collection::vec(1..9usize, 0..40), pick in 0..FORMATS.len()) {
        let format = FORMATS[pick];
        for (hold, beside) in [(false, false), (true, false), (false, true)] {
            let new = || {
                let parser = ToolParser::new(format, tools());
                let parser = if beside { parser.beside_json() } else { parser };
                if hold { parser.whole() } else { parser }
            };
            let want = read(new(), &answer);
            let mut parser = new();
            let mut chars = answer.chars().peekable();
            let mut sizes = cuts.iter().copied().cycle();
            let mut deltas = Vec::new();
            while chars.peek().is_some() {
                let piece: String = chars.by_ref().take(sizes.next().unwrap_or(1)).collect();
                deltas.extend(parser.push(&piece));
            }
            deltas.extend(parser.finish());
            prop_assert_eq!(&join(deltas), &want);
            // The answer is its content, in order, and the calls between; a call's text holds its name.
            let shape: String = want.iter().map(|part| match part {
                Part::Text(said) => regex::escape(said),
                Part::Call(name, _, _) => format!("(?s:.*){name}(?s:.*)"),
            }).collect();
            let shape = regex::Regex::new(&format!("^{shape}$")).unwrap();
            prop_assert!(shape.is_match(&answer), "{:?}", want);
            prop_assert!(!hold || want.iter().all(|p| !matches!(p, Part::Call(_, _, false))));
        }
    }
}
