"""How one replica goes on where another was cut off: plain functions on requests and answers, without any network.

It rests on one promise of minfer: equal file, prompt, fields and seed give equal bits, whatever else a replica does at
the time. So a request whose seed is pinned can be asked again elsewhere, and only what is new has to be passed on.
"""

import hashlib
import json
import random
from collections.abc import Iterable, Mapping
from typing import Any

Json = dict[str, Any]
Path = tuple[str | int, ...]

# Paths that generate: their requests get a seed.
GENERATE = ("chat/completions", "completions", "responses", "messages")
# Characters of a prompt that choose its replica.
OPENING = 1024
# Fields of a delta whose pieces are put together by the client; other strings are said once.
PIECES = ("content", "reasoning_content", "refusal", "text", "arguments")


class Differs(Exception):
    """A repetition says something else than the client already has: other files, versions or machines are in play."""


def pin_seed(body: Json) -> None:
    """Gives a request that has no seed a random one that every JSON reader keeps whole (below 2^53)."""
    if body.get("seed") in (None, -1):
        body["seed"] = random.SystemRandom().getrandbits(53)


def opening(body: Json) -> str:
    """What chooses the replica: the conversation up to its first user message, so that later turns find its pages in
    the cache where the earlier ones were; or a prompt's first characters."""
    talk: list[Any] = [body.get("model"), body.get("system"), body.get("instructions")]
    messages = body.get("messages") or body.get("input")
    if not isinstance(messages, list):
        return json.dumps([*talk, str(messages or body.get("prompt"))[:OPENING]])
    for message in messages:
        talk.append(message)
        if isinstance(message, dict) and message.get("role") == "user":
            break
    return json.dumps(talk)


def choose(key: str, loads: Mapping[str, int], spill: int) -> str:
    """The replica for a key: the first by rendezvous hashing (a replica that goes or comes moves only its own keys)
    which is at most `spill` requests busier than the idlest one."""
    most = min(loads.values()) + spill
    near = [address for address, load in loads.items() if load <= most]
    return max(near, key=lambda address: hashlib.sha256(f"{address} {key}".encode()).digest())


class Said:
    """What a client has of a stream of `chat/completions` or `completions`, choice by choice."""

    def __init__(self) -> None:
        self._said: dict[Path, Any] = {}
        self._at: dict[Path, int] = {}
        self._head: Json = {}
        self._repeats = False

    @property
    def anything(self) -> bool:
        """Whether the client has a piece of an answer yet."""
        return any(piece and path[-1] in PIECES for path, piece in self._said.items())

    def repeat(self) -> None:
        """From here on chunks come from a repetition, from its beginning."""
        self._at = {}
        self._repeats = True

    def news(self, chunk: Json) -> Json | None:
        """What the client does not have yet of a chunk, under the first stream's id; None if there is nothing.

        Raises `Differs` if the chunk contradicts what the client has.
        """
        self._head = self._head or {k: chunk[k] for k in ("id", "created") if k in chunk}
        new = [self._choice(choice) for choice in chunk.get("choices", [])]
        usage = chunk.get("usage") and self._once(("usage",), chunk["usage"])
        if not self._repeats:
            return chunk
        choices = [choice for choice in new if choice]
        return {**chunk, **self._head, "choices": choices} if choices or usage else None

    def _choice(self, choice: Json) -> Json | None:
        """A choice's news in the choice's own shape."""
        index: int = choice["index"]
        new = {k: self._part((index, k), v) for k, v in choice.items() if k != "index"}
        if not any(new.values()):
            return None
        empty = {"delta": {}, "text": ""}
        return {"index": index} | {k: v or empty.get(k) for k, v in new.items()}

    def _part(self, path: Path, value: Any) -> Any:
        """The news of a value at this place of a choice; something empty if there are none."""
        if isinstance(value, dict):
            parts = {k: self._part((*path, k), v) for k, v in value.items() if k != "index"}
            parts = {k: v for k, v in parts.items() if v}
            return {"index": value["index"]} | parts if parts and "index" in value else parts
        if path[-1] == "tool_calls":
            return [part for v in value if (part := self._part((*path, v["index"]), v))]
        if isinstance(value, list) or (isinstance(value, str) and path[-1] in PIECES):
            return self._piece(path, value)
        return self._once(path, value)

    def _piece(self, path: Path, piece: Any) -> Any:
        """What a text or a list of tokens goes on with."""
        said, at = self._said.get(path, piece[:0]), self._at.get(path, 0)
        known = said[at : at + len(piece)]
        if piece[: len(known)] != known:
            raise Differs(f"{known!r} was said before, now it is {piece!r}")
        self._said[path] = said + piece[len(known) :]
        self._at[path] = at + len(piece)
        return piece[len(known) :]

    def _once(self, path: Path, value: Any) -> Any:
        """A value that is said once: who speaks, a call's name and id, why an answer ended."""
        if value is None or path in self._said:
            return None
        self._said[path] = value
        return value


def parse(event: bytes) -> Json | None:
    """A server-sent event's JSON object, or None: a comment, a last word, something else."""
    lines: Iterable[bytes] = event.split(b"\n")
    data = b"\n".join(line[5:].strip() for line in lines if line.startswith(b"data:"))
    try:
        value = json.loads(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def event(value: Json) -> bytes:
    """A server-sent event of a JSON object."""
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
