//! GBNF grammars mean here what they say: against a recogniser written from the definition.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::super::gbnf::tests::JSON;
use super::super::gbnf::{Grammar, Node, NodeId, parse_for_tests};
use super::*;

/// Grammars in the manner of llama.cpp's examples, and some that a longest-match lexer gets wrong.
const GRAMMARS: &[&str] = &[
    JSON,
    // Arithmetic: the line end that closes a line is also white space.
    "root ::= (expr \"=\" ws term \"\\n\")+\nexpr ::= term ([-+*/] term)*\nterm ::= ident | num | \"(\" ws expr \")\" ws\n\
     ident ::= [a-z] [a-z0-9_]* ws\nnum ::= [0-9]+ ws\nws ::= [ \\t\\n]*",
    "root ::= item+\n# One line each\nitem ::= \"- \" [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ \"\\n\"",
    "root ::= \"1. \" move \" \" move \"\\n\" ([1-9] [0-9]? \". \" move \" \" move \"\\n\")*\nmove ::= (pawn | nonpawn | castle) [+#]?\n\
     nonpawn ::= [NBKQR] [a-h]? [1-8]? \"x\"? [a-h] [1-8]\npawn ::= ([a-h] \"x\")? [a-h] [1-8] (\"=\" [NBKQR])?\ncastle ::= \"O-O\" \"-O\"?",
    // The first letters of a longer terminal.
    "root ::= \"a\" mid \"d\" | \"abc\" root?\nmid ::= \"b\" | \"(\" mid \")\"",
    "root ::= ([a-z]* \"end\")? nest\nnest ::= \"[\" nest \"]\" | [a-z]+ | \"\"",
    "root ::= x{2,3} y\nx ::= \"a\" | \"aa\" | \"(\" x \")\"\ny ::= \"a\"* (\"b\" y)?",
    "root ::= tag\ntag ::= \"<\" name \">\" (text | tag)* \"</\" name \">\"\nname ::= [a-z]+\ntext ::= [^<]+",
    "root ::= a\na ::= \"x\" a \"x\" | \"x\"",
    "root ::= .{0,3} (\"\\u00e9\" root \"\\U0001F638\" | [\\u0400-\\u04ff])",
    "root ::= stmt*\nstmt ::= \"if \" cond \" {\" stmt* \"}\" | id \"=\" num \";\"\ncond ::= id | \"!\" cond\nid ::= [a-z]+ | \"if\" [0-9]\nnum ::= [0-9]+ (\".\" [0-9]+)?",
];

/// Where a node's texts that begin at `at` may end.
fn ends(
    g: &Grammar,
    node: NodeId,
    text: &[char],
    at: usize,
    memo: &mut BTreeMap<(NodeId, usize), BTreeSet<usize>>,
) -> BTreeSet<usize> {
    if let Some(known) = memo.get(&(node, at)) {
        return known.clone();
    }
    let one = BTreeSet::from([at]);
    let out = match &g.nodes[node] {
        Node::Chars(set) => {
            let hit = text.get(at).is_some_and(|c| {
                set.ranges()
                    .iter()
                    .any(|r| (r.0..=r.1).contains(&(*c as u32)))
            });
            if hit {
                BTreeSet::from([at + 1])
            } else {
                BTreeSet::new()
            }
        }
        Node::Seq(items) => items.iter().fold(one, |from, item| {
            from.iter()
                .flat_map(|at| ends(g, *item, text, *at, memo))
                .collect()
        }),
        Node::Alt(options) => options
            .iter()
            .flat_map(|o| ends(g, *o, text, at, memo))
            .collect(),
        Node::Rule(rule) => ends(g, g.rules[*rule].body, text, at, memo),
        Node::Repeat { of, min, max } => {
            let (mut from, mut out, mut seen) = (one, BTreeSet::new(), BTreeSet::new());
            for n in 0..=max.unwrap_or(u32::MAX) {
                if n >= *min {
                    out.extend(&from);
                }
                if n > *min && !seen.insert(from.clone()) || from.is_empty() {
                    break;
                }
                from = from
                    .iter()
                    .flat_map(|at| ends(g, *of, text, *at, memo))
                    .collect();
            }
            out
        }
    };
    memo.insert((node, at), out.clone());
    out
}

fn recognises(g: &Grammar, text: &str) -> bool {
    let chars: Vec<char> = text.chars().collect();
    ends(g, g.rules[g.root].body, &chars, 0, &mut BTreeMap::new()).contains(&chars.len())
}

