"""Helpers of management commands."""

from __future__ import annotations

import argparse
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from fleet.domain.reasons import Refused
from fleet.wording.say import say
from fleet.wording.times import API

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def duration(text: str) -> timedelta:
    """`90s`, `30m`, `12h`, `7d` or `2w`. Raises ArgumentTypeError."""
    found = re.fullmatch(r"([0-9]{1,6})([smhdw])", text.strip().lower())
    if not found or not int(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no span of time: write 90s, 30m, 12h, 7d or 2w.")
    return timedelta(**{UNITS[found[2]]: int(found[1])})


# What the commands have in common that make one call of an operation.


class OperationCommand(BaseCommand):
    """What the operation refuses is said, and the command ends with status 1."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except Refused as refused:
            raise CommandError(say(refused.reason, API)) from refused


# Files that hold secrets.


def write_private(path: Path, text: str) -> None:
    """Replaces the file in one step; nobody but its owner could ever read it."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(text)
    draft.replace(path)
