"""Cache of query results that several parts of one response share."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

_known: ContextVar[dict[Hashable, Any] | None] = ContextVar("once", default=None)


@contextmanager
def request_cache() -> Iterator[None]:
    """Enable `cached_in_request` inside this block. Use it only for requests that write nothing, because later changes
    are not seen.
    """
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def cached_in_request(key: Hashable, ask: Callable[[], T]) -> T:
    """Return the cached result for `key`, calling `ask` on the first use within this request. Outside of
    `request_cache`, `ask` is called each time.
    """
    known = _known.get()
    if known is None:
        return ask()
    if key not in known:
        known[key] = ask()
    found: T = known[key]
    return found
