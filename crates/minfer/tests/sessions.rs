//! A sequence that is saved and goes on elsewhere says what it would have said, and a broken file is refused.

mod tiny;

use std::path::PathBuf;
use std::sync::Arc;

use minfer::Error;
use minfer::chat::ReasoningTags;
use minfer::chat::tools::ToolFormat;
use minfer::engine::{
    Engine, EngineOptions, Event, Generate, Model, Reading, Request, Session, SessionError,
    Speculation, Task,
};
use minfer::gguf::Value;
use minfer::graph::KvType;
use minfer::sampling::{ConstraintSpec, SamplerParams};

fn task(n_predict: usize, temperature: f32, save: bool) -> Generate {
    Generate {
        sampling: SamplerParams {
            temperature,
            mirostat: if temperature > 1.0 { 2 } else { 0 },
            ..SamplerParams::default()
        },
        n_predict: Some(n_predict),
        ignore_eos: true,
        logprobs: Some(5),
        context_shift: true,
        n_keep: 3,
        save,
        ..Generate::default()
    }
}

/// What was said, with the bits of its log-probabilities; the session; prompt tokens that were computed.
struct Heard {
    ids: Vec<u32>,
    text: String,
    /// What [`minfer::engine::Done`] says is held back.
    held: String,
    stop: Option<String>,
    bits: Vec<u32>,
    session: Option<Arc<Session>>,
    computed: u64,
}

fn ask(engine: &Engine, request: Request) -> Result<Heard, Error> {
    let before = engine.stats().prompt_tokens;
    let mut heard = Heard {
        ids: Vec::new(),
        text: String::new(),
        held: String::new(),
        stop: None,
        bits: Vec::new(),
        session: None,
        computed: 0,
    };
    for event in engine.submit(request)? {
        match event {
            Event::Token { id, text, logprobs } => {
                heard.ids.push(id);
                heard.text.push_str(&text);
                let logprobs = logprobs.expect("asked for");
                heard.bits.push(logprobs.chosen.to_bits());
                heard
                    .bits
                    .extend(logprobs.top.iter().map(|t| t.1.to_bits()));
            }
            Event::Session(session) => heard.session = Some(session),
            Event::Done(done) => {
                heard.text.push_str(&done.text);
                (heard.held, heard.stop) = (done.held, done.stop);
            }
            Event::Error(e) => return Err(e),
            _ => {}
        }
    }
    heard.computed = engine.stats().prompt_tokens - before;
    Ok(heard)
}

fn through_a_file(session: &Session) -> Arc<Session> {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s");
    session.write(&path).expect("written");
    Arc::new(Session::read(&path).expect("read"))
}

fn options(ty: KvType) -> EngineOptions {
    EngineOptions {
        n_ctx: 128,
        n_threads: Some(2),
        type_k: ty,
        type_v: ty,
        ..EngineOptions::default()
    }
}

/// Of `first` and then 64 tokens in two engines, and of all in one.
fn goes_on(model: &Arc<Model>, ty: KvType, first: usize, temperature: f32) {
    let prompt: Vec<u32> = (0..20).map(|i| (i * 7 + 1) % 90).collect();
    let whole = ask(
        &tiny::engine(model, &options(ty)),
        Request::new(
            prompt.clone(),
            Task::Generate(task(first + 64, temperature, false)),
        ),
    )
    .expect("served");
    let begun = ask(
        &tiny::engine(model, &options(ty)),
        Request::new(prompt, Task::Generate(task(first, temperature, true))),
    )
    .expect("served");
    let session = through_a_file(&begun.session.expect("asked for"));
    let on = ask(
        &tiny::engine(model, &options(ty)),
        Request {
            session: Some(session),
            ..Request::new(Vec::new(), Task::Generate(task(64, temperature, false)))
        },
    )
    .expect("served");
    assert_eq!(
        [begun.ids, on.ids].concat(),
        whole.ids,
        "{ty:?} {first} {temperature}"
    );
    assert_eq!([begun.bits, on.bits].concat(), whole.bits);
    assert!(
        on.computed <= 1,
        "{} rows of the past were computed again",
        on.computed
    );
}

