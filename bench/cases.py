"""What is measured: cases, and the groups in which peers take turns."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

KIB = 1 << 10
MIB = 1 << 20

SIZES = (64 * KIB, 128 * KIB, 512 * KIB, 2 * MIB, 8 * MIB, 32 * MIB)
QUICK_SIZES = (64 * KIB, 2 * MIB, 32 * MIB)
LATENCY_SIZES = (64, 4 * KIB, 64 * KIB)
QUICK_LATENCY_SIZES = (64, 64 * KIB)
# What crosses when a stream is opened and its first small batch comes: a request of less than 100 bytes, and in
# answer about 480, a schema and a header most of it.
ROUND_TRIP_BYTES = 512
# libdipc's window where nobody sets it.
DEFAULT_WINDOW_BATCHES = 16


@dataclass(frozen=True)
class Case:
    """One thing that any peer may be asked to do.

    `op` is get, put, latency, connect, describe, idle, metadata, header_build, header_read, memcpy,
    aes_128_gcm, sum, arrow_stream, socket_round_trip, tcp_connection, tls_connection, tls_resumption, shed or open.
    `reuse` asks for one buffer at both ends, which stays in the caches, where otherwise distinct batches follow each
    other: `distinct` of them, where that is given, and at least as many in each stream of a published table.
    `default_window`: libdipc's window as it is where nobody sets it; `window_batches` and `window_bytes` set it.
    `apart`: each end has processors of its own, so that one sleeps on a halted one; otherwise the system chooses.
    `consumers`: threads that take the batches of libdipc's streams by turns, where there is not one for each stream.
    `take`: how the consumer takes batches: next waits, try_next is called in an event loop.
    `pause`: seconds for which the consumer keeps each batch. `values` is int64, or bool with 8 rows to a byte.
    `fresh`: each stream of connect has a new client and a new connection, which with `resume` resumes the TLS session
    of the one before. `free_bytes` is memory that has to be free, or the case is left out.
    """

    op: str
    batch_bytes: int = 0
    columns: int = 1
    touch: str = "none"
    source: str = "published"
    streams: int = 1
    consumers: int | None = None
    spin: bool = False
    reuse: bool = False
    distinct: int | None = None
    apart: bool = False
    default_window: bool = False
    batches: int | None = None
    seconds: float = 0.5
    window_batches: int | None = None
    window_bytes: int | None = None
    pause: float = 0
    values: str = "int64"
    take: str = "next"
    free_bytes: int = 0
    fresh: bool = False
    resume: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(fields: dict[str, Any]) -> Case:
        return Case(**fields)


@dataclass(frozen=True)
class Entry:
    """A case and the name of the peer that runs it."""

    peer: str
    case: Case


@dataclass(frozen=True)
class Group:
    """Entries whose figures are compared: they take turns, so that a slow moment of the machine hits all.

    `beside`: the peers without any of which the others are not worth measuring here.
    """

    name: str
    entries: tuple[Entry, ...]
    beside: tuple[str, ...] = ()


DIPC = ("dipc shm arena", "dipc shm heap", "dipc tcp")
FLIGHT = ("Flight tcp", "Flight unix")
# With the system's congestion control, and with the one that libdipc asks for on one machine.
IPERF3 = ("iperf3", "iperf3 -C reno")
# UCX goes by tcp, as between hosts without RDMA. Between processes of one host users have shm:
# UCX's shared memory is not measured.
UCX = "dipc ucx tcp"
PERFTEST = "ucx_perftest tcp"
WALKING = "ucx walking tcp"
REFERENCE = "reference peer tcp"
# Shared memory and UCX, too: what a slow consumer makes wait is not the same on each.
SLOW = (*DIPC, UCX)
REFERENCE_SIZES = (128 * KIB, 2 * MIB, 32 * MIB)


# Connections without libdipc.
BARE_CONNECTIONS = (
    (("TCP connection",), "tcp_connection"),
    (("TLS connection",), "tls_connection"),
    (("TLS resumption",), "tls_resumption"),
)


def size_text(size: int) -> str:
    """A size as people say it: `64 KiB`."""
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def _group(name: str, *parts: tuple[tuple[str, ...], Case]) -> Group:
    return Group(name, tuple(Entry(peer, case) for peers, case in parts for peer in peers))


def _throughput(sizes: tuple[int, ...]) -> list[Group]:
    groups = []
    for size in sizes:
        untouched = Case("get", batch_bytes=size)
        summed = replace(untouched, touch="sum")
        groups.append(
            _group(
                f"throughput {size_text(size)}",
                ((*DIPC, UCX, WALKING, *FLIGHT), untouched),
                (("memcpy",), replace(untouched, op="memcpy")),
                (IPERF3 if size <= 2 * MIB else (), untouched),
                ((*DIPC, UCX, *FLIGHT), summed),
                (("sum",), replace(untouched, op="sum")),
                (("Arrow C stream",), replace(untouched, op="arrow_stream")),
            )
        )
        # One buffer at both ends, which never sleep, as ucx_perftest has it.
        reused = replace(untouched, reuse=True, spin=True)
        groups.append(_group(f"one buffer {size_text(size)}", ((UCX, PERFTEST), reused)))
    return groups


def _tls() -> list[Group]:
    """Batches inside TLS, beside the parts of which their cost is made up."""
    untouched = Case("get", batch_bytes=2 * MIB)
    connect = Case("connect", batch_bytes=64, fresh=True)
    bare = Case("tcp_connection", batch_bytes=ROUND_TRIP_BYTES)
    return [
        _group(
            "tls 2 MiB",
            (("dipc tls", "dipc tcp", "Flight tls"), untouched),
            (("memcpy",), replace(untouched, op="memcpy")),
            (("AES-128-GCM",), replace(untouched, op="aes_128_gcm")),
        ),
        # What TLS adds to a connection of ours, beside what it adds to one of two programs that only have rustls.
        _group(
            "tls connection",
            (("dipc tls", "dipc tcp"), connect),
            (("dipc tls",), replace(connect, resume=True)),
            *((peer, replace(bare, op=op)) for peer, op in BARE_CONNECTIONS),
        ),
    ]


def _shed() -> list[Group]:
    """What a busy server spends on requests that it refuses, beside those that it serves."""
    return [_group("shed requests", (("dipc shm arena", "dipc tcp"), Case("shed", batch_bytes=64)))]


def _open() -> list[Group]:
    """New streams of one small batch, so many at once, beside those that Flight opens in the same run."""
    peers = ("dipc shm arena", "dipc tcp", "dipc tls", UCX)
    opened = Case("open", batch_bytes=64, seconds=2)
    return [_group("opened streams", *((peers, replace(opened, streams=count)) for count in (1, 64, 1_000)))]


def _latency(sizes: tuple[int, ...]) -> list[Group]:
    groups = []
    for size in sizes:
        asleep = Case("latency", batch_bytes=size)
        spinning = replace(asleep, spin=True)
        groups.append(_group(f"latency asleep {size_text(size)}", ((*DIPC, UCX, *FLIGHT), asleep)))
        groups.append(_group(f"latency spinning {size_text(size)}", ((*DIPC, UCX, PERFTEST), spinning)))
    connect = Case("connect", batch_bytes=64)
    groups.append(
        _group(
            "first batch of a stream",
            (("dipc shm arena", "dipc tcp", UCX, *FLIGHT), connect),
            (("dipc shm arena", "dipc tcp"), replace(connect, source="provider")),
            (("socket",), Case("socket_round_trip", batch_bytes=ROUND_TRIP_BYTES)),
        )
    )
    # The system may put both ends on one processor, where waking costs a twentieth of what it costs elsewhere.
    apart = replace(connect, apart=True)
    groups.append(
        _group(
            "first batch of a stream, processors apart",
            (("dipc shm arena",), apart),
            (("dipc shm arena",), replace(apart, source="provider")),
            (("socket",), Case("socket_round_trip", batch_bytes=ROUND_TRIP_BYTES, apart=True)),
        )
    )
    groups.append(
        _group(
            "first batch of a stream, spinning",
            (("dipc shm arena", "dipc tcp", UCX), replace(connect, spin=True)),
        )
    )
    return groups


def _metadata(columns: tuple[int, ...]) -> list[Group]:
    peers = ("dipc shm arena", "dipc tcp", *FLIGHT, "pyarrow IPC write", "pyarrow IPC read")
    return [
        _group(f"metadata {count} columns", (peers, Case("metadata", batch_bytes=8 * count, columns=count)))
        for count in columns
    ]


def _headers(columns: tuple[int, ...]) -> list[Group]:
    peers = ("dipc header", "arrow-rs header")
    return [
        _group(
            f"header {count} columns",
            *((peers, Case(op, batch_bytes=8 * count, columns=count)) for op in ("header_build", "header_read")),
        )
        for count in columns
    ]


def _shape(*, quick: bool) -> list[Group]:
    """Many of something."""
    small = Case("get", batch_bytes=64 * KIB)
    lasting = small if quick else replace(small, seconds=2)
    shared = ("dipc shm arena", "dipc shm heap", "dipc tcp")
    tiny = Case("get", batch_bytes=64)
    # As many in a stream as 1,000 columns have by themselves: a stream's schema costs each column some 20 times what a
    # batch does, and is read for 26 batches where there are 10,000.
    wide = Case("metadata", distinct=262)
    return [
        # 65,520 bytes are 819 rows of ten columns.
        _group(
            "ten columns",
            (("dipc shm arena", *FLIGHT), replace(small, batch_bytes=65_520, columns=10)),
            (("dipc shm arena",), replace(small, batch_bytes=65_520, columns=10, default_window=True)),
        ),
        # One stream as everywhere, with the wide window, and with the default one, which each of the many has where
        # bodies are copied. All for so long that the memory of 256 windows, which is there once, is a small part.
        _group(
            "256 streams",
            (shared, replace(lasting, streams=256)),
            (("dipc shm arena",), replace(lasting, streams=256, consumers=1)),
            (("dipc shm arena",), replace(lasting, streams=256, default_window=True)),
            (shared, lasting),
            (shared, replace(lasting, default_window=True)),
            # One with as much memory for its copies as all of them have.
            (("dipc shm heap",), replace(lasting, window_batches=256 * DEFAULT_WINDOW_BATCHES)),
        ),
        _group(
            "tiny batches",
            (("dipc shm arena",), replace(tiny, batches=100_000)),
            # Seconds each, where a batch takes microseconds.
            ((), tiny) if quick else (("dipc shm arena",), replace(tiny, batches=1_000_000)),
        ),
        _group(
            "10,000 columns",
            (("dipc shm arena",), replace(wide, batch_bytes=8_000, columns=1_000)),
            (("dipc shm arena",), replace(wide, batch_bytes=80_000, columns=10_000, free_bytes=2 << 30)),
        ),
        _group(
            "1,000 idle streams",
            (("dipc shm arena", "dipc tcp"), Case("idle", batch_bytes=64, streams=1_000, seconds=2)),
        ),
        _group(
            "5,000 streams pushed by one thread",
            (("dipc shm arena", "dipc tcp"), Case("idle", batch_bytes=64, streams=5_000, source="push", seconds=2)),
        ),
    ]


def _reference(sizes: tuple[int, ...]) -> list[Group]:
    """UCX with the reference peer's own client and server beside it."""
    return [
        Group(
            f"reference peer {size_text(size)}",
            tuple(Entry(peer, Case("get", batch_bytes=size)) for peer in (UCX, REFERENCE)),
            beside=(REFERENCE,),
        )
        for size in sizes
    ]


