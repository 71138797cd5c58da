//! Constraints on real vocabularies (cut down, as `xtask/golden/tokenizer.py` makes them).

mod gbnf;
mod references;
mod refusals;
mod schemas;
mod steps;
mod tools;

use std::path::PathBuf;
use std::sync::LazyLock;

use super::{Constraint, ConstraintError, ConstraintSpec, Constraints};
use crate::gguf::GgufFile;
use crate::tokenizer::Tokenizer;

/// A vocabulary and its compiler.
struct Model {
    tokenizer: Tokenizer,
    constraints: Constraints,
}

impl Model {
    fn open(family: &str) -> Model {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join(format!("tests/data/tokenizer/{family}.gguf"));
        let file = GgufFile::open(&path).unwrap();
        let tokenizer = Tokenizer::from_metadata(file.metadata()).unwrap();
        let constraints = Constraints::new(&tokenizer).unwrap();
        Model {
            tokenizer,
            constraints,
        }
    }

    fn compile(&self, spec: &ConstraintSpec) -> Box<dyn Constraint> {
        self.constraints
            .compile(spec)
            .unwrap_or_else(|e| panic!("{spec:?}: {e}"))
    }

    /// Why a spec is refused.
    fn refusal(&self, spec: &ConstraintSpec) -> ConstraintError {
        match self.constraints.compile(spec) {
            Ok(_) => panic!("{spec:?} was compiled"),
            Err(e) => e,
        }
    }

    /// The tokens that may come next.
    fn allowed(&self, constraint: &mut dyn Constraint) -> Vec<u32> {
        let mut logits = vec![0.0; self.tokenizer.n_vocab() + 3];
        constraint.mask(&mut logits).unwrap();
        let allowed = logits.iter().zip(0..).filter(|(x, _)| **x == 0.0);
        let allowed: Vec<u32> = allowed.map(|(_, id)| id).collect();
        assert!(logits.iter().all(|x| *x == 0.0 || *x == f32::NEG_INFINITY));
        allowed
    }

    /// A token for each byte of a text.
    fn bytes(&self, text: &[u8]) -> Vec<u32> {
        let id = |byte: &u8| {
            (0..self.tokenizer.n_vocab() as u32)
                .find(|id| {
                    self.tokenizer.piece(*id) == Some(std::slice::from_ref(byte))
                        && !self.tokenizer.is_control(*id)
                })
                .unwrap_or_else(|| panic!("no token of byte {byte:#x}"))
        };
        text.iter().map(id).collect()
    }

    /// Whether a constraint takes a text, and may end after it. By single bytes.
    fn takes(&self, spec: &ConstraintSpec, text: &str) -> bool {
        self.follow(spec, text).expect("followed")
    }

    /// As [`Model::takes`]; an error where the constraint can't be followed, which is no verdict.
    fn follow(&self, spec: &ConstraintSpec, text: &str) -> Result<bool, ConstraintError> {
        let mut constraint = self.compile(spec);
        for token in self.bytes(text.as_bytes()) {
            let masked = self.may(&mut *constraint, token)?;
            assert_eq!(
                masked,
                constraint.accept(token).is_ok(),
                "{spec:?} {text:?}"
            );
            if !masked {
                return Ok(false);
            }
        }
        let eog = self.tokenizer.eog()[0];
        let ends = self.may(&mut *constraint, eog)?;
        assert_eq!(ends, constraint.accept(eog).is_ok());
        assert!(!ends || constraint.is_done());
        Ok(ends)
    }

    fn allowed_here(&self, constraint: &mut dyn Constraint, token: u32) -> bool {
        self.may(constraint, token).unwrap()
    }

    fn may(&self, constraint: &mut dyn Constraint, token: u32) -> Result<bool, ConstraintError> {
        let mut logits = vec![0.0; self.tokenizer.n_vocab()];
        constraint.mask(&mut logits)?;
        Ok(logits[token as usize] == 0.0)
    }

    /// Random tokens that a constraint allows, to its end; and the text. After `soft` tokens it takes what closes.
    fn walk(&self, constraint: &mut dyn Constraint, seed: u64, soft: usize) -> (Vec<u32>, String) {
        let tokens = self.random(constraint, seed, soft);
        let text = String::from_utf8(self.tokenizer.joined(&tokens.1)).unwrap();
        assert!(tokens.0, "no end after {text}");
        (tokens.1, text)
    }

    /// The same; nothing if it does not come to an end.
    fn try_walk(&self, constraint: &mut dyn Constraint, seed: u64, soft: usize) -> Option<String> {
        let (ended, tokens) = self.random(constraint, seed, soft);
        ended.then(|| String::from_utf8(self.tokenizer.joined(&tokens)).unwrap())
    }

    fn random(&self, constraint: &mut dyn Constraint, seed: u64, soft: usize) -> (bool, Vec<u32>) {
        let mut rng = Dice(seed);
        let mut tokens = Vec::new();
        for step in 0..soft * 10 {
            let (ends, text): (Vec<u32>, Vec<u32>) = self
                .allowed(constraint)
                .into_iter()
                .partition(|id| self.tokenizer.is_eog(*id));
            if let Some(end) = ends.first()
                && (text.is_empty() || rng.below(3) == 0 || step >= soft)
            {
                constraint.accept(*end).unwrap();
                assert!(constraint.is_done());
                return (true, tokens);
            }
            assert!(!constraint.is_done());
            let closes = |id: &u32| {
                let piece = self.tokenizer.piece(*id).unwrap();
                piece.len() == 1 && b"\"]}1,:)\n".contains(&piece[0])
            };
            let closing: Vec<u32> = text.iter().copied().filter(closes).collect();
            let from = if step >= soft && !closing.is_empty() {
                &closing
            } else {
                &text
            };
            let token = from[rng.below(from.len())];
            assert!(!self.tokenizer.is_control(token));
            constraint.accept(token).unwrap();
            tokens.push(token);
        }
        (false, tokens)
    }
}

impl Tokenizer {
    /// Pieces joined, as in the middle of a text.
    fn joined(&self, ids: &[u32]) -> Vec<u8> {
        ids.iter()
            .flat_map(|id| self.piece(*id).unwrap().to_vec())
            .collect()
    }
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

/// Byte-level.
static QWEN: LazyLock<Model> = LazyLock::new(|| Model::open("qwen2"));
/// SentencePiece, with byte tokens.
static LLAMA: LazyLock<Model> = LazyLock::new(|| Model::open("llama-spm"));

fn schema(text: &str) -> ConstraintSpec {
    ConstraintSpec::JsonSchema(text.to_owned())
}

fn regex(text: &str) -> ConstraintSpec {
    ConstraintSpec::Regex(text.to_owned())
}

fn lark(text: &str) -> ConstraintSpec {
    ConstraintSpec::Lark(text.to_owned())
}

fn gbnf(text: &str) -> ConstraintSpec {
    ConstraintSpec::Gbnf(text.to_owned())
}
