"""Writes the vectors of this folder: Arrow IPC streams of every type and shape that pyarrow makes.

    .tools/venv/bin/python tests/vectors/generate.py [FOLDER]

The bytes are the same each time with the pyarrow of tools/requirements.txt; tests/python checks it.
What pyarrow cannot write comes from tests/interop/made.rs.
"""

import datetime
import decimal
import pathlib
import random
import sys

import pyarrow as pa

# Rows of each batch: a length that fills no whole byte of a bitmap, none, and several bytes.
BATCHES = (13, 0, 70)


def chance(seed):
    """A source of numbers that depends on the name of what is made and on nothing else."""
    return random.Random(seed)


def typed(name, data_type, value, nulls=True):
    """Fields and batches of one type: with nulls, without nulls, and nothing but nulls."""
    fields = [
        pa.field(f"{name}_some", data_type),
        pa.field(f"{name}_all", data_type, nullable=False),
    ]
    if nulls:
        fields.append(pa.field(f"{name}_none", data_type))
    columns = []
    for batch, rows in enumerate(BATCHES):
        draw = chance(f"{name} {batch}")
        values = [value(draw) for _ in range(rows)]
        some = [None if draw.random() < 0.3 else entry for entry in values]
        columns.append([pa.array(some, data_type), pa.array(values, data_type)])
        if nulls:
            columns[-1].append(pa.array([None] * rows, data_type))
    return fields, columns


def built(name, build):
    """A field and batches of arrays that `build(rows, draw)` puts together."""
    arrays = [build(rows, chance(f"{name} {batch}")) for batch, rows in enumerate(BATCHES)]
    return [pa.field(name, arrays[0].type)], [[array] for array in arrays]


def table(*parts, metadata=None):
    """Columns side by side."""
    fields = [field for part in parts for field in part[0]]
    schema = pa.schema(fields, metadata)
    batches = []
    for index, rows in enumerate(BATCHES):
        columns = [column for part in parts for column in part[1][index]]
        assert all(len(column) == rows for column in columns)
        batches.append(pa.RecordBatch.from_arrays(columns, schema=schema))
    return schema, batches


def word(draw, most=24):
    """Text of one to four bytes a character, the empty one included."""
    return "".join(draw.choice("abcxyz é§ß€漢🦀") for _ in range(draw.randrange(most)))


def integers():
    parts = []
    for bits in (8, 16, 32, 64):
        low, high = -(1 << bits - 1), (1 << bits - 1) - 1
        signed, unsigned = getattr(pa, f"int{bits}")(), getattr(pa, f"uint{bits}")()
        parts.append(typed(f"int{bits}", signed, lambda d, a=low, b=high: d.choice([a, b, d.randint(a, b)])))
        top = (1 << bits) - 1
        parts.append(typed(f"uint{bits}", unsigned, lambda d, b=top: d.choice([0, b, d.randint(0, b)])))
    return table(*parts)


def floats():
    # What compares equal to itself: a NaN would make every comparison of tables fail.
    extremes = [0.0, -0.0, float("inf"), float("-inf"), 2.0**-14, 0.5]
    pick = lambda d: d.choice(extremes + [d.randint(-2048, 2048) / 8])
    return table(
        typed("half", pa.float16(), pick),
        typed("single", pa.float32(), pick),
        typed("double", pa.float64(), lambda d: d.choice([pick(d), d.random(), 5e-324])),
    )


def decimals():
    parts = []
    for bits, precision in ((32, 9), (64, 18), (128, 38), (256, 76)):
        make = getattr(pa, f"decimal{bits}")
        for scale in (0, 3):
            top = 10**precision - 1
            parts.append(
                typed(
                    f"decimal{bits}_{scale}",
                    make(precision, scale),
                    lambda d, t=top, s=scale: decimal.Decimal(
                        (int((v := d.choice([t, -t, d.randint(-t, t)])) < 0), tuple(map(int, str(abs(v)))), -s)
                    ),
                )
            )
    return table(*parts)


def dates_and_times():
    day = 86_400
    return table(
        typed("date32", pa.date32(), lambda d: d.randint(-100_000, 100_000)),
        typed("date64", pa.date64(), lambda d: d.randint(-100_000, 100_000) * day * 1000),
        typed("time32_s", pa.time32("s"), lambda d: d.randrange(day)),
        typed("time32_ms", pa.time32("ms"), lambda d: d.randrange(day * 1000)),
        typed("time64_us", pa.time64("us"), lambda d: d.randrange(day * 10**6)),
        typed("time64_ns", pa.time64("ns"), lambda d: d.randrange(day * 10**9)),
    )


