//! Pre-tokenizers: how a text is cut into the words that byte-level BPE merges within.
//!
//! Each is a list of stages, as in a `tokenizer.json`: a stage cuts every piece that the stages
//! before it left; what its pattern does not match stays a piece of its own. The scanners here do
//! what the patterns in their comments say, without a regex engine.

use super::TokenizerError;
use super::unicode::{Class, class};

/// One pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
    Gpt2,
    /// `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,k}|
    /// ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`, k as given
    Llama3(usize),
    /// `\p{N}`
    Number,
    /// `\p{N}+`
    Numbers,
    /// `[0-9][0-9][0-9]`
    ThreeDigits,
    /// `[\p{P}$+<=>^~|]+`
    Punct,
    /// ``[\p{P}$+<=>^~|`]+``
    FalconPunct,
    /// `[\r\n]`
    Newline,
    /// `\s?\p{L}+`
    SpaceLetters,
    /// `\s?\p{P}+`
    SpacePunct,
    /// `\s?[…]+` with the cased letters of [`DEEPSEEK_LETTERS`]
    DeepseekLetters,
    /// `\s?[!-/:-~！-／：-～‘-‟　-。]+`
    DeepseekPunct,
    /// `\s+$`
    TrailingSpace,
    /// `[一-龥ࠀ-一가-퟿]+`
    DeepseekCjk,
}

/// The letters that DeepSeek LLM's second pattern lists: pairs of first and last.
const DEEPSEEK_LETTERS: &str = "AZazµµÀÖØöøƺƼƿǄʓʕʯͰͳͶͶͷͷͻͽͿͿΆΆΈΊΌΌΎΡΣϵϷҁҊԯԱՖႠჅᎠᏵᏸᏽᲐᲺᲽᲿᴀᴫᵫᵷᵹᶚ\
    ḀἕἘἝἠὅὈὍὐὗὙὙὛὛὝὝὟώᾀᾴᾶᾼ\u{1fbe}\u{1fbe}ῂῄῆῌῐΐῖΊῠῬῲῴῶῼℂℂℇℇℊℓℕℕℙℝℤℤ\u{2126}\u{2126}ℨℨ\u{212a}ℭℯℴℹℹℼℿⅅⅉⅎⅎↃↃↄↄ\
    ⰀⱻⱾⳤⳫⳮⳲⳲⳳⳳꙀꙭꚀꚛꜢꝯꝱꞇꞋꞎꭰꮿﬀﬆﬓﬗＡＺａｚ𐐀𐑏𐒰𐓓𐓘𐓻𐲀𐲲𐳀𐳲𑢠𑣟𞤀𞥃";

/// A pre-tokenizer, with what its name says about the rest of the tokenizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PreTokenizer {
    stages: &'static [Stage],
    /// A word that is a token as a whole is that token, whatever the merges say.
    pub(super) ignore_merges: bool,
    /// Whether BOS is added where the file has no flag for it.
    pub(super) add_bos: bool,
}

const GPT2: &[Stage] = &[Stage::Gpt2];
const DIGITS_GPT2: &[Stage] = &[Stage::Number, Stage::Gpt2];
const QWEN2: &[Stage] = &[Stage::Llama3(1)];
const LLAMA3: &[Stage] = &[Stage::Llama3(3)];
const FALCON: &[Stage] = &[Stage::FalconPunct, Stage::Gpt2, Stage::ThreeDigits];
const DEFAULT: &[Stage] = &[
    Stage::Punct,
    Stage::Gpt2,
    Stage::Numbers,
    Stage::ThreeDigits,
];
const DEEPSEEK_CODER: &[Stage] = &[
    Stage::Newline,
    Stage::SpaceLetters,
    Stage::SpacePunct,
    Stage::DeepseekCjk,
    Stage::Number,
];
const DEEPSEEK_LLM: &[Stage] = &[
    Stage::Newline,
    Stage::DeepseekLetters,
    Stage::DeepseekPunct,
    Stage::TrailingSpace,
    Stage::DeepseekCjk,
    Stage::Numbers,
];

/// Names by stages: the ones that llama.cpp writes into files, and their aliases. Only names
/// whose tokenizers differ in nothing else are here.
const KNOWN: &[(&[Stage], bool, &[&str])] = &[
    (DEFAULT, false, &["default"]),
    (
        GPT2,
        false,
        &[
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "exaone4",
            "jais",
            "mpt",
            "olmo",
            "trillion",
            "granite-docling",
        ],
    ),
    (
        DIGITS_GPT2,
        false,
        &[
            "smollm",
            "starcoder",
            "refact",
            "command-r",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
    ),
    (
        QWEN2,
        false,
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
            "megrez",
            "stablelm2",
            "hunyuan",
            "solar-open",
        ],
    ),
    (LLAMA3, false, &["dbrx", "smaug-bpe"]),
    (
        LLAMA3,
        true,
        &[
            "llama3",
            "llama-v3",
            "llama-bpe",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
        ],
    ),
    (FALCON, false, &["falcon"]),
    (DEEPSEEK_LLM, false, &["deepseek-llm"]),
    (DEEPSEEK_CODER, false, &["deepseek-coder"]),
];

