"""Writes the tables, messages and expected rows that the tests of src/filter read:

    .tools/venv/bin/python tests/filters/generate.py

Each expected row is pyarrow's own result of the expression. Where pyarrow has no kernel for the
types, it is that of Python's operators. Files change with pyarrow alone.
"""

import datetime
import decimal
import math
import operator
import pathlib
import struct

import message as m
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

HERE = pathlib.Path(__file__).parent
D = decimal.Decimal
UTC = datetime.timezone.utc


def day(number):
    return datetime.date(2024, 1, number)


def moment(number, zone=None):
    return datetime.datetime(2024, 1, number, 12, 30, 15, tzinfo=zone)


def clock(number):
    return datetime.time(number, 30, 15)


def span(number):
    return datetime.timedelta(days=number, seconds=7)


NAN = math.nan
# Of each type, four values in ascending order.
COLUMNS = {
    "bool": (pa.bool_(), [False, False, True, True]),
    "i8": (pa.int8(), [-128, -1, 5, 127]),
    "u8": (pa.uint8(), [0, 5, 200, 255]),
    "i16": (pa.int16(), [-32768, -1, 5, 32767]),
    "u16": (pa.uint16(), [0, 5, 40000, 65535]),
    "i32": (pa.int32(), [-(2**31), -1, 5, 2**31 - 1]),
    "u32": (pa.uint32(), [0, 5, 3 * 10**9, 2**32 - 1]),
    "i64": (pa.int64(), [-(2**63), -1, 5, 2**63 - 1]),
    "u64": (pa.uint64(), [0, 5, 10**19, 2**64 - 1]),
    "f16": (pa.float16(), [-1.5, -0.0, 0.5, NAN]),
    "f32": (pa.float32(), [-1.5, -0.0, 0.5, NAN]),
    "f64": (pa.float64(), [-math.inf, -0.0, 0.1, NAN]),
    "utf8": (pa.string(), ["", "ab%c", "Straße, a long text", "z"]),
    "large_utf8": (pa.large_string(), ["", "ab%c", "Straße, a long text", "z"]),
    "utf8_view": (pa.string_view(), ["", "ab%c", "Straße, a long text", "z"]),
    "binary": (pa.binary(), [b"", b"ab", b"\xff of many bytes", b"\xff\xff"]),
    "large_binary": (pa.large_binary(), [b"", b"ab", b"\xff of many bytes", b"\xff\xff"]),
    "binary_view": (pa.binary_view(), [b"", b"ab", b"\xff of many bytes", b"\xff\xff"]),
    "fixed": (pa.binary(3), [b"\0\0\0", b"abc", b"abd", b"\xff\xff\xff"]),
    "date32": (pa.date32(), [day(1), day(2), day(3), day(4)]),
    "date64": (pa.date64(), [day(1), day(2), day(3), day(4)]),
    "time32_s": (pa.time32("s"), [clock(1), clock(2), clock(3), clock(4)]),
    "time32_ms": (pa.time32("ms"), [clock(1), clock(2), clock(3), clock(4)]),
    "time64_us": (pa.time64("us"), [clock(1), clock(2), clock(3), clock(4)]),
    "time64_ns": (pa.time64("ns"), [clock(1), clock(2), clock(3), clock(4)]),
    "ts_s": (pa.timestamp("s"), [moment(1), moment(2), moment(3), moment(4)]),
    "ts_ms": (pa.timestamp("ms"), [moment(1), moment(2), moment(3), moment(4)]),
    "ts_us": (pa.timestamp("us"), [moment(1), moment(2), moment(3), moment(4)]),
    "ts_ns": (pa.timestamp("ns"), [moment(1), moment(2), moment(3), moment(4)]),
    "tz_s": (pa.timestamp("s", "UTC"), [moment(n, UTC) for n in (1, 2, 3, 4)]),
    "tz_ms": (pa.timestamp("ms", "+02:00"), [moment(n, UTC) for n in (1, 2, 3, 4)]),
    "tz_us": (pa.timestamp("us", "UTC"), [moment(n, UTC) for n in (1, 2, 3, 4)]),
    "tz_ns": (pa.timestamp("ns", "Europe/Berlin"), [moment(n, UTC) for n in (1, 2, 3, 4)]),
    "duration_s": (pa.duration("s"), [span(-1), span(0), span(1), span(2)]),
    "duration_ms": (pa.duration("ms"), [span(-1), span(0), span(1), span(2)]),
    "duration_us": (pa.duration("us"), [span(-1), span(0), span(1), span(2)]),
    "duration_ns": (pa.duration("ns"), [span(-1), span(0), span(1), span(2)]),
    "decimal32": (pa.decimal32(7, 2), [D("-1.25"), D("0.00"), D("1.25"), D("99999.99")]),
    "decimal64": (pa.decimal64(15, 2), [D("-1.25"), D("0.00"), D("1.25"), D("99999.99")]),
    "decimal128": (pa.decimal128(10, 2), [D("-1.25"), D("0.00"), D("1.25"), D("99999.99")]),
    "decimal256": (pa.decimal256(50, 3), [D("-1.250"), D("0.000"), D("1.250"), D(10**40)]),
    "dictionary": (
        pa.dictionary(pa.int8(), pa.string()),
        ["", "ab%c", "Straße, a long text", "z"],
    ),
    "dictionary_i64": (pa.dictionary(pa.int32(), pa.int64()), [-7, 0, 5, 6]),
    "dictionary_fixed": (pa.dictionary(pa.uint16(), pa.binary(2)), [b"aa", b"ab", b"bb", b"cc"]),
    "runs": (pa.run_end_encoded(pa.int32(), pa.string()), ["", "ab%c", "a long text here", "z"]),
    "runs_i64": (pa.run_end_encoded(pa.int16(), pa.int64()), [-7, 0, 5, 6]),
}
# Which of the four values a row has; None is a null.
ROWS = [0, 2, None, 1, 1, 2, 3, None, 0, 3]
LITERALS = {
    "bool": lambda out, v: m.literal(1, v),
    "i8": lambda out, v: m.literal(2, v),
    "u8": lambda out, v: out.arrow_literal("u8", "UInt64Value", v),
    "i16": lambda out, v: m.literal(3, v),
    "u16": lambda out, v: m.literal(3, v, 1),
    "i32": lambda out, v: m.literal(5, v),
    "u32": lambda out, v: m.literal(5, v - 2**32 if v >= 2**31 else v, 1),
    "i64": lambda out, v: m.literal(7, v),
    "u64": lambda out, v: m.literal(7, v, 1),
    "f16": lambda out, v: out.arrow_literal("fp16", "UInt32Value", half_bits(v)),
    "f32": lambda out, v: m.field(1, m.varint(10 << 3 | 5) + float_bytes(v)),
    "f64": lambda out, v: m.literal(11, float(v)),
    "utf8": lambda out, v: m.literal(12, v),
    "large_utf8": lambda out, v: m.literal(12, v, 1),
    "utf8_view": lambda out, v: m.literal(12, v, 2),
    "binary": lambda out, v: m.literal(13, v),
    "large_binary": lambda out, v: out.arrow_literal("large_binary", "BytesValue", v),
    "binary_view": lambda out, v: m.literal(13, v, 2),
    "fixed": lambda out, v: m.literal(23, v),
    "dictionary": lambda out, v: m.literal(12, v),
    "dictionary_i64": lambda out, v: m.literal(7, v),
    "dictionary_fixed": lambda out, v: m.literal(23, v),
    "runs": lambda out, v: m.literal(12, v),
    "runs_i64": lambda out, v: m.literal(7, v),
}
PRECISION = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def half_bits(value):
    return int.from_bytes(struct.pack("<e", value), "little")


