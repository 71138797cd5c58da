//! `minfer serve`'s flags.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{EngineArgs, size, within};
use minfer::engine::MAX_SEQS;

/// `minfer serve`.
#[derive(Args)]
pub struct ServeArgs {
    /// Models to serve, each as MODEL or NAME=MODEL; the first is loaded at once, the others when they are asked for.
    #[arg(required = true)]
    pub models: Vec<String>,
    /// Address to listen on. Others than this machine's own reach it on 0.0.0.0.
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// Port to listen on; 0: any that is free.
    #[arg(long, value_name = "N", default_value_t = 8080)]
    pub port: u16,
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Requests answered at once; others wait.
    #[arg(long, alias = "np", value_name = "N", default_value_t = 8, value_parser = within(1, MAX_SEQS), allow_negative_numbers = true)]
    pub parallel: usize,
    /// Requests that may wait; more are refused with 429.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = within(1, 1_usize << 20), allow_negative_numbers = true)]
    pub queue: usize,
    /// Memory that loaded models may take together, as 8G: idle ones make room for one that is asked for. What a
    /// model takes is counted as its weights and its KV cache when it is full.
    #[arg(long, value_name = "SIZE", value_parser = size, allow_hyphen_values = true)]
    pub models_memory: Option<u64>,
    /// Most models loaded at once.
    #[arg(long, value_name = "N", value_parser = within(1, 1_usize << 20), allow_negative_numbers = true)]
    pub models_max: Option<usize>,
    /// Seconds after which an idle model other than the first is unloaded; -1: never.
    #[arg(long, value_name = "SECONDS", default_value = "-1", value_parser = seconds_or_never, allow_negative_numbers = true)]
    pub keep_alive: Duration,
    #[command(flatten)]
    pub limits: LimitArgs,
    #[command(flatten)]
    pub access: AccessArgs,
}

/// How much of everything a client may have.
#[derive(Args)]
#[command(next_help_heading = "Limits")]
pub struct LimitArgs {
    /// Most bytes of a request's body, as 500K or 16M; more are refused with 413.
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = size, allow_hyphen_values = true)]
    pub max_body: u64,
    /// Most open connections; more are refused with 503.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = within(1, 1_usize << 20), allow_negative_numbers = true)]
    pub max_connections: usize,
    /// Seconds a connection may keep silent before and within a request.
    #[arg(long, value_name = "SECONDS", default_value = "75", value_parser = some_seconds, allow_negative_numbers = true)]
    pub idle_timeout: Duration,
    /// Seconds a request may take, its answer included; 0: as long as it likes. More: 504, or an error in the stream.
    #[arg(long, value_name = "SECONDS", default_value = "3600", value_parser = seconds, allow_negative_numbers = true)]
    pub request_timeout: Duration,
    /// Seconds that running requests may go on after SIGTERM or Ctrl-C; a second signal ends the server at once.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds, allow_negative_numbers = true)]
    pub drain_timeout: Duration,
}

/// Who may come in.
#[derive(Args)]
#[command(next_help_heading = "Access")]
pub struct AccessArgs {
    /// Ask for this key, as `Authorization: Bearer KEY` or `x-api-key: KEY` (repeat for more). Others on this machine
    /// can see it among the processes: --api-key-file and MINFER_API_KEY keep it to yourself.
    #[arg(long, value_name = "KEY")]
    pub api_key: Vec<String>,
    /// A file of keys, one a line; empty lines and those that begin with # do not count.
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// A name under which the server may be asked besides localhost (repeat for more; *: any).
    #[arg(long, value_name = "NAME")]
    pub allowed_host: Vec<String>,
    /// Let web pages of this origin use the server, as https://example.org (repeat for more; *: any).
    #[arg(long, value_name = "ORIGIN")]
    pub cors_origin: Vec<String>,
    /// Certificate for https, PEM, with those that vouch for it.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
}

/// Takes seconds, or -1: for ever, which is [`Duration::MAX`].
fn seconds_or_never(text: &str) -> Result<Duration, String> {
    match text {
        "-1" => Ok(Duration::MAX),
        _ => seconds(text).map_err(|e| format!("{e}, or -1")),
    }
}

/// Takes seconds, more than none.
fn some_seconds(text: &str) -> Result<Duration, String> {
    let some = seconds(text).ok().filter(|d| !d.is_zero());
    some.ok_or_else(|| "it must be a number of seconds above 0".to_owned())
}

/// Takes seconds: a number from 0 up.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|s| *s <= 1e9);
    let duration = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
    duration.ok_or_else(|| "it must be a number of seconds from 0 up".to_owned())
}
