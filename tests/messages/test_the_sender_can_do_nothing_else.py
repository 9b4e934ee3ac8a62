"""The sender's process has nothing worth having, and can do nothing but connect to where messages may go."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from ipaddress import ip_network
from pathlib import Path

import pytest

from fleet.domain.egress import AddressRefusal, refusal
from fleet.notifications.sender.jobs import HttpJob
from fleet.notifications.sender.pool import Pool
from tests.processes import ROOT
from tests.receivers import receiver

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
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


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    command = [sys.executable, "-I", "-B", "-c", SCRIPT, json.dumps(ATTEMPTS)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert ended.stdout, ended.stderr
    result: dict[str, str] = json.loads(ended.stdout.splitlines()[-1])
    return result


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_process_can_do_nothing_but_send(found: dict[str, str], attempt: str) -> None:
    assert found[attempt] == "refused"


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
