"""Other libraries, which the package can do without."""

from __future__ import annotations

import importlib
import re
from typing import Any


def load(module: str, extra: str, least: tuple[int, int] = (0, 0)) -> Any:
    """A module of another library. If that is missing, the error says which extra of the package brings it.

    The same goes for a library that is older than `least`, the first two numbers of its version.
    """
    remedy = f"pip install 'libdipc[{extra}]'"
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{module} is not installed: {remedy}", name=error.name, path=error.path) from error
    if least > (0, 0):
        version = str(found.__version__)
        if tuple(int(number) for number in re.findall(r"\d+", version)[:2]) < least:
            needed = ".".join(map(str, least))
            raise ImportError(f"{module} is {version}, and this needs {needed} or later: {remedy}", name=module)
    return found
