//! SmolLM2's whole vocabulary on the corpus, against Hugging Face and llama.cpp. The model comes
//! from the cache or is fetched; without it the test fails.

use minfer::gguf::GgufFile;
use minfer::tokenizer::{EncodeOptions, Tokenizer};
use minfer_hub::{Hub, Silent};

/// Ids as `xtask/golden/tokenizer.py` keeps them: eight hex digits a text.
#[derive(serde::Deserialize)]
struct Golden {
    plain: String,
    parsed: String,
}

/// FNV-1a, 32 bits, over the ids as little-endian u32.
fn fnv(ids: &[u32]) -> u32 {
    let bytes = ids.iter().flat_map(|id| id.to_le_bytes());
    bytes.fold(0x811c_9dc5, |h, b| {
        (h ^ u32::from(b)).wrapping_mul(0x0100_0193)
    })
}

#[test]
fn smollm2_ids_equal_the_references() {
    let data = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../minfer/tests/data/tokenizer"
    );
    let read = |name: &str| std::fs::read(format!("{data}/{name}")).expect("golden data");
    let texts: Vec<String> = serde_json::from_slice(&read("corpus.json")).expect("texts");
    let golden: Golden = serde_json::from_slice(&read("smollm2.json")).expect("hashes");
    let hub = Hub::new().expect("a folder for models");
    let path = hub.resolve("smollm2", &mut Silent).expect("the model");
    let file = GgufFile::open(&path).expect("a GGUF file");
    let tokenizer = Tokenizer::from_metadata(file.metadata()).expect("a tokenizer");
    for (parse_special, hashes) in [(false, golden.plain), (true, golden.parsed)] {
        assert_eq!(hashes.len(), texts.len() * 8);
        let options = EncodeOptions {
            add_special: true,
            parse_special,
        };
        for (text, hash) in texts.iter().zip(hashes.as_bytes().chunks(8)) {
            let ids = tokenizer.encode(text, options);
            assert_eq!(format!("{:08x}", fnv(&ids)).as_bytes(), hash, "{text:?}");
        }
    }
}
