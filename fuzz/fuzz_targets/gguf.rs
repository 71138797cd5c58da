//! Any bytes are read or refused; every tensor that is listed can be read to its last byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use minfer::gguf::GgufFile;

fuzz_target!(|bytes: &[u8]| {
    match GgufFile::from_bytes(bytes.to_vec()) {
        Ok(file) => {
            for t in file.tensors() {
                assert_eq!(file.data(t).len() as u64, t.n_bytes, "{}", t.name);
            }
        }
        Err(e) => assert!(!e.to_string().contains('\n')),
    }
});
