"""Seeds of the fuzz target `gguf`: fuzz/corpus/gguf/.

packages:
(none: the standard library is enough)

good_*: files that must be read; bad_*: files that must be refused, most of them after public reports.
"""

import struct
import sys
from pathlib import Path


def u32(n):
    return struct.pack("<I", n)


def u64(n):
    return struct.pack("<Q", n)


def text(s):
    b = s.encode()
    return u64(len(b)) + b


def header(n_tensors, n_entries, version=3):
    return b"GGUF" + u32(version) + u64(n_tensors) + u64(n_entries)


def entry(key, type_id, value):
    return text(key) + u32(type_id) + value


def tensor(name, dims, type_id, offset):
    return text(name) + u32(len(dims)) + b"".join(map(u64, dims)) + u32(type_id) + u64(offset)


def data(b, n):
    return b.ljust(-(-len(b) // 32) * 32 + n, b"\0")


def one(dims, type_id=0, offset=0, n=64):
    return data(header(1, 0) + tensor("t", dims, type_id, offset), n)


def array(element, count, body=b""):
    return header(0, 1) + entry("k", 9, u32(element) + u64(count) + body)


def alignment(n):
    return data(header(1, 1) + entry("general.alignment", 4, u32(n)) + tensor("t", [4], 0, 0), 64)


SCALARS = [b"\1", b"\1", b"\1\0", b"\1\0", u32(1), u32(1), u32(0x3F800000), b"\1", text("v"),
           u32(4) + u64(2) + u32(1) + u32(2), u64(1), u64(1), u64(0x3FF0000000000000)]

GOOD = {
    "empty": header(0, 0),
    "version_2": header(0, 0, version=2),
    "scalars": header(0, 13) + b"".join(entry(f"k{i}", i, v) for i, v in enumerate(SCALARS)),
    "strings": array(8, 3, text("") + text("é") + text("end")),
    "nested": array(9, 2, u32(9) + u64(1) + u32(7) + u64(1) + b"\1" + u32(9) + u64(0)),
    "alignment_8": alignment(8),
    "scalar_tensor": one([]),
    "two_tensors": data(header(2, 0) + tensor("a", [32, 2], 8, 0) + tensor("b", [4, 1, 1, 1], 1, 96), 128),
}

HUGE = 1 << 63
BAD = {
    "nothing": b"",
    "text": b"Dear diary,\n",
    "version_1": header(0, 0, version=1),
    "version_4": header(0, 0, version=4),
    "big_endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "n_tensors": header(HUGE, 0),
    "n_entries": header(0, HUGE),
    "key_length": header(0, 1) + u64(HUGE) + bytes(8),
    "string_length": header(0, 1) + entry("k", 8, u64(HUGE)),
    "name_length": header(1, 0) + u64(HUGE) + bytes(32),
    "array_u8": array(0, HUGE),
    "array_f64": array(12, 1 << 61),
    "array_string": array(8, 1 << 61),
    "array_string_length": array(8, 2, text("a") + u64(HUGE)),
    "array_nested_2_62": array(9, 1 << 62, u32(9) + u64(1 << 62)),
    "array_deep": array(9, 1, (u32(9) + u64(1)) * 200),
    "array_type": array(13, 0),
    "value_type": header(0, 1) + entry("k", 13, bytes(8)),
    "bool": header(0, 1) + entry("k", 7, b"\2"),
    "utf8": header(0, 1) + entry("k", 8, u64(2) + b"\xc3\x28"),
    "duplicate_key": header(0, 2) + entry("k", 7, b"\1") * 2,
    "duplicate_tensor": data(header(2, 0) + tensor("t", [4], 0, 0) + tensor("t", [4], 0, 32), 64),
    "alignment_0": alignment(0),
    "alignment_3": alignment(3),
    "alignment_2_30": alignment(1 << 30),
    "five_dimensions": one([1] * 5),
    "empty_tensor": one([4, 0]),
    "product_overflow": one([1 << 32, 1 << 32]),
    "product_wraps_to_4": one([(1 << 62) + 1]),
    "part_block": one([100], 12),
    "type_id": one([4], 33),
    "offset_wraps": one([4], 0, (1 << 64) - 32),
    "offset_unaligned": one([4], 0, 4),
    "beyond_the_end": one([1024]),
    "overlap": data(header(2, 0) + tensor("a", [16], 0, 0) + tensor("b", [4], 0, 32), 128),
    "split_part": header(0, 2) + entry("split.no", 2, b"\0\0") + entry("split.count", 2, b"\2\0"),
}


def main(out):
    out.mkdir(parents=True, exist_ok=True)
    for kind, files in [("good", GOOD), ("bad", BAD)]:
        for name, content in files.items():
            (out / f"{kind}_{name}").write_bytes(content)


if __name__ == "__main__":
    default = Path(__file__).resolve().parents[2] / "fuzz/corpus/gguf"
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else default)
