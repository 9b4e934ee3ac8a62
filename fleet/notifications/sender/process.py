"""Sender process. It reads one job a line, runs it under the guard, and writes one answer a line.

It ends immediately when its input is closed, even during a job, because the parent has then ended. It also ends after
an idle period. `pool` starts it with an empty environment and no open files except two pipes.
"""

import logging
import os
import queue
import ssl
import sys
import threading
from dataclasses import replace
from importlib import import_module
from typing import BinaryIO

import certifi
import msgspec

from fleet.notifications.sender import jobs, transports
from fleet.notifications.sender.guard import Guard, Late, NotAllowed, bind_process, time_limit
from fleet.notifications.sender.jobs import Answer, HttpJob, Order, SendError, SmtpJob

# Longer than `STALE_SECONDS` of `pool`.
IDLE_SECONDS = 300.0
SERVICES = "fleet.notifications.sender.services"


def main(authorities: str = "") -> None:
    """Run jobs until the input ends. `authorities` is the path of a file with additional certificate authorities, or
    empty.
    """
    answers = answers_only()
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=listen, args=(sys.stdin.buffer, lines), daemon=True).start()
    logging.getLogger().addHandler(logging.NullHandler())
    tls = ssl.create_default_context()
    for path in filter(None, (certifi.where(), authorities)):
        tls.load_verify_locations(path)
    bind_process()
    guard = Guard()
    sys.addaudithook(guard.hear)
    while True:
        try:
            line = lines.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            return
        answers.write(jobs.ENCODER.encode(answer_to(line, guard=guard, tls=tls)) + b"\n")
        answers.flush()


def answers_only() -> BinaryIO:
    """Return the pipe for answers, and discard all other output of libraries."""
    answers = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    return answers


def listen(source: BinaryIO, lines: queue.SimpleQueue[bytes]) -> None:
    for line in source:
        lines.put(line)
    # The parent is gone. The main thread may be waiting for a receiver.
    os._exit(0)


def answer_to(line: bytes, *, guard: Guard, tls: ssl.SSLContext) -> Answer:
    """Run the job in a line and return the answer. Failures are in the answer."""
    try:
        order = jobs.DECODE_ORDER.decode(line)
    except msgspec.DecodeError:
        return Answer(ok=False, error=SendError.BAD_JOB)
    try:
        with time_limit(order.job.limit_seconds):
            answer = perform(order, guard=guard, tls=tls)
    except Late:
        answer = Answer(ok=False, error=SendError.TIMEOUT)
    except Exception as error:  # noqa: BLE001 - a failing job must not end the process
        refused = isinstance(error, NotAllowed) or bool(guard.refused)
        code = SendError.REFUSED_ADDRESS if refused else SendError.BAD_JOB
        answer = Answer(ok=False, error=code, body=type(error).__name__)
    if answer.error is SendError.REFUSED_ADDRESS:
        answer = replace(answer, reason=guard.refused[0])
    return jobs.presentable(answer, order.job)


def perform(order: Order, *, guard: Guard, tls: ssl.SSLContext) -> Answer:
    job = order.job
    # An HTTP proxy does not apply to a mail server.
    proxy = "" if isinstance(job, SmtpJob) else order.proxy
    try:
        guard.begin(order.allow, proxy)
    except OSError:
        return Answer(ok=False, error=SendError.DNS)
    if isinstance(job, HttpJob):
        return transports.send_http(job, guard=guard, proxy=proxy, tls=tls)
    if isinstance(job, SmtpJob):
        return transports.send_mail(job, guard=guard, tls=tls)
    services = import_module(SERVICES)
    # Refusals during the import are not caused by the job.
    guard.refused.clear()
    answer: Answer = services.perform(job, guard=guard, proxy=proxy, tls=tls)
    return answer


if __name__ == "__main__":
    main(*sys.argv[1:])
