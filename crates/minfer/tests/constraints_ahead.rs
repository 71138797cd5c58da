//! The vocabulary is taken in for constraints when nobody needs the CPUs, or by who needs it first, and by nobody else.

mod faulty;
mod tiny;

use std::sync::atomic::Ordering;
use std::time::Duration;

use minfer::engine::{Engine, EngineOptions, Generate, Request, Task};
use minfer::gguf::{Array, StrArray, Value};
use minfer::sampling::ConstraintSpec;

fn options(ahead: bool) -> EngineOptions {
    EngineOptions {
        constraints_ahead: ahead,
        n_ctx: 128,
        n_threads: Some(1),
        ..EngineOptions::default()
    }
}

fn task(constraint: Option<ConstraintSpec>) -> Generate {
    Generate {
        constraint,
        n_predict: Some(8),
        ignore_eos: true,
        ..Generate::default()
    }
}

fn digits() -> Option<ConstraintSpec> {
    Some(ConstraintSpec::Regex("[0-9]{4}".into()))
}

/// Waits for it; half a minute is more than the slowest machine takes.
fn becomes_ready(engine: &Engine) -> bool {
    for _ in 0..3000 {
        if engine.constraints_are_ready() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

#[test]
fn who_needs_it_first_makes_it_and_nobody_else() {
    let engine = tiny::engine(&tiny::model("llama"), &options(false));
    tiny::generate(&engine, &[1, 2, 3], task(None));
    std::thread::sleep(Duration::from_millis(700));
    assert!(!engine.constraints_are_ready(), "nothing was constrained");
    let (_, text, _) = tiny::generate(&engine, &[1, 2, 3], task(digits()));
    assert!(text.len() == 4 && text.bytes().all(|b| b.is_ascii_digit()));
    assert!(engine.constraints_are_ready());
}

#[test]
fn it_is_made_ahead_once_nothing_runs() {
    let (engine, faults) = faulty::engine(&tiny::model("llama"), options(true));
    // A step that does not end.
    let allowed = faults.runs.calls.load(Ordering::Relaxed);
    faults.allowed.store(allowed.max(1), Ordering::Relaxed);
    let request = || Request::new(vec![1, 2, 3], Task::Generate(task(None)));
    let busy = [request(), request()].map(|r| engine.submit(r).expect("served"));
    std::thread::sleep(Duration::from_millis(900));
    assert!(!engine.constraints_are_ready(), "the CPUs were needed");
    faults.allowed.store(0, Ordering::Relaxed);
    busy.into_iter().for_each(|stream| drop(stream.last()));
    assert!(becomes_ready(&engine));
    let (_, text, _) = tiny::generate(&engine, &[1, 2, 3], task(digits()));
    assert_eq!(text.len(), 4);
}

#[test]
fn an_engine_that_is_gone_prepares_nothing() {
    let model = tiny::model("llama");
    drop(tiny::engine(&model, &options(true)));
    for _ in 0..3000 {
        // The thread that waited held the model.
        if std::sync::Arc::strong_count(&model) == 1 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("somebody holds the model");
}

#[test]
fn a_vocabulary_that_has_no_text_is_named_whenever_it_was_looked_at() {
    // All are control tokens, and none are merged.
    let types = vec![3; tiny::model("llama").tokenizer().n_vocab()];
    let changed = [
        ("tokenizer.ggml.token_type", Array::I32(types)),
        ("tokenizer.ggml.merges", Array::Str(StrArray::new())),
    ];
    let model = tiny::with_all_metadata("llama", &changed.map(|(k, v)| (k, Value::Array(v))));
    for ahead in [false, true] {
        let engine = tiny::engine(&model, &options(ahead));
        assert!(!ahead || becomes_ready(&engine));
        for _ in 0..2 {
            let request = Request::new(vec![1, 2, 3], Task::Generate(task(digits())));
            let refused = engine.submit(request).err().map(|e| e.to_string());
            let refused = refused.expect("no token is text");
            assert!(refused.contains("can't be constrained"), "{refused}");
        }
    }
}
