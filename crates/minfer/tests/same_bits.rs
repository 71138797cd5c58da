//! The same bits whatever the threads, the prefill chunk, fusion, the way (prefill or decode), the
//! sequences a batch holds and the instruction set. Runs on aarch64 as well.

mod tiny;

use std::sync::Arc;

use minfer::engine::{EngineOptions, Generate, Measure, Model};
use minfer::graph::KvType;
use minfer::lanes::Isa;
use minfer::numeric::GgmlType;
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
    for n_batch in [5, 512] {
        add(
            format!("no packing, chunks of {n_batch}"),
            EngineOptions {
                pack: false,
                n_batch,
                ..base()
            },
        );
    }
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
            tiny::not_run(&format!("{} (this CPU lacks it)", isa.name()));
        }
    }
    if lacking > 0 {
        let all = Isa::ALL.len();
        tiny::not_run(&format!("{lacking} of {all} instruction sets"));
    }
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

fn check(name: &str, kv: KvType) -> Vec<u32> {
    check_model(name, &tiny::model(name), kv, kv)
}

/// Runs every way; returns the bits that all gave.
fn check_model(name: &str, model: &Arc<Model>, k: KvType, v: KvType) -> Vec<u32> {
    let mut first: Option<(Vec<u32>, Vec<u32>)> = None;
    for Way {
        name: way,
        mut options,
    } in ways()
    {
        (options.type_k, options.type_v) = (k, v);
        let engine = tiny::engine(model, &options);
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
    first.map(|f| f.1).unwrap_or_default()
}

/// FNV-1a over the logits' bits.
fn fingerprint(bits: &[u32]) -> u64 {
    let bytes = bits.iter().flat_map(|b| b.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Not a reference value (those come from elsewhere): the same number must come out on x86-64 and
/// on aarch64, which no one run can compare.
#[test]
fn same_bits_on_every_architecture() {
    use GgmlType::{BF16, F16, F32, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
    let mixed = tiny::quantized("llama", &[Q8_0, Q4_0, F16, Q5_1, Q4_1, BF16, Q5_0]);
    let seen = [
        check_model("llama, mixed formats", &mixed, KvType::F16, KvType::F16),
        check_model(
            "qwen3, Q8_0 and F32",
            &tiny::quantized("qwen3", &[Q8_0, F32]),
            KvType::F16,
            KvType::F16,
        ),
        check("gemma3", KvType::F16),
    ];
    let seen = seen.map(|bits| fingerprint(&bits));
    let everywhere = [
        0xb2e3_3cc0_756d_7059,
        0xe441_67fd_0352_2990,
        0xbfaf_6dee_95ae_2209,
    ];
    assert_eq!(seen, everywhere, "{seen:#x?}");
}

#[test]
fn same_bits_llama() {
    let _ = check("llama", KvType::F16);
}

#[test]
fn same_bits_llama3_untied_f32_kv() {
    let _ = check("llama3", KvType::F32);
}

#[test]
fn same_bits_qwen2_yarn() {
    let _ = check("qwen2-yarn", KvType::F16);
}

#[test]
fn same_bits_qwen3() {
    let _ = check("qwen3", KvType::F16);
}

/// Eight sequences decoded in one batch, from a depth that crosses a segment, each against itself alone.
fn check_batch(name: &str, model: &Arc<Model>) {
    let measure = Measure {
        n_seqs: 8,
        depth: 250,
        n_gen: 9,
        logits: true,
        ..Measure::default()
    };
    let n_vocab = model.hparams().n_vocab;
    let tokens = |seq| (0..measure.positions()).map(move |p| Measure::token(seq, p, n_vocab));
    let alone = tiny::engine(model, &ways().remove(0).options);
    let want: Vec<Vec<f32>> = (0..8)
        .map(|seq| tiny::logits_on(&alone, &tokens(seq).collect::<Vec<_>>(), false))
        .collect();
    assert_ne!(want[0], want[1], "the sequences differ");
    for mut way in ways() {
        (way.options.n_seqs, way.options.whole_windows) = (8, true);
        let engine = tiny::engine(model, &way.options);
        let (_, together) = tiny::measure(&engine, measure.clone());
        let bits = |rows: &[Vec<f32>]| -> Vec<u32> {
            rows.iter().flatten().map(|x| x.to_bits()).collect()
        };
        assert!(
            bits(&together) == bits(&want),
            "{name}, {}: other logits in a batch of 8",
            way.name
        );
    }
}

#[test]
fn same_bits_alone_and_in_a_batch_of_eight() {
    check_batch("gemma3", &tiny::model("gemma3"));
    let types = [GgmlType::Q4_1, GgmlType::Q8_0, GgmlType::F16];
    check_batch("llama, mixed formats", &tiny::quantized("llama", &types));
}

/// More rows than attention's blocks are done at once for: nodes run one by one.
#[test]
fn same_bits_in_a_batch_of_seventy() {
    let last_logits = |n_seqs| {
        let options = EngineOptions {
            n_seqs,
            n_ctx: 64,
            n_threads: Some(3),
            ..EngineOptions::default()
        };
        let engine = tiny::engine(&tiny::model("gemma3"), &options);
        let measure = Measure {
            n_seqs,
            depth: 30,
            n_gen: 4,
            logits: true,
            ..Measure::default()
        };
        let (_, logits) = tiny::measure(&engine, measure);
        assert_eq!(logits.len(), n_seqs);
        let bits = logits.into_iter().take(8).flatten().map(f32::to_bits);
        bits.collect::<Vec<u32>>()
    };
    assert!(
        last_logits(70) == last_logits(8),
        "other logits in a larger batch"
    );
}

#[test]
fn same_bits_qwen3_q8_0_kv() {
    let _ = check("qwen3", KvType::Q8_0);
}

#[test]
fn same_bits_gemma3_mixed_kv() {
    let model = tiny::model("gemma3");
    let _ = check_model("gemma3", &model, KvType::Q8_0, KvType::F16);
    let _ = check_model("gemma3", &model, KvType::F32, KvType::Q8_0);
}
