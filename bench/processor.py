"""Processor seconds of processes and of all their children."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def used(processes: Mapping[str, int]) -> dict[str, float]:
    """Seconds of each of these (name → process id), its children and theirs, ended ones included."""
    children: dict[int, list[int]] = {}
    seconds: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            number = int(path.parent.name)
            children.setdefault(int(fields[1]), []).append(number)
            seconds[number] = sum(map(int, fields[11:15])) / TICKS
    return {name: _of_all(pid, children, seconds) for name, pid in processes.items()}


def _of_all(pid: int, children: Mapping[int, list[int]], seconds: Mapping[int, float]) -> float:
    return seconds.get(pid, 0.0) + sum(_of_all(child, children, seconds) for child in children.get(pid, ()))
