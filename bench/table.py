"""How results are printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """One result: what was measured, the figure, and what to hold it against."""

    what: str
    figure: str
    beside: str = ""


def table(lines: Sequence[Line]) -> str:
    """Three columns, as wide as they need to be."""
    left, right = max(len(one.what) for one in lines), max(len(one.figure) for one in lines)
    return "\n".join(f"{one.what:<{left}}  {one.figure:>{right}}  {one.beside}".rstrip() for one in lines)


def number(value: float) -> str:
    return f"{value:,.0f}"
