# packages: unicodedata2==16.0.0
"""Writes crates/minfer/src/tokenizer/data/unicode16_classes.bin: the classes of characters that
pre-tokenizers ask for, as runs (u32 little-endian: first code point << 4 | class), from the
Unicode 16.0 character database in the PyPI package unicodedata2."""
import pathlib
import struct

import unicodedata2

assert unicodedata2.unidata_version == "16.0.0"
CODES = {"L": 1, "N": 2, "P": 4, "S": 5, "M": 6}
# The property White_Space (PropList.txt), which is not a general category.
SPACES = {9, 10, 11, 12, 13, 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}


def code(point):
    if point in SPACES:
        return 3
    return CODES.get(unicodedata2.category(chr(point))[0], 0)


root = pathlib.Path(__file__).resolve().parents[2]
out, last = bytearray(), 0
for point in range(0x110000):
    c = code(point)
    if c != last:
        out += struct.pack("<I", point << 4 | c)
        last = c
(root / "crates/minfer/src/tokenizer/data/unicode16_classes.bin").write_bytes(out)
print(len(out) // 4, "runs")