def timestamps():
    parts = []
    for unit in ("s", "ms", "us", "ns"):
        for zone in (None, "UTC", "Europe/Paris", "+07:30"):
            name = f"{unit}_{zone}"
            parts.append(typed(name, pa.timestamp(unit, zone), lambda d: d.randint(-(10**9), 10**9)))
    return table(*parts)


def durations_and_intervals():
    parts = [
        typed(f"duration_{unit}", pa.duration(unit), lambda d: d.randint(-(2**62), 2**62))
        for unit in ("s", "ms", "us", "ns")
    ]
    interval = lambda d: pa.MonthDayNano([d.randint(-99, 99), d.randint(-999, 999), d.randint(-(2**62), 2**62)])
    parts.append(typed("month_day_nano", pa.month_day_nano_interval(), interval))
    return table(*parts)


def binaries():
    return table(
        typed("binary", pa.binary(), lambda d: d.randbytes(d.randrange(20))),
        typed("large_binary", pa.large_binary(), lambda d: d.randbytes(d.randrange(20))),
        typed("utf8", pa.utf8(), word),
        typed("large_utf8", pa.large_utf8(), word),
        typed("fixed", pa.binary(5), lambda d: d.randbytes(5)),
        typed("empty_fixed", pa.binary(0), lambda d: b""),
    )


def views():
    """Views: short ones inside, long ones in several buffers, and buffers that nothing uses."""

    def several(data_type, make):
        def build(rows, draw):
            whole = [make(draw, 40) for _ in range(rows)]
            # Each part has buffers of its own.
            cut = rows // 3
            parts = [whole[:cut], whole[cut : 2 * cut], whole[2 * cut :]]
            return pa.concat_arrays([pa.array(part, data_type) for part in parts])

        return build

    def unused(rows, draw):
        long = pa.array(["a text too long to lie in a view"] * 4, pa.string_view())
        short = pa.array([word(draw, 4)[:3] for _ in range(rows)], pa.string_view())
        return pa.concat_arrays([long, short])[4:]

    bytes_of = lambda draw, most: draw.randbytes(draw.randrange(most))
    return table(
        typed("utf8_view", pa.string_view(), lambda d: word(d, 20)),
        typed("binary_view", pa.binary_view(), lambda d: d.randbytes(d.randrange(30))),
        built("utf8_views", several(pa.string_view(), word)),
        built("binary_views", several(pa.binary_view(), bytes_of)),
        built("unused", unused),
    )


def some(draw, make):
    return None if draw.random() < 0.25 else make(draw)


def several(draw, make, most=4):
    return [some(draw, make) for _ in range(draw.randrange(most))]


def small(draw):
    return draw.randint(-999, 999)


def lists():
    item = pa.field("element", pa.int32(), metadata={"of": "an item"})
    return table(
        typed("list", pa.list_(item), lambda d: several(d, small)),
        typed("large_list", pa.large_list(pa.utf8()), lambda d: several(d, word)),
        typed("fixed_size_list", pa.list_(pa.int16(), 3), lambda d: [some(d, small) for _ in range(3)]),
        typed("fixed_size_empty", pa.list_(pa.int16(), 0), lambda d: []),
        typed("list_of_list", pa.list_(pa.list_(pa.bool_())), lambda d: several(d, lambda d: several(d, lambda d: d.random() < 0.5))),
        typed("list_of_null", pa.list_(pa.null()), lambda d: [None] * d.randrange(3)),
    )


def list_views():
    """List views in order, out of order, and sharing items."""

    def shared(make, width):
        def build(rows, draw):
            items = pa.array(several(draw, small, 30) + [1] * 10, pa.int32())
            offsets = [draw.randrange(len(items) - 5) for _ in range(rows)]
            sizes = [draw.randrange(5) for _ in range(rows)]
            mask = pa.array([draw.random() < 0.2 for _ in range(rows)], pa.bool_())
            return make.from_arrays(pa.array(offsets, width), pa.array(sizes, width), items, mask=mask)

        return build

    return table(
        typed("list_view", pa.list_view(pa.int32()), lambda d: several(d, small)),
        typed("large_list_view", pa.large_list_view(pa.utf8()), lambda d: several(d, word)),
        built("shared", shared(pa.ListViewArray, pa.int32())),
        built("large_shared", shared(pa.LargeListViewArray, pa.int64())),
        typed("nested", pa.list_view(pa.list_view(pa.int8())), lambda d: several(d, lambda d: several(d, lambda d: d.randint(-9, 9)))),
    )


