"""Schemas: read out of an ArrowSchema once, and given out as many times as anybody asks."""

from __future__ import annotations

import ctypes
import struct
from ctypes import c_void_p

from . import _abi, _capsule, _native


class Schema:
    """A schema, or one field of it: what Arrow's C data interface says about a type.

    ``pyarrow.schema(schema)``, ``nanoarrow.Schema(schema)`` and the like take it as it is.
    """

    __slots__ = ("_metadata", "_parts", "_shared", "flags", "format", "name")

    format: str
    """The type, as the C data interface spells it: ``"+s"`` for a schema, ``"l"`` for int64."""
    name: str
    flags: int

    def __init__(self, source: _abi.ArrowSchema) -> None:
        """Moves out of `source`."""
        self.format = (source.format or b"").decode()
        self.name = (source.name or b"").decode(errors="surrogateescape")
        self.flags = source.flags
        self._metadata = ctypes.string_at(source.metadata, _metadata_len(source.metadata)) if source.metadata else None
        self._shared = _native.Shared("schema", source)
        # Made only when somebody asks: most readers hand on a schema, maybe of thousands of columns, as it is.
        self._parts: tuple[tuple[Schema, ...], Schema | None] | None = None

    def _read_parts(self) -> tuple[tuple[Schema, ...], Schema | None]:
        """The children, and the dictionary."""
        if self._parts is None:
            # Arrow allows children to be moved out of their parent.
            parts = self.export()
            pointers = (c_void_p * parts.n_children).from_address(parts.children) if parts.n_children else ()
            children = tuple(Schema(_abi.ArrowSchema.from_address(child)) for child in pointers)
            dictionary = Schema(_abi.ArrowSchema.from_address(parts.dictionary)) if parts.dictionary else None
            _abi.release(parts)
            self._parts = (children, dictionary)
        return self._parts

    @property
    def children(self) -> tuple[Schema, ...]:
        """The fields of a schema, the children of a nested type."""
        return self._read_parts()[0]

    @property
    def dictionary(self) -> Schema | None:
        """The values' type, if the field is dictionary-encoded."""
        return self._read_parts()[1]

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [child.name for child in self.children]

    @property
    def nullable(self) -> bool:
        return bool(self.flags & _abi.FLAG_NULLABLE)

    @property
    def metadata(self) -> dict[bytes, bytes]:
        """Custom metadata; empty if there is none."""
        return decode_metadata(self._metadata)

    def __arrow_c_schema__(self) -> object:
        """A PyCapsule with a copy of the schema."""
        return _capsule.wrap(self.export())

    def export(self) -> _abi.ArrowSchema:
        """A copy of the schema, owned by the caller."""
        exported: _abi.ArrowSchema = self._shared.give()
        return exported

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schema):
            return NotImplemented
        names = ("format", "name", "flags", "_metadata", "children", "dictionary")
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def __hash__(self) -> int:
        return hash((self.format, self.name, self.flags, self.children))

    def __repr__(self) -> str:
        fields = ", ".join(f"{child.name}: {child.format}" for child in self.children)
        return f"<dipc.Schema {fields}>" if self.format == "+s" else f"<dipc.Schema {self.name}: {self.format}>"


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
