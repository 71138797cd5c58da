"""Soak: 10,000 requests at random, valid, invalid, cut off and slowly read; nothing leaks, sticks or answers wrong.

packages:
models: real

`soak.py [REQUESTS]`. What a valid request must say is asked once, alone, before; the promise of same bits makes every later
answer the same, whoever shares its batch. Memory and descriptors are compared between an early moment of rest (a fifth of the
requests) and the end; the room for KV is small, so that kept prefixes have filled it by then and what grows after it is a leak.
"""
import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

from clients import Minfer

MODEL = Path(os.environ["MINFER_CACHE"]) / "SmolLM2-135M-Instruct.Q4_1.gguf"
SEED, TOGETHER = 20261130, 16
TOPICS = ["rivers", "the moon", "bread", "chess", "a lighthouse", "autumn", "two cats", "an old map", "the sea", "a train"]
GROWTH_MB, MORE_FILES = 24, 4


def valid_requests(draw):
    """Forty conversations and texts: greedy or with a seed, some constrained, with stop strings or several answers."""
    for i in range(40):
        body = {"max_tokens": draw.choice([1, 3, 6, 10]), "temperature": draw.choice([0, 0.8, 1.5]), "seed": i}
        text = f"Write about {draw.choice(TOPICS)}." + " Be vivid." * draw.choice([0, 0, 5, 60])
        more = [{}, {}, {"n": 2}, {"stop": [" the", "."]}, {"top_k": 3}, {"repeat_penalty": 1.2}]
        if i % 3:
            more.append({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {
                "type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}}})
            yield "/v1/chat/completions", {**body, "messages": [{"role": "user", "content": text}], **draw.choice(more)}
        else:
            yield "/v1/completions", {**body, "prompt": text, **draw.choice(more)}


CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
# Path, body (bytes as they are), the status it must have.
INVALID = [
    ("/v1/chat/completions", b"{\"messages\":", 400), ("/v1/chat/completions", b"[1,2]", 400), ("/v1/chat/completions", b"", 400),
    ("/v1/chat/completions", b"\xff\xfe{}", 400), ("/v1/chat/completions", b"{\"a\":" * 5000, 400),
    ("/v1/chat/completions", {**CHAT, "temperature": "hot"}, 400), ("/v1/chat/completions", {**CHAT, "model": "gpt-9"}, 404),
    ("/v1/chat/completions", {**CHAT, "messages": [{"role": "king", "content": "x"}]}, 400),
    ("/v1/chat/completions", {**CHAT, "messages": [{"role": "user", "content": "word " * 12000}]}, 400),
    ("/v1/chat/completions", {**CHAT, "grammar": "root ::= ("}, 400), ("/v1/chat/completions", {**CHAT, "n": 100000}, 400),
    ("/v1/chat/completions", {**CHAT, "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "zebra"}}}}, 400),
    ("/v1/chat/completions", {**CHAT, "top_p": 7, "stream": True}, 400), ("/v1/completions", {"prompt": [10**9]}, 400),
    ("/v1/completions", {"prompt": {"a": 1}}, 400), ("/v1/nowhere", {}, 404), ("/v1/models", {}, 405),
]


async def send(port, path, body, method="POST"):
    """A connection on which the request has been written."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + (data if method == "POST" else b""))
    await writer.drain()
    return reader, writer


def answer_of(raw):
    """Status and body of a whole response."""
    head, _, rest = raw.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" in head.lower():
        body = b""
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            n = int(size, 16)
            body, rest = body + rest[:n], rest[n + 2:]
            if n == 0:
                break
        else:
            raise AssertionError("a chunked body without an end")
    else:
        body = rest
    return int(head.split(b" ", 2)[1]), body


def said(path, body, streamed):
    """Text of each answer, in order."""
    texts = {}
    if not streamed:
        values = [json.loads(body)]
    else:
        data = [line[6:] for line in body.decode().split("\n") if line.startswith("data: ")]
        assert data[-1] == "[DONE]", data[-1:]
        values = [json.loads(d) for d in data[:-1]]
    for choice in (c for v in values for c in v["choices"]):
        part = choice.get("text") if path == "/v1/completions" else (choice["delta"] if streamed else choice["message"]).get("content")
        texts[choice["index"]] = texts.get(choice["index"], "") + (part or "")
    return [texts[i] for i in sorted(texts)]


async def ask(port, path, body, method="POST", slowly=None):
    """Status and body; `slowly` draws the pauses of a slow reader."""
    reader, writer = await send(port, path, body, method)
    raw = b""
    while piece := await reader.read(slowly.choice([1, 16, 256]) if slowly else 65536):
        raw += piece
        if slowly and slowly.random() < 0.05:
            await asyncio.sleep(slowly.random() * 0.2)
    writer.close()
    return answer_of(raw)


class Soak:
    def __init__(self, port, draw):
        self.port, self.draw, self.counts, self.wrong = port, draw, Counter(), []
        self.known = []

    async def learn(self):
        """What each valid request says, asked alone."""
        for path, body in valid_requests(self.draw):
            status, got = await ask(self.port, path, body)
            if status != 200:
                raise SystemExit(f"{path} {body}: {status} {got[:300]}")
            self.known.append((path, body, said(path, got, False)))

    async def one(self, draw):
        kind = draw.choices(["whole", "stream", "slow", "cut", "cut sending", "invalid", "look"], [25, 25, 6, 15, 4, 20, 5])[0]
        try:
            await asyncio.wait_for(getattr(self, kind.replace(" ", "_"))(draw), 120)
        except Exception as e:
            self.wrong.append(f"{kind}: {type(e).__name__}: {e}")
        self.counts[kind] += 1

    async def whole(self, draw, streamed=False, slowly=None):
        path, body, want = draw.choice(self.known)
        if streamed:
            body = {**body, "stream": True}
        status, got = await ask(self.port, path, body, slowly=slowly)
        assert status == 200, (status, got[:200])
        assert said(path, got, streamed) == want, (body, said(path, got, streamed), want)

    async def stream(self, draw):
        await self.whole(draw, streamed=True)

    async def slow(self, draw):
        await self.whole(draw, streamed=True, slowly=draw)

    async def cut(self, draw):
        """Leaves after some bytes of an answer, or some time."""
        path, body, _ = draw.choice(self.known)
        reader, writer = await send(self.port, path, {**body, "stream": draw.random() < 0.7, "max_tokens": 200})
        wait = reader.read(draw.randrange(1, 3000))
        try:
            await asyncio.wait_for(wait, draw.random() * 0.5)
        except asyncio.TimeoutError:
            pass
        writer.transport.abort() if draw.random() < 0.5 else writer.close()

    async def cut_sending(self, draw):
        """Leaves in the middle of its own request."""
        data = json.dumps(draw.choice(self.known)[1]).encode()
        _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        writer.write((head + data)[:draw.randrange(len(head) + len(data))])
        await writer.drain()
        writer.close()

    async def invalid(self, draw):
        path, body, want = draw.choice(INVALID)
        status, got = await ask(self.port, path, body)
        assert status == want, (path, body if len(str(body)) < 200 else "…", status, got[:200])
        error = json.loads(got)["error"]
        assert error["message"] and {"type", "param", "code"} <= set(error), error

    async def look(self, draw):
        path = draw.choice(["/health", "/v1/models", "/metrics", "/slots"])
        status, got = await ask(self.port, path, b"", "GET")
        assert status == 200 and got, (path, status)


async def rest(port, seconds=10):
    """Waits until no slot works; whether that happened."""
    for _ in range(seconds * 10):
        status, got = await ask(port, "/slots", b"", "GET")
        if status == 200 and not any(s["is_processing"] for s in json.loads(got)):
            return True
        await asyncio.sleep(0.1)
    return False


def weight(pid):
    """Resident megabytes and open descriptors."""
    status = Path(f"/proc/{pid}/status").read_text()
    rss = next(int(line.split()[1]) for line in status.split("\n") if line.startswith("VmRSS"))
    return rss / 1024, len(os.listdir(f"/proc/{pid}/fd"))


async def run(server, total):
    soak = Soak(server.port, random.Random(SEED))
    await soak.learn()
    begun, asked, early = time.monotonic(), 0, None

    async def worker(seed, n):
        draw = random.Random(f"{SEED}.{seed}")
        for _ in range(n):
            await soak.one(draw)

    for part in range(5):
        n = total // 5 // TOGETHER
        await asyncio.gather(*(worker(f"{part}.{i}", n) for i in range(TOGETHER)))
        asked += n * TOGETHER
        idle = await rest(server.port)
        await asyncio.sleep(1)
        memory, files = weight(server.process.pid)
        early = early or (memory, files)
        print(f"{asked:6} requests, {time.monotonic() - begun:5.0f} s: {memory:.0f} MB, {files} descriptors, "
              f"{'idle' if idle else 'A SLOT IS STUCK'}, {len(soak.wrong)} wrong", flush=True)
        if not idle:
            soak.wrong.append("a slot is stuck")
    grown, more = memory - early[0], files - early[1]
    print("\n" + ", ".join(f"{n} {kind}" for kind, n in sorted(soak.counts.items())))
    for line in soak.wrong[:10]:
        print(f"WRONG {line[:400]}")
    marks = [(f"wrong answers: {len(soak.wrong)}", not soak.wrong),
             (f"memory grew by {grown:.1f} MB (at most {GROWTH_MB})", grown <= GROWTH_MB),
             (f"descriptors grew by {more} (at most {MORE_FILES})", more <= MORE_FILES),
             ("the server lives", server.alive())]
    return marks


def main():
    total = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    server = Minfer([os.environ["MINFER"], "serve", str(MODEL), "--port", "0", "--n-ctx", "4096", "--kv-memory", "128M"])
    marks = asyncio.run(run(server, total))
    marks.append(("it ends well when told", server.stop() == 0))
    for text, good in marks:
        print(f"{'ok    ' if good else 'FAILED'} {text}")
    sys.exit(0 if all(good for _, good in marks) else 1)


main()
