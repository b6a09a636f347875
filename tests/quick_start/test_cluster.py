"""Promise of examples/cluster: its script makes a cluster and leaves nothing of it, and its manifests are valid.

    DIPC_PREFIX=PREFIX DIPC_PYTHON_PACKAGE=FOLDER python -m pytest tests/quick_start
"""

import os
import signal
import subprocess
import time

import pytest
from support import ENVIRONMENT, ROOT, needs, run, snippets

FOLDER = ROOT / "examples/cluster"
SCRIPT = str(FOLDER / "cluster.sh")
SERVE = 'exec dipc serve --listen "tcp://$ADDRESS:$PORT" --allow-remote --tpch lineitem --scale 0.001'
WAIT = 60
"""Seconds after which a test that hangs fails."""


@pytest.fixture
def namespaces():
    needs("ip", "unshare", "setpriv")
    as_user = ["--user", "--map-root-user"] if os.geteuid() else []
    done = subprocess.run(["unshare", "--net", *as_user, "true"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"the kernel makes no network namespaces: {done.stderr.strip()}")
    links = run(["ip", "-brief", "link"])
    yield
    assert run(["ip", "-brief", "link"]) == links


def cluster(*arguments):
    """Runs the script to its end."""
    return subprocess.run(
        [SCRIPT, *arguments], env=ENVIRONMENT, capture_output=True, text=True, timeout=WAIT, check=False
    )


def wait_for(what):
    ends = time.monotonic() + WAIT
    while not what():
        assert time.monotonic() < ends
        time.sleep(0.05)


@pytest.mark.usefixtures("namespaces")
def test_the_program_that_the_readme_shows():
    """Four workers at the same port, each with a table."""
    programs = [code for language, code in snippets(FOLDER / "README.md") if language == "sh"]
    [program] = [code for code in programs if "dipc serve" in code]
    got = run(["bash", "-euo", "pipefail", "-c", program], cwd=ROOT)
    assert [line.partition(":")[0] for line in got.splitlines() if " rows in " in line] == ["lineitem"] * 4, got


@pytest.mark.usefixtures("namespaces")
def test_workers_reach_each_other(tmp_path):
    fetch = f'until dipc get "tcp://10.77.0.11:$PORT" lineitem --output {tmp_path}/there.arrow; do sleep 0.1; done'
    done = cluster("-n", "2", "-p", "7500", f"[ $NODE = 1 ] || {fetch}; {SERVE}", "bash", "-c", "echo $WORKERS")
    assert (done.returncode, done.stdout) == (0, "10.77.0.11:7500 10.77.0.12:7500\n"), done.stderr
    assert (tmp_path / "there.arrow").stat().st_size > 100_000


@pytest.mark.usefixtures("namespaces")
def test_the_status_is_the_commands():
    assert cluster("-n", "1", SERVE, "bash", "-c", "exit 7").returncode == 7


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_the_command(tmp_path, number):
    """Also where nobody can run after it."""
    worker = f"echo $$ >{tmp_path}/$NODE; {SERVE}"
    program = [SCRIPT, "-n", "2", worker, "sleep", "1000"]
    process = subprocess.Popen(program, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: process.poll() is not None or command(process.pid).startswith(b"sleep"))
        workers = [int((tmp_path / str(node)).read_text()) for node in (1, 2)]
        assert all(b"serve" in command(worker) for worker in workers)
        process.send_signal(number)
        assert process.wait(timeout=WAIT) == -number
        wait_for(lambda: not any(b"serve" in command(worker) for worker in workers))
    finally:
        process.kill()
        process.wait()


def command(pid):
    """A process's command line; nothing where it has ended."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return b""


@pytest.mark.usefixtures("namespaces")
def test_the_command_ends_one_worker():
    """The second of three, by its process; the others serve on."""
    program = """
    read -ra pids <<<"$WORKER_PIDS"
    kill -KILL "${pids[1]}"
    # Packets can be lost for a while, as the bridge loses a port.
    get() { dipc get "tcp://$1" lineitem >/dev/null; }
    for worker in $WORKERS; do
      if get "$worker" || get "$worker" || get "$worker"; then echo "$worker"; fi
    done
    """
    done = cluster("-n", "3", SERVE, "bash", "-c", program)
    assert done.stdout == "10.77.0.11:7400\n10.77.0.13:7400\n", done.stderr
    assert "10.77.0.12:7400" in done.stderr


@pytest.mark.usefixtures("namespaces")
def test_a_worker_that_ends_is_named():
    done = cluster("-n", "2", f"[ $NODE = 1 ] || {{ echo out of paper; exit 3; }}; {SERVE}", "true")
    assert done.returncode == 1
    assert "cluster: the worker of node 2 ended before it listened" in done.stderr
    assert "node 2: out of paper" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"), [(["-n", "x", "a", "b"], "-n is x"), (["-p", "0", "a", "b"], "-p is 0"), (["a"], "usage")]
)
def test_arguments_are_checked(arguments, text):
    done = cluster(*arguments)
    assert done.returncode != 0
    assert text in done.stderr


def manifests():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: pip install kubernetes-validate")
    return {one["kind"]: one for one in yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text(encoding="utf-8"))}


def test_manifests_are_valid():
    """By the schemas of Kubernetes, of which the package carries those of many versions."""
    validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    found = manifests()
    for manifest in found.values():
        validate.validate(manifest, validate.latest_version(), strict=True)
    found["Service"]["spec"]["clusterIPP"] = "None"
    with pytest.raises(validate.ValidationError):
        validate.validate(found["Service"], validate.latest_version(), strict=True)


def test_manifests_fit_together():
    found = manifests()
    service, workers, policy = (found[kind] for kind in ("Service", "StatefulSet", "NetworkPolicy"))
    labels = workers["spec"]["template"]["metadata"]["labels"]
    [container] = workers["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert workers["spec"]["serviceName"] == service["metadata"]["name"]
    for selector in (
        service["spec"]["selector"],
        workers["spec"]["selector"]["matchLabels"],
        policy["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector == labels
    assert {port["targetPort"]: port["port"] for port in service["spec"]["ports"]} == ports
    assert {port["port"] for port in policy["spec"]["ingress"][0]["ports"]} == set(ports)
    assert f"$(POD_IP):{ports['plans']}" in container["args"]
    assert f"tcp://$(POD_IP):{ports['dipc']}" in container["args"]
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    first = f"{workers['metadata']['name']}-0.{service['metadata']['name']}:{ports['plans']}"
    assert first in readme
