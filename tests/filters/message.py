"""Messages of Substrait, field by field, for what pyarrow cannot write."""

import struct


def varint(value):
    value &= (1 << 64) - 1
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    """A field: an integer, a float (of 64 bits), or bytes, text or a message."""
    if isinstance(value, (bool, int)):
        return varint(number << 3) + varint(int(value))
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, str):
        value = value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields(*pairs):
    return b"".join(field(number, value) for number, value in pairs)


def literal(number, value, variation=0):
    """An expression: the literal with this number."""
    parts = field(number, value)
    if variation:
        parts += field(51, variation)
    return field(1, parts)


def reference(*path):
    """An expression: a column by its position, or a field of a struct."""
    segment = b""
    for position in reversed(path):
        segment = field(2, field(1, position) + (field(2, segment) if segment else b""))
    return field(2, field(1, segment) + field(4, b""))


def in_list(value, options):
    return field(8, field(1, value) + b"".join(field(2, option) for option in options))


def if_then(*parts):
    """Conditions, each followed by its result, and what there is otherwise, if anything."""
    clauses = b""
    pairs = len(parts) // 2
    for index in range(pairs):
        clauses += field(1, field(1, parts[2 * index]) + field(2, parts[2 * index + 1]))
    if len(parts) % 2:
        clauses += field(2, parts[-1])
    return field(6, clauses)


def cast(to, value, failure=0):
    """`to` is a type's message."""
    return field(11, field(1, to) + field(2, value) + field(3, failure))


class Message:
    """An extended expression, whose functions and types are declared as they are used."""

    def __init__(self, uri=None, urn=None):
        """Functions are of the file with this address or name; of none, as DataFusion has it."""
        self.uri, self.urn = uri, urn
        self.functions, self.types = [], []

    def call(self, name, *arguments, **options):
        if name not in self.functions:
            self.functions.append(name)
        call = field(1, self.functions.index(name))
        for argument in arguments:
            call += field(4, field(3, argument))
        for option, preference in options.items():
            call += field(5, fields((1, option), (2, preference)))
        return field(3, call)

    def type(self, name):
        """The number of a type of pyarrow's."""
        if name not in self.types:
            self.types.append(name)
        return self.types.index(name)

    def arrow_literal(self, name, wrapper, value):
        """A literal of pyarrow's own types, in a wrapper message of Protobuf."""
        url = f"type.googleapis.com/google.protobuf.{wrapper}"
        any_value = fields((1, url), (2, field(1, value)))
        return literal(33, fields((1, self.type(name)), (2, any_value)))

    def encode(self, expression, names=None, expressions=1):
        out = b""
        if self.uri:
            out += field(1, fields((1, 1), (2, self.uri)))
        for index, name in enumerate(self.types):
            out += field(2, field(1, fields((2, index), (3, name))))
        for index, name in enumerate(self.functions):
            declared = fields((2, index), (3, name))
            if self.uri:
                declared += field(1, 1)
            if self.urn:
                declared += field(4, 1)
            out += field(2, field(3, declared))
        for _ in range(expressions):
            out += field(3, fields((1, expression), (3, "filter")))
        if names:
            out += field(4, b"".join(field(1, name) for name in names))
        if self.urn:
            out += field(8, fields((1, 1), (2, self.urn)))
        return out
