//! Who may come in, and in which words others are refused.

use minfer_server::{GuardOptions, Server, ServerError, ServerOptions, TlsFiles};
use serde_json::{Value, json};

use crate::harness::{Running, Setup, data, localhost};
use crate::raw::Raw;

const CHAT: &str = "/v1/chat/completions";

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|s| (*s).to_owned()).collect()
}

fn server(guard: GuardOptions) -> Running {
    let mut setup = Setup::of(&["llama"]);
    setup.server.guard = guard;
    setup.start()
}

/// Status line and body of a request with these header lines.
fn ask(server: &Running, line: &str, headers: &str) -> (u16, String) {
    let mut raw = Raw::connect(server);
    raw.send(format!(
        "{line} HTTP/1.1\r\n{headers}connection: close\r\n\r\n"
    ));
    let reply = raw.rest();
    let status = reply.split(' ').nth(1).and_then(|s| s.parse().ok());
    (status.unwrap_or_else(|| panic!("{reply}")), reply)
}

fn body(reply: &str) -> Value {
    let body = reply.split("\r\n\r\n").nth(1).expect("a body");
    serde_json::from_str(body).expect("JSON")
}

#[test]
fn a_key_is_asked_for_in_the_words_of_each_surface() {
    let server = server(GuardOptions {
        keys: texts(&["sk-one", "sk-two"]),
        ..GuardOptions::default()
    });
    let models = |headers: &str| {
        let headers = format!("host: localhost\r\n{headers}");
        ask(&server, "GET /v1/models", &headers)
    };
    for right in [
        "authorization: Bearer sk-one\r\n",
        "Authorization: bearer sk-two\r\n",
        "x-api-key: sk-two\r\n",
        "authorization: Bearer unused\r\nx-api-key: sk-one\r\n",
    ] {
        assert_eq!(models(right).0, 200, "{right}");
    }
    for wrong in [
        "",
        "authorization: Bearer\r\n",
        "authorization: Bearer sk-on\r\n",
        "authorization: Bearer sk-one1\r\n",
        "authorization: Bearer sk-one sk-two\r\n",
        "authorization: Basic sk-one\r\n",
        "authorization: sk-one\r\n",
        "x-api-key: \r\n",
        "x-api-key: SK-ONE\r\n",
    ] {
        let (status, reply) = models(wrong);
        assert_eq!(status, 401, "{wrong}");
        assert!(reply.contains("www-authenticate: Bearer"), "{reply}");
        let error = &body(&reply)["error"];
        assert_eq!(error["code"], "invalid_api_key");
        assert_eq!(error["type"], "authentication_error");
    }
    let said = models("").1;
    for way in ["'Authorization: Bearer KEY'", "'x-api-key: KEY'"] {
        assert!(said.contains(way), "{way} in {said}");
    }
    let anthropic = ask(&server, "POST /v1/messages", "host: localhost\r\n");
    assert_eq!(anthropic.0, 401);
    let error = body(&anthropic.1);
    assert_eq!(error["type"], "error");
    assert_eq!(error["error"]["type"], "authentication_error");
    let ollama = ask(&server, "POST /api/chat", "host: localhost\r\n");
    assert_eq!(ollama.0, 401);
    assert!(body(&ollama.1)["error"].is_string());
    assert_eq!(server.get("/health").status, 200, "health is open");
    for closed in ["/metrics", "/nowhere", "/health/", "/v1/models/llama"] {
        assert_eq!(server.get(closed).status, 401, "{closed}");
    }
}

