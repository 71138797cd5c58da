"""Reference renderings of chat templates.

packages: transformers==5.24.0 jinja2==3.1.6 tokenizers==0.23.3 numpy==2.4.6 gguf==0.19.0

Templates: vendor/llama.cpp/models/templates of the source package llama-cpp-python==0.3.36,
and tokenizer.chat_template of the two real models that have one.

    python chat.py [DATA_DIR [TEMPLATE_FOLDER [MODEL.gguf=NAME ...]]] [--full FILE]

DATA_DIR is crates/minfer/tests/data/chat where none is given. Templates found in TEMPLATE_FOLDER or in the models are
copied to DATA_DIR/templates first; then every template there is rendered with every conversation of
DATA_DIR/conversations.json, and DATA_DIR/renderings.tsv gets one line a rendering:
template, conversation, then `ok` + bytes + FNV-1a 64 of the text, `raise` + JSON of the message given to
raise_exception, or `error` (the template fails in another way). `--full` keeps the whole texts in FILE.
"""
import json
import sys
from datetime import datetime
from pathlib import Path

import jinja2
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

NOW = datetime(2025, 3, 7, 9, 5, 2)  # strftime_now in every rendering


class FixedDatetime(datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


def fnv1a(data: bytes) -> int:
    h = 0xCBF29CE484222325
    for b in data:
        h = ((h ^ b) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def render(tokenizer, source, conv):
    """HF's way, with tool-call arguments as objects (its convention); as strings where that fails."""
    first = None
    for parse in (True, False):
        messages = json.loads(json.dumps(conv["messages"]))
        changed = False
        for m in messages:
            for call in m.get("tool_calls") or []:
                if parse and isinstance(call["function"]["arguments"], str):
                    call["function"]["arguments"] = json.loads(call["function"]["arguments"])
                    changed = True
        try:
            text = tokenizer.apply_chat_template(
                messages, tools=conv.get("tools"), chat_template=source, tokenize=False,
                add_generation_prompt=conv["add_generation_prompt"],
                continue_final_message=conv.get("continue_final_message", False), **conv.get("extra", {}))
            return "ok", text
        except Exception as e:  # a template may fail in any way
            raised = type(e) is jinja2.exceptions.TemplateError
            first = first or (("raise", e.message) if raised else ("error", f"{type(e).__name__}: {e}"))
            if not changed:
                return first
    return first


def main():
    args = sys.argv[1:]
    full = None
    if "--full" in args:
        i = args.index("--full")
        full = Path(args[i + 1])
        del args[i:i + 2]
    default = Path(__file__).resolve().parents[2] / "crates/minfer/tests/data/chat"
    data = Path(args[0]) if args else default
    if len(args) > 1:
        for f in sorted(Path(args[1]).glob("*.jinja")):
            (data / "templates" / f.name).write_bytes(f.read_bytes())
    for spec in args[2:]:
        from gguf import GGUFReader
        path, name = spec.split("=")
        field = GGUFReader(path).fields["tokenizer.chat_template"]
        (data / "templates" / f"{name}.jinja").write_text(field.contents(), newline="")

    chat_template_utils.datetime = FixedDatetime
    tok = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"<unk>": 0}, "<unk>")),
                                  bos_token="<BOS>", eos_token="<EOS>")
    conversations = json.loads((data / "conversations.json").read_text())
    lines, texts = [], {}
    for f in sorted((data / "templates").glob("*.jinja")):
        source = f.read_bytes().decode()
        for conv in conversations:
            kind, text = render(tok, source, conv)
            texts[f"{f.stem}/{conv['name']}"] = [kind, text]
            raw = text.encode()
            tail = {"ok": f"{len(raw)}\t{fnv1a(raw):016x}", "raise": json.dumps(text, ensure_ascii=False), "error": ""}
            lines.append(f"{f.stem}\t{conv['name']}\t{kind}\t{tail[kind]}".rstrip())
    (data / "renderings.tsv").write_text("\n".join(lines) + "\n")
    if full:
        full.write_text(json.dumps(texts, ensure_ascii=False))


main()
