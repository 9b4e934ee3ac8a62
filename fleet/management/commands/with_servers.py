"""`manage.py with_servers -- COMMAND...`: run any command, with the embedded Postgres and Valkey if no URLs are set."""

import os
import signal
import subprocess
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from fleet.embedded import ServerProblem, Urls, servers, temporary_folder
from fleet.embedded.parent_death import bound

WATCH_SECONDS = 0.5


class Command(BaseCommand):
    help = "Runs a command with DATABASE_URL, REDIS_URL and SECRET_KEY set; starts servers where they are not."
    # The settings may be incomplete here: this command completes them.
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--data", type=Path, help="Where the servers keep their data. Without it: nowhere for long."
        )
        parser.add_argument("command", nargs="+", metavar="COMMAND", help="The command and its arguments, after `--`.")

    def handle(self, *args: Any, data: Path | None, command: list[str], **options: Any) -> None:
        # SIGTERM ends the block below like Ctrl-C does, so that the servers stop orderly. A shell without job control
        # starts background commands (`&`) with SIGINT ignored.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
        try:
            with (
                nullcontext(data) if data else temporary_folder() as folder,
                servers(folder, dict(os.environ), durable=data is not None) as urls,
            ):
                environment = {"SECRET_KEY": "for one command only, thrown away afterwards", **os.environ}
                child = subprocess.Popen(bound(command), env={**environment, **urls.environment})
                status = wait(child, urls)
        except ServerProblem as problem:
            raise CommandError(str(problem)) from problem
        sys.exit(status)


def wait(child: subprocess.Popen[bytes], urls: Urls) -> int:
    """Wait for the child process, and return its exit status as a shell would. Pass stop signals to the child, and
    restart database servers that end in the meantime.
    """
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                status = child.wait(WATCH_SECONDS)
                break
            for said in urls.watch():
                sys.stderr.write(f"{said}\n")
    except KeyboardInterrupt:
        child.terminate()
        try:
            status = child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            status = child.wait()
    return status if status >= 0 else 128 - status
