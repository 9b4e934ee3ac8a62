"""The pretended Entra ID as a process of its own, and people who go there and back with Django's client."""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import requests
from django.test import Client

from fleet.accounts import provider
from fleet.accounts.models import SignOn
from tests.processes import PYTHON, ROOT, running, wait_for

BACK = "/accounts/sign-on/back/"


class Directory:
    """Its issuer, and the calls that control its behaviour."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        parts = urlsplit(issuer)
        self.url = f"{parts.scheme}://{parts.netloc}"

    def control(self, path: str, **said: Any) -> Any:
        answer = requests.post(f"{self.url}/control/{path}", json=said, timeout=10)
        answer.raise_for_status()
        return answer.json()

    def fault(self, name: str, count: int = 1) -> None:
        self.control("faults", fault=name, count=count)

    def asked(self) -> list[str]:
        """The paths of all requests so far, without the issuer's."""
        log = requests.get(f"{self.url}/control/log", timeout=10).json()
        return [one["path"].rpartition("/")[2] for one in log]


@contextmanager
def directory(folder: Path, back: str) -> Iterator[Directory]:
    command = [PYTHON, "-m", "azure_simulator.entra", "--listen", "127.0.0.1:0", "--redirect", back]
    with running(command, environment={}, log=folder / "entra.log", cwd=ROOT / "agents") as process:
        found = wait_for(
            lambda: re.search(r"listening on (\S+)", process.said()), seconds=60, what="the directory listens"
        )
        yield Directory(found[1])


def asked_for(client: Client, **query: str) -> dict[str, str]:
    """Where the link of the login page leads, as the parameters of the address."""
    answer = client.get(f"/accounts/sign-on/?{urlencode(query)}" if query else "/accounts/sign-on/")
    assert answer.status_code == 302, answer.content
    return {"": answer["Location"], **dict(parse_qsl(urlsplit(answer["Location"]).query))}


def there(asked: dict[str, str], name: str) -> dict[str, str]:
    """Return the provider's parameters for the way back, after a user of this name has signed in there."""
    answer = requests.get(f"{asked['']}&as={name}", allow_redirects=False, timeout=10)
    assert answer.status_code == 302, answer.text
    return dict(parse_qsl(urlsplit(answer.headers["Location"]).query))


def pass_time(minutes: float) -> Counter[str]:
    """Age all accounts at the provider by this time, and query it. Return the outcomes."""
    for row in SignOn.objects.all():
        for name in ("checked_at", "valid_until", "next_check_at"):
            at = getattr(row, name)
            setattr(row, name, at and at - timedelta(minutes=minutes))
        row.save()
    return provider.refresh(now=datetime.now(UTC))


def come(client: Client, name: str, **query: str) -> Any:
    """All the way: to the provider, and back. The last answer."""
    return client.get(BACK, there(asked_for(client, **query), name))
