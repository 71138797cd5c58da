#!/usr/bin/env python3
"""Tiny random models of every architecture, with logits from two other engines.

For each variant: a Hugging Face model with seeded random weights is written as an F32 GGUF file,
and its logits for ten prompts (all positions) are computed by `transformers` in f32 and by
llama.cpp on that very file (f32 KV, no flash attention). Both must agree to 1e-4 of the logits'
range (gemma3: 1e-3, since llama.cpp looks GELU up in a table of f16 values).

Writes, per variant, NAME.gguf, NAME.logits (f32, [sum of prompt lengths][n_vocab], transformers')
and, once, prompts.json.
"""
# packages: numpy==2.4.6 gguf==0.19.0 torch==2.15.0 transformers==5.24.0 llama-cpp-python==0.3.36
# output: crates/minfer/tests/data/tiny_models
import ctypes, json, os, sys
import numpy as np, torch, gguf, transformers as tf

OUT = sys.argv[1] if len(sys.argv) > 1 else "crates/minfer/tests/data/tiny_models"
VOCAB, E, F, LAYERS = 272, 64, 96, 2
LENGTHS = [1, 2, 3, 5, 8, 9, 12, 17, 20, 40]
rng = np.random.default_rng(20261129)
PROMPTS = [rng.integers(0, VOCAB - 2, n).tolist() for n in LENGTHS]

BASE = dict(vocab_size=VOCAB, hidden_size=E, intermediate_size=F, num_hidden_layers=LAYERS,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
            bos_token_id=None, eos_token_id=VOCAB - 1, pad_token_id=None, attn_implementation="eager")
LLAMA3 = dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
YARN = dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=128)
THETA = lambda t: dict(rope_type="default", rope_theta=t)
GEMMA = dict(full_attention=dict(rope_type="linear", rope_theta=1e6, factor=8.0), sliding_attention=THETA(1e4))
VARIANTS = {
    "llama": ("llama", tf.LlamaConfig(**BASE, rms_norm_eps=1e-5, tie_word_embeddings=True, rope_parameters=THETA(1e4))),
    "llama3": ("llama", tf.LlamaConfig(**BASE, rms_norm_eps=1e-5, tie_word_embeddings=False, rope_parameters=LLAMA3)),
    "qwen2": ("qwen2", tf.Qwen2Config(**BASE, rms_norm_eps=1e-6, tie_word_embeddings=True, rope_parameters=THETA(1e6))),
    "qwen2-yarn": ("qwen2", tf.Qwen2Config(**BASE, rms_norm_eps=1e-6, tie_word_embeddings=False, rope_parameters=YARN)),
    "qwen3": ("qwen3", tf.Qwen3Config(**BASE, head_dim=32, rms_norm_eps=1e-6, tie_word_embeddings=True, rope_parameters=THETA(1e6))),
    "gemma3": ("gemma3", tf.Gemma3TextConfig(**{**BASE, "num_hidden_layers": 7, "num_key_value_heads": 1}, head_dim=32,
               query_pre_attn_scalar=32, sliding_window=8, rms_norm_eps=1e-6, tie_word_embeddings=True, rope_parameters=GEMMA)),
}
CLASSES = {"llama": tf.LlamaForCausalLM, "qwen2": tf.Qwen2ForCausalLM, "qwen3": tf.Qwen3ForCausalLM, "gemma3": tf.Gemma3ForCausalLM}
NAMES = {
    "model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}
GEMMA_NAMES = {**NAMES, "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
               "post_feedforward_layernorm": "post_ffw_norm"}


def random_model(arch, config):
    torch.manual_seed(7)
    model = CLASSES[arch](config).float().eval()
    gen = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=gen)
            if "norm" in name:
                p.copy_((0.0 if arch == "gemma3" else 1.0) + 0.1 * noise)
            else:
                p.copy_(noise * (0.1 if p.dim() == 1 else 1.0 / p.shape[-1] ** 0.5))
    return model


def gguf_name(arch, name):
    names = GEMMA_NAMES if arch == "gemma3" else NAMES
    if name in names:
        return names[name]
    _, _, layer, rest = name.split(".", 3)
    stem, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{names[stem]}.{kind}"


