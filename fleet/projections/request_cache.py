"""What several parts of one answer ask of the database, asked once for it."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

_known: ContextVar[dict[Hashable, Any] | None] = ContextVar("once", default=None)


@contextmanager
def request_cache() -> Iterator[None]:
    """Inside, `once` remembers. For answers that only read: what is written meanwhile would not be seen."""
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def cached_in_request(key: Hashable, ask: Callable[[], T]) -> T:
    """What `ask` says, or said before under this key for the same answer. Outside of any it is asked each time."""
    known = _known.get()
    if known is None:
        return ask()
    if key not in known:
        known[key] = ask()
    found: T = known[key]
    return found
