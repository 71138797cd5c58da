"""Kills a replica under load and shows that nobody notices.

    pip install -r deploy/ray/requirements.txt
    python deploy/ray/test_takeover.py BINARY MODEL [SIGNAL]

On this machine: two replicas of `minfer serve` on Ray Serve, some dozens of requests at once, streamed and not. In the
middle of their answers one minfer process gets `kill -9`, or another signal (STOP: it hangs, and Ray must notice). Every answer must be complete and equal to what a plain
`minfer serve`, alone and undisturbed, says to the same request with the same seed. Exit code 0 if so.
"""

import asyncio
import json
import os
import re
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import aiohttp
import ray
from ray import serve

from app import Args, app
from takeover import GENERATE

Json = dict[str, Any]
# URLs and processes of replicas.
Places = list[tuple[str, int]]
REQUESTS = 48
# A replica is killed once so many of its streams have so many pieces each.
KILL_STREAMS, KILL_PIECES = 3, 8
SYSTEM = ["You tell long stories.", "You are a terse pirate.", "You teach chemistry.", "You answer in rhymes."]
LIMIT_S = 300
# What the replicas call it.
MODEL = os.path.basename(sys.argv[2]).removesuffix(".gguf") if len(sys.argv) > 2 else ""


class Wrong(Exception):
    """What the test looks for."""


def check(holds: bool, what: str) -> None:
    """Fails the test unless something holds."""
    if not holds:
        raise Wrong(what)


# Where a fourth of the requests goes, in turn; all of them stream.
OTHERS = ("messages", "responses", "api/chat", "api/generate")


