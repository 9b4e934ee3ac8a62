"""Spans of time as people type them on a command line."""

import argparse
import re
from datetime import timedelta

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def duration(text: str) -> timedelta:
    """`90s`, `30m`, `12h`, `7d` or `2w`. Raises ArgumentTypeError."""
    found = re.fullmatch(r"([0-9]{1,6})([smhdw])", text.strip().lower())
    if not found or not int(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no span of time: write 90s, 30m, 12h, 7d or 2w.")
    return timedelta(**{UNITS[found[2]]: int(found[1])})
