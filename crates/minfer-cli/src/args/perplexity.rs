//! The flags of `minfer perplexity`.

use std::path::PathBuf;

use clap::Args;

use super::{EngineArgs, ModelArg, at_least};

/// `minfer perplexity`.
#[derive(Args)]
#[command(after_help = "\
As llama-perplexity: the text is cut into chunks of --n-ctx tokens (default 512), each begins anew (with BOS where the model \
wants one), and the second half of each chunk is judged. With --kl-base both models judge the same tokens, and how far their \
distributions lie apart is told: KL divergence of the base from the model, in nats.")]
pub struct PerplexityArgs {
    #[command(flatten)]
    pub model: ModelArg,
    /// The text (`-`: stdin).
    #[arg(short, long, value_name = "F")]
    pub file: PathBuf,
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Judge only the first N chunks; default: all.
    #[arg(long, value_name = "N", value_parser = at_least(1_usize), allow_negative_numbers = true)]
    pub chunks: Option<usize>,
    /// Compare with this model, of the same vocabulary: the unquantized one, say.
    #[arg(long, value_name = "MODEL")]
    pub kl_base: Option<String>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}
