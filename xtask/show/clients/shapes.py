"""The published shapes: the official SDKs' own types, taken strictly, and what their API documents call required.

The SDKs themselves construct their types without a check, so a missing field or a wrong type would pass unseen. Here
pydantic validates strictly (no coercion); fields beyond the types are allowed, as OpenAI allows itself.
"""
import base64
import functools
import json
import struct

from pydantic import TypeAdapter, ValidationError

USAGE = ["prompt_tokens", "completion_tokens", "total_tokens"]
# Keys that OpenAI's document requires and the SDK's types leave optional (null is a value, absent is not).
REQUIRED = {
    "chat.completion": (["id", "choices", "created", "model", "object", "usage"],
                        ["index", "message", "finish_reason", "logprobs"]),
    "chat.completion.chunk": (["id", "choices", "created", "model", "object"], ["index", "delta", "finish_reason"]),
    "text_completion": (["id", "choices", "created", "model", "object"], ["index", "text", "finish_reason", "logprobs"]),
    "response": (["id", "created_at", "error", "incomplete_details", "instructions", "metadata", "model", "object", "output",
                  "parallel_tool_calls", "temperature", "tool_choice", "tools", "top_p"], None),
}
REASONS = {"stop", "length", "tool_calls", "content_filter", "function_call"}


@functools.cache
def adapter(name):
    """The type of this name."""
    import openai.types as o
    from openai.pagination import SyncPage
    from openai.types.responses import Response, ResponseStreamEvent
    if name.startswith("anthropic."):
        import anthropic.types as a
        return TypeAdapter(getattr(a, name.split(".")[1]))
    if name.startswith("ollama."):
        import ollama
        return TypeAdapter(getattr(ollama, name.split(".")[1]))
    return TypeAdapter({
        "chat.completion": o.chat.ChatCompletion, "chat.completion.chunk": o.chat.ChatCompletionChunk,
        "text_completion": o.Completion, "embeddings": o.CreateEmbeddingResponse, "models": SyncPage[o.Model],
        "model": o.Model, "error": o.ErrorObject, "response": Response, "response event": ResponseStreamEvent,
    }[name])


def valid(name, value):
    """What a value of this type has wrong."""
    try:
        adapter(name).validate_json(json.dumps(value), strict=not name.startswith("ollama."))
        return []
    except ValidationError as e:
        return [f"{name}: {'.'.join(map(str, x['loc']))}: {x['msg']} (is {json.dumps(x['input'])[:60]})" for x in e.errors()[:3]]


def missing(name, value):
    keys, choice_keys = REQUIRED[name]
    out = [f"{name}: no key '{k}'" for k in keys if k not in value]
    for choice in value.get("choices") or []:
        out += [f"{name}: no key '{k}' in a choice" for k in choice_keys if k not in choice]
    return out


def check(method, path, request, status, kind, body, whole):
    """The shape's name, and what is wrong with a response."""
    short = path.removeprefix("/v1")
    if method in ("HEAD", "OPTIONS"):
        return "none", []
    surface = "anthropic" if short.startswith("/messages") else "ollama" if path.startswith("/api/") else "openai"
    if kind == "text/event-stream":
        return stream(surface, short, body, whole)
    if kind == "application/x-ndjson":
        return lines(short, body, whole)
    if not whole or kind != "application/json":
        return f"{kind or 'no type'}", []
    try:
        value = json.loads(body)
    except ValueError as e:
        return "not JSON", [f"not JSON: {e}"]
    if status >= 400:
        return f"{surface} error", error(surface, value)
    return plain(surface, short, value, request)


def error(surface, value):
    if surface == "ollama":
        return [] if isinstance(value.get("error"), str) else [f"ollama error: {value}"]
    if surface == "anthropic":
        return valid("anthropic.ErrorResponse", value)
    inner = value.get("error")
    if not isinstance(inner, dict):
        return [f"error: {value}"]
    absent = [f"error: no key '{k}'" for k in ("message", "type", "param", "code") if k not in inner]
    return absent + valid("error", inner)


def plain(surface, short, value, request):
    if surface == "anthropic":
        name = "anthropic.MessageTokensCount" if short.endswith("count_tokens") else "anthropic.Message"
        return name, valid(name, value)
    if surface == "ollama":
        name = OLLAMA.get(short)
        return (f"ollama.{name}", valid(f"ollama.{name}", value)) if name else (short, [])
    if short.startswith("/models"):
        name = "models" if short == "/models" else "model"
        return name, valid(name, value) + ([] if value.get("object") in ("list", "model") else ["models: no object"])
    if short == "/chat/completions":
        return "chat.completion", missing("chat.completion", value) + valid("chat.completion", value) + total(value)
    if short == "/completions":
        return "text_completion", completion(value, request.get("echo"), streamed=False) + total(value)
    if short == "/embeddings":
        return "embeddings", embeddings(value, request)
    if short == "/responses":
        return "response", missing("response", value) + valid("response", value)
    return short, []


def total(value):
    usage = value.get("usage") or {}
    absent = [f"usage: no key '{k}'" for k in USAGE if k not in usage]
    if not absent and usage["prompt_tokens"] + usage["completion_tokens"] != usage["total_tokens"]:
        absent = [f"usage: {usage['prompt_tokens']} + {usage['completion_tokens']} is not {usage['total_tokens']}"]
    return absent


