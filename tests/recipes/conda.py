"""Checks, or builds and tests, a conda recipe by rattler-build.

    python conda.py render FOLDER
    python conda.py build FOLDER OUTPUT

conda-forge's compilers and tools are stood in for by empty packages of their names: the programs of
this machine serve. So no channel is asked.
"""

import os
import shutil
import sys
from pathlib import Path

from rattler_build import EnvironmentIsolation, Stage0Recipe, ToolConfiguration, VariantConfig

VARIANTS = """
c_compiler: [gcc]
c_stdlib: [sysroot]
rust_compiler: [rust]
"""
STAND_INS = (
    "cargo-bundle-licenses cmake gcc_linux-64 gcc_linux-aarch64 make pkg-config rust_linux-64 rust_linux-aarch64"
    " sysroot_linux-64 sysroot_linux-aarch64"
)


class Log:
    """Prints what rattler-build says."""

    def on_log(self, event) -> None:
        print(event.message, flush=True)


def render(folder: Path) -> None:
    recipe = Stage0Recipe.from_file(str(folder / "recipe.yaml"))
    for variant in recipe.render(VariantConfig.from_yaml(VARIANTS)):
        package = variant.recipe.package
        print(f"conda: {package.name} {package.version}")


def build(folder: Path, output: Path) -> None:
    channel = output / "channel"
    for name in STAND_INS.split():
        recipe = f"package: {{name: {name}, version: '1'}}\nbuild: {{noarch: generic, script: 'true'}}\n"
        Stage0Recipe.from_yaml(recipe).run_build(output_dir=str(channel), channels=[])
    results = Stage0Recipe.from_file(str(folder / "recipe.yaml")).run_build(
        variant_config=VariantConfig.from_yaml(VARIANTS),
        tool_config=ToolConfiguration(test_strategy="native"),
        output_dir=str(output),
        channels=[channel.resolve().as_uri()],
        progress_callback=Log(),
        env_isolation=EnvironmentIsolation.NONE,
    )
    for result in results:
        for package in result.packages:
            print(f"conda: {Path(package).name}: {os.path.getsize(package) >> 20} MiB")
    shutil.rmtree(channel)


if __name__ == "__main__":
    command, *folders = sys.argv[1:]
    {"render": render, "build": build}[command](*map(Path, folders))