/// DNS rebinding: a page of evil.example, whose name now leads to 127.0.0.1.
#[test]
fn other_names_than_this_machine_s_are_refused() {
    let server = server(GuardOptions {
        allowed_hosts: texts(&["minfer.test"]),
        ..GuardOptions::default()
    });
    let health = |headers: &str| ask(&server, "GET /health", headers).0;
    for mine in [
        "localhost",
        "LOCALHOST:8080",
        "127.0.0.1:1",
        "127.8.8.8",
        "[::1]:80",
        "minfer.test:8080",
        "localhost.",
    ] {
        assert_eq!(health(&format!("host: {mine}\r\n")), 200, "{mine}");
    }
    for other in [
        "evil.example",
        "localhost.evil.example",
        "evil.example:localhost",
        "10.0.0.1",
        "[2001:db8::1]:80",
        "127.0.0.1.evil.example",
        "minfer.test.evil.example",
        "",
    ] {
        assert_eq!(health(&format!("host: {other}\r\n")), 403, "{other}");
    }
    assert_eq!(health("host: localhost\r\nhost: evil.example\r\n"), 403);
    let absolute = ask(
        &server,
        "GET http://evil.example/health",
        "host: localhost\r\n",
    );
    assert_eq!(absolute.0, 403);
    assert!(absolute.1.contains("--allowed-host"), "{}", absolute.1);
}

/// Who may be reached by others has to be told its names, unless it asks for a key, which no page has.
#[test]
fn other_names_are_refused_on_other_addresses_too() {
    let health = |keys: &[&str], hosts: &[&str], host: &str| {
        let mut setup = Setup::of(&["llama"]);
        setup.server.address = ([0, 0, 0, 0], 0).into();
        setup.server.guard.keys = texts(keys);
        setup.server.guard.allowed_hosts = texts(hosts);
        let server = setup.start();
        ask(&server, "GET /health", &format!("host: {host}\r\n"))
    };
    for (keys, hosts, host, status) in [
        (&[][..], &[][..], "evil.example", 403),
        (&[], &[], "192.168.1.7:8080", 200),
        (&[], &[], "[2001:db8::1]:8080", 200),
        (&[], &[], "localhost:8080", 200),
        (&[], &["minfer.test"], "minfer.test", 200),
        (&[], &["minfer.test"], "evil.example", 403),
        (&[], &["*"], "evil.example", 200),
        (&["sk"], &[], "minfer.svc", 200),
        (&["sk"], &["minfer.test"], "evil.example", 403),
    ] {
        let (got, reply) = health(keys, hosts, host);
        assert_eq!(got, status, "{keys:?} {hosts:?} {host}: {reply}");
        assert!(status == 200 || reply.contains("--allowed-host"), "{reply}");
    }
}

#[test]
fn http_1_1_without_a_host_is_400() {
    let server = server(GuardOptions::default());
    let (status, reply) = ask(&server, "GET /health", "");
    assert_eq!(status, 400, "{reply}");
    let said = body(&reply)["error"]["message"].to_string();
    assert!(said.contains("Host"), "{said}");
    // HTTP/1.0 knows no such header.
    let mut old = Raw::connect(&server);
    old.send("GET /health HTTP/1.0\r\n\r\n");
    let reply = old.rest();
    assert!(reply.split(' ').nth(1) == Some("200"), "{reply}");
}

/// An image of a page elsewhere has no `Origin`.
#[test]
fn what_a_page_elsewhere_shows_of_this_server_is_refused() {
    let options = |origins: &[&str]| GuardOptions {
        cors_origins: texts(origins),
        ..GuardOptions::default()
    };
    let get = |server: &Running, path: &str, fetch: &str| {
        let headers = format!("host: localhost\r\n{fetch}");
        ask(server, &format!("GET {path}"), &headers)
    };
    const IMAGE: &str = "sec-fetch-mode: no-cors\r\nsec-fetch-dest: image\r\n";
    const VISIT: &str = "sec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\n";
    const FRAME: &str = "sec-fetch-mode: navigate\r\nsec-fetch-dest: iframe\r\n";
    let closed = server(options(&["https://app.example"]));
    for (path, site, how, status) in [
        ("/props", "cross-site", IMAGE, 403),
        ("/props", "same-site", IMAGE, 403),
        ("/props", "same-origin", IMAGE, 200),
        ("/props", "none", VISIT, 200),
        ("/props", "cross-site", VISIT, 403),
        ("/", "cross-site", VISIT, 200),
        ("/", "cross-site", FRAME, 403),
        ("/page/icon.svg", "cross-site", IMAGE, 403),
    ] {
        let (got, reply) = get(&closed, path, &format!("sec-fetch-site: {site}\r\n{how}"));
        assert_eq!(got, status, "{path} {site} {how}: {reply}");
        assert!(status == 200 || reply.contains("--cors-origin"), "{reply}");
    }
    // A script of a page that may says where it comes from.
    let listed = "sec-fetch-site: cross-site\r\norigin: https://app.example\r\n";
    assert_eq!(get(&closed, "/props", listed).0, 200);
    let open = server(options(&["*"]));
    let image = format!("sec-fetch-site: cross-site\r\n{IMAGE}");
    assert_eq!(get(&open, "/props", &image).0, 200);
}

