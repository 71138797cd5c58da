//! The same bits whatever the threads, the prefill chunk, fusion, the way (prefill or decode) and
//! the instruction set. Runs on aarch64 as well.

mod tiny;

use minfer::engine::{EngineOptions, Generate};
use minfer::graph::KvType;
use minfer::lanes::{Isa, Machine};
use minfer::sampling::SamplerParams;

/// One way to run a prompt.
struct Way {
    name: String,
    options: EngineOptions,
}

/// Every way that must not matter, the plain one first.
fn ways() -> Vec<Way> {
    let base = || EngineOptions {
        n_threads: Some(2),
        n_ctx: 512,
        ..EngineOptions::default()
    };
    let mut ways = vec![Way {
        name: "plain".into(),
        options: base(),
    }];
    let mut add = |name: String, options| ways.push(Way { name, options });
    for n in [1, 3] {
        add(
            format!("{n} threads"),
            EngineOptions {
                n_threads: Some(n),
                ..base()
            },
        );
    }
    for n in [1, 7, 32] {
        add(
            format!("chunks of {n}"),
            EngineOptions {
                n_batch: n,
                ..base()
            },
        );
    }
    add(
        "no fusion".into(),
        EngineOptions {
            fuse: false,
            ..base()
        },
    );
    add(
        "no fusion, 1 thread, chunks of 5".into(),
        EngineOptions {
            fuse: false,
            n_threads: Some(1),
            n_batch: 5,
            ..base()
        },
    );
    let mut lacking = 0;
    for isa in Isa::ALL {
        if isa.is_available() {
            add(
                isa.name().into(),
                EngineOptions {
                    cpu: Some(isa.name().into()),
                    ..base()
                },
            );
        } else {
            lacking += 1;
            println!("NOT RUN: {} (this CPU lacks it)", isa.name());
        }
    }
    println!("{} of {} instruction sets NOT RUN", lacking, Isa::ALL.len());
    assert!(Machine::available().len() + lacking == Isa::ALL.len());
    ways
}

fn greedy() -> SamplerParams {
    SamplerParams {
        temperature: 0.0,
        repeat_penalty: 1.0,
        ..SamplerParams::default()
    }
}

/// A prompt that crosses a segment of attention (256) and several pages.
fn long_prompt() -> Vec<u32> {
    (0..300u32).map(|i| (i * 7919 + i * i) % 256).collect()
}

fn check(name: &str, kv: KvType) {
    let model = tiny::model(name);
    let mut first: Option<(Vec<u32>, Vec<u32>)> = None;
    for Way {
        name: way,
        mut options,
    } in ways()
    {
        (options.type_k, options.type_v) = (kv, kv);
        let engine = tiny::engine(&model, &options);
        let prompt = long_prompt();
        let task = Generate {
            sampling: greedy(),
            n_predict: Some(24),
            ignore_eos: true,
            ..Generate::default()
        };
        let (ids, _, done) = tiny::generate(&engine, &prompt, task);
        assert_eq!((ids.len(), done.timings.prompt_n), (24, 300));
        let all = [prompt, ids.clone()].concat();
        let bits = tiny::logits_on(&engine, &all, false)
            .iter()
            .map(|x| x.to_bits())
            .collect();
        let seen = (ids, bits);
        let want = first.get_or_insert_with(|| seen.clone());
        assert!(*want == seen, "{name}, {way}: other tokens or logits");
    }
}

#[test]
fn same_bits_llama() {
    check("llama", KvType::F16);
}

#[test]
fn same_bits_llama3_untied_f32_kv() {
    check("llama3", KvType::F32);
}

#[test]
fn same_bits_qwen2_yarn() {
    check("qwen2-yarn", KvType::F16);
}

#[test]
fn same_bits_qwen3() {
    check("qwen3", KvType::F16);
}

#[test]
fn same_bits_gemma3_windowed() {
    check("gemma3", KvType::F16);
}
