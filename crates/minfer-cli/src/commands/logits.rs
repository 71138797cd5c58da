//! `minfer logits`: what the model says of given tokens.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use minfer::engine::{Event, EventStream, Request, Task};
use serde_json::json;

use crate::args::LogitsArgs;
use crate::models;
use crate::output::{Failure, Outcome, print, print_line};

/// Runs the tokens and writes the logits as JSON or as a NumPy file.
pub fn logits(a: &LogitsArgs) -> Outcome {
    let ids = parse_ids(a)?;
    let model = models::open(&a.model.model)?;
    let n_ctx = models::n_ctx(&a.engine, &model, ids.len(), Some(0))?;
    let engine = models::engine(model, &a.engine, n_ctx)?;
    let n_vocab = engine.model().hparams().n_vocab;
    let rows = if a.all { ids.len() } else { 1 };
    let task = Task::Logits { all: a.all };
    let events = engine.submit(Request::new(ids.clone(), task))?;
    match &a.npy {
        Some(path) => {
            let named = |e: io::Error| match e.kind() {
                io::ErrorKind::BrokenPipe => Failure::ClosedPipe,
                _ => Failure::Error(format!("{}: {e}", path.display())),
            };
            let mut file = NpyFile::create(path, rows, n_vocab).map_err(named)?;
            each_row(events, |row| {
                let bytes: Vec<u8> = row.iter().flat_map(|x| x.to_le_bytes()).collect();
                file.out.write_all(&bytes).map_err(named)
            })?;
            file.finish().map_err(named)
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
        (None, Some(file)) => models::read_text(file)?,
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

/// A version 1 NumPy file of `[rows, cols]` little-endian f32 under way. It is written beside its
/// place and put there when it is whole: an error leaves what was there before.
struct NpyFile {
    out: BufWriter<Box<dyn Write>>,
    path: PathBuf,
    /// Where it is until then; none where its place is stdout, a pipe or a device.
    part: Option<PathBuf>,
}

impl NpyFile {
    /// With its header; `-` is stdout.
    fn create(path: &Path, rows: usize, cols: usize) -> io::Result<NpyFile> {
        let stdout = path.as_os_str() == "-";
        // A link stays one: its target is replaced.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let mut part = None;
        if !stdout && path.metadata().map_or(true, |m| m.is_file()) {
            let mut name = path.clone().into_os_string();
            name.push(format!(".{}.part", std::process::id()));
            part = Some(PathBuf::from(name));
        }
        let out: Box<dyn Write> = match stdout {
            true => Box::new(io::stdout()),
            false => Box::new(File::create(part.as_ref().unwrap_or(&path))?),
        };
        let out = BufWriter::new(out);
        let mut file = NpyFile { out, path, part };
        let dict =
            format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {cols}), }}");
        // Magic, version, length: 10 bytes; the whole header is a multiple of 64 and ends in a newline.
        let padded = (10 + dict.len() + 1).next_multiple_of(64) - 10;
        file.out.write_all(b"\x93NUMPY\x01\x00")?;
        file.out.write_all(&(padded as u16).to_le_bytes())?;
        let text = format!("{dict:<width$}\n", width = padded - 1);
        file.out.write_all(text.as_bytes())?;
        Ok(file)
    }

    /// Puts it in its place.
    fn finish(mut self) -> io::Result<()> {
        self.out.flush()?;
        match &self.part {
            Some(part) => std::fs::rename(part, &self.path)?,
            None => return Ok(()),
        }
        self.part = None;
        Ok(())
    }
}

impl Drop for NpyFile {
    fn drop(&mut self) {
        if let Some(part) = &self.part {
            // Best effort: there is an error already.
            let _ = std::fs::remove_file(part);
        }
    }
}
