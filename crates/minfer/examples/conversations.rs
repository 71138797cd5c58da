//! Many conversations on one engine, measured; a line of JSON for each figure.
//! `cargo run --release -p minfer --example conversations -- MODEL.gguf [DRAFT.gguf]`
//!
//! - `together`: tokens a second of 1, 2, 4, 8, 16 requests at once, from the first one's first token to the last one's last;
//! - `prefix`: time to first token of a prompt of 1,000 tokens and a few, and of a second one that begins alike;
//! - `gap`: the longest time between two tokens of three conversations, alone and while a prompt of 4,000 tokens goes through;
//! - `lookup`, `draft`: tokens a second of one answer without and with guesses, and how many of them were right.

use std::time::{Duration, Instant};

use minfer::chat::{Message, RenderRequest};
use minfer::engine::{
    Done, Engine, EngineOptions, Event, EventStream, Generate, Model, Request, Speculation, Task,
};
use minfer::sampling::SamplerParams;

/// Text to edit: the answer repeats most of it.
const CODE: &str = include_str!("conversations.py.txt");

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Fallible<()> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("which model?")?;
    let draft = args.next().map(|p| Model::open(p.as_ref())).transpose()?;
    let model = Model::open(path.as_ref())?;
    let options = EngineOptions {
        n_ctx: 4608,
        n_seqs: 16,
        kv_memory: Some(2_000_000_000),
        draft: draft.clone(),
        ..EngineOptions::default()
    };
    let engine = Engine::new(model.clone(), options, &mut |_, _| {})?;
    together(&engine)?;
    prefix(&engine)?;
    gap(&engine)?;
    edit(&engine, "lookup", Speculation::Lookup)?;
    if draft.is_some() {
        edit(&engine, "draft", Speculation::Draft)?;
    }
    Ok(())
}

/// Made-up tokens: any do, speed does not depend on them.
fn made_up(engine: &Engine, seed: usize, n: usize) -> Vec<u32> {
    let n_vocab = engine.model().hparams().n_vocab;
    (0..n)
        .map(|i| ((i * 7919 + seed * 104_729 + 1) % n_vocab) as u32)
        .collect()
}

fn greedy(n_predict: usize, speculation: Speculation) -> Task {
    Task::Generate(Generate {
        sampling: SamplerParams {
            temperature: 0.0,
            repeat_penalty: 1.0,
            ..SamplerParams::default()
        },
        n_predict: Some(n_predict),
        ignore_eos: true,
        speculation,
        ..Generate::default()
    })
}

/// Waits for the end; when each token came, and what was said at the end.
fn listen(stream: EventStream) -> Fallible<(Vec<Instant>, Done)> {
    let mut times = Vec::new();
    for event in stream {
        match event {
            Event::Token { .. } => times.push(Instant::now()),
            Event::Done(done) => return Ok((times, done)),
            Event::Error(e) => return Err(e.into()),
            _ => {}
        }
    }
    Err("the engine stopped".into())
}

/// The same on a thread of its own for each, so that times are those of arrival.
fn listen_all(streams: Vec<EventStream>) -> Fallible<Vec<Vec<Instant>>> {
    let threads: Vec<_> = streams
        .into_iter()
        .map(|s| std::thread::spawn(move || listen(s).map(|l| l.0).map_err(|e| e.to_string())))
        .collect();
    let ends = threads
        .into_iter()
        .map(|t| t.join().map_err(|_| "a listener has panicked".into()));
    ends.map(|end: Result<_, String>| Ok(end??)).collect()
}

fn together(engine: &Engine) -> Fallible<()> {
    const TOKENS: usize = 96;
    let mut one = 0.0;
    for n in [1, 2, 4, 8, 16] {
        let mut rates = Vec::new();
        for round in 0..3 {
            let streams = (0..n).map(|i| {
                let prompt = made_up(engine, 100 * round + 10 * n + i, 24);
                engine.submit(Request::new(prompt, greedy(TOKENS, Speculation::None)))
            });
            let times = listen_all(streams.collect::<Result<_, _>>()?)?;
            let first = times.iter().map(|t| t[0]).max().ok_or("no token")?;
            let last = times
                .iter()
                .map(|t| t[t.len() - 1])
                .max()
                .ok_or("no token")?;
            let tokens: usize = times
                .iter()
                .map(|t| t.iter().filter(|t| **t > first).count())
                .sum();
            rates.push(tokens as f64 / (last - first).as_secs_f64());
        }
        let rate = median(&mut rates);
        if n == 1 {
            one = rate;
        }
        println!(
            r#"{{"figure":"together","n":{n},"tokens_per_s":{rate:.1},"of_one":{:.2}}}"#,
            rate / one
        );
    }
    Ok(())
}

