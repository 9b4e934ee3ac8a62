"""`manage.py create_person NAME --group GROUP`: somebody who may log in."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from fleet.domain.people import GROUPS
from fleet.domain.refusal import Refused
from fleet.operations.people.accounts import make_person
from fleet.wording.reader import API
from fleet.wording.say import say


class Command(BaseCommand):
    help = "Make a person and print the password. It is shown this once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--group", choices=GROUPS, required=True, help="what they may")

    def handle(self, *args: Any, username: str, group: str, **options: Any) -> None:
        try:
            _, password = make_person(username=username, group=group, now=timezone.now())
        except Refused as refused:
            raise CommandError(say(refused.reason, API)) from refused
        self.stdout.write(password)
        self.stderr.write("It is shown this once; they change it on their own page.")
