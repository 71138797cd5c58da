//! What the engine says while it works: each piece of text at the moment when it may be shown.

use std::path::Path;

use minfer::engine::{
    Engine, EngineOptions, Event, FinishReason, Generate, Model, Request, Task, default_n_ctx,
};

use crate::models::{Variant, saying, tiny};

fn engine(path: &str) -> Engine {
    let model = Model::open(Path::new(path)).unwrap();
    let options = EngineOptions {
        n_ctx: default_n_ctx(&model, 1, None).unwrap(),
        n_threads: Some(1),
        ..EngineOptions::default()
    };
    Engine::new(model, options, &mut |_, _| {}).unwrap()
}

/// The text of each token, and the end's reason and text.
fn deltas(variant: &Variant, stop: &str, n_predict: usize) -> (Vec<String>, FinishReason, String) {
    let file = variant.write();
    let engine = engine(file.path());
    let task = Generate {
        stop: vec![stop.to_owned()],
        n_predict: Some(n_predict),
        ..Generate::default()
    };
    let prompt = vec![120];
    let events = engine.submit(Request::new(prompt, Task::Generate(task)));
    let mut tokens = Vec::new();
    for event in events.unwrap() {
        match event {
            Event::Token { text, .. } => tokens.push(text),
            Event::Done(done) => return (tokens, done.reason, done.text),
            Event::Error(e) => panic!("{e}"),
            _ => {}
        }
    }
    panic!("no end");
}

const FOX: [&[u8]; 8] = [
    b"The", b" quick", b" br", b"own", b" f", b"ox", b" jumps", b".",
];

#[test]
fn swiftlm_126_deltas_never_hold_a_part_of_the_stop() {
    let fox = saying(&FOX);
    let (tokens, reason, tail) = deltas(&fox, "own fox", 64);
    // "own" and " f" may be the stop's start and wait; "ox" completes it.
    assert_eq!(tokens, ["The", " quick", " br", "", "", ""]);
    assert_eq!((reason, tail.as_str()), (FinishReason::Stop, ""));
    // A stop within a token: what stands before it is said.
    let (tokens, ..) = deltas(&fox, "wn f", 64);
    assert_eq!(tokens, ["The", " quick", " br", "o", ""]);
}

#[test]
fn swiftlm_126_what_only_looked_like_a_stop_is_said_later() {
    let fox = saying(&FOX);
    let (tokens, reason, tail) = deltas(&fox, "own foz", 64);
    // No more waits than can become the stop: "own fo" ends with the "x".
    let want = ["The", " quick", " br", "", "", "own fox", " jumps", ".", ""];
    assert_eq!(tokens, want);
    assert_eq!((reason, tail.as_str()), (FinishReason::Stop, ""));
    // What waits at the end is said with it.
    let (tokens, reason, tail) = deltas(&fox, "jumps.!", 64);
    let want = ["The", " quick", " br", "own", " f", "ox", " ", "", ""];
    assert_eq!(tokens, want);
    assert_eq!((reason, tail.as_str()), (FinishReason::Stop, "jumps."));
    let (tokens, reason, tail) = deltas(&fox, "brown", 3);
    assert_eq!(tokens, ["The", " quick", " "]);
    assert_eq!((reason, tail.as_str()), (FinishReason::Length, "br"));
}

#[test]
fn ik_llama_cpp_780_a_character_comes_whole() {
    let cat = saying(&[b"A", b"\xf0", b"\x9f", b"\x98", b"\xb8", b"B"]);
    let (tokens, reason, _) = deltas(&cat, "", 64);
    assert_eq!(tokens, ["A", "", "", "", "\u{1f638}", "B", ""]);
    assert_eq!(reason, FinishReason::Stop);
    // An unfinished character at the end is one U+FFFD.
    let (tokens, reason, tail) = deltas(&cat, "", 4);
    assert_eq!(tokens, ["A", "", "", ""]);
    assert_eq!((reason, tail.as_str()), (FinishReason::Length, "\u{fffd}"));
}

#[test]
fn dropping_the_stream_cancels_the_request() {
    let engine = engine(&tiny("llama"));
    let endless = Generate {
        n_predict: None,
        ignore_eos: true,
        ..Generate::default()
    };
    let ask = |task| {
        let prompt = vec![120];
        engine.submit(Request::new(prompt, task)).unwrap()
    };
    for _ in 0..8 {
        let stream = ask(Task::Generate(endless.clone()));
        let first = stream.recv().unwrap();
        assert!(matches!(first, Event::Prompt { done: 1, total: 1 }));
    }
    // The engine is free again, with all its pages.
    let all: Vec<Event> = ask(Task::Generate(endless)).collect();
    let Some(Event::Done(done)) = all.last() else {
        panic!("{all:?}");
    };
    assert_eq!(
        (done.reason, done.timings.predicted_n),
        (FinishReason::Length, 512)
    );
}
