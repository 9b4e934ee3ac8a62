"""Streams and files in progress end when the session, token or rights that opened them end, entry or none."""

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from http.client import HTTPException
from pathlib import Path

import psycopg
import pytest
import requests
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.db.models import QuerySet
from django.test import Client
from django.utils import timezone

from fleet.accounts import sessions
from fleet.domain.secrets import new_secret, prefix_of
from fleet.embedded import Urls
from fleet.models import ApiToken, Scope
from tests.factories import operator, viewer
from tests.gateway_process import Gateway, running_gateway
from tests.processes import wait_for
from tests.rows import bearer

pytestmark = pytest.mark.real_time

# Ending takes half a second; a stream that the gateway does not end lasts 200.
SOON = 20.0
SECRET = "a-secret-that-nobody-guesses-soon"


def new_operator() -> User:
    return operator(f"otto-{new_secret('x')[-8:]}")


def session_of(person: User) -> dict[str, str]:
    client = Client()
    client.force_login(person)
    return {"Cookie": f"drydock_session={client.session.session_key}"}


def key_of(headers: dict[str, str]) -> str:
    return headers["Cookie"].partition("=")[2]


def opened(gateway: Gateway, headers: dict[str, str], path: str = "/stream") -> requests.Response:
    """A stream that has begun."""
    answer = requests.get(gateway.url + path, headers=headers, stream=True, timeout=SOON)
    assert answer.status_code == 200, answer.text
    return answer


def begun(gateway: Gateway, headers: dict[str, str]) -> Iterator[bytes]:
    """Return the further lines of a stream that has begun; closing it is left to its end."""
    lines: Iterator[bytes] = opened(gateway, headers).iter_lines()
    next(lines)
    return lines


def has_ended(stream: Iterator[bytes]) -> bool:
    """Return whether the stream ends soon; its pings do not count."""
    began = time.monotonic()
    return all(time.monotonic() - began < SOON for _ in stream)


def row_of(headers: dict[str, str]) -> QuerySet[ApiToken]:
    return ApiToken.objects.filter(prefix=prefix_of(headers["Authorization"].split()[1]))


def soon() -> datetime:
    return timezone.now() + timedelta(seconds=0.3)


def browser_of(headers: dict[str, str]) -> Client:
    client = Client()
    client.cookies["drydock_session"] = key_of(headers)
    return client


# What ends the access of a session, and of a token.
SESSION_ENDS: dict[str, Callable[[User, dict[str, str]], object]] = {
    "signed out": lambda _, headers: browser_of(headers).post("/accounts/logout/"),
    "row gone": lambda _, headers: Session.objects.filter(pk=key_of(headers)).delete(),
    "expired": lambda _, headers: Session.objects.filter(pk=key_of(headers)).update(expire_date=soon()),
    "disabled": lambda person, _: User.objects.filter(pk=person.pk).update(is_active=False),
    "no group": lambda person, _: person.groups.clear(),
    "new password": lambda person, _: User.objects.filter(pk=person.pk).update(password="another"),
}
TOKEN_ENDS: dict[str, Callable[[User, dict[str, str]], object]] = {
    "expired": lambda _, headers: row_of(headers).update(expires_at=soon()),
    "revoked": lambda _, headers: row_of(headers).update(revoked_at=timezone.now()),
    "narrowed": lambda _, headers: row_of(headers).update(scopes=["approve"]),
    "scoped": lambda person, _: Scope.objects.create(user=person, kind="name", pattern="web*"),
    "another group": lambda person, _: person.groups.add(Group.objects.get_or_create(name="viewer")[0]),
    "another network": lambda _, headers: row_of(headers).update(allowed_from=["198.51.100.0/24"]),
    # The token by which it was made has expired.
    "its maker": lambda person, headers: row_of(headers).update(
        made_with=row_of(bearer(person, "read", expires_at=timezone.now())).get()
    ),
    "row gone": lambda _, headers: row_of(headers).delete(),
}


def test_all_streams_end_with_the_access_that_opened_them(gateway: Gateway) -> None:
    ends = [(f"session: {name}", session_of, end) for name, end in SESSION_ENDS.items()]
    ends += [(f"token: {name}", lambda person: bearer(person, "read"), end) for name, end in TOKEN_ENDS.items()]
    streams: dict[str, list[Iterator[bytes]]] = {}
    changes: list[Callable[[], object]] = []
    for name, headers_of, end in ends:
        person = new_operator()
        headers = headers_of(person)
        streams[name] = [begun(gateway, headers) for _ in range(3)]
        changes.append(partial(end, person, headers))
    for change in changes:
        change()
    assert [name for name, several in streams.items() if not all(map(has_ended, several))] == []


