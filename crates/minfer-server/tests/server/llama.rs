//! llama-server's own endpoints, as its README describes them.

use serde_json::{Value, json};

use crate::harness::{Reply, Setup, with};
use crate::models::{FIRST_FREE, IM_END, IM_START, Model, Variant, endless, saying};
use crate::raw::{Raw, wait_for};

/// The data of each event; there is no last word.
fn data(reply: &Reply) -> Vec<Value> {
    let data = reply.text.lines().filter_map(|l| l.strip_prefix("data: "));
    data.map(|d| serde_json::from_str(d).expect("JSON"))
        .collect()
}

/// The answer to the prompt `xy`, of a model that says `abcd`.
fn completion(more: &Value) -> Value {
    let model = saying(&[b"a", b"b", b"c", b"d"]).write();
    let server = Setup::of(&[model.path()]).start();
    let mut body = json!({"prompt": "xy", "return_tokens": true});
    body.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let reply = server.post("/completion", &body);
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()
}

#[test]
fn a_completion_says_what_came_and_why_it_ended() {
    let end = i32::try_from(IM_END).unwrap();
    for (more, content, tokens, stop_type, word) in [
        (json!({}), "abcd", json!([97, 98, 99, 100, end]), "eos", ""),
        (
            json!({"stop": ["zz", "cd"]}),
            "ab",
            json!([97, 98, 99, 100]),
            "word",
            "cd",
        ),
        (
            json!({"n_predict": 3}),
            "abc",
            json!([97, 98, 99]),
            "limit",
            "",
        ),
        (json!({"n_predict": 0}), "", json!([]), "limit", ""),
    ] {
        let reply = completion(&more);
        assert_eq!(reply["content"], content, "{reply}");
        assert_eq!(reply["tokens"], tokens);
        assert_eq!(reply["stop"], true);
        assert_eq!(reply["stop_type"], stop_type);
        assert_eq!(reply["stopping_word"], word);
        assert_eq!(reply["truncated"], false);
        assert_eq!(reply["prompt"], "xy");
        assert_eq!(reply["tokens_evaluated"], 2);
        assert_eq!(reply["tokens_predicted"], tokens.as_array().unwrap().len());
        assert_eq!(reply["timings"]["predicted_n"], reply["tokens_predicted"]);
        assert_eq!(reply.get("completion_probabilities"), None);
    }
}

#[test]
fn a_completion_says_its_probabilities_and_settings() {
    let reply = completion(
        &json!({"n_probs": 2, "n_predict": 1, "temperature": 0.25, "return_tokens": false}),
    );
    assert_eq!(reply["tokens"], json!([]));
    assert_eq!(reply["generation_settings"]["temperature"], 0.25);
    assert_eq!(reply["generation_settings"]["n_predict"], 1);
    let entry = &reply["completion_probabilities"][0];
    assert_eq!(
        (&entry["id"], &entry["token"], &entry["bytes"]),
        (&json!(97), &json!("a"), &json!([97]))
    );
    // Its logit is about 80, all others are 0.
    assert_eq!(entry["logprob"], 0.0);
    assert_eq!(entry["top_logprobs"][0]["id"], 97);
    let next = entry["top_logprobs"][1]["logprob"].as_f64().unwrap();
    assert!((next + 80.0).abs() < 0.1, "{next}");
}

#[test]
fn each_of_several_completions_names_its_prompt() {
    let two = completion(&json!({"prompt": ["x", [121]], "n_cmpl": 2}));
    let prompts: Vec<&Value> = two
        .as_array()
        .unwrap()
        .iter()
        .map(|a| &a["prompt"])
        .collect();
    assert_eq!(prompts, ["x", "x", "y", "y"]);
}

#[test]
fn a_full_context_is_told() {
    let mut setup = Setup::of(&["llama"]);
    setup.engine.n_ctx = 64;
    let server = setup.start();
    let body = json!({"prompt": "x", "ignore_eos": true});
    let reply = server.post("/completion", &body).json();
    assert_eq!(
        (&reply["stop_type"], &reply["truncated"]),
        (&json!("limit"), &json!(true))
    );
}

