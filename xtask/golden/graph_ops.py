"""Golden data of the graph's reference operators: crates/minfer/tests/data/graph/ops.json.

packages: torch==2.15.0 transformers==5.24.0

Every operator of graph/reference as torch (f64) or transformers computes it, on small inputs that are
multiples of 1/64, so that they are exact in f32 and f16. Attention: two sequences in one batch, with
and without a window.
"""

import json
from pathlib import Path

import torch
import torch.nn.functional as F
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

OUT = Path(__file__).resolve().parents[2] / "crates/minfer/tests/data/graph/ops.json"
HEADS, HEADS_KV, HEAD, WINDOW = 4, 2, 6, 3
LENGTHS = [40, 5]  # positions of each sequence, the last rows' own included
ROWS = [(0, 38), (1, 4), (0, 39), (1, 0)]  # (sequence, slot) of each query row

torch.manual_seed(20)


def some(*shape):
    return torch.randint(-96, 97, shape).double() / 64


def matrix(t):
    t = t.reshape(-1, t.shape[-1])
    return dict(rows=t.shape[0], cols=t.shape[1], data=t.flatten().tolist())


def attention(q, k, v, window):
    rows = []
    for (seq, slot), row in zip(ROWS, q):
        first = 0 if window is None else max(0, slot + 1 - window)
        heads = row.view(HEADS, 1, HEAD)
        keys = k[seq][first : slot + 1].view(-1, HEADS_KV, HEAD).transpose(0, 1)
        values = v[seq][first : slot + 1].view(-1, HEADS_KV, HEAD).transpose(0, 1)
        mixed = F.scaled_dot_product_attention(heads[None], keys[None], values[None], scale=0.375,
                                               enable_gqa=True)
        rows.append(mixed.reshape(-1))
    return torch.stack(rows)


def rotated(x, cos, sin, halves):
    """x [rows][heads][dims]; cos, sin [rows][dims / 2]."""
    if halves:
        both = lambda t: torch.cat([t, t], -1)[None]
        x = x.transpose(0, 1)[None]  # [1][heads][rows][dims]
        out, _ = apply_rotary_pos_emb(x, x, both(cos), both(sin))
        return out[0].transpose(0, 1)
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous())
    return torch.view_as_real(pairs * torch.complex(cos, sin)[:, None]).flatten(-2)


def rope():
    x = some(3, 2, HEAD)
    angles = torch.outer(torch.tensor([0.0, 7.0, 300.0]).double(),
                         10000.0 ** (-torch.arange(0, 4, 2).double() / 4))
    cos, sin = angles.cos(), angles.sin()
    case = dict(x=matrix(x.flatten(1)), head_dim=HEAD, n_dims=4, positions=[0, 7, 300],
                freq_base=10000.0, table=matrix(torch.cat([cos, sin], -1)))
    for name, halves in [("halves", True), ("interleaved", False)]:
        turned = torch.cat([rotated(x[..., :4], cos, sin, halves), x[..., 4:]], -1)
        case[name] = matrix(turned.flatten(1))
    return case


def main():
    x, y, w, bias, norm = some(3, 8), some(3, 8), some(5, 8), some(5), some(4)
    eps = 2.0**-10
    grouped = F.rms_norm(x.view(3, 2, 4), (4,), norm, eps).flatten(1)
    k, v = ([some(n, HEADS_KV * HEAD) for n in LENGTHS] for _ in range(2))
    q = some(len(ROWS), HEADS * HEAD)
    data = dict(
        x=matrix(x), y=matrix(y), w=matrix(w), bias=bias.tolist(), norm=norm.tolist(), eps=eps,
        rms_norm=matrix(grouped),
        matmul=matrix(F.linear(x, w, bias)),
        add=matrix(x + y), mul=matrix(x * y), scale=matrix(x * 0.75),
        silu=matrix(F.silu(x)), gelu=matrix(F.gelu(x, approximate="tanh")),
        swiglu=matrix(F.silu(x) * y),
        get_rows=matrix(F.embedding(torch.tensor([4, 0, 4]), w)),
        rope=rope(),
        attention=dict(
            n_head=HEADS, n_head_kv=HEADS_KV, head_dim=HEAD, scale=0.375, window=WINDOW,
            rows=[list(r) for r in ROWS], q=matrix(q), k=[matrix(t) for t in k],
            v=[matrix(t) for t in v],
            full=matrix(attention(q, k, v, None)), windowed=matrix(attention(q, k, v, WINDOW)),
        ),
    )
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(data) + "\n")


if __name__ == "__main__":
    main()
