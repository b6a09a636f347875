"""Failures of Arrow Flight, as exceptions of this package."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from . import _errors


@contextlib.contextmanager
def mapped(hint: str = "") -> Iterator[None]:
    """Raises what pyarrow.flight raises as the exception for the same status of libdipc; `hint` ends its text."""
    import pyarrow as pa
    from pyarrow import flight

    kinds: list[tuple[type[BaseException], type[_errors.DipcError]]] = [
        (flight.FlightUnavailableError, _errors.UnreachableError),
        (flight.FlightUnauthenticatedError, _errors.PermissionError),
        (flight.FlightUnauthorizedError, _errors.PermissionError),
        (flight.FlightTimedOutError, _errors.TimeoutError),
        (flight.FlightCancelledError, _errors.CancelledError),
        (flight.FlightError, _errors.ProviderError),
        (pa.ArrowCancelled, _errors.CancelledError),
        (pa.ArrowKeyError, _errors.NotFoundError),
        (pa.ArrowNotImplementedError, _errors.UnsupportedError),
        (pa.ArrowInvalid, _errors.InvalidArgumentError),
        (pa.ArrowMemoryError, _errors.OutOfMemoryError),
        (pa.ArrowException, _errors.ProviderError),
        (OSError, _errors.IoError),
    ]
    try:
        yield
    except _errors.DipcError:
        raise
    except Exception as error:
        for kind, ours in kinds:
            if isinstance(error, kind):
                raise ours(f"{error}{hint if ours not in _WITHOUT_HINT else ''}") from error
        raise


_WITHOUT_HINT = (_errors.UnreachableError, _errors.TimeoutError, _errors.CancelledError, _errors.PermissionError)