/// A random text of a grammar; `None` where it grows too long.
fn write(g: &Grammar, node: NodeId, rng: &mut Dice, depth: usize, out: &mut String) -> Option<()> {
    if depth > 60 || out.len() > 120 {
        return None;
    }
    match &g.nodes[node] {
        Node::Chars(set) => {
            let ranges = set.ranges();
            let (first, last) = ranges[rng.below(ranges.len())];
            let near = first + rng.below((last - first + 1).min(40) as usize) as u32;
            out.push(char::from_u32(near)?);
        }
        Node::Seq(items) => {
            for item in items {
                write(g, *item, rng, depth + 1, out)?;
            }
        }
        Node::Alt(options) => write(g, options[rng.below(options.len())], rng, depth + 1, out)?,
        Node::Rule(rule) => write(g, g.rules[*rule].body, rng, depth + 1, out)?,
        Node::Repeat { of, min, max } => {
            let most = max.unwrap_or(min + 3).min(min + 3);
            for _ in 0..min + rng.below((most - min + 1) as usize) as u32 {
                write(g, *of, rng, depth + 1, out)?;
            }
        }
    }
    Some(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// What the grammar writes is taken; what is taken is the grammar's.
    #[test]
    fn a_constraint_takes_the_texts_of_its_grammar(seed: u64) {
        let mut rng = Dice(seed);
        for source in GRAMMARS {
            let g = parse_for_tests(source).unwrap();
            let mut text = String::new();
            while write(&g, g.rules[g.root].body, &mut rng, 0, &mut text).is_none() {
                text.clear();
            }
            prop_assert!(recognises(&g, &text), "{} {:?}", source, text);
            prop_assert!(QWEN.takes(&gbnf(source), &text), "{} {:?}", source, text);
            // Somewhere another character, none, or one twice.
            let mut chars: Vec<char> = text.chars().collect();
            for _ in 0..1 + rng.below(2) {
                let at = rng.below(chars.len() + 1);
                match rng.below(3) {
                    0 if at < chars.len() => chars[at] = chars[rng.below(chars.len())],
                    1 if at < chars.len() => drop(chars.remove(at)),
                    _ if !chars.is_empty() => chars.insert(at, chars[rng.below(chars.len())]),
                    _ => chars.push('a'),
                }
            }
            let text: String = chars.into_iter().collect();
            prop_assert_eq!(QWEN.takes(&gbnf(source), &text), recognises(&g, &text), "{} {:?}", source, text);
        }
    }

    #[test]
    fn random_tokens_give_texts_of_the_grammar(seed: u64) {
        for source in GRAMMARS {
            let g = parse_for_tests(source).unwrap();
            for model in [&*QWEN, &*LLAMA] {
                let mut c = model.compile(&gbnf(source));
                // Not all of these grammars come to an end by themselves.
                let Some(text) = model.try_walk(&mut *c, seed, 10) else { continue };
                // The recogniser is no fast one.
                if text.chars().count() <= 120 {
                    prop_assert!(recognises(&g, &text), "{} {:?}", source, text);
                }
            }
        }
    }

    /// Random small grammars: terminals may be cut in any way, the language stays.
    #[test]
    fn the_language_of_a_random_grammar_stays(seed: u64) {
        let mut rng = Dice(seed);
        let source = random_grammar(&mut rng);
        let Ok(g) = parse_for_tests(&source) else { return Ok(()) };
        if let Err(e) = QWEN.constraints.compile(&gbnf(&source)) {
            // Of no character at all: refused, for the answer could only be empty.
            prop_assert!(e.to_string().contains("only the empty text"), "{} {}", source, e);
            prop_assert!(recognises(&g, "") && !"abc".chars().any(|c| recognises(&g, &c.to_string())));
            return Ok(());
        }
        for _ in 0..12 {
            let text = random_text(&mut rng);
            match QWEN.follow(&gbnf(&source), &text) {
                Ok(takes) => prop_assert_eq!(takes, recognises(&g, &text), "{} {:?}", source, text),
                // Rarely one is so ambiguous that the parser's row can't hold it: no verdict.
                Err(e) => prop_assert!(e.to_string().contains("too much can come next"), "{} {}", source, e),
            }
        }
    }
}

/// A random grammar whose row the parser could not hold, which the property above took for a wrong answer.
#[test]
fn a_grammar_that_is_too_ambiguous_to_follow_is_told_as_that() {
    let mut rng = Dice(183_268_253_131_577_821);
    let source = random_grammar(&mut rng);
    let told: Vec<String> = (0..12)
        .filter_map(|_| QWEN.follow(&gbnf(&source), &random_text(&mut rng)).err())
        .map(|e| e.to_string())
        .collect();
    assert!(!told.is_empty(), "{source}");
    let as_that = |e: &String| e.contains("too much can come next");
    assert!(told.iter().all(as_that), "{source} {told:?}");
}

fn random_text(rng: &mut Dice) -> String {
    let n = rng.below(7);
    (0..n).map(|_| char::from(b"abc"[rng.below(3)])).collect()
}

fn random_grammar(rng: &mut Dice) -> String {
    fn item(rng: &mut Dice, depth: usize, out: &mut String) {
        match rng.below(if depth > 2 { 5 } else { 9 }) {
            0 | 1 => out.push_str(["\"a\"", "\"b\"", "\"ab\"", "\"ca\""][rng.below(4)]),
            2 => out.push_str(["[ab]", "[^a]", "[c]", "."][rng.below(4)]),
            3 | 4 => out.push_str(["x", "y", "z"][rng.below(3)]),
            5 => {
                item(rng, depth + 1, out);
                out.push(' ');
                item(rng, depth + 1, out);
            }
            6 => {
                out.push('(');
                item(rng, depth + 1, out);
                out.push_str(" | ");
                item(rng, depth + 1, out);
                out.push(')');
            }
            _ => {
                out.push('(');
                item(rng, depth + 1, out);
                out.push(')');
                out.push_str(["*", "+", "?", "{2}", "{1,2}", "{2,}"][rng.below(6)]);
            }
        }
    }
    let mut out = String::new();
    for rule in ["root", "x", "y", "z"] {
        out.push_str(rule);
        out.push_str(" ::= ");
        for n in 0..1 + rng.below(3) {
            if n > 0 {
                out.push_str(" | ");
            }
            item(rng, 0, &mut out);
            out.push(' ');
            item(rng, 0, &mut out);
        }
        out.push('\n');
    }
    out
}

/// llama.cpp's own arithmetic example: its last line end is white space too, and a lexer would take it.
#[test]
fn what_white_space_could_swallow_is_left_for_the_rule_that_needs_it() {
    let spec = gbnf(GRAMMARS[1]);
    assert!(QWEN.takes(&spec, "a +(b1 *2)= 7\n"));
    assert!(QWEN.takes(&spec, "a=1\n\n\nb=2\n"));
    assert!(!QWEN.takes(&spec, "a=1"));
}

/// ik_llama.cpp#780, as a grammar.
#[test]
fn report_ik_llama_cpp_780_a_grammar_forces_a_character_of_byte_tokens() {
    for model in [&*QWEN, &*LLAMA] {
        assert!(model.takes(
            &gbnf("root ::= \"\\U0001F638\" [\\U0001F600-\\U0001F64F]"),
            "\u{1f638}\u{1f639}"
        ));
        assert!(!model.takes(&gbnf("root ::= [^\\U0001F638]"), "\u{1f638}"));
    }
}

/// Whatever a grammar is like, compiling it ends soon, one way or the other.
#[test]
fn hostile_grammars_end() {
    let chain = |n: usize, link: &dyn Fn(usize) -> String| -> String {
        (0..n)
            .map(|i| format!("r{i}::={}\n", link(i + 1)))
            .collect()
    };
    let straight = chain(4000, &|i| format!("r{i}"));
    let straight = format!("root::=r0\n{straight}r4000::=\"a\"");
    assert!(QWEN.takes(&gbnf(&straight), "a"));
    let deep = format!("root::={}\"a\"{}", "(".repeat(101), ")".repeat(101));
    assert!(
        QWEN.refusal(&gbnf(&deep))
            .to_string()
            .contains("parentheses")
    );
    let round = chain(3000, &|i| format!("\"(\"r{i}\")\"|\"x\"r0"));
    let bomb = chain(60, &|i| format!("r{i} r{i}"));
    let many = chain(4094, &|i| format!("\"{i}\"r{}|[^x]", (i * 7) % 4094));
    let wide: String = (0..20_000).map(|i| format!("|\"{i}\"")).collect();
    let classes = (0..6000).map(|i| format!("|[\\u{:04x}-\\uffff]root", 0x1000 + i));
    let classes: String = classes.collect();
    for source in [
        format!("root::=r0\n{round}r3000::=\"a\""),
        format!("root::=r0\n{bomb}r60::=\"a\""),
        format!("root::=r0 root?\n{bomb}r60::=\"a\"|\"(\"r60\")\""),
        format!("root::={}\"a\"{} root?", "(".repeat(90), ")*".repeat(90)),
        format!("root::=r0\n{many}"),
        format!("root::=\"a\" root \"b\"{wide}"),
        format!("root::=\"a\"{classes}"),
        "root::=((\"a\"{9999}){9999}){9999} root?".to_owned(),
    ] {
        // Followed or refused: it ends, and nothing panics.
        drop(QWEN.constraints.compile(&gbnf(&source)));
    }
}
