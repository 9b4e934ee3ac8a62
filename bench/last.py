"""The figures that were committed last: `last.json`, by key. `--save` writes those of the lines measured into it."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from bench.table import Line

FILE = Path(__file__).with_name("last.json")


def ratios(file: Path = FILE) -> dict[str, float]:
    return {key: kept["ratio"] for key, kept in _kept(file).items()}


def save(lines: Sequence[Line], *, day: str, file: Path = FILE) -> None:
    """Lines that were not measured this time stay as they are."""
    kept = _kept(file)
    for line in lines:
        if line.ratio is not None:
            # Four digits: the rest says nothing and would make every difference of the file a long one.
            kept[line.key] = {
                "what": line.what,
                "figure": line.figure,
                "ratio": float(f"{line.ratio:.4g}"),
                "aim": str(line.aim),
                "day": day,
            }
    file.write_text(json.dumps(kept, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def not_measured(keys: Collection[str], *, file: Path = FILE) -> dict[str, list[str]]:
    """Return the keys of the file that this run did not measure, by the day of their figures."""
    found: dict[str, list[str]] = {}
    for key, kept in sorted(_kept(file).items()):
        if key not in keys:
            found.setdefault(kept["day"], []).append(key)
    return found


def _kept(file: Path) -> dict[str, dict[str, Any]]:
    kept: dict[str, dict[str, Any]] = json.loads(file.read_text()) if file.exists() else {}
    return kept