#[test]
fn a_stream_has_the_pieces_and_ends_with_the_rest() {
    let model = saying(&[b"a", b"bc", b"d"]).write();
    let server = Setup::of(&[model.path()]).start();
    let body = json!({"prompt": "xyz", "stream": true, "n_probs": 1, "timings_per_token": true, "return_progress": true});
    let pieces = data(&server.post("/completion", &body));
    let progress = &pieces[0]["prompt_progress"];
    assert_eq!(
        (&progress["total"], &progress["processed"]),
        (&json!(3), &json!(3))
    );
    let (last, pieces) = pieces[1..].split_last().unwrap();
    let content: Vec<&Value> = pieces.iter().map(|p| &p["content"]).collect();
    assert_eq!(content, ["a", "bc", "d", ""]);
    for (i, piece) in pieces.iter().enumerate() {
        assert_eq!(piece["stop"], false);
        assert_eq!(piece["tokens"].as_array().unwrap().len(), 1);
        assert_eq!(piece["tokens_predicted"], i + 1);
        assert_eq!(piece["timings"]["predicted_n"], i + 1);
        assert_eq!(
            piece["completion_probabilities"][0]["id"],
            piece["tokens"][0]
        );
    }
    assert_eq!(
        (&last["stop"], &last["content"]),
        (&json!(true), &json!(""))
    );
    assert_eq!(
        (&last["stop_type"], &last["tokens_predicted"]),
        (&json!("eos"), &json!(4))
    );
}

#[test]
fn tokenize_and_detokenize() {
    let text = "tokenizer.ggml.add_bos_token";
    let model = Variant::of("llama")
        .set(
            "tokenizer.ggml.bos_token_id",
            minfer::gguf::Value::U32(IM_START as u32),
        )
        .set(text, minfer::gguf::Value::Bool(true))
        .write();
    let server = Setup::of(&[model.path()]).start();
    let tokenize = |body: Value| server.post("/tokenize", &body).json()["tokens"].clone();
    assert_eq!(tokenize(json!({"content": "AZ"})), json!([65, 90]));
    assert_eq!(
        tokenize(json!({"content": "AZ", "add_special": true})),
        json!([IM_START, 65, 90])
    );
    assert_eq!(tokenize(json!({"content": "<|im_end|>"})), json!([IM_END]));
    let plain = tokenize(json!({"content": "<|im_end|>", "parse_special": false}));
    assert!(plain.as_array().unwrap().len() > 1, "{plain}");
    // As its README shows for 'á': bytes where a piece is no text.
    let pieces = tokenize(json!({"content": "Aá", "with_pieces": true}));
    assert_eq!(
        pieces,
        json!([{"id": 65, "piece": "A"}, {"id": 195, "piece": [195]}, {"id": 161, "piece": [161]}])
    );
    let detokenize = |tokens: Value| server.post("/detokenize", &json!({"tokens": tokens}));
    assert_eq!(detokenize(json!([65, 195, 161])).json()["content"], "Aá");
    assert_eq!(detokenize(json!([IM_END])).json()["content"], "<|im_end|>");
    let wrong = detokenize(json!([65, 272]));
    assert_eq!(
        (wrong.status, &wrong.json()["error"]["param"]),
        (400, &json!("tokens"))
    );
    assert_eq!(
        server.post("/tokenize", &json!({})).json()["error"]["param"],
        "content"
    );
}