#[test]
fn the_next_64_tokens_are_the_same() {
    for name in ["llama", "gemma3"] {
        let model = tiny::model(name);
        goes_on(&model, KvType::F16, 10, 0.0);
        goes_on(&model, KvType::F32, 30, 0.8);
        // Mirostat has a state of its own.
        goes_on(&model, KvType::F16, 30, 1.1);
        // The context has been shifted by then.
        goes_on(&model, KvType::F16, 130, 0.8);
        // Nothing was chosen yet.
        goes_on(&model, KvType::F16, 0, 0.8);
    }
    let model = tiny::quantized("qwen3", &[minfer::numeric::GgmlType::Q8_0]);
    goes_on(&model, KvType::F16, 33, 0.8);
}

/// The grammar counts: what was said before the file decides what may be said after it.
#[test]
fn a_constraint_goes_on_where_the_file_ended() {
    let model = tiny::model("llama");
    let spec = ConstraintSpec::Regex("[a-f]{12}[x-z]{12}".into());
    let task = |n, save, constraint| {
        Task::Generate(Generate {
            constraint,
            context_shift: false,
            n_keep: 0,
            ..task(n, 0.9, save)
        })
    };
    let fresh = || tiny::engine(&model, &options(KvType::F16));
    let prompt: Vec<u32> = (1..20).collect();
    let whole = Request::new(prompt.clone(), task(24, false, Some(spec.clone())));
    let whole = ask(&fresh(), whole).expect("served");
    let begun = Request::new(prompt, task(7, true, Some(spec)));
    let begun = ask(&fresh(), begun).expect("served");
    let on = Request {
        session: Some(through_a_file(&begun.session.expect("asked for"))),
        ..Request::new(Vec::new(), task(17, false, None))
    };
    let on = ask(&fresh(), on).expect("served");
    assert_eq!([begun.ids, on.ids].concat(), whole.ids);
    assert_eq!([begun.bits, on.bits].concat(), whole.bits);
    let piece = |id: &u32| model.tokenizer().piece(*id).expect("a token").to_vec();
    let text: Vec<u8> = whole.ids.iter().flat_map(piece).collect();
    assert_eq!(text.len(), 24, "{text:?}");
    assert!(
        text[..12].iter().all(|c| (b'a'..=b'f').contains(c)),
        "{text:?}"
    );
    assert!(
        text[12..].iter().all(|c| (b'x'..=b'z').contains(c)),
        "{text:?}"
    );
}

