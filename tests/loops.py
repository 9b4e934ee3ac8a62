"""Coroutines played on a loop of their own."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def in_a_loop(story: Coroutine[Any, Any, T]) -> T:
    """What the story returns, in a loop of its own: tests of the browser leave theirs running in this thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, story).result()
