//! Time of one sampling step: `cargo run --release -p minfer --example sampler_speed`.

use std::time::Instant;

use minfer::sampling::{Sampler, SamplerParams, log_probs};

fn mirostat(version: u32) -> SamplerParams {
    SamplerParams {
        mirostat: version,
        ..SamplerParams::default()
    }
}

fn main() -> Result<(), minfer::sampling::SamplingError> {
    for n in [49_152usize, 151_936, 262_144] {
        let logits: Vec<f32> = (0..n as u32)
            .map(|i| ((i.wrapping_mul(2_654_435_761) >> 8) as f32 / 1.7e7).powi(8) * 18.0 - 6.0)
            .collect();
        let all = SamplerParams {
            top_k: 0,
            ..SamplerParams::default()
        };
        for (name, params) in [
            ("defaults", SamplerParams::default()),
            ("top_k 0", all),
            (
                "greedy",
                SamplerParams {
                    temperature: 0.0,
                    ..SamplerParams::default()
                },
            ),
            (
                "DRY over 32,000 tokens",
                SamplerParams {
                    dry_multiplier: 0.8,
                    dry_breakers: Vec::new(),
                    ..SamplerParams::default()
                },
            ),
            (
                "top_n_sigma 1",
                SamplerParams {
                    top_n_sigma: 1.0,
                    ..SamplerParams::default()
                },
            ),
            ("mirostat 1", mirostat(1)),
            ("mirostat 2", mirostat(2)),
        ] {
            let mut sampler = Sampler::new(params, n)?;
            if name.starts_with("DRY") {
                (0..32_000).for_each(|t| sampler.accept(t * t % 997));
            }
            (0..64).for_each(|t| sampler.accept(t * 31));
            let mut times = Vec::new();
            for position in 0..200 {
                let mut copy = logits.clone();
                let start = Instant::now();
                sampler.sample(&mut copy, position)?;
                times.push(start.elapsed().as_secs_f64() * 1e6);
            }
            times.sort_by(f64::total_cmp);
            println!(
                "{n:7} tokens, {name:22}: median {:7.1} us, fastest {:7.1} us",
                times[100], times[0]
            );
        }
        let mut times = Vec::new();
        for _ in 0..50 {
            let start = Instant::now();
            std::hint::black_box(log_probs(&logits, 7, 20)?);
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        times.sort_by(f64::total_cmp);
        println!("{n:7} tokens, log_probs of 20: median {:7.1} us", times[25]);
    }
    Ok(())
}
