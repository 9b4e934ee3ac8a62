"""One line in the log for each request, at its end, as JSON where that is asked for: bounded, and without secrets."""

import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from fleet.domain.pseudonyms import pseudonym
from fleet.embedded import Urls
from tests.factories import viewer
from tests.gateway_process import Gateway, running_gateway
from tests.processes import PYTHON, ROOT, free_port, running, wait_for
from tests.rows import bearer


def lines(gateway: Gateway) -> list[dict[str, Any]]:
    """Every line that it has printed, each of which has to be JSON."""
    found = [json.loads(line) for line in gateway.process.said().splitlines()]
    for line in found:
        assert list(line)[:4] == ["time", "level", "logger", "event"], line
    return found


def line_of(gateway: Gateway, request_id: str) -> dict[str, Any]:
    """The one line of a request."""

    def ended() -> list[dict[str, Any]]:
        return [line for line in lines(gateway) if line.get("request_id") == request_id and line["event"] == "request"]

    found = wait_for(lambda: ended() or None, seconds=30, what=f"the line of {request_id}")
    assert len(found) == 1
    return found[0]


def asked(gateway: Gateway, path: str, request_id: str, **headers: str) -> requests.Response:
    named = {"X-Request-ID": request_id, **headers}
    return requests.get(f"{gateway.url}{path}", headers=named, allow_redirects=False, timeout=10)


def test_it_names_the_route_and_no_path_no_value_and_no_secret_address(gateway: Gateway) -> None:
    answer = asked(gateway, "/api/v1/events/SECRET-IN-PATH/?q=SECRET-IN-QUERY", "r1", Authorization="Bearer dd_SECRET")
    assert answer.headers["X-Request-ID"] == "r1"
    line = line_of(gateway, "r1")
    assert line["route"] == "/api/v1/events/<str:event_id>/"
    assert (line["method"], line["status"], line["level"]) == ("GET", 401, "info")
    assert line["ms"] > 0
    assert line["bytes"] == len(answer.content)
    asked(gateway, "/hooks/slack/SECRET-TOKEN/", "r2")
    asked(gateway, "/calendar/SECRET-TOKEN.ics", "r3")
    assert {line_of(gateway, name)["method"] for name in ("r2", "r3")} == {"GET"}
    assert "SECRET" not in gateway.process.said()
    assert any(line["logger"] == "_granian" and "Listening" in line["event"] for line in lines(gateway))


def test_an_id_that_is_none_and_a_trace_that_is_none_are_replaced(gateway: Gateway) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    asked(gateway, "/healthz/x", "r4", traceparent=f"00-{trace}-00f067aa0ba902b7-01")
    assert line_of(gateway, "r4")["trace_id"] == trace
    asked(gateway, "/healthz/x", "r5", traceparent=f"00-{trace.upper()}-00f067aa0ba902b7-01")
    replaced = line_of(gateway, "r5")["trace_id"]
    assert len(replaced) == 32 and replaced.lower() != trace
    given = asked(gateway, "/x", "x" * 129).headers["X-Request-ID"]
    assert len(given) == 32
    assert "trace_id" not in line_of(gateway, given)


