//! The flags of `minfer bench`.

use clap::{Args, ValueEnum};
use minfer::backend::cpu::threads::MAX_THREADS;
use minfer::engine::MAX_SEQS;
use minfer::graph::KvType;

use super::{MAX_BATCH, ModelArg, N_BATCH, within};

/// Most tokens of one test; the model's own limit is lower.
const MAX_TEST: usize = 1 << 24;
/// Most repetitions of a test: all are kept for the median.
const MAX_REPETITIONS: usize = 1 << 16;

/// `minfer bench`.
#[derive(Args)]
#[command(after_help = "\
As llama-bench, it times forward passes over made-up tokens, not the choice of tokens (--sample adds that). ppN: N prompt tokens \
in steps of --n-batch; tgN: N steps of one token; @ dD: after D tokens that went through the model untimed; xB: B sequences \
together, t/s is of all of them. Every combination of the lists is a test. Beside the speed stand the bytes of weights and KV \
that a token reads, barriers a layer, and allocations a token.

-b is not llama-bench's: rows at once are --batch (llama-batched-bench: -npl), tokens of a prompt step are --n-batch.")]
pub struct BenchArgs {
    #[command(flatten)]
    pub model: ModelArg,
    /// Prompt lengths; 0: no such test.
    #[arg(
        short = 'p',
        long,
        value_name = "N,…",
        value_delimiter = ',',
        value_parser = within(0, MAX_TEST),
        allow_negative_numbers = true,
        default_value = "512"
    )]
    pub n_prompt: Vec<usize>,
    /// Generation lengths; 0: no such test.
    #[arg(
        short = 'n',
        long,
        value_name = "N,…",
        value_delimiter = ',',
        value_parser = within(0, MAX_TEST),
        allow_negative_numbers = true,
        default_value = "128"
    )]
    pub n_gen: Vec<usize>,
    /// Depths: tokens in the context before a test; they go through the model, untimed.
    #[arg(
        short = 'd',
        long,
        value_name = "N,…",
        value_delimiter = ',',
        value_parser = within(0, MAX_TEST),
        allow_negative_numbers = true,
        default_value = "0"
    )]
    pub n_depth: Vec<usize>,
    /// Sequences decoded together (rows at once), in generation tests.
    #[arg(
        short = 'b',
        long,
        value_name = "N,…",
        value_delimiter = ',',
        value_parser = within(1, MAX_SEQS),
        allow_negative_numbers = true,
        default_value = "1"
    )]
    pub batch: Vec<usize>,
    /// Thread counts; default: one for each fast core this process may use.
    #[arg(short = 't', long, value_name = "N,…", value_delimiter = ',', value_parser = within(1, MAX_THREADS), allow_negative_numbers = true)]
    pub threads: Vec<usize>,
    /// Measured repetitions of each test.
    #[arg(short = 'r', long, value_name = "N", default_value_t = 5, value_parser = within(1, MAX_REPETITIONS), allow_negative_numbers = true)]
    pub repetitions: usize,
    /// Leave out the unmeasured first repetition of each test.
    #[arg(long)]
    pub no_warmup: bool,
    /// Most prompt tokens in one step (llama-bench: -ub).
    #[arg(long, visible_alias = "ubatch-size", value_name = "N", default_value_t = N_BATCH, value_parser = within(1, MAX_BATCH), allow_negative_numbers = true)]
    pub n_batch: usize,
    /// Formats of cached keys: f32, f16 or q8_0.
    #[arg(
        long,
        value_name = "TYPE,…",
        value_delimiter = ',',
        default_value = "f16"
    )]
    pub cache_type_k: Vec<KvType>,
    /// Formats of cached values: f32, f16 or q8_0.
    #[arg(
        long,
        value_name = "TYPE,…",
        value_delimiter = ',',
        default_value = "f16"
    )]
    pub cache_type_v: Vec<KvType>,
    /// Leave the weights in the file, as `run --no-pack` does.
    #[arg(long)]
    pub no_pack: bool,
    /// Time whole tokens, in generation tests: logits are read and each token is chosen by the default sampler chain.
    #[arg(long)]
    pub sample: bool,
    /// Measure this machine between tests (read bandwidth, int8 and f32 peaks, barrier) and show each
    /// speed as a share of its limit; a test between unequal probes is marked as disturbed.
    #[arg(long)]
    pub roofline: bool,
    /// Output format.
    #[arg(short = 'o', long, value_enum, default_value = "md")]
    pub output: BenchFormat,
}

/// How `bench` prints.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchFormat {
    /// A Markdown table.
    Md,
    /// An array of objects.
    Json,
    /// Comma-separated values with a header.
    Csv,
}
