"""Reference token ids: crates/minfer/tests/data/tokenizer/.

packages: gguf==0.19.0 numpy==2.4.6 tokenizers==0.23.3 llama-cpp-python==0.3.36

Writes corpus.json (the texts), FAMILY.gguf (cut-down vocabularies of the vocabulary-only files in
the source of llama-cpp-python, which is downloaded unless LLAMA_CPP_SOURCE names its folder) and
FAMILY.json (ids of every text, see `golden`). Two references: llama.cpp, and Hugging Face
tokenizers with the family's documented pre-tokenizer. Where they differ, the second counts, and
the difference must be of a kind that `why_different` knows.

    tokenizer.py FAMILY …                        these only
    tokenizer.py --model NAME MODEL.gguf         NAME.json of a whole vocabulary (smollm2: the
                                                 model that the test of this name fetches)
    tokenizer.py --full OUT_DIR MODEL.gguf …     the same for whole vocabularies, as files for
                                                 crates/minfer/examples/check_tokenizer.rs
"""

import ctypes
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

import gguf
import llama_cpp
import tokenizers
from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers

import _tokenizer_corpus

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "crates/minfer/tests/data/tokenizer"
FAMILIES = ["gpt-2", "starcoder", "refact", "command-r", "qwen2", "llama-bpe", "deepseek-llm", "deepseek-coder", "falcon", "mpt", "aquila",
            "llama-spm", "phi-3"]

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,%d}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CASED = ("A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ"
         "-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃")
CJK = "[一-龥ࠀ-一가-퟿]+"
PRE = {
    "gpt-2": [GPT2], "mpt": [GPT2],
    "smollm": [r"\p{N}", GPT2], "starcoder": [r"\p{N}", GPT2], "refact": [r"\p{N}", GPT2], "command-r": [r"\p{N}", GPT2],
    "qwen2": [LLAMA3 % 1], "llama-bpe": [LLAMA3 % 3],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    "deepseek-llm": ["[\r\n]", r"\s?[%s]+" % CASED, r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", CJK, r"\p{N}+"],
    "deepseek-coder": ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, r"\p{N}"],
}
# Texts of bug reports: their ids are kept in full.
REPORTED = ("hello<s> world", "hello<s>world", "hello<s>  world")
# Control tokens by their names, whatever type a file gives them (Aquila's is a normal token).
ENDS = ("<|endoftext|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|eot_id|>")
NORMAL, UNKNOWN, CONTROL, USER, BYTE = 1, 2, 3, 4, 6


