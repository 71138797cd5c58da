//! `POST /v1/completions`.

use minfer::gguf::Value as Meta;
use minfer::graph::KvType;
use serde_json::{Value, json};

use crate::golden;
use crate::harness::{Running, Setup};
use crate::models::{FIRST_FREE, Variant, saying};

fn exact(model: &str) -> Running {
    let mut setup = Setup::of(&[model]);
    (setup.engine.type_k, setup.engine.type_v) = (KvType::F32, KvType::F32);
    setup.start()
}

fn ok(server: &Running, body: &Value) -> Value {
    let reply = server.post("/v1/completions", body);
    assert_eq!(reply.status, 200, "{body}: {}", reply.text);
    reply.json()
}

fn close(got: &Value, want: f64) {
    let got = got.as_f64().expect("a number");
    assert!((got - want).abs() < 2e-3, "{got}, not {want}");
}

fn greatest(row: &[f64]) -> usize {
    (0..row.len())
        .max_by(|a, b| row[*a].total_cmp(&row[*b]))
        .unwrap()
}

/// What lm-eval sends for a log-likelihood: token lists, echo, one token more. The numbers are those of `transformers`.
#[test]
fn echo_gives_every_prompt_token_its_log_probability() {
    let server = exact("llama");
    let prompts = &golden::prompts()[4..6];
    for max_tokens in [0, 1] {
        let body = json!({"prompt": prompts, "echo": true, "logprobs": 2, "max_tokens": max_tokens, "temperature": 0});
        let reply = ok(&server, &body);
        for (p, ids) in prompts.iter().enumerate() {
            let choice = &reply["choices"][p];
            assert_eq!(choice["index"], p);
            assert_eq!(choice["finish_reason"], "length");
            let lists = &choice["logprobs"];
            let golden = golden::logprobs("llama", 4 + p);
            let own = lists["token_logprobs"].as_array().unwrap();
            assert_eq!(own.len(), ids.len() + max_tokens);
            assert_eq!(own[0], Value::Null);
            assert_eq!(lists["top_logprobs"][0], Value::Null);
            for (row, id) in ids.iter().enumerate().skip(1) {
                close(&own[row], golden[row - 1][*id as usize]);
            }
            for (row, top) in lists["top_logprobs"].as_array().unwrap()[1..]
                .iter()
                .enumerate()
            {
                let top = top.as_object().unwrap();
                assert!((2..=3).contains(&top.len()), "{top:?}");
                let best = top.values().map(|v| v.as_f64().unwrap());
                let best = best.fold(f64::NEG_INFINITY, f64::max);
                close(&json!(best), golden[row][greatest(&golden[row])]);
            }
            if max_tokens == 1 {
                let last = golden.last().unwrap();
                close(&own[ids.len()], last[greatest(last)]);
            }
        }
        let total: usize = prompts.iter().map(Vec::len).sum();
        assert_eq!(reply["usage"]["prompt_tokens"], total);
        assert_eq!(reply["usage"]["completion_tokens"], 2 * max_tokens);
    }
}

#[test]
fn offsets_count_characters_of_what_is_returned() {
    let model = saying(&[b"xy", b"b"]).write();
    let server = Setup::of(&[model.path()]).start();
    let body = json!({"prompt": "aé", "echo": true, "logprobs": 1});
    let choice = &ok(&server, &body)["choices"][0];
    assert_eq!(choice["text"], "aéxyb");
    assert_eq!(choice["finish_reason"], "stop");
    let lists = &choice["logprobs"];
    let tokens = json!(["a", "bytes:\\xc3", "bytes:\\xa9", "xy", "b", "<|im_end|>"]);
    assert_eq!(lists["tokens"], tokens);
    assert_eq!(lists["text_offset"], json!([0, 1, 1, 2, 4, 5]));
    // Its logit is 80 and all others are 0 (see `saying`).
    assert_eq!(lists["top_logprobs"][3], json!({"xy": 0.0}));
    let body = json!({"prompt": "aé", "logprobs": 1});
    let choice = &ok(&server, &body)["choices"][0];
    assert_eq!(choice["logprobs"]["text_offset"], json!([0, 2, 3]));
}

#[test]
fn a_token_that_is_no_character_is_written_in_bytes() {
    let model = saying(&[&[0xc3], &[0xa9]]).write();
    let server = Setup::of(&[model.path()]).start();
    let body = json!({"prompt": "x", "logprobs": 0});
    let choice = &ok(&server, &body)["choices"][0];
    assert_eq!(choice["text"], "é");
    let lists = &choice["logprobs"];
    let tokens = json!(["bytes:\\xc3", "bytes:\\xa9", "<|im_end|>"]);
    assert_eq!(lists["tokens"], tokens);
    assert_eq!(lists["text_offset"], json!([0, 0, 1]));
}

