//! `minfer serve`: flags, and how the process begins and ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Stdio};

use crate::models::{Variant, endless, tiny};
use crate::process::{Output, finish, minfer, run, spawn};

/// A server process.
struct Serving {
    child: Child,
    /// What it said of its model before it was ready.
    noted: String,
    /// What it says from now on.
    says: BufReader<ChildStderr>,
    address: String,
}

impl Serving {
    /// Waits until it is ready.
    fn start(args: &[&str]) -> Serving {
        let mut command = minfer(["serve", "--port", "0", "-t", "1"].iter().chain(args));
        command.stdin(Stdio::null());
        let mut child = spawn(&mut command);
        let mut says = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        says.read_line(&mut line).expect("text");
        let rest = line.strip_prefix("listening on http://");
        let address = rest.and_then(|r| r.split(',').next());
        let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
        let mut noted = String::new();
        while !noted.ends_with("ready\n") {
            assert_ne!(says.read_line(&mut noted).expect("text"), 0, "{noted}");
        }
        Serving {
            child,
            noted,
            says,
            address,
        }
    }

    /// Sends a request and reads the answer until `needle`.
    fn ask(&self, request: &str, needle: &str) -> (TcpStream, String) {
        let mut stream = TcpStream::connect(&self.address).expect("a server");
        stream
            .write_all(request.as_bytes())
            .expect("a server that reads");
        let (mut said, mut buffer) = (String::new(), [0; 1024]);
        while !said.contains(needle) {
            let n = stream.read(&mut buffer).expect("an answer");
            assert!(n > 0, "{said}");
            said.push_str(&String::from_utf8_lossy(&buffer[..n]));
        }
        (stream, said)
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = std::process::Command::new("kill")
            .args([name, &pid])
            .status();
        assert!(sent.expect("kill").success());
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.says.read_line(&mut line).expect("text");
        line
    }

    fn end(mut self) -> Output {
        let mut rest = String::new();
        self.says.read_to_string(&mut rest).expect("text");
        let output = finish(self.child);
        Output {
            stderr: rest,
            ..output
        }
    }
}