def _requests() -> list[Group]:
    """put beside get, an event loop beside a call that waits, a description beside a first batch."""
    groups = []
    for size in REFERENCE_SIZES:
        get = Case("get", batch_bytes=size)
        peers = (*DIPC, *FLIGHT)
        groups.append(_group(f"put {size_text(size)}", (DIPC, get), (peers, replace(get, op="put"))))
    small = Case("get", batch_bytes=64 * KIB)
    arena = ("dipc shm arena",)
    groups.append(_group("event loop 64 KiB", (arena, small), (arena, replace(small, take="try_next"))))
    asked = Case("connect", batch_bytes=64)
    both = ("dipc shm arena", "dipc tcp")
    groups.append(_group("description", (both, asked), (both, replace(asked, op="describe"))))
    return groups


def _slow_consumer() -> list[Group]:
    """What a consumer that pauses holds up, beside a stream with room for one batch in which nothing happens."""
    size = 4 * MIB
    # One buffer, so that the batches themselves take next to nothing.
    slow = Case("get", batch_bytes=size, reuse=True, batches=60, pause=0.01, window_batches=128, window_bytes=16 * size)
    idle = Case("idle", batch_bytes=size, reuse=True, seconds=0.2, window_batches=1, window_bytes=size)
    return [_group("slow consumer", (SLOW, slow), (SLOW, idle))]


