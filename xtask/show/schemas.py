"""The official JSON Schema Test Suite before response_format: an answer is valid, and what can't be followed is refused by name.

packages: httpx==0.28.1 jsonschema==4.26.0
models: real

`minfer serve` with SmolLM2. Each schema of the suite's drafts 2020-12 and 7 (they come with the source of PyPI's `jsonschema`) is
asked for with several seeds. It is refused with a 400 that names what can't be followed; or each answer that ends by itself is
JSON without repeated keys, and valid for `jsonschema`, and each that is cut by its length is a beginning of JSON.

Then the suite's own instances: no endpoint tells whether a constraint would take a text, so the schema is asked for with one more
keyword, `const: INSTANCE`. A valid instance must come back as it is; one that is not valid must be refused. This goes through the
compiler's intersection of both, not through the text of every instance. `schemas.py FILE…` runs only these files (`items`).
"""
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import httpx
import jsonschema

from clients import Minfer, short

MODEL = Path(os.environ["MINFER_CACHE"]) / "SmolLM2-135M-Instruct.Q4_1.gguf"
DRAFTS = {"draft2020-12": jsonschema.Draft202012Validator, "draft7": jsonschema.Draft7Validator}
SEEDS = (1, 2)
CHOICES = 2  # of each seed
LENGTH = 32  # tokens
CLIENTS = 4  # requests at once


def suite(folder):
    """(draft, file, group) of each group of the suite that lies in the source of the installed `jsonschema`."""
    name = "jsonschema==" + importlib.metadata.version("jsonschema")
    # Only this package must be a source; what builds it need not be.
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "jsonschema", "--dest", folder, name]
    subprocess.run(pip, check=True, stdout=sys.stderr)
    with tarfile.open(next(Path(folder).glob("jsonschema-*.tar.gz"))) as tar:
        for member in sorted(tar.getmembers(), key=lambda m: m.name):
            found = re.search(r"/json/tests/([^/]+)/([^/]+)\.json$", member.name)
            if found and found[1] in DRAFTS:
                for group in json.load(tar.extractfile(member)):
                    yield found[1], found[2], group


def said(draft, schema):
    """The schema with its draft said: without, it is one of the newest."""
    if isinstance(schema, dict) and "$schema" not in schema:
        return {"$schema": DRAFTS[draft].META_SCHEMA["$schema"], **schema}
    return schema


# ---- Answers ----

class Repeated(Exception):
    """A key comes twice in an object."""


def once(pairs):
    if len(dict(pairs)) != len(pairs):
        raise Repeated(f"a key comes twice: {[k for k, _ in pairs]}")
    return dict(pairs)


def number(text):
    """Exact, whatever its size: JSON sets no limits. 1.0 is the integer 1 to JSON Schema."""
    n = Decimal(text)
    return int(n) if n.adjusted() < 400 and n == n.to_integral_value() else n


def read(text):
    """The value of a text, its numbers exact."""
    return json.loads(text, object_pairs_hook=once, parse_float=number)