#[test]
fn a_template_is_applied_and_shown() {
    let template = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";
    let model = Variant::of("llama")
        .text("tokenizer.chat_template", template)
        .write();
    let mut setup = Setup::of(&[model.path()]);
    setup.engine.n_seqs = 3;
    let server = setup.start();
    let body = json!({"messages": [{"role": "user", "content": "Hi"}]});
    let reply = server.post("/apply-template", &body);
    assert_eq!(reply.json(), json!({"prompt": "[user] Hi\n[assistant]"}));
    let props = server.get("/props").json();
    assert_eq!(props["chat_template"], template);
    assert_eq!(props["chat_template_notice"], Value::Null);
    assert_eq!(props["total_slots"], 3);
    assert_eq!(props["default_generation_settings"]["n_ctx"], 256);
    assert_eq!(props["default_generation_settings"]["params"]["top_k"], 40);
    assert_eq!(
        props["default_generation_settings"]["params"]["repeat_penalty"],
        1.0
    );
    assert_eq!(props["model_path"], model.path());
    let slots = server.get("/slots").json();
    assert_eq!(slots.as_array().unwrap().len(), 3);
    assert!(
        slots
            .as_array()
            .unwrap()
            .iter()
            .all(|s| s["is_processing"] == false)
    );
    assert_eq!(server.get("/props?model=none").status, 404);
    let without = Setup::of(&["llama"]).start().get("/props").json();
    let notice = without["chat_template_notice"].as_str();
    assert!(notice.is_some_and(|n| n.contains("ChatML")), "{without}");
}

/// As llama-server does: a slot is an answer's for its life, and the lowest free one is the next.
#[test]
fn a_sequence_keeps_its_slot() {
    let model = endless();
    let mut setup = Setup::of(&[model.path()]);
    setup.engine.n_ctx = 1 << 14;
    setup.engine.n_seqs = 3;
    let server = setup.start();
    let busy = || -> Vec<bool> {
        let slots = server.get("/slots").json();
        let slots = slots.as_array().expect("a list").iter().enumerate();
        let one = |(i, s): (usize, &Value)| {
            assert_eq!(s["id"], i);
            s["is_processing"].as_bool().expect("a flag")
        };
        slots.map(one).collect()
    };
    let mut talks = Vec::new();
    for n in 1..=3 {
        let body = json!({"prompt": format!("{n}"), "n_predict": 16_000, "ignore_eos": true, "stream": true});
        let mut talk = Raw::connect(&server);
        talk.post("/completion", "", &body.to_string());
        talk.until("data: ");
        talks.push(talk);
        let want: Vec<bool> = (0..3).map(|i| i < n).collect();
        wait_for("a slot", || busy() == want);
    }
    drop(talks.remove(1));
    wait_for("the second's end", || busy() == [true, false, true]);
    let short = json!({"prompt": "a", "n_predict": 2, "ignore_eos": true});
    for stream in [false, true] {
        let reply = server.post(
            "/completion",
            &with(short.clone(), &[("stream", json!(stream))]),
        );
        let last = match stream {
            true => data(&reply).pop().expect("an end"),
            false => reply.json(),
        };
        assert_eq!(last["id_slot"], 1, "{last}");
    }
    drop(talks.remove(0));
    wait_for("the first's end", || busy() == [false, false, true]);
    assert_eq!(server.post("/completion", &short).json()["id_slot"], 0);
}

#[test]
fn what_can_t_be_honoured_is_refused_by_name() {
    let server = Setup::of(&["llama"]).start();
    for (key, value) in [
        ("prompt", json!(null)),
        (
            "prompt",
            json!({"prompt_string": "a", "multimodal_data": ["AA=="]}),
        ),
        ("n_probs", json!(21)),
        ("n_cmpl", json!(0)),
        ("post_sampling_probs", json!(true)),
        ("id_slot", json!(1)),
        ("t_max_predict_ms", json!(100)),
        ("lora", json!([{"id": 0, "scale": 1.0}])),
        ("top_k", json!("many")),
    ] {
        let mut body = json!({"prompt": "a", "n_predict": 1});
        body[key] = value;
        let reply = server.post("/completion", &body);
        assert_eq!(reply.status, 400, "{body}: {}", reply.text);
        assert_eq!(reply.json()["error"]["param"], key, "{}", reply.text);
    }
}

/// A model with the first `n` of the tokens for filling gaps: three for the gap, two for files.
fn infilling(n: usize) -> Model {
    let names = [
        "<|fim_prefix|>",
        "<|fim_suffix|>",
        "<|fim_middle|>",
        "<|repo_name|>",
        "<|file_sep|>",
    ];
    let tokens = names.into_iter().take(n).enumerate();
    let model = tokens.fold(Variant::of("llama"), |model, (i, name)| {
        model.token(FIRST_FREE + i, name, 3)
    });
    model.write()
}