#[test]
fn pages_of_other_origins_are_refused_unless_they_are_listed() {
    let server = server(GuardOptions {
        cors_origins: texts(&["https://app.example", "http://localhost:3000"]),
        ..GuardOptions::default()
    });
    let models = |headers: &str| {
        let headers = format!("host: localhost:8080\r\n{headers}");
        ask(&server, "GET /v1/models", &headers)
    };
    for other in [
        "https://evil.example",
        "null",
        "http://localhost:9",
        "http://app.example",
    ] {
        let (status, reply) = models(&format!("origin: {other}\r\n"));
        assert_eq!(status, 403, "{other}");
        assert!(
            reply.contains("--cors-origin") && !reply.contains("allow-origin"),
            "{reply}"
        );
    }
    let (status, own) = models("origin: http://localhost:8080\r\n");
    assert!(status == 200 && !own.contains("allow-origin"), "{own}");
    for listed in ["https://app.example", "http://localhost:3000"] {
        let (status, reply) = models(&format!("origin: {listed}\r\n"));
        assert_eq!(status, 200, "{listed}");
        assert!(
            reply.contains(&format!("access-control-allow-origin: {listed}\r\n")),
            "{reply}"
        );
        assert!(reply.contains("vary: origin"), "{reply}");
    }
}

#[test]
fn a_browser_that_asks_first_is_answered_before_any_key() {
    let server = server(GuardOptions {
        keys: texts(&["sk"]),
        cors_origins: texts(&["https://app.example"]),
        ..GuardOptions::default()
    });
    let preflight = |origin: &str| {
        let headers = format!(
            "host: localhost\r\norigin: {origin}\r\naccess-control-request-method: POST\r\n\
             access-control-request-headers: authorization,content-type\r\n"
        );
        ask(&server, "OPTIONS /v1/chat/completions", &headers)
    };
    let (status, reply) = preflight("https://app.example");
    assert_eq!(status, 204, "{reply}");
    for line in [
        "access-control-allow-origin: https://app.example",
        "access-control-allow-headers: authorization,content-type",
        "access-control-max-age: 600",
    ] {
        assert!(reply.contains(line), "no {line}: {reply}");
    }
    let methods = reply
        .lines()
        .find_map(|l| l.strip_prefix("access-control-allow-methods: "));
    assert!(methods.is_some_and(|m| m.contains("POST")), "{reply}");
    assert_eq!(preflight("https://evil.example").0, 403);
    // The page can read why the request itself fails.
    let headers = "host: localhost\r\norigin: https://app.example\r\n";
    let (status, reply) = ask(&server, "POST /v1/chat/completions", headers);
    assert!(
        status == 401 && reply.contains("access-control-allow-origin"),
        "{reply}"
    );
}

#[test]
fn with_a_star_every_page_may() {
    let server = server(GuardOptions {
        allowed_hosts: texts(&["*"]),
        cors_origins: texts(&["*"]),
        ..GuardOptions::default()
    });
    let headers = "host: a.example\r\norigin: https://b.example\r\n";
    let (status, reply) = ask(&server, "GET /v1/models", headers);
    assert!(
        status == 200 && reply.contains("allow-origin: https://b.example"),
        "{reply}"
    );
}

