"""Ctrl-C is never lost, whichever object of the package dies on the main thread at that moment."""

from __future__ import annotations

import signal

import pyarrow as pa

from conftest import WAIT, new_address, table

# Everything that these make dies on the main thread. The timer's signal comes at any moment, like one of a terminal,
# and Python's handler for Ctrl-C gets it.
MOMENTS = """
import dipc, gc, itertools, os, pyarrow as pa, random, signal, sys, time
uri = sys.argv[1]
cancel, arena, small, numbers = dipc.Cancel(), dipc.Arena(), pa.table({"x": [1, 2, 3]}), itertools.count()
def get(**options):
    return dipc.get(uri, "table", **options)
def the_guides_form():
    pa.table(get())
def a_reader_in_a_variable():
    reader = get()
    pa.table(reader)
def an_unread_reader():
    get()
def a_schema():
    get().schema.children[0].metadata
def an_iterator():
    list(get())
def half_an_iterator():
    next(get())
def batches_of_pyarrow():
    for batch in get():
        pa.record_batch(batch)
def a_closed_reader():
    with get() as reader:
        next(reader)
def read_all():
    get().read_all()
def device_streams():
    get().__arrow_c_device_stream__()
def a_cancel_token():
    get(cancel=dipc.Cancel())
def many_of_one_cancel_token():
    get(cancel=cancel)
def a_client():
    dipc.Client().get(uri, "table")
def a_cycle():
    reader = get()
    cycle = [reader]
    cycle.append(cycle)
    del reader, cycle
    gc.collect(0)
def an_error():
    try:
        dipc.get(uri, "nowhere")
    except dipc.NotFoundError:
        pass
def a_server():
    dipc.Server()
def a_server_that_serves():
    server = dipc.Server()
    server.listen(f"shm:@dipc-python-{os.getpid()}-moments-{next(numbers)}")
    server.publish("small", small)
    server.serve("pulled", small)
def an_arena():
    memoryview(dipc.Arena(region_bytes=1 << 16).alloc(100))[10:]
def a_block():
    pa.py_buffer(arena.alloc(100))
def a_copy_in_an_arena():
    arena.copy(small)
uses = [use for name, use in list(globals().items()) if callable(use) and name != "get"]
lost = []
def lose(args):
    if issubclass(args.exc_type, KeyboardInterrupt):
        lost.append(args.object)
sys.unraisablehook = lose
signal.signal(signal.SIGALRM, signal.default_int_handler)
random.seed(12)
def span(use):
    start = time.perf_counter()
    use()
    return time.perf_counter() - start
def moments(use):
    usual = sorted(span(use) for _ in range(5))[2]
    end = time.perf_counter() + 1
    for moment in range(1, 101):
        try:
            signal.setitimer(signal.ITIMER_REAL, max(1e-6, random.uniform(0, 1.5 * usual)))
            while not lost:
                use()
        except KeyboardInterrupt:
            pass
        if lost or time.perf_counter() > end:
            break
    return moment
total = 0
for use in uses:
    total += moments(use)
    if lost:
        print(use.__name__, "lost one in", *lost)
        lost.clear()
print("forms:", len(uses), "moments:", total > len(uses))
"""


def test_an_interrupt_is_raised_whatever_dies(server, script):
    server.publish("table", pa.concat_tables([table(10), table(10)]))
    process = script(MOMENTS, server.uri)
    out, errors = process.communicate(timeout=4 * WAIT)
    assert out == "forms: 20 moments: True\n", errors
    assert process.returncode == 0, errors


SERVED = """
import dipc, pyarrow as pa, sys
server = dipc.Server()
server.serve("table", pa.table({"x": [1]}))
uri = server.listen(sys.argv[1])
print(pa.table(dipc.get(uri, "table")).num_rows, flush=True)
del server
sys.stdin.readline()
for _ in range(6000):
    try:
        dipc.get(uri, "table")
    except dipc.StoppedError:
        pass  # a request that met the stop
    except dipc.UnreachableError:
        print("closed", flush=True)
        break
"""


def test_a_server_that_is_collected_is_closed(script):
    process = script(SERVED, new_address())
    out, errors = process.communicate("\n", timeout=WAIT)
    assert out == "1\nclosed\n", errors
    assert process.returncode == 0, errors


FORKED = """
import dipc, os, pyarrow as pa, sys
server = dipc.Server()
server.publish("table", pa.table({"x": [1]}))
uri = server.listen(sys.argv[1])
if os.fork() == 0:
    del server
    other = dipc.Server()
    other.listen(sys.argv[1] + "-child")
    del other
    os._exit(0)
print(os.wait()[1])
print(pa.table(dipc.get(uri, "table")).num_rows)
"""


def test_a_child_closes_nothing_of_its_parents(script):
    process = script(FORKED, new_address())
    out, errors = process.communicate(timeout=WAIT)
    assert out == "0\n1\n", errors
    assert process.returncode == 0, errors


def test_a_signal_of_the_terminal_is_raised(server, script):
    """The guide's form, and a real SIGINT while pyarrow reads."""
    source = "import dipc, pyarrow as pa, sys\ntry:\n    print('on', flush=True)\n"
    source += "    while True: pa.table(dipc.get(sys.argv[1], 'table'))\n"
    source += "except KeyboardInterrupt: print('interrupted')\n"
    server.publish("table", table())
    for _ in range(3):
        process = script(source, server.uri)
        assert process.stdout.readline() == "on\n"
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=WAIT)
        assert (out, errors) == ("interrupted\n", "")