def maps():
    pairs = lambda d: list({word(d, 5): some(d, small) for _ in range(d.randrange(4))}.items())
    ordered = lambda d: sorted({d.randint(0, 99): word(d, 5) for _ in range(d.randrange(4))}.items())
    odd = pa.map_(pa.field("clef", pa.utf8(), nullable=False), pa.field("valeur", pa.int32()))
    return table(
        typed("map", pa.map_(pa.utf8(), pa.int32()), pairs),
        typed("sorted", pa.map_(pa.int16(), pa.utf8(), keys_sorted=True), ordered),
        typed("named", odd, pairs),
        typed("of_lists", pa.map_(pa.int8(), pa.list_(pa.utf8())), lambda d: [(n, several(d, word)) for n in range(d.randrange(3))]),
    )


def structs():
    inner = pa.struct([pa.field("n", pa.int64()), pa.field("flag", pa.bool_(), metadata={"deep": "yes"})])
    outer = pa.struct([("text", pa.utf8()), ("inner", inner), ("nothing", pa.null())])
    one = lambda d: {"n": some(d, small), "flag": some(d, lambda d: d.random() < 0.5)}
    same = pa.struct([pa.field("same", pa.int8()), pa.field("same", pa.utf8())])
    return table(
        typed("struct", outer, lambda d: {"text": some(d, word), "inner": some(d, one), "nothing": None}),
        typed("without_fields", pa.struct([]), lambda d: {}),
        built("same_names", lambda rows, d: pa.StructArray.from_arrays(
            [pa.array([some(d, lambda d: 7) for _ in range(rows)], pa.int8()), pa.array([word(d) for _ in range(rows)], pa.utf8())],
            fields=list(same))),
        typed("list_of_struct", pa.list_(inner), lambda d: several(d, one)),
    )


def unions():
    """Both unions, with type codes that are no indices, and inside lists and structs."""
    codes = [5, 2, 101]

    def children(rows, draw):
        return [
            pa.array([some(draw, small) for _ in range(rows)], pa.int32()),
            pa.array([some(draw, word) for _ in range(rows)], pa.utf8()),
            pa.array([several(draw, small) for _ in range(rows)], pa.list_(pa.int16())),
        ]

    def sparse(rows, draw):
        types = pa.array([draw.choice(codes) for _ in range(rows)], pa.int8())
        return pa.UnionArray.from_sparse(types, children(rows, draw), ["number", "text", "list"], codes)

    def dense(rows, draw):
        chosen = [draw.choice(codes) for _ in range(rows)]
        counts, offsets = dict.fromkeys(codes, 0), []
        for code in chosen:
            offsets.append(counts[code])
            counts[code] += 1
        parts = children(rows, draw)
        # One more than is used, and in one child nothing that is not used.
        parts = [part[: counts[code] + (code == 5)] for part, code in zip(parts, codes)]
        return pa.UnionArray.from_dense(
            pa.array(chosen, pa.int8()), pa.array(offsets, pa.int32()), parts, ["number", "text", "list"], codes
        )

    def in_list(make):
        def build(rows, draw):
            items = make(3 * rows, draw)
            offsets = [0]
            for _ in range(rows):
                offsets.append(min(3 * rows, offsets[-1] + draw.randrange(4)))
            return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items)

        return build

    def in_struct(rows, draw):
        return pa.StructArray.from_arrays([sparse(rows, draw), dense(rows, draw)], ["sparse", "dense"])

    return table(
        built("sparse", sparse),
        built("dense", dense),
        built("list_of_sparse", in_list(sparse)),
        built("list_of_dense", in_list(dense)),
        built("struct", in_struct),
    )


def run_ends():
    def runs(width, values):
        def build(rows, draw):
            ends = []
            while (ends[-1] if ends else 0) < rows:
                ends.append(min(rows, (ends[-1] if ends else 0) + draw.randint(1, 9)))
            entries = [some(draw, values[1]) for _ in ends]
            return pa.RunEndEncodedArray.from_arrays(pa.array(ends, width), pa.array(entries, values[0]))

        return build

    text, number = (pa.utf8(), word), (pa.float32(), lambda d: d.randint(0, 9) / 2)
    nested = (pa.list_(pa.int8()), lambda d: several(d, lambda d: d.randint(-9, 9)))

    def in_struct(rows, draw):
        return pa.StructArray.from_arrays([runs(pa.int32(), text)(rows, draw)], ["runs"])

    return table(
        built("int16", runs(pa.int16(), text)),
        built("int32", runs(pa.int32(), number)),
        built("int64", runs(pa.int64(), nested)),
        built("struct", in_struct),
    )


