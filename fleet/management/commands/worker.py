"""`drydock-fleet worker`: run the worker that relays approvals, seals the timeline, and sends notifications."""

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from fleet.celery import app
from fleet.management import supervisor


class Command(BaseCommand):
    help = "Runs Celery's worker until SIGTERM. Further options of Celery stand after `--`."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--concurrency", type=int, default=supervisor.CONCURRENCY, help="How many tasks run at once (%(default)s)."
        )
        parser.add_argument("--hostname", default="", help="What this worker is called, as NAME@HOST.")
        parser.add_argument("more", nargs="*", metavar="OPTION", help="An option of Celery's worker.")

    def handle(self, *args: Any, concurrency: int, hostname: str, more: list[str], **options: Any) -> None:
        named = ["--hostname", hostname] if hostname else []
        sys.exit(app.start(supervisor.worker(concurrency=concurrency, more=[*named, *more])))
