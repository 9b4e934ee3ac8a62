"""`python -m bench.seed`: a large fleet with a year of history, for measurements and for looking at pages."""

import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from bench.seed.fill import Size, fill
from fleet.models import Machine
from fleet.operations import clock


class Command(BaseCommand):
    help = (
        "Fill an empty database with a large fleet: machines, sets, services, caches, a year of events with their"
        " documents and entries, and open events. What is written can never be taken out again: use a database for it."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--machines", type=int, default=1_000, metavar="N", help="default 1000")
        parser.add_argument("--set-size", type=int, default=20, metavar="N", help="machines a set; default 20")
        parser.add_argument("--entries", type=int, default=100_000, metavar="N", help="about so many; default 100000")
        parser.add_argument("--open-events", type=int, default=10, metavar="N", help="at most one a set; default 10")
        parser.add_argument("--flood", type=int, default=0, metavar="N", help="open events of one machine")

    def handle(
        self, *args: Any, machines: int, set_size: int, entries: int, open_events: int, flood: int, **options: Any
    ) -> None:
        size = Size(machines, set_size, entries, open_events, flood)
        if machines < 1 or set_size < 1 or min(entries, open_events, flood) < 0:
            raise CommandError("Numbers are counted from 1 on, entries and events from 0.")
        if open_events > size.sets:
            raise CommandError(f"There is at most one open event a set: {size.sets:,} sets, {open_events:,} events.")
        if Machine.objects.exists():
            raise CommandError("This database has machines already: only an empty one is filled.")
        began = time.monotonic()

        def tell(what: str) -> None:
            self.stdout.write(f"{time.monotonic() - began:6.1f} s  {what}")
            self.stdout.flush()

        written = fill(size, now=clock.now(), tell=tell)
        for model, count in sorted(written.items(), key=lambda item: -item[1]):
            tell(f"{count:12,} rows of {model._meta.db_table}")
