"""Random types whose arrays begin anywhere: each array, child, index and dictionary is a slice of a
longer one (rule A7), as no file can hold them."""

import os
import random

import pyarrow as pa
import pytest

import streams

LEAVES = [
    pa.null(), pa.bool_(), pa.int8(), pa.uint16(), pa.int32(), pa.uint64(), pa.float16(), pa.float64(),
    pa.decimal32(5, 1), pa.decimal256(40, 3), pa.date32(), pa.time64("ns"), pa.timestamp("us", "UTC"),
    pa.month_day_nano_interval(), pa.binary(), pa.large_binary(), pa.utf8(), pa.large_utf8(),
    pa.string_view(), pa.binary_view(), pa.binary(3), pa.binary(0),
]  # fmt: skip


def leaf_value(draw, data_type):
    if pa.types.is_boolean(data_type):
        return draw.random() < 0.5
    if pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type) or data_type == pa.binary_view():
        return draw.randbytes(draw.choice([0, 3, 12, 13, 40]))
    if pa.types.is_fixed_size_binary(data_type):
        return draw.randbytes(data_type.byte_width)
    if data_type in (pa.utf8(), pa.large_utf8(), pa.string_view()):
        return "".join(draw.choice("ab é漢") for _ in range(draw.choice([0, 2, 6, 40])))
    if data_type == pa.month_day_nano_interval():
        return pa.MonthDayNano([draw.randint(-9, 9), draw.randint(-9, 9), draw.randint(-9, 9)])
    return draw.randrange(100)


def sliced(make):
    """`make(rows, draw)`, with what is asked for in the middle."""

    def slice_of(rows, draw):
        before, after = draw.choice([0, 0, 1, 5, 8, 13]), draw.choice([0, 0, 3, 8])
        array = make(before + rows + after, draw)
        assert len(array) == before + rows + after
        return array.slice(before, rows)

    return slice_of


def leaf(draw):
    data_type = draw.choice(LEAVES)
    holes = draw.choice([0, 0.3, 1])

    def make(rows, draw):
        if data_type == pa.null():
            return pa.nulls(rows)
        values = [None if draw.random() < holes else leaf_value(draw, data_type) for _ in range(rows)]
        return pa.array(values, data_type)

    return sliced(make)


def mask(rows, draw):
    return pa.array([draw.random() < 0.3 for _ in range(rows)], pa.bool_())


def offsets(rows, draw, width):
    """Offsets, not from zero; and how many items they need."""
    bounds = [draw.choice([0, 4])]
    for _ in range(rows):
        bounds.append(bounds[-1] + draw.choice([0, 1, 2, 5]))
    return pa.array(bounds, width), bounds[-1] + draw.choice([0, 2])


def kind_of(draw, depth=[0]):
    """A random way to make arrays."""
    depth[0] += 1
    try:
        return leaf(draw) if depth[0] > 3 else draw.choice(KINDS)(draw)
    finally:
        depth[0] -= 1


def list_kind(draw):
    make, width = draw.choice([(pa.ListArray, pa.int32()), (pa.LargeListArray, pa.int64())])
    item = kind_of(draw)

    def build(rows, draw):
        bounds, items = offsets(rows, draw, width)
        return make.from_arrays(bounds, item(items, draw), mask=mask(rows, draw))

    return sliced(build)


def list_view_kind(draw):
    make, width = draw.choice([(pa.ListViewArray, pa.int32()), (pa.LargeListViewArray, pa.int64())])
    item = kind_of(draw)

    def build(rows, draw):
        items = 5 + draw.randrange(2 * rows + 1)
        starts = pa.array([draw.randrange(items - 4) for _ in range(rows)], width)
        sizes = pa.array([draw.randrange(5) for _ in range(rows)], width)
        return make.from_arrays(starts, sizes, item(items, draw), mask=mask(rows, draw))

    return sliced(build)


def fixed_list_kind(draw):
    item, size = kind_of(draw), draw.choice([1, 3])
    return sliced(lambda rows, d: pa.FixedSizeListArray.from_arrays(item(rows * size, d), size, mask=mask(rows, d)))


def struct_kind(draw):
    fields = [kind_of(draw) for _ in range(draw.choice([1, 2]))]

    def build(rows, draw):
        return pa.StructArray.from_arrays(
            [field(rows, draw) for field in fields], [f"f{n}" for n in range(len(fields))], mask=mask(rows, draw)
        )

    return sliced(build)


