"""What a receiver does or does not do ends its own job, in time, and no other."""

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from threading import Event

import pytest

from fleet.notifications.sender.jobs import Answer, AppriseJob, HttpJob, SendError
from fleet.notifications.sender.pool import COMMAND, MOST_LINE, Pool
from tests.certificates import Authority
from tests.processes import PYTHON, free_port, running, wait_for
from tests.receivers import receiver, speaking

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    pool = Pool(most=8, allow=["127.0.0.0/8"])
    yield pool
    pool.close()


Behaviour = Callable[[socket.socket, Event], None]


def hang(connection: socket.socket, ended: Event) -> None:
    connection.recv(65536)
    ended.wait(30)


def say(first: bytes, *, then: bytes = b"", every: float = 0) -> Behaviour:
    """Say something, and `then` something again and again for ever: no pause is long enough to be noticed."""

    def answer(connection: socket.socket, ended: Event) -> None:
        connection.recv(65536)
        connection.sendall(first)
        while then and not ended.wait(every):
            connection.sendall(then)

    return answer


drip = say(b"HTTP/1.1 200 OK\r\nX-Long: ", then=b"a", every=0.01)
drip_body = say(HEAD + b"Content-Length: 1000000\r\n\r\nso far", then=b".", every=0.01)
flood = say(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", then=b"10000\r\n" + b"x" * 65536 + b"\r\n")
flood_head = say(b"HTTP/1.1 200 OK\r\n", then=b"X-Another: header\r\n" * 100)
INVALID = (flood_head, say(b""), say(b"220 mail.example.org ESMTP\r\n"), say(b"\x00" * 100))


def post(pool: Pool, port: int, *, seconds: float = 15.0, **more: object) -> Answer:
    return pool.send(HttpJob("POST", f"http://127.0.0.1:{port}/", limit_seconds=seconds, **more), now=NOW)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        *((endless, SendError.TIMEOUT) for endless in (hang, drip)),
        *((invalid, SendError.NO_ANSWER) for invalid in INVALID),
    ],
)
def test_endless_or_invalid_response_is_no_answer(pool: Pool, behaviour: Behaviour, error: SendError) -> None:
    with speaking(behaviour) as port:
        answer = post(pool, port, seconds=0.3 if error is SendError.TIMEOUT else 15.0)
    assert (answer.ok, answer.status, answer.error) == (False, None, error)


@pytest.mark.real_time
def test_status_counts_although_the_body_is_slow(pool: Pool) -> None:
    with speaking(drip_body) as port:
        answer = post(pool, port, seconds=2.0)
    assert (answer.ok, answer.status, answer.cut) == (True, 200, True)
    assert answer.answer.startswith("so far")


def test_endless_body_is_cut(pool: Pool) -> None:
    with speaking(flood) as port:
        answer = post(pool, port)
    assert (answer.ok, answer.cut, len(answer.body), len(answer.answer)) == (True, True, 65536, 500)


def test_refused_connection_and_unknown_name_differ(pool: Pool) -> None:
    assert post(pool, free_port()).error is SendError.CONNECT
    assert pool.send(HttpJob("GET", "http://nobody.invalid/"), now=NOW).error is SendError.DNS


def test_hanging_receiver_delays_no_other(pool: Pool) -> None:
    with speaking(hang) as port, receiver() as other, ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(post, pool, port, seconds=1.5) for _ in range(4)]
        wait_for(lambda: pool.at_work.total() == pool.share, seconds=5, what="two of them wait")
        assert post(pool, other.port).ok
        # Two at once wait for it, whatever else there is to send to it.
        assert pool.at_work.total() == pool.share == 2
        assert not any(each.done() for each in waiting)
        assert {each.result().error for each in waiting} == {SendError.TIMEOUT}


