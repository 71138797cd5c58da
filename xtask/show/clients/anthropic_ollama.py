"""The SDKs of Anthropic and Ollama against their own surfaces."""
import asyncio
import json

from pydantic import BaseModel

from . import QWEN, SMOL, raises
from .openai_chat import AND_NOW

TOOL = {"name": "get_weather", "description": "The weather of a city now.",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
                         "additionalProperties": False}}


def anthropic_checks(url, _):
    import anthropic
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=120)
    say = {"model": SMOL, "max_tokens": 24, "messages": [{"role": "user", "content": "Write a sentence about rivers."}],
           "extra_body": {"temperature": 0}}
    ask = {"model": QWEN, "max_tokens": 80, "tools": [TOOL], "extra_body": {"temperature": 0},
           "messages": [{"role": "user", "content": "What is the weather in Paris? Use the tool."}]}

    def text():
        """a message: text block, usage, max_tokens as stop reason; system as text and as blocks mean the same"""
        brief = {**say, "max_tokens": 8}  # fewer than the model says by itself
        got = client.messages.create(**brief, system="Be brief.")
        assert got.content[0].text and got.stop_reason == "max_tokens" and got.usage.output_tokens == 8, got
        again = client.messages.create(**brief, system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}])
        assert again.content[0].text == got.content[0].text
        parts = [{"role": "user", "content": [{"type": "text", "text": "Write a sentence about rivers."}]}]
        assert client.messages.create(**{**brief, "messages": parts}, system="Be brief.").content[0].text == got.content[0].text

    def streamed():
        """the stream's events in order; its text is the whole answer's; so says the helper"""
        whole = client.messages.create(**say)
        events = list(client.messages.create(**say, stream=True))
        kinds = [e.type for e in events if e.type != "ping"]
        assert kinds[:2] == ["message_start", "content_block_start"], kinds
        assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"], kinds
        assert "".join(e.delta.text for e in events if e.type == "content_block_delta") == whole.content[0].text
        assert [e for e in events if e.type == "message_delta"][0].usage.output_tokens == 24
        with client.messages.stream(**say) as stream:
            assert "".join(stream.text_stream) == whole.content[0].text
            assert stream.get_final_message().stop_reason == "max_tokens"

        async def late():
            async with anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as c:
                async with c.messages.stream(**say) as stream:
                    return await stream.get_final_text()
        assert asyncio.run(late()) == whole.content[0].text

    def stops():
        """stop_sequences: the reason and the sequence are told"""
        word = client.messages.create(**say).content[0].text.split()[3]
        got = client.messages.create(**say, stop_sequences=[word])
        assert got.stop_reason == "stop_sequence" and got.stop_sequence == word and word not in got.content[0].text, got

    def tools():
        """tools: tool_choice any, tool and none; the streamed input makes the whole one's; the result is read"""
        for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
            got = client.messages.create(**ask, tool_choice=choice)
            block = got.content[-1]
            assert got.stop_reason == "tool_use" and block.type == "tool_use" and set(block.input) == {"city"}, got
        with client.messages.stream(**ask, tool_choice={"type": "any"}) as stream:
            pieces = [e.partial_json for e in stream if e.type == "input_json"]
            assert json.loads("".join(pieces)) == stream.get_final_message().content[-1].input == block.input
        none = client.messages.create(**ask, tool_choice={"type": "none"})
        assert all(b.type == "text" for b in none.content), none
        after = [*ask["messages"], {"role": "assistant", "content": [block.model_dump()]}, {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "text", "text": "17 degrees, sunny"}]}, {"type": "text", "text": AND_NOW["content"]}]}]
        got = client.messages.create(**{**ask, "messages": after})
        assert "17" in got.content[0].text, got

    def counted():
        """count_tokens says what the message's usage says"""
        count = client.messages.count_tokens(model=SMOL, messages=say["messages"], system="Be brief.").input_tokens
        usage = client.messages.create(**say, system="Be brief.").usage
        assert count == usage.input_tokens + (usage.cache_read_input_tokens or 0), (count, usage)

    def errors():
        """errors: type and status of Anthropic's; also for a stream"""
        for stream in (False, True):
            e = raises(anthropic.NotFoundError, lambda: client.messages.create(**{**say, "model": "claude-9"}, stream=stream))
            assert e.body["type"] == "error" and e.body["error"]["type"] == "not_found_error", e.body
            bad = {**say, "messages": [{"role": "king", "content": "Hi"}]}
            e = raises(anthropic.BadRequestError, lambda: client.messages.create(**bad, stream=stream))
            assert e.body["error"]["type"] == "invalid_request_error" and "messages" in e.body["error"]["message"], e.body
        e = raises(anthropic.BadRequestError, lambda: client.post("/v1/messages", body={
            "model": SMOL, "messages": say["messages"]}, cast_to=object))
        assert "max_tokens" in e.body["error"]["message"], e.body

    return [text, streamed, stops, tools, counted, errors]