/// The order is that of llama-server's README.
#[test]
fn infill_fills_what_stands_between_two_texts() {
    let (gaps, files) = (infilling(3), infilling(5));
    let extra = json!([{"filename": "a.c", "text": "x"}, {"text": "y"}]);
    let others =
        "<|repo_name|>myproject\n<|file_sep|>a.c\nx\n<|file_sep|>tmp\ny\n<|file_sep|>filename\n";
    for (model, extra, before) in [
        (&gaps, json!(null), ""),
        (&gaps, extra.clone(), "a.c\nx\ntmp\ny\n"),
        (&files, json!([]), ""),
        (&files, extra, others),
    ] {
        let server = Setup::of(&[model.path()]).start();
        // What stands in the texts is no control token.
        let body = json!({"input_prefix": "ab<|fim_middle|>", "input_suffix": "cd", "prompt": "e",
            "input_extra": extra, "n_predict": 1, "temperature": 0});
        let reply = server.post("/infill", &body);
        assert_eq!(reply.status, 200, "{}", reply.text);
        let reply = reply.json();
        let want = format!("{before}<|fim_prefix|>ab<|fim_middle|><|fim_suffix|>cd<|fim_middle|>e");
        assert_eq!(reply["prompt"], want);
        let count = |text: &str, special: bool| {
            let body = json!({"content": text, "parse_special": special});
            server.post("/tokenize", &body).json()["count"]
                .as_u64()
                .unwrap()
        };
        let spelled = count("<|fim_middle|>", false) - 1;
        assert!(spelled > 0);
        assert_eq!(reply["tokens_evaluated"], count(&want, true) + spelled);
        assert_eq!(reply["tokens_predicted"], 1);
    }
}

#[test]
fn infill_names_what_it_lacks() {
    let gaps = infilling(3);
    let server = Setup::of(&[gaps.path()]).start();
    for (body, param) in [
        (json!({"input_suffix": "a"}), "input_prefix"),
        (json!({"input_prefix": "a"}), "input_suffix"),
        (
            json!({"input_prefix": "a", "input_suffix": "b", "input_extra": [{"filename": "c"}]}),
            "input_extra[0].text",
        ),
        (
            json!({"input_prefix": "a", "input_suffix": "b", "prompt": ["c", "d"]}),
            "prompt",
        ),
    ] {
        let reply = server.post("/infill", &body);
        assert_eq!(reply.status, 400, "{}", reply.text);
        assert_eq!(reply.json()["error"]["param"], param, "{}", reply.text);
    }
    let server = Setup::of(&["llama"]).start();
    let reply = server.post(
        "/infill",
        &json!({"input_prefix": "a", "input_suffix": "b"}),
    );
    assert_eq!(reply.status, 400);
    assert!(
        reply.text.contains("no tokens for filling gaps"),
        "{}",
        reply.text
    );
}

#[test]
fn embedding_has_the_vectors_of_openai_s_endpoint() {
    let server = Setup::of(&["qwen3"]).start();
    let theirs = server
        .post("/v1/embeddings", &json!({"input": ["ab", "c"]}))
        .json();
    let numbers = |v: &Value| serde_json::from_value::<Vec<f64>>(v.clone()).expect("numbers");
    for field in ["content", "input"] {
        let reply = server.post("/embedding", &json!({field: ["ab", [99]]}));
        assert_eq!(reply.status, 200, "{}", reply.text);
        for i in 0..2 {
            let entry = &reply.json()[i];
            assert_eq!(entry["index"], i);
            let theirs = &theirs["data"][i]["embedding"];
            assert_eq!(numbers(&entry["embedding"][0]), numbers(theirs));
        }
    }
    let plain = server.post(
        "/embedding",
        &json!({"content": "ab", "embd_normalize": -1}),
    );
    let vector = numbers(&plain.json()[0]["embedding"][0]);
    let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
    assert!((length - 1.0).abs() > 0.01, "{length}");
    for (body, param) in [
        (json!({}), "content"),
        (
            json!({"content": "a", "embd_normalize": 1}),
            "embd_normalize",
        ),
        (json!({"content": ["a", vec![1; 257]]}), "content[1]"),
    ] {
        let reply = server.post("/embedding", &body);
        assert_eq!(reply.status, 400, "{}", reply.text);
        assert_eq!(reply.json()["error"]["param"], param, "{}", reply.text);
    }
}