def _long() -> list[Group]:
    """One column of bits, as long as 32-bit row numbers go and longer than signed ones do, and an eighth of that."""
    many = Case("get", batch_bytes=256 * MIB, values="bool", batches=8, free_bytes=4 << 30)
    return [_group("2^31 rows", (DIPC, many), (DIPC, replace(many, batch_bytes=32 * MIB, batches=64)))]


def matrix(*, quick: bool) -> list[Group]:
    """All groups of a run, in the order in which they are measured."""
    groups = [
        *_throughput(QUICK_SIZES if quick else SIZES),
        *_tls(),
        *_latency(QUICK_LATENCY_SIZES if quick else LATENCY_SIZES),
        *_metadata((10, 1_000) if quick else (10, 100, 1_000)),
        *_headers((1_000,) if quick else (10, 1_000)),
        *_shape(quick=quick),
        *_requests(),
        *_shed(),
        *_open(),
        *_slow_consumer(),
        *_long(),
        *_reference((2 * MIB,) if quick else REFERENCE_SIZES),
    ]
    # Each run also starts processes and fills memory, so that less than this saves nothing. What says how long it takes
    # keeps that.
    seconds = 0.2 if quick else 0.3
    return [
        replace(
            group,
            entries=tuple(
                entry
                if entry.case.seconds != Case.seconds
                else replace(entry, case=replace(entry.case, seconds=seconds))
                for entry in group.entries
            ),
        )
        for group in groups
    ]