impl PreTokenizer {
    /// The pre-tokenizer of a `tokenizer.ggml.pre` name.
    pub(super) fn by_name(name: &str) -> Result<PreTokenizer, TokenizerError> {
        for (stages, llama3, names) in KNOWN {
            if names.contains(&name) {
                return Ok(PreTokenizer {
                    stages,
                    ignore_merges: *llama3,
                    add_bos: *llama3,
                });
            }
        }
        let known: Vec<&str> = KNOWN.iter().flat_map(|k| k.2.iter().copied()).collect();
        Err(TokenizerError::Pre {
            name: name.to_owned(),
            known: known.join(", "),
        })
    }

    /// Calls `word` for each word of `text`: start and end, in order, without gaps.
    pub(super) fn words(self, text: &str, mut word: impl FnMut(usize, usize)) {
        cut(self.stages, text, 0, &mut word);
    }
}

/// Cuts `piece`, which starts at `base`, by the given stages.
fn cut(stages: &[Stage], piece: &str, base: usize, word: &mut dyn FnMut(usize, usize)) {
    let Some((stage, later)) = stages.split_first() else {
        return word(base, base.wrapping_add(piece.len()));
    };
    let mut at = 0usize;
    while let Some(rest) = piece.get(at..).filter(|r| !r.is_empty()) {
        // At least one character, so that the loop ends whatever a scanner says.
        let len = stage
            .next(rest)
            .max(rest.chars().next().map_or(1, char::len_utf8));
        let Some(part) = rest.get(..len) else { return };
        cut(later, part, base.wrapping_add(at), word);
        at = at.wrapping_add(len);
    }
}

impl Stage {
    /// Length in bytes of the first piece of `s`, which is not empty: the match at its start, or
    /// what lies before the first match.
    fn next(self, s: &str) -> usize {
        match self {
            Stage::Gpt2 => gpt2(s),
            Stage::Llama3(digits) => llama3(s, digits),
            Stage::Number => single(s, |c| class(c) == Class::Number),
            Stage::Numbers => runs(s, |c| class(c) == Class::Number),
            Stage::ThreeDigits => three_digits(s),
            Stage::Punct => runs(s, punct),
            Stage::FalconPunct => runs(s, |c| punct(c) || c == '`'),
            Stage::Newline => single(s, |c| c == '\r' || c == '\n'),
            Stage::SpaceLetters => spaced(s, |c| class(c) == Class::Letter),
            Stage::SpacePunct => spaced(s, |c| class(c) == Class::Punct),
            Stage::DeepseekLetters => spaced(s, deepseek_letter),
            Stage::DeepseekPunct => spaced(
                s,
                |c| matches!(c, '!'..='/' | ':'..='~' | '！'..='／' | '：'..='～' | '‘'..='‟' | '\u{3000}'..='。'),
            ),
            Stage::TrailingSpace => {
                let body = s.trim_end_matches(|c| class(c) == Class::Space).len();
                if body == 0 { s.len() } else { body }
            }
            Stage::DeepseekCjk => runs(
                s,
                |c| matches!(c, '\u{800}'..='\u{9fa5}' | '\u{ac00}'..='\u{d7ff}'),
            ),
        }
    }
}

fn punct(c: char) -> bool {
    class(c) == Class::Punct || matches!(c, '$' | '+' | '<' | '=' | '>' | '^' | '~' | '|')
}

fn deepseek_letter(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphabetic();
    }
    let mut bounds = DEEPSEEK_LETTERS.chars();
    while let (Some(first), Some(last)) = (bounds.next(), bounds.next()) {
        if c <= last {
            return c >= first;
        }
    }
    false
}

/// Length of the longest prefix of `s` whose characters are all in the set.
fn prefix(s: &str, set: impl Fn(char) -> bool) -> usize {
    s.find(|c| !set(c)).unwrap_or(s.len())
}

fn after(s: &str, len: usize) -> &str {
    s.get(len..).unwrap_or("")
}

