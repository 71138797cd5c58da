"""Frameworks above the SDK: langchain-openai, instructor, pydantic-ai."""
import asyncio
from typing import List, Literal

import openai
from pydantic import BaseModel, Field

from . import QWEN, SMOL, raises


class Person(BaseModel):
    """A person."""
    name: str
    age: int


class Pet(BaseModel):
    kind: Literal["cat", "dog"]
    name: str


class Household(BaseModel):
    """A household."""
    owner: Person
    pets: List[Pet] = Field(max_length=2)


class Report(BaseModel):
    """The answer, once the temperature is known."""
    city: str
    degrees: int


SAYS = "Anna is 31 years old."


def langchain(url, _):
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

    common = {"base_url": f"{url}/v1", "api_key": "none", "max_retries": 0}
    smol = ChatOpenAI(model=SMOL, temperature=0, max_tokens=24, stream_usage=True, **common)
    qwen = ChatOpenAI(model=QWEN, temperature=0, max_tokens=80, **common)

    @tool
    def multiply(a: int, b: int) -> int:
        """Multiplies two integers."""
        return a * b

    def invoked():
        """invoke, stream, batch and ainvoke say the same; usage is counted, streamed, too"""
        ask = [SystemMessage("Be brief."), HumanMessage("Write a sentence about rivers.")]
        whole = smol.invoke(ask)
        assert whole.content and whole.usage_metadata["output_tokens"] > 5 and whole.response_metadata["finish_reason"], whole
        pieces = list(smol.stream(ask))
        total = pieces[0]
        for piece in pieces[1:]:
            total = total + piece
        assert total.content == whole.content and total.usage_metadata["total_tokens"] == whole.usage_metadata["total_tokens"]
        assert [m.content for m in smol.batch([ask, ask])] == [whole.content] * 2
        assert asyncio.run(smol.ainvoke(ask)).content == whole.content

    def logprobs():
        """logprobs come through"""
        got = smol.bind(logprobs=True, top_logprobs=2).invoke("Hi").response_metadata["logprobs"]["content"]
        assert len(got[0]["top_logprobs"]) == 2

    def structured():
        """with_structured_output by json_schema, function_calling and json_mode"""
        for method in ("json_schema", "function_calling"):
            got = qwen.with_structured_output(Person, method=method).invoke(SAYS)
            assert got == Person(name="Anna", age=31), (method, got)
        got = qwen.with_structured_output(Person, method="json_mode").invoke(SAYS + ' Answer as JSON: {"name": …, "age": …}')
        assert got.name == "Anna", got

    def tools():
        """bind_tools: a call with its arguments, whole and streamed, and its result read"""
        bound = qwen.bind_tools([multiply], tool_choice="multiply")
        ask = [HumanMessage("What is 6 times 7?")]
        got = bound.invoke(ask)
        assert got.tool_calls[0]["name"] == "multiply" and set(got.tool_calls[0]["args"]) == {"a", "b"}, got
        pieces = list(bound.stream(ask))
        total = pieces[0]
        for piece in pieces[1:]:
            total = total + piece
        assert total.tool_calls[0]["args"] == got.tool_calls[0]["args"], total
        result = ToolMessage("42", tool_call_id=got.tool_calls[0]["id"])
        # With the tool still on offer a model of this size calls it again.
        last = qwen.invoke([*ask, AIMessage("", tool_calls=got.tool_calls), result])
        assert "42" in last.content, last

    def other():
        """the completions LLM and embeddings"""
        text = OpenAI(model=SMOL, temperature=0, max_tokens=8, **common)
        assert text.invoke("Once upon a time") == "".join(text.stream("Once upon a time")) != ""
        # Its own counting of tokens would fetch OpenAI's vocabularies.
        embed = OpenAIEmbeddings(model=SMOL, check_embedding_ctx_length=False, **common)
        a, b = embed.embed_documents(["A cat.", "A dog."])
        assert len(a) == len(b) == len(embed.embed_query("A cat.")) > 100

    def errors():
        """errors are the SDK's"""
        raises(openai.NotFoundError, lambda: ChatOpenAI(model="gpt-9", **common).invoke("Hi"))
        e = raises(openai.BadRequestError, lambda: smol.bind(top_p=7).invoke("Hi"))
        assert e.param == "top_p"
        raises(openai.BadRequestError, lambda: list(smol.bind(top_p=7).stream("Hi")))

    return [invoked, logprobs, structured, tools, other, errors]


