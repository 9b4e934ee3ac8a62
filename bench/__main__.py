"""`python -m bench [NAME ...] [--save]`: runs the measurements named, or all, and prints one table of each.

Each line with a stated aim shows its ratio, next to the one committed last (`last.json`, which `--save` writes).
Nothing here ever fails a build.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import sys
import time
import traceback
from datetime import UTC, datetime

from bench import last
from bench.stage import stage
from bench.table import Line, table

# In this order; each is a module here with `measure(stage) -> list[Line]`.
MEASUREMENTS = (
    "raw",
    "ingest",
    "held",
    "storm",
    "ring",
    "relay",
    "tick",
    "messages",
    "pages",
    "flooded",
    "keys",
    "fairness",
)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measurements; all of them without a name.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MEASUREMENTS))
    parser.add_argument("--save", action="store_true", help="write the ratios measured into bench/last.json")
    asked = parser.parse_args(arguments)
    if unknown := [name for name in asked.names if name not in MEASUREMENTS]:
        parser.error(f"there is no measurement {', '.join(unknown)}: choose from {', '.join(MEASUREMENTS)}")
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    before, found, failed = last.ratios(), list[Line](), list[str]()
    for name in asked.names or MEASUREMENTS:
        began = time.monotonic()
        # A stage of its own for each: no measurement leaves rows or processes for the next.
        try:
            with stage() as one:
                lines = importlib.import_module(f"bench.{name}").measure(one)
        except Exception:  # noqa: BLE001
            # The others are still worth an hour's run.
            failed.append(name)
            traceback.print_exc()
            continue
        print(f"\n{name} ({time.monotonic() - began:.0f} s)\n{table(lines, before)}", flush=True)
        found += lines
        if asked.save:
            # After each: one that fails takes nothing from those before it.
            last.save(lines, day=f"{datetime.now(UTC):%Y-%m-%d}")
    missed = [line.key for line in found if line.aim and line.ratio is not None and not line.aim.held(line.ratio)]
    print(f"\nAims missed: {', '.join(missed) or 'none'}.")
    for day, keys in last.not_measured({line.key for line in found}).items():
        print(f"Not measured in this run, last on {day}: {', '.join(keys)}.")
    if failed:
        print(f"Failed, see above: {', '.join(failed)}.")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
