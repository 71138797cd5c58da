//! Requests by hand: what no client library sends.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::harness::Running;

/// Longer than anything here takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// A connection to a server.
pub struct Raw(pub TcpStream);

impl Raw {
    /// A new one.
    pub fn connect(server: &Running) -> Raw {
        Raw::connect_with(server, None)
    }

    /// One whose system keeps at most so many bytes that were not read.
    pub fn connect_with(server: &Running, buffer: Option<usize>) -> Raw {
        let address = server.url.split_once("://").expect("a URL").1;
        let address: SocketAddr = address.parse().expect("an address");
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        if let Some(bytes) = buffer {
            socket.set_recv_buffer_size(bytes).expect("a socket");
        }
        socket.connect(&address.into()).expect("a server");
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(LONG)).expect("a socket");
        stream.set_write_timeout(Some(LONG)).expect("a socket");
        Raw(stream)
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0
            .write_all(bytes.as_ref())
            .expect("a server that reads");
    }

    /// Sends a POST of JSON with these further header lines.
    pub fn post(&mut self, path: &str, headers: &str, body: &str) {
        let length = body.len();
        self.send(format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        ));
    }

    /// What comes until `needle` has come, or the end.
    pub fn until(&mut self, needle: &str) -> String {
        let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
        while !String::from_utf8_lossy(&all).contains(needle) {
            match self.0.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => all.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::ConnectionReset => break,
                Err(e) => panic!("{e} after {}", String::from_utf8_lossy(&all)),
            }
        }
        String::from_utf8_lossy(&all).into_owned()
    }

    /// All that comes until the end, or until nothing has come for so long.
    pub fn until_silence(&mut self, silence: Duration) -> String {
        self.0.set_read_timeout(Some(silence)).expect("a socket");
        let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
        while let Ok(n @ 1..) = self.0.read(&mut buffer) {
            all.extend_from_slice(&buffer[..n]);
        }
        String::from_utf8_lossy(&all).into_owned()
    }

    /// All that comes until the end.
    pub fn rest(&mut self) -> String {
        self.until("\u{0}never\u{0}")
    }
}

/// Waits until `done` says so.
pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < LONG, "{what}: not within {LONG:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
