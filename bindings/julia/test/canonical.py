"""Says what pyarrow reads in Arrow stream files, in a form that the tests of the package write too.

    canonical.py OUT FILE...      writes OUT/NAME.txt for each FILE; "unreadable" and why, where
                                  pyarrow cannot read it
    canonical.py --same A B       whether two files have equal schemas, metadata included

The form: for each batch a line "batch ROWS", then for each column "column NAME" and a line for each
value: null; true, false; integers; floats as their bits in hex; "text" with the characters below
U+0020, the quote and the backslash as \\uXXXX; x'bytes in hex'; decimals as DIGITSe-SCALE; dates, times,
timestamps and durations as the numbers they are stored as; months-days-nanoseconds as 1M2d3n;
[list]; {struct}; <key=>value of a map>.
"""

import decimal
import pathlib
import struct
import sys

import pyarrow as pa
import pyarrow.types as is_


def text(value):
    escaped = "".join(f"\\u{ord(c):04x}" if c < " " or c in '"\\' else c for c in value)
    return f'"{escaped}"'


def digits(value, scale):
    with decimal.localcontext() as context:
        context.prec = 100
        return f"{int(value.scaleb(scale))}e-{scale}"


def listed(array):
    return "[" + ",".join(form(entry) for entry in array) + "]"


def form(scalar):
    kind = scalar.type
    if isinstance(scalar, pa.UnionScalar):
        return form(scalar.value) if scalar.value is not None else "null"
    if isinstance(scalar, pa.ExtensionScalar):
        return form(scalar.value) if scalar.value is not None else "null"
    if is_.is_dictionary(kind) or is_.is_run_end_encoded(kind):
        return "null" if scalar.value is None else form(scalar.value)
    if not scalar.is_valid:
        return "null"
    if is_.is_boolean(kind):
        return "true" if scalar.as_py() else "false"
    if is_.is_integer(kind):
        return str(scalar.as_py())
    if is_.is_floating(kind):
        letter, bits = {16: "eH", 32: "fI", 64: "dQ"}[kind.bit_width]
        (number,) = struct.unpack(f"<{bits}", struct.pack(f"<{letter}", scalar.as_py()))
        return f"{number:0{kind.bit_width // 4}x}"
    if is_.is_string(kind) or is_.is_large_string(kind) or is_.is_string_view(kind):
        return text(scalar.as_py())
    if isinstance(scalar.as_buffer() if hasattr(scalar, "as_buffer") else None, pa.Buffer):
        return f"x'{scalar.as_buffer().to_pybytes().hex()}'"
    if is_.is_decimal(kind):
        return digits(scalar.as_py(), kind.scale)
    if is_.is_interval(kind):
        months, days, nanoseconds = scalar.as_py()
        return f"{months}M{days}d{nanoseconds}n"
    if is_.is_temporal(kind):
        return str(scalar.value)
    if is_.is_map(kind):
        entries = scalar.values
        return "<" + ",".join(f"{form(k)}=>{form(v)}" for k, v in zip(entries.field(0), entries.field(1))) + ">"
    if is_.is_struct(kind):
        return "{" + ",".join(form(scalar[i]) for i in range(kind.num_fields)) + "}"
    return listed(scalar.values)


def column_forms(column):
    """One line a value. Run ends are undone here: pyarrow's scalars of them hide the value's type."""
    if is_.is_run_end_encoded(column.type):
        ends, values = column.run_ends.to_pylist(), column.values
        run = 0
        for row in range(column.offset, column.offset + len(column)):
            while ends[run] <= row:
                run += 1
            yield form(values[run])
    else:
        for scalar in column:
            yield form(scalar)


def canonical(path):
    lines = []
    with pa.ipc.open_stream(path.read_bytes()) as reader:
        for batch in reader:
            lines.append(f"batch {batch.num_rows}")
            for name, column in zip(batch.schema.names, batch.columns):
                lines.append(f"column {name}")
                lines.extend(column_forms(column))
    return "".join(f"{line}\n" for line in lines)


def schema(path):
    with pa.ipc.open_stream(pathlib.Path(path).read_bytes()) as reader:
        return reader.schema


def main(arguments):
    if arguments[0] == "--same":
        first, second = map(schema, arguments[1:])
        if not first.equals(second, check_metadata=True):
            sys.exit(f"{first}\n-- is not --\n{second}")
        return
    out = pathlib.Path(arguments[0])
    for path in map(pathlib.Path, arguments[1:]):
        try:
            said = canonical(path)
        except (pa.ArrowException, KeyError) as error:
            said = f"unreadable {error!r}\n"
        (out / f"{path.name}.txt").write_text(said, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
