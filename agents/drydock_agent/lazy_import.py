"""Modules that are imported when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class LazyImport:
    """Stands for a module until something of it is asked for.

    Most machines see no event for weeks; what only an event needs should not cost memory on all of them.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)