/// Text that is held back when an answer is cut, within a character or what may become a stop string, is said by the
/// answer that goes on, if at all.
#[test]
fn the_text_at_the_seam_is_that_of_an_undisturbed_answer() {
    let model = tiny::model("llama");
    let engine = tiny::engine(&model, &options(KvType::F16));
    let rule = ConstraintSpec::Regex("(ä|ö|€){30}".into());
    let of = |n, save, stop: &[&str], reading: Option<&Reading>| {
        Task::Generate(Generate {
            constraint: Some(rule.clone()),
            context_shift: false,
            n_keep: 0,
            stop: stop.iter().map(|s| (*s).to_owned()).collect(),
            reading: reading.cloned(),
            ..task(n, 0.9, save)
        })
    };
    let task = |n, save, stop: &[&str]| of(n, save, stop, None);
    let prompt: Vec<u32> = (1..20).collect();
    let ask_for = |task| ask(&engine, Request::new(prompt.clone(), task)).expect("served");
    let all = ask_for(task(100, false, &[])).text;
    let chars: Vec<char> = all.chars().collect();
    let stop: String = chars[12..16].iter().collect();
    // One that comes, and one that only seems to.
    let nearly = stop.chars().take(3).chain(['x']).collect::<String>();
    for stops in [vec![stop.as_str()], vec![nearly.as_str()], vec![]] {
        let whole = ask_for(task(100, false, &stops));
        let (mut stop_held, mut char_held) = (false, false);
        for n in 0..whole.ids.len() {
            let begun = ask_for(task(n, true, &stops));
            let session = through_a_file(&begun.session.expect("asked for"));
            let on = Request {
                session: Some(session),
                ..Request::new(Vec::new(), task(100, false, &stops))
            };
            let on = ask(&engine, on).expect("served");
            assert_eq!([&begun.ids[..], &on.ids].concat(), whole.ids);
            assert_eq!(begun.text + &on.text, whole.text, "{n} tokens, {stops:?}");
            assert_eq!((&on.stop, &on.held), (&whole.stop, &String::new()));
            let lossy = begun.held.ends_with(char::REPLACEMENT_CHARACTER);
            char_held |= lossy;
            stop_held |= begun.held.chars().count() > usize::from(lossy);
        }
        assert!(char_held && stop_held != stops.is_empty(), "{stops:?}");
    }
    // Where the answer is read, all of it is said at once, and who shows it reads on; the stop string is seen all the same.
    let tags = ReasoningTags::of_template("<think>");
    let tools = [].into();
    for reading in [
        Reading {
            reasoning: tags.map(|tags| (tags, false)),
            ..Reading::default()
        },
        Reading {
            tools: Some((ToolFormat::Hermes, tools)),
            begun: true,
            ..Reading::default()
        },
    ] {
        let task = |n, save| of(n, save, &[&stop], Some(&reading));
        let whole = ask_for(task(100, false));
        assert_eq!(whole.stop.as_ref(), Some(&stop));
        for n in 0..whole.ids.len() {
            let begun = ask_for(task(n, true));
            let on = Request {
                session: Some(through_a_file(&begun.session.expect("asked for"))),
                ..Request::new(Vec::new(), task(100, false))
            };
            let on = ask(&engine, on).expect("served");
            assert_eq!([&begun.ids[..], &on.ids].concat(), whole.ids, "{n}");
            assert_eq!(
                (begun.text + &on.text, on.stop),
                (whole.text.clone(), whole.stop.clone())
            );
        }
    }
    // Read before and not after, over two seams: what is shown is not shown again, and the stop string is seen.
    let reading = Reading {
        reasoning: tags.map(|tags| (tags, false)),
        ..Reading::default()
    };
    let whole = ask_for(task(100, false, &[&stop]));
    for n in 0..whole.ids.len() - 1 {
        let begun = ask_for(of(n, true, &[&stop], Some(&reading)));
        let on = |heard: Heard, task| {
            let session = through_a_file(&heard.session.expect("asked for"));
            let on = Request {
                session: Some(session),
                ..Request::new(Vec::new(), task)
            };
            ask(&engine, on).expect("served")
        };
        let mut text = begun.text.clone();
        let mut ids = begun.ids.clone();
        let more = on(begun, task(1, true, &[&stop]));
        text += &more.text;
        ids.extend(&more.ids);
        let rest = on(more, task(100, false, &[&stop]));
        text += &rest.text;
        ids.extend(&rest.ids);
        assert_eq!((ids, rest.stop), (whole.ids.clone(), whole.stop.clone()));
        // What was shown of the stop string before the seam stays.
        assert!(
            all.starts_with(&text) && text.starts_with(&whole.text),
            "{n}: {text}"
        );
    }
    // Of an answer that nobody goes on with, all is said.
    let cut = ask_for(task(7, false, &[&stop]));
    assert_eq!(cut.held, "");
    let saved = ask_for(task(7, true, &[&stop]));
    assert_eq!(saved.text + &saved.held, cut.text);
    // Another turn begins: it does not begin with the last one's end.
    let on = Request {
        session: saved.session,
        ..Request::new(vec![3], task(100, false, &[]))
    };
    let on = ask(&engine, on).expect("served").text;
    assert_eq!(on.chars().count(), 30, "{on}");
}

