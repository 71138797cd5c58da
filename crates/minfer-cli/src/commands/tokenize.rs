//! `minfer tokenize`: how a text becomes tokens.

use minfer::gguf::GgufFile;
use minfer::tokenizer::{EncodeOptions, Tokenizer};
use serde_json::json;

use crate::args::TokenizeArgs;
use crate::output::{Outcome, print, print_line};
use crate::{files, models};

/// Prints ids and pieces; works on vocabulary-only files.
pub fn tokenize(a: &TokenizeArgs) -> Outcome {
    models::known(&a.model.model)?;
    let text = match (a.text.as_ref().or(a.prompt.as_ref()), &a.file) {
        (Some(text), _) => text.clone(),
        (None, Some(file)) => files::read_text(file)?,
        (None, None) => String::new(), // the parser wants one of them
    };
    let path = models::resolve(&a.model.model)?;
    let file = GgufFile::open(&path)?;
    let tokenizer =
        Tokenizer::from_metadata(file.metadata()).map_err(|source| minfer::Error::Model {
            path,
            source: Box::new(source.into()),
        })?;
    let options = EncodeOptions {
        add_special: !a.no_special,
        parse_special: a.parse_special,
    };
    let ids = tokenizer.encode(&text, options);
    let piece =
        |id: u32| String::from_utf8_lossy(tokenizer.piece(id).unwrap_or_default()).into_owned();
    if a.json {
        let pieces: Vec<String> = ids.iter().map(|id| piece(*id)).collect();
        return print_line(json!({ "ids": ids, "pieces": pieces }));
    }
    let mut out = String::new();
    for id in &ids {
        out.push_str(&format!("{id:>7}  {:?}\n", piece(*id)));
    }
    print(out)
}
