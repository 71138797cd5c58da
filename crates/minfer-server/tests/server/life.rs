//! How a server lives and ends: limits, clients that leave, slow readers, draining.

use std::time::Duration;

use minfer::engine::Stats;
use serde_json::{Value, json};

use crate::harness::{Running, Setup, localhost};
use crate::models::{Model, endless};
use crate::raw::{Raw, wait_for};

const CHAT: &str = "/v1/chat/completions";
/// More than any test takes; tokio's clock holds it.
const LONGEST: Duration = Duration::from_secs(1_000_000);

/// A server whose model talks until it is stopped, for this many requests at once.
fn talker(model: &Model, n_seqs: usize) -> Setup {
    let mut setup = Setup::of(&[model.path()]);
    setup.engine.n_ctx = 1 << 14;
    setup.engine.n_seqs = n_seqs;
    setup
}

fn talk(stream: bool, tokens: usize) -> String {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    json!({"messages": messages, "ignore_eos": true, "max_tokens": tokens, "stream": stream, "seed": 1}).to_string()
}

fn stats(server: &Running) -> Stats {
    server.handle.loaded()[0].engine.stats()
}

#[test]
fn what_is_too_large_has_a_status_of_its_own() {
    let mut setup = Setup::of(&["llama"]);
    setup.server.limits.body = 1000;
    setup.server.limits.head = 2000;
    let server = setup.start();
    let mut says_so = Raw::connect(&server);
    says_so.send(format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1001\r\n\r\n"
    ));
    let reply = says_so.rest();
    assert!(
        reply.starts_with("HTTP/1.1 413 ") && reply.contains("larger than 1000 bytes"),
        "{reply}"
    );
    // One that does not say how long it is, and that goes on sending: it reads the answer all the same.
    let mut chunked = Raw::connect(&server);
    chunked.send(format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    ));
    let piece = format!("{:x}\r\n{}\r\n", 60_000, "a".repeat(60_000));
    for _ in 0..20 {
        chunked.send(&piece);
    }
    assert!(chunked.rest().starts_with("HTTP/1.1 413 "));
    let mut head = Raw::connect(&server);
    head.send(format!(
        "GET /health HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n",
        "a".repeat(3000)
    ));
    let reply = head.rest();
    assert!(
        reply.starts_with("HTTP/1.1 431 ") && reply.contains("head is larger than 2000 bytes"),
        "{reply}"
    );
    // At the limit is within it.
    let sized = |bytes: usize| {
        let body = json!({"messages": [], "user": "a".repeat(bytes - 25)});
        assert_eq!(body.to_string().len(), bytes);
        server.post(CHAT, &body)
    };
    assert!(sized(1000).text.contains("has 0 messages"));
    assert_eq!(sized(1001).status, 413);
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn who_stops_in_the_middle_is_let_go() {
    let mut setup = Setup::of(&["llama"]);
    setup.server.limits.idle = Duration::from_millis(200);
    let server = setup.start();
    let mut silent = Raw::connect(&server);
    assert_eq!(silent.rest(), "");
    let mut head = Raw::connect(&server);
    head.send("GET /health HTTP/1.1\r\nhost: loc");
    let reply = head.rest();
    assert!(
        reply.starts_with("HTTP/1.1 408 ") && reply.contains("the rest of the request's head"),
        "{reply}"
    );
    let mut body = Raw::connect(&server);
    body.send(format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{{"
    ));
    let reply = body.rest();
    assert!(
        reply.starts_with("HTTP/1.1 408 ") && reply.contains("nothing of the body came"),
        "{reply}"
    );
}

#[test]
fn a_connection_too_many_is_told_so() {
    let mut setup = Setup::of(&["llama"]);
    setup.server.limits.connections = 2;
    let server = setup.start();
    let get = "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut held: Vec<Raw> = (0..2).map(|_| Raw::connect(&server)).collect();
    for one in &mut held {
        one.send(get);
        assert!(one.until("}").starts_with("HTTP/1.1 200 "));
    }
    let mut third = Raw::connect(&server);
    third.send(get);
    let reply = third.rest();
    assert!(
        reply.starts_with("HTTP/1.1 503 ") && reply.contains("retry-after: 1"),
        "{reply}"
    );
    assert!(reply.contains("all 2 connections are taken"), "{reply}");
    held.pop();
    wait_for("a free place", || server.get("/health").status == 200);
}

/// ggml-org/llama.cpp 24496, ik_llama.cpp 1020: the client leaves during a plain answer, in a stream, while it waits and
/// during prefill.
#[test]
fn llama_cpp_24496_a_client_that_leaves_frees_its_slot() {
    let model = endless();
    let server = talker(&model, 1).start();
    for stream in [false, true] {
        let before = stats(&server);
        let mut client = Raw::connect(&server);
        client.post(CHAT, "", &talk(stream, 10_000));
        wait_for("an answer", || {
            stats(&server).predicted_tokens > before.predicted_tokens + 5
        });
        drop(client);
        wait_for("its end", || {
            stats(&server).cancelled == before.cancelled + 1
        });
        wait_for("an idle slot", || stats(&server).running == 0);
        let said = stats(&server).predicted_tokens - before.predicted_tokens;
        assert!(said < 9_000, "{said} tokens for nobody");
    }
    let before = stats(&server);
    let mut first = Raw::connect(&server);
    first.post(CHAT, "", &talk(true, 10_000));
    wait_for("an answer", || stats(&server).running == 1);
    let mut second = Raw::connect(&server);
    second.post(CHAT, "", &talk(false, 10_000));
    wait_for("a queue", || stats(&server).waiting == 1);
    drop(second);
    wait_for("an empty queue", || stats(&server).waiting == 0);
    assert_eq!(stats(&server).running, 1, "the first goes on");
    drop(first);
    wait_for("both ends", || {
        stats(&server).cancelled == before.cancelled + 2
    });
    leaves_during_prefill(&server);
}

fn leaves_during_prefill(server: &Running) {
    let before = stats(server);
    let content = "long ".repeat(3000);
    let body = json!({"messages": [{"role": "user", "content": content}], "max_tokens": 1});
    let mut client = Raw::connect(server);
    client.post(CHAT, "", &body.to_string());
    wait_for("prefill", || {
        stats(server).prompt_tokens > before.prompt_tokens
    });
    drop(client);
    wait_for("its end", || stats(server).running == 0);
    let after = stats(server);
    assert_eq!(after.cancelled, before.cancelled + 1);
    assert_eq!(after.finished, before.finished);
    let computed = after.prompt_tokens - before.prompt_tokens;
    assert!(
        computed < 14_000,
        "{computed} tokens of a prompt for nobody"
    );
}

#[test]
fn a_reader_who_does_not_read_holds_up_nobody() {
    let model = endless();
    let server = talker(&model, 2).start();
    let mut slow = Raw::connect_with(&server, Some(4096));
    slow.post(CHAT, "", &talk(true, 8000));
    slow.until("data: ");
    // It reads nothing now. Others are answered as if it were not there.
    for _ in 0..3 {
        let body: Value = serde_json::from_str(&talk(false, 20)).unwrap();
        let reply = server.post(CHAT, &body);
        assert_eq!(reply.json()["usage"]["completion_tokens"], 20);
    }
    wait_for("the slow one's end", || stats(&server).running == 0);
    assert_eq!(stats(&server).cancelled, 0);
    // All of it is there when it reads at last.
    let rest = slow.until("[DONE]");
    assert!(rest.contains("\"finish_reason\":\"length\"") && rest.contains("[DONE]"));
}

#[test]
fn a_reader_who_never_reads_is_let_go() {
    let model = endless();
    let mut setup = talker(&model, 2);
    setup.server.limits.stalled = Duration::from_millis(300);
    let server = setup.start();
    let mut stuck = Raw::connect_with(&server, Some(4096));
    // Some 20 MB, more than the system keeps for a reader: the writer waits.
    let mut body: Value = serde_json::from_str(&talk(true, 16_000)).unwrap();
    body["logprobs"] = true.into();
    body["top_logprobs"] = 20.into();
    stuck.post(CHAT, "", &body.to_string());
    stuck.until("data: ");
    wait_for("the request's end", || stats(&server).running == 0);
    std::thread::sleep(Duration::from_secs(1));
    // What the systems still hold may come, and its end late: the window is small. Of a request that is alive all comes.
    let rest = stuck.until_silence(Duration::from_secs(5));
    assert!(!rest.contains("[DONE]"), "it was let go");
}

#[test]
fn a_full_queue_is_429() {
    let model = endless();
    let mut setup = talker(&model, 1);
    setup.engine.queue = 1;
    let server = setup.start();
    let mut running = Raw::connect(&server);
    running.post(CHAT, "", &talk(true, 10_000));
    wait_for("an answer", || stats(&server).running == 1);
    let mut waiting = Raw::connect(&server);
    waiting.post(CHAT, "", &talk(true, 10_000));
    wait_for("a queue", || stats(&server).waiting == 1);
    let body: Value = serde_json::from_str(&talk(false, 1)).unwrap();
    let reply = server.post(CHAT, &body);
    assert_eq!(reply.status, 429, "{}", reply.text);
    assert_eq!(reply.json()["error"]["type"], "rate_limit_error");
    assert!(reply.headers.contains(&("retry-after".into(), "1".into())));
    drop((running, waiting));
    wait_for("room", || server.post(CHAT, &body).status == 200);
}

/// As many as there are places and as may wait come at the same moment.
#[test]
fn a_burst_of_queue_and_parallel_requests_loses_none() {
    let model = endless();
    let mut setup = talker(&model, 3);
    setup.engine.queue = 2;
    let server = setup.start();
    let mut clients: Vec<Raw> = (0..5).map(|_| Raw::connect(&server)).collect();
    for client in &mut clients {
        client.post(CHAT, "", &talk(true, 10_000));
    }
    wait_for("three answers and two that wait", || {
        (stats(&server).running, stats(&server).waiting) == (3, 2)
    });
    let body: Value = serde_json::from_str(&talk(false, 1)).unwrap();
    assert_eq!(server.post(CHAT, &body).status, 429, "and no more");
}

#[test]
fn a_request_that_was_cut_off_is_counted() {
    let model = endless();
    let server = talker(&model, 1).start();
    let mut client = Raw::connect(&server);
    client.post(CHAT, "", &talk(false, 10_000));
    wait_for("an answer", || stats(&server).running == 1);
    drop(client);
    let line = format!("minfer_requests_total{{path=\"{CHAT}\",status=\"499\"}} 1");
    wait_for("its count", || {
        server.get("/metrics").text.lines().any(|l| l == line)
    });
}

#[test]
fn a_request_has_so_much_time_and_no_more() {
    let model = endless();
    let mut setup = talker(&model, 2);
    setup.server.limits.request = Some(Duration::from_millis(300));
    let server = setup.start();
    let body = |stream| serde_json::from_str::<Value>(&talk(stream, 16_000)).unwrap();
    let whole = server.post(CHAT, &body(false));
    assert_eq!(whole.status, 504, "{}", whole.text);
    assert!(whole.text.contains("--request-timeout"), "{}", whole.text);
    let stream = server.post(CHAT, &body(true));
    assert_eq!(stream.status, 200);
    let last = stream.text.lines().rfind(|l| !l.is_empty()).unwrap();
    assert!(
        last.starts_with("data: {\"error\":") && last.contains("--request-timeout"),
        "{last}"
    );
    wait_for("both ends", || stats(&server).cancelled == 2);
}

#[test]
fn running_requests_end_and_new_ones_are_refused_while_it_drains() {
    let model = endless();
    let mut server = talker(&model, 2).start();
    let mut running = Raw::connect(&server);
    running.post(CHAT, "", &talk(true, 2000));
    running.until("data: ");
    let mut idle = Raw::connect(&server);
    idle.send("GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert!(idle.until("}").contains("\"ok\""));
    server.stop();
    assert_eq!(idle.rest(), "", "an idle connection is closed");
    let health = server.get("/health");
    assert_eq!(
        (health.status, health.json()["error"]["message"].as_str()),
        (503, Some("draining"))
    );
    let late = server.post(CHAT, &serde_json::from_str(&talk(false, 1)).unwrap());
    assert_eq!(
        (late.status, late.json()["error"]["message"].as_str()),
        (503, Some("the server is ending"))
    );
    let rest = running.rest();
    assert!(
        rest.contains("\"finish_reason\":\"length\"") && rest.contains("[DONE]"),
        "{rest}"
    );
    assert_eq!(server.end(), Ok(()));
}

