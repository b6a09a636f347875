"""The library's log in Python's ``logging``."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

import dipc
from conftest import WAIT, new_address, table, threads

ROWS = 10


@pytest.fixture
def heard():
    """A handler of the root logger, whose list has what came."""
    records = []

    class Keeps(logging.Handler):
        def emit(self, record):
            records.append(record)

    handler = Keeps()
    logging.getLogger().addHandler(handler)
    try:
        yield records
    finally:
        logging.getLogger().removeHandler(handler)
        dipc.refresh_log()


@pytest.fixture
def level():
    """Sets levels of loggers, until the end of the test."""
    with pytest.MonkeyPatch.context() as patch:

        def set_level(name, level):
            logger = logging.getLogger(name)
            # Like setLevel(), whose cache is cleared below.
            patch.setattr(logger, "level", level)
            logger.manager._clear_cache()

        yield set_level
    logging.getLogger().manager._clear_cache()
    dipc.refresh_log()


def names(records):
    dipc._log.flush()
    return {(record.name, record.levelno) for record in records if record.name.startswith("dipc.")}


def test_targets_are_loggers_and_levels_are_pythons(heard, level):
    """`dipc::audit` at INFO is the logger dipc.audit at INFO, and a percent sign of a peer is no format."""
    level("dipc", logging.INFO)
    with dipc.Server() as server:
        uri = server.listen(new_address())
        server.publish("100%s", table(ROWS))
        dipc.get(uri, "100%s").read_all()
    found = names(heard)
    assert ("dipc.audit", logging.INFO) in found
    assert not any(number < logging.INFO for _, number in found)
    [audit] = [record for record in heard if record.name == "dipc.audit" and "100%s" in record.getMessage()]
    assert "DIPC_OK" in audit.getMessage()
    assert audit.levelname == "INFO"


def test_levels_are_followed(heard, level):
    """A level that changes counts from the next request on: nothing more detailed is asked for before."""
    level("dipc", logging.ERROR)
    with dipc.Server() as server:
        uri = server.listen(new_address())
        server.publish("x", table(ROWS))
        dipc.get(uri, "x").read_all()
        assert names(heard) == set()
        level("dipc", dipc._log.TRACE)
        dipc.get(uri, "x").read_all()
        assert {number for _, number in names(heard)} >= {dipc._log.TRACE, logging.DEBUG, logging.INFO}
        level("dipc", logging.CRITICAL)
        dipc.get(uri, "x").read_all()
        dipc._log.flush()
        before = len(heard)
        dipc.get(uri, "x").read_all()
        dipc._log.flush()
        assert len(heard) == before


def test_levels_below_count_when_asked_to(heard, level):
    """The level of dipc.audit alone: the library is asked for INFO, and other loggers give what they gave before."""
    level("dipc", logging.ERROR)
    with dipc.Server() as server:
        uri = server.listen(new_address())
        server.publish("x", table(ROWS))
        level("dipc.audit", logging.INFO)
        dipc.refresh_log()
        dipc.get(uri, "x").read_all()
        # The request's end is told once the server has stopped, at the latest.
    assert names(heard) == {("dipc.audit", logging.INFO)}


def test_a_handler_may_call_the_package(level):
    """Events come from no thread that holds a lock, or from which a request would wait for itself."""
    level("dipc", logging.INFO)
    got = []
    with dipc.Server() as server:
        uri = server.listen(new_address())
        server.publish("x", table(ROWS))

        class Asks(logging.Handler):
            def emit(self, _record):
                if not got:
                    got.append(None)
                    got.append(dipc.get(uri, "x").read_all().num_rows)

        handler = Asks()
        logging.getLogger("dipc").addHandler(handler)
        try:
            dipc.get(uri, "x").read_all()
            dipc._log.flush()
        finally:
            logging.getLogger("dipc").removeHandler(handler)
    assert got == [None, ROWS]


def test_a_handler_that_raises_ends_nothing(heard, level, capfd):
    """The error of the handler is printed, like those of other handlers, and later events come."""
    level("dipc", logging.INFO)

    def fail(_record):
        raise RuntimeError("no paper")

    logging.getLogger("dipc.audit").addFilter(fail)
    try:
        with dipc.Server() as server:
            uri = server.listen(new_address())
            server.publish("x", table(ROWS))
            dipc.get(uri, "x").read_all()
    finally:
        dipc._log.flush()
        logging.getLogger("dipc.audit").removeFilter(fail)
    assert any("a server stops" in record.getMessage() for record in heard)
    assert "RuntimeError: no paper" in capfd.readouterr().err


def test_a_slow_handler_blocks_nobody(heard, level):
    """While a handler waits, streams go on; the library reports the number of events that it drops."""
    level("dipc", dipc._log.TRACE)
    let_go = threading.Event()

    class Waits(logging.Handler):
        def emit(self, _record):
            assert let_go.wait(WAIT)

    handler = Waits()
    logging.getLogger("dipc").addHandler(handler)
    try:
        with dipc.Server() as server:
            uri = server.listen(new_address())
            server.publish("x", table(ROWS))
            for _ in range(1000):
                assert dipc.get(uri, "x").read_all().num_rows == ROWS
    finally:
        let_go.set()
        dipc._log.flush()
        logging.getLogger("dipc").removeHandler(handler)
    assert any("log events were dropped" in record.getMessage() for record in heard)


QUIET = """
import dipc, os, sys, threading