/// Version 1 lacks what is held back, version 2 what is not read of it.
#[test]
fn a_session_of_an_older_version_goes_on_and_of_a_newer_one_is_refused() {
    use sha2::{Digest, Sha256};
    let (engine, _, bytes, path, _dir) = small();
    let session = Arc::new(Session::read(&path).expect("whole"));
    let n = u64::from_le_bytes(bytes[19..27].try_into().unwrap()) as usize;
    let mut head: serde_json::Value = serde_json::from_slice(&bytes[27..27 + n]).unwrap();
    let mut held = head.as_object_mut().unwrap().remove("held");
    assert!(held.is_some(), "{head}");
    let with_version = |version: u32, head: &serde_json::Value| {
        let head = serde_json::to_vec(head).unwrap();
        let mut old = bytes[..15].to_vec();
        old.extend(version.to_le_bytes());
        old.extend((head.len() as u64).to_le_bytes());
        old.extend(&head);
        old.extend(&bytes[27 + n..bytes.len() - 32]);
        let sum = Sha256::digest(&old);
        old.extend(sum);
        std::fs::write(&path, old).expect("written");
        Session::read(&path)
    };
    let on = |session| Request {
        session: Some(session),
        ..Request::new(Vec::new(), Task::Generate(task(9, 0.0, false)))
    };
    let first = with_version(1, &head).expect("it can be read");
    let unread = held
        .as_mut()
        .and_then(|h| h.as_object_mut()?.remove("unread"));
    assert!(unread.is_some(), "{held:?}");
    head["held"] = held.into();
    let second = with_version(2, &head).expect("it can be read");
    let new = ask(&engine, on(session)).expect("served");
    for old in [first, second] {
        let old = ask(&engine, on(Arc::new(old))).expect("served");
        assert_eq!((&old.ids, &old.bits), (&new.ids, &new.bits));
    }
    let e = with_version(4, &head)
        .expect_err("nobody knows it")
        .to_string();
    assert!(e.contains("version 4") && e.contains("1 to 3"), "{e}");
}

#[test]
fn a_session_with_gaps_leaves_nothing_wrong_behind() {
    // Windowed pages that are kept for a shift, none after them, then the window's.
    let model = tiny::model("gemma3");
    let engine = tiny::engine(&model, &options(KvType::F16));
    let begin = Request::new(vec![7; 5], Task::Generate(task(110, 0.0, true)));
    let begun = ask(&engine, begin).expect("served");
    let session = through_a_file(&begun.session.expect("asked for"));
    let fresh = tiny::engine(&model, &options(KvType::F16));
    let on = Request {
        session: Some(session.clone()),
        ..Request::new(vec![3], Task::Generate(task(4, 0.0, false)))
    };
    ask(&fresh, on).expect("served");
    // What it made known is right for a prompt that ends anywhere in it.
    for n in [20, 40, 70, 100, 110] {
        let prompt = session.tokens()[..n].to_vec();
        let cached = Request::new(prompt, Task::Generate(task(5, 0.0, false)));
        let mut alone = cached.clone();
        alone.no_cache = true;
        let (cached, alone) = (ask(&fresh, cached), ask(&engine, alone));
        let (cached, alone) = (cached.expect("served"), alone.expect("served"));
        assert_eq!((cached.ids, cached.bits), (alone.ids, alone.bits), "{n}");
    }
}

#[test]
fn a_session_goes_on_with_more_words() {
    let model = tiny::model("llama");
    let engine = tiny::engine(&model, &options(KvType::F16));
    let (a, b) = (vec![5, 9, 13], vec![22, 23]);
    let begun = ask(
        &engine,
        Request::new(a.clone(), Task::Generate(task(9, 0.0, true))),
    );
    let begun = begun.expect("served");
    let session = begun.session.expect("asked for");
    assert_eq!(session.tokens(), [a.clone(), begun.ids.clone()].concat());
    let on = Request {
        session: Some(session),
        ..Request::new(b.clone(), Task::Generate(task(9, 0.0, false)))
    };
    let on = ask(&engine, on).expect("served");
    let fresh = Request {
        no_cache: true,
        ..Request::new(
            [a, begun.ids, b].concat(),
            Task::Generate(task(9, 0.0, false)),
        )
    };
    assert_eq!(on.ids, ask(&engine, fresh).expect("served").ids);
}

/// A small session file, as bytes, of an engine that is still there.
fn small() -> (Engine, Arc<Model>, Vec<u8>, PathBuf, tempfile::TempDir) {
    let model = tiny::model("llama");
    let engine = tiny::engine(&model, &options(KvType::F16));
    let begun = ask(
        &engine,
        Request::new(vec![1, 2, 3], Task::Generate(task(4, 0.0, true))),
    );
    let session = begun.expect("served").session.expect("asked for");
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s");
    session.write(&path).expect("written");
    let bytes = std::fs::read(&path).expect("read");
    (engine, model, bytes, path, dir)
}

