"""openai for Python: completions, embeddings, responses."""
import json
import math

import openai

from . import QWEN, SMOL, raises
from .openai_chat import AND_NOW, City

TEXT = "The river runs from the mountains to the sea, and"
TOOL = {"type": "function", "name": "get_weather", "description": "The weather of a city now.", "strict": True,
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
                       "additionalProperties": False}}


def completions(url, direct):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120)

    def ask(**more):
        return client.completions.create(**{"model": SMOL, "prompt": TEXT, "temperature": 0, "max_tokens": 16, **more})

    def ids(text):
        import httpx
        return httpx.post(f"{direct}/tokenize", json={"model": SMOL, "content": text}).json()["tokens"]

    def prompts():
        """a text, a list of texts, tokens and lists of tokens are answered alike, in order"""
        text = ask().choices[0].text
        assert text and ask(prompt=[TEXT]).choices[0].text == text
        got = ask(prompt=[TEXT, "Once upon a time", TEXT])
        assert [c.index for c in got.choices] == [0, 1, 2] and got.choices[2].text == text != got.choices[1].text
        tokens = ids(TEXT)
        assert ask(prompt=tokens).choices[0].text == text
        assert [c.text for c in ask(prompt=[tokens, ids("Once upon a time")]).choices] == [c.text for c in got.choices[:2]]
        got = ask(prompt=[TEXT, "Once"], n=2, temperature=1, seed=3)
        assert [c.index for c in got.choices] == [0, 1, 2, 3]

    def streamed():
        """a stream says what the whole answer says, with usage at its end"""
        whole = ask()
        chunks = list(ask(stream=True, stream_options={"include_usage": True}))
        assert "".join(c.choices[0].text for c in chunks if c.choices) == whole.choices[0].text
        assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
        assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["length"]

    def echoed():
        """echo: the prompt comes first; with logprobs and max_tokens 0 every token but the first has one"""
        got = ask(echo=True)
        assert got.choices[0].text == TEXT + ask().choices[0].text
        got = ask(echo=True, logprobs=2, max_tokens=0)
        lp, tokens = got.choices[0].logprobs, ids(TEXT)
        assert got.choices[0].text == TEXT and len(lp.tokens) == len(tokens) == len(lp.token_logprobs) == len(lp.top_logprobs)
        assert lp.token_logprobs[0] is None and all(x <= 0 for x in lp.token_logprobs[1:])
        assert "".join(lp.tokens) == TEXT and lp.text_offset[0] == 0 and lp.text_offset[1] == len(lp.tokens[0])
        assert all(2 <= len(top) <= 3 for top in lp.top_logprobs[1:]), lp.top_logprobs
        new = ask(logprobs=1)
        both = ask(echo=True, logprobs=1)
        assert both.choices[0].logprobs.token_logprobs[-16:] == new.choices[0].logprobs.token_logprobs

    def suffix():
        """suffix: refused by name without tokens for it, and the middle is written with them"""
        e = raises(openai.BadRequestError, lambda: ask(suffix="."))
        assert e.param == "suffix", e.body
        got = ask(model=QWEN, prompt="def add(a, b):\n    return ", suffix="\n\nprint(add(1, 2))\n", stop="\n").choices[0].text
        assert "a + b" in got, got

    def errors():
        """errors name the field; a token beyond the vocabulary is refused"""
        for key, value in [("prompt", {"a": 1}), ("prompt", []), ("logprobs", 99), ("max_tokens", "x"), ("best_of", 3),
                           ("prompt", [999999999])]:
            e = raises(openai.BadRequestError, lambda: ask(**{key: value}), f"{key}={value}")
            assert e.param == key, (key, value, e.body)
        raises(openai.NotFoundError, lambda: ask(model="davinci"))

    return [prompts, streamed, echoed, suffix, errors]


