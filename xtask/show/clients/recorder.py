"""A proxy between the clients and the server that checks the shape of every response that passes."""
import http.client
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from . import shapes

HOP = {"connection", "transfer-encoding", "content-length", "keep-alive", "host"}


class Recorder:
    """Listens on a port of its own (`url`) and forwards to the server's."""

    def __init__(self, port):
        self.server_port, self.counts, self.wrong = port, {}, []
        self.lock = threading.Lock()
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"recorder": self}))
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"

    def seen(self, method, path, request, status, kind, body, whole):
        """Checks one response."""
        shape, problems = shapes.check(method, path, request, status, kind, body, whole)
        with self.lock:
            self.counts[shape] = self.counts.get(shape, 0) + 1
            self.wrong.extend(f"{method} {path} {status}: {p}" for p in problems)

    def take_wrong(self):
        """What was wrong since the last call."""
        with self.lock:
            wrong, self.wrong = self.wrong, []
        return wrong


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def handle(self):
        try:
            super().handle()
        except ConnectionError:
            pass  # a client may leave between two requests

    def forward(self):
        """One request; the answer's bytes go on as they come, and a client that leaves is left upstream, too."""
        self.connection.settimeout(300)
        request = self.rfile.read(int(self.headers.get("content-length") or 0))
        upstream = http.client.HTTPConnection("127.0.0.1", self.recorder.server_port, timeout=300)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP}
        body, whole = b"", False
        try:
            upstream.request(self.command, self.path, request or None, headers)
            answer = upstream.getresponse()
            self.send_response(answer.status)
            for key, value in answer.getheaders():
                if key.lower() not in HOP | {"date", "server"}:
                    self.send_header(key, value)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            while piece := answer.read1(65536):
                body += piece
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
            whole = True
            # Noted before the client knows the end, so that the check that made the request gets the blame.
            self.note(request, answer, body, True)
            self.wfile.write(b"0\r\n\r\n")
        except ConnectionError:
            self.close_connection = True
            if not whole:
                self.note(request, answer, body, False)
        finally:
            upstream.close()

    def note(self, request, answer, body, whole):
        kind = (answer.getheader("content-type") or "").split(";")[0]
        try:
            request = json.loads(request) if request else {}
        except ValueError:
            request = {}
        request = request if isinstance(request, dict) else {}
        path = self.path.split("?")[0]
        self.recorder.seen(self.command, path, request, answer.status, kind, body, whole)

    do_GET = do_POST = do_DELETE = do_HEAD = do_OPTIONS = forward
