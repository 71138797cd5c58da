//! `minfer run`: a prompt's answer, as it comes.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use minfer::chat::{Message, RenderRequest};
use minfer::engine::{
    Done, EngineOptions, Event, EventStream, Generate, Model, Request, Session, Speculation, Task,
};
use minfer::sampling::{ConstraintSpec, SamplerParams, SamplingError};
use minfer::tokenizer::EncodeOptions;
use minfer::words::{count, size};
use serde_json::json;

use crate::args::RunArgs;
use crate::flags::in_flags;
use crate::output::{Failure, Outcome, note, print, print_line};
use crate::{files, models, sampling};

/// Answers the prompt.
pub fn run(a: RunArgs) -> Outcome {
    // The model first: of a mistyped command, that it is no model is the better news. Then all that can be wrong without one.
    models::known(&a.model.model)?;
    a.long.draft.as_deref().map_or(Ok(()), models::known)?;
    sampling::check(&a.sampling)?;
    let constraint = a.constraint.spec()?;
    let session = read_session(&a)?;
    let text = prompt_text(&a, session.is_some())?;
    let path = models::resolve(&a.model.model)?;
    let started = Instant::now(); // a download is no part of loading
    let model = Model::open(&path)?;
    if let Some(session) = &session {
        session
            .belongs_to(&model)
            .map_err(|e| of_session(&a, e.into()))?;
    }
    let params = sampling::params(&a.sampling, &model)?;
    let seed = params.seed;
    let (prompt, notice) = match &session {
        None => prompt_ids(&a, &model, text)?,
        Some(session) => (turn_ids(&a, &model, session, &text)?, None),
    };
    let held = session.as_ref().map_or(0, |s| s.positions());
    let options = options(&a, &model, held, prompt.len())?;
    let n_prompt = held + prompt.len();
    let mut request = Request::new(
        prompt.clone(),
        Task::Generate(task(&a, params, constraint, n_prompt)),
    );
    request.session = session;
    let refused = |e| of_session(&a, e);
    request.check(&model, &options).map_err(refused)?;
    let guesses_end = guesses_end(&a, &options);
    let engine = models::start(model, options)?;
    let load = started.elapsed();
    let events = engine.submit(request).map_err(refused)?;
    let as_it_is = as_it_is(&a);
    // Also of an answer that is interrupted, after which no timings are told.
    let seed_drawn = drawn_seed(&a).map(|seed| format!("the seed is {seed}"));
    // Only now: a run that is refused says why, and nothing else.
    let notices = [notice, guesses_end, as_it_is, seed_drawn];
    for notice in notices.into_iter().flatten() {
        note(format_args!("note: {notice}"));
    }
    let answer = match listen(events, !a.json) {
        Err(Failure::ClosedPipe) if a.long.session.is_some() => {
            note(
                "note: nobody reads the answer any more: it ends here, and its session is not kept",
            );
            return Err(Failure::ClosedPipe);
        }
        answer => answer?,
    };
    // The answer is shown whatever becomes of its session.
    let kept = keep(&a, &answer);
    if let Some(profile) = engine.profile() {
        note(profile.table());
    }
    let shown = show(&a, &prompt, seed, &answer, load);
    kept.and(shown)
}

/// How the engine is set up, for a prompt of `n_prompt` tokens after `held` of a session.
fn options(
    a: &RunArgs,
    model: &Model,
    held: usize,
    n_prompt: usize,
) -> Result<EngineOptions, Failure> {
    let mut long = held + n_prompt;
    if held > 0 && a.long.context_shift {
        // What does not fit any more is shifted out.
        long = long.min(a.engine.n_ctx.unwrap_or(model.hparams().n_ctx_train));
    }
    let n_predict = usize::try_from(a.n_predict).ok(); // -1: no limit
    let n_ctx = models::n_ctx(&a.engine, model, long, n_predict)?;
    Ok(EngineOptions {
        draft: a.long.draft.as_deref().map(models::open).transpose()?,
        profile: a.long.profile,
        ..models::options(&a.engine, n_ctx)
    })
}

/// Where the draft model stops guessing before the answer must end: the answer is the same, but no longer faster.
fn guesses_end(a: &RunArgs, options: &EngineOptions) -> Option<String> {
    let own = options.draft.as_ref()?.hparams().n_ctx_train;
    if own < options.n_ctx {
        return Some(format!(
            "--draft: its context is {}, the answer's is {}: past its own it guesses nothing",
            count(own, "token"),
            options.n_ctx
        ));
    }
    let shifts = "--draft guesses nothing any more once --context-shift has forgotten something";
    a.long.context_shift.then(|| shifts.to_owned())
}

/// llama.cpp makes line breaks of what stands for them in its `-p`.
fn as_it_is(a: &RunArgs) -> Option<String> {
    let text = a.prompt_flag.as_ref()?;
    let found = ["\\n", "\\t", "\\r", "\\\""]
        .iter()
        .find(|e| text.contains(**e))?;
    Some(format!(
        "-p is taken as it is: {found} stays two characters"
    ))
}

