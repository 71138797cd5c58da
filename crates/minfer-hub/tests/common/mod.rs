//! A small HTTP server, a wheel and a progress for the tests.
#![allow(dead_code)] // each test binary uses a part

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use minfer_hub::{Alias, Hub, Progress};
use sha2::{Digest, Sha256};

/// What the server was asked.
#[derive(Debug, Clone)]
pub struct Request {
    pub path: String,
    pub range: Option<u64>,
}

/// What it answers.
pub enum Answer {
    /// 200 with the bytes, or 206 with those from the range on.
    Bytes(Vec<u8>),
    /// 200 with all the bytes, whatever the range.
    NoRanges(Vec<u8>),
    /// As `Bytes`, but the connection closes after that many bytes of the body.
    CutAfter(Vec<u8>, usize),
    /// As `Bytes`, but nothing comes after that many bytes, ever, and the connection stays.
    StallAfter(Vec<u8>, usize),
    /// 206 whose range starts somewhere else.
    WrongRange(Vec<u8>),
    /// No body.
    Status(u16),
    /// 302 to an address.
    Redirect(String),
}

pub struct Server {
    pub url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// `answer` gets the number of the request (from 0) and the request.
    pub fn start(answer: impl Fn(usize, &Request) -> Answer + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (log, answer) = (requests.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, answer) = (log.clone(), answer.clone());
                std::thread::spawn(move || {
                    // The client may be gone: that is a test of its own.
                    let _ = serve(stream, &log, &*answer);
                });
            }
        });
        Server { url, requests }
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().expect("the log").clone()
    }
}

fn serve(
    mut stream: TcpStream,
    log: &Mutex<Vec<Request>>,
    answer: &dyn Fn(usize, &Request) -> Answer,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().unwrap_or(Ok(String::new()))?;
    let path = first.split(' ').nth(1).unwrap_or("").to_owned();
    let mut request = Request { path, range: None };
    for line in lines {
        let line = line?.to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(range) = line.strip_prefix("range: bytes=") {
            request.range = range.trim_end_matches('-').parse().ok();
        }
    }
    let number = {
        let mut log = log.lock().expect("the log");
        log.push(request.clone());
        log.len() - 1
    };
    let mut send = |status: &str, headers: &str, body: &[u8], length: usize| {
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n{headers}\r\n"
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        stream.flush()
    };
    let ranged = |bytes: &[u8], shift: u64| -> (&'static str, String, Vec<u8>) {
        match request.range {
            None => ("200 OK", String::new(), bytes.to_vec()),
            Some(start) => {
                let (first, last) = (start + shift, bytes.len() - 1);
                let header = format!("Content-Range: bytes {first}-{last}/{}\r\n", bytes.len());
                (
                    "206 Partial Content",
                    header,
                    bytes[start as usize..].to_vec(),
                )
            }
        }
    };
    match answer(number, &request) {
        Answer::Status(status) => send(&format!("{status} Whatever"), "", b"", 0),
        Answer::Redirect(to) => send("302 Found", &format!("Location: {to}\r\n"), b"", 0),
        Answer::NoRanges(bytes) => send("200 OK", "", &bytes, bytes.len()),
        Answer::WrongRange(bytes) => {
            let (status, headers, body) = ranged(&bytes, 1);
            send(status, &headers, &body, body.len())
        }
        Answer::Bytes(bytes) if request.range.is_some_and(|r| r >= bytes.len() as u64) => {
            send("416 Range Not Satisfiable", "", b"", 0)
        }
        Answer::Bytes(bytes) => {
            let (status, headers, body) = ranged(&bytes, 0);
            send(status, &headers, &body, body.len())
        }
        Answer::CutAfter(bytes, n) => {
            let (status, headers, body) = ranged(&bytes, 0);
            send(status, &headers, &body[..n.min(body.len())], body.len())
        }
        Answer::StallAfter(bytes, n) => {
            let (status, headers, body) = ranged(&bytes, 0);
            send(status, &headers, &body[..n.min(body.len())], body.len())?;
            loop {
                std::thread::park();
            }
        }
    }
}

/// Bytes that look like nothing.
pub fn bytes(n: usize) -> Vec<u8> {
    (0..n as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect()
}

/// The alias `tiny` for `bytes`, from `sources`.
pub fn tiny(bytes: &[u8], sources: &[&str]) -> Alias {
    Alias {
        name: "tiny".to_owned(),
        file: "tiny-f32.gguf".to_owned(),
        sha256: sha256(bytes),
        size: bytes.len() as u64,
        sources: sources.iter().map(|s| (*s).to_owned()).collect(),
    }
}

/// A hub with its cache in `dir`, which asks `server`.
pub fn hub(dir: &Path, server: &Server) -> Hub {
    Hub::with_cache(dir).hf_endpoint(&server.url)
}

/// A wheel `NAME-1.0-py3-none-any.whl` in `dir` that holds `members`; its path.
pub fn wheel(dir: &Path, name: &str, version: &str, members: &[(&str, &[u8])]) -> PathBuf {
    std::fs::create_dir_all(dir).expect("made");
    let path = dir.join(format!("{name}-{version}-py3-none-any.whl"));
    let mut zip = zip::ZipWriter::new(std::fs::File::create(&path).expect("created"));
    let info = format!("{name}-{version}.dist-info");
    let metadata = format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n");
    let about = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
    let fixed = [
        (format!("{info}/METADATA"), metadata.as_bytes()),
        (format!("{info}/WHEEL"), about.as_bytes()),
        (format!("{info}/RECORD"), b"".as_slice()),
    ];
    let members = members
        .iter()
        .map(|(name, bytes)| ((*name).to_owned(), *bytes));
    for (name, bytes) in members.chain(fixed) {
        let options = zip::write::SimpleFileOptions::default();
        zip.start_file(name, options).expect("started");
        zip.write_all(bytes).expect("written");
    }
    zip.finish().expect("finished");
    path
}

/// What a fetch told.
#[derive(Default)]
pub struct Told {
    pub notes: Vec<String>,
    pub starts: Vec<(String, u64, Option<u64>)>,
    pub done: u64,
    pub finished: usize,
}

impl Progress for Told {
    fn start(&mut self, name: &str, done: u64, total: Option<u64>) {
        self.starts.push((name.to_owned(), done, total));
    }
    fn advance(&mut self, done: u64) {
        self.done = done;
    }
    fn finish(&mut self) {
        self.finished += 1;
    }
    fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }
}
