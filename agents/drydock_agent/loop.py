"""Runs the agent: finds out where it is and who it is, and stops in well under a second."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from dataclasses import replace

from drydock_agent import machine, wire
from drydock_agent.clock import Clock
from drydock_agent.crew import Crew, Part
from drydock_agent.log_limiter import LogLimiter
from drydock_agent.metadata_service import endpoint
from drydock_agent.metadata_service.client import Imds
from drydock_agent.metadata_service.meanwhile import Meanwhile
from drydock_agent.settings.load import Settings
from drydock_agent.state_folder import StateFolder

# How often the main thread looks for calls that would never end.
WATCH_SECONDS = 10.0

log = logging.getLogger("drydock_agent")


def run(settings: Settings, *, clock: Clock, stop: threading.Event) -> None:
    """Run until `stop` is set. Raises `StateError` and `SpoolError` where the state folder cannot be used."""
    state = StateFolder(settings.state_dir, clock)
    state.prepare()
    limiter = LogLimiter(clock)
    while not stop.is_set():
        found = endpoint.find(settings, state, limiter, stop.wait)
        here = replace(settings, imds_url=found.url)
        try:
            with contextlib.closing(Imds(here.imds_url)) as imds:
                early = Meanwhile(imds, clock, poll_seconds=here.poll_seconds, stop=stop)
                identity = machine.resolve(here, imds, state, clock, limiter, early.pause, for_ever=not found.sought)
        except machine.UnknownMachine:
            # Asking on where nothing can answer leads nowhere: look for the service again.
            continue
        log.info("This is machine %s (%s).", identity.machine_id, identity.source)
        crew = Crew(here, identity, state, clock=clock, limiter=limiter, wait=wire.MAX_WAIT_SECONDS)
        crew.scheduled_events.read_before(early.documents)
        crew.start()
        try:
            _watch(crew, look_again=found.sought)
        finally:
            crew.stop()


def once(settings: Settings, *, clock: Clock) -> list[str]:
    """One poll, one delivery, one look for orders. Returns what went wrong, in sentences."""
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
    crew = Crew(settings, identity, state, clock=clock, limiter=limiter, wait=0)
    try:
        crew.scheduled_events.step()
        crew.instance.step()
        _until_idle(crew.uploader)
        crew.listener.step()
        _until_idle(crew.orders)
        _until_idle(crew.uploader)
        wrong = []
        if crew.scheduled_events.last_poll_at is None:
            wrong.append("The metadata service gave no document.")
        pending = crew.context.spool.pending()
        if crew.uploader.failing or pending:
            wrong.append(f"{pending} reports wait for the backend.")
        if crew.listener.failing:
            wrong.append("The backend could not be asked for orders.")
        return wrong
    finally:
        crew.stop()


def _until_idle(part: Part) -> None:
    while part.step() == 0.0:
        pass


def _watch(crew: Crew, *, look_again: bool) -> None:
    """Until the machine is another one; with `look_again` also until no good answer came for as long as that takes."""
    # A wait without end cannot be interrupted by Ctrl-C on Windows.
    pause = 0.5 if sys.platform == "win32" else WATCH_SECONDS
    heard, last = time.monotonic(), crew.scheduled_events.last_poll_at
    while not crew.finished.wait(pause):
        crew.cut_overdue_calls()
        if crew.scheduled_events.last_poll_at != last:
            heard, last = time.monotonic(), crew.scheduled_events.last_poll_at
        elif look_again and time.monotonic() - heard > endpoint.AGAIN_SECONDS:
            return
