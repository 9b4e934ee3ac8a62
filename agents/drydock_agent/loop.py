"""Puts the parts together, gives each its thread, and stops them in well under a second."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from random import Random
from typing import TYPE_CHECKING, Protocol

from . import endpoint, wire
from . import identity as who
from .clock import Clock, ServerClock
from .config import Settings
from .connections import Interrupted, trust
from .courier import Courier
from .document import Document
from .enrolment import Enrolment
from .fleet import Fleet
from .hooks import Hooks
from .imds import Imds
from .instance import Instance
from .late import Late
from .listener import Listener
from .orders import Orders
from .quiet import Quiet
from .rehearsal import Rehearsal
from .scheduled_events import ScheduledEvents
from .signatures import Keyring
from .state import StateFolder
from .versions import EVENTS_VERSIONS, Versions

if TYPE_CHECKING:
    from . import redis_maintenance_parts
    from .redis_maintenance import RedisMaintenance
else:
    # Most machines use no cache.
    redis_maintenance_parts = Late(f"{__package__}.redis_maintenance_parts")

# A thread that sits in a connect cannot be cut; it is a daemon and is left behind.
JOIN_SECONDS = 0.5
SURVIVAL_PAUSE_SECONDS = 5.0
# How often the main thread looks for calls that would never end.
WATCH_SECONDS = 10.0

log = logging.getLogger("drydock_agent")


class Part(Protocol):
    """One concern with a thread of its own.

    `step` does one piece of work and returns the seconds until the next; 0 when it found some. `wake` ends that wait
    early. `interrupt` cuts a call short, from another thread, for good.
    """

    name: str
    wake: threading.Event

    def step(self) -> float: ...

    def interrupt(self) -> None: ...


def agent_version() -> str:
    """The version of the installed distribution; `0` where the agent runs from a bare source tree."""
    try:
        return version("drydock-agent")
    except PackageNotFoundError:
        return "0"


class Crew:
    """All parts for one identity. `finished` is set when the machine turned out to be another one."""

    def __init__(
        self, settings: Settings, identity: who.Identity, state: StateFolder, clock: Clock, quiet: Quiet, wait: int
    ) -> None:
        release = agent_version()
        user_agent = f"drydock-agent/{release}"
        server_clock = ServerClock(clock)
        tls = trust(settings.ca_file)
        # Spreads a fleet's tries; nothing here is a secret.
        random = Random()  # noqa: S311
        to_courier = threading.Event()
        self.finished = threading.Event()
        self.stopping = threading.Event()
        self.quiet = quiet
        self.spool = state.open_spool(identity.machine_id)
        versions = Versions(EVENTS_VERSIONS, clock)
        keyring = Keyring(state=state, mode=settings.signed_orders, quiet=quiet)
        self.rehearsal = Rehearsal(
            machine_id=identity.machine_id,
            spool=self.spool,
            clock=clock,
            server_clock=server_clock,
            quiet=quiet,
            changed=self._rehearsed,
        )
        self.hooks = Hooks(
            folder=settings.hooks_dir,
            timeout=settings.hook_timeout_seconds,
            machine_id=identity.machine_id,
            resource_name=lambda: who.resource_name(settings, self.instance.compute),
            spool=self.spool,
            clock=clock,
            quiet=quiet,
            reported=to_courier.set,
            rehearsed=self.rehearsal.listed,
        )
        self.scheduled_events = ScheduledEvents(
            imds=Imds(settings.imds_url, user_agent=user_agent, versions=versions),
            spool=self.spool,
            clock=clock,
            quiet=quiet,
            poll_seconds=settings.poll_seconds,
            reminder_seconds=settings.reminder_seconds,
            forwarded=to_courier.set,
            read_one=self._saw,
        )
        self.orders = Orders(
            machine_id=identity.machine_id,
            imds=Imds(settings.imds_url, user_agent=user_agent, versions=versions),
            spool=self.spool,
            scheduled_events=self.scheduled_events,
            clock=clock,
            server_clock=server_clock,
            quiet=quiet,
            rehearsal=self.rehearsal,
            receipt_written=to_courier.set,
            trust=keyring.judge,
        )
        enrolment = Enrolment(
            settings=settings,
            identity=identity,
            state=state,
            agent_version=release,
            enrolled=self._enrolled,
            keyring=keyring,
        )

        def fleet() -> Fleet:
            return Fleet(
                settings.fleet_url,
                user_agent=user_agent,
                tls=tls,
                clock=clock,
                server_clock=server_clock,
            )

        self.courier = Courier(
            wake=to_courier,
            fleet=fleet(),
            enrolment=enrolment,
            keyring=keyring,
            spool=self.spool,
            orders=self.orders,
            clock=clock,
            quiet=quiet,
            random=random,
            agent_version=release,
            last_poll_at=lambda: self.scheduled_events.last_poll_at,
            renewed=self._renewed,
        )
        self.listener = Listener(
            fleet=fleet(),
            enrolment=enrolment,
            orders=self.orders,
            clock=clock,
            quiet=quiet,
            random=random,
            last_poll_at=lambda: self.courier.settled_poll_at,
            refused=to_courier.set,
            wait=wait,
        )
        self.instance = Instance(
            settings=settings,
            identity=identity,
            imds=Imds(settings.imds_url, user_agent=user_agent),
            spool=self.spool,
            clock=clock,
            quiet=quiet,
            reported=self._instance_changed,
            changed=self.finished.set,
        )
        self.redis_maintenance: list[RedisMaintenance] = []
        redis_parts: list[Part] = []
        if settings.redis_caches:
            self.redis_maintenance, redis_hooks = redis_maintenance_parts.listeners(
                settings,
                machine_id=identity.machine_id,
                resource_name=lambda: who.resource_name(settings, self.instance.compute),
                user_agent=user_agent,
                spool=self.spool,
                clock=clock,
                quiet=quiet,
                random=random,
                reported=to_courier.set,
            )
            redis_parts = [*self.redis_maintenance, *redis_hooks]
        self.parts: tuple[Part, ...] = (
            self.scheduled_events,
            self.hooks,
            self.rehearsal,
            self.orders,
            self.courier,
            self.listener,
            self.instance,
            *redis_parts,
        )
        self._threads = [
            threading.Thread(target=self._work, args=(part,), name=part.name, daemon=True) for part in self.parts
        ]

    def start(self) -> None:
        """Start every part."""
        self.rehearsal.running = True
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Cut every call, wait a moment for the threads, and close the spool."""
        self.stopping.set()
        for part in self.parts:
            part.interrupt()
            part.wake.set()
        deadline = time.monotonic() + JOIN_SECONDS
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(deadline - time.monotonic(), 0.0))
        self.spool.close()

    def cut_overdue_calls(self) -> None:
        """End calls to the metadata service that would never end by themselves."""
        self.scheduled_events.cut_if_overdue()
        self.orders.cut_if_overdue()
        self.instance.cut_if_overdue()

    def _work(self, part: Part) -> None:
        while not self.stopping.is_set():
            # Cleared before the work: a wake during the work is work to come, and must not be slept over.
            part.wake.clear()
            try:
                pause = part.step()
            except Interrupted:
                return
            except Exception:  # noqa: BLE001 - the one loop that must survive: a mistake in one part ends nothing
                self.quiet.warn(f"bug {part.name}", f"Something unexpected happened in {part.name}.", exc_info=True)
                pause = SURVIVAL_PAUSE_SECONDS
            if pause > 0 and not self.stopping.is_set():
                part.wake.wait(pause)

    def _saw(self, document: Document) -> None:
        # A rehearsal first: what is real ends it, and its hooks make way.
        self.rehearsal.saw(document)
        self.hooks.saw(document)

    def _rehearsed(self) -> None:
        self.hooks.wake.set()
        self.courier.wake.set()

    def _instance_changed(self) -> None:
        # The machine's name may be another one, and with it which events name this machine.
        self.hooks.wake.set()
        self.courier.wake.set()

    def _renewed(self) -> None:
        # What the old state remembers of numbers and documents may be behind what the backend has.
        self.orders.reload()
        self._forget()

    def _enrolled(self) -> None:
        # A backend that gave a new credential may not have what an earlier one of this spool had acknowledged.
        if self.spool.acknowledged:
            self._forget()
        self.listener.wake.set()

    def _forget(self) -> None:
        self.scheduled_events.forget()
        for each in self.redis_maintenance:
            each.forget()


