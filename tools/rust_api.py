"""The public items of the Rust API, as `cargo doc --all-features` shows them: one line for each.

    python3 tools/rust_api.py            compares target/doc with docs/rust-api.txt
    DIPC_BLESS=1 python3 tools/rust_api.py    writes docs/rust-api.txt anew

A changed line is a change of the API: a removed or changed one breaks programs. The command is such
a program, so it names public items alone.
"""

import difflib
import os
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "target" / "doc" / "dipc"
STORED = ROOT / "docs" / "rust-api.txt"
COMMAND = ROOT / "crates" / "cli" / "src"
# What the compiler or other crates give to every type, and methods of the type behind `Deref`.
OTHERS = ("synthetic-implementations-list", "blanket-implementations-list", "deref-methods")
VOID = {"br", "hr", "img", "input", "link", "meta", "wbr"}


class Page(HTMLParser):
    """Collects the declarations of a page: its item's own, and the headers of its members."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.open: list[tuple[str, bool, bool]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in VOID:
            return
        own = dict(attributes)
        classes = (own.get("class") or "").split()
        is_declaration = "code-header" in classes or (tag == "pre" and "item-decl" in classes)
        self.open.append((tag, is_declaration, (own.get("id") or "").startswith(OTHERS)))

    def handle_endtag(self, tag: str) -> None:
        while self.open:
            opened, is_declaration, _ = self.open.pop()
            if is_declaration:
                # Rustdoc marks iterators and the like, and breaks a line before `where`.
                text = re.sub(r"(\s|ⓘ)+", " ", "".join(self.text)).strip().replace("where ", " where ")
                text = text.replace("  where", " where")
                self.text.clear()
                if not any(skips for _, _, skips in self.open):
                    self.lines.append(text)
            if opened == tag:
                break

    def handle_data(self, data: str) -> None:
        if any(is_declaration for _, is_declaration, _ in self.open):
            self.text.append(data)


def items() -> list[str]:
    """Path and declaration of each item and member, sorted."""
    found = []
    for path in PAGES.rglob("*.html"):
        kind, _, name = path.stem.partition(".")
        if kind in ("index", "all", "sidebar-items") or not name:
            continue
        module = "::".join(("dipc", *path.relative_to(PAGES).parts[:-1]))
        page = Page()
        page.feed(path.read_text(encoding="utf-8"))
        # The methods of an implemented trait are the trait's.
        own = (line for line in page.lines if kind == "trait" or not line.startswith(("fn ", "type ")))
        found += [f"{module}::{name}: {line}" for line in own if "StructuralPartialEq" not in line]
    return sorted(set(found))


def names_of(tree: str) -> list[str]:
    """The first names behind `dipc::` in a tree of `use`: `a` and `B` of `{a::{x, y}, B}`."""
    if not tree.startswith("{"):
        return re.findall(r"^\w+", tree)
    names, depth = [], 0
    for match in re.finditer(r"\w+|[{}]", tree):
        text = match.group()
        depth += {"{": 1, "}": -1}.get(text, 0)
        is_first = tree[: match.start()].rstrip().endswith(("{", ","))
        if depth == 1 and text not in "{}" and is_first:
            names.append(text)
    return names


def hidden_uses(public: list[str]) -> list[str]:
    """The places where the command names an item that the API does not show."""
    shown = {line.removeprefix("dipc::").split(":")[0] for line in public}
    places = []
    for path in sorted(COMMAND.rglob("*.rs")):
        name = path.relative_to(COMMAND).as_posix()
        text = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
        for match in re.finditer(r"(?<!\")\bdipc::(\{[^;]*\}|\w+)", text):
            line = text.count("\n", 0, match.start()) + 1
            hidden = [used for used in names_of(match.group(1)) if used not in shown]
            places += [f"crates/cli/src/{name}:{line}: dipc::{used}" for used in hidden]
    return places


def main() -> int:
    found = items()
    if len(found) < 100:
        print(f"rust-api: only {len(found)} items in {PAGES}: cargo doc --all-features", file=sys.stderr)
        return 2
    text = "".join(f"{line}\n" for line in found)
    if os.environ.get("DIPC_BLESS"):
        STORED.write_text(text, encoding="utf-8")
        return 0
    stored = STORED.read_text(encoding="utf-8")
    changes = difflib.unified_diff(stored.splitlines(), found, "docs/rust-api.txt", "the API", n=0, lineterm="")
    changed = "\n".join(changes)
    if changed:
        print(changed)
        print("rust-api: the API has changed: DIPC_BLESS=1 python3 tools/rust_api.py", file=sys.stderr)
        return 1
    hidden = hidden_uses(found)
    if hidden:
        print("\n".join(hidden))
        print("rust-api: the command names hidden items: use public ones, or add what is lacking", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
