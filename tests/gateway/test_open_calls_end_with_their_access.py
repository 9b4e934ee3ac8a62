"""Streams and files in progress end when the session, token or rights that opened them end, entry or none."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
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

from fleet.accounts import sessions, tokens
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


@pytest.fixture
def person(gateway: Gateway) -> User:
    """An operator of this test alone."""
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


def ends(answer: requests.Response, after: Callable[[], object]) -> bool:
    """Whether the stream ends soon after this; its pings do not count."""
    with closing(answer):
        lines = answer.iter_lines()
        next(lines)
        after()
        began = time.monotonic()
        for _ in lines:
            if time.monotonic() - began > SOON:
                return False
    return time.monotonic() - began < SOON


def row_of(headers: dict[str, str]) -> QuerySet[ApiToken]:
    return ApiToken.objects.filter(prefix=prefix_of(headers["Authorization"].split()[1]))


def expire(headers: dict[str, str]) -> None:
    row_of(headers).update(expires_at=timezone.now() + timedelta(seconds=0.3))


@pytest.mark.parametrize("how", ["signed-out", "row-gone", "expired", "disabled", "no-group", "password"])
def test_a_stream_of_a_session_ends(gateway: Gateway, person: User, how: str) -> None:
    headers = session_of(person)
    key = key_of(headers)

    def end() -> None:
        if how == "signed-out":
            client = Client()
            client.cookies["drydock_session"] = key
            assert client.post("/accounts/logout/").status_code == 302
        elif how == "row-gone":
            Session.objects.filter(pk=key).delete()
        elif how == "expired":
            Session.objects.filter(pk=key).update(expire_date=timezone.now() + timedelta(seconds=0.3))
        elif how == "disabled":
            User.objects.filter(pk=person.pk).update(is_active=False)
        elif how == "no-group":
            person.groups.clear()
        else:
            User.objects.filter(pk=person.pk).update(password="another")

    assert ends(opened(gateway, headers), end)


@pytest.mark.parametrize(
    "how", ["expired", "revoked", "narrowed", "scoped", "other-group", "elsewhere", "maker", "gone"]
)
def test_a_stream_of_a_token_ends(gateway: Gateway, person: User, how: str) -> None:
    headers = bearer(person, "read")
    row = row_of(headers)

    def end() -> None:
        match how:
            case "expired":
                expire(headers)
            case "revoked":
                row.update(revoked_at=timezone.now())
            case "narrowed":
                row.update(scopes=["approve"])
            case "scoped":
                Scope.objects.create(user=person, kind="name", pattern="web*")
            case "other-group":
                person.groups.set([Group.objects.get(name="operator"), Group.objects.get_or_create(name="viewer")[0]])
            case "elsewhere":
                row.update(allowed_from=["198.51.100.0/24"])
            case "maker":
                # The token by which it was made has expired.
                row.update(made_with=row_of(bearer(person, "read", expires_at=timezone.now())).get())
            case _:
                row.delete()

    assert ends(opened(gateway, headers), end)


def test_what_changes_nothing_of_the_access_ends_no_stream(gateway: Gateway, person: User) -> None:
    headers = session_of(person)
    client = Client()
    client.cookies["drydock_session"] = key_of(headers)
    with closing(opened(gateway, headers)) as answer:
        lines = answer.iter_lines()
        next(lines)
        # Session data and the time of the last login.
        session = client.session
        session["something"] = "else"
        session.save()
        User.objects.filter(pk=person.pk).update(last_login=timezone.now())
        time.sleep(2)
        agent = gateway.agent()
        assert any(agent.vm_id[:8].encode() in line for line in lines)


@pytest.fixture
def many_entries(servers: Urls) -> Iterator[None]:
    """So many acts that no socket holds the file of them."""
    with psycopg.connect(servers.database, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO fleet_entry (at, kind, actor, via, text, data, why)"
            " SELECT now(), 'token_created', '', 'command', '', '{}', repeat('why ', 4000)"
            " FROM generate_series(1, 1200)"
        )
    yield


def got_all_of(answer: requests.Response, after: Callable[[], object]) -> bool:
    """Whether the whole file arrives although this happens after its first bytes."""
    with closing(answer):
        pieces = answer.iter_content(64 * 1024)
        next(pieces)
        after()
        # Longer than it takes to notice; meanwhile no byte is read.
        time.sleep(3)
        try:
            return sum(map(len, pieces)) > 0
        except (requests.RequestException, HTTPException, OSError):
            return False


@pytest.mark.parametrize("by", ["token", "session"])
def test_a_file_in_progress_is_cut_off(gateway: Gateway, person: User, many_entries: None, by: str) -> None:
    headers = bearer(person, "read") if by == "token" else session_of(person)

    def end() -> None:
        if by == "token":
            expire(headers)
        else:
            sessions.drop(person)
            Session.objects.filter(pk=key_of(headers)).delete()

    assert not got_all_of(opened(gateway, headers, "/api/v1/audit/export.csv"), end)


def test_a_file_in_progress_is_sent_whole_while_its_access_lasts(
    gateway: Gateway, person: User, many_entries: None
) -> None:
    # A browser may send whatever header it likes with a page; the session is what counts there.
    headers = session_of(person) | {"Authorization": "Bearer dd_nothing_at_all"}
    assert got_all_of(opened(gateway, headers, "/audit/export.csv"), lambda: None)


@pytest.fixture(scope="module")
def proxied(one_gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway behind a proxy that logs people in."""
    settings = {"PROXY_SIGN_IN_FROM": "127.0.0.1", "PROXY_SIGN_IN_SECRET": SECRET}
    with running_gateway(one_gateway.urls, tmp_path_factory.mktemp("proxied"), environment=settings) as found:
        yield found