def test_hanging_resolver_ends_its_process_only() -> None:
    # The system's resolver cannot be interrupted: a lock that is never released acts like it.
    command = [sys.executable, "-I", "-B", "-c", HOLDS_STILL]
    pool = Pool(most=4, command=command, allow=["127.0.0.0/8"])
    answer = pool.send(HttpJob("GET", "http://still.example/", limit_seconds=0.1), now=NOW)
    assert answer.error is SendError.TIMEOUT
    assert pool.idle == []
    pool.command = COMMAND
    with receiver() as there:
        assert post(pool, there.port).ok
    pool.close()


HOLDS_STILL = """
import ctypes, signal
from fleet.notifications.sender import process, transports
def perform(*args, **options):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    while True:
        signal.pause()
transports.send_http = perform
process.main()
"""


def test_killed_process_is_reported_and_replaced(pool: Pool) -> None:
    asked = Event()

    def hang_visibly(connection: socket.socket, ended: Event) -> None:
        asked.set()
        hang(connection, ended)

    with speaking(hang_visibly) as port, receiver() as other, ThreadPoolExecutor(1) as threads:
        assert post(pool, other.port).ok
        child = pool.idle[-1]
        waiting = threads.submit(post, pool, port)
        assert asked.wait(5)
        os.kill(child.process.pid, signal.SIGKILL)
        answer = waiting.result()
        assert (answer.ok, answer.error) == (False, SendError.DIED)
        assert post(pool, other.port).ok
        # One that dies while it waits is noticed before it is given a job.
        waiter = pool.idle[-1]
        os.kill(waiter.process.pid, signal.SIGKILL)
        wait_for(lambda: waiter.process.poll() is not None, seconds=5, what="it is dead")
        assert post(pool, other.port).ok


def test_request_arrives_as_stated_from_a_reused_process(pool: Pool) -> None:
    body = bytes(range(256)) * 4096
    headers = {"Content-Type": "application/json", "webhook-id": "msg_1"}
    pids = set()
    with receiver() as there:
        there.headers = {"Retry-After": "7", "Set-Cookie": "a=b"}
        for number in range(50):
            answer = pool.send(HttpJob("PUT", f"{there.url}/a/{number}?c=d#e", headers, body), now=NOW)
            assert (answer.ok, answer.status, answer.answer) == (True, 200, "thank you")
            assert "set-cookie" not in answer.headers
            pids.add(pool.idle[-1].process.pid)
    assert len(pids) == 1
    for number, got in enumerate(there.got):
        assert (got.method, got.path, got.body) == ("PUT", f"/a/{number}?c=d", body)
        host = {"host": f"127.0.0.1:{there.port}"}
        assert got.headers.items() >= {name.lower(): value for name, value in (headers | host).items()}.items()


def test_too_large_job_is_not_sent(pool: Pool) -> None:
    answer = pool.send(HttpJob("POST", "http://example.org/", body=b"x" * MOST_LINE), now=NOW)
    assert (answer.ok, answer.error) == (False, SendError.TOO_LARGE)


def test_header_cannot_inject_another(pool: Pool) -> None:
    with receiver() as there:
        for headers in ({"A": "b\r\nC: d"}, {"A\r\nB": "c"}, {"": "x"}):
            answer = pool.send(HttpJob("POST", there.url, headers), now=NOW)
            assert (answer.ok, answer.error, there.got) == (False, SendError.BAD_JOB, [])


@pytest.mark.parametrize(
    ("status", "said", "seconds"),
    [
        *[(429, "30", 30.0), (503, "0", 0.0), (429, "9" * 21, 3600.0), (200, "30", None), (500, "30", None)],
        *[(429, text, None) for text in ("soon", "-5", "Sun Nov 22 12:01:00 2026")],
        (429, format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90.0),
        (503, format_datetime(NOW - timedelta(days=1), usegmt=True), 0.0),
        (429, format_datetime(NOW + timedelta(days=900), usegmt=True), 3600.0),
    ],
)
def test_retry_after_is_read(pool: Pool, status: int, said: str, seconds: float | None) -> None:
    with receiver() as there:
        there.status, there.headers = status, {"Retry-After": said}
        assert post(pool, there.port).retry_after_seconds == seconds
        job = AppriseJob(f"json://127.0.0.1:{there.port}/", body="x")
        assert pool.send(job, now=NOW).retry_after_seconds == seconds


