"""Many conversations on one engine: throughput, shared prefixes, gaps under load, guesses.

packages: gguf==0.19.0 numpy==2.4.6
models: real

The figures come from the example `conversations` on Qwen2.5-Coder-0.5B, two threads. The draft model is that model without
its middle layers, which nobody has trained: it guesses badly, so its speed is shown and not promised. That guesses change no
byte is tried with every sampler and with constraints, with both kinds of guesses. llama.cpp's side of the throughput is in
`cargo xtask peers --tests seqs2,seqs4,seqs8,seqs16`.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf

MODEL = Path(os.environ["MINFER_CACHE"]) / "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf"
# Layers of 24 that the draft keeps: the first ones and the last ones do most.
KEPT = [0, 1, 2, 3, 4, 5, 6, 7, 20, 21, 22, 23]
MARKS = {
    "together 8 of_one": (">=", 3.5),
    "prefix ratio": (">=", 10),
    "gap ratio": ("<", 3),
    "lookup ratio": (">=", 1.8),
}
SAMPLERS = [
    ["--temp", "0"],
    ["--temp", "0", "--repeat-penalty", "1.3"],
    ["--temp", "0.8", "-s", "7"],
    ["--temp", "1.2", "--top-k", "0", "--min-p", "0.05", "-s", "3"],
    ["--typical", "0.7", "-s", "5"],
    ["--mirostat", "1"],
    ["--mirostat", "2", "-s", "9"],
    ["--dry-multiplier", "0.8", "--xtc-probability", "0.5", "-s", "11"],
    ["--top-n-sigma", "1", "--dynatemp-range", "0.5"],
]
SCHEMA = json.dumps({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
                     "required": ["name", "age"], "additionalProperties": False})
CONSTRAINTS = [["--json-schema", SCHEMA], ["--regex", "[a-z ]{40,80}\\."]]
PROMPT = "Write a sentence about rivers, then repeat it, then repeat it again."


def write_draft(path):
    """The model with only some of its layers, renumbered."""
    reader = gguf.GGUFReader(MODEL)
    arch = reader.get_field("general.architecture").contents()
    writer = gguf.GGUFWriter(path, arch)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        value = field.contents()
        if name.endswith(".block_count"):
            value = len(KEPT)
        kind = field.types[0]
        sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, value, kind, sub_type=sub)
    for tensor in reader.tensors:
        name = tensor.name
        if name.startswith("blk."):
            _, layer, rest = name.split(".", 2)
            if int(layer) not in KEPT:
                continue
            name = f"blk.{KEPT.index(int(layer))}.{rest}"
        writer.add_tensor(name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def figures(draft):
    """Runs the example; its figures by name."""
    build = ["cargo", "build", "--release", "-p", "minfer", "--example", "conversations"]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    program = Path(os.environ["MINFER"]).parent / "examples" / "conversations"
    found = {}
    with subprocess.Popen([program, MODEL, draft], stdout=subprocess.PIPE, text=True) as run:
        for line in run.stdout:
            print(line, end="", flush=True)
            row = json.loads(line)
            name = row.pop("figure")
            if name == "together":
                name += f" {row.pop('n')}"
            found.update({f"{name} {key}": value for key, value in row.items()})
    if run.returncode:
        sys.exit("the example failed")
    return found


def answer(*flags):
    """What `minfer run` says: ids, and how many guesses were made and right."""
    out = subprocess.run([os.environ["MINFER"], "run", MODEL, PROMPT, "-n", "80", "--json", *flags],
                         check=True, stdout=subprocess.PIPE, text=True).stdout
    out = json.loads(out)
    return out["ids"], out["timings"]["drafted_n"], out["timings"]["accepted_n"]


def same_bytes(draft):
    """Answers with guesses beside those without; how many differ."""
    differ = 0
    for flags in SAMPLERS + CONSTRAINTS:
        plain = answer(*flags)[0]
        for kind in (["--lookup"], ["--draft", str(draft)]):
            ids, drafted, accepted = answer(*flags, *kind)
            word = "same" if ids == plain else "DIFFERS"
            differ += ids != plain
            print(f"{word:8} {kind[0]:9} {drafted:4} guessed {accepted:4} right  {' '.join(flags)[:60]}", flush=True)
    return differ


def main():
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / "draft.gguf"
        write_draft(draft)
        print(f"draft: layers {KEPT} of the model\n")
        found = figures(draft)
        print()
        differ = same_bytes(draft)
    missed = 0
    print()
    for name, (rule, mark) in MARKS.items():
        good = found[name] >= mark if rule == ">=" else found[name] < mark
        missed += not good
        print(f"{name}: {found[name]} ({'ok' if good else 'MISSED'}, {rule} {mark})")
    print(f"{differ} answers differ from those without guesses")
    sys.exit(1 if missed or differ else 0)


main()