def nulls():
    return table(
        built("null", lambda rows, _: pa.nulls(rows)),
        built("struct_of_null", lambda rows, _: pa.StructArray.from_arrays([pa.nulls(rows)], ["null"])),
    )


def booleans():
    return table(
        typed("boolean", pa.bool_(), lambda d: d.random() < 0.5),
        typed("true", pa.bool_(), lambda d: True),
    )


def coded(rows, draw, values, index=pa.int32(), ordered=False):
    codes = [None if draw.random() < 0.2 else draw.randrange(len(values)) for _ in range(rows)]
    return pa.DictionaryArray.from_arrays(pa.array(codes, index), values, ordered=ordered)


WORDS = pa.array(["alpha", "beta", None, "gamma", "a longer one"])


def dictionaries():
    """Indices of every width, values of several types, a null among the values, ordered ones, and
    one dictionary that two columns share."""
    parts = []
    for bits in (8, 16, 32, 64):
        for sign in ("int", "uint"):
            index = getattr(pa, f"{sign}{bits}")()
            parts.append(built(f"{sign}{bits}", lambda rows, d, index=index: coded(rows, d, WORDS, index)))
    values = {
        "ordered": pa.array([1, 5, 9], pa.int64()),
        "decimal": pa.array([decimal.Decimal("1.5"), decimal.Decimal("-2.5")], pa.decimal128(9, 1)),
        "view": pa.array(["a", "a text too long to lie in a view"], pa.string_view()),
        "struct": pa.array([{"x": 1}, {"x": None}], pa.struct([("x", pa.int8())])),
        "list": pa.array([[1, 2], [], None], pa.list_(pa.int16())),
        "bool": pa.array([False, True]),
        "fixed": pa.array([b"abc", b"xyz"], pa.binary(3)),
    }
    for name, entries in values.items():
        parts.append(built(name, lambda rows, d, v=entries, o=name == "ordered": coded(rows, d, v, ordered=o)))
    return table(*parts)


def nested_dictionaries():
    """Dictionaries in lists, structs, maps, unions and dictionaries."""

    def in_list(rows, draw):
        items = coded(2 * rows, draw, WORDS)
        return pa.ListArray.from_arrays(pa.array(range(0, 2 * rows + 1, 2), pa.int32()), items)

    def in_struct(rows, draw):
        return pa.StructArray.from_arrays([coded(rows, draw, WORDS, pa.int8()), in_list(rows, draw)], ["word", "list"])

    def in_dictionary(rows, draw):
        inner = pa.StructArray.from_arrays([coded(3, chance("inner"), WORDS)], ["word"])
        return coded(rows, draw, inner, pa.int8())

    def in_map(rows, draw):
        keys = pa.array([word(draw, 5) for _ in range(rows)], pa.utf8())
        return pa.MapArray.from_arrays(pa.array(range(rows + 1), pa.int32()), keys, coded(rows, draw, WORDS))

    def in_union(rows, draw):
        types = pa.array([draw.randrange(2) for _ in range(rows)], pa.int8())
        return pa.UnionArray.from_sparse(types, [coded(rows, draw, WORDS), pa.nulls(rows)])

    return table(
        built("list", in_list),
        built("struct", in_struct),
        built("dictionary", in_dictionary),
        built("map", in_map),
        built("union", in_union),
    )


def growing(names):
    """One column whose dictionary changes from batch to batch."""
    schema = pa.schema([pa.field("word", pa.dictionary(pa.int8(), pa.utf8())), pa.field("n", pa.int32())])
    batches = []
    for number, values in enumerate(names):
        draw = chance(f"growing {number}")
        rows = 10 + number
        column = coded(rows, draw, pa.array(values, pa.utf8()), pa.int8())
        batches.append(pa.RecordBatch.from_arrays([column, pa.array(range(rows), pa.int32())], schema=schema))
    return schema, batches


DELTAS = [["a", "b"], ["a", "b", "c"], ["a", "b", "c"], ["a", "b", "c", "d", "e" * 30]]
REPLACEMENTS = [["a", "b"], ["c", "d", "e"], ["c", "d", "e"], ["a"], ["b" * 30, "a"]]


class Point(pa.ExtensionType):
    """An extension type with metadata of its own."""

    def __init__(self):
        super().__init__(pa.list_(pa.float32(), 2), "dipc.point")

    def __arrow_ext_serialize__(self):
        return b"two \x00 floats"

    @classmethod
    def __arrow_ext_deserialize__(cls, storage, serialized):
        return cls()


