//! From a spec to a constraint.

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar};
use llguidance::derivre::{ExprRef, RegexBuilder};
use llguidance::earley::{CGrammar, SlicedBiasComputer};
use llguidance::toktrie::{InferenceCapabilities, TokEnv};
use llguidance::{Logger, Matcher, ParserFactory, panic_utils};

use super::grammar::Grammar;
use super::recent::Recent;
use super::tokens::Tokens;
use super::words::{NAMES_TOKENS, TOO_WIDE, tidy};
use super::{Constraint, ConstraintError, ConstraintSpec, gbnf, place, repeats, schema, shape};
use crate::tokenizer::Tokenizer;

/// Longest source in bytes.
const LONGEST: usize = 1 << 18;
/// Most definitions of a Lark grammar: each may lie within another, and that is stack.
const DEFINITIONS: usize = 1024;
/// Most definitions that a GBNF grammar is translated to; for the same reason.
const PARTS: usize = 16_384;
/// Stack of the thread that compiles; only what is used is ever memory.
const STACK: usize = 256 << 20;

/// Said of what an answer could only fulfil by saying nothing.
pub(super) const ONLY_EMPTY: &str =
    "only the empty text fulfils it: the answer could only be empty";
/// Said of what no answer could fulfil.
const NOTHING: &str = "it matches nothing: there is no text that it allows";

/// Compiles constraints for one vocabulary.
pub struct Constraints {
    tokens: Arc<Tokens>,
    factory: ParserFactory,
    pub(super) recent: Recent,
}

impl Constraints {
    /// Takes in the vocabulary: up to a second and some 20 MB for 150,000 tokens.
    ///
    /// # Errors
    /// A vocabulary that is too large, or that has no text.
    pub fn new(tokenizer: &Tokenizer) -> Result<Constraints, ConstraintError> {
        let tokens = Arc::new(Tokens::new(tokenizer)?);
        let caps = InferenceCapabilities::default();
        let slices = SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&tokens.env, caps, &slices).map_err(|e| {
            ConstraintError::Vocabulary {
                why: tidy(&e.to_string()),
            }
        })?;
        factory.quiet();
        *factory.limits_mut() = limits();
        Ok(Constraints {
            tokens,
            factory,
            recent: Recent::default(),
        })
    }

    /// Compiles a spec and tries its first step. The last few are kept: several answers, and requests that ask for the same
    /// again or at once, do not wait for it twice.
    ///
    /// # Errors
    /// A spec that says nothing or nothing that can be followed, by its part; one that takes more time or memory than the limits
    /// allow; text that the vocabulary can't begin.
    pub fn compile(&self, spec: &ConstraintSpec) -> Result<Box<dyn Constraint>, ConstraintError> {
        let grammar = self.recent.grammar(spec, || self.compile_apart(spec))?;
        Ok(Box::new(grammar.apart()))
    }

    /// Whether a spec can be compiled; once that has been seen, it is not tried again. What is compiled for that is not kept.
    ///
    /// # Errors
    /// As [`Constraints::compile`].
    pub fn check(&self, spec: &ConstraintSpec) -> Result<(), ConstraintError> {
        if !self.recent.is_fine(spec) {
            self.recent.counted(|| self.compile_apart(spec))?;
            self.recent.fine(spec);
        }
        Ok(())
    }

    /// Whether a spec says what it may: what is seen without compiling it, which takes its time.
    ///
    /// # Errors
    /// A spec that is too long; a schema that no grammar can follow, by its part.
    pub fn read(&self, spec: &ConstraintSpec) -> Result<(), ConstraintError> {
        short_enough(spec)?;
        match spec {
            ConstraintSpec::JsonSchema(text) => {
                let read = schema::read(text).map(drop);
                read.map_err(|why| refuse(spec.kind(), &why))
            }
            _ => Ok(()),
        }
    }

    /// How often something was compiled.
    pub fn compiled(&self) -> u64 {
        self.recent.compiled()
    }

    /// Compiles on a thread of its own.
    fn compile_apart(&self, spec: &ConstraintSpec) -> Result<Grammar, ConstraintError> {
        apart(spec, || self.compile_here(spec))
    }

    fn compile_here(&self, spec: &ConstraintSpec) -> Result<Grammar, ConstraintError> {
        let kind = spec.kind();
        let env = Some(self.tokens.env.clone());
        let init = parsed(top_level(spec)?, env).map_err(|e| explained(spec, &e.all))?;
        // What is refused from here on is too much together: no part is at fault.
        let parser = self
            .factory
            .create_parser_from_init_default(init)
            .map_err(|e| refuse(kind, &placed(spec, &format!("{e:#}"))))?;
        let marks: &[u32] = match spec {
            ConstraintSpec::Marked { tokens, .. } => tokens,
            _ => &[],
        };
        supported(spec, parser.parser.grammar())?;
        let matcher = Matcher::new(Ok(parser));
        Grammar::new(matcher, Arc::clone(&self.tokens), marks, kind)
    }
}