/// Counts are those of the requests made here; the format is Prometheus' own.
#[test]
fn metrics_count_what_was_done() {
    let model = saying(&[b"a", b"b", b"c"]).write();
    let server = Setup::of(&[model.path()]).start();
    for _ in 0..2 {
        let body = json!({"prompt": "xyz", "cache_prompt": false});
        assert_eq!(server.post("/completion", &body).json()["content"], "abc");
    }
    assert_eq!(
        server.post("/v1/completions", &json!({"prompt": 1})).status,
        400
    );
    assert_eq!(server.get("/no/such/path").status, 404);
    let reply = server.get("/metrics");
    let kind = reply.headers.iter().find(|(k, _)| k == "content-type");
    assert!(kind.unwrap().1.starts_with("text/plain; version=0.0.4"));
    let id = server.get("/v1/models").json()["data"][0]["id"].clone();
    let model = format!("model={id}");
    for want in [
        "minfer_requests_total{path=\"/completion\",status=\"200\"} 2".to_owned(),
        "minfer_requests_total{path=\"/v1/completions\",status=\"400\"} 1".to_owned(),
        "minfer_requests_total{path=\"other\",status=\"404\"} 1".to_owned(),
        format!("minfer_submitted_total{{{model}}} 2"),
        format!("minfer_prompt_tokens_total{{{model}}} 6"),
        // Three letters and the end, twice.
        format!("minfer_predicted_tokens_total{{{model}}} 8"),
        format!("minfer_running{{{model}}} 0"),
        format!("minfer_waiting{{{model}}} 0"),
        format!("minfer_time_to_first_token_seconds_count{{{model}}} 2"),
        format!("minfer_inter_token_seconds_count{{{model}}} 6"),
        format!("minfer_inter_token_seconds_bucket{{{model},le=\"+Inf\"}} 6"),
        format!("minfer_kv_pages{{{model},layers=\"full\",state=\"used\"}} 0"),
        format!("minfer_drafted_tokens_total{{{model}}} 0"),
    ] {
        assert!(
            reply.text.lines().any(|l| l == want),
            "{want} in\n{}",
            reply.text
        );
    }
    for line in reply.text.lines().filter(|l| !l.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').expect("a value");
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let name = series.split('{').next().unwrap();
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|s| name.strip_suffix(s));
        let typed = |n: &str| reply.text.contains(&format!("# TYPE {n} "));
        assert!(typed(name) || family.is_some_and(typed), "{line}");
    }
}

// vLLM's names for the same, as lm-eval's RemoteTokenizer sends them.
#[test]
fn tokenize_in_vllm_s_words() {
    let model = Variant::of("llama")
        .set(
            "tokenizer.ggml.bos_token_id",
            minfer::gguf::Value::U32(IM_START as u32),
        )
        .set(
            "tokenizer.ggml.add_bos_token",
            minfer::gguf::Value::Bool(true),
        )
        .write();
    let server = Setup::of(&[model.path()]).start();
    for (add, ids) in [
        (json!(false), json!([65, 90])),
        (json!(true), json!([IM_START, 65, 90])),
        (json!(null), json!([IM_START, 65, 90])),
    ] {
        let body = json!({"prompt": "AZ", "add_special_tokens": add});
        let got = server.post("/tokenize", &body).json();
        assert_eq!(got["tokens"], ids);
        assert_eq!(got["count"], ids.as_array().unwrap().len());
    }
    let got = server.post("/detokenize", &json!({"tokens": [65, 90]}));
    assert_eq!(got.json()["prompt"], "AZ");
    let info = server.get("/tokenizer_info").json();
    assert_eq!(info["bos_token"], "<|im_start|>");
    let eos = info["eos_token"].as_str().unwrap();
    let ids = server.post(
        "/tokenize",
        &json!({"prompt": eos, "add_special_tokens": false}),
    );
    assert_eq!(ids.json()["count"], 1, "{eos}");
}