def by_proxy(name: str) -> dict[str, str]:
    return {"X-Remote-User": name, "X-Proxy-Secret": SECRET}


def test_a_session_of_the_login_proxy_opens_nothing_without_it(
    gateway: Gateway, proxied: Gateway, person: User
) -> None:
    browser = requests.Session()
    said = by_proxy(person.get_username())
    assert browser.get(f"{proxied.url}/api/v1/me/", headers=said, timeout=SOON).status_code == 200
    cookie = {"Cookie": f"drydock_session={browser.cookies['drydock_session']}"}
    strangers = (
        {},
        by_proxy(viewer().get_username()),
        {**said, "X-Proxy-Secret": "wrong"},
        {**said, "X-Remote-Groups": "admins"},
    )
    for stranger in strangers:
        answer = requests.get(f"{proxied.url}/stream", headers=cookie | stranger, timeout=SOON)
        assert answer.status_code == 401, stranger
    # A process that believes no proxy believes none of its sessions.
    assert requests.get(f"{gateway.url}/stream", headers=cookie | said, timeout=SOON).status_code == 401
    wait_for(lambda: requests.get(f"{proxied.url}/readyz", timeout=SOON).ok, seconds=30, what="it is ready")
    with closing(opened(proxied, cookie | said)) as answer:
        lines = answer.iter_lines()
        next(lines)
        # Called once without the proxy, the session is over, and so is the stream.
        assert requests.get(f"{proxied.url}/api/v1/me/", headers=cookie, timeout=SOON).status_code == 401
        began = time.monotonic()
        assert all(time.monotonic() - began < SOON for _ in lines)


def test_a_stream_of_the_login_proxy_ends_by_itself(
    gateway: Gateway, servers: Urls, person: User, folder: Path
) -> None:
    settings = {"PROXY_SIGN_IN_FROM": "127.0.0.1", "PROXY_SIGN_IN_SECRET": SECRET, "PROXY_SIGN_IN_STREAM_SECONDS": "1"}
    with running_gateway(servers, folder, environment=settings) as found:
        said, browser = by_proxy(person.get_username()), requests.Session()
        assert browser.get(f"{found.url}/api/v1/me/", headers=said, timeout=SOON).status_code == 200
        cookie = {"Cookie": f"drydock_session={browser.cookies['drydock_session']}"}
        assert ends(opened(found, cookie | said), lambda: None)


def test_all_streams_of_one_token_end_together(gateway: Gateway, person: User) -> None:
    headers = bearer(person, "read")
    answers = [opened(gateway, headers) for _ in range(40)]
    ended: list[bool] = []
    threads = [threading.Thread(target=lambda one=one: ended.append(ends(one, lambda: None))) for one in answers]
    for thread in threads:
        thread.start()
    tokens.end_token(prefix=row_of(headers).get().prefix, now=timezone.now())
    for thread in threads:
        thread.join(SOON)
    assert ended == [True] * 40
    assert not row_of(headers).filter(revoked_at=None).exists()