class City(BaseModel):
    name: str
    country: str


def ollama_checks(url, _):
    import ollama
    client = ollama.Client(host=url, timeout=120)
    options = {"temperature": 0, "num_predict": 24}
    say = {"model": SMOL, "messages": [{"role": "user", "content": "Write a sentence about rivers."}], "options": options}

    def chat():
        """chat: counts, durations, reason; the stream says the same; the async client, too"""
        whole = client.chat(**say)
        assert whole.message.content and whole.done and whole.done_reason == "length" and whole.eval_count == 24, whole
        assert whole.total_duration > whole.eval_duration > 0 and whole.prompt_eval_count > 5 and whole.model == SMOL
        pieces = list(client.chat(**say, stream=True))
        assert "".join(p.message.content for p in pieces) == whole.message.content and pieces[-1].eval_count == 24

        async def late():
            return "".join([p.message.content async for p in await ollama.AsyncClient(host=url).chat(**say, stream=True)])
        assert asyncio.run(late()) == whole.message.content

    def generate():
        """generate: with the template, raw, with a system prompt, streamed"""
        base = {"model": SMOL, "prompt": "Once upon a time", "options": options}
        raw = client.generate(**base, raw=True).response
        assert raw and "".join(p.response for p in client.generate(**base, raw=True, stream=True)) == raw
        assert client.generate(**base).response not in ("", raw)
        assert client.generate(**base, system="Answer in French.").response
        word = raw.split()[2]
        got = client.generate(**{**base, "options": {**options, "stop": [word]}}, raw=True)
        assert word not in got.response and got.done_reason == "stop", got

    def formats():
        """format: json and a schema"""
        ask = [{"role": "user", "content": "Answer as JSON with the keys name and country: where is Paris?"}]
        base = {"model": QWEN, "messages": ask, "options": {**options, "num_predict": 80}}
        assert isinstance(json.loads(client.chat(**base, format="json").message.content), dict)
        City.model_validate_json(client.chat(**base, format=City.model_json_schema()).message.content)

    def tools():
        """tools: a Python function is called with its arguments, streamed, too, and the result is read"""
        def get_weather(city: str) -> str:
            """The weather of a city now.

            Args:
                city: the city's name
            """
            return f"17 degrees in {city}"
        ask = {"model": QWEN, "messages": [{"role": "user", "content": "What is the weather in Paris? Use the tool."}],
               "tools": [get_weather], "options": {**options, "num_predict": 80}}
        got = client.chat(**ask).message
        assert got.tool_calls and got.tool_calls[0].function.name == "get_weather", got
        assert got.tool_calls[0].function.arguments == {"city": "Paris"}, got
        calls = [c for p in client.chat(**ask, stream=True) for c in p.message.tool_calls or []]
        assert [c.function.arguments for c in calls] == [{"city": "Paris"}], calls
        after = [*ask["messages"], got, {"role": "tool", "tool_name": "get_weather", "content": "17 degrees"}, AND_NOW]
        assert "17" in client.chat(**{**ask, "messages": after}).message.content

    def models():
        """list, show and ps tell of the models"""
        assert {m.model for m in client.list().models} >= {SMOL, QWEN}
        shown = client.show(QWEN)
        assert shown.template and shown.details.family and shown.modelinfo["general.architecture"] == "qwen2", shown
        client.generate(model=SMOL, prompt="Hi", options={"num_predict": 1})
        assert SMOL in {m.model for m in client.ps().models}

    def embed():
        """embed: one text and several, of length one"""
        one, two = client.embed(model=SMOL, input="A cat."), client.embed(model=SMOL, input=["A dog.", "A cat."])
        assert len(one.embeddings) == 1 and len(two.embeddings) == 2
        assert max(abs(a - b) for a, b in zip(one.embeddings[0], two.embeddings[1])) < 1e-6
        assert abs(sum(x * x for x in one.embeddings[0]) - 1) < 1e-4

    def errors():
        """errors: a ResponseError with status and text, for a stream, too"""
        for stream in (False, True):
            got = lambda **more: list(client.chat(**{**say, **more}, stream=True)) if stream else client.chat(**{**say, **more})
            e = raises(ollama.ResponseError, lambda: got(model="llama9"))
            assert e.status_code == 404 and "llama9" in e.error, e
            e = raises(ollama.ResponseError, lambda: got(options={"temperature": -1}))
            assert e.status_code == 400 and "temperature" in e.error, e

    return [chat, generate, formats, tools, models, embed, errors]