def instructor_checks(url, _):
    import instructor
    from instructor.core import InstructorRetryException

    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120)
    modes = [instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA, instructor.Mode.JSON]
    base = {"model": QWEN, "temperature": 0, "max_tokens": 120}

    def schemas():
        """a type comes back in the modes TOOLS, JSON_SCHEMA and JSON"""
        for mode in modes:
            got = instructor.from_openai(client, mode=mode).chat.completions.create(
                response_model=Person, messages=[{"role": "user", "content": SAYS}], **base)
            # In some modes it is of a type made from Person.
            assert isinstance(got, Person) and (got.name, got.age) == ("Anna", 31), (mode, got)

    def nested():
        """a nested type with $defs, enums and a bounded list"""
        text = "Anna, 31, lives with the cat Tom."
        got = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA).chat.completions.create(
            response_model=Household, messages=[{"role": "user", "content": text}], **base)
        assert got.owner.name == "Anna" and len(got.pets) <= 2, got

    def partial():
        """create_partial: the type grows with the stream"""
        for mode in modes[:2]:
            seen = list(instructor.from_openai(client, mode=mode).chat.completions.create_partial(
                response_model=Person, messages=[{"role": "user", "content": SAYS}], **base))
            assert len(seen) > 2 and seen[-1].name == "Anna" and seen[-1].age == 31, seen[-1:]

    def many():
        """create_iterable: several of a type from one stream"""
        # The schema lets `tasks` be left out, so a small model is shown it.
        text = 'Anna is 31. Ben is 20. Answer as {"tasks": [{"name": …, "age": …}, …]}.'
        got = list(instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA).chat.completions.create_iterable(
            response_model=Person, messages=[{"role": "user", "content": text}], **base))
        assert len(got) == 2 and all(isinstance(p, Person) for p in got), got

    def errors():
        """an unknown model and a wrong field end the retries"""
        for more in ({"model": "gpt-9"}, {"top_p": 7}):
            e = raises((InstructorRetryException, openai.APIStatusError), lambda: instructor.from_openai(client).chat.completions.create(
                response_model=Person, messages=[{"role": "user", "content": SAYS}], max_retries=1, **{**base, **more}))
            assert "gpt-9" in str(e) or "top_p" in str(e), e

    return [schemas, nested, partial, many, errors]


def pydantic_ai_checks(url, _):
    from pydantic_ai import Agent, NativeOutput, ToolOutput
    from pydantic_ai.exceptions import ModelHTTPError
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.usage import UsageLimits

    provider = OpenAIProvider(base_url=f"{url}/v1", api_key="none")
    settings = {"temperature": 0.0, "max_tokens": 80}
    model = OpenAIChatModel(QWEN, provider=provider)

    def text():
        """run and run_stream say the same, usage is counted, a message history goes on"""
        agent = Agent(OpenAIChatModel(SMOL, provider=provider), model_settings={"temperature": 0.0, "max_tokens": 24}, instructions="Be brief.")
        ask = "Write a sentence about rivers."
        whole = agent.run_sync(ask)

        async def streamed():
            async with agent.run_stream(ask) as got:
                return "".join([piece async for piece in got.stream_text(delta=True, debounce_by=None)]), got.usage
        said, usage = asyncio.run(streamed())
        usage = usage() if callable(usage) else usage
        assert said == whole.output and usage.output_tokens == 24, (said, whole.output, usage)
        assert agent.run_sync("Go on.", message_history=whole.all_messages()).output

    def output():
        """a type as output: through an output tool and through json_schema"""
        for kind in (ToolOutput(Person), NativeOutput(Person)):
            got = Agent(model, output_type=kind, model_settings=settings).run_sync(SAYS).output
            assert got == Person(name="Anna", age=31), (kind, got)

    def tools():
        """a tool is called with arguments of its schema, and its result gets into the answer, streamed, too"""
        asked = []
        # With a type as output each step must be a call: a small model left to itself calls again and again.
        agent = Agent(model, output_type=ToolOutput(Report, name="report"), model_settings=settings,
                      instructions="First get the temperature, then report it.")

        @agent.tool_plain
        def get_temperature(city: str) -> str:
            """The temperature in a city now."""
            asked.append(city)
            return "17 degrees"

        got = agent.run_sync("What is the temperature in Paris?", usage_limits=UsageLimits(request_limit=4)).output
        assert asked == ["Paris"] and got == Report(city="Paris", degrees=17), (asked, got)

        async def streamed():
            async with agent.run_stream("What is the temperature in Rome?", usage_limits=UsageLimits(request_limit=4)) as got:
                return await got.get_output()
        got = asyncio.run(streamed())
        assert asked[1:] == ["Rome"] and got == Report(city="Rome", degrees=17), (asked, got)

    def errors():
        """an unknown model and a wrong setting are ModelHTTPErrors with status and body"""
        e = raises(ModelHTTPError, lambda: Agent(OpenAIChatModel("gpt-9", provider=provider)).run_sync("Hi"))
        assert e.status_code == 404 and QWEN in str(e.body), e
        e = raises(ModelHTTPError, lambda: Agent(model, model_settings={"top_p": 7.0}).run_sync("Hi"))
        assert e.status_code == 400 and e.body["param"] == "top_p", e

    return [text, output, tools, errors]
