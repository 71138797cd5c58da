//! What can't be compiled is refused, by name; what is costly ends.

use super::*;

/// The refusal's text must name all of `names`.
fn refused(spec: ConstraintSpec, names: &[&str]) {
    let text = QWEN.refusal(&spec).to_string();
    assert!(!text.contains('\n') && text.len() < 1000, "{text}");
    for name in names {
        assert!(text.contains(name), "{text:?} does not name {name:?}");
    }
}

/// llama.cpp#19051: a strict schema whose pattern can't be followed must not give free text.
#[test]
fn report_19051_an_invalid_pattern_is_refused() {
    for pattern in ["[a-z", "(?!x)y", r"(a)\\1", "(?<=a)b"] {
        let text = format!(
            r#"{{"type":"object","properties":{{"a":{{"type":"string","pattern":"{pattern}"}}}},"required":["a"]}}"#
        );
        refused(schema(&text), &["JSON schema", "the regular expression"]);
    }
}

#[test]
fn schemas_are_refused_by_keyword_and_place() {
    refused(schema("{"), &["no JSON", "line 1"]);
    refused(schema("3"), &["a JSON object"]);
    refused(schema("false"), &["a JSON object"]);
    refused(schema(r#"{"type":"strin"}"#), &["strin"]);
    refused(
        schema(r#"{"type":"object","patternProperties":{"^a{1000000}$":{}}}"#),
        &["#/patternProperties: line 1, column 3: 1000000 repetitions"],
    );
    refused(
        lark("start: %json {\"type\":\"string\",\"minLength\":1000000}"),
        &["line 1, column 8: in this %json, #/minLength is 1000000"],
    );
    refused(
        schema(r#"{"properties":{"a":{"not":{}}}}"#),
        &["not", "#/properties/a"],
    );
    refused(
        schema(r##"{"$ref":"#/$defs/b","$defs":{"b":{"if":{},"then":false}}}"##),
        &["if", "#/$defs/b"],
    );
    refused(
        schema(r##"{"items":{"$ref":"#/$defs/b"}}"##),
        &["the reference #/$defs/b at #/items leads to nothing"],
    );
    refused(
        schema(r#"{"$ref":"http://example.com/x.json"}"#),
        &["http://example.com/x.json"],
    );
    refused(schema(r#"{"items":{"$id":"x"}}"#), &["$id", "#/items"]);
    // Its own references would go from it (JSON Schema 2020-12, section 8.2.1).
    refused(
        schema(
            r##"{"$ref":"#/$defs/a","$defs":{"a":{"$id":"http://e/a","properties":{"x":{"$ref":"#/$defs/b"}},"$defs":{"b":{"const":1}}},"b":{"const":2}}}"##,
        ),
        &["$id at #/$defs/a is not supported"],
    );
    let root = r##"{"$id":"http://e/a","type":["array","null"],"items":{"$ref":"#"}}"##;
    assert!(QWEN.takes(&schema(root), "[null]"));
    refused(
        schema(r#"{"x-guidance":{"lenient":true},"not":{}}"#),
        &["not"],
    );
    refused(
        schema(r#"{"x-guidance":{"lenient":true}}"#),
        &["x-guidance"],
    );
    refused(
        schema(r#"{"oneOf":[{"type":"string","minLength":1},{"type":"string","maxLength":3}]}"#),
        &["oneOf"],
    );
    refused(
        schema(r#"{"type":"integer","minimum":3,"maximum":2}"#),
        &["3", "2"],
    );
}

/// RFC 6901, section 4: an index has no sign and no leading zeros.
#[test]
fn an_index_is_written_in_one_way() {
    for (index, known) in [("0", true), ("00", false), ("+0", false), ("-0", false)] {
        for list in ["anyOf", "examples"] {
            let reference = format!("#/{list}/{index}");
            let text = format!(
                r#"{{"anyOf":[{{"type":"null"}},{{"$ref":"{reference}"}}],"examples":[{{"const":1}}]}}"#
            );
            if known {
                assert!(QWEN.takes(&schema(&text), "null"), "{reference}");
                continue;
            }
            let says = format!("the reference {reference} at #/anyOf/1 leads to nothing");
            refused(schema(&text), &[&says]);
        }
    }
}

/// A reference that can't be made plain is not left to be read as another one.
#[test]
fn a_reference_to_more_than_is_copied_is_refused() {
    let many = vec!["0"; 50_001].join(",");
    let text = format!(
        r##"{{"$ref":"#/$defs/a~1b","$defs":{{"a/b":{{"enum":[{many}]}},"a~1b":{{"type":"string"}}}}}}"##
    );
    refused(schema(&text), &["the reference #/$defs/a~1b", "50000"]);
}

/// Each further pattern that one string has to match doubles the work of compiling.
#[test]
fn more_patterns_at_once_than_can_be_followed_are_refused() {
    let all = |n: u8| {
        let patterns = (0..n).map(|i| format!(r#"{{"pattern":".*{}.*"}}"#, char::from(b'a' + i)));
        format!(
            r#"{{"type":"string","allOf":[{}]}}"#,
            patterns.collect::<Vec<_>>().join(",")
        )
    };
    refused(schema(&all(26)), &["at # ", "8 patterns"]);
    let within = format!(r#"{{"properties":{{"x":{}}}}}"#, all(9));
    refused(schema(&within), &["at #/properties/x ", "8 patterns"]);
    assert!(QWEN.takes(&schema(&all(3)), r#""abc""#));
    // The same by names that fit a pattern, beside names that are known, and in a Lark grammar.
    let named = |part: &str| format!(r#"{{"allOf":[{part}]}}"#);
    let part = |i: u8| format!(r#"{{"patternProperties":{{"^x":{}}}}}"#, all(i));
    let parts: Vec<String> = [3, 3, 3].map(part).to_vec();
    refused(schema(&named(&parts.join(","))), &["at # ", "8 patterns"]);
    assert!(QWEN.takes(&schema(&named(&parts[..2].join(","))), r#"{"x":"abc"}"#));
    let beside = format!(
        r#"{{"properties":{{"x":{}}},"patternProperties":{{"x":{}}}}}"#,
        all(8),
        all(1)
    );
    refused(
        schema(&beside),
        &["at # ", "patternProperties", "8 patterns"],
    );
    refused(
        lark(&format!("start: %json {}", all(9))),
        &["line 1, column 8: in this %json", "8 patterns"],
    );
    assert!(QWEN.takes(&lark(&format!("start: %json {}", all(3))), r#""abc""#));
}

/// A schema may be made of itself (a list of such lists), but not be only itself.
#[test]
fn a_schema_that_is_only_itself_is_refused_by_its_place() {
    for (text, reference, at) in [
        (r##"{"$ref":"#"}"##, "#", "#"),
        (r##"{"allOf":[{"$ref":"#"}]}"##, "#", "#/allOf/0"),
        (
            r##"{"type":"object","properties":{"a":{"$ref":"#/properties/a"}},"required":["a"]}"##,
            "#/properties/a",
            "#/properties/a",
        ),
        (
            r##"{"items":{"$ref":"#/$defs/b"},"$defs":{"b":{"title":"B","$ref":"#/$defs/c"},"c":{"anyOf":[{"$ref":"#/$defs/b"}]}}}"##,
            "#/$defs/b",
            "#/items",
        ),
        (
            r##"{"$ref":"#/$defs/a","$defs":{"a":{"type":"array","items":{"$ref":"#/$defs/b%22"}},"b\"":{"$ref":"#/$defs/b%22"}}}"##,
            "#/$defs/b%22",
            "#/$defs/a/items",
        ),
    ] {
        let says = format!("the reference {reference} at {at} leads only to itself");
        refused(schema(text), &[&says]);
    }
    let unused = r##"{"type":"null","$defs":{"a":{"$ref":"#/$defs/a"}}}"##;
    assert!(QWEN.takes(&schema(unused), "null"));
    assert!(QWEN.takes(
        &schema(r##"{"type":"array","items":{"$ref":"#"}}"##),
        "[[], [[]]]"
    ));
    let chain: Vec<String> = (0..2000)
        .map(|i| format!(r##""d{i}":{{"$ref":"#/$defs/d{}"}}"##, (i + 1) % 2000))
        .collect();
    let chain = format!(
        r##"{{"$ref":"#/$defs/d0","$defs":{{{}}}}}"##,
        chain.join(",")
    );
    refused(
        schema(&chain),
        &["the reference #/$defs/d0 at # leads only to itself"],
    );
}

/// A connection's thread has a small stack.
#[test]
fn a_chain_longer_than_a_stack_is_followed_to_its_end() {
    let links: Vec<String> = (1..13_000)
        .map(|i| format!(r##"{{"$ref":"#/d/{i}"}}"##))
        .collect();
    let chain = format!(
        r##"{{"type":"object","allOf":[{{"$ref":"#/d/0"}}],"d":[{},{{}}]}}"##,
        links.join(",")
    );
    let model: &'static Model = &QWEN;
    let reads = std::thread::Builder::new().stack_size(1 << 20);
    let reads = reads.spawn(move || model.constraints.read(&schema(&chain)));
    // Taken or refused: an overflow would end the process.
    assert!(reads.is_ok_and(|thread| thread.join().is_ok()));
}

#[test]
fn expressions_and_grammars_are_refused_by_part() {
    refused(regex("a(b"), &["regular expression", "unclosed group"]);
    refused(regex("[z-a]"), &["regular expression", "range"]);
    refused(regex(r"\bword"), &["regular expression", r"\bword"]);
    refused(lark(""), &["Lark", "start"]);
    refused(lark("begin: \"a\""), &["start"]);
    refused(lark("start: missing"), &["missing"]);
    refused(lark("start: \"a"), &["line 1, column "]);
    refused(lark("start: x\nx: y"), &["line 2, column 4", "\"y\""]);
    refused(lark("start: \"a\"\nstart: \"b\""), &["duplicate", "start"]);
    refused(lark("start: <|im_end|>"), &["names tokens"]);
    refused(lark("start: <[1-3]> \"a\""), &["names tokens"]);
    refused(
        lark("start: a\na[capture, temperature=0.5]: \"a\""),
        &["temperature="],
    );
    refused(
        lark("start: a\na[temperature=0.5]: \"a\""),
        &["line 2, column 14: temperature="],
    );
    let nested = r#"start: "x" %lark { start[temperature=0.5]: /y/ }"#;
    refused(lark(nested), &["temperature="]);
    refused(lark("start: a \"x\"\na[stop=\"y\"]: /.*/"), &["stop="]);
}

#[test]
fn what_matches_nothing_is_told_as_that() {
    for nothing in [r"[^\s\S]", r"a[^\s\S]b|[^\x00-\x{10ffff}]+"] {
        refused(regex(nothing), &["regular expression", "matches nothing"]);
    }
    assert!(QWEN.takes(&regex(r"[^\s\S]|a+"), "aa"));
    let both = "A: /a+/ & /b+/";
    let start = lark(&format!("start: A\n{both}"));
    refused(start, &["no token can follow", "nothing at all"]);
    let after = QWEN
        .constraints
        .compile(&lark(&format!("start: \"x\" A\n{both}")));
    let mut after = after.unwrap_or_else(|e| panic!("{e}"));
    after.accept(QWEN.bytes(b"x")[0]).unwrap();
    let stuck = after.mask(&mut vec![0.0; QWEN.tokenizer.n_vocab()]);
    assert_eq!(
        stuck,
        Err(ConstraintError::DeadEnd {
            kind: "Lark grammar"
        })
    );
}

/// A grammar with markers is made here, but a session file may say that any was.
#[test]
fn grammars_with_markers_are_held_to_the_limits_of_others() {
    let marked = |lark: &str| ConstraintSpec::Marked {
        lark: lark.to_owned(),
        tokens: Vec::new(),
    };
    for (text, says) in [
        ("start: \"a\"{20000}", "20000 repetitions"),
        ("start: a\na[temperature=0.5]: \"a\"", "temperature="),
    ] {
        refused(marked(text), &[says]);
        let early = marked(text).check().expect_err("refused").to_string();
        assert!(early.contains(says), "{early}");
    }
    assert!(QWEN.takes(&marked("start: \"a\"{3}"), "aaa"));
    assert!(marked("start: <[1]>").check().is_ok());
    // What a tool's schema says of other calls asks for nothing.
    let schema = r#"{"enum": ["x[top_p, temperature=0.5]"]}"#;
    let said = r#""x[top_p, temperature=0.5]""#;
    assert!(QWEN.takes(&marked(&format!("start: %json {schema}")), said));
}

/// Hostile specs end in an error, quickly, and nothing panics.
#[test]
fn hostile_specs_are_refused() {
    let deep = |open: &str, close: &str, n: usize| format!("{}{}", open.repeat(n), close.repeat(n));
    refused(schema(&"[".repeat(100_000)), &["recursion limit"]);
    refused(
        schema(&deep(r#"{"items":"#, "}", 200)),
        &["recursion limit"],
    );
    refused(regex(&deep("(", ")", 2000)), &["regular expression"]);
    refused(regex(&"x".repeat((1 << 18) + 1)), &["262144"]);
    refused(lark(&deep("start: (", ")", 500)), &["Lark"]);
    let chain: String = (0..5000).map(|i| format!("r{i}: r{}\n", i + 1)).collect();
    refused(lark(&format!("start: r0\n{chain}")), &["5001", "1024"]);
    let chain: String = (0..1000).map(|i| format!("r{i}: r{}\n", i + 1)).collect();
    refused(lark(&format!("start: r0\n{chain}")), &["r1000"]);
    let chain: String = (0..1000)
        .map(|i| format!("R{i}: \"a\" R{}\n", i + 1))
        .collect();
    refused(lark(&format!("start: R0\n{chain}")), &["R1000"]);
    let bomb: String = (0..40)
        .map(|i| format!("r{i}: r{} r{}\n", i + 1, i + 1))
        .collect();
    refused(lark(&format!("start: r0\n{bomb}r40: r40")), &["Lark"]);
}

/// What is costly but legal is either followed or refused; it never hangs.
#[test]
fn costly_specs_end() {
    let mut followed = 0;
    let states = regex(&format!("(a|b)*a{}", "(a|b)".repeat(40)));
    for spec in [
        states,
        regex("((((a{9}){9}){9}){9})"),
        regex("((((a{1000}){1000}){1000}){1000})"),
        regex(&"(a?)".repeat(500)),
        regex(&format!(
            "({})*",
            (0..2000)
                .map(|i| format!("w{i}"))
                .collect::<Vec<_>>()
                .join("|")
        )),
        lark("start: a\na: a a | \"x\" | "),
        schema(r#"{"type":"array","minItems":10000,"maxItems":1000000}"#),
        schema(r#"{"type":"string","minLength":10000}"#),
        lark("start: \"a\"{10000,2000000000} \"b\"{10000}"),
    ] {
        let Ok(mut c) = QWEN.constraints.compile(&spec) else {
            continue;
        };
        followed += 1;
        let mut rng = Dice(1);
        for _ in 0..50 {
            let mut logits = vec![0.0; QWEN.tokenizer.n_vocab()];
            if c.mask(&mut logits).is_err() || c.is_done() {
                break;
            }
            let allowed: Vec<usize> = (0..logits.len()).filter(|i| logits[*i] == 0.0).collect();
            c.accept(allowed[rng.below(allowed.len())] as u32).unwrap();
        }
    }
    // Those with the largest counts may be refused, for what they cost.
    assert!(followed >= 6, "{followed} specs were followed");
}

/// llguidance says what is wrong, but not where.
#[test]
fn what_is_wrong_with_a_schema_is_told_with_its_place() {
    for (text, at, says) in [
        (
            r#"{"type":"object","properties":{"a":{"type":"array","items":{"type":"strin"}}}}"#,
            "at #/properties/a/items: ",
            "strin",
        ),
        (
            r#"{"properties":{"ok":{"type":"string"},"b":{"type":"colour"}},"required":["b"]}"#,
            "at #/properties/b: ",
            "colour",
        ),
        (
            r##"{"anyOf":[{"type":"null"},{"$ref":"#/$defs/c~1d"}],"$defs":{"c/d":{"properties":{"e":{"type":["null","hue"]}}}}}"##,
            "at #/$defs/c~1d/properties/e: ",
            "hue",
        ),
        (
            r#"{"items":{"oneOf":[{"type":"string","minLength":1},{"type":"string","maxLength":3}]}}"#,
            "at #/items: ",
            "use anyOf",
        ),
        (
            r##"{"type":"object","properties":{"next":{"$ref":"#"},"x":{"pattern":"[a-z"}}}"##,
            "at #/properties/x: ",
            "the regular expression",
        ),
        // What can be left out may be impossible: that is no fault.
        (
            r#"{"properties":{"a":{"enum":[]},"b":{"type":"strin"}}}"#,
            "at #/properties/b: ",
            "strin",
        ),
        (
            r#"{"type":"object","properties":{"a":{"enum":[]},"b":{"enum":[]}},"required":["b"]}"#,
            "at #/properties/b: ",
            "empty",
        ),
        (
            r#"{"type":"object","additionalProperties":{"enum":[]},"properties":{"b":{"enum":[]}},"required":["b"]}"#,
            "at #/properties/b: ",
            "empty",
        ),
    ] {
        refused(schema(text), &[at, says]);
        let early = schema(text).check().unwrap_err().to_string();
        assert!(early.contains(at), "{early}");
    }
}

/// What is wrong, its value, and what would do: in no words of llguidance's.
#[test]
fn what_is_wrong_with_a_keyword_is_told_with_its_value() {
    for (text, says) in [
        (
            r#"{"type":"strin"}"#,
            "strin is no type: use null, boolean, number, integer, string, array or object",
        ),
        (
            r#"{"type":"number","minimum":"3"}"#,
            "minimum must be a number, is \"3\"",
        ),
        (
            r#"{"type":"array","maxItems":2.5}"#,
            "maxItems must be a whole number from 0 on, is 2.5",
        ),
        (
            r#"{"type":"string","pattern":3}"#,
            "pattern must be a text, is 3",
        ),
        (
            r#"{"type":"string","format":3}"#,
            "format must be a text, is 3",
        ),
        (
            r#"{"type":"object","required":[3]}"#,
            "required must be a list of texts, one is 3",
        ),
        (
            r#"{"type":"object","required":"a"}"#,
            "required must be a list, is \"a\"",
        ),
        (
            r#"{"type":"object","patternProperties":[]}"#,
            "patternProperties must be an object, is []",
        ),
        (
            r#"{"type":"integer","multipleOf":0.123456789012}"#,
            "multipleOf has too many digits: round it",
        ),
        (
            r#"{"$ref":"http://example.com/x.json"}"#,
            "the reference http://example.com/x.json leads out of the schema: put what it means under $defs, and refer to it as #/$defs/NAME",
        ),
        (
            r#"{"type":"object","properties":{"a":{}},"maxProperties":1}"#,
            "name them in required, or leave the counts out",
        ),
        (
            r#"{"type":"object","patternProperties":{"a":{},"b":{}}}"#,
            "a name can fit both /a/ and /b/ in patternProperties: use patterns of which no name fits two",
        ),
        (
            r#"{"type":"string","pattern":"a\\bc"}"#,
            "anchors within a regular expression and word boundaries are not supported: ",
        ),
        (
            r#"{"enum":[]}"#,
            "nothing fulfils it: the list of its alternatives is empty",
        ),
        (
            r#"{"type":"object","properties":{"a":false},"required":["a"]}"#,
            "nothing fulfils it: nothing fulfils the required property a: it is false",
        ),
        (
            r#"{"type":"integer","minimum":3,"maximum":2}"#,
            "nothing fulfils it: minimum (3) is greater than maximum (2)",
        ),
        (
            r#"{"type":"string","enum":["abc"],"maxLength":2}"#,
            "nothing fulfils it: the text \"abc\" does not have the length that is asked for",
        ),
        (
            r#"{"allOf":[{"type":"string"},{"type":"null"}]}"#,
            "nothing fulfils it: what holds at once wants values of different types",
        ),
    ] {
        let told = QWEN.refusal(&schema(text)).to_string();
        assert!(
            told.starts_with("the JSON schema can't be used: "),
            "{told}"
        );
        assert!(told.contains(says), "{text}: {told}");
        for theirs in [
            "Expected",
            "f64",
            "nsatisfiable",
            "regex",
            "Unknown",
            "Invalid",
            "not supported yet",
            "feature",
        ] {
            assert!(!told.contains(theirs), "{text}: {told}");
        }
    }
}

/// llguidance's settings are no business of who writes a schema.
#[test]
fn no_refusal_names_a_setting_that_nobody_has() {
    let words = |n: usize| (0..n).map(|i| format!(r#""w{i}x{}""#, i * 7919));
    let many = words(20_000).collect::<Vec<_>>().join(",");
    let mut refused = 0;
    for spec in [
        schema(r#"{"oneOf":[{"type":"string","minLength":1},{"type":"string","maxLength":3}]}"#),
        schema(&format!(r#"{{"enum":[{many}]}}"#)),
        regex("((((a{1000}){1000}){1000}){1000})"),
        regex(&format!("(a|b)*a{}", "(a|b)".repeat(400))),
    ] {
        let Err(e) = QWEN.constraints.compile(&spec) else {
            continue;
        };
        refused += 1;
        let text = e.to_string();
        for theirs in ["coerce", "option ", "limits.", "limit for", "lexer", "fuel"] {
            assert!(!text.contains(theirs), "{text}");
        }
    }
    // The words and the first expression are followed.
    assert_eq!(refused, 2, "specs were refused");
}

/// Each may come after any of those before it, which takes seconds where there are thousands.
#[test]
fn more_optional_properties_than_can_be_followed_are_refused() {
    let object = |n: usize, required: usize| {
        let names = (0..n).map(|i| format!(r#""p{i}":{{"type":"integer"}}"#));
        let needed = (0..required).map(|i| format!(r#""p{i}""#));
        format!(
            r#"{{"type":"object","properties":{{{}}},"required":[{}],"additionalProperties":false}}"#,
            names.collect::<Vec<_>>().join(","),
            needed.collect::<Vec<_>>().join(",")
        )
    };
    let says = "has 5000 optional properties: at most ";
    refused(schema(&object(5000, 0)), &["at # ", says]);
    let within = format!(r#"{{"items":{}}}"#, object(5010, 10));
    refused(schema(&within), &["at #/items ", says]);
    refused(lark(&format!("start: %json {}", object(5000, 0))), &[says]);
    refused(schema(&object(401, 0)), &["has 401 ", "at most 400 of"]);
    assert!(QWEN.takes(&schema(&object(400, 0)), r#"{"p3":1,"p399":2}"#));
    // What must come, comes in its order.
    QWEN.compile(&schema(&object(3000, 3000)));
}

/// Each may be first of what an object says, and which of the objects it is can't be known: the row of the parser that holds them all took seconds, again and again, and on the
/// engine's thread where an answer came to it.
#[test]
fn alternatives_with_more_together_than_can_be_followed_are_refused() {
    let object = |of: usize, n: usize| {
        let names = (0..n).map(|i| format!(r#""p{of}x{i}":{{"type":"integer"}}"#));
        let names = names.collect::<Vec<_>>().join(",");
        format!(r#"{{"type":"object","properties":{{{names}}},"additionalProperties":false}}"#)
    };
    let any = |k: usize, n: usize| {
        let all = (0..k).map(|of| object(of, n)).collect::<Vec<_>>();
        format!(r#"{{"anyOf":[{}]}}"#, all.join(","))
    };
    let within = |inner: &str| {
        format!(r#"{{"type":"object","properties":{{"a":{inner}}},"required":["a"]}}"#)
    };
    for spec in [
        schema(&any(20, 400)),
        schema(&within(&any(20, 400))),
        lark(&format!("start: \"x\" %json {}", any(20, 400))),
    ] {
        let made = QWEN.constraints.compile(&spec).map(drop);
        let told = made.err().map(|e| e.to_string()).unwrap_or_default();
        let says = told.contains("too much can come next") && told.contains("fewer optional parts");
        assert!(says, "{told:?}");
    }
    assert!(QWEN.takes(&schema(&within(&any(8, 40))), r#"{"a":{"p7x3":2}}"#));
}
