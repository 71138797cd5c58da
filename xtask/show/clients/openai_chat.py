"""openai for Python: models, chat completions, structured output and tools."""
import asyncio
import json
import math
from typing import Literal

import openai
from pydantic import BaseModel

from . import QWEN, SMOL, raises, short, soon

HI = [{"role": "user", "content": "Write one sentence about rivers."}]
GREEDY = {"messages": HI, "temperature": 0, "max_tokens": 24}
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city now.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "unit": {"enum": ["C", "F"]}},
                   "required": ["city", "unit"], "additionalProperties": False}}}
ADD = {"type": "function", "function": {
    "name": "add", "description": "Adds two integers.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                   "required": ["a", "b"], "additionalProperties": False}}}
AND_NOW = {"role": "user", "content": "So how many degrees is it in Paris? Answer in one sentence."}  # else a small model calls again
ASK = [{"role": "user", "content": "What is the weather in Paris, in C? Use the tool."}]


class City(BaseModel):
    name: str
    size: Literal["small", "large"]


def joined(chunks):
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


def checks(url, direct):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120)
    chat = client.chat.completions

    def ask(**more):
        return chat.create(**{"model": SMOL, **GREEDY, **more})

    def models():
        """models are listed and found by name; an unknown one is a NotFoundError with the list"""
        assert [m.id for m in client.models.list()] == [SMOL, QWEN]
        assert client.models.retrieve(QWEN).id == QWEN
        e = raises(openai.NotFoundError, lambda: client.models.retrieve("gpt-9"))
        assert e.code == "model_not_found" and e.param == "model" and SMOL in e.message, e.body
        e = raises(openai.NotFoundError, lambda: ask(model="gpt-9"))
        assert e.code == "model_not_found" and QWEN in e.message, e.body

    def streamed():
        """a stream says what the whole answer says, usage comes last, the stream helper agrees"""
        whole = ask()
        assert whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 24, whole
        chunks = list(ask(stream=True, stream_options={"include_usage": True}))
        assert joined(chunks) == whole.choices[0].message.content
        assert chunks[-1].choices == [] and chunks[-1].usage.total_tokens == whole.usage.total_tokens
        assert all(c.usage is None for c in chunks[:-1])
        stop = whole.choices[0].message.content.split()[4]
        with chat.stream(model=SMOL, **GREEDY, stop=stop) as events:  # it raises where an answer is cut by its length
            final = events.until_done().get_final_completion()
        assert final.choices[0].message.content == ask(stop=stop).choices[0].message.content
        assert final.choices[0].finish_reason == "stop"

    def bare():
        """without /v1 the paths are the same"""
        plain = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
        got = plain.chat.completions.create(model=SMOL, **GREEDY)
        assert got.choices[0].message.content == ask().choices[0].message.content

    def asynchronous():
        """the async client: five requests at once, each answered as alone"""
        alone = [ask(messages=[{"role": "user", "content": f"Count to {n}."}]).choices[0].message.content for n in range(2, 7)]

        async def together():
            async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as c:
                async def one(n):
                    stream = await c.chat.completions.create(**{"model": SMOL, **GREEDY, "stream": True,
                                                                "messages": [{"role": "user", "content": f"Count to {n}."}]})
                    return joined([c async for c in stream])
                return await asyncio.gather(*(one(n) for n in range(2, 7)))
        assert asyncio.run(together()) == alone

    def seeds():
        """a seed repeats an answer; none is a new one each time, and reported; choice i is its own stream"""
        a, b = (ask(temperature=1, seed=7, n=3) for _ in range(2))
        texts = [c.message.content for c in a.choices]
        assert texts == [c.message.content for c in b.choices] and len(set(texts)) == 3, texts
        assert [c.index for c in a.choices] == [0, 1, 2]
        assert ask(temperature=1, seed=7).choices[0].message.content == texts[0]
        x, y = ask(temperature=1), ask(temperature=1)
        assert x.seed != y.seed, (x.seed, y.seed)
        assert ask(temperature=1, seed=x.seed).choices[0].message.content == x.choices[0].message.content
        pieces = {0: "", 1: "", 2: ""}
        for chunk in ask(temperature=1, seed=7, n=3, stream=True):
            for c in chunk.choices:
                pieces[c.index] += c.delta.content or ""
        assert list(pieces.values()) == texts

    def limits():
        """max_tokens under both names; stop as string, list and null; the stop text is not in the answer"""
        text = ask().choices[0].message.content
        word = text.split()[3]
        for stop in (word, [word, "§§"]):
            got = ask(stop=stop).choices[0]
            assert got.finish_reason == "stop" and got.message.content == text[:text.index(word)], got
        assert joined(ask(stop=word, stream=True)) == text[:text.index(word)]
        assert ask(stop=None).choices[0].message.content == text
        got = chat.create(model=SMOL, messages=HI, temperature=0, max_completion_tokens=5)
        assert got.usage.completion_tokens == 5 and text.startswith(got.choices[0].message.content)

    def logprobs():
        """logprobs: the tokens make the text, the chosen is the likeliest, 20 alternatives, the stream has the same"""
        got = ask(logprobs=True, top_logprobs=20, max_tokens=8).choices[0]
        entries = got.logprobs.content
        assert len(entries) == 8
        assert b"".join(bytes(t.bytes) for t in entries).decode() == got.message.content
        for t in entries:
            assert len(t.top_logprobs) == 20 and t.top_logprobs[0].token == t.token and t.top_logprobs[0].logprob == t.logprob
            ps = [x.logprob for x in t.top_logprobs]
            assert ps == sorted(ps, reverse=True) and sum(map(math.exp, ps)) <= 1.0001
        chunks = list(ask(logprobs=True, top_logprobs=20, max_tokens=8, stream=True))
        streamed = [t for c in chunks if c.choices and c.choices[0].logprobs for t in c.choices[0].logprobs.content]
        assert [(t.token, t.logprob) for t in streamed] == [(t.token, t.logprob) for t in entries]
        assert ask(logprobs=True, max_tokens=1).choices[0].logprobs.content[0].top_logprobs == []

    def bias():
        """logit_bias: 100 forces a token, -100 bans one"""
        import httpx
        ids = httpx.post(f"{direct}/tokenize", json={"model": SMOL, "content": " river"}).json()["tokens"]
        assert ask(logit_bias={str(ids[0]): 100}, max_tokens=3).choices[0].message.content == " river" * 3
        plain = ask(logprobs=True, max_tokens=1).choices[0].logprobs.content[0].token
        ids = httpx.post(f"{direct}/tokenize", json={"model": SMOL, "content": plain}).json()["tokens"]
        assert not ask(logit_bias={str(ids[0]): -100}, max_tokens=1).choices[0].message.content.startswith(plain)

    def messages():
        """roles system and developer mean the same; text parts are text; an assistant's content may be null"""
        def said(*messages):
            return ask(messages=list(messages)).choices[0].message.content
        user = {"role": "user", "content": "Hello"}
        a = said({"role": "system", "content": "Answer in French."}, user)
        assert a == said({"role": "developer", "content": "Answer in French."}, user)
        assert a == said({"role": "system", "content": [{"type": "text", "text": "Answer in French."}]}, user)
        said(user, {"role": "assistant", "content": None}, user)

    def constrained():
        """response_format: json_object, json_schema, and parse() into a type, whole and streamed"""
        ask_json = [{"role": "user", "content": "Describe the city of Paris as JSON with name and size."}]
        got = ask(model=QWEN, messages=ask_json, response_format={"type": "json_object"}, max_tokens=80)
        assert isinstance(json.loads(got.choices[0].message.content), dict)
        parsed = chat.parse(model=QWEN, messages=ask_json, response_format=City, temperature=0, max_tokens=60)
        assert parsed.choices[0].message.parsed.size in ("small", "large"), parsed
        with chat.stream(model=QWEN, messages=ask_json, response_format=City, temperature=0, max_tokens=60) as events:
            kinds = {e.type for e in events}
            final = events.get_final_completion()
        assert final.choices[0].message.parsed == parsed.choices[0].message.parsed and "content.done" in kinds, kinds
        e = raises(openai.LengthFinishReasonError, lambda: chat.parse(
            model=QWEN, messages=ask_json, response_format=City, temperature=0, max_tokens=3))
        assert e.completion.choices[0].finish_reason == "length"

    def tools():
        """tools: named, required and none are honoured; arguments keep to the schema; the result is read"""
        base = {"model": QWEN, "messages": ASK, "tools": [WEATHER, ADD], "max_tokens": 80}
        for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
            got = ask(**base, tool_choice=choice).choices[0]
            assert got.finish_reason == "tool_calls" and not got.message.content, got
            call = got.message.tool_calls[0]
            assert call.type == "function" and call.id and call.function.name == "get_weather", call
            arguments = json.loads(call.function.arguments)
            assert set(arguments) == {"city", "unit"} and arguments["unit"] in ("C", "F"), arguments
        got = ask(**base, tool_choice={"type": "function", "function": {"name": "add"}}).choices[0].message.tool_calls
        assert [c.function.name for c in got] == ["add"] and set(json.loads(got[0].function.arguments)) == {"a", "b"}
        got = ask(**base, tool_choice="none").choices[0]
        assert not got.message.tool_calls and got.finish_reason != "tool_calls", got
        after = [*ASK, {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
                 {"role": "tool", "tool_call_id": call.id, "content": "17 degrees, sunny"}, AND_NOW]
        got = ask(model=QWEN, messages=after, tools=[WEATHER], max_tokens=40).choices[0]
        assert got.message.content and "17" in got.message.content, got

    def tool_stream():
        """tools streamed: id and name once, then pieces of arguments that make the whole answer's; the helper agrees"""
        base = {"model": QWEN, "messages": ASK, "tools": [WEATHER], "tool_choice": "required", "temperature": 0, "max_tokens": 80}
        whole = chat.create(**base).choices[0].message.tool_calls[0]
        deltas, reasons = [], []
        for chunk in chat.create(**base, stream=True):
            for c in chunk.choices:
                deltas += c.delta.tool_calls or []
                reasons += [c.finish_reason] if c.finish_reason else []
        first = [d for d in deltas if d.index == 0]
        assert reasons == ["tool_calls"] and [bool(d.id) for d in first] == [True] + [False] * (len(first) - 1), first
        assert [d.function.name for d in first if d.function.name] == ["get_weather"]
        pieces = [d.function.arguments for d in first if d.function.arguments]
        assert "".join(pieces) == whole.function.arguments and len(pieces) > 1, pieces
        with chat.stream(**base) as events:
            kinds = [e.type for e in events]
        assert "tool_calls.function.arguments.delta" in kinds and "tool_calls.function.arguments.done" in kinds, set(kinds)

    def tool_types():
        """tools from types: parse() with pydantic_function_tool (strict) gives the type back"""
        got = chat.parse(model=QWEN, messages=[{"role": "user", "content": "Which city is Paris? Use the tool."}], temperature=0,
                         max_tokens=60, tools=[openai.pydantic_function_tool(City)], tool_choice="required")
        assert isinstance(got.choices[0].message.tool_calls[0].function.parsed_arguments, City), got

    def extras():
        """the local extras are honoured: top_k, min_p, repeat_penalty, grammar, json_schema, ignore_eos, progress, timings"""
        got = ask(temperature=2, extra_body={"top_k": 1, "min_p": 0.1, "repeat_penalty": 1.0, "cache_prompt": False})
        assert got.choices[0].message.content == ask().choices[0].message.content
        got = ask(extra_body={"grammar": 'root ::= "yes" | "no"'})
        assert got.choices[0].message.content in ("yes", "no") and got.choices[0].finish_reason == "stop"
        got = ask(model=QWEN, extra_body={"json_schema": {"enum": [1, 2]}})
        assert json.loads(got.choices[0].message.content) in (1, 2)
        got = ask(extra_body={"ignore_eos": True}, stop=None, max_tokens=60)
        assert got.usage.completion_tokens == 60
        chunks = list(ask(stream=True, extra_body={"return_progress": True, "timings_per_token": True, "cache_prompt": False}))
        assert any(getattr(c, "prompt_progress", None) for c in chunks), "no prompt_progress"
        said = [c for c in chunks if c.choices and c.choices[0].delta.content]
        assert said and all(getattr(c, "timings", None) for c in said), "a token without timings"

    def ignored():
        """what a local server has no use for is ignored: unheard-of fields, user, metadata, store, service_tier"""
        ask(user="me", metadata={"a": "b"}, store=False, service_tier="auto", extra_body={"unheard_of": [1]},
            safety_identifier="x", prompt_cache_key="y", parallel_tool_calls=True)

    def errors():
        """errors: a BadRequestError that names the field, also for a stream, before it begins"""
        for key, value in [("temperature", "hot"), ("temperature", -1), ("top_p", 2), ("n", 0), ("max_tokens", -5),
                           ("top_logprobs", 3), ("messages", []), ("stop", [""]), ("logit_bias", {"9999999": 1}),
                           ("response_format", {"type": "xml"}), ("modalities", ["audio"]), ("tool_choice", "perhaps"), ("verbosity", "low")]:
            for stream in (False, True):
                e = raises(openai.BadRequestError, lambda: ask(**{key: value, "stream": stream}), f"{key}={value}")
                assert e.param == key and e.type == "invalid_request_error" and key in e.message, (key, e.body)
        e = raises(openai.BadRequestError, lambda: ask(messages=[{"role": "user", "content": "word " * 20000}]))
        assert e.code == "context_length_exceeded", e.body
        bad = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "string", "$ref": "http://nowhere/x"}}}
        e = raises(openai.BadRequestError, lambda: ask(response_format=bad))
        assert "$ref" in e.message or "nowhere" in e.message, e.body
        raises(openai.BadRequestError, lambda: ask(messages=[{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}]))

    def gone():
        """a client that leaves in mid-stream frees its slot: the server is idle again at once"""
        import httpx
        raw = openai.OpenAI(base_url=f"{direct}/v1", api_key="none", max_retries=0)
        stream = raw.chat.completions.create(model=SMOL, messages=HI, stream=True, max_tokens=4000, extra_body={"ignore_eos": True})
        for _, _chunk in zip(range(3), stream):
            pass
        stream.close()

        def idle():
            slots = httpx.get(f"{direct}/slots").json()
            return not any(s["is_processing"] for s in slots)
        soon(idle, "a slot is still at work", 5)

    return [models, streamed, bare, asynchronous, seeds, limits, logprobs, bias, messages, constrained, tools, tool_stream,
            tool_types, extras, ignored, errors, gone]
