//! Streams an answer: `cargo run --release -p minfer --example stream -- MODEL.gguf "A prompt"`.

use std::io::Write;

use minfer::chat::{Message, RenderRequest};
use minfer::engine::{Engine, EngineOptions, Event, Generate, Model, Request, Task};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (path, text) = (
        args.next().ok_or("which model?")?,
        args.next().ok_or("which prompt?")?,
    );
    let model = Model::open(path.as_ref())?;
    let (prompt, _) = model.chat_prompt(&RenderRequest::new(vec![Message::new("user", &text)]))?;
    let engine = Engine::new(model, EngineOptions::default(), &mut |_, _| {})?;
    for event in engine.submit(Request::new(prompt, Task::Generate(Generate::default())))? {
        match event {
            Event::Token { text, .. } => print!("{text}"),
            Event::Done(done) => println!("{}", done.text),
            Event::Error(e) => return Err(e.into()),
            _ => {}
        }
        std::io::stdout().flush()?;
    }
    Ok(())
}
