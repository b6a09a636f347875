"""The table of `make gpu-check`: what `dipc bench` and the tests told, beside the goals.

    tools/gpu_table.py NAME LINES TESTS SANITIZER TENSORS

NAME: of the GPU. LINES: what `dipc bench --json` printed. TESTS: what the tests printed. SANITIZER, TENSORS:
what became of compute-sanitizer, and of the tensors of PyTorch and CuPy.
"""

import json
import re
import sys

# Of the rate of the driver's own copy from or to pinned memory.
GOAL_OF_PINNED = 0.9
# How much longer the slowest hand-over of a batch may take than the fastest, whatever its size.
GOAL_FLAT = 2.0


def size_text(size):
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def verdict(met):
    return "met" if met else "missed"


def copied(line):
    """What was done with the bytes of values, in percent of them."""
    names = (
        ("lent", "bytes_lent"),
        ("on host", "bytes_copied"),
        ("on device", "bytes_copied_on_device"),
        ("staged", "bytes_staged"),
    )
    parts = ((name, line[key] / line["bytes"]) for name, key in names)
    return ", ".join(f"{name} {share:.0%}" for name, share in parts if share >= 0.005)


def handed_over(lines):
    """From a GPU to the same one: time for each batch, by size."""
    rows = []
    for memory in ("arena", "heap"):
        times = []
        for line in lines:
            if line["device"] == line["to"] != "host" and line["memory"] == memory:
                micros = line["seconds"] * 1e6 / line["batches"]
                times.append(micros)
                what = f"same GPU, {memory}"
                rows.append((what, size_text(line["batch_bytes"]), f"{micros:.1f} us/batch", copied(line), ""))
        if times:
            ratio = max(times) / min(times)
            told = f"slowest/fastest {ratio:.2f}"
            goal = f"at most {GOAL_FLAT:.1f}: {verdict(ratio <= GOAL_FLAT)}"
            rows.append((f"same GPU, {memory}", "all", told, "", goal))
    return rows


def moved(lines, machine):
    """Between the host and a GPU, beside the driver's own copy of the same length."""
    rows = []
    for line in lines:
        if (line["device"] == "host") == (line["to"] == "host"):
            continue
        to_gpu = line["device"] == "host"
        what = f"{'host to GPU' if to_gpu else 'GPU to host'}, {line['memory']}"
        rate, size = line["bytes_per_second"], line["batch_bytes"]
        pinned = machine.get(("pinned_to_device" if to_gpu else "device_to_pinned", size))
        goal = ""
        if pinned:
            ratio = rate / pinned
            goal = f"{ratio:.2f} of pinned {pinned / 1e9:.2f} GB/s"
            # What is copied on the host before cannot be as fast as one copy.
            if line["bytes_copied"] < line["bytes"] / 20:
                goal += f"; at least {GOAL_OF_PINNED}: {verdict(ratio >= GOAL_OF_PINNED)}"
        rows.append((what, size_text(size), f"{rate / 1e9:.2f} GB/s", copied(line), goal))
    return rows


def killed(tests):
    pattern = r"kills: (\w+) (\d+) batches (\d+) free-before (\d+) free-after (\d+)"
    for who, kills, batches, before, after in re.findall(pattern, tests):
        lost = int(before) - int(after)
        told = f"{kills} killed, {batches} batches"
        free = f"free {int(before) >> 20} MiB before, {int(after) >> 20} MiB after"
        yield (f"{who} killed", "", told, free, f"nothing lost: {verdict(lost <= 64 << 20)}")


def ran(tests):
    results = re.findall(r"^test result: \w+\. (\d+) passed; (\d+) failed.*finished", tests, re.MULTILINE)
    passed, failed = (sum(int(result[index]) for result in results) for index in (0, 1))
    left_out = len(re.findall(r"^(?:test .*\.\.\. )?skipped:", tests, re.MULTILINE))
    return ("tests", "", f"{passed} passed, {failed} failed", f"{left_out} cases or parts left out", "")


def main(name, lines_path, tests_path, sanitizer, tensors):
    with open(lines_path, encoding="utf-8") as file:
        lines = [json.loads(text) for text in file]
    with open(tests_path, encoding="utf-8", errors="replace") as file:
        tests = file.read()
    machine = {
        (line["what"], line["size_bytes"]): line["bytes_per_second"] for line in lines if line["op"] == "machine"
    }
    tables = [line for line in lines if line["op"] == "get"]
    rows = [("what", "batch", "figure", "values were", "goal")]
    rows += handed_over(tables) + moved(tables, machine) + list(killed(tests))
    rows.append(ran(tests))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    print(f"\n{name}")
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths))
        print("  ".join(cells).rstrip())
    print(f"compute-sanitizer: {sanitizer}")
    print(f"tensors between processes: {tensors}")


if __name__ == "__main__":
    main(*sys.argv[1:])