def float_bytes(value):
    return struct.pack("<f", value)


def number(value, of):
    """The integer in memory of a time."""
    of_bits = {32: pa.int32(), 64: pa.int64()}
    return pa.scalar(value, of).cast(of_bits[of.bit_width]).as_py()


def literal(out, name, value):
    of = COLUMNS[name][0]
    if name in LITERALS:
        return LITERALS[name](out, value)
    if name == "date32":
        return m.literal(16, number(value, of))
    if name == "date64":
        return out.arrow_literal("date_millis", "Int64Value", number(value, of))
    if name.startswith("time32"):
        which = "time_seconds" if of.unit == "s" else "time_millis"
        return out.arrow_literal(which, "Int32Value", number(value, of))
    if name.startswith("time64"):
        return m.literal(37, m.fields((1, PRECISION[of.unit]), (2, number(value, of))))
    if name.startswith("ts_"):
        return m.literal(34, m.fields((1, PRECISION[of.unit]), (2, number(value, of))))
    if name.startswith("tz_"):
        return m.literal(35, m.fields((1, PRECISION[of.unit]), (2, number(value, of))))
    if name.startswith("duration"):
        precision = PRECISION[of.unit]
        parts = (1, value.days), (2, value.seconds), (4, precision), (5, 0)
        return m.literal(20, m.fields(*parts))
    if name.startswith("decimal"):
        scale = min(of.scale, 2)
        unscaled = int(value.scaleb(scale))
        if abs(unscaled) >= 10**38:
            # No literal is as long as this.
            unscaled = 10**38 - 1
        raw = unscaled.to_bytes(16, "little", signed=True)
        return m.literal(24, m.fields((1, raw), (2, 38), (3, scale)))
    raise KeyError(name)


