//! The `minfer` command.
//!
//! Exit codes: 0 done (also when the reader of our output has gone away), 1 a user's or model's
//! error, 2 wrong usage, 130 interrupted. Answers go to stdout, everything else to stderr.

mod allocations;
mod args;
mod commands;
mod files;
mod flags;
mod models;
mod output;
mod sampling;

use clap::Parser;

use args::{Cli, Command};
use output::Failure;

fn main() {
    let argv: Vec<_> = std::env::args_os().collect();
    if let Some(message) = args::no_command(&argv, |name| models::known(name).is_ok()) {
        output::exit(2, &message);
    }
    let argv = args::with_own_names(args::with_default_command(argv));
    let argv = argv.unwrap_or_else(|message| output::exit(2, &message));
    let cli = Cli::try_parse_from(argv).unwrap_or_else(|e| args::refuse(&e));
    start_logging();
    // What was said is flushed token by token, so there is nothing to save here; a server has its own way to end.
    if !matches!(cli.command, Command::Serve(_))
        && let Err(e) = ctrlc::set_handler(|| std::process::exit(130))
    {
        tracing::warn!("interrupts are not handled: {e}");
    }
    let result = match cli.command {
        Command::Run(a) => commands::run::run(*a),
        Command::Serve(a) => commands::serve::serve(*a),
        Command::Pull(a) => commands::pull::pull(&a),
        Command::List(a) => commands::pull::list(&a),
        Command::Inspect(a) => commands::inspect::inspect(&a),
        Command::Tokenize(a) => commands::tokenize::tokenize(&a),
        Command::Graph(a) => commands::graph::graph(&a),
        Command::Logits(a) => commands::logits::logits(&a),
        Command::Bench(a) => commands::bench::bench(&a),
        Command::Perplexity(a) => commands::perplexity::perplexity(&a),
    };
    match result {
        Ok(()) | Err(Failure::ClosedPipe) => {}
        Err(Failure::Usage(message)) => output::exit(2, &message),
        Err(Failure::Error(message)) => output::exit(1, &message),
    }
}

/// Warnings to stderr; `MINFER_LOG` (as `RUST_LOG`) shows more.
fn start_logging() {
    use tracing_subscriber::EnvFilter;
    let filter = match std::env::var("MINFER_LOG") {
        Ok(text) => EnvFilter::try_new(&text)
            .unwrap_or_else(|e| output::exit(2, &format!("MINFER_LOG is '{text}': {e}"))),
        Err(_) => EnvFilter::new("warn"),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .without_time()
        .with_target(false)
        .log_internal_errors(false) // stderr's reader may go away too
        .init();
}