#[test]
fn llama_cpp_27068_a_session_with_a_flipped_byte_is_refused() {
    let (engine, _, bytes, path, _dir) = small();
    let fresh = || {
        let request = Request::new(vec![1, 2, 3], Task::Generate(task(4, 0.0, false)));
        ask(&engine, request).expect("served").ids
    };
    let want = fresh();
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1 << (at % 8);
        std::fs::write(&path, bytes).expect("written");
        let e = Session::read(&path).expect_err("a byte is another one");
        assert!(matches!(e, SessionError::Broken { .. }), "{at}: {e}");
    }
    for len in (0..bytes.len()).step_by(97).chain([bytes.len() - 1]) {
        std::fs::write(&path, &bytes[..len]).expect("written");
        assert!(
            matches!(Session::read(&path), Err(SessionError::Broken { .. })),
            "{len}"
        );
    }
    let mut longer = bytes.clone();
    longer.push(0);
    std::fs::write(&path, longer).expect("written");
    assert!(Session::read(&path).is_err());
    assert_eq!(fresh(), want, "the engine is as it was");
}

#[test]
fn a_session_of_another_model_or_cache_is_refused_by_name() {
    let (engine, model, bytes, path, _dir) = small();
    std::fs::write(&path, bytes).expect("written");
    let session = Arc::new(Session::read(&path).expect("whole"));
    let refused = |engine: &Engine| {
        let request = Request {
            session: Some(session.clone()),
            ..Request::new(vec![4], Task::Generate(task(4, 0.0, false)))
        };
        match engine.submit(request) {
            Err(Error::Session(e)) => e.to_string(),
            Err(e) => panic!("{e}"),
            Ok(_) => panic!("it was taken"),
        }
    };
    let other = tiny::engine(&tiny::model("qwen2"), &options(KvType::F16));
    assert!(refused(&other).contains("model"), "{}", refused(&other));
    let other = tiny::engine(&model, &options(KvType::F32));
    let text = refused(&other);
    assert!(
        text.contains("f16") && text.contains("f32") && text.contains("--cache-type-k"),
        "{text}"
    );
    let request = Request {
        session: Some(session.clone()),
        ..Request::new(vec![4], Task::Logits { all: true })
    };
    assert!(
        engine.submit(request).is_err(),
        "logits of what was saved are gone"
    );
}

#[test]
fn guesses_of_a_draft_model_change_nothing() {
    // The model itself, and a random one of the same vocabulary: nearly always and nearly never right.
    let model = tiny::model("llama");
    for (draft, often) in [(tiny::model("llama"), true), (tiny::random("llama"), false)] {
        let with = EngineOptions {
            draft: Some(draft),
            n_seqs: 2,
            ..options(KvType::F16)
        };
        let engine = tiny::engine(&model, &with);
        for temperature in [0.0, 0.7, 1.2] {
            let prompt = vec![3, 1, 4, 1, 5];
            let plain = Request {
                no_cache: true,
                ..Request::new(
                    prompt.clone(),
                    Task::Generate(task(150, temperature, false)),
                )
            };
            let mut guessed = plain.clone();
            guessed.task = Task::Generate(Generate {
                speculation: Speculation::Draft,
                ..task(150, temperature, false)
            });
            let (plain, guessed) = (ask(&engine, plain), ask(&engine, guessed));
            let (plain, guessed) = (plain.expect("served"), guessed.expect("served"));
            assert_eq!((plain.ids, plain.bits), (guessed.ids, guessed.bits));
        }
        let stats = engine.stats();
        let (drafted, accepted) = (stats.drafted_tokens, stats.accepted_tokens);
        assert!(drafted > 20, "{stats:?}");
        match often {
            true => assert!(accepted > drafted / 2, "{stats:?}"),
            false => assert!(accepted < drafted / 5, "{stats:?}"),
        }
    }
}

#[test]
fn a_draft_model_of_another_vocabulary_is_refused() {
    let with = EngineOptions {
        draft: Some(tiny::with_metadata(
            "llama",
            "tokenizer.ggml.eos_token_id",
            Value::U32(7),
        )),
        ..options(KvType::F16)
    };
    let refused = Engine::new(tiny::model("llama"), with, &mut |_, _| {});
    let text = refused.err().map(|e| e.to_string()).expect("refused");
    assert!(text.contains("no draft for this model"), "{text}");
}
