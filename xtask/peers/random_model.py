"""A model of real dimensions with random weights: speed does not depend on what a model learned.

packages: gguf==0.19.0 numpy==2.4.6

    random_model.py SHAPE TYPE OUT --tokenizer FILE.gguf

Each matrix is drawn from a pool of valid blocks whose values are near normal with a standard deviation of
1/sqrt(columns), so that activations stay sane over all layers. Types of single tensors follow what
llama.cpp's quantizer does: the head (here tied to the embedding) in Q6_K, in the K mixes half of the
attention's V and of the FFN's down in Q6_K, and Q8_0 where rows are no multiple of 256. The tokenizer
is that of FILE, cut or padded to the vocabulary.
"""

import argparse
import math
import os
import zlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T

# arch, layers, width, FFN, heads, KV heads, head dim, vocabulary, RoPE base, norm epsilon, context
SHAPES = {
    "qwen2.5-0.5b": ("qwen2", 24, 896, 4864, 14, 2, 64, 151_936, 1e6, 1e-6, 32_768),
    "qwen2.5-1.5b": ("qwen2", 28, 1536, 8960, 12, 2, 128, 151_936, 1e6, 1e-6, 32_768),
    "qwen3-0.6b": ("qwen3", 28, 1024, 3072, 16, 8, 128, 151_936, 1e6, 1e-6, 40_960),
    "llama3.2-1b": ("llama", 16, 2048, 8192, 32, 8, 64, 128_256, 5e5, 1e-5, 131_072),
}
# A name's weights, and the file's `general.file_type`.
TYPES = {
    "F16": (T.F16, 1), "Q4_0": (T.Q4_0, 2), "Q4_1": (T.Q4_1, 3), "Q8_0": (T.Q8_0, 7), "Q5_0": (T.Q5_0, 8),
    "Q5_1": (T.Q5_1, 9), "Q4_K": (T.Q4_K, 15), "Q4_K_M": (T.Q4_K, 15), "Q5_K": (T.Q5_K, 17), "Q6_K": (T.Q6_K, 18),
}
# Blocks of a pool: enough that no row looks like another.
POOL = 1 << 14


def halves(x):
    """The bytes of one f16 a block."""
    return x.astype(np.float16)[:, None].view(np.uint8)


def k_scales(scales, mins):
    """Eight 6-bit scales and eight 6-bit minimums in the 12 bytes of Q4_K and Q5_K."""
    s, m = scales.astype(np.uint8), mins.astype(np.uint8)
    high = lambda x: (x[:, 4:] >> 4) << 6
    return np.hstack([s[:, :4] | high(s), m[:, :4] | high(m), (s[:, 4:] & 15) | (m[:, 4:] << 4)])


def pool(rng, kind, std):
    """POOL blocks of a type, one a row, whose values have mean 0 and about this standard deviation."""
    if kind not in (T.Q4_K, T.Q5_K, T.Q6_K):
        values = rng.standard_normal((POOL, 32), dtype=np.float32) * np.float32(std)
        return gguf.quants.quantize(values, kind).view(np.uint8)
    noise = lambda n: rng.integers(0, 256, (POOL, n), dtype=np.uint8)
    if kind == T.Q6_K:
        scales = rng.integers(32, 128, (POOL, 16)) * rng.choice((-1, 1), (POOL, 16))
        # Quants are uniform in -32..31.
        d = std / (math.sqrt((scales**2).mean()) * math.sqrt((64**2 - 1) / 12))
        return np.hstack([noise(192), scales.astype(np.int8).view(np.uint8), halves(np.full(POOL, d))])
    levels = 16 if kind == T.Q4_K else 32
    scales = rng.integers(20, 62, (POOL, 8))
    # Near the middle, not on it: a minimum that is read wrongly must show.
    mins = scales + rng.integers(-1, 2, scales.shape)
    d = np.full(POOL, std / (math.sqrt((scales**2).mean()) * math.sqrt((levels**2 - 1) / 12)))
    quants = 128 if kind == T.Q4_K else 160
    return np.hstack([halves(d), halves(d * (levels - 1) / 2), k_scales(scales, mins), noise(quants)])


