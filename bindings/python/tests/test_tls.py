"""Certificates, over tls."""

from __future__ import annotations

import shutil
import subprocess

import pytest

import dipc
from conftest import ROOT, table


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not there")
    folder = tmp_path_factory.mktemp("pki")
    subprocess.run([ROOT / "tests/certificates.sh", folder], check=True)
    return folder


def test_both_ends_show_certificates(pki):
    peers = []

    def provide(request):
        peers.append(request.peer)
        return table(10)

    with dipc.Server(tls=(pki / "server.pem", pki / "server.key"), tls_client_ca=pki / "ca.pem") as server:
        uri = server.listen("tls://127.0.0.1:0")
        server.serve("table", provide)
        alice = dipc.Client(tls_ca=pki / "ca.pem", tls=(pki / "alice.pem", pki / "alice.key"))
        for _ in range(2):
            assert alice.get(uri, "table").read_all() == table(10)
            server.reload_tls()
        with pytest.raises(dipc.PermissionError, match="asks for this side's certificate"):
            dipc.Client(tls_ca=pki / "ca.pem").get(uri, "table")
        with pytest.raises(dipc.PermissionError, match="not trusted here"):
            dipc.get(uri, "table")
        with pytest.raises(dipc.PermissionError, match="not for elsewhere"):
            dipc.Client(tls_ca=pki / "ca.pem", tls_server_name="elsewhere").get(uri, "table")
    certificate = peers[0].certificate
    assert (peers[0].transport, certificate.subject) == ("tls", "CN=alice")
    assert certificate.names == ["IP:127.0.0.1", "DNS:alice.example"]
    assert len(certificate.fingerprint) == 64


def test_files_that_are_of_no_use(pki):
    missing = (pki / "nowhere.pem", pki / "server.key")
    with dipc.Server(tls=missing) as server, pytest.raises(dipc.NotFoundError, match="nowhere"):
        server.listen("tls://127.0.0.1:0")
    with dipc.Server() as server, pytest.raises(dipc.InvalidArgumentError, match="needs a certificate"):
        server.listen("tls://127.0.0.1:0")
    with pytest.raises(TypeError, match="two paths"):
        dipc.Server(tls="server.pem")
    with pytest.raises(dipc.InvalidArgumentError, match="NUL"):
        dipc.Client(tls_ca="a\0b")
