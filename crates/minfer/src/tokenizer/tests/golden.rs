//! Ids against the references, every text of the corpus.

use super::{PARSED, PLAIN, data, tokenizer};
use std::collections::BTreeMap;

/// What `xtask/golden/tokenizer.py` says of a family: one hash a text, and some ids in full.
#[derive(serde::Deserialize)]
pub(super) struct Golden {
    plain: String,
    parsed: String,
    pub(super) short: BTreeMap<String, Vec<u32>>,
}

impl Golden {
    pub(super) fn read(family: &str) -> Golden {
        let json = std::fs::read(data(&format!("{family}.json"))).unwrap();
        serde_json::from_slice(&json).unwrap()
    }
}

/// FNV-1a, 32 bits, over the ids as little-endian u32.
fn fnv(ids: &[u32]) -> u32 {
    let bytes = ids.iter().flat_map(|id| id.to_le_bytes());
    bytes.fold(0x811c_9dc5, |h, b| {
        (h ^ u32::from(b)).wrapping_mul(0x0100_0193)
    })
}

fn check(family: &str) {
    let texts: Vec<String> =
        serde_json::from_slice(&std::fs::read(data("corpus.json")).unwrap()).unwrap();
    let golden = Golden::read(family);
    let tokenizer = tokenizer(family);
    for (text, ids) in &golden.short {
        assert_eq!(&tokenizer.encode(text, PARSED), ids, "{text:?}");
    }
    assert!(golden.short.len() > 50 && texts.len() > 500);
    for (options, hashes) in [(PLAIN, &golden.plain), (PARSED, &golden.parsed)] {
        assert_eq!(hashes.len(), texts.len() * 8);
        for (text, hash) in texts.iter().zip(hashes.as_bytes().chunks(8)) {
            let ids = tokenizer.encode(text, options);
            let hash = std::str::from_utf8(hash).unwrap();
            assert_eq!(
                format!("{:08x}", fnv(&ids)),
                hash,
                "{text:?} {options:?} gives {ids:?}"
            );
        }
    }
}

macro_rules! families {
    ($($test:ident $family:literal)*) => {
        $(#[test]
        fn $test() {
            check($family);
        })*
    };
}

families! {
    ids_equal_the_references_gpt2 "gpt-2"
    ids_equal_the_references_starcoder "starcoder"
    ids_equal_the_references_refact "refact"
    ids_equal_the_references_command_r "command-r"
    ids_equal_the_references_qwen2 "qwen2"
    ids_equal_the_references_llama3 "llama-bpe"
    ids_equal_the_references_deepseek_llm "deepseek-llm"
    ids_equal_the_references_deepseek_coder "deepseek-coder"
    ids_equal_the_references_falcon "falcon"
    ids_equal_the_references_mpt "mpt"
    ids_equal_the_references_default "aquila"
    ids_equal_the_references_llama2 "llama-spm"
    ids_equal_the_references_phi3 "phi-3"
}