SPACE, NUMBER = re.compile(r"[ \t\r\n]*"), re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
STRING = re.compile(r'"([^"\\\x00-\x1f]|\\(["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
STRING_BEGUN = re.compile(r'"([^"\\\x00-\x1f]|\\(["\\/bfnrt]|u[0-9a-fA-F]{4}))*(\\(u[0-9a-fA-F]{0,3})?)?$')
NUMBER_BEGUN = re.compile(r"-?((0|[1-9]\d*)(\.\d*)?|(0|[1-9]\d*)(\.\d+)?[eE][+-]?\d*)?$")
WORDS = ("true", "false", "null")


class End(Exception):
    """The text ends before the value does."""


class Wrong(Exception):
    """Whatever follows, this is no JSON."""


def begins(text):
    """Whether some JSON text begins with this."""
    try:
        return SPACE.match(text, value(text, SPACE.match(text, 0).end())).end() == len(text)
    except End:
        return True
    except Wrong:
        return False


def value(text, at):
    """The place after the value at `at`."""
    rest = text[at:]
    if not rest or STRING_BEGUN.match(rest) or NUMBER_BEGUN.match(rest) or any(w.startswith(rest) for w in WORDS):
        raise End
    if rest[0] in "[{":
        return container(text, at + 1, "]" if rest[0] == "[" else "}")
    for word in WORDS:
        if rest.startswith(word):
            return at + len(word)
    found = (STRING if rest[0] == '"' else NUMBER).match(rest)
    if not found:
        raise Wrong
    return at + found.end()


def container(text, at, closing):
    """The place after the list or object whose first part begins at `at`."""
    def next_part(at):
        at = SPACE.match(text, at).end()
        if at == len(text):
            raise End
        return at

    def expect(at, character):
        at = next_part(at)
        if text[at] != character:
            raise Wrong
        return next_part(at + 1)

    at = next_part(at)
    if text[at] == closing:
        return at + 1
    while True:
        if closing == "}":
            if text[at] != '"':
                raise Wrong
            at = expect(value(text, at), ":")
        at = next_part(value(text, at))
        if text[at] == closing:
            return at + 1
        at = expect(at, ",")


# ---- Requests ----

class Asker:
    def __init__(self, url):
        self.client = httpx.Client(base_url=url, timeout=180)

    def ask(self, schema, hint="", **more):
        """Status, and the response's JSON."""
        text = "Answer in JSON, and be brief. " + hint
        body = {"messages": [{"role": "user", "content": text}], "max_tokens": LENGTH, **more,
                "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}}
        got = self.client.post("/v1/chat/completions", json=body)
        return got.status_code, got.json()


def names(schema):
    """All words a refusal can name: keys and texts of the schema."""
    if isinstance(schema, dict):
        return {*schema}.union(*map(names, schema.values()))
    if isinstance(schema, list):
        return set().union(*map(names, schema))
    return {schema} if isinstance(schema, str) else set()


def refused(schema, got):
    """What a refusal names: a keyword, or why there is nothing that fits. None: it names nothing."""
    text = got["error"]["message"]
    by_name = re.search(r"(?:keyword |#/\S*/)?(\$?\w+) at #", text)
    if by_name and by_name[1] in names(schema):
        return by_name[1]
    for word in ("nothing fulfils it", "$ref", "a schema is a JSON object"):
        if word in text:
            return {"nothing fulfils it": "nothing fits"}.get(word, word)
    return next((n for n in sorted(names(schema), key=len, reverse=True) if n and n in text), None)


def answers(asker, draft, schema):
    """What became of a schema: a list of (kind, detail)."""
    out, hint = [], json.dumps(schema)[:200]
    for seed in SEEDS:
        status, got = asker.ask(schema, hint, seed=seed, n=CHOICES, temperature=1)
        if status == 400:
            return [("refused", refused(schema, got))] if refused(schema, got) else [("WRONG", f"names nothing: {got['error']['message']}")]
        if status != 200:
            return [("WRONG", f"{status}: {got}")]
        out += [judged(draft, schema, c["finish_reason"], c["message"]["content"]) for c in got["choices"]]
    return out


def judged(draft, schema, reason, text):
    """What an answer is."""
    if reason == "length":
        return ("cut", text) if begins(text) else ("WRONG", f"cut, and no beginning of JSON: {text!r}")
    if reason != "stop":
        return "WRONG", f"finish_reason {reason}"
    try:
        error = next(iter(DRAFTS[draft](read(json.dumps(schema))).iter_errors(read(text))), None)
    except Repeated as e:
        return "repeated", f"{e}: {text!r}"
    except ValueError as e:
        return "WRONG", f"no JSON ({e}): {text!r}"
    return ("WRONG", f"{text!r}: {error.message}") if error else ("valid", text)


def same(a, b):
    """Whether two values are one in JSON Schema's sense: 1 and 1.0 are, 1 and true are not."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def instance(asker, draft, schema, test):
    """Whether the schema with `const` is what the test says: (kind, detail)."""
    if draft == "draft7" and isinstance(schema, dict) and "$ref" in schema:
        return "not tried", "there $ref hides its neighbours"
    own = {} if schema is True else schema
    narrowed = {**own, "allOf": [*own.get("allOf", []), {"const": test["data"]}]}
    status, got = asker.ask(narrowed, temperature=0, max_tokens=160)
    if status == 400:
        text = got["error"]["message"]
        if "leads round to itself" in text:
            return "not tried", text  # the sibling is the `allOf` put in here
        if not test["valid"]:
            return "refused as it must be", text
        # The suite takes format for a remark, here it is a rule.
        return ("refused for their format" if "format" in own else "valid, refused"), text
    if status != 200:
        return "WRONG", f"{status}: {got}"
    [choice] = got["choices"]
    text = choice["message"]["content"]
    if choice["finish_reason"] != "stop":
        return "too long", text
    if not test["valid"]:
        return "WRONG", f"not valid, and was answered: {text!r}"
    return ("accepted", text) if same(read(text), read(json.dumps(test["data"]))) else ("WRONG", f"another value: {text!r}")


def one(asker, draft, file, group):
    """A group's outcome: what became of its schema, and of its instances."""
    schema = said(draft, group["schema"])
    got = answers(asker, draft, schema)
    fit = [t["data"] for t in group["tests"] if t["valid"]]
    followed = got[0][0] != "refused"
    if got == [("refused", "nothing fits")] and fit:
        got = [("WRONG", f"refused as if nothing fitted, and {short(json.dumps(fit[0]), 100)} does")]
    tests = group["tests"] if followed else []
    return draft, file, group, got, [(t, instance(asker, draft, schema, t)) for t in tests]


# ---- The report ----

def main():
    only = set(sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        groups = [g for g in suite(folder) if not only or g[1] in only]
    server = Minfer([os.environ["MINFER"], "serve", f"SmolLM2={MODEL}", "--port", "0"])
    asker = Asker(server.url)
    wrong, refusals, odd = [], Counter(), []
    totals, kinds, instances = Counter(), Counter(), Counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        for draft, file, group, got, tests in pool.map(lambda g: one(asker, *g), groups):
            where = f"{draft}/{file}: {group['description']}"
            totals[draft] += 1
            if got[0][0] == "refused":
                kinds["refused"] += 1
                refusals[got[0][1]] += 1
            else:
                kinds["followed"] += 1
            for kind, detail in got:
                instances["answers " + kind] += kind != "refused"
                if kind in ("WRONG", "repeated"):
                    (wrong if kind == "WRONG" else odd).append(f"{where}: {json.dumps(group['schema'])[:300]}: {detail}")
            for test, (kind, detail) in tests:
                instances["instances " + kind] += 1
                if kind in ("WRONG", "valid, refused"):
                    (wrong if kind == "WRONG" else odd).append(
                        f"{kind}: {where}: {test['description']}: {json.dumps(group['schema'])[:300]} with const {short(json.dumps(test['data']), 100)}: {short(detail, 120)}")
    report(totals, kinds, refusals, instances, odd, wrong)
    if not server.alive() or server.stop() != 0:
        sys.exit("the server did not live to the end, or did not stop when told")
    sys.exit(1 if wrong else 0)


def report(totals, kinds, refusals, instances, odd, wrong):
    print("schemas:", ", ".join(f"{n} of {d}" for d, n in totals.items()))
    print("schemas:", ", ".join(f"{n} {k}" for k, n in sorted(kinds.items())))
    for what in ("answers", "instances"):
        print(f"{what}:", ", ".join(f"{n} {k.removeprefix(what + ' ')}" for k, n in sorted(instances.items()) if k.startswith(what) and n))
    print("\nrefused schemas by what is named:")
    for name, n in refusals.most_common():
        print(f"{n:5} {name}")
    print(f"\n{len(odd)} oddities")
    for line in odd:
        print("-", line)
    print(f"\n{len(wrong)} WRONG")
    for line in wrong:
        print("-", line)


if __name__ == "__main__":
    main()