def column(name):
    of, values = COLUMNS[name]
    rows = [None if row is None else values[row] for row in ROWS]
    if pa.types.is_run_end_encoded(of):
        plain = pa.array(rows, of.value_type)
        return pc.run_end_encode(plain, of.run_end_type)
    if pa.types.is_dictionary(of):
        return pa.array(rows, of.value_type).dictionary_encode().cast(of)
    return pa.array(rows, of)


# A null struct whose field has a value in its memory.
STRUCT = pa.StructArray.from_arrays(
    [
        pa.array([1, 2, 3, None, 5, 6, 7, 8, 9, 10], pa.int32()),
        pa.array(["a", "b", None, "d", "e", "f", "g", "h", "i", "j"]).dictionary_encode(),
        pa.StructArray.from_arrays(
            [pa.array([1.5, None, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5])],
            ["deep"],
            mask=pa.array([False, False, False, False, True, True, False, False, False, False]),
        ),
    ],
    ["number", "text", "inner"],
    mask=pa.array([False, True, False, False, False, False, True, False, False, False]),
)
OTHERS = {
    "none": pa.nulls(10),
    "list": pa.array([[1], None, [], [2, None], None, [3], [4], [5], [6], [7]]),
    "items": pa.array([[{"x": 1}], None] * 5),
    "struct": STRUCT,
    "a": pa.array([1, 2, 3, 4, 5, 6, 7, None, None, -10], pa.int32()),
    "b": pa.array([5, 2, None, 3, 0, 6, -1, 1, None, 3], pa.int32()),
    "p": pa.array([True, True, True, False, False, False, None, None, None, True]),
    "q": pa.array([True, False, None, True, False, None, True, False, None, True]),
    "x": pa.array([0.0, -0.0, NAN, math.inf, -math.inf, 1.5, None, NAN, 2.5, 1e300]),
    "y": pa.array([-0.0, 0.0, NAN, 1.0, -math.inf, 1.5, NAN, None, -2.5, 1e300]),
    "s": pa.array(["apple", "Apple", "a_b", "100%", "", None, "über", "ÜBER", "ap\\le", "pple"]),
}
TABLE = pa.table({**{name: column(name) for name in COLUMNS}, **OTHERS})
OPERATORS = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "lt": operator.lt,
    "lte": operator.le,
    "gt": operator.gt,
    "gte": operator.ge,
}
cases = []


def add(name, encoded, expected):
    assert len(expected) == len(TABLE), name
    cases.append({"name": name, "message": encoded, "rows": expected})


def plain(name):
    """The values of a column that Python compares."""
    rows = TABLE[name].combine_chunks()
    if pa.types.is_dictionary(rows.type):
        rows = rows.dictionary_decode()
    if pa.types.is_run_end_encoded(rows.type):
        rows = pc.run_end_decode(rows)
    if pa.types.is_temporal(rows.type):
        rows = rows.cast(pa.int32() if rows.type.bit_width == 32 else pa.int64())
    return rows.to_pylist()


