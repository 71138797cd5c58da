//! `minfer run`: a prompt's answer, as it comes.

use std::io::{IsTerminal, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use minfer::chat::{Message, RenderRequest};
use minfer::engine::{
    Done, EngineOptions, Event, EventStream, Generate, Model, Request, Session, Speculation, Task,
};
use minfer::sampling::SamplerParams;
use minfer::tokenizer::EncodeOptions;
use serde_json::json;

use crate::args::RunArgs;
use crate::output::{Failure, Outcome, note, print, print_line};
use crate::{models, sampling};

/// Answers the prompt.
pub fn run(a: RunArgs) -> Outcome {
    // The model first: of a mistyped command, that it is no model is the better news.
    let path = models::resolve(&a.model.model)?;
    let session = read_session(&a)?;
    let text = prompt_text(&a, session.is_some())?;
    let started = Instant::now(); // a download is no part of loading
    let model = Model::open(&path)?;
    if let Some(session) = &session {
        session.belongs_to(&model)?;
    }
    let params = sampling::params(&a.sampling, &model)?;
    let n_predict = usize::try_from(a.n_predict).ok(); // -1: no limit
    let (prompt, notice) = match &session {
        None => prompt_ids(&a, &model, text)?,
        Some(session) => (turn_ids(&a, &model, session, &text)?, None),
    };
    let held = session.as_ref().map_or(0, |s| s.positions());
    let mut long = held + prompt.len();
    if session.is_some() && a.long.context_shift {
        // What does not fit any more is shifted out.
        long = long.min(a.engine.n_ctx.unwrap_or(model.hparams().n_ctx_train));
    }
    let n_ctx = models::n_ctx(&a.engine, &model, long, n_predict)?;
    let options = EngineOptions {
        draft: a.long.draft.as_deref().map(models::open).transpose()?,
        profile: a.long.profile,
        ..models::options(&a.engine, n_ctx)
    };
    let engine = models::start(model, options)?;
    let load = started.elapsed();
    // Only now: a run that is refused says why, and nothing else.
    if let Some(notice) = notice {
        note(format_args!("note: {notice}"));
    }
    let mut request = Request::new(
        prompt.clone(),
        Task::Generate(task(&a, params, held + prompt.len())?),
    );
    request.session = session;
    let answer = listen(engine.submit(request)?, !a.json)?;
    if let (Some(file), Some(session)) = (&a.long.session, &answer.session) {
        session.write(file)?;
    }
    if let Some(profile) = engine.profile() {
        note(profile.table());
    }
    if a.json {
        return print_line(as_json(&prompt, &answer, load));
    }
    if !answer.text.ends_with('\n') {
        print("\n")?;
    }
    if !answer.done.held.is_empty() {
        note(format_args!(
            "note: {:?} is held back: it may be the beginning of a stop text or a character; the session goes on with it",
            answer.done.held
        ));
    }
    note_timings(&answer.done, load);
    Ok(())
}

/// What the flags ask for; the prompt has `n_prompt` tokens.
fn task(a: &RunArgs, sampling: SamplerParams, n_prompt: usize) -> Result<Generate, Failure> {
    Ok(Generate {
        sampling,
        n_predict: usize::try_from(a.n_predict).ok(), // -1: no limit
        stop: a.stop.clone(),
        ignore_eos: a.ignore_eos,
        constraint: a.constraint.spec()?,
        context_shift: a.long.context_shift,
        n_keep: usize::try_from(a.long.keep).unwrap_or(n_prompt), // -1: the whole prompt
        speculation: match (&a.long.draft, a.long.lookup) {
            (Some(_), _) => Speculation::Draft,
            (None, true) => Speculation::Lookup,
            (None, false) => Speculation::None,
        },
        save: a.long.session.is_some(),
        ..Generate::default()
    })
}

/// The session that the file holds, if it is there.
fn read_session(a: &RunArgs) -> Result<Option<Arc<Session>>, Failure> {
    match &a.long.session {
        Some(file) if file.exists() => Ok(Some(Arc::new(Session::read(file)?))),
        _ => Ok(None),
    }
}

/// What follows a session's tokens: nothing, the text, or the text as the next turn.
fn turn_ids(
    a: &RunArgs,
    model: &Model,
    session: &Session,
    text: &str,
) -> Result<Vec<u32>, Failure> {
    if a.system.is_some() {
        return Err(Failure::Usage(
            "--system: the conversation of the session has begun already".into(),
        ));
    }
    if text.is_empty() {
        return Ok(Vec::new());
    }
    if a.no_template {
        let options = EncodeOptions {
            add_special: false,
            parse_special: true,
        };
        return Ok(model.tokenizer().encode(text, options));
    }
    let last = session.tokens().last().copied();
    Ok(model.chat_turn(Message::new("user", text), last)?)
}

/// What was said.
struct Answer {
    ids: Vec<u32>,
    text: String,
    done: Done,
    session: Option<Arc<Session>>,
}

/// Follows the events to the end; prints the text as it comes if `show`.
fn listen(events: EventStream, show: bool) -> Result<Answer, Failure> {
    let (mut ids, mut text, mut session) = (Vec::new(), String::new(), None);
    let mut say = |t: &str| -> Outcome {
        text.push_str(t);
        if show && !t.is_empty() {
            print(t)
        } else {
            Ok(())
        }
    };
    for event in events {
        match event {
            Event::Token { id, text, .. } => {
                ids.push(id);
                say(&text)?;
            }
            Event::Done(done) => {
                say(&done.text)?;
                return Ok(Answer {
                    ids,
                    text,
                    done,
                    session,
                });
            }
            Event::Error(e) => return Err(e.into()),
            Event::Session(s) => session = Some(s),
            _ => {}
        }
    }
    Err(Failure::Error(
        "the engine stopped before the answer's end".into(),
    ))
}

/// What the user wrote; with a session it may be nothing.
fn prompt_text(a: &RunArgs, session: bool) -> Result<String, Failure> {
    if let Some(p) = &a.prompt {
        return Ok(p.clone());
    }
    let mut stdin = std::io::stdin();
    if session && stdin.is_terminal() {
        return Ok(String::new());
    }
    if stdin.is_terminal() {
        return Err(Failure::Usage(
            "no prompt: give one after the model, or pipe it in".into(),
        ));
    }
    let mut text = String::new();
    stdin
        .read_to_string(&mut text)
        .map_err(|e| Failure::Error(format!("stdin: {e}")))?;
    if text.is_empty() && !session {
        return Err(Failure::Usage(
            "no prompt: stdin is empty; give one after the model, or pipe it in".into(),
        ));
    }
    // The newline that ends a piped line is the shell's, not the prompt's.
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(text)
}

/// The prompt as token ids: through the chat template, with what the user should know of it, or
/// as it is.
fn prompt_ids(
    a: &RunArgs,
    model: &Model,
    text: String,
) -> Result<(Vec<u32>, Option<String>), Failure> {
    if a.no_template {
        let options = EncodeOptions {
            add_special: true,
            parse_special: true,
        };
        return Ok((model.tokenizer().encode(&text, options), None));
    }
    let system = a.system.iter().map(|s| Message::new("system", s));
    let messages = system.chain([Message::new("user", &text)]).collect();
    Ok(model.chat_prompt(&RenderRequest::new(messages))?)
}

fn ms(d: Duration) -> f64 {
    (d.as_secs_f64() * 1e6).round() / 1e3
}

fn as_json(prompt: &[u32], answer: &Answer, load: Duration) -> serde_json::Value {
    let t = &answer.done.timings;
    json!({
        "prompt_ids": prompt,
        "ids": answer.ids,
        "text": answer.text,
        "held": answer.done.held,
        "finish_reason": answer.done.reason.name(),
        "timings": {
            "load_ms": ms(load),
            "prompt_n": t.prompt_n,
            "prompt_ms": ms(t.prompt),
            "predicted_n": t.predicted_n,
            "predicted_ms": ms(t.predicted),
            "cached_n": t.cached_n,
            "drafted_n": t.drafted_n,
            "accepted_n": t.accepted_n,
        },
    })
}

fn note_timings(done: &Done, load: Duration) {
    let t = &done.timings;
    let rate = |n: usize, d: Duration| {
        if d.is_zero() {
            0.0
        } else {
            n as f64 / d.as_secs_f64()
        }
    };
    let total = t.prompt + t.predicted;
    let guessed = match t.drafted_n {
        0 => String::new(),
        n => format!(" ({n} guessed, {} right)", t.accepted_n),
    };
    note(format_args!(
        "\nload {:.0} ms | prefill {} tokens, {:.1}/s | generated {} tokens, {:.1}/s{guessed} | total {:.1}/s | {}",
        ms(load),
        t.prompt_n - t.cached_n,
        rate(t.prompt_n - t.cached_n, t.prompt),
        t.predicted_n,
        rate(t.predicted_n, t.predicted),
        rate(t.prompt_n + t.predicted_n, total),
        done.reason.name(),
    ));
}
