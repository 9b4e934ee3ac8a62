"""`python -m bench [NAME ...]`: runs the measurements named, or all, and prints one table."""

from __future__ import annotations

import importlib
import os
import platform
import sys
import time

from bench.stage import stage
from bench.table import table

# In this order; each is a module here with `measure(stage) -> list[Line]`.
MEASUREMENTS = ("raw", "ingest", "ring", "relay", "tick", "messages")


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in MEASUREMENTS]
    if unknown:
        print(f"There is no measurement {', '.join(unknown)}: choose from {', '.join(MEASUREMENTS)}.", file=sys.stderr)
        return 2
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for name in names or MEASUREMENTS:
        began = time.monotonic()
        # A stage of its own for each: no measurement leaves rows or processes for the next.
        with stage() as one:
            lines = importlib.import_module(f"bench.{name}").measure(one)
        print(f"\n{name} ({time.monotonic() - began:.0f} s)\n{table(lines)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
