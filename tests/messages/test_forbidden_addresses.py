"""Every way to write an address that messages may not reach is refused, by the real process, before it connects."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from ipaddress import ip_network
from pathlib import Path

import pytest

from fleet.domain.egress import AddressRefusal, refusal
from fleet.notifications.sender.jobs import AppriseJob, HttpJob, Job, SendError, SmtpJob
from fleet.notifications.sender.pool import Pool
from tests.processes import ROOT
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
# Who signs in, or where the host ends; schemes; scopes, escapes, and numbers of ports that are none.
ELSEWHERE = r"""
http://example.com@169.254.169.254/ http://user:secret@10.0.0.1/ http://169.254.169.254\@example.com/
http://example.com\@127.0.0.1/ http://127.0.0.1:80\@example.com:80/
file:///etc/passwd ftp://127.0.0.1/ gopher://127.0.0.1:6379/_FLUSHALL dict://127.0.0.1:11211/stats
http+unix://%2Fvar%2Frun%2Fdocker.sock/containers //127.0.0.1/ 127.0.0.1
http://[fe80::1%25eth0]/ http://[fe80::1%eth0]/ http://127%2e0.0.1/ http://example.com:0/ http://example.com:99999/
http://[::1/
"""
# What ends a line, and what some parsers pass over.
WITH_SPACE = [
    "",
    "http://127.0.0.1 .example.com/",
    "http://example.com/\r\nHost: 169.254.169.254",
    "http://\t127.0.0.1/",
]
# Other digits and dots, which some libraries make plain ones of.
ODD = "http://169。254。169。254/ http://①②⑦.⓪.⓪.①/ http://１２７.0.0.1/"  # noqa: RUF001
ODD += " http://127.0.0.1./ http://0127..1/ http://localhost./"
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


def forbidden() -> Iterator[tuple[Job, SendError, str]]:
    """Each job, its error, and the reason where one is stated."""
    for reason, hosts in REFUSED.items():
        for host in hosts.split():
            yield HttpJob("POST", f"http://{host}/hook"), SendError.REFUSED_ADDRESS, reason
    for port in PORTS:
        yield HttpJob("GET", f"http://8.8.8.8:{port}/"), SendError.REFUSED_ADDRESS, "port"
    for host in ("127.0.0.1", "2852039166", "::ffff:10.0.0.1", "localhost", "metadata.example"):
        job = SmtpJob(host, 25, "a@example.org", "b@example.org", b"Subject: x\r\n\r\nx")
        yield job, SendError.REFUSED_ADDRESS, ""
    for url in SERVICES.split():
        yield AppriseJob(url, body="x"), SendError.REFUSED_ADDRESS, ""
    for url in (*ELSEWHERE.split(), *WITH_SPACE, "http://exam\nple.com/"):
        yield HttpJob("POST", url), SendError.BAD_URL, ""
    for url in NO_SERVICES.split():
        yield AppriseJob(url, body="x"), SendError.BAD_URL, ""
    for recipient in ("b@example.org\r\nRCPT TO:<c@example.org>", "b@example.org> NOTIFY=NEVER", "b", ""):
        yield SmtpJob("mail.example.org", 25, "a@example.org", recipient, b"x"), SendError.BAD_JOB, ""


@pytest.mark.parametrize(
    ("job", "error", "reason"), list(forbidden()), ids=lambda each: getattr(each, "url", None) or str(each)[:40]
)
def test_forbidden_address_service_or_recipient_is_refused(pool: Pool, job: Job, error: SendError, reason: str) -> None:
    answer = pool.send(job, now=NOW)
    assert (answer.ok, answer.error, answer.status) == (False, error, None), answer
    assert not reason or answer.reason == reason


@pytest.mark.parametrize("url", ODD.split())
def test_unusual_digits_and_dots_are_refused(pool: Pool, url: str) -> None:
    answer = pool.send(HttpJob("POST", url), now=NOW)
    assert answer.error in (SendError.BAD_URL, SendError.REFUSED_ADDRESS, SendError.DNS), answer


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect_is_reported_and_not_followed(loopback_pool: Pool, status: int) -> None:
    with receiver() as there:
        there.status = status
        for target in ("http://169.254.169.254/metadata/instance", "http://127.0.0.1:1/", "file:///etc/passwd"):
            there.headers = {"Location": target}
            for job in (HttpJob("POST", f"{there.url}/hook"), AppriseJob(f"json://127.0.0.1:{there.port}/", body="x")):
                answer = loopback_pool.send(job, now=NOW)
                assert (answer.ok, answer.status, answer.error) == (False, status, SendError.REDIRECT)
    assert len(there.got) == 6


@pytest.mark.parametrize(
    "job",
    [
        lambda port: HttpJob("POST", f"http://changes.example:{port}/"),
        lambda port: AppriseJob(f"json://changes.example:{port}/", body="x"),
        lambda port: SmtpJob("changes.example", port, "a@example.org", "b@example.org", b"Subject: x\r\n\r\nx"),
    ],
    ids=["http", "apprise", "smtp"],
)
def test_rebound_name_is_judged_at_connect_time(job: Callable[[int], Job]) -> None:
    with receiver() as there:
        table = json.dumps({"changes.example": [["127.0.0.2"], ["127.0.0.1"]]})
        pool = Pool(most=4, command=[sys.executable, "-I", "-B", str(PLAYED), table], allow=["127.0.0.2"])
        first, second = (pool.send(job(there.port), now=NOW) for _ in range(2))
        # There the receiver does not listen; the guard let it try.
        assert first.error is SendError.CONNECT
        assert (second.error, second.reason) == (SendError.REFUSED_ADDRESS, "loopback")
        assert there.got == []
        pool.close()


# The sender's process has nothing worth having, and can do nothing but connect to where messages may go.


# Each attempt runs after the process is set up as in production; an exception proves the refusal.
ATTEMPTS = {
    "write a file": "open('/tmp/drydock-was-here', 'w')",
    "write with flags": "os.open('/tmp/drydock-was-here', os.O_CREAT | os.O_WRONLY)",
    "append": "open('/dev/null', 'ab')",
    "read an account": "open('/etc/passwd')",
    "read settings of ours": f"open('{ROOT}/fleet/../pyproject.toml')",
    "read what a process was given": "open('/proc/self/environ', 'rb')",
    "delete": "os.remove('/tmp/drydock-is-not-here')",
    "rename": "os.rename('/tmp/drydock-is-not-here', '/tmp/x')",
    "make a folder": "os.mkdir('/tmp/drydock-was-here')",
    "start a program": "subprocess.run(['true'])",
    "start a shell": "os.system('true')",
    "become a program": "os.execv('/bin/true', ['true'])",
    "fork": "os.fork()",
    "spawn": "os.posix_spawn('/bin/true', ['true'], {})",
    "open a library": "ctypes.CDLL('libc.so.6')",
    "send a packet": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "talk to this machine": "socket.socket(socket.AF_UNIX)",
    "a socket of any kind": "socket.socket(socket.AF_INET, socket.SOCK_RAW)",
    "listen": "socket.socket().bind(('127.0.0.1', 0))",
    "send without connecting": "socket.socket().sendto(b'x', socket.MSG_FASTOPEN, ('127.0.0.1', 80))",
    "connect to a name": "socket.socket().connect(('localhost', 80))",
    "connect to a number": "socket.socket().connect(('2852039166', 80))",
    "connect without noticing": "socket.socket().connect_ex(('127.0.0.1', 80))",
    "connect in a thread": "in_thread(lambda: socket.create_connection(('127.0.0.1', 80)))",
    "kill": "os.kill(os.getppid(), 0)",
    "keep in a database": "sqlite3.connect(':memory:')",
    "log on this machine": "syslog.syslog('x')",
}
SCRIPT = """
import concurrent.futures, ctypes, json, os, socket, sqlite3, subprocess, sys, syslog
from fleet.notifications.sender.guard import Guard, NotAllowed
guard = Guard()
def in_thread(task):
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        return threads.submit(task).result()
sys.addaudithook(guard.hear)
found = {}
for name, line in json.loads(sys.argv[1]).items():
    try:
        exec(line)
        found[name] = "done"
    except NotAllowed:
        found[name] = "refused"
    except BaseException as error:
        found[name] = repr(error)
