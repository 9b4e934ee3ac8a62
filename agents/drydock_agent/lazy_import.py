"""Imports of modules at first use."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class LazyImport:
    """Proxy for a module that is imported when an attribute of it is first read.

    Most machines have no event for weeks. Modules that only an event needs should therefore use no memory before.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)
