"""How one replica goes on where another was cut off: plain functions on requests and answers, without any network.

It rests on one promise of minfer: equal file, prompt, fields and seed give equal bits, whatever else a replica does at
the time. So a request whose seed is pinned can be asked again elsewhere, and only what is new has to be passed on.
"""

import hashlib
import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
Path = tuple[str | int, ...]

# Characters of a prompt that choose its replica.
OPENING = 1024
# Ollama's surfaces keep their seed among the options.
IN_OPTIONS = ("api/chat", "api/generate")
# Fields of a delta whose pieces are put together by the client; other strings are said once.
PIECES = ("content", "reasoning_content", "refusal", "text", "arguments")


class Differs(Exception):
    """A repetition says something else than the client already has: other files, versions or machines are in play."""


def pin_seed(surface: str, body: Json) -> None:
    """Gives a request that has no seed a random one that every JSON reader keeps whole (below 2^53)."""
    fields = body
    if surface in IN_OPTIONS:
        # What is no object is the replica's to refuse.
        fields = body.setdefault("options", {}) or {}
        body["options"] = fields
    if isinstance(fields, dict) and fields.get("seed") in (None, -1):
        fields["seed"] = random.SystemRandom().getrandbits(53)


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


class Events:
    """What a client has of a stream of one answer whose events come in one order: `messages`, `responses` and Ollama's.

    A repetition says the same events again, but for names that are made anew and what depends on the moment. So what the
    client has is skipped, event by event, and the names in what follows are those that it knows.
    """

    def __init__(self) -> None:
        # Of each event, what must be the same, and its names.
        self._said: list[tuple[bytes, list[str | int]]] = []
        self._at = 0
        self._names: dict[str | int, str | int] = {}
        self._repeats = False
        self.anything = False

    def repeat(self) -> None:
        """From here on events come from a repetition, from its beginning."""
        self._at = 0
        self._names = {}
        self._repeats = True

    def news(self, event: Json) -> Json | None:
        """An event under the first stream's names; None if the client has it.

        Raises `Differs` if it is another one than the client has.
        """
        names: list[str | int] = []
        content = json.dumps(_without_names(event, names), sort_keys=True).encode()
        same = hashlib.sha256(content).digest()
        at, self._at = self._at, self._at + 1
        if at < len(self._said):
            known, before = self._said[at]
            if known != same or len(before) != len(names):
                raise Differs(f"event {at} is another one now: {event!r}")
            self._names.update(zip(names, before, strict=True))
            return None
        self._said.append((same, [self._names.get(name, name) for name in names]))
        self.anything = self.anything or _says(event)
        return _renamed(event, self._names) if self._repeats else event


# What a call gives to a tool: its keys are the tool's, whatever they look like.
_TOOLS_OWN = "arguments"


def _is_name(key: str, value: Any) -> bool:
    """Whether a field is made anew by every replica: an id, or when an answer was made."""
    return (key.endswith("id") and isinstance(value, str)) or (key == "created_at" and isinstance(value, int))


def _without_names(value: Any, names: list[str | int]) -> Any:
    """A value without its names, which are collected, and without times and what a cache saved."""
    if isinstance(value, list):
        return [_without_names(v, names) for v in value]
    if not isinstance(value, dict):
        return value
    names += [v for k, v in value.items() if _is_name(k, v)]
    moment = {k for k in value if k == "usage" or k.endswith(("_at", "_duration"))}
    kept = {k: v for k, v in value.items() if not _is_name(k, v) and k not in moment}
    return {k: v if k == _TOOLS_OWN else _without_names(v, names) for k, v in kept.items()}


def _renamed(value: Any, names: Mapping[str | int, str | int]) -> Any:
    """A value with other names."""
    if isinstance(value, list):
        return [_renamed(v, names) for v in value]
    if not isinstance(value, dict):
        return value

    def renamed(key: str, value: Any) -> Any:
        if key == _TOOLS_OWN:
            return value
        return names.get(value, value) if _is_name(key, value) else _renamed(value, names)

    return {k: renamed(k, v) for k, v in value.items()}


def _says(event: Json) -> bool:
    """Whether an event has a piece of an answer."""
    delta = event.get("delta")
    pieces = [delta, event.get("response"), *(event.get("message") or {}).values()] if "done" in event else [delta]
    pieces += list(delta.values()) if isinstance(delta, dict) else []
    return any(isinstance(piece, str) and piece for piece in pieces)


@dataclass(frozen=True)
class Surface:
    """How a surface that generates streams, and what to keep of that."""

    said: type[Said] | type[Events]
    # What ends an event.
    end: bytes = b"\n\n"
    # Types of the last event; elsewhere it is `[DONE]`, or says `done`.
    last: tuple[str, ...] = ()

    def is_last(self, event: Json) -> bool:
        """Whether nothing follows."""
        return event.get("type") in self.last or event.get("done") is True

    def event(self, value: Json) -> bytes:
        """A JSON object as this surface writes it."""
        data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        if self.end == b"\n":
            return data + self.end
        name = f"event: {value['type']}\n".encode() if self.last and "type" in value else b""
        return name + b"data: " + data + self.end

    def failure(self, message: str) -> Json:
        """What is said when nobody can answer."""
        if self.end == b"\n":
            return {"error": message, "type": "unavailable_error"}
        if "message_stop" in self.last:
            return {"type": "error", "error": {"type": "overloaded_error", "message": message}}
        return {"error": {"message": message, "type": "unavailable_error", "param": None, "code": None}}


# Paths that generate: their requests get a seed, and their streams can go on elsewhere.
GENERATE = {
    "chat/completions": Surface(Said),
    "completions": Surface(Said),
    "messages": Surface(Events, last=("message_stop",)),
    "responses": Surface(Events, last=("response.completed", "response.incomplete", "response.failed")),
    "api/chat": Surface(Events, end=b"\n"),
    "api/generate": Surface(Events, end=b"\n"),
}


def parse(event: bytes) -> Json | None:
    """The JSON object of a server-sent event or a line, or None: a comment, a last word, something else."""
    lines: Iterable[bytes] = event.split(b"\n")
    data = b"\n".join(line[5:].strip() for line in lines if line.startswith(b"data:")) or event
    try:
        value = json.loads(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def unavailable(event: Json) -> str | None:
    """The message of an error that another replica may not have: this one is about to go."""
    error = event.get("error")
    # Ollama's errors are texts, their kind stands beside them.
    told = error if isinstance(error, dict) else {"message": error, "type": event.get("type")}
    if error and told.get("type") in ("unavailable_error", "overloaded_error"):
        return str(told.get("message"))
    return None
