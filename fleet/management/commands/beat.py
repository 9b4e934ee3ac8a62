"""`drydock-fleet beat`: run Celery's scheduler, which queues a task for due work every few seconds."""

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from fleet.celery import app
from fleet.management import supervisor


class Command(BaseCommand):
    help = "Runs Celery's beat until SIGTERM; one is enough, two do no harm. Options of Celery stand after `--`."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("more", nargs="*", metavar="OPTION", help="An option of Celery's beat.")

    def handle(self, *args: Any, more: list[str], **options: Any) -> None:
        sys.exit(app.start([*supervisor.BEAT, *more]))