fn prefix(engine: &Engine) -> Fallible<()> {
    let shared = made_up(engine, 7, 1000);
    let mut times = Vec::new();
    for tail in 0..2 {
        let mut prompt = shared.clone();
        prompt.extend(made_up(engine, 50 + tail, 8));
        let start = Instant::now();
        let (tokens, done) =
            listen(engine.submit(Request::new(prompt, greedy(2, Speculation::None)))?)?;
        times.push((tokens[0] - start, done.timings.cached_n));
    }
    let [(first, _), (second, cached)] = times[..] else {
        return Err("two requests were made".into());
    };
    println!(
        r#"{{"figure":"prefix","first_ms":{:.2},"second_ms":{:.2},"ratio":{:.1},"cached":{cached}}}"#,
        ms(first),
        ms(second),
        first.as_secs_f64() / second.as_secs_f64()
    );
    Ok(())
}

fn gap(engine: &Engine) -> Fallible<()> {
    let mut gaps = Vec::new();
    for prompt in [0, 4000] {
        let streams = (0..3).map(|i| {
            let prompt = made_up(engine, 300 + prompt + i, 24);
            engine.submit(Request::new(prompt, greedy(400, Speculation::None)))
        });
        let streams: Vec<EventStream> = streams.collect::<Result<_, _>>()?;
        let listeners = std::thread::spawn(|| listen_all(streams).map_err(|e| e.to_string()));
        let mut long = None;
        if prompt > 0 {
            std::thread::sleep(Duration::from_millis(300));
            let start = Instant::now();
            let request = Request::new(made_up(engine, 900, prompt), greedy(1, Speculation::None));
            let (times, _) = listen(engine.submit(request)?)?;
            long = Some((start, times[0]));
        }
        let times = listeners.join().map_err(|_| "a listener has panicked")??;
        // Of the time in which the prompt was going through; else of all.
        let within = |t: &&[Instant]| long.is_none_or(|(from, to)| t[1] > from && t[0] < to);
        let steps = times
            .iter()
            .flat_map(|t| t.windows(2).filter(within).map(|w| w[1] - w[0]));
        let mut steps: Vec<Duration> = steps.collect();
        steps.sort();
        let longest = *steps.last().ok_or("no gap")?;
        let ttft = long.map(|(from, to)| to - from);
        gaps.push((steps[steps.len() / 2], longest, ttft));
    }
    let [(median, alone, _), (median_under, under, ttft)] = gaps[..] else {
        return Err("two rounds were made".into());
    };
    println!(
        r#"{{"figure":"gap","alone_ms":{:.1},"under_load_ms":{:.1},"ratio":{:.2},"median_alone_ms":{:.1},"median_under_load_ms":{:.1},"long_prompt_s":{:.2}}}"#,
        ms(alone),
        ms(under),
        under.as_secs_f64() / alone.as_secs_f64(),
        ms(median),
        ms(median_under),
        ttft.unwrap_or_default().as_secs_f64()
    );
    Ok(())
}

/// One change to a text, without and with guesses, in turn.
fn edit(engine: &Engine, name: &str, speculation: Speculation) -> Fallible<()> {
    let question = format!(
        "Repeat this code with one change: rename the function `mean` to `average`. Answer with the code only.\n\n```python\n{CODE}```"
    );
    let messages = RenderRequest::new(vec![Message::new("user", &question)]);
    let prompt = match engine.model().chat_prompt(&messages) {
        Ok((prompt, _)) => prompt,
        Err(e) => return Err(e.into()),
    };
    let (mut plain, mut guessed) = (Vec::new(), Vec::new());
    let mut last = None;
    for _ in 0..3 {
        for (kind, rates) in [(Speculation::None, &mut plain), (speculation, &mut guessed)] {
            let request = Request::new(prompt.clone(), greedy(300, kind));
            let done = listen(engine.submit(request)?)?.1;
            rates.push(done.timings.predicted_n as f64 / done.timings.predicted.as_secs_f64());
            last = Some(done.timings);
        }
    }
    let (plain, guessed) = (median(&mut plain), median(&mut guessed));
    let t = last.ok_or("no round")?;
    println!(
        r#"{{"figure":"{name}","plain":{plain:.1},"guessed":{guessed:.1},"ratio":{:.2},"drafted":{},"accepted":{}}}"#,
        guessed / plain,
        t.drafted_n,
        t.accepted_n
    );
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}
