"""A stream that is cut off anywhere and repeated in other pieces is, to the client, the stream that it was."""

from itertools import pairwise
from typing import Any

from takeover import GENERATE, Differs, Events, Json, Said, choose, opening, parse, pin_seed, unavailable


def chunk(index: int, delta: Json, end: str | None = None, logprobs: Any = None, name: str = "first") -> Json:
    """A chunk in OpenAI's shape."""
    choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": end}
    return {"id": name, "created": len(name), "object": "chat.completion.chunk", "choices": [choice]}


def call(index: int, **function: str) -> Json:
    """A delta of a tool call; a head with its id if it has a name."""
    head = {"id": f"call_{index}", "type": "function"} if "name" in function else {}
    return {"tool_calls": [{"index": index, **head, "function": function}]}


def entry(token: str) -> Json:
    """Log-probabilities of a token."""
    return {"content": [{"token": token, "logprob": -0.5}], "refusal": None}


def stream(name: str, order: int) -> list[Json]:
    """Two answers, the second with two tool calls. A repetition has another id and may mix the answers in another way
    and cut texts elsewhere."""
    texts = ["One", " fish", "", " zwei"] if order == 0 else ["On", "e fi", "sh", " zwei"]
    words = ["One", " fish", "�", " zwei"]
    first = [chunk(0, {"role": "assistant", "content": ""}, name=name)]
    first += [chunk(0, {"content": t}, None, entry(w), name) for t, w in zip(texts, words, strict=True)]
    first += [chunk(0, {}, "stop", name=name)]
    deltas: list[Json] = [{"role": "assistant", "content": None}, {"reasoning_content": "Hm"}]
    deltas += [call(0, name="add", arguments=""), call(0, arguments='{"a": 1'), call(0, arguments=', "b": 1}')]
    deltas += [call(1, name="add", arguments='{"a": 1'), call(1, arguments=', "b": 1}')]
    second = [chunk(1, delta, name=name) for delta in deltas] + [chunk(1, {}, "tool_calls", name=name)]
    mixed = (
        first + second
        if order == 0
        else [c for pair in zip(second, first, strict=False) for c in pair] + second[len(first) :]
    )
    return [*mixed, {"id": name, "created": len(name), "choices": [], "usage": {"completion_tokens": 9}}]


def client(chunks: list[Json]) -> dict[Any, Any]:
    """What a client makes of a stream."""
    has: dict[Any, Any] = {
        "ids": {(c["id"], c["created"]) for c in chunks},
        "usage": [c["usage"] for c in chunks if "usage" in c],
    }
    for choice in (c for chunk in chunks for c in chunk["choices"]):
        i, delta = choice["index"], choice["delta"]
        for key in ("role", "content", "reasoning_content"):
            has[i, key] = has.get((i, key), "") + (delta.get(key) or "")
        has[i, "end"] = has.get((i, "end"), "") + (choice["finish_reason"] or "")
        has[i, "logprobs"] = has.get((i, "logprobs"), []) + (choice["logprobs"] or {}).get("content", [])
        for part in delta.get("tool_calls", []):
            for key, value in {**part, **part["function"]}.items():
                if isinstance(value, str):
                    has[i, part["index"], key] = has.get((i, part["index"], key), "") + value
    return has


def test_cut_off_anywhere() -> int:
    """Cuts the stream after any number of chunks, and its repetition, too; the number of cases."""
    whole = stream("first", 0)
    expected = client(whole)
    assert expected[1, 1, "arguments"] == '{"a": 1, "b": 1}' and expected[1, 0, "id"] == "call_0"
    assert expected[0, "content"] == "One fish zwei" and len(expected[0, "logprobs"]) == 4
    again = stream("again", 1)
    cases = 0
    for cut in range(1, len(whole) + 1):
        for second in range(len(again) + 1):
            said = Said()
            got = [said.news(c) for c in whole[:cut]]
            for part in (again[:second], stream("third", 0)):
                said.repeat()
                got += [said.news(c) for c in part]
            assert client([c for c in got if c]) == expected, (cut, second)
            cases += 1
    return cases


