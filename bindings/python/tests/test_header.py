"""The package declares what include/dipc.h does."""

from __future__ import annotations

import ctypes
import re

import dipc
from conftest import ROOT
from dipc import _description, _library, _request, _server, _stream

HEADER = re.sub(r"/\*.*?\*/", "", (ROOT / "include/dipc.h").read_text(), flags=re.DOTALL)

PLAIN = {
    "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "uint16_t": ctypes.c_uint16, "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64, "size_t": ctypes.c_size_t, "bool": ctypes.c_bool, "dipc_status": ctypes.c_int32,
}  # fmt: skip


def kind(text):
    """The ctypes type of a C parameter or result. Pointers are addresses, except text and bytes that go in; callbacks
    are addresses too."""
    text = text.strip()
    if "*" in text:
        into = re.match(r"const (char|uint8_t) \*[^*]*$", text)
        return ctypes.c_char_p if into else ctypes.c_void_p
    return None if text == "void" else PLAIN.get(text.split()[0], ctypes.c_void_p)


def prototypes():
    for result, name, parameters in re.findall(r"^([\w ]+[ *])(dipc_\w+)\(([^()]*)\);", HEADER, flags=re.MULTILINE):
        if not result.startswith("typedef"):
            listed = [] if parameters.strip() == "void" else [kind(parameter) for parameter in parameters.split(",")]
            yield name, (kind(result), listed)


def test_functions_are_declared_as_the_header_has_them():
    header = dict(prototypes())
    assert len(header) > 100
    declared = {name: (ctypes.c_int32, [*shape, ctypes.c_void_p]) for name, shape in _library.STATUS_FUNCTIONS.items()}
    declared.update(_library.PLAIN_FUNCTIONS)
    assert {name: header[name] for name in declared} == declared


def test_statuses_are_the_headers():
    found = dict(re.findall(r"#define DIPC_(OK|NOTHING|ERR_\w+) (-?\d+)$", HEADER, flags=re.MULTILINE))
    header = {name.removeprefix("ERR_"): int(number) for name, number in found.items()}
    assert {status.name: status.value for status in dipc.Status} == header
    assert dipc.status_name(dipc.Status.NOT_FOUND) == "DIPC_ERR_NOT_FOUND"


def test_figures_are_the_headers():
    for figures in (_server.ServerStats, _stream.StreamStats, dipc.ClientStats, dipc.ArenaStats, dipc.PutStats):
        kind_ = figures.__name__.removesuffix("Stats").upper()
        found = re.findall(rf"#define DIPC_{kind_}_STAT_(\w+) (\d+)$", HEADER, flags=re.MULTILINE)
        names = [name.lower() for name, number in sorted(found, key=lambda pair: int(pair[1]))]
        assert tuple(names) == figures._fields


def test_verbs_and_totals_are_the_headers():
    verbs = re.findall(r"#define DIPC_VERB_(\w+) (\d+)$", HEADER, flags=re.MULTILINE)
    assert {(verb.name, str(verb.value)) for verb in _request.Verb} <= set(verbs)
    totals = re.findall(r"#define DIPC_TOTAL_(\w+) (\d+)$", HEADER, flags=re.MULTILINE)
    assert totals == [(name, str(getattr(_description, name))) for name in ("ROWS", "BYTES", "BATCHES")]


def test_the_version_is_the_headers():
    found = dict(re.findall(r"#define DIPC_VERSION_(\w+) (\d+)$", HEADER, flags=re.MULTILINE))
    assert (int(found["MAJOR"]), int(found["MINOR"])) == _library.VERSION
    assert dipc.library_version() == f"{found['MAJOR']}.{found['MINOR']}.{found['PATCH']}"
