//! What comes next, step by step.

use super::*;

#[test]
fn the_end_is_allowed_exactly_where_the_text_may_end() {
    for model in [&*QWEN, &*LLAMA] {
        let mut c = model.compile(&regex("ab?"));
        let ends = |model: &Model, c: &mut dyn Constraint| {
            let allowed = model.allowed(c);
            let eog = model.tokenizer.eog();
            let ends = eog.iter().filter(|id| allowed.contains(id)).count();
            assert!(ends == 0 || ends == eog.len());
            ends > 0
        };
        assert!(!ends(model, &mut *c));
        let [a, b] = model.bytes(b"ab")[..] else {
            panic!()
        };
        c.accept(a).unwrap();
        assert!(ends(model, &mut *c) && !c.is_done());
        c.accept(b).unwrap();
        assert!(ends(model, &mut *c) && c.is_done());
        assert_eq!(model.allowed(&mut *c), model.tokenizer.eog());
        assert!(matches!(c.accept(b), Err(ConstraintError::Refused { .. })));
        c.accept(model.tokenizer.eog()[0]).unwrap();
        assert!(c.is_done());
    }
}

#[test]
fn what_is_allowed_is_every_token_whose_bytes_fit() {
    for model in [&*QWEN, &*LLAMA] {
        let mut c = model.compile(&regex("(?s:.*)x"));
        let c = &mut *c;
        let t = &model.tokenizer;
        let begins_text = |piece: &[u8]| match std::str::from_utf8(piece) {
            Ok(_) => true,
            Err(e) => e.error_len().is_none(),
        };
        let want: Vec<u32> = (0..t.n_vocab() as u32)
            .filter(|id| !t.is_control(*id) && !t.is_eog(*id))
            .filter(|id| !t.piece(*id).unwrap().is_empty() && begins_text(t.piece(*id).unwrap()))
            .collect();
        assert_eq!(model.allowed(c), want);
    }
}

#[test]
fn a_refused_token_changes_nothing() {
    let mut c = QWEN.compile(&regex("abc"));
    let [a, b, z] = QWEN.bytes(b"abz")[..] else {
        panic!()
    };
    c.accept(a).unwrap();
    let before = QWEN.allowed(&mut *c);
    for wrong in [
        z,
        a,
        QWEN.tokenizer.eog()[0],
        u32::MAX,
        QWEN.tokenizer.n_vocab() as u32,
    ] {
        let e = c.accept(wrong).unwrap_err();
        assert!(
            matches!(e, ConstraintError::Refused { token, .. } if token == wrong),
            "{e}"
        );
    }
    assert_eq!(QWEN.allowed(&mut *c), before);
    c.accept(b).unwrap();
}

#[test]
fn a_clone_goes_its_own_way() {
    let mut one = QWEN.compile(&regex("a[xy]+"));
    let [a, x] = QWEN.bytes(b"ax")[..] else {
        panic!()
    };
    one.accept(a).unwrap();
    let mut other = one.boxed_clone();
    one.accept(x).unwrap();
    let eog = QWEN.tokenizer.eog()[0];
    assert!(QWEN.allowed_here(&mut *one, eog) && !QWEN.allowed_here(&mut *other, eog));
}

#[test]
fn accepting_the_tokens_again_brings_the_state_back() {
    let specs = [
        ConstraintSpec::JsonObject,
        schema(super::schemas::PERSON),
        regex(r"(\d{1,3}\.){3}\d{1,3}"),
        lark("start: item (\",\" item)*\nitem: /[a-z]+/ | \"(\" start \")\""),
    ];
    for spec in specs {
        let saved = serde_json::to_string(&spec).unwrap();
        let (tokens, _) = QWEN.walk(&mut *QWEN.compile(&spec), 7, 30);
        let read: ConstraintSpec = serde_json::from_str(&saved).unwrap();
        assert_eq!(read, spec);
        // One that masked at every step, and one that only accepted.
        let mut live = QWEN.compile(&spec);
        for (n, token) in tokens.iter().enumerate() {
            let want = QWEN.allowed(&mut *live);
            let mut replayed = QWEN.compile(&read);
            for token in &tokens[..n] {
                replayed.accept(*token).unwrap();
            }
            assert_eq!(QWEN.allowed(&mut *replayed), want, "{spec:?} after {n}");
            assert_eq!(replayed.is_done(), live.is_done());
            live.accept(*token).unwrap();
        }
    }
}