def tensors(shape):
    """Name, shape (rows, columns; one number: a vector) and role of each tensor, in the file's order."""
    arch, layers, width, ffn, heads, kv_heads, head, vocab, *_ = shape
    yield "token_embd.weight", (vocab, width), "head"
    if arch == "llama":
        yield "rope_freqs.weight", (head // 2,), "rope"
    for i in range(layers):
        block = [("attn_norm", (width,)), ("attn_q", (heads * head, width)), ("attn_k", (kv_heads * head, width)),
                 ("attn_v", (kv_heads * head, width)), ("attn_output", (width, heads * head)), ("ffn_norm", (width,)),
                 ("ffn_gate", (ffn, width)), ("ffn_up", (ffn, width)), ("ffn_down", (width, ffn))]
        if arch == "qwen3":
            block += [("attn_q_norm", (head,)), ("attn_k_norm", (head,))]
        for name, dims in block:
            yield f"blk.{i}.{name}.weight", dims, "norm" if len(dims) == 1 else name
        if arch == "qwen2":
            for name, n in (("attn_q", heads), ("attn_k", kv_heads), ("attn_v", kv_heads)):
                yield f"blk.{i}.{name}.bias", (n * head,), "bias"
    yield "output_norm.weight", (width,), "norm"


def tensor_type(name, dims, role, base, layers):
    """The type that llama.cpp's quantizer would choose."""
    if len(dims) == 1:
        return T.F32
    kind = base
    if role == "head" and base not in (T.F16, T.Q8_0):
        kind = T.Q6_K
    elif base in (T.Q4_K, T.Q5_K) and role in ("attn_v", "ffn_down"):
        i, eighth = int(name.split(".")[1]), layers // 8
        if i < eighth or i >= 7 * layers // 8 or (i - eighth) % 3 == 2:
            kind = T.Q6_K
    k_type = kind in (T.Q4_K, T.Q5_K, T.Q6_K)
    return T.Q8_0 if k_type and dims[-1] % 256 else kind


def vector(rng, dims, role, shape):
    """A norm's weights, a bias, or Llama 3's RoPE factors."""
    if role == "rope":
        head, base = shape[6], shape[8]
        wave = 2 * np.pi * base ** (np.arange(0, head, 2) / head)
        # Long waves turn 32 times slower, short ones as before, those between in proportion.
        part = np.clip((8192 / wave - 1) / (4 - 1), 0, 1)
        return (1 / (part + (1 - part) / 32)).astype(np.float32)
    return ((role == "norm") + 0.1 * rng.standard_normal(dims)).astype(np.float32)


def matrix(pools, seed, dims, kind):
    """A matrix's bytes, a row of them a row: blocks drawn from the pool of its type and width."""
    rows, columns = dims
    rng = np.random.default_rng(seed)
    block, size = gguf.GGML_QUANT_SIZES[kind]
    if kind == T.F16:
        block, size = 32, 64
    if (kind, columns) not in pools:
        pools[kind, columns] = pool(rng, kind, columns**-0.5)
    picks = rng.integers(0, POOL, rows * columns // block, dtype=np.uint16)
    return pools[kind, columns][picks].reshape(rows, columns // block * size)


def add_tokenizer(writer, path, vocab):
    """Copies the tokenizer of a byte-level BPE file. Cutting keeps its control tokens, at the end."""
    fields = gguf.GGUFReader(path).fields
    get = lambda key: fields[key].contents() if key in fields else None
    tokens, kinds = get("tokenizer.ggml.tokens"), get("tokenizer.ggml.token_type")
    control = [i for i, kind in enumerate(kinds) if kind == gguf.TokenType.CONTROL]
    if vocab < len(tokens):
        normal = [i for i in range(len(tokens)) if kinds[i] == gguf.TokenType.NORMAL]
        keep = normal[: vocab - len(control)] + control
    else:
        keep = list(range(len(tokens)))
    new_id = {old: new for new, old in enumerate(keep)}
    pad = vocab - len(keep)
    words = [tokens[i] for i in keep] + [f"[PAD{i}]" for i in range(pad)]
    have = set(words)
    merges = [m for m in get("tokenizer.ggml.merges") if have.issuperset((*m.split(" "), m.replace(" ", "")))]
    writer.add_tokenizer_model(get("tokenizer.ggml.model"))
    writer.add_tokenizer_pre(get("tokenizer.ggml.pre"))
    writer.add_token_list(words)
    writer.add_token_types([kinds[i] for i in keep] + [gguf.TokenType.UNUSED] * pad)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(new_id[get("tokenizer.ggml.bos_token_id")])
    writer.add_eos_token_id(new_id[get("tokenizer.ggml.eos_token_id")])
    writer.add_add_bos_token(False)
    writer.add_chat_template(get("tokenizer.chat_template"))


def write(shape_name, type_name, out, tokenizer):
    """Writes the file; it appears under its name only when it is whole."""
    shape = SHAPES[shape_name]
    arch, layers, width, ffn, heads, kv_heads, head, vocab, base, eps, context = shape
    weights, file_type = TYPES[type_name]
    partial = f"{out}.part"
    writer = gguf.GGUFWriter(partial, arch)
    writer.add_name(f"random {shape_name} {type_name}")
    writer.add_description("random weights of real dimensions, not a trained model")
    writer.add_block_count(layers)
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_layer_norm_rms_eps(eps)
    writer.add_rope_freq_base(base)
    writer.add_vocab_size(vocab)
    writer.add_file_type(file_type)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    if arch == "llama":
        writer.add_rope_dimension_count(head)
    add_tokenizer(writer, tokenizer, vocab)

    todo = [(*t, tensor_type(*t, weights, layers)) for t in tensors(shape)]
    for name, dims, _, kind in todo:
        block, size = gguf.GGML_QUANT_SIZES[kind]
        if kind == T.F32:
            writer.add_tensor_info(name, dims, np.dtype(np.float32), dims[0] * 4)
        else:
            in_bytes = (dims[0], dims[1] // block * size)
            writer.add_tensor_info(name, in_bytes, np.dtype(np.uint8), math.prod(in_bytes), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    pools = {}
    for name, dims, role, kind in todo:
        seed = zlib.crc32(name.encode())
        if kind == T.F32:
            data = vector(np.random.default_rng(seed), dims, role, shape)
        else:
            data = matrix(pools, seed, dims, kind)
        writer.write_tensor_data(data)
    writer.close()
    os.replace(partial, out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("type", choices=TYPES)
    parser.add_argument("out")
    parser.add_argument("--tokenizer", required=True, help="a GGUF whose tokenizer is copied")
    args = parser.parse_args()
    write(args.shape, args.type, args.out, args.tokenizer)