def permute(w, n_head):
    """llama's converter turns halves into neighbours within each head."""
    return w.reshape(n_head, 2, w.shape[0] // n_head // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def byte_tokens():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    out, extra = [], 0
    for b in range(256):
        out.append(chr(b) if b in printable else chr(256 + extra))
        extra += b not in printable
    return out


def write(name, arch, config, model):
    path = os.path.join(OUT, name + ".gguf")
    w = gguf.GGUFWriter(path, arch)
    w.add_name("tiny " + name)
    w.add_context_length(512); w.add_block_count(config.num_hidden_layers); w.add_embedding_length(E)
    w.add_feed_forward_length(F); w.add_head_count(4); w.add_head_count_kv(config.num_key_value_heads)
    head_dim = getattr(config, "head_dim", None) or E // 4
    w.add_key_length(head_dim); w.add_value_length(head_dim); w.add_rope_dimension_count(head_dim)
    w.add_layer_norm_rms_eps(config.rms_norm_eps)
    rope = config.rope_parameters
    if arch == "gemma3":
        w.add_sliding_window(8)
        rope = rope["full_attention"]
    w.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] in ("linear", "yarn"):
        w.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"])); w.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    toks = byte_tokens() + ["Ġt", "he", "Ġthe", "in", "er", "Ġa"]
    merges = ["Ġ t", "h e", "Ġt he", "i n", "e r", "Ġ a"]
    while len(toks) < VOCAB - 2:
        toks.append(f"<unused{len(toks)}>")
    toks += ["<|im_start|>", "<|im_end|>"]
    types = [1] * 262 + [5] * (VOCAB - 264) + [3, 3]
    w.add_tokenizer_model("gpt2"); w.add_tokenizer_pre("gpt-2"); w.add_token_list(toks); w.add_token_types(types)
    w.add_token_merges(merges); w.add_eos_token_id(VOCAB - 1); w.add_add_bos_token(False)
    if rope["rope_type"] == "llama3":
        w.add_tensor("rope_freqs.weight", llama3_factors(head_dim, rope))
    for n, p in model.state_dict().items():
        if n == "lm_head.weight" and config.tie_word_embeddings:
            continue
        a = p.numpy().astype(np.float32)
        if arch == "llama" and ".q_proj." in n: a = permute(a, 4)
        if arch == "llama" and ".k_proj." in n: a = permute(a, config.num_key_value_heads)
        if arch == "gemma3" and "norm" in n: a = a + 1
        w.add_tensor(gguf_name(arch, n), np.ascontiguousarray(a))
    w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
    return path


def llama3_factors(head_dim, rope):
    freqs = 1.0 / rope["rope_theta"] ** (np.arange(0, head_dim, 2) / head_dim)
    wave, old = 2 * np.pi / freqs, rope["original_max_position_embeddings"]
    lo, hi = rope["low_freq_factor"], rope["high_freq_factor"]
    smooth = (old / wave - lo) / (hi - lo)
    mixed = 1 / ((1 - smooth) / rope["factor"] + smooth)
    return np.where(wave < old / hi, 1.0, np.where(wave > old / lo, rope["factor"], mixed)).astype(np.float32)


def llama_cpp_logits(path):
    import llama_cpp as L
    quiet = L.llama_log_callback(lambda level, text, user: None)
    L.llama_log_set(quiet, ctypes.c_void_p(0)); L.llama_backend_init()
    mp = L.llama_model_default_params(); mp.n_gpu_layers = 0; mp.use_extra_bufts = False
    model = L.llama_model_load_from_file(path.encode(), mp)
    assert model, path
    out = []
    for ids in PROMPTS:
        cp = L.llama_context_default_params(); cp.n_ctx = 64; cp.n_batch = cp.n_ubatch = 64
        cp.flash_attn_type = 0; cp.type_k = cp.type_v = 0; cp.n_threads = cp.n_threads_batch = 1; cp.swa_full = True
        ctx = L.llama_init_from_model(model, cp); batch = L.llama_batch_init(64, 0, 1); batch.n_tokens = len(ids)
        for i, t in enumerate(ids):
            batch.token[i] = t; batch.pos[i] = i; batch.n_seq_id[i] = 1; batch.seq_id[i][0] = 0; batch.logits[i] = 1
        assert L.llama_decode(ctx, batch) == 0
        out += [np.ctypeslib.as_array(L.llama_get_logits_ith(ctx, i), shape=(VOCAB,)).copy() for i in range(len(ids))]
        L.llama_free(ctx)
    L.llama_model_free(model)
    return np.stack(out)


os.makedirs(OUT, exist_ok=True)
for name, (arch, config) in VARIANTS.items():
    model = random_model(arch, config)
    path = write(name, arch, config, model)
    with torch.no_grad():
        want = np.concatenate([model(torch.tensor([ids])).logits[0].numpy() for ids in PROMPTS]).astype("<f4")
    other = llama_cpp_logits(path)
    span = want.max() - want.min()
    worst = np.abs(want - other).max() / span
    print(f"{name}: transformers against llama.cpp: {worst:.2e} of the range {span:.2f}; {os.path.getsize(path)} bytes")
    want.tofile(os.path.join(OUT, name + ".logits"))
    # llama.cpp's CPU backend looks GELU up in a table of f16 values: 3e-4 on gemma3.
    assert worst < (1e-3 if arch == "gemma3" else 1e-4), f"{name}: the two references disagree"
json.dump({"n_vocab": VOCAB, "prompts": PROMPTS}, open(os.path.join(OUT, "prompts.json"), "w"))
