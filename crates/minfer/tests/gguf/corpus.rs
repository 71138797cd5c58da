//! Replays the fuzzer's corpus: `fuzz/corpus/gguf/`, made by `xtask/golden/gguf_corpus.py`.

use std::path::Path;

use minfer::gguf::GgufFile;

#[test]
fn the_corpus_is_read_or_refused_as_its_names_say() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/gguf");
    let (mut good, mut bad) = (0, 0);
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let result = GgufFile::from_bytes(std::fs::read(&path).unwrap());
        if let Ok(file) = &result {
            assert!(
                file.tensors()
                    .iter()
                    .all(|t| file.data(t).len() as u64 == t.n_bytes),
                "{name}"
            );
        }
        if name.starts_with("good_") {
            good += 1;
            assert!(result.is_ok(), "{name}: {}", result.unwrap_err());
        } else if name.starts_with("bad_") {
            bad += 1;
            assert!(result.is_err(), "{name} was accepted");
        }
        // Other names are the fuzzer's own finds: it is enough that they end here.
    }
    assert!(
        good >= 5 && bad >= 25,
        "the corpus has {good} good and {bad} bad files"
    );
}
