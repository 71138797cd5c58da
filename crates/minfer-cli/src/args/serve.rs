//! `minfer serve`'s flags.

use std::net::IpAddr;

use clap::Args;

use super::{EngineArgs, within};
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
}
