"""`drydock-fleet web`: run the web process with pages, REST API, streams, and the gateway for agents."""

import os
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from fleet.management import supervisor


class Command(BaseCommand):
    help = "Serves pages, REST, streams and agents, until SIGTERM. Further options of Granian stand after `--`."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="The address to listen on (%(default)s).")
        parser.add_argument("--port", type=int, default=8000, help="The port to listen on (%(default)s).")
        parser.add_argument("more", nargs="*", metavar="OPTION", help="An option of Granian.")

    def handle(self, *args: Any, host: str, port: int, more: list[str], **options: Any) -> None:
        command = supervisor.web(host=host, port=port, more=more)
        # The server replaces this process and keeps its process id, so signals reach the server.
        os.execv(command[0], command)
