"""Promise of the documents: each of their snippets is run or compiled by a test, and the commands that
they show have the options that they give.

    DIPC_PREFIX=PREFIX DIPC_PYTHON_PACKAGE=FOLDER python -m pytest tests/quick_start
"""

import os
import re
import sys

from support import PREFIX, ROOT, needs, run, serving, snippets

ADDRESS = f"shm:@snippets-{os.getpid()}"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("[bce]*/*/README.md")])
# These tests run all blocks of a page in a language.
ELSEWHERE = {
    ("docs/quick-start.md", "c"): "tests/quick_start/test_quick_start.py",
    ("docs/quick-start.md", "cpp"): "tests/quick_start/test_quick_start.py",
    ("docs/quick-start.md", "go"): "tests/quick_start/test_quick_start.py",
    ("docs/quick-start.md", "julia"): "tests/quick_start/test_quick_start.py",
    ("docs/quick-start.md", "python"): "tests/quick_start/test_quick_start.py",
    ("docs/quick-start.md", "rust"): "tests/quick_start/test_quick_start.py",
    ("docs/guide/tls.md", "c"): "tests/quick_start/test_tls.py",
    ("docs/guide/tls.md", "cpp"): "tests/quick_start/test_tls.py",
    ("docs/guide/tls.md", "go"): "tests/quick_start/test_tls.py",
    ("docs/guide/tls.md", "julia"): "tests/quick_start/test_tls.py",
    ("docs/guide/tls.md", "python"): "tests/quick_start/test_tls.py",
    ("docs/guide/tls.md", "rust"): "src/lib.rs",
    ("docs/code-to-the-data.md", "rust"): "integrations/functions/rust/src/lib.rs",
    ("docs/guide/go.md", "go"): "bindings/go/guide_test.go",
    ("docs/guide/julia.md", "julia"): "bindings/julia/test/test_examples.jl",
    ("docs/guide/python.md", "python"): "bindings/python/tests/test_documents.py",
    ("docs/guide/rust.md", "rust"): "src/lib.rs",
}
# Those that are run below. Commands are looked at, and other text is no program.
HERE = {
    ("README.md", "python"),
    ("docs/guide/cpp.md", "cmake"),
    ("docs/guide/figures.md", "c"),
    ("docs/introduction.md", "python"),
    ("docs/recipes.md", "python"),
}
NO_PROGRAMS = {"sh", "text"}


def only(page: str, language: str) -> str:
    """The one block of a page in a language."""
    [code] = [code for found, code in snippets(ROOT / page) if found == language]
    return code


def test_every_snippet_has_a_test():
    """What is not run below is shown from a file that other tests build."""
    built = {path: path.read_text(encoding="utf-8") for path in ROOT.glob("tests/c/*.c")}
    built |= {path: path.read_text(encoding="utf-8") for path in ROOT.glob("bindings/cpp/examples/*.cpp")}
    built |= {path: path.read_text(encoding="utf-8") for path in ROOT.glob("integrations/functions/examples/**/*.*")}
    built |= {path: path.read_text(encoding="utf-8") for path in ROOT.glob("integrations/functions/c/cmake/*/*.c")}
    manifest = ROOT / "integrations/Cargo.toml"
    built[manifest] = manifest.read_text(encoding="utf-8")
    seen = set()
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        for language, code in snippets(page):
            if language in NO_PROGRAMS or (name, language) in HERE:
                continue
            if test := ELSEWHERE.get((name, language)):
                assert name in (ROOT / test).read_text(encoding="utf-8").replace('", "', "/"), (test, name)
                seen.add((name, language))
                continue
            assert any(code.strip() in text for text in built.values()), f"{name}: no test has\n{code}"
    assert seen == set(ELSEWHERE)


def test_readme_python(tmp_path):
    script = tmp_path / "readme.py"
    script.write_text(only("README.md", "python").replace("shm:@demo", ADDRESS) + "print(table.num_rows)\n")
    command = ["dipc", "serve", "--listen", ADDRESS, "--tpch", "lineitem", "--scale", "0.001"]
    with serving(command, ADDRESS):
        assert int(run([sys.executable, str(script)])) > 1000


def test_introduction():
    """It shows a program of the quick start."""
    assert only("docs/introduction.md", "python") in (ROOT / "docs/quick-start.md").read_text(encoding="utf-8")


def test_recipes(tmp_path):
    """All blocks of the page, one after the other."""
    blocks = [code for language, code in snippets(ROOT / "docs/recipes.md") if language == "python"]
    script = tmp_path / "recipes.py"
    script.write_text("\n".join(blocks).replace("shm:@recipes", ADDRESS + "-recipes"))
    run([sys.executable, str(script)], cwd=tmp_path)


