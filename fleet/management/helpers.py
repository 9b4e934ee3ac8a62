"""Helpers of management commands."""

import argparse
import os
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

from django.core.management.base import BaseCommand, CommandError

from fleet.domain.actor import COMMAND_LINE
from fleet.domain.reasons import Refused
from fleet.operations import clock
from fleet.wording.say import say
from fleet.wording.times import API

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def duration(text: str) -> timedelta:
    """Parse a duration such as `90s`, `30m`, `12h`, `7d` or `2w`. Raises ArgumentTypeError."""
    found = re.fullmatch(r"([0-9]{1,6})([smhdw])", text.strip().lower())
    if not found or not int(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no span of time: write 90s, 30m, 12h, 7d or 2w.")
    return timedelta(**{UNITS[found[2]]: int(found[1])})


class OperationCommand(BaseCommand):
    """Base class of commands that call an operation.

    `arguments` maps the name or flag of each argument to the options of `add_argument`. `run` gets their values, except
    the reason (`WHY`), which is in `actor`. `now` is the current time. If the operation refuses, the command ends with
    status 1.
    """

    arguments: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    names: tuple[str, ...] = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        self.names = tuple(parser.add_argument(name, **each).dest for name, each in self.arguments.items())

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self.now, self.actor = clock.now(), COMMAND_LINE.because(options.get("why") or "")
            self.run(**{name: options[name] for name in self.names if name != "why"})
        except Refused as refused:
            field = next((error["field"] for error in refused.details.get("errors", ())), "")
            raise CommandError(f"{field}: {say(refused.reason, API)}".removeprefix(": ")) from refused

    def run(self, *args: Any, **options: Any) -> None:
        raise NotImplementedError


WHY = {"--why": {"default": "", "help": "the reason, shown in the timeline"}}


# Files that hold secrets.


def write_private(path: Path, text: str) -> None:
    """Replace the file atomically; only its owner can read it at any time."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(text)
    draft.replace(path)
