"""Which peers there are, and by what names cases ask for them."""

from __future__ import annotations

from pathlib import Path

from bench.peers import Peer
from bench.peers.dipc import Dipc, Machine
from bench.peers.flight import Flight
from bench.peers.header import Header
from bench.peers.ipc import ArrowIpc
from bench.peers.iperf3 import Iperf3
from bench.peers.reference import Reference
from bench.peers.ucx import Perftest, Walk


def all_peers(dipc: Path, reference: Path | None = None) -> dict[str, Peer]:
    """Every peer by its name. `dipc` is the command that is measured, `reference` the folder of the reference peer."""
    peers: list[Peer] = [
        Dipc("dipc shm arena", dipc, "shm", "arena"),
        Dipc("dipc shm heap", dipc, "shm", "heap"),
        Dipc("dipc tcp", dipc, "tcp", "heap"),
        Dipc("dipc tls", dipc, "tls", "heap"),
        Dipc("dipc ucx tcp", dipc, "ucx", "heap"),
        Walk(),
        Perftest(),
        Reference(reference),
        Flight("Flight tcp", "grpc://127.0.0.1:0"),
        Flight("Flight unix", "grpc+unix"),
        Flight("Flight tls", "grpc+tls://127.0.0.1:0"),
        Iperf3(),
        # What libdipc asks of the system on one machine.
        Iperf3("reno"),
        Machine("memcpy", dipc, "memcpy"),
        Machine("sum", dipc, "sum"),
        Machine("Arrow C stream", dipc, "arrow_stream"),
        Machine("socket", dipc, "socket_round_trip"),
        Machine("AES-128-GCM", dipc, "aes_128_gcm"),
        Machine("TCP connection", dipc, "tcp_connection"),
        Machine("TLS connection", dipc, "tls_connection"),
        Machine("TLS resumption", dipc, "tls_resumption"),
        ArrowIpc("write"),
        ArrowIpc("read"),
        Header("dipc"),
        Header("arrow-rs"),
    ]
    return {peer.name: peer for peer in peers}