def completion(value, echo, streamed):
    """The type knows neither that a chunk has no reason yet nor that a prompt's first token has no log-probability."""
    out = missing("text_completion", value)
    for choice in value.get("choices") or []:
        if streamed and choice.get("finish_reason") is None:
            choice["finish_reason"] = "stop"
        for key in ("token_logprobs", "top_logprobs") if echo and choice.get("logprobs") else ():
            entries = choice["logprobs"].get(key)
            if entries and entries[0] is None:
                choice["logprobs"][key] = entries[1:]
    return out + valid("text_completion", value)


def embeddings(value, request):
    for entry in value.get("data") or []:
        if request.get("encoding_format") == "base64" and isinstance(entry.get("embedding"), str):
            raw = base64.b64decode(entry["embedding"], validate=True)
            if len(raw) % 4:
                return [f"embeddings: {len(raw)} bytes are no f32 values"]
            entry["embedding"] = list(struct.unpack(f"<{len(raw) // 4}f", raw))
    return valid("embeddings", value)


def events(body):
    """(name, data) of each server-sent event."""
    for block in body.decode("utf-8", "replace").replace("\r\n", "\n").split("\n\n"):
        fields = [line.split(":", 1) for line in block.split("\n") if ":" in line]
        data = [v.removeprefix(" ") for k, v in fields if k == "data"]
        if data:
            yield next((v.strip() for k, v in fields if k == "event"), None), "\n".join(data)


def stream(surface, short, body, whole):
    name = {"/chat/completions": "chat.completion.chunk", "/completions": "text_completion", "/responses": "response event"}.get(short)
    name = "anthropic.RawMessageStreamEvent" if surface == "anthropic" else name
    found = list(events(body))
    if not whole:
        found = found[:-1]  # it was cut off somewhere
    if name is None:
        return f"stream of {short}", []
    out, values, label = [], [], f"stream of {name}"
    for event, data in found:
        if data == "[DONE]":
            continue
        try:
            value = json.loads(data)
        except ValueError as e:
            return label, [f"{name}: not JSON: {e}"]
        values.append(value)
        if "error" in value and name.endswith(("chunk", "completion")):
            out += error(surface, value)
        elif name == "text_completion":
            out += completion(value, True, streamed=True)
        elif event != "ping":
            out += (missing(name, value) if name in REQUIRED else []) + valid(name, value)
        if surface == "anthropic" or name == "response event":
            out += [] if event == value.get("type") else [f"{name}: event '{event}' has type '{value.get('type')}'"]
    out += order(name, found, values, whole)
    return label, out


def order(name, found, values, whole):
    """Rules of a stream as a whole."""
    out = []
    if name in ("chat.completion.chunk", "text_completion"):
        if whole and (not found or found[-1][1] != "[DONE]"):
            out.append(f"{name}: the stream has no [DONE] at its end")
        if len({(v.get("id"), v.get("created"), v.get("model")) for v in values if "error" not in v}) > 1:
            out.append(f"{name}: id, created or model differ between chunks")
        reasons = {}
        for choice in (c for v in values for c in v.get("choices") or []):
            if choice.get("finish_reason") in REASONS and name != "text_completion":
                reasons[choice["index"]] = reasons.get(choice["index"], 0) + 1
        out += [f"{name}: choice {i} has {n} finish reasons" for i, n in reasons.items() if n > 1]
    if name == "response event":
        numbers = [v.get("sequence_number") for v in values]
        if numbers != list(range(numbers[0], numbers[0] + len(numbers))) if numbers and numbers[0] is not None else True:
            out.append(f"{name}: sequence numbers {numbers[:6]}…")
        if whole and values and values[-1].get("type") not in ("response.completed", "response.incomplete", "response.failed", "error"):
            out.append(f"{name}: ends with {values[-1].get('type')}")
    if name.startswith("anthropic") and whole and values and values[-1].get("type") not in ("message_stop", "error"):
        out.append(f"{name}: ends with {values[-1].get('type')}")
    return out


OLLAMA = {"/api/chat": "ChatResponse", "/api/generate": "GenerateResponse", "/api/tags": "ListResponse",
          "/api/show": "ShowResponse", "/api/ps": "ProcessResponse", "/api/embed": "EmbedResponse"}


def lines(short, body, whole):
    """Newline-delimited JSON: only the last line is done."""
    name, out, values = OLLAMA.get(short), [], []
    for line in body.decode().split("\n")[:None if whole else -1]:
        if line.strip():
            try:
                values.append(json.loads(line))
            except ValueError as e:
                return "NDJSON", [f"not JSON: {e}"]
    for value in values:
        out += [] if name is None or "error" in value else valid(f"ollama.{name}", value)
    done = [v.get("done") for v in values]
    if whole and name in ("ChatResponse", "GenerateResponse") and (not done or done[-1] is not True or True in done[:-1]):
        out.append(f"ollama.{name}: done is {done[-3:]}")
    return f"NDJSON of ollama.{name}", out