def message(name: str) -> list[Json]:
    """A stream of `/v1/messages`: a text and a call. Another replica names its parts anew and has another cache."""
    usage = {"input_tokens": len(name), "output_tokens": 0}
    start = {"id": f"msg_{name}", "role": "assistant", "content": [], "usage": usage}
    tool = {"type": "tool_use", "id": f"toolu_{name}", "name": "add", "input": {}}
    return [
        {"type": "message_start", "message": start},
        {"type": "ping"},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "One"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " fish"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": tool},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": usage},
        {"type": "message_stop"},
    ]


def response(name: str) -> list[Json]:
    """A stream of `/v1/responses`, whose last event has all that was said before."""
    item = {"id": f"msg_{name}", "type": "message", "role": "assistant"}
    made: Json = {"id": f"resp_{name}", "created_at": 1000 + len(name), "completed_at": None, "output": []}
    ended = {**made, "completed_at": 2000 + len(name), "output": [{**item, "content": "One fish"}]}
    place = {"item_id": item["id"], "output_index": 0}
    events: list[Json] = [
        {"type": "response.created", "response": made},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_text.delta", "delta": "One", **place},
        {"type": "response.output_text.delta", "delta": " fish", **place},
        {"type": "response.output_text.done", "text": "One fish", **place},
        {"type": "response.completed", "response": ended},
    ]
    return [{**event, "sequence_number": i} for i, event in enumerate(events)]