def embeddings(url, _):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120)

    def ask(**more):
        return client.embeddings.create(**{"model": SMOL, "input": "The river runs to the sea.", **more})

    def forms():
        """float and base64 (the SDK's own way) say the same; a list keeps its order; tokens counted; length one"""
        plain = ask(encoding_format="float").data[0].embedding
        assert ask().data[0].embedding == [*map(float, plain)] or max(
            abs(a - b) for a, b in zip(ask().data[0].embedding, plain)) < 1e-6
        assert abs(math.sqrt(sum(x * x for x in plain)) - 1) < 1e-4
        got = ask(input=["A cat sleeps.", "The river runs to the sea."], encoding_format="float")
        assert [d.index for d in got.data] == [0, 1] and got.usage.prompt_tokens > 8
        assert max(abs(a - b) for a, b in zip(got.data[1].embedding, plain)) < 1e-6

    def dimensions():
        """dimensions: honoured with length one again, or refused by name"""
        try:
            got = ask(dimensions=64).data[0].embedding
            assert len(got) == 64 and abs(math.sqrt(sum(x * x for x in got)) - 1) < 1e-4
        except openai.BadRequestError as e:
            assert e.param == "dimensions", e.body
        e = raises(openai.BadRequestError, lambda: ask(dimensions=100000))
        assert e.param == "dimensions", e.body

    def meaning():
        """near texts lie nearer than far ones"""
        a, b, c = (d.embedding for d in ask(input=["A cat sleeps on the sofa.", "A kitten is sleeping on a couch.",
                                                   "Interest rates rose by two percent in March."]).data)
        dot = lambda x, y: sum(p * q for p, q in zip(x, y))
        assert dot(a, b) > dot(a, c), (dot(a, b), dot(a, c))

    def errors():
        """errors name the field"""
        for key, value in [("input", ""), ("input", []), ("input", [999999999]), ("encoding_format", "hex")]:
            e = raises(openai.BadRequestError, lambda: ask(**{key: value}), f"{key}={value}")
            assert e.param == key, (key, value, e.body)

    return [forms, dimensions, meaning, errors]


def responses(url, _):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120)
    api = client.responses
    base = {"model": QWEN, "temperature": 0, "max_output_tokens": 24, "store": False}

    def text():
        """text in, text out: instructions, a list of messages, usage; a cut answer is incomplete with its reason"""
        got = api.create(**base, input="Write a long story about rivers.", instructions="Use simple words.")
        assert got.output_text and got.status == "incomplete" and got.incomplete_details.reason == "max_output_tokens", got
        assert got.usage.output_tokens == 24 and got.usage.total_tokens == got.usage.input_tokens + 24
        same = api.create(**base, input=[{"role": "user", "content": [{"type": "input_text", "text": "Write a long story about rivers."}]}],
                          instructions="Use simple words.")
        assert same.output_text == got.output_text
        got = api.create(**base, input="Say only: yes")
        assert got.status == "completed" and got.output[0].role == "assistant", got

    def streamed():
        """the event stream: created, in progress, item, part, deltas, done, completed; the deltas make the text"""
        whole = api.create(**base, input="Say only: yes").output_text
        events = list(api.create(**base, input="Say only: yes", stream=True))
        kinds = [e.type.removeprefix("response.") for e in events]
        assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"], kinds
        assert kinds[-4:] == ["output_text.done", "content_part.done", "output_item.done", "completed"], kinds
        assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == whole
        assert events[-1].response.output_text == whole
        with api.stream(**{k: v for k, v in base.items()}, input="Say only: yes") as stream:
            stream.until_done()
            assert stream.get_final_response().output_text == whole

    def structured():
        """structured output: parse() gives the type"""
        got = api.parse(**{**base, "max_output_tokens": 60}, input="Describe the city of Paris.", text_format=City)
        assert isinstance(got.output_parsed, City), got

    def tools():
        """tools: a function call item, its argument events, and its result read"""
        ask = {**base, "max_output_tokens": 60, "tools": [TOOL], "tool_choice": "required"}
        question = {"role": "user", "content": "What is the weather in Paris?"}
        got = api.create(**ask, input=[question])
        call = got.output[0]
        assert call.type == "function_call" and call.name == "get_weather" and set(json.loads(call.arguments)) == {"city"}, got
        events = list(api.create(**ask, input=[question], stream=True))
        deltas = "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta")
        assert deltas == call.arguments, deltas
        got = api.create(**{**base, "tools": [TOOL]}, input=[question, call.model_dump(exclude_none=True),
                         {"type": "function_call_output", "call_id": call.call_id, "output": "17 degrees"}, AND_NOW])
        assert "17" in got.output_text, got

    def errors():
        """stateless: previous_response_id and background are refused by name; wrong fields, too"""
        for key, value in [("previous_response_id", "resp_1"), ("background", True), ("temperature", "hot"), ("input", 7),
                           ("tools", [{"type": "web_search"}]), ("conversation", "conv_1")]:
            e = raises(openai.BadRequestError, lambda: api.create(**{**base, "input": "Hi", key: value}), f"{key}={value}")
            assert (e.param or "").startswith(key), (key, e.body)
        raises(openai.NotFoundError, lambda: api.create(**{**base, "input": "Hi", "model": "gpt-9"}))

    return [text, streamed, structured, tools, errors]
