"""Golden data of RoPE: crates/minfer/tests/data/rope/freqs.json.

packages: transformers==5.24.0 torch==2.15.0

Frequencies and magnitudes of transformers' own init functions (f32) for linear, llama3 and yarn
scaling; for llama3 also the divisors that a converter writes as rope_freqs.weight.
"""

import json
from pathlib import Path

import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

OUT = Path(__file__).resolve().parents[2] / "crates/minfer/tests/data/rope/freqs.json"

CASES = [
    ("linear", 64, 10000.0, dict(rope_type="linear", factor=4.0)),
    ("linear", 256, 1000000.0, dict(rope_type="linear", factor=8.0)),
    ("llama3", 64, 500000.0, dict(rope_type="llama3", factor=32.0, low_freq_factor=1.0,
                                  high_freq_factor=4.0, original_max_position_embeddings=8192)),
    ("yarn", 128, 1000000.0, dict(rope_type="yarn", factor=4.0,
                                  original_max_position_embeddings=32768)),
    ("yarn", 64, 10000.0, dict(rope_type="yarn", factor=16.0, beta_fast=32.0, beta_slow=1.0,
                               original_max_position_embeddings=4096)),
    ("yarn", 80, 500000.0, dict(rope_type="yarn", factor=2.0, beta_fast=16.0, beta_slow=2.0,
                                original_max_position_embeddings=8192)),
]


def freqs(head_dim, theta, params):
    config = LlamaConfig(hidden_size=head_dim * 2, num_attention_heads=2, head_dim=head_dim,
                         max_position_embeddings=131072,
                         rope_parameters=dict(params, rope_theta=theta))
    if params["rope_type"] == "default":
        inv = 1.0 / theta ** (torch.arange(0, head_dim, 2).float() / head_dim)
        return inv, 1.0
    return ROPE_INIT_FUNCTIONS[params["rope_type"]](config, "cpu")


def main():
    cases = []
    for name, head_dim, theta, params in CASES:
        inv, magnitude = freqs(head_dim, theta, params)
        case = dict(name=name, n_dims=head_dim, freq_base=theta, params=params,
                    freqs=[float(f) for f in inv], magnitude=float(magnitude))
        if name == "llama3":
            # What a converter writes as rope_freqs.weight: plain frequency over scaled frequency.
            plain, _ = freqs(head_dim, theta, dict(rope_type="default"))
            case["factors"] = [float(p / f) for p, f in zip(plain, inv)]
        cases.append(case)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(cases, indent=0) + "\n")


if __name__ == "__main__":
    main()
