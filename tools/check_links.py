"""Checks the links of the documents, without a network.

    python3 tools/check_links.py               every Markdown file of the repository
    python3 tools/check_links.py BUILT_BOOK    every page of the book, as mdbook has built it

A link leads to a file of the repository or of the book, and its #part to a heading there. The pages of
docs are all in the book's table of contents, and link to nothing outside of the book: mdbook copies
docs alone. Links to files of the repository's home on GitHub are compared with the files that are here.
"""

import functools
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "docs"
# Without a path it shows the README.
HOME = re.compile(r"https://github\.com/libdipc/libdipc(?:/(?:blob|tree|raw)/[^/]+/([^#]*))?(?:#(.*))?")
# Folders of the built book with the references (tools/docs.sh). What well-known generators make of
# them has links that are theirs to check.
REFERENCES = ("c", "cpp", "go", "julia", "python", "rust")
THEIRS = ("c", "cpp", "python", "rust")
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
DEFINITION = re.compile(r"^ {0,3}\[[^\]]+\]:\s+<?(\S+?)>?\s*$", re.MULTILINE)
ATTRIBUTE = re.compile(r"<(?:a|img)\b[^>]*?\b(?:href|src)=\"([^\"]+)\"")
HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.*?)\s*#*\s*$", re.MULTILINE)


def blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


@functools.cache
def prose(page: Path) -> str:
    """The text of a page with its code made blank; lines keep their numbers."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"^ {0,3}(```+|~~~+).*?^ {0,3}\1\s*$", blank, text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"<!--.*?-->", blank, text, flags=re.DOTALL)


@functools.cache
def parts(page: Path) -> frozenset[str]:
    """What a link to this page may name after `#`: both mdbook and GitHub make it of a heading so."""
    if page.suffix == ".html":
        return frozenset(parsed(page).names)
    found: dict[str, int] = {}
    names = set(re.findall(r"<a\s+(?:id|name)=\"([^\"]+)\"", prose(page)))
    for heading in HEADING.findall(prose(page)):
        text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
        name = "".join(c for c in text.lower().replace(" ", "-") if c.isalnum() or c in "-_")
        count = found.get(name, 0)
        found[name] = count + 1
        names.add(f"{name}-{count}" if count else name)
    return frozenset(names)


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[tuple[int, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if value and (key == "id" or (key == "name" and tag == "a")):
                self.names.add(value)
            elif value and key in ("href", "src"):
                self.links.append((self.getpos()[0], value))


@functools.cache
def parsed(page: Path) -> Page:
    result = Page()
    result.feed(page.read_text(encoding="utf-8"))
    return result


def fault(page: Path, link: str, top: Path) -> str | None:
    """Why a link of a page leads nowhere. Nothing above `top` can be reached from the page."""
    if home := HOME.fullmatch(link):
        target, part, top = ROOT / unquote(home[1] or "README.md"), home[2], ROOT
    else:
        split = urlsplit(link)
        if split.scheme or split.netloc:
            return None
        path, part = unquote(split.path), unquote(split.fragment)
        target = page.parent / path if path else page
    target = target.resolve()
    if not target.is_relative_to(top):
        return "lies outside of the book" if top == BOOK else "lies outside"
    if top == BOOK and target.relative_to(BOOK).parts[0] in REFERENCES:
        return None  # The built book has it.
    if not target.exists():
        return "is not there"
    if target.is_dir() and (target / "index.html").exists():
        target /= "index.html"
    if part and target.suffix in (".md", ".html") and part not in parts(target):
        return "has no such heading" if target.suffix == ".md" else "has no such part"
    return None


def markdown() -> tuple[int, list[str]]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    pages = sorted(ROOT / name for name in listed.split("\0") if name and (ROOT / name).exists())
    faults, count = [], 0
    for page in pages:
        top = BOOK if page.is_relative_to(BOOK) else ROOT
        # Code between single quotes may look like a link.
        text = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", lambda found: "." * len(found[0]), prose(page))
        for pattern in (LINK, DEFINITION, ATTRIBUTE):
            for found in pattern.finditer(text):
                count += 1
                if reason := fault(page, found[1], top):
                    line = text.count("\n", 0, found.start()) + 1
                    faults.append(f"{page.relative_to(ROOT)}:{line}: {found[1]} {reason}")
    contents = set(LINK.findall(prose(BOOK / "SUMMARY.md")))
    for page in pages:
        name = str(page.relative_to(BOOK)) if page.is_relative_to(BOOK) else "SUMMARY.md"
        if name != "SUMMARY.md" and name not in contents:
            faults.append(f"docs/{name}: docs/SUMMARY.md does not name this page")
    return count, faults


def book(top: Path) -> tuple[int, list[str]]:
    faults, count = [], 0
    for page in sorted(top.rglob("*.html")):
        name = page.relative_to(top)
        # The page for links that lead nowhere has addresses of the site's root.
        if name.parts[0] in THEIRS or name.name == "404.html":
            continue
        for line, link in parsed(page).links:
            count += 1
            if reason := fault(page, link, top):
                faults.append(f"{name}:{line}: {link} {reason}")
    return count, faults


def main() -> int:
    count, faults = book(Path(sys.argv[1]).resolve()) if len(sys.argv) > 1 else markdown()
    for text in faults:
        print(f"links: {text}", file=sys.stderr)
    # A check that finds no links checks nothing.
    if faults or not count:
        print(f"links: {len(faults)} of {count} lead nowhere", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
