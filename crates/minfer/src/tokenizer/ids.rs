//! Tokens with a role: beginning and end of a text, of a turn, and all that end a generation.

use super::vocab::{Kind, Vocab};
use super::{TokenizerError, fields};
use crate::gguf::Metadata;

/// Ids by role.
pub(super) struct Ids {
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    pub(super) eot: Option<u32>,
    pub(super) eom: Option<u32>,
    pub(super) unknown: Option<u32>,
    pub(super) pad: Option<u32>,
    /// Sorted.
    pub(super) eog: Vec<u32>,
}

/// Texts of end-of-turn tokens, where the file names none; the first found counts.
const EOT: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
];

/// Texts of tokens that end a generation, whatever the file says of them: llama.cpp's list.
const EOG: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];

/// Fill-in-the-middle tokens that end a generation: the key that names one, and known texts.
const FIM_EOG: &[(&str, &[&str])] = &[
    (
        "tokenizer.ggml.fim_pad_token_id",
        &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"],
    ),
    (
        "tokenizer.ggml.fim_rep_token_id",
        &[
            "<|fim_repo|>",
            "<|repo_name|>",
            "<fim-repo>",
            "<REPO>",
            "<reponame>",
        ],
    ),
    ("tokenizer.ggml.fim_sep_token_id", &["<|file_sep|>"]),
];

impl Ids {
    /// Reads the ids, and makes control tokens of those that end a generation. `defaults` are
    /// the ids of bos, eos and unknown where the file names none.
    pub(super) fn new(
        md: &Metadata,
        vocab: &mut Vocab,
        defaults: [Option<u32>; 3],
    ) -> Result<Ids, TokenizerError> {
        let n = vocab.len();
        let named = |key| fields::token_id(md, key, n);
        let or =
            |id: Option<u32>, default: Option<u32>| id.or(default.filter(|d| (*d as usize) < n));
        let [bos, eos, unknown] = defaults;
        let by_text = Texts::new(vocab);
        let mut ids = Ids {
            bos: or(named("tokenizer.ggml.bos_token_id")?, bos),
            eos: or(named("tokenizer.ggml.eos_token_id")?, eos),
            eot: named("tokenizer.ggml.eot_token_id")?.or_else(|| by_text.first(EOT)),
            eom: named("tokenizer.ggml.eom_token_id")?.or_else(|| by_text.first(&["<|eom_id|>"])),
            unknown: or(named("tokenizer.ggml.unknown_token_id")?, unknown),
            pad: named("tokenizer.ggml.padding_token_id")?,
            eog: EOG.iter().filter_map(|t| by_text.find(t)).collect(),
        };
        for (key, texts) in FIM_EOG {
            ids.eog.extend(named(key)?.or_else(|| by_text.first(texts)));
        }
        ids.eog.extend([ids.eot, ids.eom].into_iter().flatten());
        ids.drop_channel_end(&by_text);
        // They are never shown and never parsed from user text, whatever type the file gives them.
        for id in &ids.eog {
            if let Some(kind) = vocab.kinds.get_mut(*id as usize) {
                *kind = Kind::Control;
            }
        }
        // `</s>` is plain HTML in some vocabularies; eos alone may be a token of any type.
        let s = by_text
            .find("</s>")
            .filter(|id| vocab.kind(*id) == Some(Kind::Control));
        ids.eog.extend([s, ids.eos].into_iter().flatten());
        ids.eog.sort_unstable();
        ids.eog.dedup();
        Ok(ids)
    }

    /// Where `<|end|>` ends a channel and other tokens end the answer, it does not.
    fn drop_channel_end(&mut self, by_text: &Texts) {
        let has = |t| by_text.find(t).is_some();
        let channels = has("<|return|>") && has("<|call|>")
            || has("<|flush|>") && (has("<|call|>") || has("<|calls|>"));
        if channels && let Some(end) = by_text.find("<|end|>") {
            self.eog.retain(|id| *id != end);
        }
    }
}

/// The tokens whose texts look like markers: few, of a vocabulary of hundreds of thousands.
struct Texts(Vec<(String, u32)>);

impl Texts {
    fn new(vocab: &Vocab) -> Texts {
        let marked = |t: &&str| t.starts_with(['<', '[', '_']);
        let all = (0..vocab.len() as u32).filter_map(|id| {
            let text = vocab
                .text(id)
                .filter(marked)
                .filter(|t| t.ends_with(['>', ']', '[']))?;
            Some((text.to_owned(), id))
        });
        Texts(all.collect())
    }

    fn find(&self, text: &str) -> Option<u32> {
        self.0.iter().find(|(t, _)| t == text).map(|(_, id)| *id)
    }

    fn first(&self, texts: &[&str]) -> Option<u32> {
        texts.iter().find_map(|t| self.find(t))
    }
}