def either(one, other):
    if one is True or other is True:
        return True
    return None if one is None or other is None else False


def listed(value, options):
    found = False
    for option in options:
        same = None if value is None or option is None else value == option
        found = either(found, same)
    return found


def computed(expression):
    """pyarrow's rows of an expression."""
    scanner = ds.dataset(TABLE).scanner(columns={"rows": expression})
    rows = scanner.to_table()["rows"]
    assert rows.type == pa.bool_(), rows.type
    return rows.to_pylist()


def arrow(name, expression, columns, expected=None, **options):
    """A case whose message pyarrow writes."""
    schema = pa.schema([TABLE.schema.field(column) for column in columns.split()])
    encoded = expression.to_substrait(schema, **options).tobytes()
    add(name, encoded, computed(expression) if expected is None else expected)


def each_type():
    for name, (of, values) in COLUMNS.items():
        field, rows, pivot = pc.field(name), plain(name), values[2]
        python_pivot = plain(name)[1]
        for function, compare in OPERATORS.items():
            expected = [None if row is None else compare(row, python_pivot) for row in rows]
            out = m.Message()
            call = out.call(function, m.reference(0), literal(out, name, pivot))
            add(f"{name}: {function}, by hand", out.encode(call, [name]), expected)
            try:
                expression = compare(field, pa.scalar(pivot, of))
                by_arrow = computed(expression)
                arrow(f"{name}: {function}", expression, name)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                continue
            assert by_arrow == expected, (name, function, by_arrow, expected)
        for function in ("is_null", "is_not_null"):
            expected = [(row is None) == (function == "is_null") for row in rows]
            out = m.Message(urn="extension:io.substrait:functions_comparison")
            call = out.call(f"{function}:any", m.reference(0))
            add(f"{name}: {function}, by hand", out.encode(call, [name]), expected)
        list_cases(name, of, values, rows)


