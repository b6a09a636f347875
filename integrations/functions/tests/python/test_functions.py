"""dipc.functions: a server in this process, and modules that tools/build-functions.sh has built.

The environment names their folder, ``DIPC_FUNCTIONS_MODULES``, the library, ``DIPC_FUNCTIONS_LIBRARY``, and a prefix
where it is installed, ``DIPC_FUNCTIONS_PREFIX``.
"""

import asyncio
import functools
import hashlib
import itertools
import os
import pathlib
import re
import subprocess
import sys

import dipc
import pyarrow as pa
import pytest
from dipc import _library, functions

ROOT = pathlib.Path(__file__).resolve().parents[4]
MODULES = pathlib.Path(os.environ.get("DIPC_FUNCTIONS_MODULES", ROOT / "integrations/target/modules"))
TABLE = pa.table({"id": range(10_000), "price": [i / 4 for i in range(10_000)]})
CHEAP = TABLE.slice(39)
"""The rows with a price greater than 9.5."""
NUMBERS = itertools.count()


def module(name):
    return functions.Module(MODULES / f"{name}.wasm")


def served(**options):
    server = dipc.Server(**options)
    server.publish("prices", TABLE)
    server.uri = server.listen(f"shm:@dipc-functions-python-{os.getpid()}-{next(NUMBERS)}")
    return server


@pytest.fixture
def server():
    with served() as server:
        yield server


def test_a_get_goes_through_a_function(server):
    wasm = module("filter")
    functions.enable(server, modules=[wasm])
    message = functions.Message(wasm, "keep", "price>9.5")
    for _ in range(2):
        assert message.get(server.uri, "prices").read_all() == CHEAP
    assert message.get(server.uri, "prices", columns=["id"], first_row=1, rows=5).read_all() == CHEAP.select(
        ["id"]
    ).slice(1, 5)
    with pytest.raises(dipc.NotFoundError):
        message.get(server.uri, "absent")
    # Other requests are answered as ever.
    assert dipc.get(server.uri, "prices").read_all() == TABLE


def test_a_function_runs_alone(server):
    wasm = module("words")
    functions.enable(server, modules=[wasm.hash])
    assert functions.Message(wasm, "reverse", "stream").call(server.uri) == b"maerts"
    assert functions.Message(wasm, "reverse").call(server.uri) == b""
    words = functions.Message(wasm, "words", b"b a b")
    assert words.run(server.uri).read_all().to_pydict() == {"word": ["a", "b"], "count": [1, 2]}
    with pytest.raises(dipc.InvalidDataError, match="Message.run"):
        words.call(server.uri)


def test_an_exchange_goes_through_a_function(server):
    wasm = module("filter")
    functions.enable(server, modules=[wasm])
    writer, reader = functions.Message(wasm, "keep", "price>9.5").exchange(server.uri, TABLE.schema)
    with writer, reader:
        writer.write(TABLE.to_batches()[0])
        batch = pa.record_batch(next(reader))
        assert pa.Table.from_batches([batch]) == CHEAP
        assert writer.finish() == 1
        assert next(reader, None) is None


def test_headers_make_other_requests_ones_for_a_function(server):
    wasm = module("filter")
    functions.enable(server, modules=[wasm])
    headers = functions.Message(wasm, "keep", "price>9.5").headers()
    with pytest.raises(dipc.NotFoundError, match="send it first"):
        dipc.get(server.uri, "prices", headers=headers)
    wasm.send(server.uri)
    wasm.send(server.uri)
    assert dipc.get(server.uri, "prices", headers=headers).read_all() == CHEAP


