"""Golden data of the gguf room: crates/minfer/tests/data/gguf/.

packages: gguf==0.19.0 numpy==2.4.6

all_types.gguf: every metadata value type and several tensor types, alignment 64; all_types.json: what
it holds. split-*.gguf: a model of five tensors in three parts. big_endian.gguf: a big-endian file.
(The script is not called gguf.py: beside other scripts that name would hide the package.)
"""

import json
import struct
import sys
from pathlib import Path

import numpy as np
from gguf import GGUFEndian, GGUFWriter
from gguf import GGMLQuantizationType as T
from gguf import GGUFValueType as V
from gguf.constants import GGML_QUANT_SIZES

EXTREMES = {
    V.UINT8: (0, 255), V.INT8: (-128, 127), V.UINT16: (0, 65535), V.INT16: (-32768, 32767),
    V.UINT32: (0, 2**32 - 1), V.INT32: (-(2**31), 2**31 - 1),
    V.UINT64: (0, 2**64 - 1), V.INT64: (-(2**63), 2**63 - 1),
    V.FLOAT32: (float(np.float32(0.1)), float(np.float32(-3.4028235e38))),
    V.FLOAT64: (0.1, -1.7976931348623157e308),
    V.BOOL: (False, True),
    V.STRING: ("tab\t, é, 漢字, 👩‍🚀", "the end"),
}
NAMES = {V.FLOAT32: "f32", V.FLOAT64: "f64", V.BOOL: "bool", V.STRING: "string"}
QUANTS = [T.Q4_0, T.Q4_1, T.Q5_0, T.Q8_0, T.Q2_K, T.Q4_K, T.Q6_K, T.IQ4_XS, T.BF16, T.TQ2_0, T.MXFP4, T.NVFP4]


def name_of(v):
    return NAMES.get(v) or v.name.lower().replace("uint", "u").replace("int", "i")


def exact(value):
    """The value for JSON; a float as its bytes in f64, since readers of JSON may round."""
    if isinstance(value, list):
        return [exact(v) for v in value]
    return struct.pack("<d", value).hex() if isinstance(value, float) else value


def metadata():
    """(key, type, element type or None, value) of everything that is written, in order."""
    out = []
    for ty, (low, high) in EXTREMES.items():
        out.append((f"test.{name_of(ty)}.low", ty, None, low))
        out.append((f"test.{name_of(ty)}.high", ty, None, high))
        out.append((f"test.{name_of(ty)}.array", V.ARRAY, ty, [low, high, low]))
    out.append(("test.string.array.empty_text", V.ARRAY, V.STRING, ["", "a", ""]))
    out.append(("test.nested", V.ARRAY, V.ARRAY, [[1, 2, 3], [-4]]))
    return out


def tensors(rng):
    """(name, array, raw type or None, type, ne)."""
    out = []
    for dtype, ty in [(np.float32, T.F32), (np.float16, T.F16), (np.float64, T.F64), (np.int8, T.I8),
                      (np.int16, T.I16), (np.int32, T.I32), (np.int64, T.I64)]:
        data = (rng.standard_normal((2, 1, 3)) * 50).astype(dtype)
        out.append((f"plain.{ty.name}", data, None, ty, [3, 1, 2]))
    for ty in QUANTS:
        values, size = GGML_QUANT_SIZES[ty]
        data = rng.integers(0, 256, (3, size)).astype(np.uint8)
        out.append((f"blocks.{ty.name}", data, ty, ty, [values, 3]))
    return out


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def all_types(out, rng):
    w = GGUFWriter(out / "all_types.gguf", "llama")
    w.add_custom_alignment(64)
    kv, ts = metadata(), tensors(rng)
    for key, ty, element, value in kv:
        w.add_key_value(key, value, ty, sub_type=element)
    for name, data, raw, _, _ in ts:
        w.add_tensor(name, data, raw_dtype=raw)
    finish(w)
    held = {
        "metadata": [{"key": k, "type": "array" if e else name_of(t), "value": exact(v)} for k, t, e, v in kv],
        "tensors": [{"name": n, "type": t.name, "ne": ne, "hex": d.tobytes().hex()} for n, d, _, t, ne in ts],
    }
    (out / "all_types.json").write_text(json.dumps(held, indent=1) + "\n")


def split(out):
    w = GGUFWriter(out / "split.gguf", "llama", split_max_tensors=2)
    for i in range(5):
        w.add_tensor(f"blk.{i}.weight", np.full((2, 4), i, np.float32))
    finish(w)


def big_endian(out):
    w = GGUFWriter(out / "big_endian.gguf", "llama", endianess=GGUFEndian.BIG)
    w.add_tensor("t", np.zeros(4, np.float32))
    finish(w)


def main(out):
    out.mkdir(parents=True, exist_ok=True)
    all_types(out, np.random.default_rng(2))
    split(out)
    big_endian(out)


if __name__ == "__main__":
    default = Path(__file__).resolve().parents[2] / "crates/minfer/tests/data/gguf"
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else default)
