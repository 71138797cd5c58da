#!/usr/bin/env python3
"""llama.cpp's embeddings of the tiny models (tiny_models.py): the hidden state of every position behind the last norm.

Without pooling and without normalisation; f32 KV, no flash attention. Writes, per variant, NAME.embeddings
(f32, [sum of prompt lengths][64]), of the prompts in prompts.json.
"""
# packages: numpy==2.4.6 llama-cpp-python==0.3.36
# output: crates/minfer/tests/data/tiny_models
import ctypes, glob, json, os, sys
import numpy as np, llama_cpp as L

OUT = sys.argv[1] if len(sys.argv) > 1 else "crates/minfer/tests/data/tiny_models"
PROMPTS = json.load(open(os.path.join(OUT, "prompts.json")))["prompts"]
WIDTH = 64

quiet = L.llama_log_callback(lambda level, text, user: None)
L.llama_log_set(quiet, ctypes.c_void_p(0))
L.llama_backend_init()


def embeddings(path):
    mp = L.llama_model_default_params()
    mp.n_gpu_layers, mp.use_extra_bufts = 0, False
    model = L.llama_model_load_from_file(path.encode(), mp)
    assert model and L.llama_model_n_embd(model) == WIDTH, path
    rows = []
    for ids in PROMPTS:
        cp = L.llama_context_default_params()
        cp.n_ctx = cp.n_batch = cp.n_ubatch = 64
        cp.n_threads = cp.n_threads_batch = 1
        cp.flash_attn_type = cp.type_k = cp.type_v = 0
        cp.embeddings, cp.pooling_type, cp.swa_full = True, L.LLAMA_POOLING_TYPE_NONE, True
        ctx = L.llama_init_from_model(model, cp)
        batch = L.llama_batch_init(64, 0, 1)
        batch.n_tokens = len(ids)
        for i, t in enumerate(ids):
            batch.token[i], batch.pos[i], batch.logits[i] = t, i, 1
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
        assert L.llama_decode(ctx, batch) == 0
        for i in range(len(ids)):
            rows.append(np.ctypeslib.as_array(L.llama_get_embeddings_ith(ctx, i), shape=(WIDTH,)).copy())
        L.llama_batch_free(batch)
        L.llama_free(ctx)
    L.llama_model_free(model)
    return np.stack(rows).astype("<f4")


for path in sorted(glob.glob(os.path.join(OUT, "*.gguf"))):
    name = os.path.basename(path)[: -len(".gguf")]
    values = embeddings(path)
    print(f"{name}: {values.shape[0]} positions, {values.min():.3f} to {values.max():.3f}")
    values.tofile(os.path.join(OUT, name + ".embeddings"))