const HEALTH: &str = "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// A stream that goes on for as long as the test needs.
fn talk() -> String {
    let body = r#"{"messages":[{"role":"user","content":"a"}],"ignore_eos":true,"max_tokens":100000,"stream":true}"#;
    let length = body.len();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

#[test]
fn wrong_flags_are_refused_in_one_line() {
    let model = tiny("llama");
    for (flag, value, needle) in [
        ("--port", "65536", "--port"),
        ("--host", "localhost", "--host"),
        ("--parallel", "0", "--parallel"),
        ("--queue", "0", "--queue"),
        ("--max-body", "0", "500M or 2G"),
        ("--max-connections", "0", "--max-connections"),
        ("--idle-timeout", "-1", "number of seconds"),
        ("--idle-timeout", "0", "above 0"),
        ("--request-timeout", "nan", "number of seconds"),
        ("--drain-timeout", "soon", "number of seconds"),
        ("--models-memory", "lots", "500M or 2G"),
        ("--models-max", "0", "--models-max"),
        ("--keep-alive", "-2", "or -1"),
        ("--api-key", "", "API key 1"),
        ("--api-key", "with space", "API key 1"),
        ("--allowed-host", "http://a.example", "is no host name"),
        ("--cors-origin", "a.example", "is no origin"),
        ("--tls-cert", "a.pem", "--tls-key"),
        (
            "--keep-alive",
            "60",
            "--keep-alive does nothing: it is of models other than the first",
        ),
        ("--ssl-key-file", "x", "it is --tls-key here"),
        ("-a", "x", "minfer serve NAME=MODEL"),
        ("-ngl", "99", "-ngl: this build runs all layers on the CPU"),
        ("--no-such-flag", "1", "--no-such-flag"),
    ] {
        let output = run(["serve", &model, "--port", "0", flag, value]);
        output.refused(2, &[needle]);
        assert!(flag != "--api-key" || value.is_empty() || !output.stderr.contains(value));
    }
    run(["serve"]).refused(2, &["MODELS"]);
    for (text, needle) in [
        ("=x.gguf", "the name in front of = is empty"),
        (" =x.gguf", "the name in front of = is empty"),
        ("a=", "there is no model behind ="),
    ] {
        run(["serve", text, "--port", "0"]).refused(2, &[text, needle, "NAME=MODEL"]);
    }
    run(["serve", "", "--port", "0"]).refused(2, &["a model is named ''"]);
    let twice = ["serve", "a=x.gguf", "a=y.gguf", "--port", "0"];
    run(twice).refused(2, &["two models are called 'a'"]);
}

/// What a model takes is counted before its engine is asked for.
#[test]
fn a_context_beyond_all_numbers_is_refused_by_its_flag() {
    let model = tiny("llama");
    let most = usize::MAX.to_string();
    let flags = ["--port", "0", "--parallel", "256", "--n-ctx", &most];
    let output = run(["serve", &model].iter().chain(&flags).copied());
    assert_eq!(output.code, Some(1), "{output:?}");
    let said = output.stderr.lines().last().unwrap_or_default();
    let flag = format!("--n-ctx is {most}");
    assert!(
        said.starts_with("error: ") && said.contains(&flag),
        "{output:?}"
    );
}

#[test]
fn a_template_that_another_stands_in_for_is_told_when_the_model_is_loaded() {
    let own = Variant::of("llama")
        .text("tokenizer.chat_template", "{{ messages[0].content }}")
        .write();
    for (model, notes) in [(tiny("llama"), 1), (own.path().to_owned(), 0)] {
        let server = Serving::start(&[&model]);
        let said = &server.noted;
        assert_eq!(said.matches("ChatML").count(), notes, "{said}");
        assert_eq!(said.matches(&model).count(), notes, "{said}");
        server.signal("-TERM");
        server.end();
    }
}

#[test]
fn what_the_machine_refuses_is_an_error() {
    let model = tiny("llama");
    let serve = |args: &[&str]| run(["serve", &model, "--port", "0"].iter().chain(args));
    serve(&["--api-key-file", "/no/such/file"]).refused(1, &["/no/such/file"]);
    let empty = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(empty.path(), "# none yet\n\n").unwrap();
    let empty = empty.path().to_str().unwrap();
    serve(&["--api-key-file", empty]).refused(1, &["holds no key"]);
    serve(&["--tls-cert", empty, "--tls-key", empty]).refused(1, &["holds no certificate"]);
    let mut command = minfer(["serve", &model, "--port", "0"]);
    let no_key = finish(spawn(command.env("MINFER_API_KEY", "")));
    no_key.refused(2, &["MINFER_API_KEY is empty"]);
    // The port is bound before anything is loaded: a missing model comes second.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let both = run(["serve", "/no/such/model.gguf", "--port", &port]);
    both.refused(1, &["cannot listen on 127.0.0.1", &port]);
    let missing = run(["serve", "/no/such/model.gguf", "--port", "0"]);
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert!(missing.stderr.contains("error: ") && missing.stderr.contains("/no/such/model.gguf"));
}

#[test]
fn keys_come_from_flags_a_file_and_the_environment() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "# keys\nfrom-file-1\n\n from-file-2 \n").unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    let model = tiny("llama");
    let server = Serving::start(&[&model, "--api-key", "from-flag", "--api-key-file", &path]);
    let status = |key: &str| {
        let request = format!(
            "GET /v1/models HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\r\n"
        );
        server.ask(&request, "\r\n").1[9..12].to_owned()
    };
    assert_eq!(
        ["from-flag", "from-file-1", "from-file-2"].map(status),
        ["200", "200", "200"]
    );
    assert_eq!(
        ["#", "keys", "from-file", ""].map(status),
        ["401", "401", "401", "401"]
    );
    server.signal("-TERM");
    assert_eq!(server.end().code, Some(0));
}

#[test]
fn the_first_signal_lets_requests_end_and_the_second_does_not() {
    let model = endless();
    for (name, code) in [("-INT", 130), ("-TERM", 143)] {
        // Only the second signal can end it: the request and its time are longer than any test.
        let mut server = Serving::start(&[model.path(), "-c", "100000", "--drain-timeout", "1e6"]);
        let (_stream, _) = server.ask(&talk(), "data: ");
        server.signal(name);
        let said = server.line();
        assert!(said.starts_with("ending once"), "{said}");
        server.ask(HEALTH, "draining");
        server.signal(name);
        assert_eq!(server.end().code, Some(code));
    }
}

#[test]
fn a_server_with_nothing_to_do_ends_well_at_once() {
    let flags = ["--drain-timeout", "1e6", "--idle-timeout", "1e6"];
    let model = tiny("llama");
    let server = Serving::start(&[&[model.as_str()][..], &flags].concat());
    let (_idle, said) = server.ask(HEALTH, "}");
    assert!(said.ends_with("{\"status\":\"ok\"}"), "{said}");
    server.signal("-TERM");
    let output = server.end();
    assert_eq!(output.code, Some(0), "{output:?}");
}

#[test]
fn who_is_cut_off_is_counted() {
    let model = endless();
    let server = Serving::start(&[model.path(), "-c", "100000", "--drain-timeout", "0.2"]);
    let (_stream, _) = server.ask(&talk(), "data: ");
    server.signal("-TERM");
    let output = server.end();
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(
        output.stderr.contains("error: 1 requests were cut off"),
        "{output:?}"
    );
}
