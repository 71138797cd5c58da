//! Compares token ids with a reference's: `check_tokenizer MODEL.gguf IDS.json…`.
//!
//! IDS.json is `[{"text": "…", "add_special": true, "parse_special": false, "ids": […]}, …]`
//! (`xtask/golden/tokenizer.py --full` writes such files). Prints counts and the first
//! differences; exits with 1 if there is one.

use std::{env, error::Error, fs, path::Path, process::ExitCode};

use minfer::gguf::GgufFile;
use minfer::tokenizer::{EncodeOptions, Tokenizer};

#[derive(serde::Deserialize)]
struct Case {
    text: String,
    add_special: bool,
    parse_special: bool,
    ids: Vec<u32>,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let model = args
        .next()
        .ok_or("usage: check_tokenizer MODEL.gguf IDS.json…")?;
    let tokenizer = Tokenizer::from_metadata(GgufFile::open(Path::new(&model))?.metadata())?;
    let mut failed = false;
    for file in args {
        let cases: Vec<Case> = serde_json::from_slice(&fs::read(&file)?)?;
        let mut different = 0;
        for c in &cases {
            let options = EncodeOptions {
                add_special: c.add_special,
                parse_special: c.parse_special,
            };
            let ids = tokenizer.encode(&c.text, options);
            if ids != c.ids {
                different += 1;
                if different <= 5 {
                    show(&tokenizer, c, &ids);
                }
            }
        }
        let ids: usize = cases.iter().map(|c| c.ids.len()).sum();
        println!(
            "{file}: {} texts, {ids} ids, {different} texts differ",
            cases.len()
        );
        failed |= different > 0;
    }
    Ok(ExitCode::from(u8::from(failed)))
}

/// Prints where two lists of ids part.
fn show(tokenizer: &Tokenizer, case: &Case, ids: &[u32]) {
    let same = ids
        .iter()
        .zip(&case.ids)
        .take_while(|(a, b)| a == b)
        .count();
    let pieces = |ids: &[u32]| -> Vec<String> {
        let next = ids.iter().skip(same).take(8);
        next.map(|id| format!("{id} {:?}", tokenizer.token_text(*id).unwrap_or("?")))
            .collect()
    };
    println!("{:?} (parse_special {})", case.text, case.parse_special);
    println!("  from id {same}: ours {:?}", pieces(ids));
    println!("  reference {:?}", pieces(&case.ids));
}