class File:
    """The tokenizer fields of a GGUF."""

    def __init__(self, path):
        self.path, self.reader = str(path), gguf.GGUFReader(path)
        get = lambda k, default=None: self.reader.fields[k].contents() if k in self.reader.fields else default
        self.get = lambda k, default=None: get("tokenizer.ggml." + k, default)
        self.tokens, self.types = self.get("tokens"), self.get("token_type")
        self.spm, self.pre = self.get("model") == "llama", self.get("pre", "default")
        self.phi3 = re.search("phi-?3", get("general.name") or "", re.I) is not None
        self.prefix = self.spm and self.get("add_space_prefix", True)
        self.bos = self.get("bos_token_id") if self.get("add_bos_token", self.spm or self.pre == "llama-bpe") else None

    def hugging_face(self, control):
        """The tokenizer by Hugging Face; with control tokens or without."""
        vocab = {t: i for i, t in enumerate(self.tokens)}
        if self.spm:
            scores = self.get("scores")
            ids = [i for i, t in enumerate(self.types) if t in (NORMAL, USER)]
            known = {self.tokens[i] for i in ids}
            rules = [(-scores[i], vocab[t[:k]], (t[:k], t[k:])) for i in ids for t in [self.tokens[i]] for k in range(1, len(t))
                     if t[:k] in known and t[k:] in known]
            rules.sort(key=lambda r: r[:2])
            model = tokenizers.models.BPE(vocab, [r[2] for r in rules], byte_fallback=True, fuse_unk=True, unk_token=self.tokens[0])
            tk = tokenizers.Tokenizer(model)
            steps = ([normalizers.Prepend("▁")] if self.prefix else []) + [normalizers.Replace(" ", "▁")]
            tk.normalizer = normalizers.Sequence(steps)
        else:
            merges = [tuple(m.split(" ", 1)) for m in self.get("merges")]
            tk = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, merges, ignore_merges=self.pre == "llama-bpe"))
            splits = [pre_tokenizers.Split(Regex(p), "isolated") for p in PRE[self.pre]]
            tk.pre_tokenizer = pre_tokenizers.Sequence(splits + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        keep = (USER, CONTROL, UNKNOWN) if control else (USER,)
        strip = lambda t: self.phi3 and t not in ("<unk>", "<s>", "<|endoftext|>")
        tk.add_tokens([AddedToken(t, normalized=False, rstrip=strip(t)) for t, ty in zip(self.tokens, self.types) if t and (ty in keep or control and t in ENDS)])
        return tk

    def add_bos(self, ids):
        return ids if self.bos is None or ids[:1] == [self.bos] else [self.bos] + ids


def llama_cpp_ids(path, texts, add, parse):
    params = llama_cpp.llama_model_default_params()
    params.vocab_only, params.n_gpu_layers = True, 0
    model = llama_cpp.llama_model_load_from_file(path.encode(), params)
    assert model, path
    vocab, out = llama_cpp.llama_model_get_vocab(model), []
    for text in texts:
        raw = text.encode()
        buffer = (llama_cpp.llama_token * (len(raw) + 16))()
        n = llama_cpp.llama_tokenize(vocab, raw, len(raw), buffer, len(buffer), add, parse)
        assert n >= 0
        out.append(list(buffer[:n]))
    llama_cpp.llama_model_free(model)
    return out


def why_different(file, text):
    """Why llama.cpp's ids of a text may differ from Hugging Face's; None if they must not."""
    if "</s>" in text and "</s>" in file.tokens and file.types[file.tokens.index("</s>")] != CONTROL:
        return "llama.cpp makes a control token of every </s>"
    if file.pre == "deepseek-llm" and re.search("[\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]", text):
        return "llama.cpp has no white space beyond ASCII in classes"
    if file.pre in ("qwen2", "llama-bpe") and "'ſ" in text:
        return "llama.cpp does not fold ſ to s"
    if not file.spm and re.search("[\x00-\x1f]", text) and len({*range(256)} - byte_tokens(file)) > 13:
        return "bytes without a token: Hugging Face merges across them"
    return None


def byte_alphabet():
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in own]
    return {b: chr(b) for b in own} | {b: chr(256 + i) for i, b in enumerate(rest)}


def byte_tokens(file):
    tokens = set(file.tokens)
    return {b for b, c in byte_alphabet().items() if c in tokens}


def reference(path, texts):
    """[(parse_special, ids of each text)]: BOS as the file asks, but never twice."""
    file, out, notes = File(path), [], {}
    for parse in (False, True):
        hf = file.hugging_face(parse)
        ids = [file.add_bos(hf.encode(t, add_special_tokens=False).ids) for t in texts]
        # With special tokens parsed, llama.cpp adds a second BOS to a text that has one.
        other = llama_cpp_ids(file.path, texts, add=not parse, parse=parse)
        if parse:
            other = [file.add_bos(o) for o in other]
        for i, text in enumerate(texts):
            if ids[i] != other[i]:
                why = why_different(file, text)
                if why is None:
                    print("UNEXPLAINED", path, parse, repr(text)[:300], ids[i][:40], other[i][:40])
                    why = "UNEXPLAINED"
                notes[why] = notes.get(why, 0) + 1
                if why.startswith("bytes without"):
                    ids[i] = other[i]
        out.append((parse, ids))
    print(pathlib.Path(path).name, len(texts), "texts,", sum(len(i) for _, l in out for i in l), "ids; the two differ:", notes or "nowhere")
    return out


