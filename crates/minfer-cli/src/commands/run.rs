//! `minfer run`: a prompt's answer, as it comes.

use std::io::{IsTerminal, Read};
use std::time::{Duration, Instant};

use minfer::chat::{Message, RenderRequest};
use minfer::engine::{Done, Event, EventStream, Generate, Model, Request, Task};
use minfer::tokenizer::EncodeOptions;
use serde_json::json;

use crate::args::RunArgs;
use crate::output::{Failure, Outcome, note, print, print_line};
use crate::{models, sampling};

/// Answers the prompt.
pub fn run(a: RunArgs) -> Outcome {
    // The model first: of a mistyped command, that it is no model is the better news.
    let path = models::resolve(&a.model.model)?;
    let text = prompt_text(&a)?;
    let started = Instant::now(); // a download is no part of loading
    let model = Model::open(&path)?;
    let params = sampling::params(&a.sampling, &model)?;
    let n_predict = usize::try_from(a.n_predict).ok(); // -1: no limit
    let (prompt, notice) = prompt_ids(&a, &model, text)?;
    let n_ctx = models::n_ctx(&a.engine, &model, prompt.len(), n_predict)?;
    let engine = models::engine(model, &a.engine, n_ctx)?;
    let load = started.elapsed();
    // Only now: a run that is refused says why, and nothing else.
    if let Some(notice) = notice {
        note(format_args!("note: {notice}"));
    }
    let task = Generate {
        sampling: params,
        n_predict,
        stop: a.stop,
        ignore_eos: a.ignore_eos,
        choice: 0,
    };
    let events = engine.submit(Request {
        prompt: prompt.clone(),
        task: Task::Generate(task),
    })?;
    let answer = listen(events, !a.json)?;
    if a.json {
        return print_line(as_json(&prompt, &answer, load));
    }
    if !answer.text.ends_with('\n') {
        print("\n")?;
    }
    note_timings(&answer.done, load);
    Ok(())
}

/// What was said.
struct Answer {
    ids: Vec<u32>,
    text: String,
    done: Done,
}

/// Follows the events to the end; prints the text as it comes if `show`.
fn listen(events: EventStream, show: bool) -> Result<Answer, Failure> {
    let (mut ids, mut text) = (Vec::new(), String::new());
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
            Event::Token { id, text } => {
                ids.push(id);
                say(&text)?;
            }
            Event::Done(done) => {
                say(&done.text)?;
                return Ok(Answer { ids, text, done });
            }
            Event::Error(e) => return Err(e.into()),
            Event::Prompt { .. } | Event::Logits { .. } | Event::Measured(_) => {}
        }
    }
    Err(Failure::Error(
        "the engine stopped before the answer's end".into(),
    ))
}

fn prompt_text(a: &RunArgs) -> Result<String, Failure> {
    if let Some(p) = &a.prompt {
        return Ok(p.clone());
    }
    let mut stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Err(Failure::Usage(
            "no prompt: give one after the model, or pipe it in".into(),
        ));
    }
    let mut text = String::new();
    stdin
        .read_to_string(&mut text)
        .map_err(|e| Failure::Error(format!("stdin: {e}")))?;
    if text.is_empty() {
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
        "finish_reason": answer.done.reason.name(),
        "timings": {
            "load_ms": ms(load),
            "prompt_n": t.prompt_n,
            "prompt_ms": ms(t.prompt),
            "predicted_n": t.predicted_n,
            "predicted_ms": ms(t.predicted),
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
    note(format_args!(
        "\nload {:.0} ms | prefill {} tokens, {:.1}/s | generated {} tokens, {:.1}/s | total {:.1}/s | {}",
        ms(load),
        t.prompt_n,
        rate(t.prompt_n, t.prompt),
        t.predicted_n,
        rate(t.predicted_n, t.predicted),
        rate(t.prompt_n + t.predicted_n, total),
        done.reason.name(),
    ));
}
