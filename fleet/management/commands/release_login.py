"""`drydock-fleet release_login NAME`: forget the failed logins of a name."""

from argparse import ArgumentParser

from django.core.management.base import BaseCommand

from fleet.accounts import logins


class Command(BaseCommand):
    help = "Forgets the failed logins of a name, so that its password counts on every device again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="The name that a person logs in with.")

    def handle(self, *, name: str, **_options: object) -> None:
        logins.release(username=name)
        self.stdout.write(f"Failed logins of {name} are forgotten.")