def cut(source, target, chars):
    """Writes a small vocabulary: special tokens, bytes, the strongest merges or best pieces."""
    file = File(source)
    special = [i for i, t in enumerate(file.types) if t in (CONTROL, UNKNOWN)][:40]
    special += [i for i, t in enumerate(file.types) if t == USER][:40]
    special += [i for i, t in enumerate(file.types) if t == USER and file.tokens[i] in {" " * n for n in range(2, 9)}]
    if file.spm:
        scores = file.get("scores")
        normal = [i for i, t in enumerate(file.types) if t == NORMAL and set(file.tokens[i]) <= chars]
        best = sorted((i for i in normal if len(file.tokens[i]) > 1), key=lambda i: (-scores[i], i))[:1200]
        runs = [i for i in normal if set(file.tokens[i]) == {"▁"}]
        keep = set(special) | {i for i, t in enumerate(file.types) if t == BYTE} | {i for i in normal if len(file.tokens[i]) == 1} | set(best) | set(runs)
    else:
        index = {t: i for i, t in enumerate(file.tokens)}
        made, merges = {c for c in byte_alphabet().values() if c in index}, []
        for rule in file.get("merges")[:1000]:
            left, right = rule.split(" ", 1)
            if left in made and right in made:
                made.add(left + right)
                merges.append(rule)
        keep = set(special) | {index[t] for t in made}
    keep = sorted(keep)
    new = {old: i for i, old in enumerate(keep)}
    writer = gguf.GGUFWriter(target, file.reader.fields["general.architecture"].contents())
    for key, field in file.reader.fields.items():
        kind = field.types[0] if field.types else None
        if key.startswith("GGUF.") or key == "general.architecture" or "chat_template" in key:
            continue
        value = field.contents()
        if key.endswith("_token_id"):
            if value in new:
                writer.add_uint32(key, new[value])
        elif key == "tokenizer.ggml.tokens":
            writer.add_array(key, [file.tokens[i] for i in keep])
        elif key == "tokenizer.ggml.token_type":
            writer.add_array(key, [int(file.types[i]) for i in keep])
        elif key == "tokenizer.ggml.scores":
            if file.spm:
                writer.add_array(key, [float(value[i]) for i in keep])
        elif key == "tokenizer.ggml.merges":
            writer.add_array(key, merges)
        elif kind != gguf.GGUFValueType.ARRAY and (key.startswith("tokenizer.") or key == "general.name"):
            writer.add_key_value(key, value, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def fnv(ids):
    """FNV-1a, 32 bits, over the ids as little-endian u32."""
    h = 0x811C9DC5
    for byte in b"".join(i.to_bytes(4, "little") for i in ids):
        h = (h ^ byte) * 0x01000193 & 0xFFFFFFFF
    return h


def golden(path, texts, target):
    """{"plain" and "parsed": one hash a text, 8 hex digits each; "short": ids of a few texts}."""
    (_, plain), (_, parsed) = reference(path, texts)
    out = {k: "".join(f"{fnv(i):08x}" for i in ids) for k, ids in (("plain", plain), ("parsed", parsed))}
    out["short"] = {t: parsed[i] for i, t in enumerate(texts) if 0 < len(t) <= 6 or t in REPORTED}
    target.write_text(json.dumps(out, ensure_ascii=False, separators=(",", ":")) + "\n")


def sources():
    if folder := os.environ.get("LLAMA_CPP_SOURCE"):
        return pathlib.Path(folder) / "vendor/llama.cpp/models"
    folder = tempfile.mkdtemp()
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "llama-cpp-python", "-d", folder]
    subprocess.run(pip + ["llama-cpp-python==0.3.36"], check=True)
    (archive,) = pathlib.Path(folder).glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return next(pathlib.Path(folder).glob("llama_cpp_python-*")) / "vendor/llama.cpp/models"


def start():
    """llama.cpp, silent."""
    global SILENT
    SILENT = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(SILENT, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()


def write_full(model, texts, target):
    """The ids of a whole vocabulary, for crates/minfer/examples/check_tokenizer.rs."""
    cases = [dict(text=t, add_special=True, parse_special=parse, ids=i) for parse, ids in reference(model, texts) for t, i in zip(texts, ids)]
    target.write_text(json.dumps(cases))


def main():
    start()
    texts = _tokenizer_corpus.texts()
    if sys.argv[1:2] == ["--full"]:
        for path in map(pathlib.Path, sys.argv[3:]):
            write_full(path, texts, pathlib.Path(sys.argv[2]) / f"{path.stem}.json")
        return
    if sys.argv[1:2] == ["--model"]:
        golden(pathlib.Path(sys.argv[3]), texts, DATA / f"{sys.argv[2]}.json")
        return
    DATA.mkdir(parents=True, exist_ok=True)
    (DATA / "corpus.json").write_text(json.dumps(texts, ensure_ascii=False, separators=(",", ":")) + "\n")
    chars = {c for t in texts for c in t} | {"▁"}
    folder = sources()
    for family in sys.argv[1:] or FAMILIES:
        target = DATA / f"{family}.gguf"
        cut(folder / f"ggml-vocab-{family}.gguf", target, chars)
        golden(target, texts, target.with_suffix(".json"))


if __name__ == "__main__":
    main()
