"""What the checks share: the models, the command under test, llama.cpp through its low-level API."""
import ctypes, json, os, subprocess, tempfile, zlib
import numpy as np

MINFER = os.environ.get("MINFER", "target/release/minfer")
CACHE = os.environ["MINFER_CACHE"]
MODELS = {
    "SmolLM2-135M-Instruct Q4_1": "SmolLM2-135M-Instruct.Q4_1.gguf",
    "Gemma-3-270M Q4_K_M": "gemma-3-270m-Q4_K_M.gguf",
    "Qwen2.5-Coder-0.5B-Instruct Q4_K_M": "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf",
}
TEXTS = ["prose", "code", "dialogue", "languages"]


def model_path(name):
    return os.path.join(CACHE, MODELS[name])


def text(name):
    return open(os.path.join(os.path.dirname(__file__), "..", "texts", name + ".txt"), encoding="utf-8").read()


def minfer(*args, env=None):
    """Runs the command; returns its standard output."""
    done = subprocess.run([MINFER, *map(str, args)], env={**os.environ, **(env or {})}, capture_output=True)
    if done.returncode:
        raise SystemExit(f"minfer {' '.join(map(str, args))}: exit {done.returncode}: {done.stderr.decode()}")
    return done.stdout


def minfer_logits(path, ids, *args, all_rows=True, env=None):
    """Our logits: [n, n_vocab], or the last row only."""
    with tempfile.TemporaryDirectory() as d:
        out, src = os.path.join(d, "x.npy"), os.path.join(d, "ids.txt")
        open(src, "w").write(",".join(map(str, ids)))
        minfer("logits", path, "--ids-file", src, "--npy", out, *(["--all"] if all_rows else []), *args, env=env)
        return np.load(out)


def greedy(path, ids_text, n, *args, env=None):
    """Our greedy continuation of a raw text, as the JSON object of `run`."""
    flags = ["--no-template", "--temp", 0, "--repeat-penalty", 1, "--ignore-eos", "--json", "-n", n]
    return json.loads(minfer("run", path, ids_text, *flags, *args, env=env))


class LlamaCpp:
    """A model in llama.cpp. `exact`: f32 KV, no flash attention, no repacked weights."""

    def __init__(self, path, n_ctx, exact=False, threads=2, flash=None):
        import llama_cpp as L
        self.L = L
        self.quiet = L.llama_log_callback(lambda level, text, user: None)
        L.llama_log_set(self.quiet, ctypes.c_void_p(0)); L.llama_backend_init()
        mp = L.llama_model_default_params(); mp.n_gpu_layers = 0
        if exact: mp.use_extra_bufts = False
        self.model = L.llama_model_load_from_file(path.encode(), mp)
        assert self.model, path
        self.vocab = L.llama_model_get_vocab(self.model); self.n_vocab = L.llama_vocab_n_tokens(self.vocab)
        cp = L.llama_context_default_params(); cp.n_ctx = n_ctx; cp.n_batch = cp.n_ubatch = 512
        cp.n_threads = cp.n_threads_batch = threads; cp.swa_full = True
        if exact: cp.flash_attn_type = 0; cp.type_k = cp.type_v = 0
        elif flash is not None: cp.flash_attn_type = int(flash)
        self.ctx = L.llama_init_from_model(self.model, cp)
        assert self.ctx, path
        self.batch = L.llama_batch_init(512, 0, 1)

    def tokenize(self, s):
        b = s.encode(); buf = (self.L.llama_token * (len(b) + 8))()
        return list(buf[: self.L.llama_tokenize(self.vocab, b, len(b), buf, len(buf), True, False)])

    def decode(self, ids, start, rows="last"):
        L, b = self.L, self.batch
        b.n_tokens = len(ids)
        for i, t in enumerate(ids):
            b.token[i] = t; b.pos[i] = start + i; b.n_seq_id[i] = 1; b.seq_id[i][0] = 0
            b.logits[i] = rows == "all" or (rows == "last" and i == len(ids) - 1)
        assert L.llama_decode(self.ctx, b) == 0

    def logits(self, ids):
        """After every token, [n, n_vocab]."""
        out = np.empty((len(ids), self.n_vocab), np.float32)
        for at in range(0, len(ids), 512):
            part = ids[at:at + 512]
            self.decode(part, at, "all")
            for i in range(len(part)):
                out[at + i] = np.ctypeslib.as_array(self.L.llama_get_logits_ith(self.ctx, i), shape=(self.n_vocab,))
        self.clear()
        return out

    def clear(self):
        self.L.llama_memory_clear(self.L.llama_get_memory(self.ctx), True)

    def close(self):
        self.L.llama_batch_free(self.batch); self.L.llama_free(self.ctx); self.L.llama_model_free(self.model)


def kl(p, q):
    """Mean Kullback-Leibler divergence of q from p over rows of logits, and share of equal top tokens."""
    total, same = 0.0, 0
    for a, b in zip(p, q):
        a, b = a.astype(np.float64), b.astype(np.float64)
        a -= a.max(); b -= b.max()
        la, lb = a - np.log(np.exp(a).sum()), b - np.log(np.exp(b).sum())
        total += (np.exp(la) * (la - lb)).sum(); same += int(a.argmax() == b.argmax())
    return total / len(p), same / len(p)


def digest(a):
    """A short name for the bits of an array."""
    return f"{zlib.crc32(np.ascontiguousarray(a).tobytes()):08x}"