print(json.dumps(found), flush=True)
os._exit(0)
"""


def test_process_can_do_nothing_but_send() -> None:
    command = [sys.executable, "-I", "-B", "-c", SCRIPT, json.dumps(ATTEMPTS)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert ended.stdout, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1]) == dict.fromkeys(ATTEMPTS, "refused")


def test_process_has_no_environment_and_no_files(loopback_pool: Pool) -> None:
    with receiver() as there:
        assert loopback_pool.send(HttpJob("POST", there.url), now=NOW).ok
    here = Path(f"/proc/{loopback_pool.idle[-1].process.pid}")
    # Python itself notes the locale's coercion, if anything.
    assert {line.split(b"=")[0] for line in (here / "environ").read_bytes().split(b"\0")} <= {b"", b"LC_CTYPE"}
    assert (here / "cwd").readlink() == Path("/")
    kinds = {str(each.readlink()).split(":")[0] for each in (here / "fd").iterdir()}
    assert kinds <= {"pipe", "/dev/null"}
    assert len(list((here / "fd").iterdir())) <= 6
    limits = (here / "limits").read_text()
    assert "Max file size             0                    0 " in limits


def test_process_imports_no_django_settings_or_apprise() -> None:
    script = "import sys, fleet.notifications.sender.process; print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-I", "-B", "-c", script], capture_output=True, text=True, check=True)
    modules = set(ended.stdout.split())
    assert not {"django", "celery", "fleet.settings", "fleet.configuration", "apprise", "requests"} & modules


def test_proxy_of_the_environment_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as proxy, receiver() as there:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        pool = Pool(most=4, allow=["127.0.0.0/8"])
        assert pool.send(HttpJob("POST", there.url), now=NOW).ok
        assert (len(proxy.got), len(there.got)) == (0, 1)
        pool.close()


def test_fork_has_its_own_processes() -> None:
    ended = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (ended.returncode, ended.stdout.split()) == (0, ["True", "True"]), ended.stderr


# A Celery worker forks; what it inherits must neither be used by two nor be kept open.
FORKS = """
import os
from datetime import UTC, datetime
os.environ["DJANGO_SETTINGS_MODULE"] = "fleet.settings"
from fleet.notifications.sender.jobs import HttpJob
from fleet.notifications.sender.pool import own_pool, send
job = HttpJob("POST", "http://127.0.0.1/")
send(job, now=datetime.now(UTC))
first = own_pool().idle[0]
if (fork := os.fork()) == 0:
    send(job, now=datetime.now(UTC))
    other = own_pool().idle[0]
    print(other.process.pid != first.process.pid and first.process.stdin.closed, flush=True)
    own_pool().close()
    os._exit(0)
