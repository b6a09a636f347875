"""The hash of docs/communicator-hash.md, from its words alone and PyPI's xxhash.

    python hash_oracle.py           compares the page and src/comm/partition/hash_tests.rs with it
    python hash_oracle.py --print   prints the examples
"""

import pathlib
import re
import struct
import sys

from xxhash import xxh3_64_intdigest as xxh3

WORD = (1 << 64) - 1
NULL = 0x9AE16A3B2F90404F
EMPTY = 0x2D06800538D394C2


def mix(left, right):
    rotated = (left << 29 | left >> 35) & WORD
    x = (rotated * 0x9E3779B97F4A7C15 + right) & WORD
    x = (x ^ x >> 32) * 0xD6E8FEB86659FD93 & WORD
    x = (x ^ x >> 32) * 0xD6E8FEB86659FD93 & WORD
    return x ^ x >> 32


def integer(value, width):
    return xxh3(value.to_bytes(width, "little", signed=value < 0))


def bits(code, value):
    return xxh3(struct.pack("<" + code, value))


def row(hashes):
    if not hashes:
        return EMPTY
    first, *others = hashes
    for other in others:
        first = mix(first, other)
    return first


def items(hashes):
    hash = integer(len(hashes), 8)
    for item in hashes:
        hash = mix(hash, item)
    return hash


def union(type_id, child):
    return mix(integer(type_id, 1), child)


EXAMPLES = {
    "null": NULL,
    "bool false": xxh3(b"\0"),
    "bool true": xxh3(b"\1"),
    "int8 -1": integer(-1, 1),
    "int16 -2": integer(-2, 2),
    "int32 1": integer(1, 4),
    "int64 1": integer(1, 8),
    "uint64 max": integer(WORD, 8),
    "float16 1.5": bits("e", 1.5),
    "float32 -1.5": bits("f", -1.5),
    "float64 1.5": bits("d", 1.5),
    "float16 zero": bits("H", 0),
    "float32 zero": bits("I", 0),
    "float64 zero": bits("Q", 0),
    "float16 nan": bits("H", 0x7E00),
    "float32 nan": bits("I", 0x7FC00000),
    "float64 nan": bits("Q", 0x7FF8000000000000),
    "decimal128 -12345": integer(-12345, 16),
    "decimal256 -12345": integer(-12345, 32),
    "date32 19000": integer(19000, 4),
    "interval 1 day -2 ms": xxh3(struct.pack("<ii", 1, -2)),
    "interval 1 month 2 days -3 ns": xxh3(struct.pack("<iiq", 1, 2, -3)),
    "utf8 empty": xxh3(b""),
    "utf8 naïve": xxh3("naïve".encode()),
    "utf8 of 300 x": xxh3(b"x" * 300),
    "binary 00 ff": xxh3(b"\x00\xff"),
    "row (int64 1, utf8 a)": row([integer(1, 8), xxh3(b"a")]),
    "row (null, null)": row([NULL, NULL]),
    "struct {int64 1, null}": row([integer(1, 8), NULL]),
    "list empty": items([]),
    "list [int64 1, null, 2]": items([integer(1, 8), NULL, integer(2, 8)]),
    "list [[1], [], null]": items([items([integer(1, 8)]), items([]), NULL]),
    "map {a: int32 1}": items([row([xxh3(b"a"), integer(1, 4)])]),
    "union 5: int32 7": union(5, integer(7, 4)),
}

if sys.argv[1:] == ["--print"]:
    for name, hash in EXAMPLES.items():
        print(f"| {name} | `{hash:016x}` |")
    sys.exit()

root = pathlib.Path(__file__).parents[2]
page = (root / "docs/communicator-hash.md").read_text()
tests = (root / "src/comm/partition/hash_tests.rs").read_text()
in_page = {name: int(hash, 16) for name, hash in re.findall(r"\| (.+?) \| `(\w{16})` \|", page)}
vector = r'\(\s*"([^"]+)",\s*0x([0-9a-f_]+),'
in_tests = {name: int(hash.replace("_", ""), 16) for name, hash in re.findall(vector, tests)}
for where, found in [("the page", in_page), ("the tests", in_tests)]:
    assert found == EXAMPLES, f"{where}: {found.items() ^ EXAMPLES.items()}"
# The ranks of the page's examples.
assert [hash * 4 >> 64 for hash in (integer(1, 8), NULL, xxh3(b""))] == [
    int(rank) for rank in re.findall(r"of 4 ranks: (\d), (\d), (\d)", page)[0]
]
print(f"{len(EXAMPLES)} examples agree")
