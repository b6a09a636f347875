"""Schemas: read out of an ArrowSchema once, and given out as many times as anybody asks."""

from __future__ import annotations

import ctypes
import itertools
import struct
from ctypes import c_void_p
from typing import Any

from . import _abi, _capsule


class Schema:
    """A schema, or one field of it: what Arrow's C data interface says about a type.

    ``pyarrow.schema(schema)``, ``nanoarrow.Schema(schema)`` and the like take it as it is.
    """

    __slots__ = ("_metadata", "children", "dictionary", "flags", "format", "name")

    format: str
    """The type, as the C data interface spells it: ``"+s"`` for a schema, ``"l"`` for int64."""
    name: str
    flags: int
    children: tuple[Schema, ...]
    """The fields of a schema, the children of a nested type."""
    dictionary: Schema | None
    """The values' type, where the field is dictionary-encoded."""

    def __init__(self, source: _abi.ArrowSchema) -> None:
        """Reads `source`, which stays its owner's."""
        self.format = (source.format or b"").decode()
        self.name = (source.name or b"").decode(errors="surrogateescape")
        self.flags = source.flags
        self._metadata = ctypes.string_at(source.metadata, _metadata_len(source.metadata)) if source.metadata else None
        children = (c_void_p * source.n_children).from_address(source.children) if source.n_children else ()
        self.children = tuple(Schema(_abi.ArrowSchema.from_address(child)) for child in children)
        self.dictionary = Schema(_abi.ArrowSchema.from_address(source.dictionary)) if source.dictionary else None

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [child.name for child in self.children]

    @property
    def nullable(self) -> bool:
        return bool(self.flags & _abi.FLAG_NULLABLE)

    @property
    def metadata(self) -> dict[bytes, bytes]:
        """Custom metadata; empty where there is none."""
        return decode_metadata(self._metadata)

    def __arrow_c_schema__(self) -> object:
        """A PyCapsule with a copy of the schema."""
        return _capsule.wrap(self.export())

    def export(self) -> _abi.ArrowSchema:
        """A copy of the schema, owned by the caller."""
        exported = _abi.ArrowSchema()
        _fill(exported, self)
        return exported

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schema):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __hash__(self) -> int:
        return hash((self.format, self.name, self.flags, self.children))

    def __repr__(self) -> str:
        fields = ", ".join(f"{child.name}: {child.format}" for child in self.children)
        return f"<dipc.Schema {fields}>" if self.format == "+s" else f"<dipc.Schema {self.name}: {self.format}>"


# What an exported node points to, by its private_data. Each node has an entry of its own, since a consumer
# may move a child out of its parent and keep it.
_kept: dict[int, Any] = {}
_numbers = itertools.count(1)


def _release(
    address: int,
    kept: dict[int, Any] = _kept,
    schema: Any = _abi.ArrowSchema,
    pointers: Any = c_void_p,
    release: Any = _abi.release,
) -> None:
    node = schema.from_address(address)
    keep = kept.pop(node.private_data, None)
    for child in (pointers * node.n_children).from_address(node.children) if node.n_children else ():
        release(schema.from_address(child))
    if node.dictionary:
        release(schema.from_address(node.dictionary))
    node.release = None
    del keep


# Whoever imports a schema may release it late, so the function is never freed.
_release_callback = _abi.RELEASE(_release)
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_release_callback))
_release_address = ctypes.cast(_release_callback, c_void_p).value


def _fill(node: _abi.ArrowSchema, schema: Schema) -> None:
    """Writes `schema` into `node`; what it points to lives until the node is released."""
    children = [_abi.ArrowSchema() for _ in schema.children]
    for child, source in zip(children, schema.children):
        _fill(child, source)
    pointers = (c_void_p * max(1, len(children)))(*(ctypes.addressof(child) for child in children))
    dictionary = None
    if schema.dictionary is not None:
        dictionary = _abi.ArrowSchema()
        _fill(dictionary, schema.dictionary)
    strings = [
        ctypes.create_string_buffer(text.encode(errors="surrogateescape")) for text in (schema.format, schema.name)
    ]
    metadata = ctypes.create_string_buffer(schema._metadata) if schema._metadata is not None else None
    number = next(_numbers)
    _kept[number] = (children, pointers, dictionary, strings, metadata)
    node.format, node.name = (ctypes.cast(text, ctypes.c_char_p) for text in strings)
    node.metadata = ctypes.addressof(metadata) if metadata is not None else None
    node.flags = schema.flags
    node.n_children = len(children)
    node.children = ctypes.addressof(pointers)
    node.dictionary = ctypes.addressof(dictionary) if dictionary is not None else None
    node.private_data = number
    node.release = _release_address


def _metadata_len(address: int) -> int:
    """The length of encoded metadata: a count, then for each key and value a length and bytes."""
    end = address + 4
    for _ in range(2 * ctypes.c_int32.from_address(address).value):
        end += 4 + ctypes.c_int32.from_address(end).value
    return end - address


def decode_metadata(encoded: bytes | None) -> dict[bytes, bytes]:
    """Metadata as the C data interface encodes it; empty for none."""
    if not encoded:
        return {}
    parts, at = [], 4
    for _ in range(2 * struct.unpack_from("=i", encoded)[0]):
        (length,) = struct.unpack_from("=i", encoded, at)
        parts.append(encoded[at + 4 : at + 4 + length])
        at += 4 + length
    return dict(zip(parts[::2], parts[1::2]))
