"""What concerns the whole process: fork, and the end of the interpreter.

After a fork the child has none of the parent's threads, so objects that were made before refuse calls. At the
interpreter's end servers are closed while Python still works, so that nothing is released, and no provider runs, in an
interpreter that is being taken apart.
"""

from __future__ import annotations

import atexit
import os
from typing import Callable

from . import _errors

_generation = 0
_in_child: list[Callable[[], None]] = []


def generation() -> int:
    """A number that every fork changes in the child."""
    return _generation


def ensure_same(made_in: int) -> None:
    """Raises ForkedError where the process has forked since `made_in`."""
    if made_in != _generation:
        raise _errors.ForkedError(
            "this object was made before a fork() and this is the child: make one anew here, "
            'or start processes by "spawn"'
        )


def after_fork(function: Callable[[], None]) -> None:
    """Calls `function` in the child of every fork."""
    _in_child.append(function)


def at_exit(function: Callable[[], None]) -> None:
    """Calls `function` before the interpreter ends."""
    atexit.register(function)


def _forked() -> None:
    global _generation
    _generation += 1
    for function in _in_child:
        function()


os.register_at_fork(after_in_child=_forked)
