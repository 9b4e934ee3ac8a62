"""Every way to write an address that messages may not reach is refused, by the real process, before it connects."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleet.notifications.sender.jobs import AppriseJob, HttpJob, Job, SendError, SmtpJob
from fleet.notifications.sender.pool import COMMAND, Pool
from tests.namespaces import Namespace, missing
from tests.processes import PYTHON, running, wait_for
from tests.receivers import PLAYED, receiver

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
NAMES = {
    "metadata.example": [["169.254.169.254"]],
    "wire.example": [["168.63.129.16"]],
    "loop.example": [["127.0.0.1"]],
    "six.example": [["::1"]],
    "mapped.example": [["::ffff:10.0.0.7"]],
    "nat64.example": [["64:ff9b::a9fe:a9fe"]],
    "several.example": [["10.0.0.1", "192.168.0.1", "fd00::1"]],
}
REFUSED = {
    "unspecified": "0.0.0.0 0 [::] 0x0",
    "loopback": "127.0.0.1 127.1 127.255.255.254 2130706433 0x7f.1 017700000001 [::1] [::ffff:127.0.0.1] localhost "
    "loop.example six.example [64:ff9b::7f00:1] [2606:4700::200:5efe:7f00:1] [2002:7f00:1::]",
    "private": "10.0.0.5 172.16.0.1 172.31.255.255 192.168.1.1 0xa000005 [::ffff:10.0.0.5] [::10.0.0.5] [fec0::1] "
    "[64:ff9b::c0a8:101] mapped.example several.example",
    "shared": "100.64.0.1 100.127.255.254",
    "link_local": "169.254.1.1 [fe80::1]",
    "azure": "169.254.169.254 168.63.129.16 2852039166 0xa9fea9fe 0251.0376.0251.0376 169.254.43518 169.16689662 "
    "0xa9.254.0251.0xfe 2822734096 0xa83f8110 [::ffff:a9fe:a9fe] [::ffff:168.63.129.16] [::169.254.169.254] "
    "[::ffff:0:169.254.169.254] [64:ff9b::a9fe:a9fe] [64:ff9b::168.63.129.16] [64:ff9b:1::a9fe:a9fe] "
    "[64:ff9b:1:a9fe:a9:fe00::] [2002:a9fe:a9fe::1] [2001:0:a9fe:a9fe::] [2001:0:4136:e378:8000:63bf:5601:5601] "
    "[2606:4700::5efe:a9fe:a9fe] metadata.example wire.example nat64.example",
    "unique_local": "[fc00::1] [fd00:ec2::254]",
    "multicast": "224.0.0.1 239.255.255.250 [ff02::1]",
    "broadcast": "255.255.255.255",
    "documentation": "192.0.2.1 198.51.100.1 203.0.113.7 [2001:db8::1] [3fff::1]",
    "tunnel": "192.88.99.1 [2002:808:808::1] [2001:0:4136:e378:8000:63bf:f7f7:f7f7] [64:ff9b:1::808:808] "
    "[64:ff9b:1::a9fe:101]",
    "reserved": "192.0.0.8 198.18.0.1 240.0.0.1 [2001:10::1] [100::1] [5f00::1] [::8.8.8.8] [4000::1]",
}
ELSEWHERE = [
    # Who signs in, or where the host ends.
    "http://example.com@169.254.169.254/",
    "http://user:secret@10.0.0.1/",
    "http://169.254.169.254\\@example.com/",
    "http://example.com\\@127.0.0.1/",
    "http://127.0.0.1:80\\@example.com:80/",
    # Schemes.
    "file:///etc/passwd",
    "ftp://127.0.0.1/",
    "gopher://127.0.0.1:6379/_FLUSHALL",
    "dict://127.0.0.1:11211/stats",
    "http+unix://%2Fvar%2Frun%2Fdocker.sock/containers",
    "//127.0.0.1/",
    "127.0.0.1",
    "",
    # What ends a line, and what some parsers pass over.
    "http://127.0.0.1 .example.com/",
    "http://example.com/\r\nHost: 169.254.169.254",
    "http://\t127.0.0.1/",
    "http://exam\nple.com/",
    # Scopes, escapes, and numbers of ports that are none.
    "http://[fe80::1%25eth0]/",
    "http://[fe80::1%eth0]/",
    "http://127%2e0.0.1/",
    "http://example.com:0/",
    "http://example.com:99999/",
    "http://[::1/",
]
# Other digits and dots, which some libraries make plain ones of.
ODD = [
    "http://169。254。169。254/",
    "http://①②⑦.⓪.⓪.①/",
    "http://１２７.0.0.1/",  # noqa: RUF001
    "http://127.0.0.1./",
    "http://0127..1/",
    "http://localhost./",
]
PORTS = (22, 23, 53, 135, 139, 389, 445, 2375, 2379, 3306, 3389, 5432, 6379, 6380, 9200, 10250, 11211, 27017, 32526)
SERVICES = """
json://169.254.169.254/ jsons://[::ffff:7f00:1]/ form://2852039166/ xml://0xa9fea9fe/ ntfy://127.0.0.1/topic
gotify://localhost/AbCdEfGhIjKlMnO mmost://loop.example/3ccdd113474722377935511fc85d3dd4
apprise://nat64.example/abcdefghijklmnopqrstuvwxyz123456
mailto://user:secret@127.0.0.1:2525?from=a@example.org&to=b@example.org
mailto://user:secret@example.org?smtp=metadata.example&from=a@example.org&to=b@example.org
mailtos://user:secret@example.org?smtp=169.254.169.254&from=a@example.org&to=b@example.org
"""
NO_SERVICES = """
syslog:// rsyslog://127.0.0.1 dbus:// gnome:// windows:// macosx:// smpp://user:secret@10.0.0.1:2775/1/2
mqtt://127.0.0.1/topic irc://127.0.0.1/channel vapid://a@example.org?keyfile=/etc/passwd&subfile=/etc/passwd
json://example.org/?verify=no json://example.org/?redirect=yes json://example.org/?rto=600
json://example.org/?retry=5 json://example.org/?store=yes nothing://example.org file:///etc/passwd
slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/?template=/etc/passwd
mailto://user:secret@example.org?pgp=yes&pgppub=/etc/passwd https://169.254.169.254/metadata
"""


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    pool = Pool(most=4, command=[sys.executable, "-I", "-B", str(PLAYED), json.dumps(NAMES)], allow=["127.0.0.2"])
    yield pool
    pool.close()


def addresses() -> Iterator[tuple[Job, str]]:
    for reason, hosts in REFUSED.items():
        for host in hosts.split():
            yield HttpJob("POST", f"http://{host}/hook"), reason
    for port in PORTS:
        yield HttpJob("GET", f"http://8.8.8.8:{port}/"), "port"
    for host in ("127.0.0.1", "2852039166", "::ffff:10.0.0.1", "localhost", "metadata.example"):
        yield SmtpJob(host, 25, "a@example.org", "b@example.org", b"Subject: x\r\n\r\nx"), ""
    for url in SERVICES.split():
        yield AppriseJob(url, body="x"), ""


@pytest.mark.parametrize(
    ("job", "reason"), list(addresses()), ids=lambda each: getattr(each, "url", None) or str(each)[:40]
)
def test_forbidden_address_is_refused(pool: Pool, job: Job, reason: str) -> None:
    answer = pool.send(job, now=NOW)
    assert (answer.ok, answer.error, answer.status) == (False, SendError.REFUSED_ADDRESS, None), answer
    assert not reason or answer.reason == reason


@pytest.mark.parametrize("url", ELSEWHERE)
def test_ambiguous_url_is_refused(pool: Pool, url: str) -> None:
    answer = pool.send(HttpJob("POST", url), now=NOW)
    assert (answer.ok, answer.error) == (False, SendError.BAD_URL), answer


@pytest.mark.parametrize("url", ODD)
def test_unusual_digits_and_dots_are_refused(pool: Pool, url: str) -> None:
    answer = pool.send(HttpJob("POST", url), now=NOW)
    assert answer.error in (SendError.BAD_URL, SendError.REFUSED_ADDRESS, SendError.DNS), answer


@pytest.mark.parametrize("url", NO_SERVICES.split())
def test_unlisted_service_or_parameter_is_refused(pool: Pool, url: str) -> None:
    answer = pool.send(AppriseJob(url, body="x"), now=NOW)
    assert (answer.ok, answer.error) == (False, SendError.BAD_URL), answer


@pytest.mark.parametrize(
    "recipient", ["b@example.org\r\nRCPT TO:<c@example.org>", "b@example.org> NOTIFY=NEVER", "b", ""]
)
def test_recipient_must_be_one_address(pool: Pool, recipient: str) -> None:
    answer = pool.send(SmtpJob("mail.example.org", 25, "a@example.org", recipient, b"x"), now=NOW)
    assert (answer.ok, answer.error) == (False, SendError.BAD_JOB)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "target", ["http://169.254.169.254/metadata/instance", "http://127.0.0.1:1/", "file:///etc/passwd"]
)
def test_redirect_is_reported_and_not_followed(loopback_pool: Pool, status: int, target: str) -> None:
    with receiver() as there:
        there.status, there.headers = status, {"Location": target}
        for job in (HttpJob("POST", f"{there.url}/hook"), AppriseJob(f"json://127.0.0.1:{there.port}/", body="x")):
            answer = loopback_pool.send(job, now=NOW)
            assert (answer.ok, answer.status, answer.error) == (False, status, SendError.REDIRECT)
    assert len(there.got) == 2


def test_rebound_name_is_judged_at_connect_time() -> None:
    with receiver() as there:
        table = json.dumps({"changes.example": [["127.0.0.2"], ["127.0.0.1"]]})
        pool = Pool(most=4, command=[sys.executable, "-I", "-B", str(PLAYED), table], allow=["127.0.0.2"])
        url = f"http://changes.example:{there.port}/"
        first, second = (pool.send(HttpJob("POST", url), now=NOW) for _ in range(2))
        # There the receiver does not listen; the guard let it try.
        assert first.error is SendError.CONNECT
        assert (second.error, second.reason) == (SendError.REFUSED_ADDRESS, "loopback")
        assert there.got == []
        pool.close()


PROGRAM = str(Path(__file__).with_name("rebinding_dns.py"))
ALLOWED, METADATA = "127.0.0.2", "169.254.169.254"


@pytest.mark.real_time
@pytest.mark.skipif(missing() != "", reason=missing())
def test_the_second_answer_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    (tmp_path / "nsswitch.conf").write_text("hosts: dns\n")
    own = " && ".join(f"mount --bind {tmp_path / name} /etc/{name}" for name in ("resolv.conf", "nsswitch.conf"))
    with Namespace(f"{METADATA}/32") as namespace:
        server = namespace.command(PYTHON, PROGRAM, ALLOWED, METADATA)
        # As in production, but for whom it asks: the process has the system's own resolver.
        inside = namespace.command("unshare", "--mount", "sh", "-c", f'{own} && exec "$@"', "sh", *COMMAND)
        pool = Pool(most=1, command=inside, allow=[f"{ALLOWED}/32"])
        with running(server, environment={}, log=tmp_path / "log") as process:
            wait_for(lambda: "ready" in process.said(), seconds=20, what="the name server listens")
            first, second = (pool.send(HttpJob("GET", "http://changes.example/"), now=NOW) for _ in range(2))
            said = process.said().splitlines()
        pool.close()
    assert (first.ok, first.status) == (True, 204)
    assert (second.error, second.reason) == (SendError.REFUSED_ADDRESS, "azure")
    # The sender resolved the name again for each message, and never connected to the second address.
    assert said == ["ready", f"told {ALLOWED}", f"served {ALLOWED}", f"told {METADATA}"]