def run(settings: Settings, *, clock: Clock, stop: threading.Event) -> None:
    """Run until `stop` is set. Raises `StateError` and `SpoolError` where the state folder cannot be used."""
    state = StateFolder(settings.state_dir, clock)
    state.prepare()
    quiet = Quiet(clock)
    while not stop.is_set():
        found = endpoint.find(settings, state, quiet, stop.wait)
        here = replace(settings, imds_url=found.url)
        try:
            with _asking(here) as imds:
                identity = who.resolve(here, imds, state, clock, quiet, stop.wait, for_ever=not found.sought)
        except who.Unknown:
            # Asking on where nothing can answer leads nowhere: look for the service again.
            continue
        log.info("This is machine %s (%s).", identity.machine_id, identity.source)
        crew = Crew(here, identity, state, clock, quiet, wire.MAX_WAIT_SECONDS)
        crew.start()
        try:
            _watch(crew, look_again=found.sought)
        finally:
            crew.stop()


def once(settings: Settings, *, clock: Clock) -> list[str]:
    """One poll, one delivery, one look for orders. Returns what went wrong, in sentences."""
    state = StateFolder(settings.state_dir, clock)
    state.prepare()
    quiet = Quiet(clock)
    settings = replace(
        settings, imds_url=endpoint.find(settings, state, quiet, threading.Event().wait, waits=(0.0,)).url
    )
    with _asking(settings) as imds:
        identity = who.resolve(
            settings, imds, state, clock, quiet, threading.Event().wait, patience=0.0, for_ever=False
        )
    crew = Crew(settings, identity, state, clock, quiet, 0)
    try:
        crew.scheduled_events.step()
        crew.instance.step()
        _until_idle(crew.courier)
        crew.listener.step()
        _until_idle(crew.orders)
        _until_idle(crew.courier)
        wrong = []
        if crew.scheduled_events.last_poll_at is None:
            wrong.append("The metadata service gave no document.")
        if crew.courier.failing or crew.spool.pending():
            wrong.append(f"{crew.spool.pending()} reports wait for the backend.")
        if crew.listener.failing:
            wrong.append("The backend could not be asked for orders.")
        return wrong
    finally:
        crew.stop()


def _asking(settings: Settings) -> contextlib.closing[Imds]:
    return contextlib.closing(Imds(settings.imds_url, user_agent=f"drydock-agent/{agent_version()}"))


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
