//! `minfer logits`: what the model says of given tokens.

use std::path::Path;

use minfer::engine::{Event, EventStream, Request, Task};
use serde_json::json;

use crate::args::LogitsArgs;
use crate::files::{self, OutFile};
use crate::models;
use crate::output::{Failure, Outcome, print, print_line};

/// Runs the tokens and writes the logits as JSON or as a NumPy file.
pub fn logits(a: &LogitsArgs) -> Outcome {
    models::known(&a.model.model)?;
    let ids = parse_ids(a)?;
    a.npy.as_deref().map_or(Ok(()), OutFile::try_place)?;
    let model = models::open(&a.model.model)?;
    let n_ctx = models::n_ctx(&a.engine, &model, ids.len(), Some(0))?;
    let engine = models::engine(model, &a.engine, n_ctx)?;
    let n_vocab = engine.model().hparams().n_vocab;
    let rows = if a.all { ids.len() } else { 1 };
    let task = Task::Logits { all: a.all };
    let events = engine.submit(Request::new(ids.clone(), task))?;
    match &a.npy {
        Some(path) => {
            let mut file = npy(path, rows, n_vocab)?;
            each_row(events, |row| {
                let bytes: Vec<u8> = row.iter().flat_map(|x| x.to_le_bytes()).collect();
                file.write(&bytes)
            })?;
            file.finish()
        }
        None => {
            // Nothing before the first row: a failure leaves stdout empty.
            let mut before = format!("{{\"ids\":{},\"logits\":[", json!(ids));
            each_row(events, |row| {
                print(format_args!(
                    "{}{}",
                    std::mem::replace(&mut before, ",".into()),
                    serde_json::to_string(row)?
                ))
            })?;
            print_line("]}")
        }
    }
}

/// Calls `f` with each row of logits as it comes.
fn each_row(events: EventStream, mut f: impl FnMut(&[f32]) -> Outcome) -> Outcome {
    for event in events {
        match event {
            Event::Logits { values, .. } => f(&values)?,
            Event::Error(e) => return Err(e.into()),
            Event::Done(_) => return Ok(()),
            _ => {}
        }
    }
    Err(Failure::Error(
        "the engine stopped before the last row".into(),
    ))
}

fn parse_ids(a: &LogitsArgs) -> Result<Vec<u32>, Failure> {
    let text = match (&a.ids, &a.ids_file) {
        (Some(ids), _) => ids.clone(),
        (None, Some(file)) => files::read_text(file)?,
        (None, None) => String::new(), // the parser wants one of them
    };
    let bad = |s: &str| {
        Failure::Usage(format!(
            "'{s}' is no token id: ids are numbers, separated by commas or white space"
        ))
    };
    let mut ids = Vec::new();
    for part in text.split(',') {
        // Nothing between two commas is a missing id; a text of nothing at all is an empty prompt.
        if part.trim().is_empty() && text.contains(',') {
            return Err(bad(""));
        }
        for id in part.split_whitespace() {
            ids.push(id.parse().map_err(|_| bad(id))?);
        }
    }
    Ok(ids)
}

/// Begins a version 1 NumPy file of `[rows, cols]` little-endian f32.
fn npy(path: &Path, rows: usize, cols: usize) -> Result<OutFile, Failure> {
    let mut file = OutFile::create(path)?;
    let dict = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {cols}), }}");
    // Magic, version, length: 10 bytes; the whole header is a multiple of 64 and ends in a newline.
    let padded = (10 + dict.len() + 1).next_multiple_of(64) - 10;
    file.write(b"\x93NUMPY\x01\x00")?;
    file.write(&(padded as u16).to_le_bytes())?;
    let text = format!("{dict:<width$}\n", width = padded - 1);
    file.write(text.as_bytes())?;
    Ok(file)
}