#[test]
fn what_does_not_end_in_time_is_cut_off() {
    let model = endless();
    let mut setup = talker(&model, 2);
    setup.server.limits.drain = Duration::from_millis(100);
    let mut server = setup.start();
    let mut running = Raw::connect(&server);
    running.post(CHAT, "", &talk(true, 16_000));
    running.until("data: ");
    server.stop();
    let said = server.end().unwrap_err();
    assert!(said.starts_with("1 requests were cut off"), "{said}");
    assert!(!running.rest().contains("[DONE]"));
}

/// Nothing was asked on these connections: nobody waits for them, and none is counted as cut off.
#[test]
fn connections_that_say_nothing_do_not_hold_up_the_end() {
    for tls in [false, true] {
        let mut setup = Setup::of(&["llama"]);
        // Longer than any test: only its own end ends it.
        setup.server.limits.drain = LONGEST;
        setup.server.limits.idle = LONGEST;
        setup.server.tls = tls.then(localhost);
        let mut server = setup.start();
        let mut silent = Raw::connect(&server);
        let mut begins = Raw::connect(&server);
        if tls {
            begins.send([22, 3, 1]); // the first bytes of a handshake
        }
        std::thread::sleep(Duration::from_millis(200));
        server.stop();
        assert_eq!(server.end(), Ok(()), "TLS {tls}");
        assert_eq!(
            (silent.rest(), begins.rest()),
            (String::new(), String::new())
        );
    }
}

