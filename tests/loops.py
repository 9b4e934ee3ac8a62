"""Coroutines played on a loop of their own."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def in_a_loop(story: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """The story as a function, played in a loop of its own: tests of the browser leave theirs running in this
    thread.
    """

    @wraps(story)
    def play(*args: P.args, **kwargs: P.kwargs) -> T:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(asyncio.run, story(*args, **kwargs)).result()

    return play