def test_secrets_in_answers_are_masked(pool: Pool) -> None:
    with receiver() as there:
        there.status, there.body = 403, b"no: Bearer hunter2hunter2 /services/T0SECRET0 x=qwertzuiop \x1b[31m \x00 <b>"
        url = f"{there.url}/services/T0SECRET0?x=qwertzuiop"
        answer = pool.send(HttpJob("POST", url, {"Authorization": "Bearer hunter2hunter2"}), now=NOW)
    assert answer.answer == "no: *** /***/*** x=*** [31m <b>"


def test_certificates_are_checked(pool: Pool, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    good, other = authority.server("127.0.0.1"), authority.server("elsewhere.example")
    trusting = Pool(most=4, command=(*COMMAND, str(authority.path)), allow=["127.0.0.0/8"])
    with receiver(tls=good) as there, receiver(tls=other) as wrong, speaking(say(b"plain\r\n")) as plain:
        for each, port, ok in ((trusting, there.port, True), (trusting, wrong.port, False), (pool, there.port, False)):
            answers = [
                each.send(HttpJob("GET", f"https://127.0.0.1:{port}/"), now=NOW),
                each.send(AppriseJob(f"jsons://127.0.0.1:{port}/", body="x"), now=NOW),
            ]
            assert [answer.ok for answer in answers] == [ok, ok], answers
            assert {answer.error for answer in answers} == {SendError.NONE if ok else SendError.TLS}
        assert trusting.send(HttpJob("GET", f"https://127.0.0.1:{plain}/"), now=NOW).error is SendError.TLS
    trusting.close()


def test_with_a_proxy_only_the_proxy_is_contacted() -> None:
    with receiver() as proxy, receiver() as there:
        pool = Pool(most=4, proxy=f"127.0.0.1:{proxy.port}")
        proxy.body = b"from the proxy"
        assert pool.send(HttpJob("POST", "http://example.com/hook", body=b"x"), now=NOW).body == "from the proxy"
        assert pool.send(AppriseJob("json://example.com/hook", body="x"), now=NOW).ok
        assert [got.path for got in proxy.got] == ["http://example.com/hook"] * 2
        mail = "mailto://user:secret@example.com?from=a@example.org&to=b@example.org&smtp=127.0.0.1"
        assert pool.send(AppriseJob(mail, body="x"), now=NOW).error is SendError.REFUSED_ADDRESS
        # What is plainly inside is not even asked of the proxy.
        for url in (f"http://127.0.0.1:{there.port}/", "http://0xa9fea9fe/"):
            assert pool.send(HttpJob("POST", url), now=NOW).error is SendError.REFUSED_ADDRESS
        assert len(proxy.got) == 2 and there.got == []
        pool.close()


def test_process_ends_with_its_parent(tmp_path: Path) -> None:
    command = [PYTHON, "-c", PARENT]
    with speaking(hang) as port, running([*command, str(port)], environment={}, log=tmp_path / "log") as parent:
        pid = wait_for(lambda: parent.said().strip() or None, seconds=20, what="it sends")
        os.kill(parent.pid, signal.SIGKILL)
        wait_for(lambda: gone(int(pid)), seconds=5, what="the sender has ended, in the middle of its job")


PARENT = """
import sys
from fleet.notifications.sender import jobs
from fleet.notifications.sender.pool import Pool
pool = Pool(most=4, allow=["127.0.0.0/8"])
job = jobs.HttpJob("POST", f"http://127.0.0.1:{sys.argv[1]}/", limit_seconds=60)
child = pool.take(job)
print(child.process.pid, flush=True)
child.ask(jobs.ENCODER.encode(jobs.Order(job, allow=pool.allow)) + b"\\n", 60)
"""


def gone(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return not status.exists() or "zombie" in status.read_text()