def has_thread():
    return any(thread.name == "dipc-log" for thread in threading.enumerate())

client = dipc.Client()
assert not has_thread()
import asyncio
import logging
# As a library does: a NullHandler does not count as a listener.
logging.getLogger().addHandler(logging.NullHandler())
with dipc.Server() as server:
    server.serve("fails", lambda: 1 / 0)
    try:
        dipc.get(server.listen(sys.argv[1]), "fails")
    except dipc.ProviderError:
        assert not has_thread()
        logging.getLogger("dipc").addHandler(logging.FileHandler(os.devnull))
        dipc.refresh_log()
        assert has_thread()
        print("good")
"""


def test_nobody_listens(script):
    """Without a handler nothing is printed, and no thread is started for the log."""
    process = script(QUIET, new_address())
    out, errors = process.communicate(timeout=WAIT)
    assert (out, errors, process.returncode) == ("good\n", "", 0)


# A handler that is slower than the streams, so that events wait for it when the process ends.
SLOW = """
import dipc, logging, multiprocessing, os, pyarrow, sys, time

class Slow(logging.StreamHandler):
    def emit(self, record):
        time.sleep(SECONDS)
        super().emit(record)
"""

END = """
SECONDS = 0.001
logging.basicConfig(level=logging.DEBUG, format="%(levelname)s %(name)s %(message)s", handlers=[Slow()])
server = dipc.Server()
server.publish("x", pyarrow.table({"x": [1]}))
uri = server.listen(sys.argv[1])
for _ in range(200):
    dipc.get(uri, "x").read_all()
server.serve("fails", lambda: 1 / 0)
try:
    dipc.get(uri, "fails")
except dipc.ProviderError:
    pass
"""


def test_nothing_is_lost_at_the_end(script):
    """What was logged before the interpreter ends, and the end of its servers, reaches the handlers."""
    process = script(SLOW + END, new_address())
    out, errors = process.communicate(timeout=WAIT)
    assert (out, process.returncode) == ("", 0), errors
    assert "events were dropped" not in errors
    assert errors.count("dipc.audit a request for `x`") == 200
    assert errors.count("DEBUG dipc.client.core the connection") == 200
    assert errors.count("WARNING dipc.driver.wording stream 401 of `fails`") == 1
    assert errors.count("INFO dipc.server.core a server stops") == 1


FORKS = """
SECONDS = 0.05
logging.basicConfig(level=logging.INFO, format="%(process)d %(name)s %(message)s", handlers=[Slow()])
uri = sys.argv[1]

def work():
    dipc.get(uri, "x").read_all()