def lines(name: str) -> list[Json]:
    """A stream of `/api/chat`."""
    words = [{"message": {"role": "assistant", "content": text}, "done": False} for text in ("One", " fish")]
    end = {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop", "eval_count": 3}
    return [{"created_at": name, **line} for line in (*words, {**end, "total_duration": len(name)})]


def test_a_tools_own_keys_are_compared() -> int:
    """What a call gives to a tool is part of the answer, whatever its keys look like."""

    def paid(account: str) -> Json:
        function = {"name": "pay", "arguments": {"account_id": account, "paid_at": account}}
        return {"message": {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}, "done": False}

    said = Events()
    assert said.news(paid("A")) == paid("A")
    said.repeat()
    try:
        said.news(paid("B"))
    except Differs:
        return 1
    raise AssertionError("another account was taken for the same")


def names(value: Any) -> set[Any]:
    """All ids and the time at which an answer was made."""
    if isinstance(value, list):
        return set().union(*map(names, value))
    if not isinstance(value, dict):
        return set()
    mine = {(k, v) for k, v in value.items() if k.endswith("id") or k == "created_at"}
    return mine.union(*map(names, value.values()))


def pieces(events: list[Json]) -> list[Any]:
    """What a client reads of a stream, but for names, times and usage."""
    volatile = ("id", "_at", "_duration", "usage")

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return list(map(plain, value))
        if not isinstance(value, dict):
            return value
        return {k: plain(v) for k, v in value.items() if not k.endswith(volatile)}

    return list(map(plain, events))


def test_events_cut_off_anywhere() -> int:
    """The same for streams of one answer, whose events come in one order."""
    cases = 0
    for surface, stream_of in [("messages", message), ("responses", response), ("api/chat", lines)]:
        whole, again, third = (stream_of(name) for name in ("first", "again...", "the third"))
        for cut in range(1, len(whole) + 1):
            for second in range(len(again) + 1):
                said = Events()
                got = [said.news(event) for event in whole[:cut]]
                for part in (again[:second], third):
                    said.repeat()
                    got += [said.news(event) for event in part]
                has = [event for event in got if event]
                assert pieces(has) == pieces(whole), (surface, cut, second)
                if surface == "responses":
                    # Names that the client knows stay as they are, wherever they stand.
                    ids = {name for name in names(has) if name[0] in ("id", "created_at")}
                    known = {name for name in names(whole[:cut]) if name[0] in ("id", "created_at")}
                    made = {name for name in ids if str(name[1]).startswith("resp_") or name[0] == "created_at"}
                    assert made <= known and len(made) == 2, (cut, second, ids)
                cases += 1
        end = GENERATE[surface]
        assert [end.is_last(event) for event in whole] == [False] * (len(whole) - 1) + [True]
        for event in whole:
            written = end.event(event)
            assert written.endswith(end.end) and parse(written.removesuffix(end.end)) == event
            assert (b"event: " in written) == ("type" in event)
        said = Events()
        said.news(whole[0])
        said.repeat()
        try:
            said.news(whole[1])
        except Differs:
            continue
        raise AssertionError("another event is taken for the first")
    return cases


def test_failures_in_each_surface_s_words() -> None:
    """What a router says is what a replica would say, and a replica that is about to go is known by its words."""
    for surface, form in GENERATE.items():
        failure = form.failure("gone")
        assert parse(form.event(failure).removesuffix(form.end)) == failure
        assert unavailable(failure) == "gone", surface
        assert unavailable(parse(form.event(failure)) or {}) == "gone", surface
    # The last line of a stream of Ollama's as `minfer serve` writes it. Other errors are the answer's own.
    line = b'{"error":"the engine has stopped","type":"unavailable_error"}'
    assert unavailable(parse(line) or {}) == "the engine has stopped"
    others: list[Json] = [
        {"error": {"type": "server_error", "message": "a bug"}},
        {"error": "a bug", "type": "server_error"},
        {"error": "a bug"},
        {"type": "error", "error": None},
        {"type": "ping"},
    ]
    assert [unavailable(event) for event in others] == [None] * len(others)


def test_a_repetition_that_differs_is_noticed() -> None:
    """Another word in place of one that the client has, and none where it has one."""
    for said_then, said_now in pairwise(["One", "Two", "TwO", "T", "One"]):
        said = Said()
        said.news(chunk(0, {"content": said_then}))
        said.repeat()
        try:
            new = said.news(chunk(0, {"content": said_now}))
        except Differs:
            continue
        assert said_then.startswith(said_now) and new is None, (said_then, said_now)


def test_who_answers() -> None:
    """Turns of a conversation meet; a replica that goes moves only its own; a busy one is passed over."""
    turns = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "a"},
    ]
    assert opening({"messages": turns[:2]}) == opening({"messages": turns}) != opening({"messages": turns[:1]})
    names = {name: 0 for name in "abc"}
    before = {str(key): choose(str(key), names, 4) for key in range(300)}
    assert all(60 < list(before.values()).count(name) < 140 for name in names), "no fair shares"
    after = {key: choose(key, {"a": 0, "b": 0}, 4) for key in before}
    assert all(after[key] == name for key, name in before.items() if name != "c")
    assert all(choose(key, {"a": 5, "b": 0}, 4) == "b" for key in before)
    bodies: list[Json] = [{}, {"seed": None}, {"seed": -1}, {"seed": 0}]
    for body in bodies:
        pin_seed("chat/completions", body)
        assert 0 <= body["seed"] < 2**53
    in_options: list[Json] = [{}, {"options": None}, {"options": {"temperature": 1, "seed": -1}}]
    for body in in_options:
        pin_seed("api/chat", body)
        assert "seed" not in body and 0 <= body["options"]["seed"] < 2**53
    assert bodies[3]["seed"] == 0 and len({body["seed"] for body in bodies}) == 4


if __name__ == "__main__":
    test_a_repetition_that_differs_is_noticed()
    test_a_tools_own_keys_are_compared()
    test_who_answers()
    test_failures_in_each_surface_s_words()
    print(f"{test_cut_off_anywhere() + test_events_cut_off_anywhere()} cut streams: 6 passed, 0 failed")