fn short_enough(spec: &ConstraintSpec) -> Result<(), ConstraintError> {
    let (kind, got) = (spec.kind(), spec.text().len());
    match got > LONGEST {
        false => Ok(()),
        true => Err(ConstraintError::Size {
            kind,
            got,
            unit: "bytes",
            limit: LONGEST,
        }),
    }
}

/// See [`ConstraintSpec::check`].
pub(super) fn check(spec: &ConstraintSpec) -> Result<(), ConstraintError> {
    // Which tokens it may name, only a vocabulary tells.
    if matches!(spec, ConstraintSpec::Marked { .. }) {
        return short_enough(spec).and_then(|()| top_level(spec).map(drop));
    }
    apart(spec, || {
        let init = parsed(top_level(spec)?, None).map_err(|e| explained(spec, &e.all))?;
        let refused = |e: String| refuse(spec.kind(), &placed(spec, &e));
        let grammar = grammar_of(init).map_err(refused)?;
        supported(spec, &grammar)
    })
}

/// What llguidance says of what it refuses.
pub(super) struct Refusal {
    /// All of it.
    pub(super) all: String,
    /// Without what it happened within.
    pub(super) cause: String,
}

/// What is to be compiled, read: the step that refuses what a spec says. It recurses: for a thread of its own.
pub(super) fn parsed(top: TopLevelGrammar, env: Option<TokEnv>) -> Result<GrammarInit, Refusal> {
    let read = panic_utils::catch_unwind(AssertUnwindSafe(|| {
        let (grammar, lexer) = GrammarInit::Serialized(top).to_internal(env, limits())?;
        Ok(GrammarInit::Internal(grammar, lexer))
    }));
    read.map_err(|e| Refusal {
        all: format!("{e:#}"),
        cause: e.root_cause().to_string(),
    })
}

/// A grammar without a vocabulary, of what was read; or why there is none. It recurses, too.
fn grammar_of(init: GrammarInit) -> Result<Arc<CGrammar>, String> {
    let mut logger = Logger::new(0, 0);
    let compiled = panic_utils::catch_unwind(AssertUnwindSafe(|| {
        init.to_cgrammar(None, &mut logger, limits(), Vec::new())
    }));
    compiled.map_err(|e| format!("{e:#}"))
}

/// What llguidance refuses, with its place.
fn explained(spec: &ConstraintSpec, message: &str) -> ConstraintError {
    let fault = match spec {
        ConstraintSpec::JsonSchema(text) => place::at_fault(text, message),
        _ => None,
    };
    let why = fault.unwrap_or_else(|| placed(spec, message).into_owned());
    refuse(spec.kind(), &why)
}

/// Does it on a thread of its own: grammars nest, and what walks them recurses, not on the caller's stack.
fn apart<T: Send>(
    spec: &ConstraintSpec,
    work: impl FnOnce() -> Result<T, ConstraintError> + Send,
) -> Result<T, ConstraintError> {
    let kind = spec.kind();
    short_enough(spec)?;
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new()
            .name("minfer-constraint".to_owned())
            .stack_size(STACK);
        let thread = builder
            .spawn_scoped(scope, work)
            .map_err(|e| ConstraintError::Thread {
                kind,
                why: e.to_string(),
            })?;
        thread
            .join()
            .unwrap_or_else(|_| Err(refuse(kind, "its compiler failed")))
    })
}

/// What llguidance is to compile.
fn top_level(spec: &ConstraintSpec) -> Result<TopLevelGrammar, ConstraintError> {
    let kind = spec.kind();
    let refused = |why: String| refuse(kind, &why);
    match spec {
        ConstraintSpec::JsonObject => Ok(schema::any_object()),
        ConstraintSpec::JsonSchema(text) => schema::read(text).map_err(refused),
        ConstraintSpec::Regex(text) if text.is_empty() => Err(refuse(kind, ONLY_EMPTY)),
        ConstraintSpec::Regex(text) => {
            repeats::in_regex(text).map_err(refused)?;
            Ok(TopLevelGrammar::from_regex(text))
        }
        ConstraintSpec::Lark(lark) | ConstraintSpec::Marked { lark, .. } => {
            check_lark(kind, lark)?;
            Ok(TopLevelGrammar::from_lark(lark.clone()))
        }
        ConstraintSpec::Gbnf(text) => {
            let lark = gbnf::to_lark(text).map_err(refused)?;
            let got = lark.lines().count();
            if got > PARTS {
                let unit = "groups";
                return Err(ConstraintError::Size {
                    kind,
                    got,
                    unit,
                    limit: PARTS,
                });
            }
            Ok(TopLevelGrammar::from_lark(lark))
        }
    }
}

