//! Answers that their length cuts.

use super::tests::{Part, call, cut, join, text, tools};
use super::{ToolFormat, ToolParser};

use ToolFormat::*;

/// What is told of an answer that is cut, in one piece and by characters.
fn read(format: ToolFormat, answer: &str, whole: bool) -> Vec<Part> {
    read_by(format, answer, || {
        let parser = ToolParser::new(format, tools());
        match whole {
            true => parser.whole(),
            false => parser,
        }
    })
}

/// The same by parsers of this kind.
fn read_by(format: ToolFormat, answer: &str, new: impl Fn() -> ToolParser) -> Vec<Part> {
    let mut parser = new();
    let first = parser.push(answer);
    let told = join(first.into_iter().chain(parser.cut()));
    let mut parser = new();
    let mut deltas = Vec::new();
    for c in answer.chars() {
        deltas.extend(parser.push(c.encode_utf8(&mut [0; 4])));
    }
    deltas.extend(parser.cut());
    assert_eq!(join(deltas), told, "{format:?} {answer:?}");
    told
}

/// These notations are read at a call's end: behind a name on offer nothing is lost, before it nothing is told.
#[test]
fn a_named_call_that_is_told_whole_is_content() {
    let coder =
        "<tool_call>\n<function=now>\n<parameter=city>\n<function=get_weather></function> R";
    for (format, marker, more) in [
        (QwenCoder, "<tool_call>\n<function=no", &coder[24..]),
        (QwenCoder, "<function=no", "w>"),
        (Gemma, "<|tool_call>call:no", "w{city:<|\"|>Rom"),
        (FunctionGemma, "<start_function_call>call:no", "w{city:"),
        (Python, "<|tool_call_start|>[no", "w(city=\"Rom"),
    ] {
        let named = format!("I look. {marker}{more}");
        for whole in [false, true] {
            assert_eq!(read(format, &named, whole), [text(&named)], "{format:?}");
        }
        let unnamed = format!("I look. {marker}");
        let told = read(format, &unnamed, false);
        assert_eq!(told, [text("I look.")], "{format:?}");
    }
    // A tool that is not on offer is none: the answer is its text.
    let other = "<tool_call>\n<function=other>\n<par";
    assert_eq!(read(QwenCoder, other, false), [text(other)]);
}

/// A name that came before its arguments did is told, and what they begin with.
#[test]
fn a_named_call_without_its_arguments_yet() {
    let named = "<tool_call>\n{\"name\": \"now\", \"argum";
    assert_eq!(read(Hermes, named, false), [cut("now", "{")]);
    assert_eq!(read(Hermes, named, true), [text(named)]);
}

/// The first call's marker is the others', too.
#[test]
fn a_second_call_under_one_marker_that_is_cut_is_not_told() {
    let list = "[TOOL_CALLS][{\"name\":\"now\",\"arguments\":{}}";
    for more in [",", ", ", ", {", ", {\"na", ", {\"name\": \"no"] {
        let answer = format!("{list}{more}");
        let told = read(Mistral, &answer, false);
        assert_eq!(told, [call("now", "{}")], "{more}");
    }
    let answer = format!("{list}, {{\"name\":\"now\",\"arguments\":{{\"n\"");
    let want = [call("now", "{}"), cut("now", "{\"n\"")];
    assert_eq!(read(Mistral, &answer, false), want);
    let calls = "<tool_call>{\"name\": \"now\"}\n{\"na";
    assert_eq!(read(Hermes, calls, false), [call("now", "{}")]);
    // Text after the calls is text, and JSON without a marker may be any.
    let plain = format!("{list}] and");
    assert_eq!(
        read(Mistral, &plain, false),
        [call("now", "{}"), text(" and")]
    );
    let bare = "{\"name\": \"now\", \"parameters\": {}}; {\"na";
    let want = [call("now", "{}"), text("; {\"na")];
    assert_eq!(read(Llama3, bare, false), want);
}

/// What a grammar holds to a call is one before its tool is named, marker or not.
#[test]
fn a_forced_call_that_is_cut_is_no_content() {
    let list = "[{\"name\": \"now\"";
    let one = "{\"name\": \"now\"";
    for format in [Llama3, Json, Python] {
        let new = || ToolParser::new(format, tools()).forced();
        for begun in ["", "[", "{", "{\"na", "{\"name\": \"no", one, list] {
            assert_eq!(read_by(format, begun, new), [], "{format:?} {begun}");
            // Of one that is free the same may be any JSON.
            if begun.len() > 1 {
                assert_eq!(read(format, begun, false), [text(begun)], "{format:?}");
            }
        }
        let named = format!("{one}, \"argum");
        assert_eq!(read_by(format, &named, new), [cut("now", "{")]);
        // Told whole or not at all, it is not lost.
        let whole = || new().whole();
        assert_eq!(read_by(format, &named, whole), [text(&named)]);
        let two = format!("{one}, \"parameters\": {{}}}}\n{{\"na");
        assert_eq!(read_by(format, &two, new), [call("now", "{}")]);
    }
    let python = || ToolParser::new(Python, tools()).forced();
    assert_eq!(read_by(Python, "[no", python), []);
    let named = "[now(city=\"Ro";
    assert_eq!(read_by(Python, named, python), [text(named)]);
    // Where a marker opens calls, the text before it is text.
    let hermes = || ToolParser::new(Hermes, tools()).forced();
    assert_eq!(read_by(Hermes, "{\"na", hermes), [text("{\"na")]);
}