def test_what_changes_nothing_of_the_access_ends_no_stream(gateway: Gateway) -> None:
    person = new_operator()
    headers = session_of(person)
    stream = begun(gateway, headers)
    # Session data and the time of the last login.
    session = browser_of(headers).session
    session["something"] = "else"
    session.save()
    User.objects.filter(pk=person.pk).update(last_login=timezone.now())
    time.sleep(2)
    agent = gateway.agent()
    assert any(agent.vm_id[:8].encode() in line for line in stream)


@pytest.fixture(scope="module")
def many_entries(one_gateway: Gateway) -> None:
    """So many acts that no socket holds the file of them."""
    with psycopg.connect(one_gateway.urls.database, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO fleet_entry (at, kind, actor, via, text, data, why)"
            " SELECT now(), 'token_created', '', 'command', '', '{}', repeat('why ', 4000)"
            " FROM generate_series(1, 1200)"
        )


def is_whole(pieces: Iterator[bytes]) -> bool:
    try:
        return sum(map(len, pieces)) > 0
    except (requests.RequestException, HTTPException, OSError):
        return False


def test_a_file_in_progress_is_cut_off_with_its_access(gateway: Gateway, many_entries: None) -> None:
    api, page, person = "/api/v1/audit/export.csv", "/audit/export.csv", new_operator()
    token, session = bearer(new_operator(), "read"), session_of(person)
    # A browser may send whatever header it likes with a page; the session is what counts there.
    lasting = session_of(new_operator()) | {"Authorization": "Bearer dd_nothing_at_all"}
    calls = ((token, api), (session, api), (lasting, page))
    files = [opened(gateway, headers, path).iter_content(64 * 1024) for headers, path in calls]
    for pieces in files:
        next(pieces)
    row_of(token).update(expires_at=soon())
    sessions.drop(person)
    Session.objects.filter(pk=key_of(session)).delete()
    # Longer than it takes to notice; meanwhile no byte is read.
    time.sleep(3)
    assert [is_whole(pieces) for pieces in files] == [False, False, True]


def by_proxy(name: str) -> dict[str, str]:
    return {"X-Remote-User": name, "X-Proxy-Secret": SECRET}


def test_a_session_of_the_login_proxy_opens_nothing_without_it_and_its_stream_ends_by_itself(
    gateway: Gateway, servers: Urls, folder: Path
) -> None:
    settings = {"PROXY_SIGN_IN_FROM": "127.0.0.1", "PROXY_SIGN_IN_SECRET": SECRET, "PROXY_SIGN_IN_STREAM_SECONDS": "8"}
    said = by_proxy(new_operator().get_username())
    with running_gateway(servers, folder, environment=settings) as proxied:

        def cookie() -> dict[str, str]:
            browser = requests.Session()
            assert browser.get(f"{proxied.url}/api/v1/me/", headers=said, timeout=SOON).status_code == 200
            return {"Cookie": f"drydock_session={browser.cookies['drydock_session']}"}

        first = cookie()
        strangers = (
            {},
            by_proxy(viewer().get_username()),
            {**said, "X-Proxy-Secret": "wrong"},
            {**said, "X-Remote-Groups": "admins"},
        )
        for stranger in strangers:
            answer = requests.get(f"{proxied.url}/stream", headers=first | stranger, timeout=SOON)
            assert answer.status_code == 401, stranger
        # A process that believes no proxy believes none of its sessions.
        assert requests.get(f"{gateway.url}/stream", headers=first | said, timeout=SOON).status_code == 401
        wait_for(lambda: requests.get(f"{proxied.url}/readyz", timeout=SOON).ok, seconds=30, what="it is ready")
        began = time.monotonic()
        stream, lasting = begun(proxied, first | said), begun(proxied, cookie() | said)
        # Called once without the proxy, the session is over, and so is the stream.
        assert requests.get(f"{proxied.url}/api/v1/me/", headers=first, timeout=SOON).status_code == 401
        assert has_ended(stream) and time.monotonic() - began < 7
        assert has_ended(lasting) and time.monotonic() - began > 7
