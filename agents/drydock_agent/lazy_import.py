"""Lazy imports of modules."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class LazyImport:
    """Proxy that imports its module on first attribute access.

    Most machines see no event for weeks, so modules that only an event needs should not use memory.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)
