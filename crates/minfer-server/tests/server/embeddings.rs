//! `POST /v1/embeddings`, beside llama.cpp's vectors.

use base64::Engine as _;
use minfer::graph::KvType;
use serde_json::{Value, json};

use crate::golden::{self, N_EMBD};
use crate::harness::Setup;

fn numbers(value: &Value) -> Vec<f64> {
    serde_json::from_value(value.clone()).expect("numbers")
}

/// The bytes are those that `numpy.frombuffer(…, dtype="float32")`, which the official client uses, reads.
fn from_base64(value: &Value) -> Vec<f64> {
    let text = value.as_str().expect("a text");
    let bytes = base64::engine::general_purpose::STANDARD.decode(text);
    let bytes = bytes.expect("base64");
    let floats = bytes.chunks_exact(4);
    floats
        .map(|b| f64::from(f32::from_le_bytes(b.try_into().expect("four"))))
        .collect()
}

fn close(got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len());
    for (a, b) in got.iter().zip(want) {
        assert!((a - b).abs() < 1e-4, "{a}, not {b}");
    }
}

#[test]
fn vectors_are_llama_cpp_s_in_every_shape() {
    let mut setup = Setup::of(&["qwen3"]);
    (setup.engine.type_k, setup.engine.type_v) = (KvType::F32, KvType::F32);
    let server = setup.start();
    let prompts = golden::prompts();
    let ask = |body: Value| {
        let reply = server.post("/v1/embeddings", &body);
        assert_eq!(reply.status, 200, "{}", reply.text);
        reply.json()
    };
    let reply = ask(json!({"input": prompts}));
    assert_eq!(reply["object"], "list");
    let total: usize = prompts.iter().map(Vec::len).sum();
    assert_eq!(
        reply["usage"],
        json!({"prompt_tokens": total, "total_tokens": total})
    );
    assert_eq!(reply["data"].as_array().unwrap().len(), prompts.len());
    for i in 0..prompts.len() {
        let entry = &reply["data"][i];
        assert_eq!(
            (&entry["object"], &entry["index"]),
            (&json!("embedding"), &json!(i))
        );
        close(
            &numbers(&entry["embedding"]),
            &golden::embedding("qwen3", i),
        );
    }
    let one = ask(json!({"input": prompts[9], "encoding_format": "base64"}));
    let vector = from_base64(&one["data"][0]["embedding"]);
    close(&vector, &golden::embedding("qwen3", 9));
    let short = ask(json!({"input": prompts[9], "encoding_format": "base64", "dimensions": 10}));
    let vector = from_base64(&short["data"][0]["embedding"]);
    let golden = golden::embedding("qwen3", 9)[..10].to_vec();
    close(&vector, &golden::unit(golden));
}

#[test]
fn texts_are_their_tokens_and_name_no_control_tokens() {
    let server = Setup::of(&["llama"]).start();
    // The tiny vocabulary has a token for each byte, and no merges of these.
    let reply = server
        .post("/embeddings", &json!({"input": ["XY", [88, 89]]}))
        .json();
    assert_eq!(reply["data"][0]["embedding"], reply["data"][1]["embedding"]);
    assert_eq!(reply["usage"]["total_tokens"], 4);
    let control = server
        .post("/v1/embeddings", &json!({"input": "<|im_end|>"}))
        .json();
    assert!(
        control["usage"]["total_tokens"].as_u64() > Some(1),
        "{control}"
    );
}

#[test]
fn what_can_t_be_honoured_is_refused_by_name() {
    let server = Setup::of(&["llama"]).start();
    for (body, param) in [
        (json!({}), "input"),
        (json!({"input": ""}), "input"),
        (json!({"input": ["a", ""]}), "input"),
        (json!({"input": 3}), "input"),
        (json!({"input": "a", "dimensions": 0}), "dimensions"),
        (
            json!({"input": "a", "dimensions": N_EMBD + 1}),
            "dimensions",
        ),
        (
            json!({"input": "a", "encoding_format": "int8"}),
            "encoding_format",
        ),
    ] {
        let reply = server.post("/v1/embeddings", &body);
        assert_eq!(reply.status, 400, "{body}: {}", reply.text);
        assert_eq!(reply.json()["error"]["param"], param, "{}", reply.text);
    }
    let long = json!({"input": vec![1; 257]});
    let reply = server.post("/v1/embeddings", &long);
    assert_eq!(reply.json()["error"]["code"], "context_length_exceeded");
}