def raw(gateway: Gateway, request: bytes) -> None:
    """Sends exactly these bytes, and reads whatever is answered."""
    parts = urlsplit(gateway.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as line:
        line.sendall(request)
        while line.recv(65536):
            pass


def test_a_hostile_request_is_one_bounded_line_at_most(gateway: Gateway) -> None:
    end = b"Host: 127.0.0.1\r\nConnection: close\r\n"
    before = len(lines(gateway))
    raw(gateway, b"GET /%0a%0d%1b[31m{%22event%22:1} HTTP/1.1\r\n" + end + b"X-Request-ID: r6\r\n\r\n")
    raw(gateway, b"GET /" + b"a" * 8000 + b" HTTP/1.1\r\n" + end + b"X-Request-ID: r7\r\n\r\n")
    raw(gateway, b"GET /x HTTP/1.1\r\n" + end + b"X-Request-ID: " + b"b" * 8000 + b"\r\n\r\n")
    raw(gateway, b"GET /x HTTP/1.1\r\n" + end + b"X-Request-ID: r8\r\nX-Request-ID: r8\r\n\r\n")
    raw(gateway, b"GET /x HTTP/1.1\r\n" + end + b"X-Request-ID: r9\x1b[31m\r\n\r\n")
    raw(gateway, b"\x00\xff GET\r\n\r\n")
    line_of(gateway, "r6")
    line_of(gateway, "r7")
    found = lines(gateway)[before:]
    assert len(found) <= 6
    assert all(len(text) < 1000 for text in gateway.process.said().splitlines()[-len(found) :])
    assert "r8" not in {line.get("request_id") for line in found}
    assert "\x1b" not in gateway.process.said()


def test_a_stream_and_a_held_call_are_said_once_at_their_end(gateway: Gateway) -> None:
    agent = gateway.agent()
    agent.orders(wait=0.2)
    refused = requests.get(f"{gateway.url}/agent/v1/orders", headers={"X-Request-ID": "r10"}, timeout=10)
    assert refused.headers["X-Request-ID"] == "r10"
    assert line_of(gateway, "r10")["status"] == 401
    vic = viewer("vic")
    caller = bearer(vic, "read", name="board")

    def opens() -> bool:
        with requests.get(f"{gateway.url}/stream", headers=caller, stream=True, timeout=10) as stream:
            return stream.status_code == 200

    # A gateway that has just begun says "try again" until it has read the timelines.
    wait_for(opens, seconds=30, what="streams open")
    headers = {"X-Request-ID": "r14", **caller}
    with requests.get(f"{gateway.url}/stream", headers=headers, stream=True, timeout=10) as stream:
        # Kept: what reads the stream closes the connection when it is thrown away.
        read = stream.iter_lines()
        next(read)
        assert not [line for line in lines(gateway) if line.get("request_id") == "r14"]
    streamed = line_of(gateway, "r14")
    assert (streamed["status"], streamed["person"], streamed["token"]) == (200, pseudonym(vic.pk), "board")
    assert streamed["bytes"] > 0
    assert caller["Authorization"].split()[1] not in gateway.process.said()
    asked(gateway, "/stream", "r11")
    assert (line_of(gateway, "r11")["route"], line_of(gateway, "r11")["status"]) == ("/stream", 401)


def test_agents_and_probes_that_go_well_say_nothing(gateway: Gateway) -> None:
    agent = gateway.agent()
    agent.post(agent.document())
    agent.orders()
    for path in ("/healthz", "/readyz", "/metrics"):
        asked(gateway, path, "quiet")
    asked(gateway, "/x", "r12")
    line_of(gateway, "r12")
    routes = {line.get("route") for line in lines(gateway) if line.get("status") == 200}
    assert not routes & {"/agent/v1/reports", "/agent/v1/orders", "/agent/v1/enrol", "/healthz", "/readyz", "/metrics"}


def test_repeated_refusals_are_logged_a_few_times_and_then_counted(gateway: Gateway) -> None:
    def reported() -> int:
        return sum(line.get("route") == "/agent/v1/reports" for line in lines(gateway))

    before = reported()
    for _ in range(60):
        requests.post(f"{gateway.url}/agent/v1/reports", headers={"Authorization": "Bearer x"}, timeout=10)
    asked(gateway, "/x", "r13")
    line_of(gateway, "r13")
    assert before <= reported() <= before + 30
    assert reported() > 0
    assert gateway.metric("drydock_http_requests_total", method="POST", route="/agent/v1/reports", status="4xx") >= 60


@pytest.mark.long
def test_the_servers_last_lines_are_json_too_and_so_is_a_wrong_setting(servers: Urls, folder: Path) -> None:
    with running_gateway(servers, folder) as gateway:
        assert gateway.process.stop() == 0
        assert any("Shutting down" in line["event"] for line in lines(gateway))
    port = str(free_port())
    command = [PYTHON, "-m", "granian", "--interface", "asgi", "--host", "127.0.0.1", "--port", port]
    command += ["--log-config", str(ROOT / "fleet" / "granian.json"), "fleet.asgi:application"]
    wrong = {**servers.environment, "LOG_FORMAT": "json", "BEAT_SECONDS": "soon"}
    with running(command, environment=wrong, log=folder / "wrong.log") as process:
        wait_for(lambda: process.child.poll() is not None, seconds=60, what="it ends")
        found = [json.loads(line) for line in process.said().splitlines()]
    assert any("BEAT_SECONDS has to be" in line["event"] for line in found)
