"""Pool of sender processes. `send` runs one job in a process of the pool and always returns an answer."""

import atexit
import os
import selectors
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import BinaryIO, cast
from urllib.parse import urlsplit

import msgspec
from django.conf import settings

from fleet.notifications.sender import jobs
from fleet.notifications.sender.jobs import Answer, AppriseJob, Job, SendError, SmtpJob

COMMAND = (sys.executable, "-I", "-B", "-m", "fleet.notifications.sender.process")
# A process that was idle this long may be about to end; a new one is started instead.
STALE_SECONDS = 240.0
# The process enforces the time limit of a job itself if it can; after this additional time it is killed.
GRACE_SECONDS = 1.0
# Time for which a job waits for a free process before it fails.
WAIT_SECONDS = 10.0
# The largest job and the largest answer on the pipe.
MOST_LINE = 4 * 1024 * 1024
PIECE = 65536


class Child:
    """One sender process with two pipes. Only one thread at a time may use it."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # No environment: no proxy, key or path of this process.
            env={},
            cwd="/",
            bufsize=0,
            # Ctrl-C in a terminal does not reach it; it ends after this process.
            start_new_session=True,
        )
        self.orders = cast(BinaryIO, self.process.stdin)
        self.answers = cast(BinaryIO, self.process.stdout)
        os.set_blocking(self.orders.fileno(), False)
        self.jobs = 0
        self.used = time.monotonic()
        self.knows_services = False

    @property
    def fresh(self) -> bool:
        alive = self.process.poll() is None
        # So many jobs bound the memory that libraries leak.
        return alive and self.jobs < 500 and time.monotonic() - self.used < STALE_SECONDS

    def ask(self, line: bytes, seconds: float) -> bytes:
        """Send one line (a job) and return the line with the answer. Raises TimeoutError, or EOFError or
        BrokenPipeError if the process ended before it answered; it must then be killed.
        """
        self.jobs += 1
        deadline = time.monotonic() + seconds
        rest = memoryview(line)
        answer = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(self.answers, selectors.EVENT_READ)
            selector.register(self.orders, selectors.EVENT_WRITE)
            while not answer.endswith(b"\n"):
                ready = selector.select(max(deadline - time.monotonic(), 0))
                if not ready:
                    raise TimeoutError
                for key, _ in ready:
                    if key.fileobj is self.answers:
                        piece = os.read(key.fd, PIECE)
                        answer += piece
                        if not piece or len(answer) > MOST_LINE:
                            raise EOFError
                    else:
                        with suppress(BlockingIOError):
                            rest = rest[os.write(key.fd, rest[:PIECE]) :]
                        if not rest:
                            selector.unregister(self.orders)
        self.used = time.monotonic()
        return bytes(answer)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.release()

    def release(self) -> None:
        for pipe in (self.orders, self.answers):
            with suppress(OSError):
                pipe.close()


class Pool:
    """Sender processes, which are started when needed and reused. Thread-safe.

    At most `most` jobs run at a time, and at most a quarter of them for the same receiver. A receiver that hangs
    therefore does not block the others.
    """

    def __init__(
        self, *, most: int, command: Sequence[str] = COMMAND, proxy: str = "", allow: Sequence[str] = ()
    ) -> None:
        self.most = most
        self.share = max(1, most // 4)
        self.command = command
        self.proxy = proxy
        self.allow = tuple(allow)
        self.idle: list[Child] = []
        self.at_work: Counter[str] = Counter()
        self.changed = threading.Condition()

    def send(self, job: Job, *, now: datetime) -> Answer:
        """Run a job and return the answer. `now` is used for receivers that state a time in Retry-After."""
        line = jobs.ENCODER.encode(jobs.Order(job, self.proxy, self.allow + job.allow)) + b"\n"
        if len(line) > MOST_LINE:
            return Answer(ok=False, error=SendError.TOO_LARGE)
        with self.place(receiver(job)) as free:
            answer = self.done(job, line) if free else Answer(ok=False, error=SendError.BUSY)
        return replace(answer, retry_after_seconds=jobs.retry_after(answer.headers, answer.status, now))

    @contextmanager
    def place(self, name: str) -> Iterator[bool]:
        """Wait until another job for this receiver may run, as a context manager. It yields False if that takes too
        long.
        """
        with self.changed:
            free = self.changed.wait_for(
                lambda: self.at_work.total() < self.most and self.at_work[name] < self.share, WAIT_SECONDS
            )
            if free:
                self.at_work[name] += 1
        try:
            yield free
        finally:
            if free:
                with self.changed:
                    self.at_work[name] -= 1
                    self.at_work += Counter()
                    self.changed.notify_all()

    def done(self, job: Job, line: bytes) -> Answer:
        child = self.take(job)
        try:
            answer = jobs.DECODE_ANSWER.decode(child.ask(line, job.limit_seconds + GRACE_SECONDS))
        except TimeoutError:
            child.kill()
            return Answer(ok=False, error=SendError.TIMEOUT)
        except (EOFError, BrokenPipeError, msgspec.DecodeError):
            child.kill()
            return Answer(ok=False, error=SendError.DIED)
        except BaseException:
            # This process is being stopped, and the child process does not know.
            child.kill()
            raise
        if isinstance(job, AppriseJob) and answer.error is SendError.TIMEOUT:
            # Apprise may continue in threads of its own.
            child.kill()
        else:
            with self.changed:
                self.idle.append(child)
        return answer

    def take(self, job: Job) -> Child:
        """Return an idle process or start a new one. Processes that have loaded Apprise are used for Apprise jobs if
        possible.
        """
        services = isinstance(job, AppriseJob)
        with self.changed:
            stale = [child for child in self.idle if not child.fresh]
            self.idle = [child for child in self.idle if child.fresh]
            fit = [child for child in self.idle if child.knows_services == services] or self.idle
            child = fit[-1] if fit else None
            if child is not None:
                self.idle.remove(child)
        for each in stale:
            each.kill()
        child = child or Child(self.command)
        child.knows_services = child.knows_services or services
        return child

    def close(self) -> None:
        """End the idle processes. The pool can be used again afterwards."""
        with self.changed:
            idle, self.idle = self.idle, []
        for child in idle:
            child.kill()


def receiver(job: Job) -> str:
    """Return a name for the receiver of a job, so that jobs for the same receiver can be counted. Empty if the URL is
    invalid.
    """
    if isinstance(job, SmtpJob):
        return f"{job.host}:{job.port}"
    try:
        parts = urlsplit(job.url)
    except ValueError:
        return ""
    return f"{parts.scheme}:{parts.netloc}"


@cache
def own_pool() -> Pool:
    """Return the pool of this process. It is created from the settings at first use."""
    pool = Pool(
        most=settings.NOTIFICATION_SENDER_PROCESSES,
        command=(*COMMAND, settings.EGRESS_CA_FILE),
        proxy=settings.EGRESS_PROXY,
        allow=settings.EGRESS_ALLOWLIST,
    )
    atexit.register(pool.close)
    return pool


def after_fork() -> None:
    if own_pool.cache_info().currsize:
        # The sender processes belong to the parent.
        for child in own_pool().idle:
            child.release()
            child.process.returncode = 0
        own_pool.cache_clear()


os.register_at_fork(after_in_child=after_fork)


def send(job: Job, *, now: datetime) -> Answer:
    """Run a job in the pool of this process. Always returns an answer."""
    return own_pool().send(job, now=now)