/// `[set]`
fn single(s: &str, set: impl Fn(char) -> bool) -> usize {
    match s.chars().next() {
        Some(c) if set(c) => c.len_utf8(),
        _ => prefix(s, |c| !set(c)),
    }
}

/// `[set]+`
fn runs(s: &str, set: impl Fn(char) -> bool) -> usize {
    match prefix(s, &set) {
        0 => prefix(s, |c| !set(c)),
        n => n,
    }
}

/// `\s?[set]+`
fn spaced(s: &str, set: impl Fn(char) -> bool) -> usize {
    let space = |c: char| class(c) == Class::Space;
    let mut chars = s.chars();
    let first = chars.next().unwrap_or(' ');
    if set(first) || space(first) && chars.next().is_some_and(&set) {
        let len = first.len_utf8();
        return len.wrapping_add(prefix(after(s, len), set));
    }
    // The first match begins at a character of the set, or at the white space right before it.
    let start = s.find(&set).unwrap_or(s.len());
    let before = s.get(..start).unwrap_or("");
    match before.chars().next_back() {
        Some(c) if space(c) && start < s.len() => start.wrapping_sub(c.len_utf8()),
        _ => start,
    }
}

fn three_digits(s: &str) -> usize {
    let three = |w: &[u8]| w.iter().all(u8::is_ascii_digit);
    match s.as_bytes().windows(3).position(three) {
        Some(0) => 3,
        Some(n) => n,
        None => s.len(),
    }
}

/// `'s|'t|'re|'ve|'m|'ll|'d`, as `s` starts: its length, or 0. Folding case folds `ſ` to `s` too.
fn contraction(s: &str, fold: bool) -> usize {
    let mut chars = s.chars().map(|c| match c {
        'ſ' if fold => 's',
        _ if fold => c.to_ascii_lowercase(),
        _ => c,
    });
    if chars.next() != Some('\'') {
        return 0;
    }
    match (chars.next(), chars.next()) {
        (Some('s'), _) => 1usize.wrapping_add(s.chars().nth(1).map_or(0, char::len_utf8)),
        (Some('t' | 'm' | 'd'), _) => 2,
        (Some('r' | 'v'), Some('e')) | (Some('l'), Some('l')) => 3,
        _ => 0,
    }
}

/// `\s+(?!\S)|\s+` at the white space that `s` starts with: the last one stays for the next word.
fn spaces(s: &str, len: usize) -> usize {
    if len == s.len() {
        return len;
    }
    let last = s
        .get(..len)
        .and_then(|w| w.chars().next_back())
        .map_or(0, char::len_utf8);
    if last == len {
        len
    } else {
        len.wrapping_sub(last)
    }
}

/// Neither white space, letter nor number.
fn other(c: char) -> bool {
    !matches!(class(c), Class::Space | Class::Letter | Class::Number)
}

fn gpt2(s: &str) -> usize {
    let short = contraction(s, false);
    if short > 0 {
        return short;
    }
    let lead = usize::from(s.starts_with(' '));
    let body = after(s, lead);
    let len = match body.chars().next().map(class) {
        Some(Class::Letter) => prefix(body, |c| class(c) == Class::Letter),
        Some(Class::Number) => prefix(body, |c| class(c) == Class::Number),
        Some(Class::Space) | None => {
            return spaces(s, prefix(s, |c| class(c) == Class::Space));
        }
        Some(_) => prefix(body, other),
    };
    lead.wrapping_add(len)
}

fn llama3(s: &str, digits: usize) -> usize {
    let short = contraction(s, true);
    if short > 0 {
        return short;
    }
    let mut chars = s.chars();
    let first = chars.next().unwrap_or(' ');
    let kind = class(first);
    let letter = |c: char| class(c) == Class::Letter;
    let len = first.len_utf8();
    if kind == Class::Letter
        || !matches!(first, '\r' | '\n')
            && kind != Class::Number
            && chars.next().is_some_and(letter)
    {
        return len.wrapping_add(prefix(after(s, len), letter));
    }
    if kind == Class::Number {
        let number = |c: &char| class(*c) == Class::Number;
        return s
            .chars()
            .take_while(number)
            .take(digits)
            .map(char::len_utf8)
            .sum();
    }
    let lead = usize::from(first == ' ');
    let marks = prefix(after(s, lead), other);
    if marks > 0 {
        let end = lead.wrapping_add(marks);
        return end.wrapping_add(prefix(after(s, end), |c| matches!(c, '\r' | '\n')));
    }
    let space = prefix(s, |c| class(c) == Class::Space);
    match s.get(..space).and_then(|w| w.rfind(['\r', '\n'])) {
        Some(last) => last.wrapping_add(1),
        None => spaces(s, space),
    }
}
