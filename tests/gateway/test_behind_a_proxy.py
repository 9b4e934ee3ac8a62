"""Behind nginx as `docs/admin/proxy.md` and `docs/admin/scale.md` show it."""

import http.client
import json
import re
import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests
from pytest_django.plugin import DjangoDbBlocker

from fleet.embedded import Urls
from fleet.models import Entry
from fleet.operations import wake_up
from tests.certificates import Authority
from tests.factories import admin, viewer
from tests.gateway.conftest import shared
from tests.gateway.test_long_polls import approve_for
from tests.gateway.test_streams import events, listen
from tests.gateway_process import Gateway, running_gateway
from tests.nginx import OF_COMPOSE, played_here, replaced, running_nginx, temporary
from tests.processes import ROOT, free_port
from tests.receivers import receiver
from tests.rows import bearer

pytestmark = pytest.mark.real_time

NAME = "drydock.example.org"

# Another address of this machine's loopback: a client that is not the proxy.
STRANGER = "127.0.0.9"

EXAMPLES = ROOT / "examples" / "nginx"


@dataclass(frozen=True, slots=True)
class Proxy:
    """nginx, running: the gateway as people and agents reach it, where nginx answers plain HTTP, and the gateway."""

    gateway: Gateway
    inside: Gateway
    plain: str
    certificate: Path

    def port(self) -> int:
        return int(self.gateway.url.rpartition(":")[2])

    def call(self, method: str, path: str, body: object, headers: dict[str, str], *, source: str) -> tuple[int, str]:
        """A call from this address of loopback: status and text."""
        trusted = ssl.create_default_context(cafile=str(self.certificate))
        call = http.client.HTTPSConnection(
            "localhost", self.port(), context=trusted, source_address=(source, 0), timeout=20
        )
        with closing(call):
            call.request(method, path, json.dumps(body), {"Content-Type": "application/json", **headers})
            answer = call.getresponse()
            return answer.status, answer.read().decode()


def configuration(folder: Path, *, upstream: str, plain: int, secure: int) -> str:
    """The example with this machine's ports and paths, in as little as nginx needs around it."""
    changes = {
        "server 127.0.0.1:8000;": f"server {upstream};",
        "listen 80;": f"listen 127.0.0.1:{plain};",
        "listen 443 ssl http2;": f"listen 127.0.0.1:{secure} ssl http2;",
        "/etc/ssl/drydock/fullchain.pem": f"{folder}/localhost.pem",
        "/etc/ssl/drydock/key.pem": f"{folder}/localhost.pem",
        # What is waited for here is that it ends at all.
        "client_header_timeout 15s;": "client_header_timeout 1s;",
        # Debian's OpenSSL would refuse old versions anyway.
        "ssl_protocols ": "ssl_ciphers ALL:@SECLEVEL=0; ssl_protocols ",
    }
    text = replaced(
        (EXAMPLES / "tls.conf").read_text(encoding="utf-8"),
        {**changes, f"server_name {NAME};": "server_name localhost;"},
    )
    return f"pid {folder}/pid; error_log stderr; events {{}} http {{ access_log off;\n{temporary(folder)}\n{text}\n}}"