def other(i: int) -> tuple[str, Json]:
    """Request number i to another surface than OpenAI's chat, with a seed: not all of them tell theirs."""
    surface, system, prompt = OTHERS[i // 4 % len(OTHERS)], SYSTEM[i % len(SYSTEM)], f"Tell me about the number {i}."
    talk = [{"role": "user", "content": prompt}]
    seed, limit = 1000 + i, 40 + i
    body: Json = {"stream": True, "seed": seed}
    if surface == "messages":
        return surface, body | {"model": MODEL, "system": system, "messages": talk, "max_tokens": limit}
    if surface == "responses":
        return surface, body | {"instructions": system, "input": prompt, "max_output_tokens": limit}
    body = {"model": MODEL, "options": {"seed": seed, "num_predict": limit}}
    if surface == "api/chat":
        return surface, body | {"messages": [{"role": "system", "content": system}, *talk]}
    return surface, body | {"system": system, "prompt": prompt}


def as_chunk(surface: str, event: Json) -> Json:
    """What an event of another surface says, in the form of a chunk of OpenAI's chat."""
    role, text, end, tokens = "", "", "", 0
    name: str | None = None
    if surface.startswith("api/"):
        text = (event.get("message") or {}).get("content") or event.get("response") or ""
        if event["done"]:
            role, end, tokens = "assistant", event["done_reason"], event["eval_count"]
    elif surface == "messages":
        delta = event.get("delta") or {}
        text, end = delta.get("text") or "", delta.get("stop_reason") or ""
        tokens = event["usage"]["output_tokens"] if end else 0
        if message := event.get("message"):
            role, name = message["role"], message["id"]
    else:
        text = event["delta"] if event["type"] == "response.output_text.delta" else ""
        name = event.get("item_id")
        if event["type"] == "response.output_item.added":
            role, name = event["item"]["role"], event["item"]["id"]
        if event["type"] in GENERATE[surface].last:
            response = event["response"]
            end, tokens, (item,) = response["status"], response["usage"]["output_tokens"], response["output"]
            name = item["id"]
    choice = {"index": 0, "delta": {"role": role, "content": text}, "finish_reason": end}
    return {"id": name, "seed": None, "choices": [choice], "usage": {"completion_tokens": tokens}}


def request(i: int) -> tuple[str, Json]:
    """Request number i and where it goes: every other one streams, every third brings no seed; some ask for two answers
    or for log-probabilities; a fourth goes to other surfaces."""
    if i % 4 == 2:
        return other(i)
    messages = [
        {"role": "system", "content": SYSTEM[i % len(SYSTEM)]},
        {"role": "user", "content": f"Tell me about the number {i}."},
    ]
    body: Json = {"messages": messages, "max_tokens": 40 + i, "n": 2 if i % 8 < 2 else 1}
    if i % 3:
        body["seed"] = 1000 + i
    if i % 2 == 0:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    if i % 5 == 0:
        body |= {"logprobs": True, "top_logprobs": 2}
    return "chat/completions", body


class Answer:
    """What a client has of an answer: per choice its text, log-probabilities and end."""

    def __init__(self) -> None:
        self.choices: dict[int, Json] = {}
        self.tokens = 0
        self.seed: int | None = None
        self.ids: set[str] = set()
        self.replica = ""
        self.pieces = 0

    def add(self, body: Json, part: str) -> None:
        """Adds a body or a chunk, whose choices have their text in `part`."""
        self.ids |= {body["id"]} - {None}
        self.seed = body["seed"]
        self.tokens += (body.get("usage") or {}).get("completion_tokens", 0)
        for choice in body["choices"]:
            mine = self.choices.setdefault(choice["index"], {"role": "", "content": "", "logprobs": [], "end": ""})
            mine["role"] += choice[part].get("role") or ""
            mine["content"] += choice[part].get("content") or ""
            mine["logprobs"] += (choice.get("logprobs") or {}).get("content") or []
            mine["end"] += choice["finish_reason"] or ""
            self.pieces += bool(choice[part].get("content"))


async def ask(
    session: aiohttp.ClientSession, url: str, asked: tuple[str, Json], flying: set[Answer] | None = None
) -> Answer:
    """Asks as a client does: nothing is asked twice, and what is no whole answer is an error. While a stream comes, it is
    among those that fly."""
    answer, flying = Answer(), set() if flying is None else flying
    surface, body = asked
    lines = surface.startswith("api/")
    async with session.post(f"{url}/{surface if lines else f'v1/{surface}'}", json=body) as response:
        check(response.status == 200, f"status {response.status}: {response.status != 200 and await response.text()}")
        if not (lines or body.get("stream")):
            answer.add(await response.json(), "message")
            return answer
        answer.replica, ended = response.headers.get("x-replica", ""), False
        flying.add(answer)
        async for line in response.content:
            if not (lines or line.startswith(b"data: ")):
                continue
            check(not ended, f"a stream goes on after its end: {line!r}")
            data = line.removeprefix(b"data: ").decode().strip()
            ended = data == "[DONE]"
            if not ended:
                event = json.loads(data)
                check("error" not in event, f"an error in a stream: {data}")
                ended = GENERATE[surface].is_last(event)
                answer.add(event if surface == "chat/completions" else as_chunk(surface, event), "delta")
    flying.remove(answer)
    check(ended, f"a stream of {surface} ended in the middle")
    check(len(answer.ids) == (0 if lines else 1), f"a stream of {surface} has the ids {answer.ids}")
    return answer


async def killed_under_load(
    session: aiohttp.ClientSession, url: str, where: Callable[[], Places], how: signal.Signals
) -> list[Answer]:
    """All answers, with a replica killed in the middle of some of them."""
    flying: set[Answer] = set()

    async def kill() -> None:
        places = dict(await asyncio.to_thread(where))
        while True:
            in_the_middle = Counter(answer.replica for answer in flying if answer.pieces >= KILL_PIECES)
            victim, streams = max(in_the_middle.items(), key=lambda item: item[1], default=("", 0))
            if streams >= KILL_STREAMS:
                break
            await asyncio.sleep(0.01)
        os.kill(places[victim], how)
        print(f"{how.name} to {victim}, process {places[victim]}, in the middle of {streams} streams")

    begin = time.monotonic()
    killing = asyncio.create_task(kill())
    answers = await asyncio.gather(*(ask(session, url, request(i), flying) for i in range(REQUESTS)))
    await killing
    counts = await stats(session, url)
    print(f"{len(answers)} answers in {time.monotonic() - begin:.1f} s: {counts}")
    check(counts["taken_over"] > 0, "no stream was taken over in mid-answer: the test shows nothing")
    check(counts["broken"] > counts["taken_over"], "no answer in one piece was repeated: the test shows nothing")
    return answers


async def stats(session: aiohttp.ClientSession, url: str) -> Json:
    """The router's counts."""
    async with session.get(f"{url}/router") as response:
        counts: Json = await response.json()
        return counts


async def leave(session: aiohttp.ClientSession, url: str) -> None:
    """A client that goes in the middle of a long answer ends it at the replica, too."""
    _, talk = request(4)
    body = {**talk, "max_tokens": 4000, "ignore_eos": True}
    async with session.post(f"{url}/v1/chat/completions", json=body) as response:
        for _ in range(5):
            await response.content.readline()
        check(sum((await stats(session, url))["loads"].values()) == 1, "the replica has no request")
        response.close()
    for _ in range(50):
        await asyncio.sleep(0.1)
        if not any((await stats(session, url))["loads"].values()):
            return
    raise Wrong("a replica still works for a client that has gone")


async def compare(session: aiohttp.ClientSession, url: str, answers: list[Answer]) -> None:
    """Asks a plain server the same, one at a time, and compares."""
    for i, answer in enumerate(answers):
        surface, body = request(i)
        if surface == "chat/completions":
            check(body.get("seed", answer.seed) == answer.seed, f"request {i}: answered with seed {answer.seed}")
            body["seed"] = answer.seed
        calm = await ask(session, url, (surface, body))
        n = body.get("n", 1)
        check(sorted(answer.choices) == list(range(n)), f"request {i} has choices {sorted(answer.choices)}")
        check(answer.tokens == calm.tokens > 0, f"request {i}: {answer.tokens} tokens counted, not {calm.tokens}")
        for j, choice in calm.choices.items():
            for what, value in choice.items():
                mine = answer.choices[j][what]
                check(mine == value, f"request {i}, choice {j}, {what}:\n{mine!r}\nundisturbed:\n{value!r}")
            check(choice["role"] == "assistant" and choice["content"] != "", f"request {i} says nothing")


async def test(binary: str, model: str, url: str, where: Callable[[], Places], how: signal.Signals) -> None:
    """The whole test, on a running application."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        before = await asyncio.to_thread(where)
        check(len(before) == 2, f"not two replicas: {before}")
        answers = await killed_under_load(session, url, where, how)
        begin = time.monotonic()
        while len(now := await asyncio.to_thread(where)) < 2 or now == before:
            check(time.monotonic() < begin + 60, "the dead replica does not come back")
            await asyncio.sleep(0.2)
        new = [place for place in now if place not in before]
        check(len(new) == 1, f"not one new replica: {now}, was {before}")
        print(f"two replicas again {time.monotonic() - begin:.1f} s after the last answer")
        await ask(session, new[0][0], request(1))
        await leave(session, url)
        pipe = asyncio.subprocess.PIPE
        plain = await asyncio.create_subprocess_exec(binary, "serve", model, "--port", "0", stderr=pipe)
        try:
            said = ""
            while "ready" not in said:
                line = await plain.stderr.readline() if plain.stderr else b""
                check(line != b"", f"the plain server ended: {said}")
                said += line.decode()
            await compare(session, re.findall(r"http://\S+?:\d+", said)[0], answers)
        finally:
            plain.kill()
            await plain.wait()
    choices = [choice for answer in answers for choice in answer.choices.values()]
    letters = sum(len(choice["content"]) for choice in choices)
    print(f"{len(choices)} texts of {letters} characters equal an undisturbed server's: 1 passed, 0 failed")


def main() -> int:
    """Starts Ray on this machine alone, tests, and ends it."""
    binary, model = map(os.path.abspath, sys.argv[1:3])
    how = signal.Signals[f"SIG{sys.argv[3] if len(sys.argv) > 3 else 'KILL'}"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    ray.init(num_cpus=8, object_store_memory=200 << 20, include_dashboard=False, _node_ip_address="127.0.0.1")
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(app(Args(binary=binary, model=model, host="127.0.0.1")))
    engines = serve.get_deployment_handle("Engine", "default")

    def where() -> Places:
        found = engines.broadcast("where").results(timeout_s=10, return_exceptions=True)
        return sorted(place for place in found if isinstance(place, tuple))

    try:
        asyncio.run(asyncio.wait_for(test(binary, model, f"http://127.0.0.1:{port}", where, how), LIMIT_S))
    except (Wrong, TimeoutError, aiohttp.ClientError) as e:
        print(f"FAILED: {e!r}")
        return 1
    finally:
        serve.shutdown()
        ray.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