#[test]
fn prompts_times_n_choices_in_order_also_more_than_there_are_places() {
    let server = Setup::of(&["llama"]).start();
    let prompts = ["one", "two", "three", "four", "five", "six", "seven"];
    let body = json!({"prompt": prompts, "n": 2, "temperature": 0, "max_tokens": 5, "echo": true});
    let reply = ok(&server, &body);
    let choices = reply["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 14);
    for (p, prompt) in prompts.iter().enumerate() {
        let alone = ok(
            &server,
            &json!({"prompt": prompt, "temperature": 0, "max_tokens": 5}),
        );
        let alone = alone["choices"][0]["text"].as_str().unwrap();
        for c in 0..2 {
            let choice = &choices[2 * p + c];
            assert_eq!(choice["index"], 2 * p + c);
            assert_eq!(choice["text"], format!("{prompt}{alone}"));
        }
    }
    let bytes: usize = prompts.iter().map(|p| p.len()).sum();
    assert_eq!(reply["usage"]["prompt_tokens"], bytes);
    assert_eq!(reply["usage"]["completion_tokens"], 14 * 5);
}

#[test]
fn a_stream_says_what_the_whole_answer_says() {
    let server = Setup::of(&["llama"]).start();
    let mut body = json!({"prompt": ["Hi", [72, 105]], "n": 2, "seed": 5, "logprobs": 1, "echo": true, "max_tokens": 6});
    let whole = ok(&server, &body);
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let chunks = server.post("/completions", &body).chunks();
    for choice in whole["choices"].as_array().unwrap() {
        let mine = chunks
            .iter()
            .map(|c| &c["choices"][0])
            .filter(|c| c["index"] == choice["index"]);
        let text: String = mine.clone().filter_map(|c| c["text"].as_str()).collect();
        assert_eq!(text, choice["text"].as_str().unwrap());
        for list in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
            let parts = mine.clone().filter_map(|c| c["logprobs"][list].as_array());
            let all: Vec<&Value> = parts.flatten().collect();
            assert_eq!(json!(all), choice["logprobs"][list], "{list}");
        }
        let ends: Vec<&Value> = mine.map(|c| &c["finish_reason"]).collect();
        assert_eq!(ends.iter().filter(|e| !e.is_null()).count(), 1);
        assert_eq!(**ends.last().unwrap(), choice["finish_reason"]);
    }
    let last = chunks.last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(
        last["usage"]["completion_tokens"],
        whole["usage"]["completion_tokens"]
    );
    assert_eq!(last["usage"]["prompt_tokens"], 4);
    assert!(chunks.iter().all(|c| c["object"] == "text_completion"));
}

#[test]
fn sixteen_tokens_unless_more_are_asked_for() {
    let server = Setup::of(&["llama"]).start();
    for (more, tokens) in [
        (json!({}), 16),
        (json!({"max_tokens": 20}), 20),
        (json!({"max_tokens": null}), 16),
    ] {
        let mut body = json!({"prompt": "a", "ignore_eos": true});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        assert_eq!(ok(&server, &body)["usage"]["completion_tokens"], tokens);
    }
}

#[test]
fn stop_strings_end_the_text_and_are_not_part_of_it() {
    let model = saying(&[b"a", b"b", b"c", b"d"]).write();
    let server = Setup::of(&[model.path()]).start();
    let choice = &ok(&server, &json!({"prompt": "x", "stop": ["cd"]}))["choices"][0];
    assert_eq!(choice["text"], "ab");
    assert_eq!(choice["finish_reason"], "stop");
}