def test_a_get_of_a_function_in_python_goes_through_a_function(server):
    wasm = module("filter")
    functions.enable(server, modules=[wasm])
    message = functions.Message(wasm, "keep", "price>9.5")

    def fails():
        yield TABLE.to_batches(max_chunksize=1000)[0]
        raise ValueError("no more today")

    server.serve("table", lambda: TABLE)
    server.serve("batches", lambda: iter(TABLE.to_batches(max_chunksize=1000)))
    server.serve("fails", fails)
    for ticket in ("table", "batches"):
        assert message.get(server.uri, ticket).read_all() == CHEAP
        # The function ends early, and so does what Python gives.
        assert message.get(server.uri, ticket, rows=5).read_all() == CHEAP.slice(0, 5)
    with pytest.raises(dipc.ProviderError, match="no more today"):
        message.get(server.uri, "fails").read_all()


def test_a_put_goes_through_a_function(server):
    wasm, taken = module("filter"), []
    functions.enable(server, modules=[wasm])
    message = functions.Message(wasm, "keep", b"price>9.5")
    with pytest.raises(dipc.UnsupportedError):
        message.put(server.uri, "mine", TABLE)
    server.set_handler(put=lambda request: taken.append(request.source().read_all()))
    # Such a reader can be read once.
    assert message.put(server.uri, "mine", TABLE.to_reader(1000)).batches == 10
    assert taken == [CHEAP]
    with pytest.raises(dipc.ProviderError, match="colour"):
        functions.Message(wasm, "keep", b"colour>9.5").put(server.uri, "mine", TABLE)

    def reads_one(request):
        with request.source() as table:
            assert pa.table(next(table)) == CHEAP.slice(0, 961)
            raise ValueError("one is enough")

    server.set_handler(put=reads_one)
    with pytest.raises(dipc.ProviderError, match="one is enough"):
        message.put(server.uri, "mine", TABLE.to_reader(1000))


def coroutine(test):
    """Runs a test that is a coroutine, on a loop of its own."""

    @functools.wraps(test)
    def run(server):
        asyncio.run(asyncio.wait_for(test(server), 60))

    return run


@coroutine
async def test_coroutines_get_what_functions_make_of_tables(server):
    filter_, words = module("filter"), module("words")
    functions.enable(server, modules=[filter_, words])
    message = functions.Message(filter_, "keep", "price>9.5")
    readers = await asyncio.gather(*[message.aget(server.uri, "prices", columns=["id"]) for _ in range(3)])
    for reader in readers:
        assert await reader.aread_all() == CHEAP.select(["id"])
    with pytest.raises(dipc.NotFoundError):
        await message.aget(server.uri, "absent")
    assert await functions.Message(words, "reverse", "stream").acall(server.uri) == b"maerts"
    reader = await functions.Message(words, "words", b"b a b").arun(server.uri)
    assert (await reader.aread_all()).to_pydict() == {"word": ["a", "b"], "count": [1, 2]}
    with pytest.raises(dipc.InvalidDataError, match="Message.run"):
        await functions.Message(words, "words").acall(server.uri)


@coroutine
async def test_coroutines_send_tables_through_functions(server):
    wasm, taken = module("filter"), []
    functions.enable(server, modules=[wasm])
    message = functions.Message(wasm, "keep", b"price>9.5")

    async def take(request):
        reader = await request.asource()
        taken.append(await reader.aread_all())

    server.set_handler(put=take)

    async def batches(_request=None):
        for batch in TABLE.to_batches(max_chunksize=1000):
            await asyncio.sleep(0)
            yield batch

    assert (await message.aput(server.uri, "mine", batches())).batches == 10
    assert taken == [CHEAP]
    server.serve("coroutine", batches)
    assert await (await message.aget(server.uri, "coroutine")).aread_all() == CHEAP
    writer, reader = await message.aexchange(server.uri, TABLE.schema)
    async with writer, reader:
        await writer.awrite(TABLE.to_batches()[0])
        assert pa.Table.from_batches([pa.record_batch(await reader.__anext__())]) == CHEAP
        assert await writer.afinish() == 1
        assert [batch async for batch in reader] == []