/// Most items of a row of the parser, which is searched for every item that comes to it.
const ROW: usize = 2000;

/// What a grammar may cost. llguidance's defaults fit the largest schemas in use; a state is some 2 kB. Items count more than once, see [`ROW`].
fn limits() -> ParserLimits {
    ParserLimits {
        max_items_in_row: ROW,
        initial_lexer_fuel: 1_000_000,
        step_lexer_fuel: 1_000_000,
        step_max_items: 50_000,
        max_lexer_states: 50_000,
        max_grammar_size: 500_000,
        precompute_large_lexemes: true,
        verbose_errors: false,
    }
}

/// Refuses a Lark grammar that is too large to be read, or asks for another temperature or for what no answer is long
/// enough for. One with markers was made here, but may come back in a session file.
fn check_lark(kind: &'static str, text: &str) -> Result<(), ConstraintError> {
    let got = text.lines().filter(|l| l.contains(':')).count();
    if got > DEFINITIONS {
        let unit = "definitions";
        return Err(ConstraintError::Size {
            kind,
            got,
            unit,
            limit: DEFINITIONS,
        });
    }
    repeats::in_lark(text).map_err(|why| refuse(kind, &why))
}

/// Refuses what a grammar may say that nobody here would do.
fn supported(spec: &ConstraintSpec, grammar: &CGrammar) -> Result<(), ConstraintError> {
    let refused = |why: &str| Err(refuse(spec.kind(), why));
    let marked = matches!(spec, ConstraintSpec::Marked { .. });
    let lexer = grammar.lexer_spec();
    if lexer.special_token_rx.is_some() && !marked {
        return refused(NAMES_TOKENS);
    }
    if lexer.has_stop {
        return refused(
            "stop= is not supported (suffix= is), nor a rule that ends at the end of the text",
        );
    }
    if let Some(round) = shape::endless(grammar) {
        return refused(&endless(spec, &round));
    }
    // The row would be made first, whole and again for each way into it, and then refused.
    if shape::wide(grammar, ROW) {
        return refused(TOO_WIDE);
    }
    if shape::dense(grammar) {
        return refused(
            "too many alternatives go on with too many alternatives: it would take too long",
        );
    }
    if matches!(spec, ConstraintSpec::Regex(text) if matches_nothing(text)) {
        return refused(NOTHING);
    }
    Ok(())
}

/// Whether no text at all matches a regular expression that can be compiled: its classes that hold no character (`[^\s\S]`) leave no way
/// through it.
fn matches_nothing(regex: &str) -> bool {
    let built = RegexBuilder::new().mk_regex(regex);
    built.is_ok_and(|whole| whole == ExprRef::NO_MATCH)
}

/// Says of a spec that nothing fulfils it. `round`: the rules that need each other; those of a schema have no names.
fn endless(spec: &ConstraintSpec, round: &[String]) -> String {
    if !matches!(
        spec,
        ConstraintSpec::Lark(_) | ConstraintSpec::Marked { .. }
    ) {
        return "it needs itself without end: what is required in it refers back to what it lies in, so no text is ever complete"
            .to_owned();
    }
    // What stands for a part of a rule has a made name.
    let known = |name: &&String| spec.text().contains(name.as_str());
    let names: Vec<&str> = round.iter().filter(known).map(String::as_str).collect();
    let first = names.first().copied().unwrap_or("start");
    format!(
        "the rule {first} has no end: every way through it comes back to it ({} -> {first})",
        if names.is_empty() {
            first.to_owned()
        } else {
            names.join(" -> ")
        }
    )
}

/// What llguidance says of a spec, its place (`at 2(4): …`) in words. Places in a translation mean nothing to who wrote the grammar.
fn placed<'a>(spec: &ConstraintSpec, message: &'a str) -> Cow<'a, str> {
    let from = message.strip_prefix("at ").unwrap_or(message);
    let split = from
        .split_once("): ")
        .and_then(|(place, said)| place.split_once('(').map(|(l, c)| (l, c, said)));
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match (spec, split) {
        (ConstraintSpec::Gbnf(_) | ConstraintSpec::Regex(_), Some((line, _, said)))
            if number(line) || message.starts_with("at ") =>
        {
            said.into()
        }
        (ConstraintSpec::Lark(_), Some((line, column, said))) if number(line) && number(column) => {
            format!("line {line}, column {column}: {said}").into()
        }
        _ => message.into(),
    }
}

fn refuse(kind: &'static str, why: &str) -> ConstraintError {
    ConstraintError::Spec {
        kind,
        why: tidy(why),
    }
}