def map_kind(draw):
    item = kind_of(draw)

    def build(rows, draw):
        bounds, items = offsets(rows, draw, pa.int32())
        keys = sliced(lambda n, d: pa.array(range(n), pa.int32()))(items, draw)
        return pa.MapArray.from_arrays(bounds, keys, item(items, draw))

    return sliced(build)


def union_kind(draw):
    children, codes = [kind_of(draw), kind_of(draw)], [7, 3]
    dense = draw.random() < 0.5

    def build(rows, draw):
        types = [draw.choice(codes) for _ in range(rows)]
        if not dense:
            return pa.UnionArray.from_sparse(
                pa.array(types, pa.int8()), [child(rows, draw) for child in children], ["a", "b"], codes
            )
        # In order within each child, at any place, with unused items between.
        at = {code: draw.choice([0, 3]) for code in codes}
        places = []
        for code in types:
            places.append(at[code])
            at[code] += draw.choice([1, 1, 2])
        return pa.UnionArray.from_dense(
            pa.array(types, pa.int8()), pa.array(places, pa.int32()),
            [child(at[code], draw) for child, code in zip(children, codes)], ["a", "b"], codes,
        )  # fmt: skip

    return sliced(build)


def run_kind(draw):
    width = draw.choice([pa.int16(), pa.int32(), pa.int64()])
    # pyarrow imports no runs of runs.
    while pa.types.is_run_end_encoded((values := kind_of(draw))(1, random.Random(0)).type):
        pass

    def build(rows, draw):
        ends = []
        while (ends[-1] if ends else 0) < rows:
            ends.append((ends[-1] if ends else 0) + draw.randint(1, 6))
        array = pa.RunEndEncodedArray.from_arrays(pa.array(ends, width), values(len(ends), draw))
        return array.slice(0, rows)

    return sliced(build)


def dictionary_kind(draw):
    values, width = kind_of(draw), draw.choice([pa.int8(), pa.uint32(), pa.int64()])
    # The format has no dictionary of dictionaries.
    if pa.types.is_dictionary(values(1, random.Random(0)).type):
        values = leaf(draw)
    entries, change, size = values(12, draw), draw.choice(["none", "longer", "other"]), 6

    def build(rows, draw):
        # Rule A3: the next array has the same dictionary, a longer one, or another.
        nonlocal entries, size
        if change == "longer":
            size = min(12, size + draw.randrange(3))
        elif change == "other" and draw.random() < 0.5:
            entries = values(12, draw)
        codes = sliced(lambda n, d: pa.array([d.choice([None, *range(6)]) for _ in range(n)], width))(rows, draw)
        return pa.DictionaryArray.from_arrays(codes, entries[:size])

    return sliced(build)


KINDS = [leaf, list_kind, list_view_kind, fixed_list_kind, struct_kind, map_kind, union_kind, run_kind, dictionary_kind]


@pytest.fixture(scope="module", params=["auto", "packed"], ids=["kind1", "kind0"])
def local(request):
    server = streams.own_server(request.param)
    server.uri = server.listen(f"shm:@dipc-pytest-random-{os.getpid()}-{request.param}")
    yield server
    server.close()


@pytest.mark.parametrize("seed", range(150))
def test_arrives_equal(local, client, seed):
    """Rules A2, A7, A8: the same table, whichever part of whose buffers it is."""
    draw = random.Random(seed)
    makers = [kind_of(draw) for _ in range(3)]
    batches = []
    for rows in (17, 0, 3):
        columns = [make(rows, draw) for make in makers]
        batches.append(pa.RecordBatch.from_arrays(columns, ["x", "y", "z"]))
        batches[-1].validate(full=True)
    schema = batches[0].schema
    ticket = f"random {seed}"
    local.serve(ticket, lambda: streams.reader(schema, batches))
    for validation in ("structure", "full"):
        reader = streams.fetch(client, local.uri, ticket, validation)
        assert reader.schema.equals(schema, check_metadata=True)
        for number, (received, sent) in enumerate(zip(reader, batches, strict=True)):
            received.validate(full=True)
            assert received.equals(sent), f"batch {number} of {schema}"