#[test]
fn control_tokens_never_come() {
    for model in [&*QWEN, &*LLAMA] {
        let mut c = model.compile(&regex("(?s:.*)"));
        let allowed = model.allowed(&mut *c);
        let control = |id: &u32| model.tokenizer.is_control(*id) && !model.tokenizer.is_eog(*id);
        assert!((0..model.tokenizer.n_vocab() as u32).any(|id| control(&id)));
        assert!(!allowed.iter().any(control));
    }
}

/// ik_llama.cpp#780: a constraint that forces U+1F638, which only byte tokens can write.
#[test]
fn report_ik_llama_cpp_780_bytes_write_a_character() {
    for model in [&*QWEN, &*LLAMA] {
        assert!(model.takes(&regex("\u{1f638}"), "\u{1f638}"));
        assert!(!model.takes(&regex("\u{1f638}"), "\u{1f639}"));
        let (_, text) = model.walk(&mut *model.compile(&regex("a\u{1f638}+b")), 3, 20);
        assert!(
            text.starts_with("a\u{1f638}") && text.ends_with("\u{1f638}b"),
            "{text}"
        );
    }
}

#[test]
fn what_is_kept_of_a_spec_begins_anew_and_stands_alone() {
    let model = Model::open("qwen2");
    let recent = &model.constraints.recent;
    let spec = regex("ab?c");
    assert!(!recent.keeps(&spec) && !recent.is_fine(&spec));
    let mut first = model.compile(&spec);
    let begin = model.allowed(&mut *first);
    let [a, b, c] = model.bytes(b"abc")[..] else {
        panic!()
    };
    assert!(recent.keeps(&spec));
    first.accept(a).unwrap();
    let after = model.allowed(&mut *first);
    let mut second = model.compile(&spec);
    assert_eq!(model.allowed(&mut *second), begin);
    for token in [a, c] {
        second.accept(token).unwrap();
    }
    assert!(second.is_done() && !first.is_done());
    assert_eq!(model.allowed(&mut *first), after);
    for token in [b, c] {
        first.accept(token).unwrap();
    }
    assert!(first.is_done());
    // The few that were used last.
    for n in 0..8 {
        model.compile(&regex(&format!("{n}x")));
        model.compile(&spec);
    }
    assert!(recent.keeps(&spec) && !recent.keeps(&regex("0x")));
    model.constraints.check(&spec).unwrap();
    assert!(recent.is_fine(&spec));
    let wrong = regex("a{");
    assert!(model.constraints.check(&wrong).is_err() && !recent.is_fine(&wrong));
    assert!(model.constraints.compile(&wrong).is_err());
    assert!(!recent.keeps(&wrong));
}

#[test]
fn who_asks_at_once_for_the_same_waits_for_one() {
    const ASKING: usize = 8;
    let model = Model::open("qwen2");
    let compiled = || model.constraints.compiled();
    let words: Vec<String> = (0..400).map(|i| format!("\"word {i}\"")).collect();
    let spec = schema(&format!("{{\"enum\": [{}]}}", words.join(",")));
    let together = std::sync::Barrier::new(ASKING);
    std::thread::scope(|s| {
        for _ in 0..ASKING {
            s.spawn(|| {
                together.wait();
                assert!(model.constraints.compile(&spec).is_ok());
            });
        }
    });
    assert_eq!(compiled(), 1);
    // What is refused is not kept; what can be read may be.
    let wrong = regex("a{");
    for n in [2, 3] {
        assert!(model.constraints.compile(&wrong).is_err() && compiled() == n);
    }
    let unread = schema("{\"not\": {}}");
    assert!(model.constraints.read(&unread).is_err() && model.constraints.read(&spec).is_ok());
    assert_eq!(compiled(), 3);
}
