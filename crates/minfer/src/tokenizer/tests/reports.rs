//! Faults that users of other engines met.

use super::golden::Golden;
use super::{PARSED, metadata, tokenizer};
use crate::gguf::Value;
use crate::tokenizer::{EncodeOptions, Part, Tokenizer};

fn texts(t: &Tokenizer, ids: &[u32]) -> Vec<String> {
    ids.iter()
        .map(|id| t.token_text(*id).unwrap().to_owned())
        .collect()
}

/// A text with a leading space after a special token: ids by Hugging Face. The prefix of
/// SentencePiece is a piece of its own, and the word keeps its space.
#[test]
fn llama_cpp_23840_a_space_after_a_special_token() {
    let t = tokenizer("llama-spm");
    let reference = Golden::read("llama-spm").short;
    for text in ["hello<s> world", "hello<s>world", "hello<s>  world"] {
        assert_eq!(t.encode(text, PARSED), reference[text], "{text}");
    }
    let ids = t.encode("hello<s> world", PARSED);
    let after = ids.iter().rposition(|id| Some(*id) == t.bos()).unwrap();
    assert_eq!(texts(&t, &ids[after..])[..3], ["<s>", "▁", "▁w"]);
}

/// A letter right after BOS gets the prefix: ids by Hugging Face.
#[test]
fn llama_cpp_4772_a_letter_right_after_bos() {
    let t = tokenizer("llama-spm");
    let reference = Golden::read("llama-spm").short;
    for text in ["<s>G", "<s> G"] {
        assert_eq!(t.encode(text, PARSED), reference[text], "{text}");
    }
    assert_eq!(texts(&t, &t.encode("<s>G", PARSED)), ["<s>", "▁G"]);
}

/// A template that writes BOS and a file that asks for BOS: exactly one; raw completion: one.
#[test]
fn llama_cpp_python_1501_exactly_one_bos() {
    for (family, bos) in [("llama-spm", "<s>"), ("llama-bpe", "<|begin_of_text|>")] {
        let t = tokenizer(family);
        assert!(t.adds_bos());
        let count = |ids: &[u32]| ids.iter().filter(|id| Some(**id) == t.bos()).count();
        let template = format!("{bos}Hi");
        for ids in [
            t.encode(&template, PARSED),
            t.encode("Hi", PARSED),
            t.encode("", PARSED),
            t.encode_parts(&[Part::Template(bos), Part::User("Hi")], true),
            t.encode_parts(&[Part::User("Hi")], true),
            // A user who types the text of BOS gets its letters.
            t.encode_parts(&[Part::User(&template)], true),
        ] {
            assert_eq!(count(&ids), 1, "{ids:?}");
            assert_eq!(ids.first().copied(), t.bos());
        }
        assert_eq!(
            count(&t.encode(
                "Hi",
                EncodeOptions {
                    add_special: false,
                    ..PARSED
                }
            )),
            0
        );
    }
}

/// The same for EOS at the end.
#[test]
fn eos_is_added_where_the_file_asks_and_never_twice() {
    let md = metadata("gpt-2");
    assert_eq!(md.get("tokenizer.ggml.add_eos_token"), None);
    let mut md = md;
    assert!(md.insert("tokenizer.ggml.add_eos_token", Value::Bool(true)));
    let t = Tokenizer::from_metadata(&md).unwrap();
    let eos = t.eos().unwrap();
    for text in ["a", "a<|endoftext|>"] {
        let ids = t.encode(text, PARSED);
        assert_eq!(ids.iter().filter(|id| **id == eos).count(), 1);
        assert_eq!(ids.last(), Some(&eos));
    }
}
