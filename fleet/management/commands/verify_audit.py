"""`drydock-fleet verify_audit`: check that the timeline has not changed since it was sealed."""

import re
from argparse import ArgumentTypeError

from django.core.management.base import CommandError

from fleet.audit.seals import Finding, verify
from fleet.management.helpers import OperationCommand
from fleet.wording.say import say
from fleet.wording.times import API


def head(text: str) -> tuple[int, str]:
    """Parse the number and hash of a seal from `NUMBER:HASH`, as the log states it. Raises ArgumentTypeError."""
    found = re.fullmatch(r"([0-9]{1,18}):([0-9a-f]{64})", text.strip().lower())
    if not found:
        raise ArgumentTypeError(f"{text!r} is no head: copy NUMBER:HASH from a log line `audit.sealed`.")
    return int(found[1]), found[2]


class Command(OperationCommand):
    help = (
        "Compute the seals of the timeline again and name every interval in which a row or a seal was edited, deleted"
        " or inserted. Ends with status 1 if anything is wrong."
    )

    arguments = {
        "--head": {
            "action": "append",
            "type": head,
            "default": [],
            "metavar": "NUMBER:HASH",
            "help": "a head out of the log that has to be in the chain; may be given several times",
        },
        "--from": {
            "type": int,
            "default": 1,
            "dest": "first",
            "metavar": "NUMBER",
            "help": "begin at this seal and believe what is before it",
        },
    }

    def run(self, *, head: list[tuple[int, str]], first: int) -> None:
        if first < 1:
            raise CommandError("Seals are numbered from 1 on.")

        def tell(finding: Finding) -> None:
            self.stdout.write(say(finding.reason, API))

        found = verify(now=self.now, heads=dict(head), first=first, tell=tell)
        self.stdout.write(
            f"{found.seals} seals over {found.rows} rows were computed again; head: {found.head or 'none yet'}."
        )
        if found.files:
            self.stdout.write(f"{found.files} files of the archive were read to their ends.")
        if found.findings:
            raise CommandError(f"The timeline is not as it was sealed: {found.findings} findings.")
        self.stdout.write("Nothing is wrong.")
