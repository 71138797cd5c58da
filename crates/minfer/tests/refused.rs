//! Files whose values no model can have are refused as they are opened, in one line that names the value.

mod tiny;

use minfer::engine::{Engine, EngineOptions, Pooling};
use minfer::gguf::{Array, Value};
use minfer::sampling::SamplerParams;

/// Who embeds the engine says sizes that no flag lets through: none of their products is taken before they are looked at.
#[test]
fn sizes_of_an_engine_are_refused_by_their_option_also_beside_a_draft_model() {
    for name in ["llama", "gemma3"] {
        let model = tiny::model(name);
        for (option, draft) in ["n_ctx", "n_seqs", "n_batch"]
            .into_iter()
            .flat_map(|o| [(o, None), (o, Some(model.clone()))])
        {
            let size = |of: &str, usual| if of == option { usize::MAX } else { usual };
            let options = EngineOptions {
                n_ctx: size("n_ctx", 128),
                n_seqs: size("n_seqs", 1),
                n_batch: size("n_batch", 16),
                draft,
                ..EngineOptions::default()
            };
            let made = Engine::new(model.clone(), options, &mut |_, _| {});
            let said = made.err().map(|e| e.to_string()).expect("no such engine");
            let start = format!("{option} is {}: it must lie between 1 and ", usize::MAX);
            assert!(said.starts_with(&start), "{name}: {said}");
        }
    }
}

/// Why a changed file is refused.
fn refusal(name: &str, key: &str, value: Value) -> String {
    match tiny::changed(name, &[(key, value)]) {
        Ok(_) => panic!("{name} was opened with another {key}"),
        Err(e) => e.to_string(),
    }
}

/// A table of angles with a NaN is never the one that was prepared: the first forward pass would panic.
#[test]
fn numbers_that_are_not_finite_are_refused_by_key() {
    for (name, key) in [
        ("gemma3", "gemma3.rope.freq_base_swa"),
        ("gemma3", "gemma3.rope.freq_base"),
        ("llama", "llama.attention.layer_norm_rms_epsilon"),
        ("qwen2-yarn", "qwen2.rope.scaling.factor"),
        ("qwen2-yarn", "qwen2.rope.scaling.attn_factor"),
        ("qwen2-yarn", "qwen2.rope.scaling.yarn_attn_factor"),
        ("qwen2-yarn", "qwen2.rope.scaling.yarn_ext_factor"),
        ("qwen2-yarn", "qwen2.rope.scaling.yarn_beta_fast"),
        ("qwen2-yarn", "qwen2.rope.scaling.yarn_beta_slow"),
    ] {
        for value in [
            Value::F32(f32::NAN),
            Value::F32(f32::NEG_INFINITY),
            Value::F64(1e300),
        ] {
            let said = refusal(name, key, value);
            assert!(
                said.contains(&format!("'{key}'")) && said.contains("finite"),
                "{said}"
            );
        }
    }
}

#[test]
fn every_base_of_angles_is_at_least_one() {
    for key in ["gemma3.rope.freq_base_swa", "gemma3.rope.freq_base"] {
        for base in [0.0, -10_000.0, 0.5] {
            let said = refusal("gemma3", key, Value::F32(base));
            assert!(
                said.contains(&format!("'{key}' is {base}: must be at least 1")),
                "{said}"
            );
        }
    }
}

/// The tiny models have 272 tokens. Ids beyond the embedding have no row, rows beyond the vocabulary no text.
#[test]
fn a_tokenizer_of_another_size_than_the_embedding_is_refused() {
    for n in [271, 273] {
        let tokens = tiny::model("llama").metadata().clone();
        let tokens = tokens.str_arr("tokenizer.ggml.tokens").unwrap().unwrap();
        let more = (0..).map(|i| format!("more {i}"));
        let tokens = tokens.iter().map(str::to_owned).chain(more).take(n);
        let kinds = vec![1; n];
        let changed = [
            ("tokenizer.ggml.eos_token_id", Value::U32(7)),
            (
                "tokenizer.ggml.tokens",
                Value::Array(Array::Str(tokens.collect())),
            ),
            ("tokenizer.ggml.token_type", Value::Array(Array::I32(kinds))),
        ];
        let said = tiny::changed("llama", &changed)
            .err()
            .map(|e| e.to_string());
        let said = said.expect("refused");
        let says = format!("{n} tokens");
        assert!(said.contains(&says) && said.contains("272 rows"), "{said}");
    }
}

/// What a file says is shown escaped and cut, not whole.
#[test]
fn values_of_a_file_are_not_shown_raw() {
    let evil = || format!("evil\u{1b}[2J{}", "x".repeat(100_000));
    for (name, key) in [
        ("qwen2-yarn", "qwen2.rope.scaling.type"),
        ("llama", "general.architecture"),
    ] {
        let said = refusal(name, key, Value::Str(evil()));
        let n = said.len();
        assert!(
            n < 1000 && said.contains("evil\\u{1b}[2J"),
            "{n}: {said:.200}"
        );
    }
    let texts = [
        (Value::Str("0.6\n".to_owned()), r#"string "0.6\n""#),
        (Value::Str(evil()), r#"string "evil\u{1b}[2Jxxx"#),
        (Value::Bool(true), "bool true"),
    ];
    for (value, shown) in texts {
        let said = [pooling_refusal(value.clone()), sampling_refusal(value)];
        for said in said {
            assert!(said.contains(shown) && said.len() < 1000, "{said:.200}");
        }
    }
    let huge = Value::Array(Array::Str((0..100_000).map(|i| format!("{i}")).collect()));
    for said in [pooling_refusal(huge.clone()), sampling_refusal(huge)] {
        let named = said.contains("array of string") && said.len() < 1000;
        assert!(named, "{said:.200}");
    }
}

/// Why a file's kind of pooling is refused.
fn pooling_refusal(value: Value) -> String {
    let file = tiny::changed("llama", &[("llama.pooling_type", value)]).unwrap();
    Pooling::of(file.metadata()).unwrap_err().to_string()
}

/// Why a file's temperature is refused.
fn sampling_refusal(value: Value) -> String {
    let file = tiny::changed("llama", &[("general.sampling.temp", value)]).unwrap();
    let read = SamplerParams::with_model_defaults(file.metadata());
    read.unwrap_err().to_string()
}
