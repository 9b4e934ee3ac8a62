"""The side of whoever sends: `send` has one job done by a process of the pool, and always returns an answer."""

from __future__ import annotations

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

from fleet.notifications.sender.jobs import (
    DECODE_ANSWER,
    Answer,
    AppriseJob,
    Job,
    SendError,
    SmtpJob,
    retry_after,
    written,
)

COMMAND = (sys.executable, "-I", "-B", "-m", "fleet.notifications.sender.process")
# A process ends after this many jobs, so that nothing of what libraries leave behind grows for ever.
MOST_JOBS = 500
# Not used for so long, a process may be about to end by itself; a new one is started instead.
STALE_SECONDS = 240.0
# The process keeps the job's limit by itself where it can; after this much more it is killed.
GRACE_SECONDS = 1.0
# How long a job waits for a free process before it is handed back.
WAIT_SECONDS = 10.0
# The largest job and the largest answer on the pipe.
MOST_LINE = 4 * 1024 * 1024
PIECE = 65536


class Gone(Exception):
    """The process ended before its answer."""


class Overdue(Exception):
    """There was no answer in time."""


class Child:
    """One process with its two pipes. It is used by one thread at a time."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # No proxy, no key, no path of ours.
            env={},
            cwd="/",
            bufsize=0,
            # Ctrl-C in a terminal is for us; it ends when we have ended.
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
        return alive and self.jobs < MOST_JOBS and time.monotonic() - self.used < STALE_SECONDS

    def ask(self, line: bytes, seconds: float) -> bytes:
        """The answer's line. Raises Gone or Overdue, after which the process has to be killed."""
        self.jobs += 1
        deadline = time.monotonic() + seconds
        rest = memoryview(line)
        found = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(self.answers, selectors.EVENT_READ)
            selector.register(self.orders, selectors.EVENT_WRITE)
            while not found.endswith(b"\n"):
                ready = selector.select(max(deadline - time.monotonic(), 0))
                if not ready:
                    raise Overdue
                for key, _ in ready:
                    if key.fileobj is self.answers:
                        piece = os.read(key.fd, PIECE)
                        found += piece
                        if not piece or len(found) > MOST_LINE:
                            raise Gone
                    else:
                        rest = rest[push(key.fd, rest) :]
                        if not rest:
                            selector.unregister(self.orders)
        self.used = time.monotonic()
        return bytes(found)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.release()

    def release(self) -> None:
        for pipe in (self.orders, self.answers):
            with suppress(OSError):
                pipe.close()


def push(pipe: int, rest: memoryview) -> int:
    """How many bytes the pipe took. Raises Gone."""
    try:
        return os.write(pipe, rest[:PIECE])
    except BlockingIOError:
        return 0
    except BrokenPipeError as error:
        raise Gone from error


class Pool:
    """Processes that send, started when they are needed and kept for the next job; safe for threads.

    At most `most` work at a time, and at most a quarter of them for one receiver: one that hangs holds up itself.
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
        """Has the job done; `now` is for receivers that say until when they want to be left alone."""
        line = written(job, proxy=self.proxy, allow=self.allow)
        if len(line) > MOST_LINE:
            return Answer(ok=False, error=SendError.TOO_LARGE)
        with self.place(receiver(job)) as free:
            answer = self.done(job, line) if free else Answer(ok=False, error=SendError.BUSY)
        return replace(answer, retry_after_seconds=retry_after(answer.headers, answer.status, now))

    @contextmanager
    def place(self, name: str) -> Iterator[bool]:
        """Whether one more may work for this receiver; waits for it."""
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
            answer = DECODE_ANSWER.decode(child.ask(line, job.limit_seconds + GRACE_SECONDS))
        except Overdue:
            child.kill()
            return Answer(ok=False, error=SendError.TIMEOUT)
        except (Gone, msgspec.DecodeError):
            child.kill()
            return Answer(ok=False, error=SendError.DIED)
        except BaseException:
            # Whoever sends is being stopped; its process knows nothing of that.
            child.kill()
            raise
        if isinstance(job, AppriseJob) and answer.error is SendError.TIMEOUT:
            # Apprise may go on in threads of its own.
            child.kill()
        else:
            with self.changed:
                self.idle.append(child)
        return answer

    def take(self, job: Job) -> Child:
        """A process that waits, or a new one. Those grown by Apprise are for what needs it, if others wait."""
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
        """Ends the processes that wait. The pool can be used again."""
        with self.changed:
            idle, self.idle = self.idle, []
        for child in idle:
            child.kill()

    def abandon(self) -> None:
        """In a fork: the processes are the parent's, and their pipes must not stay open here."""
        for child in self.idle:
            child.release()
            child.process.returncode = 0


def receiver(job: Job) -> str:
    """Who is asked, as far as the job tells."""
    if isinstance(job, SmtpJob):
        return f"{job.host}:{job.port}"
    try:
        parts = urlsplit(job.url)
    except ValueError:
        return ""
    return f"{parts.scheme}:{parts.netloc}"


@cache
def own_pool() -> Pool:
    """This process's pool, by the settings."""
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
        own_pool().abandon()
        own_pool.cache_clear()


os.register_at_fork(after_in_child=after_fork)


def send(job: Job, *, now: datetime) -> Answer:
    """Has the job done by the pool of this process; always returns an answer."""
    return own_pool().send(job, now=now)