os.waitpid(fork, 0)
print(first.process.poll() is None and send(job, now=datetime.now(UTC)).reason == "loopback")
"""


NO_LITERALS = ["2130706433", "0x7f.1", "example.org", "fe80::1%eth0", "127.0.0.1 ", "", b"\x08\x08\x08\x08", 134744072]


@pytest.mark.parametrize(
    ("allow", "hosts", "reason"),
    [
        ("10.1.0.0/16", ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::a01:203"], None),
        ("fd00::/8 127.0.0.0/8", ["fd00::1", "127.0.0.1"], None),
        # One way to read it is allowed, another is meant.
        ("10.1.0.0/16", ["10.2.2.3", "2002:a01:203::1", "2001:0:a01:203::"], AddressRefusal.PRIVATE),
        ("10.1.0.0/16", ["64:ff9b:1:c0a8:101:a01:a01:203"], AddressRefusal.TUNNEL),
        # Azure's own addresses are allowed only by an entry for exactly that address.
        ("0.0.0.0/0 ::/0 169.254.0.0/16", ["169.254.169.254", "::ffff:168.63.129.16"], AddressRefusal.AZURE),
        ("169.254.169.254/32", ["169.254.169.254"], None),
        ("::ffff:169.254.169.254/128", ["::ffff:169.254.169.254"], AddressRefusal.AZURE),
        ("", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"], None),
        # No literal address, whatever else connects.
        ("0.0.0.0/0 ::/0", NO_LITERALS, AddressRefusal.NOT_LITERAL),
    ],
)
def test_allowlist_admits_only_its_networks(allow: str, hosts: list[str], reason: AddressRefusal | None) -> None:
    networks = [ip_network(network) for network in allow.split()]
    assert {host: refusal(host, 443, allow=networks) for host in hosts} == dict.fromkeys(hosts, reason)


def test_allowlist_admits_no_internal_port() -> None:
    inside = [ip_network("10.0.0.0/8")]
    assert {port for port in range(1024) if not refusal("10.0.0.1", port, allow=inside)} == {25, 80, 443, 465, 587}
    assert all(refusal("10.0.0.1", port, allow=inside) is None for port in (2525, 8080, 8443, 9093, 50000))
    assert refusal("10.0.0.1", 5432, allow=inside) is AddressRefusal.PORT
