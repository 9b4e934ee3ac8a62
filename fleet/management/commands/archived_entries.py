"""`drydock-fleet archived_entries`: print archived timeline entries from the archive's files, one on each line."""

from argparse import ArgumentParser, ArgumentTypeError
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils.dateparse import parse_date, parse_datetime

from fleet.audit.archive_format import BadArchiveError, StoreError
from fleet.audit.archived_entries import ArchivedSpan, archived_rows
from fleet.audit.queries import json_line
from fleet.projections.timeline.entries import with_merged
from fleet.wording.timeline import FAULTS


def time_of(text: str) -> datetime:
    """Parse a time or a date; one without a zone is in UTC. Raises ArgumentTypeError."""
    try:
        day = parse_date(text)
        found = datetime(day.year, day.month, day.day, tzinfo=UTC) if day else parse_datetime(text)
    except ValueError:
        found = None
    if found is None:
        raise ArgumentTypeError(f"{text!r} is no time: say one such as 2030-01-31 or 2030-01-31T22:00:00Z.")
    return found if found.tzinfo else found.replace(tzinfo=UTC)


class Command(BaseCommand):
    help = (
        "Print the entries that have left the timeline for the archive, one JSON object a line, as the audit's own"
        " files have them, the oldest first. Without --set, --machine, --cache and --acts it prints all of them."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        for name in ("set", "machine", "cache"):
            parser.add_argument(f"--{name}", type=int, metavar="ID", help=f"only of this {name}, by its row id")
        parser.add_argument("--acts", action="store_true", help="only what people and rules did, as in the audit")
        parser.add_argument("--since", type=time_of, metavar="TIME", help="only what happened then or later")
        parser.add_argument("--until", type=time_of, metavar="TIME", help="only what happened before")

    def handle(self, *args: Any, acts: bool, since: datetime | None, until: datetime | None, **options: Any) -> None:
        about = {f"{name}_id": [options[name]] for name in ("machine", "cache") if options[name] is not None}
        if options["set"] is not None:
            about["availability_set_id"] = with_merged(options["set"])
        try:
            for row in archived_rows(ArchivedSpan(about, acts, since, until)):
                self.stdout.write(json_line(row), ending="")
        except (BadArchiveError, StoreError) as error:
            raise CommandError(f"It was broken off, and what follows is not printed: {FAULTS[error.fault]}.") from error
