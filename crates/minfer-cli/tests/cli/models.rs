//! Model files for the tests: the tiny random models, variants of them, and a model that says a
//! known text.

use std::io::Write;
use std::path::{Path, PathBuf};

use minfer::gguf::{Array, GgufFile, GgufWriter, Value};
use minfer::numeric::GgmlType;
use tempfile::NamedTempFile;

/// The tiny models' vocabulary: 256 bytes, a few pieces, and these two at its end.
pub const N_VOCAB: usize = 272;
/// `<|im_start|>`.
pub const IM_START: u64 = 270;
/// `<|im_end|>`, which is also eos.
pub const IM_END: u64 = 271;
/// Entries 262 to 269 stand for nothing: tests may give them a meaning.
pub const FIRST_FREE: usize = 262;

/// Where the tiny models and their logits lie.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../minfer/tests/data/tiny_models")
}

/// The path of a tiny random model.
pub fn tiny(name: &str) -> String {
    let path = folder().join(format!("{name}.gguf"));
    path.to_str().expect("UTF-8").to_owned()
}

/// A tensor: name, type, sizes, data.
type Tensor = (String, GgmlType, Vec<u64>, Vec<u8>);

/// A model file that can be changed before it is written.
pub struct Variant {
    /// Metadata in file order.
    pub metadata: Vec<(String, Value)>,
    /// Tensors in file order.
    pub tensors: Vec<Tensor>,
}

impl Variant {
    /// A copy of a tiny model.
    pub fn of(name: &str) -> Variant {
        let file = GgufFile::open(Path::new(&tiny(name))).expect("a tiny model");
        let metadata = file.metadata().iter();
        Variant {
            metadata: metadata.map(|(k, v)| (k.to_owned(), v.clone())).collect(),
            tensors: file
                .tensors()
                .iter()
                .map(|t| (t.name.clone(), t.ty, t.dims.clone(), file.data(t).to_vec()))
                .collect(),
        }
    }

    /// With this value for a key, new or changed.
    pub fn set(mut self, key: &str, value: Value) -> Variant {
        match self.metadata.iter_mut().find(|e| e.0 == key) {
            Some(entry) => entry.1 = value,
            None => self.metadata.push((key.to_owned(), value)),
        }
        self
    }

    /// With this text.
    pub fn text(self, key: &str, text: &str) -> Variant {
        self.set(key, Value::Str(text.to_owned()))
    }

    /// With `token` as entry `id` of the vocabulary, of this type (1 normal, 3 control).
    pub fn token(mut self, id: usize, token: &str, kind: i32) -> Variant {
        for (key, value) in &mut self.metadata {
            match (key.as_str(), value) {
                ("tokenizer.ggml.tokens", Value::Array(Array::Str(all))) => {
                    let old = all.iter().enumerate();
                    *all = old.map(|(i, t)| if i == id { token } else { t }).collect();
                }
                ("tokenizer.ggml.token_type", Value::Array(Array::I32(all))) => all[id] = kind,
                _ => {}
            }
        }
        self
    }

    /// Changes a tensor.
    pub fn tensor(&mut self, name: &str) -> &mut Tensor {
        let found = self.tensors.iter_mut().find(|t| t.0 == name);
        found.unwrap_or_else(|| panic!("no tensor {name}"))
    }

    /// Gives a tensor other f32 values.
    fn values(&mut self, name: &str, value: impl Fn(usize) -> f32) {
        let data = &mut self.tensor(name).3;
        *data = (0..data.len() / 4)
            .flat_map(|i| value(i).to_le_bytes())
            .collect();
    }

    /// Writes it to a file that goes with the value.
    pub fn write(&self) -> Model {
        let mut writer = GgufWriter::new(3).expect("a version");
        for (key, value) in &self.metadata {
            writer.set(key, value.clone()).expect("an entry");
        }
        for (name, ty, dims, _) in &self.tensors {
            writer.tensor(name, *ty, dims).expect("a tensor");
        }
        let mut out = writer.start(Vec::new()).expect("a header");
        for (_, _, _, data) in &self.tensors {
            out.tensor(data).expect("a tensor's data");
        }
        Model::new(&out.finish().expect("all data"))
    }
}

/// A file that goes when it is dropped.
pub struct Model(NamedTempFile);

impl Model {
    /// With these bytes.
    pub fn new(bytes: &[u8]) -> Model {
        let mut file = tempfile::Builder::new()
            .suffix(".gguf")
            .tempfile()
            .expect("a file");
        file.write_all(bytes).expect("room on the disk");
        Model(file)
    }

    /// Its path.
    pub fn path(&self) -> &str {
        self.0.path().to_str().expect("UTF-8")
    }
}

/// A model that answers anything with `pieces`, one token each, and ends. Pieces are tokens that
/// differ from each other, at most eight of them of more than one byte.
///
/// How: attention and feed-forward give zero, so the last token alone decides. Each token of the
/// answer has a dimension of the embedding to itself, all others share one; a head row looks at
/// the dimension of the token that must come before.
pub fn saying(pieces: &[&[u8]]) -> Variant {
    const E: usize = 64;
    let mut v = Variant::of("llama3");
    let mut ids = Vec::new();
    let mut free = FIRST_FREE;
    for piece in pieces {
        if let [byte] = piece {
            ids.push(usize::from(*byte));
            continue;
        }
        let text = std::str::from_utf8(piece).expect("text");
        v = v.token(free, &text.replace(' ', "Ġ"), 1);
        ids.push(free);
        free += 1;
    }
    ids.push(IM_END as usize);
    for layer in 0..2 {
        v.values(&format!("blk.{layer}.attn_output.weight"), |_| 0.0);
        v.values(&format!("blk.{layer}.ffn_down.weight"), |_| 0.0);
    }
    v.values("output_norm.weight", |_| 1.0);
    let dimension = |id: usize| ids.iter().position(|i| *i == id).unwrap_or(E - 1);
    v.values("token_embd.weight", |i| {
        f32::from(u8::from(dimension(i / E) == i % E))
    });
    let before = |id: usize| match ids.iter().position(|i| *i == id) {
        Some(0) => Some(E - 1),
        at => at.map(|at| at - 1),
    };
    v.values("output.weight", |i| match before(i / E) == Some(i % E) {
        true => 10.0,
        false => 0.0,
    });
    v
}

/// A tiny model with room for a long answer: it goes on until it is stopped.
pub fn endless() -> Model {
    Variant::of("llama")
        .set("llama.context_length", Value::U32(1 << 17))
        .write()
}

/// Arguments that make [`endless`] talk for a long time.
pub const TALK: [&str; 5] = ["--no-template", "x", "--ignore-eos", "-n", "100000"];
