"""Functions of WebAssembly that travel to the tables of a server.

    dipc.functions.enable(server, modules=[module.hash])            # the server
    server.publish("prices", table)

    module = dipc.functions.Module("filter.wasm")                   # the client
    message = dipc.functions.Message(module, "keep", b"price>9.5")
    table = message.get(uri, "prices").read_all()

Needs the shared library libdipc_functions. The first of these that is there is taken: the file that the environment
variable ``DIPC_FUNCTIONS_LIBRARY`` names (nothing else is tried then), the file beside libdipc, and what the system's
loader finds. ``make install-functions`` puts it beside an installed libdipc, which ``DIPC_LIBRARY`` can name.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
from collections.abc import Awaitable, Iterable, Mapping
from ctypes import POINTER, c_bool, c_char_p, c_int32, c_size_t, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any, Callable, TypeVar

from . import _abi, _arguments, _errors, _headers, _library, _wait
from ._arguments import Data, Device, Path, Ticket, Uris
from ._cancel import Cancel, Token
from ._client import Client, aput_whole, put_whole, shared_client
from ._handle import Handle, make
from ._headers import Headers, HeadersLike
from ._library import LibraryError
from ._options import ExchangeOptions, GetOptions, PutOptions
from ._put import Taken, Writer
from ._reader import Batch, Reader
from ._schema import Schema
from ._server import Server

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Message", "Module", "enable"]

T = TypeVar("T")

SONAME = f"libdipc_functions.so.{_library.VERSION[0]}.{_library.VERSION[1]}"
VARIABLE = "DIPC_FUNCTIONS_LIBRARY"

# What dipc_functions.h declares: the arguments less the `dipc_error **`. A test compares them with the header.
P, SIZE, OUT, TEXT, BYTES = c_void_p, c_size_t, c_void_p, c_char_p, c_char_p
STATUS_FUNCTIONS: dict[str, list[Any]] = {
    "dipc_functions_policy_new": [OUT],
    "dipc_functions_policy_allow_module": [P, BYTES],
    "dipc_functions_policy_allow_key": [P, BYTES],
    "dipc_functions_policy_allow_any_module": [P],
    "dipc_functions_policy_allow_principal": [P, TEXT],
    "dipc_functions_policy_allow_peer": [P, TEXT],
    "dipc_functions_policy_set_limit": [P, c_int32, c_uint64],
    "dipc_functions_policy_set_folder": [P, TEXT],
    "dipc_functions_policy_set_code_folder": [P, TEXT],
    "dipc_functions_enable": [P, P],
    "dipc_function_module_new": [BYTES, SIZE, OUT],
    "dipc_function_module_hash": [P, OUT],
    "dipc_function_module_set_signature": [P, BYTES, SIZE],
    "dipc_function_send_module": [P, P, OUT, SIZE, P, P, P],
    "dipc_function_message_new": [P, TEXT, BYTES, SIZE, OUT],
    "dipc_function_message_headers": [P, c_bool, P],
}
FREE_FUNCTIONS = ("dipc_functions_policy_free", "dipc_function_module_free", "dipc_function_message_free")

LIMITS = {
    "fuel": 1, "time": 2, "memory_bytes": 3, "output_rows": 4, "output_bytes": 5, "step_bytes": 6, "module_bytes": 7,
    "modules": 8, "modules_bytes": 9, "folder_bytes": 10, "hops": 11, "stall": 12,
}  # fmt: skip


def _places() -> list[str]:
    named = os.environ.get(VARIABLE)
    if named:
        return [named]
    beside = pathlib.Path(_library.path).parent / SONAME
    return [str(beside)] * ("/" in _library.path) + [SONAME]


def _load() -> ctypes.CDLL:
    tried = []
    for place in _places():
        try:
            return ctypes.CDLL(place)
        except OSError as error:
            tried.append(f"{place}: {error}")
    raise LibraryError(
        "libdipc_functions was not found. Tried:\n  "
        + "\n  ".join(tried)
        + f"\nInstall it beside libdipc (make install-functions), or let {VARIABLE} name the file {SONAME}."
    )


_functions = _load()


def _declared(name: str, result: Any, arguments: list[Any]) -> Callable[..., Any]:
    try:
        function = getattr(_functions, name)
    except AttributeError:
        raise LibraryError(f"{_functions._name} has no {name}(): install it together with this package") from None
    function.restype, function.argtypes = result, arguments
    return function  # type: ignore[no-any-return]


_status = {name: _declared(name, c_int32, [*shape, c_void_p]) for name, shape in STATUS_FUNCTIONS.items()}
_free = {name: _declared(name, None, [P]) for name in FREE_FUNCTIONS}


def _checked(name: str) -> Callable[..., int]:
    """A function that raises what fails. It runs without the GIL."""
    function = _status[name]

    def call(*arguments: Any) -> int:
        error = c_void_p()
        status: int = function(*arguments, ctypes.byref(error))
        if status < 0:
            raise _library.raised(error, status)
        return status

    return call


def _made(what: str, kind: str, *arguments: Any) -> Handle:
    return make(what, _checked(f"dipc_{kind}_new"), _free[f"dipc_{kind}_free"], *arguments)


def _exactly(value: Data, length: int, name: str) -> bytes:
    found = _arguments.data_bytes(value, name)
    if len(found) != length:
        raise _errors.InvalidArgumentError(f"{name} has {len(found)} bytes, not {length}")
    return found


def enable(
    server: Server,
    *,
    modules: Iterable[Module | bytes] = (),
    keys: Iterable[bytes] = (),
    any_module: bool = False,
    principals: Iterable[str] | None = None,
    peers: Iterable[str] = (),
    limits: Mapping[str, float] | None = None,
    folder: Path | None = None,
    code_folder: Path | None = None,
) -> None:
    """Lets clients of a server run functions on its tables, published or of a Python function (:meth:`Server.serve`,
    :meth:`Server.set_handler`), on tables that they put or exchange, and alone.

    A further call replaces the settings of the first one.

    :param modules: Modules that may run: each a :class:`Module`, or its hash, 32 bytes.
    :param keys: Public keys of Ed25519, 32 bytes each: a module that the owner of one has signed may run too.
    :param any_module: Every module may run: then only the sandbox protects this machine from its code.
    :param principals: Names of the clients that may ask, as the server's authorizer gives them; by default every client
        that the server admits.
    :param peers: Servers where a function may have its call go on: URIs, whose parameters do not matter, or, with ``*``
        at the end, all that begin so. A function chooses among them, and this server asks them in its own name.
    :param limits: Bounds by name. For one call: "fuel" (about one for each instruction), "time" (seconds inside the
        module), "memory_bytes", "output_rows", "output_bytes", "step_bytes" (output of one batch), "hops" (how often
        it may go on at another server), "stall" (seconds that such a server may send nothing). For modules:
        "module_bytes" (of one), "modules" and "modules_bytes" (compiled ones in memory), "folder_bytes".
    :param folder: A folder for modules, which outlive the process there.
    :param code_folder: A folder for compiled code. It runs unchecked: nobody but the server's user may write there.
    :raises UnsupportedError: this machine cannot run a sandbox.
    :raises IoError: a folder cannot be used.
    """
    with _made("policy", "functions_policy") as policy:
        for module in modules:
            hash_ = module.hash if isinstance(module, Module) else _exactly(module, 32, "the hash of a module")
            _checked("dipc_functions_policy_allow_module")(policy, hash_)
        for key in keys:
            _checked("dipc_functions_policy_allow_key")(policy, _exactly(key, 32, "a key"))
        if any_module:
            _checked("dipc_functions_policy_allow_any_module")(policy)
        if principals is not None:
            names = list(principals)
            if isinstance(principals, str) or not names:
                raise _errors.InvalidArgumentError("principals is a list of one name or more")
            for name in names:
                _checked("dipc_functions_policy_allow_principal")(policy, _arguments.text_bytes(name, "a principal"))
        if isinstance(peers, str):
            raise _errors.InvalidArgumentError("peers is a list of URIs")
        for peer in peers:
            _checked("dipc_functions_policy_allow_peer")(policy, _arguments.text_bytes(peer, "a peer"))
        for name, value in (limits or {}).items():
            which = _arguments.choice(name, "a limit", LIMITS)
            is_time = name in ("time", "stall")
            number = _arguments.nanoseconds(value, name) if is_time else _arguments.count(int(value), name)
            _checked("dipc_functions_policy_set_limit")(policy, which, number)
        for setter, path in (("set_folder", folder), ("set_code_folder", code_folder)):
            if path is not None:
                _checked(f"dipc_functions_policy_{setter}")(policy, os.fsencode(path))
        with server._handle as pointer:
            _checked("dipc_functions_enable")(pointer, policy)


class Module:
    """A module of WebAssembly, as a client has it. It does not change, and any thread may use it.

    :param wasm: Its bytes, or the path of its file. Only how they begin is checked here; the server checks the rest.
    :param signature: 64 bytes, for servers that allow modules by a key: a signature of Ed25519 over
        ``b"libdipc function module 1\\0"`` and the hash.
    """

    hash: bytes
    """The SHA-256 of the bytes, which names the module."""

    def __init__(self, wasm: bytes | Path, *, signature: bytes | None = None) -> None:
        if not isinstance(wasm, (bytes, bytearray, memoryview)):
            wasm = pathlib.Path(wasm).read_bytes()
        wasm = bytes(wasm)
        if not wasm.startswith(b"\0asm"):
            raise _errors.InvalidDataError(
                "the bytes are no module of WebAssembly, which begins with \\0asm: give a file NAME.wasm, compiled"
            )
        self._handle = _made("module", "function_module", wasm, len(wasm))
        out = ctypes.create_string_buffer(32)
        with self._handle as pointer:
            _checked("dipc_function_module_hash")(pointer, out)
            if signature is not None:
                signed = _exactly(signature, 64, "the signature")
                _checked("dipc_function_module_set_signature")(pointer, signed, len(signed))
        self.hash = out.raw

    def send(
        self, uri: Uris, *, client: Client | None = None, headers: HeadersLike = (), cancel: Cancel | None = None
    ) -> None:
        """Sends the module to a server, which compiles and keeps it. A :class:`Message` does so itself.

        :param client: The client that sends it; by default the client of :func:`dipc.get`.
        :param headers: Headers for the server's authorizer.
        :param cancel: Ends the call from another thread.
        :raises PermissionError: the server does not allow the module, or this client.
        :raises InvalidDataError: no sandbox takes it.
        :raises UnsupportedError: the server runs no functions.
        """
        _wait.call(*self._sending(uri, client, headers, cancel))

    async def asend(
        self, uri: Uris, *, client: Client | None = None, headers: HeadersLike = (), cancel: Cancel | None = None
    ) -> None:
        """:meth:`send` for coroutines, on a helper thread: cancelling the task cancels the call."""
        await _wait.acall(*self._sending(uri, client, headers, cancel))

    def _sending(
        self, uri: Uris, client: Client | None, headers: HeadersLike, cancel: Cancel | None
    ) -> tuple[Callable[[], None], Callable[[], None]]:
        """A call that sends the module and waits, and one that ends it."""
        uris, sender, own = _arguments.uris_bytes(uri), client or shared_client(), Headers(headers)
        array = (c_char_p * len(uris))(*uris)
        token = Token()
        if cancel is not None:
            cancel.link(token)

        def send() -> None:
            with self._handle as module, sender._handle as pointer, own.handle() as added, token.handle as ends:
                _checked("dipc_function_send_module")(module, pointer, array, len(uris), None, added, ends)

        return send, token.trigger

    def __repr__(self) -> str:
        return f"<dipc.functions.Module {self.hash.hex()}>"


class Message:
    """A function of a module, with arguments, on its way to a server.

    It can be sent any number of times, to any servers. If a server lacks the module, the message sends it and asks
    again, once. The `client` of each call is the one that asks; by default the client of :func:`dipc.get`.

    :param module: Where the function is.
    :param function: Its name.
    :param arguments: Bytes for it; text is taken as UTF-8. With a request's other headers they have at most 64 KiB.
    """

    def __init__(self, module: Module, function: str, arguments: Data = b"") -> None:
        self.module: Module = module
        self.function: str = function
        name, data = _arguments.text_bytes(function, "a function"), _arguments.data_bytes(arguments, "arguments")
        with module._handle as pointer:
            self._handle = _made("message", "function_message", pointer, name, data, len(data))

    def headers(self, *, alone: bool = False) -> Headers:
        """Headers that make another request of this package, such as :meth:`Client.open_put`, run the function. Call
        :meth:`Module.send` before.

        :param alone: The function runs without a table, by a get.
        """
        with self._handle as pointer:
            return _headers.read(lambda out: self._fill(pointer, alone, out))

    def _fill(self, pointer: c_void_p, alone: bool, out: Any) -> int:
        made = c_void_p()
        _library.checked("dipc_headers_new")(ctypes.byref(made))
        try:
            _checked("dipc_function_message_headers")(pointer, alone, made)
        except BaseException:
            _library.plain("dipc_headers_free")(made)
            raise
        ctypes.cast(out, ctypes.POINTER(c_void_p))[0] = made.value
        return 0

    def get(self, uri: Uris, ticket: Ticket, *, client: Client | None = None, **options: Unpack[GetOptions]) -> Reader:
        """Gets what the function makes of a server's table. The options are those of :func:`dipc.get`; columns, filter
        and rows are of the function's output.

        :raises PermissionError: the server does not allow it.
        :raises ProviderError: the function failed, with its text; also while the reader is read.
        :raises OutOfResourcesError: it reached a limit; also while the reader is read.
        :raises UnsupportedError: the server runs no functions, or not on this table.
        """
        return self._get(uri, ticket, False, client, options)

    async def aget(
        self, uri: Uris, ticket: Ticket, *, client: Client | None = None, **options: Unpack[GetOptions]
    ) -> Reader:
        """:meth:`get` for coroutines, on the running loop: cancelling the task cancels the call."""
        return await self._aget(uri, ticket, False, client, options)

    def run(self, uri: Uris, *, client: Client | None = None, **options: Unpack[GetOptions]) -> Reader:
        """Runs the function alone, and gives the batches that it puts out. Raises as :meth:`get`."""
        return self._get(uri, b"", True, client, options)

    async def arun(self, uri: Uris, *, client: Client | None = None, **options: Unpack[GetOptions]) -> Reader:
        """:meth:`run` for coroutines, on the running loop: cancelling the task cancels the call."""
        return await self._aget(uri, b"", True, client, options)

    def call(self, uri: Uris, *, client: Client | None = None, **options: Unpack[GetOptions]) -> bytes:
        """Runs the function alone, and gives the bytes that it puts out, one after another. Raises as :meth:`get`.

        :raises InvalidDataError: the function puts out batches.
        """
        with self._get(uri, b"", True, client, options) as reader:
            _ensure_bytes(reader.schema)
            return b"".join(_bytes(batch) for batch in reader)

    async def acall(self, uri: Uris, *, client: Client | None = None, **options: Unpack[GetOptions]) -> bytes:
        """:meth:`call` for coroutines, on the running loop: cancelling the task cancels the call."""
        async with await self._aget(uri, b"", True, client, options) as reader:
            _ensure_bytes(reader.schema)
            return b"".join([_bytes(batch) async for batch in reader])

    def put(
        self, uri: str, descriptor: Ticket, table: Any, *, client: Client | None = None, **options: Unpack[PutOptions]
    ) -> Taken:
        """Puts a table, which goes through the function before the server's host has it. The options are those of
        :func:`dipc.put`; a table that can be read only once is not read before the server has the module.

        :raises DipcError: as :meth:`get` and :func:`dipc.put`.
        """
        sender = client or shared_client()

        def opened(schema: Schema, device: int) -> Writer:
            return self._asked(
                uri, sender, options, lambda given: sender._open(uri, descriptor, schema, device, given).call()
            )

        return put_whole(table, opened)

    async def aput(
        self, uri: str, descriptor: Ticket, table: Any, *, client: Client | None = None, **options: Unpack[PutOptions]
    ) -> Taken:
        """:meth:`put` for coroutines; `table` may also be an async iterable of batches.

        Cancelling the task fails the table.
        """
        sender = client or shared_client()

        async def opened(schema: Schema, device: int) -> Writer:
            return await self._aasked(
                uri, sender, options, lambda given: sender._open(uri, descriptor, schema, device, given).acall()
            )

        return await aput_whole(table, opened)

    def exchange(
        self,
        uri: str,
        schema: Any,
        *,
        device: Device = "cpu",
        client: Client | None = None,
        **options: Unpack[ExchangeOptions],
    ) -> tuple[Writer, Reader]:
        """Sends a table of a schema, batch by batch, and receives the function's output, which answers each batch as it
        comes. The rest is as for :meth:`Client.exchange`.

        :raises DipcError: as :meth:`get` and :meth:`Client.exchange`. A later failure of the function is raised by both
            tables.
        """
        sender = client or shared_client()
        return self._asked(uri, sender, options, lambda given: sender._exchange(uri, b"", schema, device, given).call())

    async def aexchange(
        self,
        uri: str,
        schema: Any,
        *,
        device: Device = "cpu",
        client: Client | None = None,
        **options: Unpack[ExchangeOptions],
    ) -> tuple[Writer, Reader]:
        """:meth:`exchange` for coroutines."""
        sender = client or shared_client()
        return await self._aasked(
            uri, sender, options, lambda given: sender._exchange(uri, b"", schema, device, given).acall()
        )

    def _get(self, uri: Uris, ticket: Ticket, alone: bool, client: Client | None, options: Any) -> Reader:
        sender = client or shared_client()
        return self._asked(uri, sender, options, lambda given: sender.get(uri, ticket, **given), alone)

    async def _aget(self, uri: Uris, ticket: Ticket, alone: bool, client: Client | None, options: Any) -> Reader:
        sender = client or shared_client()
        return await self._aasked(uri, sender, options, lambda given: sender.aget(uri, ticket, **given), alone)

    def _asked(self, uri: Uris, client: Client, options: Any, ask: Callable[[Any], T], alone: bool = False) -> T:
        """Asks, and sends the module first if the server may lack it. A server that says NotFoundError lacks the module
        or the table: the second answer tells which."""
        own, given = self._given(options, alone)
        try:
            return ask(given)
        except _errors.NotFoundError:
            self.module.send(uri, client=client, headers=own, cancel=options.get("cancel"))
        return ask(given)

    async def _aasked(
        self, uri: Uris, client: Client, options: Any, ask: Callable[[Any], Awaitable[T]], alone: bool = False
    ) -> T:
        own, given = self._given(options, alone)
        try:
            return await ask(given)
        except _errors.NotFoundError:
            await self.module.asend(uri, client=client, headers=own, cancel=options.get("cancel"))
        return await ask(given)

    def _given(self, options: Any, alone: bool) -> tuple[Headers, Any]:
        """The caller's own headers, and the options with those that ask for the function."""
        own = Headers(options.get("headers", ()))
        return own, {**options, "headers": Headers([*own.pairs, *self.headers(alone=alone).pairs])}

    def __repr__(self) -> str:
        return f"<dipc.functions.Message {self.function!r} of {self.module!r}>"


def _ensure_bytes(schema: Schema) -> None:
    if [column.format for column in schema.children] != ["z"]:
        raise _errors.InvalidDataError("the function puts out batches, not bytes: use Message.run")


def _bytes(batch: Batch) -> bytes:
    """The values of a column of binary without nulls, one after another."""
    struct = batch.export()
    try:
        column = ctypes.cast(struct.array.children, POINTER(POINTER(_abi.ArrowArray)))[0][0]
        buffers = ctypes.cast(column.buffers, POINTER(c_void_p))
        offsets = ctypes.cast(buffers[1] or 0, POINTER(c_int32))
        first = struct.array.offset + column.offset
        start, end = (offsets[first], offsets[first + batch.num_rows]) if batch.num_rows else (0, 0)
        return ctypes.string_at((buffers[2] or 0) + start, end - start) if end > start else b""
    finally:
        _abi.release(struct)