@pytest.fixture(scope="module")
def proxy(one_gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """A gateway of its own behind nginx, on the servers that the tests of this package share."""
    folder = tmp_path_factory.mktemp("proxy")
    authority = Authority(folder)
    authority.server("localhost")
    plain, secure = free_port(), free_port()
    url = f"https://localhost:{secure}"
    own = {"BASE_URL": url, "BEHIND_PROXY": "yes", "TRUSTED_PROXIES": "127.0.0.1", "STREAM_PING_SECONDS": "1"}
    with running_gateway(one_gateway.urls, folder, environment=own) as gateway:
        upstream = gateway.url.removeprefix("http://")
        with running_nginx(configuration(folder, upstream=upstream, plain=plain, secure=secure), folder, secure):
            outside = Gateway(url=url, process=gateway.process, urls=gateway.urls)
            yield Proxy(outside, gateway, f"http://localhost:{plain}", authority.path)


@pytest.fixture
def outside(
    proxy: Proxy, django_db_blocker: DjangoDbBlocker, monkeypatch: pytest.MonkeyPatch, servers: Urls
) -> Iterator[Gateway]:
    """The gateway as agents and people reach it: they trust the proxy's certificate."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(proxy.certificate))
    with shared(servers, django_db_blocker):
        yield proxy.gateway


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_only_new_tls_is_spoken_plain_http_leads_to_it_and_silence_ends(proxy: Proxy) -> None:
    for version, accepted in (("TLSv1", False), ("TLSv1_1", False), ("TLSv1_2", True), ("TLSv1_3", True)):
        context = ssl.create_default_context(cafile=str(proxy.certificate))
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
        refused = nullcontext() if accepted else pytest.raises((ssl.SSLError, ConnectionError))
        with closing(socket.create_connection(("127.0.0.1", proxy.port()), timeout=10)) as plain, refused:
            context.wrap_socket(plain, server_hostname="localhost").close()
    answer = requests.get(f"{proxy.plain}/queue/", allow_redirects=False, timeout=10)
    assert (answer.status_code, answer.headers["Location"]) == (301, "https://localhost/queue/")
    with socket.create_connection(("127.0.0.1", proxy.port()), timeout=10) as silent:
        assert silent.recv(1) == b""


def test_an_agent_enrols_reports_and_gets_its_order_at_once(outside: Gateway) -> None:
    agent = outside.agent()
    assert agent.post(agent.document()).json()["acknowledged"] == 1
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(agent.orders, wait=20)
        # Until the call is held: it has no answer yet.
        time.sleep(0.5)
        assert not call.done()
        order = approve_for(agent)
        began = time.monotonic()
        wake_up.wake_machines([order.machine_id], via="celery")
        (found,) = call.result(20).json()["orders"]
    assert found["id"] == str(order.pk)
    assert time.monotonic() - began < 5


def test_the_largest_batch_goes_through_and_the_numbers_are_for_the_proxys_own_machine(
    proxy: Proxy, outside: Gateway
) -> None:
    agent = outside.agent()
    many = [agent.document(incarnation=number, events=({"padding": "x" * 400_000},)) for number in range(1, 10)]
    assert agent.post(*many).status_code == 200
    assert requests.get(f"{outside.url}/metrics", timeout=10).status_code == 200
    assert proxy.call("GET", "/metrics", None, {}, source=STRANGER)[0] == 403


def test_streams_come_line_by_line(outside: Gateway) -> None:
    with closing(listen(outside, bearer(viewer("vera"), "read"))) as answer:
        stream = events(answer)
        assert next(stream)["event"] == "clock"
        began = time.monotonic()
        outside.agent(resource_name="behind-nginx")
        next(event for event in stream if "behind-nginx" in event["data"])
        assert time.monotonic() - began < 10


def test_people_log_in_and_cookies_are_for_https_only(outside: Gateway, product_passwords: None) -> None:
    page = requests.get(f"{outside.url}/accounts/login/", timeout=10)
    assert page.status_code == 200
    assert all(cookie.secure for cookie in page.cookies)
    form = {"login": "nobody", "password": "guess", "csrfmiddlewaretoken": page.cookies["drydock_csrf"]}
    said = requests.post(page.url, data=form, cookies=page.cookies, headers={"Referer": page.url}, timeout=20)
    # Refused for what was typed, not as a request from elsewhere.
    assert said.status_code == 200
    assert requests.get(f"{outside.url}/machines/", timeout=10, allow_redirects=False).status_code == 302


@pytest.mark.parametrize("name", ["X-Forwarded-For", "X_Forwarded_For", "Forwarded"])
def test_client_cannot_forge_its_address_in_the_audit(proxy: Proxy, outside: Gateway, name: str) -> None:
    headers = bearer(admin("ada"), "admin") | {name: "203.0.113.9"}
    comment = f"as stated by {name}"
    status, text = proxy.call("POST", "/api/v1/join-tokens/", {"comment": comment}, headers, source=STRANGER)
    assert status == 201, text
    assert Entry.objects.get(kind="token_created", why=comment).address == STRANGER


def test_no_client_adds_to_what_a_trusted_proxy_says(proxy: Proxy, servers: Urls) -> None:
    """A header whose name has an underscore counts for nothing: WSGI takes it for the one with a hyphen."""
    address = f"{proxy.inside.url}/accounts/login/"

    by_proxy = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.7", "Referer": f"{proxy.gateway.url}/"}

    def guess(forged: str) -> int:
        cookie = requests.get(address, headers=by_proxy, timeout=10).cookies["drydock_csrf"]
        headers = {**by_proxy, "X_Forwarded_For": forged, "X-CSRFToken": cookie}
        guesses = {"login": "nobody", "password": "guess"}
        return requests.post(
            address, data=guesses, headers=headers, cookies={"drydock_csrf": cookie}, timeout=20
        ).status_code

    # Each guess claims another address, and all of them count for the one that the proxy saw.
    # After the fifth it takes a second, after the sixth two: a slow machine may need one more to be too early.
    said = [guess(f"198.51.100.{number}") for number in range(9)]
    assert said[:5] == [200] * 5 and 429 in said[5:]


PAGES = ("/", "/history/", "/api/v1/events/", "/stream", "/api/v1/stream", "/agent/v1/enrol")

CALLS = ("/agent/v1/reports", "/agent/v1/orders?wait=40")


@contextmanager
def answering(name: str) -> Iterator[int]:
    """Yield the port of a server that answers everything with this name."""
    with receiver() as server:
        server.body = name.encode()
        yield server.port


def split_configuration(folder: Path, port: int, machines: int, people: int) -> str:
    """The file of the containers, with the upstreams that the page shows in place of its own."""
    page = (ROOT / "docs" / "admin" / "scale.md").read_text(encoding="utf-8")
    found = re.search(r"### One for machines, one for people.*?```nginx\n(.*?)```", page, re.DOTALL)
    shown = replaced(found[1], {"127.0.0.1:8000": f"127.0.0.1:{machines}", "127.0.0.1:8001": f"127.0.0.1:{people}"})
    text, count = re.subn(r"upstream \w+ \{.*?\n    \}\n", "", OF_COMPOSE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert count == 2
    return played_here(text.replace("http {\n", f"http {{\n{shown}", 1), folder, port)


def test_each_has_its_own_process_and_the_other_one_where_that_is_gone(tmp_path: Path) -> None:
    port = free_port()

    def answers(paths: tuple[str, ...]) -> set[str]:
        return {requests.get(f"http://127.0.0.1:{port}{path}", timeout=10).text for path in paths}

    with answering("machines") as machines:
        with (
            answering("people") as people,
            running_nginx(split_configuration(tmp_path, port, machines, people), tmp_path, port),
        ):
            assert (answers(PAGES), answers(CALLS)) == ({"people"}, {"machines"})
        (tmp_path / "later").mkdir()
        with running_nginx(split_configuration(tmp_path, port, machines, free_port()), tmp_path / "later", port):
            assert (answers(PAGES), answers(CALLS)) == ({"machines"}, {"machines"})