/// Leaves the conversation in the session's file.
fn keep(a: &RunArgs, answer: &Answer) -> Outcome {
    let Some(file) = &a.long.session else {
        return Ok(());
    };
    let Some(session) = &answer.session else {
        let message = "the answer is whole, but the engine gave no session of it";
        return Err(Failure::Error(message.into()));
    };
    session.write(file).map_err(|e| {
        let tokens = count(session.tokens().len(), "token");
        let there = match file.exists() {
            true => "; what was in it before is still there",
            false => "",
        };
        Failure::Error(format!(
            "the answer is whole, but its session ({tokens}, {}) could not be kept: {e}{there}",
            size(session.bytes())
        ))
    })
}

/// The answer as JSON, or what follows its text.
fn show(a: &RunArgs, prompt: &[u32], seed: u64, answer: &Answer, load: Duration) -> Outcome {
    if a.json {
        return print_line(as_json(prompt, seed, answer, load));
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
    note_timings(a, &answer.done, load);
    Ok(())
}

/// The seed, where nobody but this run knows it.
fn drawn_seed(a: &RunArgs) -> Option<u64> {
    let seed = a.sampling.seed.filter(|s| s.is_drawn);
    seed.map(|s| s.value)
}

/// An error of the engine; one of a session names the file.
fn of_session(a: &RunArgs, e: minfer::Error) -> Failure {
    use minfer::Error as E;
    match (&a.long.session, &e) {
        (Some(file), E::Session(_) | E::Sampling(SamplingError::State { .. })) => {
            let (file, said) = (file.display(), in_flags(&e));
            Failure::Error(format!("--session {file}: {said}"))
        }
        _ => e.into(),
    }
}

/// What the flags ask for; the prompt has `n_prompt` tokens.
fn task(
    a: &RunArgs,
    sampling: SamplerParams,
    constraint: Option<ConstraintSpec>,
    n_prompt: usize,
) -> Generate {
    Generate {
        sampling,
        n_predict: usize::try_from(a.n_predict).ok(), // -1: no limit
        stop: a.stop.clone(),
        ignore_eos: a.ignore_eos,
        constraint,
        context_shift: a.long.context_shift,
        n_keep: usize::try_from(a.long.keep).unwrap_or(n_prompt), // -1: the whole prompt
        speculation: match (&a.long.draft, a.long.lookup) {
            (Some(_), _) => Speculation::Draft,
            (None, true) => Speculation::Lookup,
            (None, false) => Speculation::None,
        },
        save: a.long.session.is_some(),
        ..Generate::default()
    }
}

/// The session that the file holds, if it is there. Where none could be left at the end, that is said now.
fn read_session(a: &RunArgs) -> Result<Option<Arc<Session>>, Failure> {
    let Some(file) = &a.long.session else {
        return Ok(None);
    };
    Session::try_place(file)?;
    if !file.exists() {
        return Ok(None);
    }
    let session = Session::read(file)?;
    match a.system {
        None => Ok(Some(Arc::new(session))),
        Some(_) => Err(Failure::Usage(
            "--system: the conversation of the session has begun already".into(),
        )),
    }
}

/// What follows a session's tokens: nothing, the text, or the text as the next turn.
fn turn_ids(
    a: &RunArgs,
    model: &Model,
    session: &Session,
    text: &str,
) -> Result<Vec<u32>, Failure> {
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
    if let Some(p) = a.prompt.as_ref().or(a.prompt_flag.as_ref()) {
        return Ok(p.clone());
    }
    let stdin = std::io::stdin();
    if session && stdin.is_terminal() {
        return Ok(String::new());
    }
    if stdin.is_terminal() {
        return Err(Failure::Usage(
            "no prompt: give one after the model, or pipe it in".into(),
        ));
    }
    let mut text = files::read_stdin()?;
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

fn as_json(prompt: &[u32], seed: u64, answer: &Answer, load: Duration) -> serde_json::Value {
    let t = &answer.done.timings;
    json!({
        "prompt_ids": prompt,
        "ids": answer.ids,
        "text": answer.text,
        "held": answer.done.held,
        "finish_reason": answer.done.reason.name(),
        "seed": seed,
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

fn note_timings(a: &RunArgs, done: &Done, load: Duration) {
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
    let seed = drawn_seed(a).map_or(String::new(), |seed| format!(" | seed {seed}"));
    note(format_args!(
        "\nload {:.0} ms | prefill {}, {:.1}/s | generated {}, {:.1}/s{guessed} | total {:.1}/s | {}{seed}",
        ms(load),
        count(t.prompt_n - t.cached_n, "token"),
        rate(t.prompt_n - t.cached_n, t.prompt),
        count(t.predicted_n, "token"),
        rate(t.predicted_n, t.predicted),
        rate(t.prompt_n + t.predicted_n, total),
        done.reason.name(),
    ));
}
