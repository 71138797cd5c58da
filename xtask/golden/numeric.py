"""Golden data of the numeric room: crates/minfer/tests/data/numeric/.

packages: gguf==0.19.0 numpy==2.4.6

For each type: TYPE.blocks (random valid blocks) and TYPE.values (what gguf decodes them to, f32);
for each type that can be encoded: TYPE.encoded (gguf's bytes for encode.values).
activations.*: quantized activations by numpy, after the definition in numeric/activations.rs.
Little-endian throughout.
"""

import sys
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize, quantize

SMALL = [T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0]
K = [T.Q4_K, T.Q5_K, T.Q6_K]
FLOAT = [T.F32, T.F16, T.BF16]
# Byte offsets of the f16 fields of a block.
F16_FIELDS = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0],
              T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208]}
# Zeros, the least and the greatest subnormal, the least normal, the greatest value; both signs.
F16_EDGES = np.array([0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x8400, 0x7BFF, 0xFBFF], np.uint16)


def random_f16(rng, n):
    """n finite f16 bit patterns: all edges first, then uniform over the patterns."""
    bits = rng.integers(0, 1 << 16, n).astype(np.uint16)
    bits = np.where((bits & 0x7C00) == 0x7C00, bits & 0xBFFF, bits).astype(np.uint16)
    bits[: len(F16_EDGES)] = F16_EDGES[:n]
    return bits


def blocks(rng, ty, n):
    b = rng.integers(0, 256, (n, GGML_QUANT_SIZES[ty][1])).astype(np.uint8)
    for i, at in enumerate(F16_FIELDS[ty]):
        # Fields are shuffled against one another, so that edges meet.
        b[:, at : at + 2] = np.roll(random_f16(rng, n), 3 * i).view(np.uint8).reshape(n, 2)
    return b.reshape(-1)


def float_bytes(rng, ty, n):
    if ty == T.F16:
        return random_f16(rng, n).view(np.uint8)
    bits = rng.integers(0, 1 << 32, n).astype(np.uint32)
    bits = np.where((bits & 0x7F800000) == 0x7F800000, bits & 0xBFFFFFFF, bits).astype(np.uint32)
    bits[:8] = [0, 0x80000000, 1, 0x80000001, 0x00800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x00400000]
    return (bits.view(np.uint8) if ty == T.F32 else (bits >> 16).astype(np.uint16).view(np.uint8))


def encode_values(rng):
    """Blocks of 32 finite values with ties, zeros, constants, huge and tiny ones."""
    x = [np.zeros(32), np.ones(32), -np.ones(32), np.full(32, 0.1)]
    x += [rng.normal(0, s, 32) for s in (1e-3, 0.02, 1, 1, 1, 30, 1e4)]
    # Ties: halves of a step for each of the formats, and both extremes of one magnitude.
    x += [np.linspace(-8, 7.5, 32), np.linspace(-16, 15, 32) / 2, np.linspace(0, 15.5, 32), np.linspace(-15.5, 0, 32)]
    x += [np.linspace(0, 31, 32), (np.arange(32) % 16) * 0.5 - 8]
    x += [np.concatenate([np.arange(31) - 15.5, [127]]), np.concatenate([[-127], np.arange(31) + 0.5])]
    x += [np.where(np.arange(32) % 2, 4.0, -4.0), np.where(np.arange(32) % 2, -4.0, 4.0)]
    x += [np.abs(rng.normal(0, 1, 32)) + 5, -np.abs(rng.normal(0, 1, 32)) - 5]
    # Scales beyond f16, at its edge, subnormal in f16, and zero in f16.
    x += [rng.normal(0, s, 32) for s in (1e30, 1e38 / 8, 3e5, 1e6, 1e-5, 1e-6, 1e-7, 1e-8, 1e-20, 1e-36)]
    # Scales whose inverse overflows f32.
    x += [rng.normal(0, s, 32) for s in (1e-38, 1e-40, 1e-44)]
    one = np.zeros(32)
    one[13] = -3.0
    x.append(one)
    return np.concatenate(x).astype(np.float32)


def activation_values(rng):
    x = [np.zeros(32), np.full(32, 1.0), np.concatenate([np.arange(31) + 0.5, [127]]), np.concatenate([-np.arange(31) - 0.5, [-127]])]
    x += [rng.normal(0, s, 32) for s in (1e-30, 1e-6, 0.02, 1, 1, 1, 1, 7, 100, 1e6, 1e30, 1e37)]
    x += [rng.normal(0, 1, 32) ** 3 for _ in range(16)]
    return np.concatenate(x).astype(np.float32)


def main(out):
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(20261129)

    def write(name, array):
        array = np.ascontiguousarray(array)
        (out / name).write_bytes(array.astype(array.dtype.newbyteorder("<")).tobytes())

    for ty in SMALL + K + FLOAT:
        name = ty.name.lower()
        n = 8 if ty in K else 40
        data = float_bytes(rng, ty, 512) if ty in FLOAT else blocks(rng, ty, n)
        write(f"{name}.blocks", data)
        write(f"{name}.values", dequantize(data.copy(), ty).astype(np.float32))

    x = encode_values(rng)
    write("encode.values", x)
    for ty in SMALL + FLOAT:
        with np.errstate(over="ignore", invalid="ignore"):
            write(f"{ty.name.lower()}.encoded", quantize(x.copy(), ty).view(np.uint8))

    a = activation_values(rng).reshape(-1, 32)
    d = np.abs(a).max(axis=1) / np.float32(127)
    q = np.rint(a / np.where(d == 0, np.float32(1), d)[:, None]).astype(np.int8)
    write("activations.values", a)
    write("activations.d", d)
    write("activations.q", q)
    write("activations.sums", q.astype(np.int32).reshape(-1, 2, 16).sum(axis=2).astype(np.int32))


if __name__ == "__main__":
    default = Path(__file__).resolve().parents[2] / "crates/minfer/tests/data/numeric"
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else default)