@coroutine
async def test_a_cancelled_task_ends_the_sending_of_a_module(server):
    wasm, asked, gone = module("filter"), asyncio.Event(), asyncio.Event()

    async def silent(reader, writer):
        await reader.read(1024)
        asked.set()
        # The word that ends the request.
        await reader.read(1024)
        gone.set()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        sending = asyncio.create_task(wasm.asend(f"tcp://127.0.0.1:{port}"))
        await asked.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await gone.wait()


def test_nothing_runs_that_is_not_allowed(server):
    wasm = module("filter")
    message = functions.Message(wasm, "keep", "price>9.5")
    # Without a middleware a module is a table like others, which no handler takes.
    with pytest.raises(dipc.UnsupportedError):
        wasm.send(server.uri)
    functions.enable(server)
    with pytest.raises(dipc.PermissionError, match="does not allow the module"):
        message.get(server.uri, "prices")
    functions.enable(server, modules=[bytes(32)])
    with pytest.raises(dipc.PermissionError, match=wasm.hash.hex()):
        message.get(server.uri, "prices")
    functions.enable(server, keys=[bytes.fromhex("ea4a6c63e29c520abef5507b132ec5f9954776aebebe7b92421eea691446d22c")])
    with pytest.raises(dipc.PermissionError, match="with a signature alone"):
        wasm.send(server.uri)
    with pytest.raises(dipc.PermissionError, match="none of the server's keys"):
        functions.Module(MODULES / "filter.wasm", signature=bytes(64)).send(server.uri)
    with pytest.raises(dipc.InvalidDataError, match="refused"):
        functions.enable(server, any_module=True)
        functions.Module(b"\0asm, and no module").send(server.uri)
    assert message.get(server.uri, "prices").read_all() == CHEAP


def test_principals_are_those_of_the_authorizer():
    wasm = module("filter")
    message = functions.Message(wasm, "keep", "price>9.5")
    with served(authorizer=lambda request: request.headers.get("name", b"").decode() or None) as server:
        functions.enable(server, modules=[wasm], principals=["ann"])
        with pytest.raises(dipc.PermissionError, match="no name"):
            message.get(server.uri, "prices")
        with pytest.raises(dipc.PermissionError, match="eve"):
            message.get(server.uri, "prices", headers={"name": "eve"})
        assert message.get(server.uri, "prices", headers={"name": "ann"}).read_all() == CHEAP


def test_failures_and_bounds_end_their_call_alone(server):
    faults, filter_ = module("faults"), module("filter")
    functions.enable(server, any_module=True, limits={"output_rows": 9_980, "time": 30})
    with pytest.raises(dipc.ProviderError, match="is too much"):
        functions.Message(faults, "panics").get(server.uri, "prices").read_all()
    with pytest.raises(dipc.ProviderError, match="colour"):
        functions.Message(filter_, "keep", "colour>3").get(server.uri, "prices")
    with pytest.raises(dipc.OutOfResourcesError, match="output rows: 9980"):
        functions.Message(faults, "copies").get(server.uri, "prices").read_all()
    assert functions.Message(filter_, "keep", "price>9.5").get(server.uri, "prices").read_all() == CHEAP


def test_a_function_goes_on_at_a_peer(server):
    faults = module("faults")
    with served() as other:
        message = functions.Message(faults, "goes", f"{other.uri} prices\n{server.uri} prices\n")
        functions.enable(other, any_module=True, peers=[server.uri])
        functions.enable(server, modules=[faults], peers=["shm:@dipc-functions-python-*"])
        assert message.get(server.uri, "prices").read_all() == pa.concat_tables([TABLE] * 3)
        functions.enable(
            server, modules=[faults], peers=["shm:@dipc-functions-python-*"], limits={"hops": 1, "stall": 9}
        )
        with pytest.raises(dipc.OutOfResourcesError, match="hops to other servers"):
            message.get(server.uri, "prices").read_all()
        functions.enable(server, modules=[faults], peers=["shm:@nobody"])
        with pytest.raises(dipc.PermissionError, match=other.uri.split("?")[0]):
            message.get(server.uri, "prices").read_all()