if __name__ == "__main__":
    work()
    children = []
    for method in ("fork", "forkserver", "spawn"):
        child = multiprocessing.get_context(method).Process(target=work)
        child.start()
        child.join()
        assert child.exitcode == 0, (method, child.exitcode)
        children.append(child.pid)
    pid = os.fork()
    if pid == 0:
        work()
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    work()
    print(os.getpid(), *children, pid)
"""


def test_children_log_too(server, script):
    """Of a fork, and of multiprocessing, whose processes end without `atexit`; the parent's log is as it was."""
    server.publish("x", table(ROWS))
    process = script(SLOW + FORKS, server.uri)
    out, errors = process.communicate(timeout=WAIT)
    assert process.returncode == 0, errors
    parent, *children = out.split()
    for pid in children:
        assert errors.count(f"{pid} dipc.driver.telling stream") == 2, (pid, errors)
    assert errors.count(f"{parent} dipc.driver.telling stream") == 4, errors


@pytest.mark.usefixtures("heard")
def test_threads_do_not_pile_up(level):
    """Each change of level is one thread of the library's, which ends."""
    level("dipc", logging.INFO)
    dipc.refresh_log()
    dipc._log.flush()
    before = threads()
    for number in range(50):
        level("dipc", logging.DEBUG if number % 2 else logging.INFO)
        dipc.refresh_log()
    dipc._log.flush()
    assert threads() < before + 25


def test_a_handlers_answer_is_a_line_and_its_fault_has_a_stack(heard):
    """What clients can cause is bounded, and has no stack."""

    def answers(request):
        if request.ticket == b"fault":
            raise KeyError("a fault")
        raise dipc.NotFoundError("not a query")

    async def coroutine(request):
        answers(request)

    async def ask_coroutine():
        async with dipc.Server() as server:
            server.set_handler(coroutine)
            with pytest.raises(dipc.NotFoundError):
                await dipc.aget(server.listen(new_address()), "x")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dipc._request, "_answers", dipc._log.Lines())
        patch.setattr(logging.getLogger("dipc"), "level", logging.INFO)
        logging.getLogger().manager._clear_cache()
        asyncio.run(ask_coroutine())
        with dipc.Server() as server:
            server.set_handler(answers)
            uri = server.listen(new_address())
            for _ in range(10):
                with pytest.raises(dipc.NotFoundError, match="not a query"):
                    dipc.get(uri, "x")
            with pytest.raises(dipc.ProviderError, match="a fault"):
                dipc.get(uri, "fault")
            # One that takes no get is asked: it is the client who causes the line.
            server.set_handler(put=lambda request: None)
            with pytest.raises(dipc.NotFoundError):
                dipc.get(uri, "x")
    logging.getLogger().manager._clear_cache()
    own = [record for record in heard if record.name == "dipc"]
    answered = [record for record in own if "not a query" in record.getMessage()]
    assert [record.levelno for record in answered] == [logging.INFO] * 5
    assert not any(record.exc_info for record in answered)
    assert "more lines of this kind are dropped" in answered[-1].getMessage()
    assert [record.levelno for record in own if record.exc_info] == [logging.ERROR]


@pytest.mark.parametrize("what", ["put", "decision"])
def test_the_audit_says_that_a_client_has_gone(heard, level, what):
    """A coroutine that its client has left is cancelled, and its request is not called dropped by the host."""
    level("dipc", logging.INFO)
    ended = []

    async def main():
        cancel = dipc.Cancel()

        async def stuck(_request):
            cancel.trigger()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(what)

        async with dipc.Server(authorizer=stuck if what == "decision" else None) as server:
            server.set_handler(table, put=stuck) if what == "put" else server.publish("x", table(ROWS))
            uri = server.listen(new_address())
            with pytest.raises(dipc.CancelledError):
                if what == "put":
                    await dipc.aput(uri, "x", table(ROWS), cancel=cancel)
                else:
                    await dipc.aget(uri, "x", cancel=cancel)
            while not ended:
                await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(main(), WAIT))
    dipc._log.flush()
    [audit] = [record.getMessage() for record in heard if record.name == "dipc.audit"]
    assert "DIPC_ERR_CANCELLED: the client has gone or has cancelled its request" in audit
