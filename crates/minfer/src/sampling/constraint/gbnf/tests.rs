//! The translation: what the parts become, and that it says what the grammar says.

use super::chars::CharSet;
use super::*;

fn error(text: &str) -> String {
    match to_lark(text) {
        Ok(lark) => panic!("{text:?} became {lark}"),
        Err(e) => e,
    }
}

#[test]
fn sets_of_characters() {
    let az = CharSet::of(vec![('m', 'z'), ('a', 'n')]);
    assert_eq!(az, CharSet::of(vec![('a', 'z')]));
    assert_eq!(az.not().not(), az);
    assert_eq!(az.and(&az.not()), CharSet::default());
    assert_eq!(CharSet::default().not(), CharSet::any());
    assert_eq!(
        CharSet::any().class(),
        r"[\x{0}-\x{D7FF}\x{E000}-\x{10FFFF}]"
    );
}

#[test]
fn a_grammar_without_recursion_is_one_terminal() {
    let lark = to_lark("root ::= item (\",\" item)*\nitem ::= [a-c]+ | \"x\\\"y\"{2,3}").unwrap();
    assert!(lark.starts_with("start: r0\nr0: T0\n"), "{lark}");
    assert_eq!(
        lark.lines().filter(|l| l.starts_with('r')).count(),
        1,
        "{lark}"
    );
    assert!(
        lark.contains("{2,3}") && lark.contains(r#""x\"y""#),
        "{lark}"
    );
}

/// Strings stay whole where nothing is in the way, or masks would be slow.
#[test]
fn strings_of_json_are_terminals() {
    let lark = to_lark(JSON).unwrap();
    let count = |c| lark.lines().filter(|l| l.starts_with(c)).count();
    // root, object, value, array; all of a value without recursion is one terminal, and none is cut.
    assert_eq!((count('r'), count('T')), (4, 9), "{lark}");
}

/// White space that a longest match would take from a later rule is cut off.
#[test]
fn terminals_are_cut_where_they_could_be_read_too_far() {
    let lark = to_lark("root ::= a | \"(\" root \")\"\na ::= [a-z]+ [ \\n]* \"\\n\"").unwrap();
    assert!(lark.contains("T0: N"), "{lark}");
    let lark = to_lark(
        "root ::= word end root?\nword ::= [a-z]+ [ \\n]*\nend ::= \"\\n\" | \"(\" end \")\"",
    )
    .unwrap();
    let white = r"/[\x{A}-\x{A}\x{20}-\x{20}]/";
    assert!(lark.lines().any(|l| l == format!("T4: {white}")), "{lark}");
}

/// JSON, as grammars for llama.cpp are written.
pub(crate) const JSON: &str = r#"
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [0-9]{0,15})? ws
# Space is limited so that it ends
ws ::= | " " | "\n" [ \t]{0,20}
"#;

#[test]
fn errors_name_the_place() {
    for (text, want) in [
        (
            "root ::= a",
            "line 1, column 10: the rule \"a\" is not defined",
        ),
        (
            "root ::= \"a\n\"\nb ::= [z-a]",
            "line 3, column 8: the range 'z'-'a' is backwards",
        ),
        (
            "root ::= \"abc",
            "line 1, column 14: the end of the text that begins at line 1, column 10",
        ),
        ("root ::= [abc", "the ] of the [ at line 1, column 10"),
        ("root ::= (\"a\"\n", "the ) of the ( at line 1, column 10"),
        ("root ::= \"\\q\"", "line 1, column 11: the escape \\q"),
        ("root ::= \"\\xZZ\"", "\\x takes 2 hexadecimal digits"),
        ("root ::= \"\\ud800\"", "\\ud800 is no character"),
        ("root ::= \"\\U00110000\"", "is no character"),
        (
            "root ::= []",
            "line 1, column 10: the class has no character",
        ),
        ("root ::= \"a\"{3,2}", "n below m"),
        ("root ::= \"a\"{99999}", "more than 10000 repetitions"),
        ("root ::= \"a\"{,3}", "a number is expected"),
        ("root ::= \"a\" )", "the end of the line is expected"),
        ("root = \"a\"", "line 1, column 6: ::= is expected"),
        (
            "root ::= \"a\"\nroot ::= \"b\"",
            "line 2, column 1: the rule \"root\" is defined already at line 1",
        ),
        ("root ::= <think> \"a\"", "tokens (<...>) are not supported"),
        ("root ::= \"a\" root", "the rule \"root\" has no end"),
        (
            "root ::= a | \"x\"\na ::= b \"y\" | \"z\"\nb ::= \"q\"? a",
            "line 2, column 1: the rule \"a\" begins with itself (a -> b -> a)",
        ),
        (
            "root ::= (\"x\"* root)?",
            "begins with itself (root -> root)",
        ),
        ("", "there is no rule \"root\""),
    ] {
        let e = error(text);
        assert!(e.contains(want), "{text:?}: {e}");
    }
}

/// llama.cpp#4492: a grammar without a root crashed; it is refused.
#[test]
fn report_4492_a_grammar_without_a_root_is_refused() {
    assert!(error("main ::= \"a\"").contains("there is no rule \"root\""));
}
