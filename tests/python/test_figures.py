"""The figures of a server, as Prometheus' own client library reads them."""

import os
import time

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families

import dipc

ODD = 'a "ticket"\\with\nall'
ROWS = 1000


def finished(server, requests):
    """Waits until so many requests have ended: the server notes an end behind its client."""
    until = time.monotonic() + 60
    while server.stats.requests_finished < requests:
        assert time.monotonic() < until
        time.sleep(0.001)
    return {family.name: family for family in text_string_to_metric_families(server.stats_text)}


def test_prometheus_reads_the_text():
    """Every family has a type and a help, labels come back as they were, and the buckets of each histogram rise
    to its count."""
    table = pa.table({"a": list(range(ROWS))})
    with dipc.Server() as server:
        uri = server.listen(f"shm:@dipc-figures-{os.getpid()}")
        server.publish(ODD, table)
        with pytest.raises(dipc.NotFoundError):
            dipc.get(uri, "nowhere")

        def take(request):
            request.set_label("taken")
            pa.table(request.source())

        server.set_handler(put=take)
        for _ in range(3):
            assert pa.table(dipc.get(uri, ODD)).num_rows == ROWS
        dipc.put(uri, "a descriptor", table)
        families = finished(server, 4)
    samples = {}
    for family in families.values():
        assert family.name.startswith("dipc_")
        assert family.documentation
        assert family.type in ("counter", "gauge", "histogram")
        for sample in family.samples:
            key = (sample.name, *sorted(sample.labels.items()))
            assert key not in samples, "a series occurs once"
            samples[key] = sample.value
    assert samples["dipc_rows_sent_total", ("ticket", ODD)] == 3 * ROWS
    assert samples["dipc_rows_received_total", ("ticket", "taken")] == ROWS
    assert samples["dipc_requests_total", ("ticket", ODD), ("verb", "get")] == 3
    assert samples["dipc_requests_refused_total", ("status", "DIPC_ERR_NOT_FOUND")] == 1
    for name, count in (("first_batch_seconds", 3), ("batch_hand_over_seconds", 3), ("request_bytes", 3)):
        of_ticket = [it for it in families[f"dipc_{name}"].samples if it.labels["ticket"] == ODD]
        bounds = [(float(it.labels["le"]), it.value) for it in of_ticket if it.name.endswith("_bucket")]
        assert bounds == sorted(bounds)
        assert [value for _, value in bounds] == sorted(value for _, value in bounds)
        assert bounds[-1] == (float("inf"), count)
        assert samples[f"dipc_{name}_count", ("ticket", ODD)] == count
        mean = samples[f"dipc_{name}_sum", ("ticket", ODD)] / count
        # The mean lies between the least and the largest bound that counts.
        least = min(bound for bound, value in bounds if value > 0)
        most = min(bound for bound, value in bounds if value == count)
        assert least / 4 <= mean <= most