def list_cases(name, of, values, rows):
    chosen, python_chosen = [values[1], values[2]], [rows[3], rows[1]]
    # Enough to be looked up as a set.
    for label, options, python in (
        ("a few", chosen, python_chosen),
        ("many", chosen * 10, python_chosen),
        ("none", [], []),
    ):
        expected = [listed(row, python) for row in rows]
        for negated in (False, True):
            out = m.Message()
            inside = m.in_list(m.reference(0), [literal(out, name, one) for one in options])
            inside = out.call("not", inside) if negated else inside
            wanted = [None if row is None else row != negated for row in expected]
            add(f"{name}: in {label}, {negated}, by hand", out.encode(inside, [name]), wanted)
    try:
        expression = pc.field(name).isin(pa.array([*chosen, None], of))
        arrow(
            f"{name}: isin",
            expression,
            name,
            [listed(row, [*python_chosen, None]) for row in rows],
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        pass


def unequal_types():
    """Literals of another type than the column's, and columns of two types."""
    numbers = ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f32", "f64", "decimal128"]
    spellings = {"5": (7, 5), "300": (7, 300), "5.5": (11, 5.5), "0.1": (11, 0.1), "-0.0": (11, -0.0)}
    for name in numbers:
        for spelling, (tag, value) in spellings.items():
            for function in ("equal", "lt"):
                compare = OPERATORS[function]
                rows = [value_of(row, value) for row in plain(name)]
                expected = [None if row is None else compare(row, value) for row in rows]
                out = m.Message()
                call = out.call(function, m.reference(0), m.literal(tag, value))
                add(f"{name}: {function} {spelling}", out.encode(call, [name]), expected)
    for a in numbers:
        for b in numbers:
            rows = zip(plain(a), plain(b))
            if {a, b} & {"f32", "f64"}:
                rows = [pair if None in pair else (float(pair[0]), float(pair[1])) for pair in rows]
            expected = [None if None in pair else pair[0] < pair[1] for pair in rows]
            out = m.Message()
            call = out.call("lt", m.reference(1), m.reference(0))
            add(f"{a} < {b}", out.encode(call, [b, a]), expected)
    units = ["s", "ms", "us", "ns"]
    for kind in ("ts", "tz", "duration"):
        for a in units:
            for b in units:
                one, other = f"{kind}_{a}", f"{kind}_{b}"
                rows = list(zip(ROWS, ROWS))
                expected = [None if row is None else True for row, _ in rows]
                out = m.Message()
                call = out.call("equal", m.reference(0), m.reference(1))
                add(f"{one} = {other}", out.encode(call, [one, other]), expected)
    # A literal with a fraction that the column's unit does not have, and one out of its range.
    seconds = int(moment(3, UTC).timestamp())
    for name, precision, value, less in (
        ("ts_s", 3, seconds * 1000 + 500, lambda row: row < seconds + 0.5),
        ("ts_ns", 0, 2**40, lambda row: True),
        ("ts_s", 9, -(2**63), lambda row: False),
    ):
        out = m.Message()
        bound = m.literal(34, m.fields((1, precision), (2, value)))
        call = out.call("lt", m.reference(0), bound)
        expected = [None if row is None else less(row) for row in plain(name)]
        add(f"{name} < {value} of precision {precision}", out.encode(call, [name]), expected)
    for count in (1, 20):
        out = m.Message()
        options = [m.literal(34, m.fields((1, 3), (2, seconds * 1000 + 500)))] * count
        options.append(m.literal(34, m.fields((1, 9), (2, seconds * 10**9))))
        expected = [None if row is None else row == seconds for row in plain("ts_s")]
        encoded = out.encode(m.in_list(m.reference(0), options), ["ts_s"])
        add(f"ts_s in times of other units, {count}", encoded, expected)
    dates = [None if row is None else row >= 2 for row in ROWS]
    for name in ("date32", "date64", "ts_s", "ts_ns"):
        out = m.Message()
        call = out.call("gte", m.reference(0), m.literal(16, number(day(3), pa.date32())))
        add(f"{name} >= a date", out.encode(call, [name]), dates)
    # Units by DataFusion's variations, a time in microseconds, and casts to types of both kinds.
    third = number(moment(3), pa.timestamp("ns"))
    for name, bound in (
        ("ts_ns", m.literal(14, third, 3)),
        ("ts_ms", m.literal(14, third // 1000)),
        ("tz_ns", m.literal(27, third // 1000)),
        ("ts_s", m.cast(m.field(33, m.field(1, 9)), m.literal(12, "2024-01-03T12:30:15"))),
    ):
        out = m.Message()
        call = out.call("gte", m.reference(0), bound)
        encoded = out.encode(call, [name])
        add(f"{name} >= a time {len(cases)}", encoded, dates)
    expected = [None if row is None else row == 5 for row in plain("i64")]
    for to in ("u16", "fp16", "large_string"):
        out = m.Message()
        small = m.cast(m.field(30, m.field(1, out.type(to))), m.reference(0), 1)
        other = m.literal(12, "5") if to == "large_string" else m.literal(7, 5)
        fits = out.call("and", out.call("is_not_null", small), out.call("equal", small, other))
        known = out.call("coalesce", fits, m.literal(1, False))
        encoded = out.encode(known, ["i64"])
        add(f"i64 as {to}", encoded, [row is True for row in expected])
    out = m.Message()
    small = m.cast(m.field(5, m.field(1, 1)), m.reference(0))
    add(
        "i64 as u32",
        out.encode(out.call("gte", small, m.literal(7, 0)), ["u32"]),
        [None if row is None else True for row in ROWS],
    )
    for name in ("utf8", "large_utf8", "utf8_view", "dictionary"):
        for other in ("utf8", "large_utf8", "utf8_view", "dictionary"):
            out = m.Message()
            call = out.call("equal", m.reference(0), m.reference(1))
            expected = [None if row is None else True for row in ROWS]
            add(f"{name} = {other}", out.encode(call, [name, other]), expected)
    out = m.Message()
    call = out.call("equal", m.reference(0), m.literal(13, b"abcd"))
    expected = [None if row is None else False for row in ROWS]
    add("fixed = a longer binary", out.encode(call, ["fixed"]), expected)


def value_of(row, literal):
    """Decimals are compared with floats as floats."""
    return float(row) if isinstance(row, D) and isinstance(literal, float) and row is not None else row


def logic():
    a, b, p, q = (pc.field(name) for name in "abpq")
    arrow("p & q", p & q, "p q")
    arrow("q | p, columns in another order", q | p, "q p")
    arrow("~p", ~p, "p")
    arrow("p", p, "p")
    arrow("~(p & ~q) | (a < b)", ~(p & ~q) | (a < b), "b q p a")
    arrow("xor", pc.xor(p, q), "p q", allow_arrow_extensions=True)
    # Arrow's "and" without Kleene's logic.
    strict = pc.Expression._call("and", [p, q])
    arrow("and", strict, "p q", allow_arrow_extensions=True)
    arrow("or", pc.Expression._call("or", [p, q]), "p q", allow_arrow_extensions=True)
    arrow("is_valid", pc.is_valid(p), "p")
    arrow("true", pc.scalar(True), "p")
    arrow("null", pc.equal(p, pa.scalar(None, pa.bool_())), "p")
    values = TABLE["p"].to_pylist()
    for name, expected in (
        ("is_true", [row is True for row in values]),
        ("is_not_true", [row is not True for row in values]),
        ("is_false", [row is False for row in values]),
        ("is_not_false", [row is not False for row in values]),
    ):
        out = m.Message()
        add(name, out.encode(out.call(name, m.reference(0)), ["p"]), expected)
    pairs = list(zip(TABLE["a"].to_pylist(), TABLE["b"].to_pylist()))
    for name, wanted in (("is_not_distinct_from", True), ("is_distinct_from", False)):
        out = m.Message()
        call = out.call(name, m.reference(0), m.reference(1))
        add(name, out.encode(call, ["a", "b"]), [(one == other) == wanted for one, other in pairs])
    out = m.Message()
    parts = [out.call("gt", m.reference(0), m.literal(5, n)) for n in (0, 1, 2, 3)]
    expected = [None if one is None else one > 3 for one, _ in pairs]
    add("and of four", out.encode(out.call("and", *parts), ["a"]), expected)
    add("no names: by position", positional(), computed(pc.field("a") > 3))
    out = m.Message(uri="https://github.com/substrait-io/substrait/functions_comparison.yaml")
    call = out.call("between:any_any_any", m.reference(0), m.literal(7, 2), m.reference(1))
    expected = [
        None if one is None else (False if one < 2 else None if other is None else one <= other) for one, other in pairs
    ]
    add("between", out.encode(call, ["a", "b"]), expected)


def positional():
    out = m.Message()
    place = TABLE.schema.get_field_index("a")
    return out.encode(out.call("gt", m.reference(place), m.literal(5, 3)))


def numbers():
    a, b, x, y = (pc.field(name) for name in "abxy")
    for name, expression in {
        "a + b": a + b > 6,
        "a - b": a - b > 0,
        "a * b": a * b > 6,
        "a / 2": a / 2 >= 2,
        "-a": pc.negate(a) > -3,
        "add wraps": pc.add(a, 2**31 - 1) < 0,
        "subtract wraps": pc.subtract(a, -(2**31)) < 0,
        "multiply wraps": pc.multiply(a, 2**30) < 0,
        "coalesce": pc.coalesce(a, b, pa.scalar(-1, pa.int32())) > 2,
        "case_when": pc.case_when(pc.make_struct(a > 5, a < 2), b, a, a * 2) > 4,
        "case_when without else": pc.case_when(pc.make_struct(a > 5), b) > 4,
        "cast": a.cast("int64", safe=False) == pa.scalar(3, pa.int64()),
        "cast to text": a.cast("string", safe=False) == "-10",
    }.items():
        arrow(name, expression, "a b")
    # The message is that of case_when, where an unknown condition is as a false one.
    chosen = computed(pc.case_when(pc.make_struct(a > b), a, b) > 4)
    arrow("if_else", pc.if_else(a > b, a, b) > 4, "a b", chosen)
    for name, expression in {
        "x < y": x < y,
        "x = y": x == y,
        "x != y": x != y,
        "x >= y": x >= y,
        "x = nan": x == NAN,
        "is_nan": x.is_nan(),
        "~is_nan": ~x.is_nan(),
        "is_finite": pc.is_finite(x),
        "is_inf": pc.is_inf(x),
        "x + y": x + y > 0,
        "x / y": pc.divide(x, y) > 0,
        "x or y": pc.coalesce(x, y) > 0,
        "cast to float": (x * 2).cast("float32", safe=False) > pa.scalar(1.0, pa.float32()),
    }.items():
        arrow(name, expression, "x y", allow_arrow_extensions=True)
    for name, of in (("-0.0 in a list of 0.0", 0.0), ("nan in a list of nan", NAN)):
        for count in (1, 20):
            out = m.Message()
            options = [m.literal(11, of)] * count
            expected = [None if row is None else row == of for row in TABLE["x"].to_pylist()]
            add(f"{name}, {count}", out.encode(m.in_list(m.reference(0), options), ["x"]), expected)
    d = pc.field("decimal128")
    arrow("decimals", d + d > D("1.2"), "decimal128")
    out = m.Message()
    finer = m.literal(24, m.fields((1, (1249).to_bytes(16, "little")), (2, 4), (3, 3)))
    call = out.call("gt", m.reference(0), finer)
    add("a decimal of another scale", out.encode(call, ["decimal128"]), computed(d > D("1.249")))
    out = m.Message()
    rest = out.call("modulus", m.reference(0), m.literal(5, 3))
    call = out.call("equal", rest, m.literal(7, 1))
    values = TABLE["a"].to_pylist()
    expected = [None if row is None else math.fmod(row, 3) == 1 for row in values]
    add("modulus", out.encode(call, ["a"]), expected)
    out = m.Message()
    half = out.call("divide", m.reference(0), m.literal(11, 2.0))
    call = out.call("equal", half, m.literal(11, 1.5))
    expected = [None if row is None else row / 2 == 1.5 for row in values]
    add("an integer divided by a float", out.encode(call, ["a"]), expected)
    out = m.Message()
    text = m.literal(12, "7")
    small = m.cast(m.field(2, b""), m.literal(12, "not a number"), 1)
    call = out.call("equal", m.reference(0), out.call("coalesce", small, m.cast(m.field(7, b""), text)))
    expected = [None if row is None else row == 7 for row in values]
    add("cast of a text to null", out.encode(call, ["a"]), expected)
    out = m.Message()
    options = [m.reference(1), m.literal(5, 4)]
    pairs = list(zip(values, TABLE["b"].to_pylist()))
    expected = [listed(one, [other, 4]) for one, other in pairs]
    add("in a list with a column", out.encode(m.in_list(m.reference(0), options), ["a", "b"]), expected)
    arrow(
        "isin of 64 bits for a column of 32",
        a.isin([1, 2**40]),
        "a",
        [listed(row, [1]) for row in values],
    )
    out = m.Message()
    sizes = out.call("add", m.reference(0), m.reference(1))
    call = out.call("gt", sizes, m.literal(34, m.fields((1, 6), (2, number(moment(3), pa.timestamp("us"))))))
    days = [-1, 0, 1, 2]
    expected = [None if row is None else row + days[row] >= 2 for row in ROWS]
    add("a time and a duration", out.encode(call, ["ts_us", "duration_us"]), expected)


def texts():
    s = pc.field("s")
    for name, expression in {
        "starts_with": pc.starts_with(s, "ap"),
        "ends_with": pc.ends_with(s, "ple"),
        "contains": pc.match_substring(s, "p"),
        "starts_with of any case": pc.starts_with(s, "aP", ignore_case=True),
        "ends_with of any case": pc.ends_with(s, "PLE", ignore_case=True),
        "contains of any case": pc.match_substring(s, "Über", ignore_case=True),
        "contains a wildcard": pc.match_substring(s, "0%", ignore_case=True),
        "lower": pc.utf8_lower(s) == "über",
        "upper": pc.utf8_upper(s) == "APPLE",
        "or another text": pc.coalesce(s, "none at all, but a long one") > "b",
        "if_else of texts": pc.if_else(s < "b", "a text of many letters", s) < "b",
        "s < 'b'": s < "b",
    }.items():
        arrow(name, expression, "s", allow_arrow_extensions=True)
    for pattern in ("ap%", "%p_le", "a\\_b", "%\\%", "", "%"):
        for function, ignore in (("like", False), ("ilike", True)):
            expected = computed(pc.match_like(s, pattern, ignore_case=ignore))
            out = m.Message()
            call = out.call(function, m.reference(0), m.literal(12, pattern))
            add(f"{function} {pattern!r}", out.encode(call, ["s"]), expected)
    out = m.Message()
    call = out.call("like", m.reference(0), m.literal(12, "ap%"), m.literal(12, "\\"))
    add("like with an escape", out.encode(call, ["s"]), computed(pc.match_like(s, "ap%")))
    for name in ("utf8", "large_utf8", "utf8_view", "dictionary", "runs"):
        out = m.Message()
        call = out.call("contains", m.reference(0), m.literal(12, "long"))
        expected = [None if row is None else "long" in row for row in plain(name)]
        add(f"{name}: contains", out.encode(call, [name]), expected)
    for name in ("binary", "large_binary", "binary_view", "fixed", "dictionary_fixed"):
        out = m.Message()
        call = out.call("starts_with", m.reference(0), m.literal(13, b"ab"))
        expected = [None if row is None else row.startswith(b"ab") for row in plain(name)]
        add(f"{name}: starts_with", out.encode(call, [name]), expected)


def nested():
    arrow("struct.number", pc.field("struct", "number") > 2, "struct")
    arrow("struct.inner.deep", pc.field("struct", "inner", "deep") > 2, "a struct")
    arrow("struct.inner.deep is null", pc.field("struct", "inner", "deep").is_null(), "struct a")
    arrow("struct is null", pc.field("struct").is_null(), "struct")
    arrow("a column behind a struct", pc.field("a") > 3, "items struct a")
    # With the name of the struct's field in the list, as Substrait has it and pyarrow has not.
    out = m.Message()
    call = out.call("gt", m.reference(1), m.literal(5, 3))
    number = m.field(5, b"")
    items = m.field(27, m.field(1, m.field(25, m.field(1, number))))
    names = m.fields((1, "items"), (1, "x"), (1, "a"))
    schema = names + m.field(2, m.fields((1, items), (1, number)))
    encoded = out.encode(call) + m.field(4, schema)
    add("names in a list", encoded, computed(pc.field("a") > 3))
    texts = pc.struct_field(pc.field("struct"), "text")
    expected = [None if row is None or row["text"] is None else row["text"] > "c" for row in STRUCT.to_pylist()]
    out = m.Message()
    place = TABLE.schema.get_field_index("struct")
    call = out.call("gt", m.reference(place, 1), m.literal(12, "c"))
    add("a dictionary in a struct", out.encode(call), expected)
    assert computed(texts.is_null()) == [row is None for row in expected]
    for name in ("none", "list"):
        arrow(f"{name} is null", pc.field(name).is_null(), name)
        arrow(f"{name} is valid", pc.field(name).is_valid(), name)
    out = m.Message()
    call = out.call("equal", m.reference(0), m.reference(1))
    add("a column of nulls", out.encode(call, ["a", "none"]), [None] * len(TABLE))


def write():
    each_type()
    unequal_types()
    logic()
    numbers()
    texts()
    nested()
    names = [case["name"] for case in cases]
    assert len(set(names)) == len(names)
    schema = pa.schema({"name": pa.string(), "message": pa.binary(), "rows": pa.list_(pa.bool_())})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    for path, table in (
        ("table.arrow", TABLE.combine_chunks()),
        ("cases.arrow", pa.Table.from_pylist(cases, schema)),
    ):
        with pa.ipc.new_stream(HERE / path, table.schema, options=options) as writer:
            writer.write_table(table)
    print(f"{len(cases)} cases")


if __name__ == "__main__":
    write()