def test_arguments_are_checked(server, tmp_path):
    wasm = module("filter")
    assert wasm.hash == hashlib.sha256((MODULES / "filter.wasm").read_bytes()).digest()
    functions.enable(server, any_module=True, folder=tmp_path / "modules", code_folder=tmp_path / "code")
    wasm.send(server.uri)
    assert [path.name for path in (tmp_path / "modules").iterdir()] == [f"{wasm.hash.hex()}.wasm"]
    for wrong in (
        {"modules": [b"short"]},
        {"keys": [b"short"]},
        {"limits": {"speed": 1}},
        {"principals": []},
        {"peers": "shm:@one"},
    ):
        with pytest.raises(dipc.InvalidArgumentError):
            functions.enable(server, **wrong)
    with pytest.raises(dipc.IoError):
        functions.enable(server, folder="/dev/null/no")
    with pytest.raises(dipc.InvalidArgumentError):
        functions.Module(b"\0asm", signature=b"short")


@pytest.mark.parametrize("junk", [b"junk", b"", b"\0as", b"(module)", bytearray(b"junk"), memoryview(b"junk")])
def test_junk_is_refused_before_it_is_sent(junk, tmp_path):
    file = tmp_path / "junk.wasm"
    file.write_bytes(junk)
    for wasm in (junk, file, str(file)):
        with pytest.raises(dipc.InvalidDataError, match="no module of WebAssembly.*give a file NAME.wasm"):
            functions.Module(wasm)


def test_functions_are_declared_as_the_header_has_them():
    text = (ROOT / "integrations/functions/include/dipc_functions.h").read_text()
    found = re.findall(r"^(?:dipc_status|void) (dipc_\w+)\(([^()]*)\);", text, flags=re.MULTILINE)
    counts = {name: parameters.count(",") for name, parameters in found}
    declared = {name: len(shape) for name, shape in functions.STATUS_FUNCTIONS.items()}
    assert {name: counts[name] for name in declared} == declared
    assert set(functions.FREE_FUNCTIONS) <= counts.keys()
    limits = re.findall(r"#define DIPC_FUNCTIONS_LIMIT_(\w+) (\d+)$", text, flags=re.MULTILINE)
    assert {name.lower().removesuffix("_ns"): int(number) for name, number in limits} == functions.LIMITS


@pytest.mark.parametrize("by", ["DIPC_LIBRARY", "LD_LIBRARY_PATH"])
def test_the_library_of_a_prefix_is_found(by):
    """As `make install-functions` has filled it: beside the libdipc that is named, or by the system's loader."""
    prefix = os.environ.get("DIPC_FUNCTIONS_PREFIX")
    if prefix is None:
        pytest.skip("DIPC_FUNCTIONS_PREFIX names no prefix")
    folder = pathlib.Path(prefix) / "lib"
    named = folder / _library.SONAME if by == "DIPC_LIBRARY" else folder
    script = "import dipc.functions; print(open('/proc/self/maps').read())"
    others = ("DIPC_LIBRARY", "DIPC_FUNCTIONS_LIBRARY")
    environment = {name: value for name, value in os.environ.items() if name not in others}
    maps = subprocess.check_output([sys.executable, "-c", script], env={**environment, by: str(named)}, text=True)
    files = {pathlib.Path(line.split()[-1]) for line in maps.splitlines() if "/libdipc" in line}
    functions_file = (folder / functions.SONAME).resolve()
    assert functions_file in files
    # The process has one libdipc.
    assert len([file for file in files if file.name.startswith("libdipc.so")]) == 1


def test_a_missing_library_is_told():
    script = "import dipc\ntry:\n    import dipc.functions\nexcept ImportError as error:\n    print(error)"
    environment = {**os.environ, "DIPC_FUNCTIONS_LIBRARY": "/nowhere/libdipc_functions.so"}
    text = subprocess.check_output([sys.executable, "-c", script], env=environment, text=True)
    assert "/nowhere/libdipc_functions.so" in text
    assert "DIPC_FUNCTIONS_LIBRARY" in text
