"""What the documents show works."""

from __future__ import annotations

import re
import subprocess
import sys

from conftest import ROOT, WAIT


def test_the_guide(tmp_path):
    """The blocks of a page, one after the other, with an address of this run."""
    guide = (ROOT / "docs/guide/python.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", guide, flags=re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 9
    script = tmp_path / "guide.py"
    script.write_text("\n".join(blocks).replace("shm:@python-guide", f"shm:@python-guide-{tmp_path.name}-{id(blocks)}"))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=WAIT, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for words in ("NOT_FOUND - the server has no ticket `nowhere`", "50000 0", "cancelled"):
        assert words in done.stdout


def test_the_examples(tmp_path):
    """One program serves a query of a Parquet file, another one fetches it."""
    examples = ROOT / "bindings/python/examples"
    address = f"shm:@python-example-{tmp_path.name}-{id(examples)}"
    server = subprocess.Popen(
        [sys.executable, str(examples / "serve.py"), address], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        uri = server.stdout.readline().strip()
        done = subprocess.run(
            [sys.executable, str(examples / "fetch.py"), uri, "squares"], capture_output=True, text=True, timeout=WAIT,
            check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        assert "1000 rows" in done.stdout
    finally:
        server.terminate()
        out, errors = server.communicate(timeout=WAIT)
    assert (server.returncode, out, errors) == (0, "", "")