def extensions():
    def point(rows, draw):
        storage = pa.array([some(draw, lambda d: [d.randint(0, 9), d.randint(0, 9)]) for _ in range(rows)], Point().storage_type)
        return pa.ExtensionArray.from_storage(Point(), storage)

    def uuid(rows, draw):
        storage = pa.array([some(draw, lambda d: d.randbytes(16)) for _ in range(rows)], pa.binary(16))
        return pa.ExtensionArray.from_storage(pa.uuid(), storage)

    def unknown(rows, draw):
        return pa.array([some(draw, small) for _ in range(rows)], pa.int32())

    named = built("unknown", unknown)
    named[0][0] = named[0][0].with_metadata(
        {"ARROW:extension:name": "nobody.knows", "ARROW:extension:metadata": "{}", "other": "kept"}
    )
    in_list = built("list", lambda rows, d: pa.ListArray.from_arrays(pa.array(range(rows + 1), pa.int32()), uuid(rows, d)))
    return table(built("point", point), built("uuid", uuid), named, in_list)


def metadata():
    """Metadata of schema and fields: empty and long values, and text of several bytes a character."""
    entries = {"": "empty key", "empty value": "", "clé": "välue 漢", "long": "x" * 5000, "pandas": "{}"}
    part = typed("n", pa.int32(), small)
    fields = [part[0][0].with_metadata(entries), part[0][1].with_metadata({}), part[0][2]]
    return table((fields, part[1]), metadata=entries)


def deep():
    """Types nested in each other, twenty deep."""
    data_type, make = pa.int8(), lambda d: d.randint(-9, 9)
    for level in range(20):
        inner = make
        match level % 3:
            case 0:
                data_type = pa.list_(data_type)
                make = lambda d, inner=inner: [some(d, inner) for _ in range(d.choice([1, 1, 1, 2]))]
            case 1:
                data_type = pa.struct([("field", data_type)])
                make = lambda d, inner=inner: {"field": inner(d)}
            case 2:
                data_type = pa.list_(data_type, 1)
                make = lambda d, inner=inner: [inner(d)]
    return table(typed("deep", data_type, make))


def wide():
    """Two thousand columns."""
    types = [pa.int32(), pa.utf8(), pa.bool_(), pa.float64()]
    draw = chance("wide")
    fields, columns = [], []
    for number in range(2000):
        data_type = types[number % len(types)]
        fields.append(pa.field(f"c{number}", data_type))
        columns.append(pa.array([some(draw, small) for _ in range(3)], pa.int32()).cast(data_type))
    schema = pa.schema(fields)
    return schema, [pa.RecordBatch.from_arrays(columns, schema=schema)]


def everything_once():
    """A column of each kind, for the shapes that have no rows."""
    makers = [nulls, booleans, floats, binaries, views, lists, list_views, maps, structs, unions, run_ends, dictionaries]
    schemas = [make() for make in makers]
    fields = [field.with_name(f"{number}_{field.name}") for number, made in enumerate(schemas) for field in made[0]]
    schema = pa.schema(fields)
    columns = [column[:0] for made in schemas for column in made[1][1].columns]
    return schema, [pa.RecordBatch.from_arrays(columns, schema=schema)] * 2


def no_columns():
    """Rows without columns: IPC carries their number."""
    schema = pa.schema([])
    rows = [pa.RecordBatch.from_struct_array(pa.array([{}] * n, pa.struct([]))) for n in (0, 5)]
    return schema, rows


def write(folder, name, made, metadata=None, **options):
    schema, batches = made
    with pa.OSFile(str(folder / f"{name}.arrows"), "wb") as sink:
        with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
            for number, batch in enumerate(batches):
                writer.write_batch(batch, custom_metadata=metadata(number) if metadata else None)


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for make in (nulls, booleans, integers, floats, decimals, dates_and_times, timestamps,
                 durations_and_intervals, binaries, views, lists, list_views, maps, structs, unions,
                 run_ends, dictionaries, nested_dictionaries, extensions, metadata, deep, wide,
                 no_columns):  # fmt: skip
        write(folder, make.__name__, make())
    write(folder, "no_rows", everything_once())
    write(folder, "no_batches", (everything_once()[0], []))
    write(folder, "dictionary_deltas", growing(DELTAS), emit_dictionary_deltas=True)
    write(folder, "dictionary_replacements", growing(REPLACEMENTS))
    write(folder, "batch_metadata", integers(), metadata=lambda n: {"batch": str(n), "": "é" * n} if n else None)
    write(folder, "lz4", binaries(), compression="lz4")
    write(folder, "zstd", nested_dictionaries(), compression="zstd")
    write(folder, "version4", structs(), metadata_version=pa.ipc.MetadataVersion.V4)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
