"""The vectors are what their generator writes, and leave no type out."""

import subprocess
import sys

import pyarrow as pa

import streams

# Vectors of tests/interop/made.rs, which pyarrow cannot write.
OTHERS = {"intervals.arrows", "shared_dictionary.arrows"}

TYPES = """na bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 half_float float double decimal32
decimal64 decimal128 decimal256 date32 date64 time32 time64 timestamp duration
interval_month_day_nano binary string large_binary large_string binary_view string_view
fixed_size_binary list large_list list_view large_list_view fixed_size_list map struct sparse_union
dense_union run_end_encoded dictionary""".split()


def test_generator_writes_the_vectors(tmp_path):
    script = streams.VECTORS / "generate.py"
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True)
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    committed = {path.name: path.read_bytes() for path in streams.VECTORS.glob("*.arrows")}
    assert written.keys() == committed.keys() - OTHERS
    assert [name for name, data in written.items() if committed[name] != data] == []


def kinds(data_type):
    """The numbers of a type and of all types within it; an extension type has none."""
    if isinstance(data_type, pa.BaseExtensionType):
        yield "extension"
        data_type = data_type.storage_type
    yield data_type.id
    if pa.types.is_dictionary(data_type):
        yield from kinds(data_type.value_type)
    elif pa.types.is_run_end_encoded(data_type):
        yield from kinds(data_type.value_type)
    for number in range(data_type.num_fields):
        yield from kinds(data_type.field(number).type)


def test_every_type_has_rows():
    seen = set()
    for path in streams.VECTORS.glob("*.arrows"):
        if path.name == "intervals.arrows":
            continue
        schema, batches = streams.read(path)
        if any(batch.num_rows for batch in batches):
            for field in schema:
                seen.update(kinds(field.type))
    wanted = {getattr(pa.lib, f"Type_{name.upper()}"): name for name in TYPES}
    wanted["extension"] = "extension"
    wanted["extension"] = "extension"
    assert [name for number, name in wanted.items() if number not in seen] == []
