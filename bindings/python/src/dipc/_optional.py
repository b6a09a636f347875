"""Other libraries, which the package can do without."""

from __future__ import annotations

import importlib
from typing import Any


def load(module: str, extra: str) -> Any:
    """A module of another library. Where that is missing, the error says which extra of the package brings it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{module} is not installed: pip install 'libdipc[{extra}]'", name=error.name, path=error.path
        ) from error