/// Mozilla-Ocho/llamafile 721, and JSON nested deeper than any reader's stack.
#[test]
fn llamafile_721_what_is_no_request_is_400() {
    let server = server(GuardOptions::default());
    for body in [
        "{}".to_owned(),
        "{".to_owned(),
        "[1, 2]".to_owned(),
        "\"x\"".to_owned(),
        "\u{0}".to_owned(),
        "{\"messages\": 3}".to_owned(),
        "{\"messages\": {\"role\": \"user\"}}".to_owned(),
        "[".repeat(1 << 20),
        "{\"messages\":".repeat(100_000),
    ] {
        let mut raw = Raw::connect(&server);
        raw.post(CHAT, "connection: close\r\n", &body);
        let reply = raw.rest();
        assert!(reply.starts_with("HTTP/1.1 400 "), "{reply}");
        assert!(
            reply.contains("\"type\":\"invalid_request_error\""),
            "{reply}"
        );
    }
    assert_eq!(server.get("/health").status, 200);
}

/// What the parser itself refuses, also behind a request that was fine.
#[test]
fn what_is_no_http_has_a_body_that_says_so() {
    let server = server(GuardOptions::default());
    for wrong in [
        "this is no request\r\n\r\n",
        "GET / HTTP/1.1\r\nhost localhost\r\n\r\n",
        "GET / HTTP/1.7\r\nhost: localhost\r\n\r\n",
    ] {
        for before in ["", "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"] {
            let mut raw = Raw::connect(&server);
            if !before.is_empty() {
                raw.send(before);
                raw.until("}");
            }
            raw.send(wrong);
            let reply = raw.rest();
            assert!(reply.starts_with("HTTP/1.1 400 "), "{wrong}: {reply}");
            let error = &body(&reply)["error"];
            assert_eq!(error["type"], "invalid_request_error");
            assert_eq!(error["message"], "this is no HTTP/1.1 request");
        }
    }
}

/// CVE-2026-21869 and its kind: numbers beyond every range in every numeric field.
#[test]
fn cve_2026_21869_numbers_beyond_their_range_do_no_harm() {
    let server = server(GuardOptions::default());
    let huge = [
        "-1e308",
        "1e308",
        "-9223372036854775808",
        "18446744073709551616",
        "-2",
        "1e-400",
    ];
    for field in [
        "max_tokens",
        "max_completion_tokens",
        "n_predict",
        "n",
        "seed",
        "top_k",
        "top_p",
        "min_p",
        "typical_p",
        "temperature",
        "repeat_penalty",
        "repeat_last_n",
        "presence_penalty",
        "frequency_penalty",
        "top_logprobs",
        "dry_multiplier",
        "dry_allowed_length",
        "dry_penalty_last_n",
        "mirostat",
        "mirostat_tau",
        "mirostat_eta",
        "top_n_sigma",
        "xtc_probability",
        "xtc_threshold",
        "dynatemp_range",
        "dynatemp_exponent",
    ] {
        for number in huge {
            let limit = if field.contains("max") || field == "n_predict" {
                ""
            } else {
                "\"max_tokens\": 1, "
            };
            let body = format!(
                "{{\"messages\": [{{\"role\": \"user\", \"content\": \"a\"}}], {limit}\"{field}\": {number}}}"
            );
            let mut raw = Raw::connect(&server);
            raw.post(CHAT, "connection: close\r\n", &body);
            let reply = raw.rest();
            let fine = reply.starts_with("HTTP/1.1 400 ") || reply.starts_with("HTTP/1.1 200 ");
            assert!(fine, "{field} {number}: {reply}");
        }
    }
    assert_eq!(server.get("/health").status, 200);
}

