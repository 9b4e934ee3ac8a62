"""The commands `run` and `once`: find the metadata service, identify the machine, and run the supervisor."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from dataclasses import replace

from drydock_agent import machine, wire
from drydock_agent.clock import Clock
from drydock_agent.log_limiter import LogLimiter
from drydock_agent.metadata_service import endpoint
from drydock_agent.metadata_service.client import Imds
from drydock_agent.metadata_service.early_poller import EarlyPoller
from drydock_agent.platforms import system
from drydock_agent.service_manager import ALIVE, READY, notify
from drydock_agent.settings.load import Settings
from drydock_agent.state_folder import StateFolder
from drydock_agent.supervisor import Part, Supervisor

# How often the main thread ends overdue calls.
WATCH_SECONDS = system.WATCH_SECONDS

log = logging.getLogger("drydock_agent")


def run(settings: Settings, *, clock: Clock, stop: threading.Event, hooks_may_end: bool = False) -> None:
    """Run the agent until `stop` is set. With `hooks_may_end`, running hooks then end as usual. Raises `StateError` or
    `SpoolError` if the state folder cannot be used.
    """
    state = StateFolder(settings.state_dir, clock)
    state.prepare()
    limiter = LogLimiter(clock)
    notify(READY)

    def pause(seconds: float) -> None:
        ends = time.monotonic() + seconds
        while not stop.is_set() and (left := ends - time.monotonic()) > 0:
            notify(ALIVE)
            stop.wait(min(left, WATCH_SECONDS))

    def early_pause(seconds: float) -> None:
        notify(ALIVE)
        early.pause(seconds)
        if stop.is_set():
            raise machine.UnknownMachine("the agent stops")

    while not stop.is_set():
        found = endpoint.find(settings, state, limiter, pause)
        here = replace(settings, imds_url=found.url)
        try:
            with contextlib.closing(Imds(here.imds_url)) as imds:
                early = EarlyPoller(imds, clock, poll_seconds=here.poll_seconds, stop=stop)
                identity = machine.resolve(
                    here, imds, state, clock, limiter, early_pause, for_ever=not found.is_discovered
                )
        except machine.UnknownMachine:
            # This address may be wrong: search for the metadata service again.
            continue
        log.info("This is machine %s (%s).", identity.machine_id, identity.source)
        supervisor = Supervisor(here, identity, state, clock=clock, limiter=limiter, wait=wire.MAX_WAIT_SECONDS)
        supervisor.scheduled_events.add_early_documents(early.documents)
        supervisor.start()
        try:
            _watch(supervisor, limiter, rediscover=found.is_discovered, stop=stop)
            if hooks_may_end and stop.is_set():
                supervisor.let_hooks_end()
        finally:
            supervisor.stop()


def once(settings: Settings, *, clock: Clock) -> list[str]:
    """Poll the metadata service, deliver all reports and request orders, each once. Return the problems as
    sentences.
    """
    state = StateFolder(settings.state_dir, clock)
    state.prepare()
    limiter = LogLimiter(clock)
    settings = replace(
        settings, imds_url=endpoint.find(settings, state, limiter, threading.Event().wait, waits=(0.0,)).url
    )
    with contextlib.closing(Imds(settings.imds_url)) as imds:
        identity = machine.resolve(
            settings, imds, state, clock, limiter, threading.Event().wait, answer_timeout=0.0, for_ever=False
        )
    supervisor = Supervisor(settings, identity, state, clock=clock, limiter=limiter, wait=0)
    try:
        supervisor.scheduled_events.step()
        supervisor.instance.step()
        _until_idle(supervisor.uploader)
        supervisor.listener.step()
        _until_idle(supervisor.orders)
        _until_idle(supervisor.uploader)
        wrong = []
        if supervisor.scheduled_events.last_poll_at is None:
            wrong.append("The metadata service gave no document.")
        pending = supervisor.context.spool.pending()
        if supervisor.uploader.failing or pending:
            wrong.append(f"{pending} reports wait for the backend.")
        if supervisor.listener.failing:
            wrong.append("The backend could not be asked for orders.")
        return wrong
    finally:
        supervisor.stop()


def _until_idle(part: Part) -> None:
    while part.step() == 0.0:
        pass


def _watch(supervisor: Supervisor, limiter: LogLimiter, *, rediscover: bool, stop: threading.Event) -> None:
    """Wait until `stop` is set or the machine turns out to have another identity. With `rediscover`, also return after
    `RETRY_SECONDS` without a response of the metadata service.

    Tells the service manager that the agent is alive, as long as each part makes progress; otherwise it restarts the
    agent.
    """
    heard, last = time.monotonic(), supervisor.scheduled_events.last_poll_at
    while not supervisor.finished.wait(WATCH_SECONDS) and not stop.is_set():
        supervisor.cut_overdue_calls()
        if stalled := supervisor.stalled_parts():
            limiter.warn("stalled", f"No progress in {', '.join(stalled)}.")
        else:
            notify(ALIVE)
        if supervisor.scheduled_events.last_poll_at != last:
            heard, last = time.monotonic(), supervisor.scheduled_events.last_poll_at
        elif rediscover and time.monotonic() - heard > endpoint.RETRY_SECONDS:
            return