#[test]
fn what_can_t_be_honoured_is_refused_by_name() {
    let server = Setup::of(&["llama"]).start();
    for (body, param) in [
        (json!({"prompt": 7}), "prompt"),
        (json!({"prompt": [[1], {"a": 1}]}), "prompt[1]"),
        (json!({"prompt": "a", "logprobs": 6}), "logprobs"),
        (json!({"prompt": "a", "logprobs": true}), "logprobs"),
        (json!({"prompt": "a", "best_of": 2}), "best_of"),
        (json!({"prompt": "a", "suffix": "b"}), "suffix"),
        (json!({"prompt": "a", "echo": "yes"}), "echo"),
        (json!({"prompt": "a", "model": "davinci-002"}), "model"),
    ] {
        let reply = server.post("/v1/completions", &body);
        assert!(matches!(reply.status, 400 | 404), "{body}: {}", reply.text);
        assert_eq!(reply.json()["error"]["param"], param, "{}", reply.text);
    }
    let reply = server.post("/v1/completions", &json!({"prompt": [1, 272]}));
    assert_eq!(reply.status, 400, "{}", reply.text);
    let long = json!({"prompt": vec![1; 257]});
    let reply = server.post("/v1/completions", &long);
    assert_eq!(reply.json()["error"]["code"], "context_length_exceeded");
    let fine = json!({"prompt": "a", "best_of": 2, "n": 2, "suffix": "", "max_tokens": 1});
    ok(&server, &fine);
}

/// The engine is not asked before all of them have been looked at.
#[test]
fn a_later_prompt_that_can_t_be_served_costs_nothing() {
    let mut setup = Setup::of(&["llama"]);
    setup.engine.n_seqs = 1;
    let server = setup.start();
    let long = vec![1; 257];
    for (path, body, param) in [
        (
            "/v1/completions",
            json!({"prompt": ["a", "b", long]}),
            "prompt[2]",
        ),
        (
            "/v1/completions",
            json!({"prompt": [[1], [2], long], "stream": true}),
            "prompt[2]",
        ),
        ("/v1/completions", json!({"prompt": ["a", ""]}), "prompt[1]"),
        ("/completion", json!({"prompt": [[1], long]}), "prompt[1]"),
        ("/v1/embeddings", json!({"input": [[1], long]}), "input[1]"),
    ] {
        let reply = server.post(path, &body);
        assert_eq!(reply.status, 400, "{path}: {}", reply.text);
        assert_eq!(reply.json()["error"]["param"], param, "{}", reply.text);
    }
    let words = "a ".repeat(400);
    let reply = server.post(
        "/api/embed",
        &json!({"model": server.id(), "input": ["a", words]}),
    );
    assert_eq!(reply.status, 400, "{}", reply.text);
    assert!(
        reply.text.contains("input[1]: the prompt has"),
        "{}",
        reply.text
    );
    let stats = server.handle.loaded()[0].engine.stats();
    assert_eq!((stats.requests, stats.prompt_tokens), (0, 0));
}

#[test]
fn a_list_of_texts_and_ids_is_refused_by_name() {
    let server = Setup::of(&["llama"]).start();
    for (path, field) in [("/v1/completions", "prompt"), ("/v1/embeddings", "input")] {
        let reply = server.post(path, &json!({field: [1, "a"]}));
        assert_eq!(reply.status, 400, "{path}: {}", reply.text);
        assert_eq!(reply.json()["error"]["param"], field, "{}", reply.text);
    }
    // There it is one prompt, as llama-server has it.
    let body = json!({"prompt": [97, "b"], "n_predict": 1});
    assert_eq!(server.post("/completion", &body).json()["prompt"], "ab");
}

/// The order is that of Qwen2.5-Coder's own description: prefix, suffix, middle.
#[test]
fn a_suffix_stands_behind_the_gap() {
    let mut model = Variant::of("llama");
    let names = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"];
    for (i, name) in names.into_iter().enumerate() {
        model = model.token(FIRST_FREE + i, name, 3);
    }
    let named = model.write();
    let [pre, suf, mid] = [0, 1, 2].map(|i| FIRST_FREE as u32 + i);
    let keys = ["fim_pre", "fim_suf", "fim_mid"].map(|k| format!("tokenizer.ggml.{k}_token_id"));
    let mut model = Variant::of("llama");
    for (key, id) in keys.iter().zip([pre, suf, mid]) {
        model = model.set(key, Meta::U32(id));
    }
    let keyed = model.write();
    for model in [named, keyed] {
        let server = Setup::of(&[model.path()]).start();
        let more = json!({"temperature": 0, "max_tokens": 4});
        let with = |body: Value| {
            let mut body = body;
            body.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            ok(&server, &body)
        };
        let filled = with(json!({"prompt": "ab", "suffix": "c"}));
        let written = with(json!({"prompt": [pre, b'a', b'b', suf, b'c', mid]}));
        assert_eq!(filled["choices"][0]["text"], written["choices"][0]["text"]);
        assert_eq!(filled["usage"]["prompt_tokens"], 6);
        let echo = json!({"prompt": "ab", "suffix": "c", "echo": true});
        assert_eq!(
            server.post("/v1/completions", &echo).json()["error"]["param"],
            "suffix"
        );
    }
}