/// No request has been accepted on them, or no other: nothing is lost. A running request holds the server up.
#[test]
fn half_sent_heads_end_when_draining_begins() {
    let model = endless();
    let mut setup = talker(&model, 2);
    setup.server.limits.drain = LONGEST;
    setup.server.limits.idle = LONGEST;
    let mut server = setup.start();
    let mut running = Raw::connect(&server);
    running.post(CHAT, "", &talk(true, 16_000));
    running.until("data: ");
    let half = "GET /health HTTP/1.1\r\nhost: loc";
    let mut first = Raw::connect(&server);
    first.send(half);
    let mut second = Raw::connect(&server);
    second.send("GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert!(second.until("}").contains("\"ok\""));
    second.send(half);
    std::thread::sleep(Duration::from_millis(200));
    server.stop();
    let ends = (first.rest(), second.rest());
    assert_eq!(ends, (String::new(), String::new()));
    assert_eq!(stats(&server).running, 1, "the request goes on");
    drop(running);
    assert_eq!(server.end(), Ok(()));
}

#[test]
fn a_server_that_drains_keeps_no_connection_alive_and_few_new_ones() {
    let model = endless();
    let mut server = talker(&model, 2).start();
    let mut running = Raw::connect(&server);
    running.post(CHAT, "", &talk(true, 10_000));
    running.until("data: ");
    // Its head has come when the end begins, its body has not.
    let mut slow = Raw::connect(&server);
    let body = talk(false, 1);
    let (before, after) = body.split_at(10);
    slow.send(format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{before}",
        body.len()
    ));
    std::thread::sleep(Duration::from_millis(200));
    server.stop();
    wait_for("the end's beginning", || {
        server.get("/health").status == 503
    });
    slow.send(after);
    let reply = slow.rest();
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    assert!(reply.contains("connection: close"), "{reply}");
    let mut late = Raw::connect(&server);
    late.send("GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let reply = late.rest();
    assert!(
        reply.starts_with("HTTP/1.1 503 ") && reply.contains("connection: close"),
        "{reply}"
    );
    // Silent ones take the places there are; who comes then is sent away at once.
    let silent: Vec<Raw> = (0..64).map(|_| Raw::connect(&server)).collect();
    let mut many = Raw::connect(&server);
    assert_eq!(many.rest(), "");
    drop((silent, running));
    assert_eq!(server.end(), Ok(()));
}
