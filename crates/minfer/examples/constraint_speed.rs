//! Time of a constraint's steps: `cargo run --release -p minfer --example constraint_speed MODEL.gguf`.
//!
//! The texts are tokenized as the model would; at each of their tokens the mask is made and the token accepted. Prints, for
//! each spec: milliseconds to compile, and microseconds of mask and accept, median and slowest.

use std::{env, error::Error, path::Path, time::Instant};

use minfer::gguf::GgufFile;
use minfer::sampling::{Constraint, ConstraintSpec, Constraints};
use minfer::tokenizer::{EncodeOptions, Tokenizer};

const SCHEMA: &str = r#"{"type": "object", "properties": {
  "title": {"type": "string"}, "year": {"type": "integer", "minimum": 1900, "maximum": 2100},
  "authors": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 40},
    "email": {"type": "string", "pattern": "^[a-z.]+@[a-z.]+$"}}, "required": ["name"], "additionalProperties": false}}},
  "required": ["title", "year", "authors"], "additionalProperties": false}"#;

const JSON: &str = r#"root ::= value
value ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}" ws
array ::= "[" ws (value ("," ws value)*)? "]" ws
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}))* "\"" ws
number ::= "-"? ([0-9] | [1-9] [0-9]{0,15}) ("." [0-9]+)? ([eE] [-+]? [0-9]+)? ws
ws ::= | " " | "\n" [ \t]{0,20}"#;

const CALC: &str = r#"root ::= (expr "=" ws term "\n")+
expr ::= term ([-+*/] term)*
term ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num ::= [0-9]+ ws
ws ::= [ \t\n]*"#;

const TEXT: &str = r#"{"title": "The art of computer programming, a long book about the analysis of algorithms", "year": 1968, "authors": [{"name": "Donald Knuth", "email": "don@example.org"}, {"name": "Someone Else"}]}"#;

fn main() -> Result<(), Box<dyn Error>> {
    let model = env::args()
        .nth(1)
        .ok_or("usage: constraint_speed MODEL.gguf")?;
    let file = GgufFile::open(Path::new(&model))?;
    let tokenizer = Tokenizer::from_metadata(file.metadata())?;
    let start = Instant::now();
    let constraints = Constraints::new(&tokenizer)?;
    println!(
        "{} tokens taken in: {:.0} ms",
        tokenizer.n_vocab(),
        ms(start)
    );
    let any = "[A-Za-z ,.:{}\\[\\]\"0-9@]*";
    let calc = "(alpha +beta_2) *314159 -gamma = 42\nx = (y)\n";
    for (name, spec, text) in [
        ("JSON object", ConstraintSpec::JsonObject, TEXT),
        (
            "JSON schema",
            ConstraintSpec::JsonSchema(SCHEMA.to_owned()),
            TEXT,
        ),
        ("regex", ConstraintSpec::Regex(any.to_owned()), TEXT),
        ("GBNF, JSON", ConstraintSpec::Gbnf(JSON.to_owned()), TEXT),
        (
            "GBNF, arithmetic",
            ConstraintSpec::Gbnf(CALC.to_owned()),
            calc,
        ),
    ] {
        let start = Instant::now();
        let mut constraint = constraints.compile(&spec)?;
        let compiled = ms(start);
        let fresh = constraint.boxed_clone();
        let ids = tokenizer.encode(
            text,
            EncodeOptions {
                add_special: false,
                parse_special: false,
            },
        );
        let first = steps(&mut *constraint, &ids, tokenizer.n_vocab())?;
        let mut again = fresh;
        let second = steps(&mut *again, &ids, tokenizer.n_vocab())?;
        println!(
            "{name:16}: compile {compiled:6.1} ms; {} steps: {first}; again: {second}",
            ids.len()
        );
    }
    Ok(())
}

fn steps(constraint: &mut dyn Constraint, ids: &[u32], n: usize) -> Result<String, Box<dyn Error>> {
    let (mut masks, mut accepts) = (Vec::new(), Vec::new());
    for id in ids {
        let mut logits = vec![0.0; n];
        let start = Instant::now();
        constraint.mask(&mut logits)?;
        masks.push(ms(start) * 1e3);
        let start = Instant::now();
        constraint.accept(*id)?;
        accepts.push(ms(start) * 1e3);
    }
    Ok(format!(
        "mask {}, accept {}",
        spread(masks),
        spread(accepts)
    ))
}

fn ms(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

/// Median and slowest, in microseconds.
fn spread(mut times: Vec<f64>) -> String {
    times.sort_by(f64::total_cmp);
    let slowest = times.last().copied().unwrap_or(0.0);
    format!("{:.0} us (slowest {slowest:.0})", times[times.len() / 2])
}
