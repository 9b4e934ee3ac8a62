"""`manage.py print_docs`: write the generated parts of the documentation again, or list those that are out of date."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from fleet.management import documentation


class Command(BaseCommand):
    help = "Print the generated parts of docs/ from the code. With --check, change nothing and fail if one is stale."
    # The documentation depends on no server.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true", help="compare only")

    def handle(self, *args: Any, check: bool, **options: Any) -> None:
        docs = Path(settings.BASE_DIR) / "docs"
        try:
            found = documentation.pages(docs)
            stale = {path: text for path, text in found.items() if path.read_text(encoding="utf-8") != text}
        except OSError as error:
            raise CommandError(str(error)) from error
        names = ", ".join(f"docs/{path.relative_to(docs)}" for path in stale)
        if check and stale:
            raise CommandError(f"Stale: {names}. Run `manage.py print_docs`.")
        for path, text in stale.items():
            path.write_text(text, encoding="utf-8")
        self.stdout.write(f"Renewed: {names}." if stale else "The documentation is up to date.")