/// ggml-org/llama.cpp 4492, 19051, and grammars and schemas that would take forever.
#[test]
fn llama_cpp_4492_a_hostile_grammar_is_400_and_the_server_lives() {
    let server = server(GuardOptions::default());
    let chat = |key: &str, value: Value| {
        let mut body = json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 4});
        body[key] = value;
        server.post(CHAT, &body)
    };
    let deep = format!("root ::= {}\"a\"{}", "(".repeat(10_000), ")".repeat(10_000));
    let format = |s: Value| json!({"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": s}});
    let pattern = |p: &str| format(json!({"type": "string", "pattern": p}));
    for (key, value) in [
        ("grammar", json!("start ::= \"a\"")),
        ("grammar", json!("root ::= root \"a\"")),
        ("grammar", json!("root ::= \"a\"{1000000000}")),
        ("grammar", json!("root ::= [")),
        ("grammar", json!(deep)),
        ("grammar", json!("a".repeat(1 << 20))),
        ("response_format", pattern("(")),
        (
            "response_format",
            format(json!({"$ref": "file:///etc/passwd"})),
        ),
        (
            "response_format",
            format(json!({"$ref": "http://127.0.0.1:1/x"})),
        ),
    ] {
        let reply = chat(key, value.clone());
        assert_eq!(
            reply.status,
            400,
            "{:.300}: {}",
            value.to_string(),
            reply.text
        );
        assert!(reply.json()["error"]["message"].is_string());
    }
    // These ask for more than can be; the first tokens of them can be said.
    let mut nested = json!({"type": "string"});
    for _ in 0..100 {
        nested = json!({"type": "array", "items": nested, "minItems": 1000});
    }
    for (key, value) in [
        ("grammar", json!("root ::= (\"a\"{9999}){9999}")),
        ("json_schema", nested),
    ] {
        let reply = chat(key, value);
        assert!([200, 400].contains(&reply.status), "{}", reply.text);
    }
    let fine = chat("grammar", json!("root ::= \"yes\""));
    let said = &fine.json()["choices"][0]["message"]["content"];
    assert_eq!(said, "yes", "{}", fine.text);
}

#[test]
fn https_with_a_certificate_of_its_own() {
    let mut setup = Setup::of(&["llama"]);
    setup.server.tls = Some(localhost());
    let server = setup.start();
    let pem = std::fs::read(data("localhost.pem")).unwrap();
    let root = ureq::tls::Certificate::from_pem(&pem).unwrap();
    let tls = ureq::tls::TlsConfig::builder();
    let tls = tls
        .root_certs(ureq::tls::RootCerts::new_with_certs(&[root]))
        .build();
    let agent = ureq::Agent::config_builder()
        .tls_config(tls)
        .build()
        .new_agent();
    let url = server.url.replace("http:", "https:");
    let mut response = agent.get(format!("{url}/health")).call().unwrap();
    assert_eq!(
        response.body_mut().read_to_string().unwrap(),
        "{\"status\":\"ok\"}"
    );
    // Who speaks no TLS gets nowhere, and harms nobody.
    let mut plain = Raw::connect(&server);
    plain.send("GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert!(!plain.rest().contains("HTTP/1.1 200"));
    assert!(agent.get(format!("{url}/health")).call().is_ok());
}

#[test]
fn what_a_server_can_t_be_made_of_is_named() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let refused = |change: &dyn Fn(&mut ServerOptions)| {
        let mut options = Setup::of(&["llama"]).server;
        change(&mut options);
        let loader = minfer_server::Loader::new(|_, _| Err("not asked".into()));
        let bound = runtime.block_on(Server::bind(options, loader));
        bound
            .err()
            .map(|e: ServerError| e.to_string())
            .expect("a refusal")
    };
    for key in ["", "a b", "schlüssel", "a\n"] {
        let said = refused(&|o| o.guard.keys = texts(&["fine", key]));
        assert!(said.contains("API key 2"), "{said}");
    }
    let said = refused(&|o| o.guard.allowed_hosts = texts(&["http://a"]));
    assert!(said.contains("'http://a' is no host name"), "{said}");
    let said = refused(&|o| o.guard.cors_origins = texts(&["a.example"]));
    assert!(said.contains("'a.example' is no origin"), "{said}");
    let tls = |certificate: &str, key: &str| {
        let (certificate, key) = (data(certificate), data(key));
        refused(&|o| {
            let (certificate, key) = (certificate.clone(), key.clone());
            o.tls = Some(TlsFiles { certificate, key });
        })
    };
    let said = tls("missing.pem", "localhost.key");
    assert!(said.contains("missing.pem: "), "{said}");
    let said = tls("localhost.key", "localhost.key");
    assert!(said.contains("holds no certificate"), "{said}");
    let said = tls("localhost.pem", "localhost.pem");
    assert!(said.contains("localhost.pem: "), "{said}");
}