def test_figures_in_c(tmp_path):
    """In a program that has a server."""
    needs("cc", "pkg-config")
    source = tmp_path / "figures.c"
    source.write_text(f"""
        #include <dipc.h>
        #include <inttypes.h>
        #include <stdio.h>
        int main(void) {{
          dipc_error *error = NULL;
          dipc_server *server = NULL;
          if (dipc_server_new(NULL, &server, &error) != DIPC_OK) return 1;
          {only("docs/guide/figures.md", "c")}
          dipc_server_free(server);
        }}""")
    flags = run(["pkg-config", "--cflags", "--libs", "dipc"]).split()
    run(["cc", "-std=c11", "-Wall", "-Werror", str(source), "-o", str(tmp_path / "figures"), *flags])
    assert run([str(tmp_path / "figures")]) == "0 requests were refused as busy\n"


def test_cpp_with_cmake(tmp_path):
    """The quick start's second program, built as the guide says."""
    needs("cmake", "c++")
    fetch = [code for language, code in snippets(ROOT / "docs/quick-start.md") if language == "cpp"][1]
    (tmp_path / "app.cpp").write_text(fetch)
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(app CXX)\nadd_executable(app app.cpp)\n"
        + only("docs/guide/cpp.md", "cmake")
    )
    run(["cmake", "-S", str(tmp_path), "-B", str(tmp_path / "build"), f"-DCMAKE_PREFIX_PATH={PREFIX}"])
    run(["cmake", "--build", str(tmp_path / "build")])


def test_stability():
    """The numbers of docs/stability.md are those of the code."""
    page = (ROOT / "docs/stability.md").read_text(encoding="utf-8")

    def number(path: str, pattern: str) -> str:
        [found] = re.findall(pattern, (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
        return found

    version = number("Cargo.toml", r'^version = "(.*)"$')
    wire = number("src/proto/extension.rs", r"^pub const VERSION: u16 = (\d+);$")
    arrow = number("Cargo.toml", r'^arrow = \{ version = "(\d+)')
    for text in (
        f"today {version}",
        f"`libdipc.so.{version.rpartition('.')[0]}`",
        f"speaks 1 to {wire}",
        f"version {arrow} today",
        "| Rust | " + number("Cargo.toml", '^rust-version = "(.*)"$') + " |",
        "| Go | " + number("bindings/go/go.mod", r"^go (\d+\.\d+)") + " |",
        "| Julia | " + number("bindings/julia/Project.toml", '^julia = "(.*)"$') + " |",
        "| Python | " + number("bindings/python/pyproject.toml", '^requires-python = ">=(.*)"$') + " |",
    ):
        assert text in " ".join(page.split()), text
    for other in ("install.md", "guide/rust.md"):
        assert f" arrow@{arrow}" in (ROOT / "docs" / other).read_text(encoding="utf-8"), other


def test_the_flight_page_names_what_there_is():
    """Its tables, in the columns C++, Go and Python; a test in Rust has C's."""
    places = {"C++": "include/dipc/*.hpp", "Go": "bindings/go/*.go", "Python": "bindings/python/src/dipc/*.py"}
    code = {}
    for language, place in places.items():
        files = [path for path in ROOT.glob(place) if not path.name.endswith("_test.go")]
        code[language] = set(re.findall(r"\w+", "".join(path.read_text(encoding="utf-8") for path in files)))
    count = 0
    for line in (ROOT / "docs/flight.md").read_text(encoding="utf-8").splitlines():
        cells = line.split("|")[3:-1]
        for language, cell in zip(places, cells):
            for name in re.findall(r"\w+", " ".join(re.findall("`([^`]+)`", cell))):
                assert name in code[language], f"{language} has no {name}: {line}"
                count += 1
    assert count > 150


def commands(text: str) -> list[tuple[str, str]]:
    """Each `dipc SUBCOMMAND` of a page, in code, and what follows it."""
    code = re.findall(r"(?:^(?: {4}.*| {6}.*)\n)+", text, re.MULTILINE)
    code += re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    code += [found[1] for found in re.finditer(r"(?<!`)`([^`]+)`(?!`)", text)]
    found = []
    for block in code:
        for line in re.sub(r"\\?\n +(?=--|-)|\\\n", " ", block).splitlines():
            command = re.split(r"\s#|[|;&>]", line)[0]
            found += re.findall(r"\bdipc (serve|get|put|ls|describe|top|bench|info)\b(.*)", command)
    return found


def test_commands_have_their_options():
    helps = {}
    count = 0
    for page in PAGES:
        for subcommand, rest in commands(page.read_text(encoding="utf-8")):
            if subcommand not in helps:
                helps[subcommand] = run(["dipc", subcommand, "--help"])
            for option in re.findall(r"(?<!\S)--[a-z][a-z-]*", rest):
                assert re.search(rf"{option}(?![a-z-])", helps[subcommand]), (
                    f"{page.relative_to(ROOT)}: dipc {subcommand} has no {option}"
                )
                count += 1
    assert count > 80
