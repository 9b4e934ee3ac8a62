"""The requests of both documents' samples, byte for byte as their programs put them on the wire.

Those of curl and of requests were recorded. Those of PowerShell have the headers that .NET's two HTTP clients write, in
their order: Windows PowerShell asks for `100-continue` before it sends a body, PowerShell 7 does not.
"""

import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.simulator.asking import Simulated, simulated

# The ids of the documents' own samples.
LOWER = "f020ba2e-3bc0-4c40-a10b-86575a9eabd5"
UPPER = "5DD55B64-45AD-49D3-BBC9-F57D4EA97BD7"
VERSIONS = ["2017-08-01", "2020-07-01"]

WINDOWS = "Mozilla/5.0 (Windows NT; Windows NT 10.0; en-US) WindowsPowerShell/5.1.17763.1490"
SEVEN = "Mozilla/5.0 (Linux; Debian GNU/Linux 12 (bookworm); ) PowerShell/7.4.6"

HOST, METADATA, ACCEPT = "Host: 169.254.169.254", "Metadata: true", "Accept: */*"
GETS = {
    "curl": [HOST, "User-Agent: curl/7.88.1", ACCEPT, "Metadata:true"],
    "requests": [
        HOST, "User-Agent: python-requests/2.34.2", "Accept-Encoding: gzip, deflate", ACCEPT, "Connection: keep-alive",
        METADATA,
    ],
    "Windows PowerShell": [METADATA, f"User-Agent: {WINDOWS}", HOST, "Connection: Keep-Alive"],
    "PowerShell 7": [HOST, METADATA, f"User-Agent: {SEVEN}", "Accept-Encoding: gzip, deflate, br"],
}  # fmt: skip
FORM = "Content-Type: application/x-www-form-urlencoded"
POSTS = {
    "curl": [*GETS["curl"], "Content-Length: {}", FORM],
    "requests": [*GETS["requests"], "Content-Length: {}"],
    "Windows PowerShell": [
        METADATA, f"User-Agent: {WINDOWS}", FORM, HOST, "Content-Length: {}", "Expect: 100-continue",
        "Connection: Keep-Alive",
    ],
    "PowerShell 7": [*GETS["PowerShell 7"], FORM, "Content-Length: {}"],
}  # fmt: skip
ON_ONE_LINE = '{"StartRequests": [{"EventId": "%s"}]}'
# As ConvertTo-Json of Windows PowerShell indents it, and as the page prints it.
INDENTED = (
    '{\r\n    "StartRequests":  [\r\n                          {\r\n                              "EventId":  "%s"\r\n'
    "                          }\r\n                      ]\r\n}"
)
PRINTED = '{\n\t"StartRequests" : [\n\t\t{\n\t\t\t"EventId": "%s"\n\t\t}\n\t]\n}'


@pytest.fixture
def at_root() -> Iterator[Simulated]:
    with simulated(as_vm="WestNO_0") as running:
        yield running


def head(method: str, version: str, lines: list[str]) -> bytes:
    target = f"/metadata/scheduledevents?api-version={version}"
    return "\r\n".join([f"{method} {target} HTTP/1.1", *lines, "", ""]).encode()


def exchange(url: str, *parts: bytes) -> tuple[bytes, bytes]:
    """Send the parts, each after an answer to the one before where that is a head that waits; the last answer."""
    where = urlsplit(url)
    with socket.create_connection((where.hostname, where.port), timeout=5) as line:
        for number, part in enumerate(parts):
            line.sendall(part)
            if number + 1 < len(parts) and b"100-continue" in part:
                assert line.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        received = b""
        while b"\r\n\r\n" not in received:
            received += line.recv(65536)
        answer, _, body = received.partition(b"\r\n\r\n")
        length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        while len(body) < length:
            body += line.recv(65536)
    return answer.split(b"\r\n")[0], body


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("program", GETS)
def test_a_query_is_answered(at_root: Simulated, program: str, version: str) -> None:
    event_id = at_root.create(set="west", type="Reboot")
    status, body = exchange(at_root.url, head("GET", version, GETS[program]))
    assert status == b"HTTP/1.1 200 OK"
    [event] = json.loads(body)["Events"]
    assert event["EventId"] == event_id
    assert ("DurationInSeconds" in event) == (version == "2020-07-01")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("body", [ON_ONE_LINE, INDENTED, PRINTED], ids=["one line", "indented", "printed"])
@pytest.mark.parametrize("event_id", [LOWER, UPPER])
@pytest.mark.parametrize("program", POSTS)
def test_an_approval_starts_the_event(at_root: Simulated, program: str, event_id: str, body: str, version: str) -> None:
    at_root.create(set="west", type="Reboot", event_id=event_id)
    payload = (body % event_id).encode()
    lines = [line.format(len(payload)) for line in POSTS[program]]
    status, _ = exchange(at_root.url, head("POST", version, lines), payload)
    assert status == b"HTTP/1.1 200 OK"
    assert at_root.event(event_id)["started_by"] == "approval"
