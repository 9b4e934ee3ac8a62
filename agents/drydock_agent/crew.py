"""All parts of the agent put together, each with a thread of its own."""

from __future__ import annotations

import ssl
import threading
import time
from typing import TYPE_CHECKING, Protocol

from drydock_agent.backend.client import BackendClient, trust
from drydock_agent.backend.enrolment import Enrolment
from drydock_agent.backend.listener import OrderListener
from drydock_agent.backend.loss import Loss
from drydock_agent.backend.orders import Orders
from drydock_agent.backend.signatures import Keyring
from drydock_agent.backend.uploader import Uploader
from drydock_agent.clock import Clock, ServerClock
from drydock_agent.connections import Interrupted
from drydock_agent.context import Context
from drydock_agent.drills import Rehearsal
from drydock_agent.hooks.events import EventHooks
from drydock_agent.lazy_import import LazyImport
from drydock_agent.log_limiter import LogLimiter
from drydock_agent.machine import Identity, Instance
from drydock_agent.metadata_service.client import Imds
from drydock_agent.metadata_service.document import Document
from drydock_agent.metadata_service.scheduled_events import ScheduledEvents
from drydock_agent.metadata_service.versions import EVENTS_VERSIONS, Versions
from drydock_agent.settings.load import Settings
from drydock_agent.state_folder import StateFolder

if TYPE_CHECKING:
    from drydock_agent.redis import parts as caches
    from drydock_agent.redis.hooks import CacheHooks
    from drydock_agent.redis.listener import CacheListener
else:
    # Most machines use no cache.
    caches = LazyImport("drydock_agent.redis.parts")

# A thread that sits in a connect cannot be cut; it is a daemon and is left behind.
JOIN_SECONDS = 0.5
SURVIVAL_PAUSE_SECONDS = 5.0


class Part(Protocol):
    """One concern with a thread of its own.

    `step` does one piece of work and returns the seconds until the next; 0 when it found some. `wake` ends that wait
    early. `interrupt` cuts a call short, from another thread, for good.
    """

    name: str
    wake: threading.Event

    def step(self) -> float: ...

    def interrupt(self) -> None: ...


class Crew:
    """All parts for one identity. `finished` is set when the machine turned out to be another one."""

    def __init__(
        self,
        settings: Settings,
        identity: Identity,
        state: StateFolder,
        *,
        clock: Clock,
        limiter: LogLimiter,
        wait: int,
    ) -> None:
        self.finished = threading.Event()
        self.stopping = threading.Event()
        tls = trust(settings.ca_file)
        self.context = context = Context(
            settings=settings,
            machine_id=identity.machine_id,
            spool=state.open_spool(identity.machine_id, former_id=identity.former_id),
            clock=clock,
            server_clock=ServerClock(clock),
            limiter=limiter,
        )
        self.instance = Instance(
            context,
            identity,
            imds=Imds(settings.imds_url),
            reported=self._wake_hooks_and_uploader,
            changed=self.finished.set,
        )
        self.rehearsal = Rehearsal(context, changed=self._wake_hooks_and_uploader)
        self.hooks = EventHooks(context, resource_name=self.instance.resource_name, rehearsed=self.rehearsal.listed)
        versions = Versions(EVENTS_VERSIONS, clock)
        self.scheduled_events = ScheduledEvents(
            context, imds=Imds(settings.imds_url, versions=versions), read_one=self._saw
        )
        keyring = Keyring(state=state, mode=settings.signed_orders, limiter=limiter)
        self.orders = Orders(
            context,
            imds=Imds(settings.imds_url, versions=versions),
            scheduled_events=self.scheduled_events,
            rehearsal=self.rehearsal,
            trust=keyring.judge,
        )
        self.uploader, self.listener = self._to_the_backend(identity, state, keyring, tls, wait)
        self.cache_listeners: list[CacheListener] = []
        cache_hooks: list[CacheHooks] = []
        if settings.redis_caches:
            self.cache_listeners, cache_hooks = caches.parts(context, resource_name=self.instance.resource_name)
        self.parts: tuple[Part, ...] = (
            self.scheduled_events,
            self.hooks,
            self.rehearsal,
            self.orders,
            self.uploader,
            self.listener,
            self.instance,
            *self.cache_listeners,
            *cache_hooks,
        )
        self._threads: list[threading.Thread] = []

    def _to_the_backend(
        self, identity: Identity, state: StateFolder, keyring: Keyring, tls: ssl.SSLContext, wait: int
    ) -> tuple[Uploader, OrderListener]:
        enrolment = Enrolment(self.context.settings, identity, state, keyring=keyring, enrolled=self._enrolled)
        uploader = Uploader(
            self.context,
            client=self._client(tls),
            enrolment=enrolment,
            keyring=keyring,
            orders=self.orders,
            loss=Loss(
                self.context.clock, tell_document=self.scheduled_events.tell_if, tell_everything=self._tell_everything
            ),
            told=lambda: self.scheduled_events.told,
            renewed=self._renewed,
            carried=lambda: self.listener.carries,
            in_a_hurry=self._in_a_hurry,
        )
        listener = OrderListener(
            self.context,
            client=self._client(tls),
            enrolment=enrolment,
            orders=self.orders,
            standing=uploader.standing,
            carried=self.scheduled_events.carried,
            report=uploader.report,
            remind=self.scheduled_events.remind,
            in_a_hurry=self._in_a_hurry,
            wait=wait,
        )
        return uploader, listener

    def _client(self, tls: ssl.SSLContext) -> BackendClient:
        url, clock = self.context.settings.fleet_url, self.context.clock
        return BackendClient(url, tls=tls, clock=clock, server_clock=self.context.server_clock)

    def start(self) -> None:
        """Start every part."""
        self.rehearsal.running = True
        for part in self.parts:
            thread = threading.Thread(target=self._work, args=(part,), name=part.name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Cut every call, wait a moment for the threads, and close the spool."""
        self.stopping.set()
        for part in self.parts:
            part.interrupt()
            part.wake.set()
        deadline = time.monotonic() + JOIN_SECONDS
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0.0))
        self.context.spool.close()

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
                self.context.limiter.warn(
                    f"bug {part.name}", f"Something unexpected happened in {part.name}.", exc_info=True
                )
                pause = SURVIVAL_PAUSE_SECONDS
            if pause > 0 and not self.stopping.is_set():
                part.wake.wait(pause)

    def _saw(self, document: Document) -> None:
        # A rehearsal first: what is real ends it, and its hooks make way.
        self.rehearsal.saw(document.listed)
        self.hooks.saw(document.body)

    def _wake_hooks_and_uploader(self) -> None:
        # A rehearsal went on; or the machine's name may be another one, and with it which events name this machine.
        self.hooks.wake.set()
        self.context.to_upload.set()

    def _in_a_hurry(self) -> bool:
        # An order for what is listed, or for what waits to be told, must not wait until a whole fleet has come back.
        return self.scheduled_events.lists_any or self.rehearsal.busy

    def _renewed(self) -> None:
        # What the old state remembers of numbers and documents may be behind what the backend has.
        self.orders.reload()
        self._forget()

    def _enrolled(self) -> None:
        # A backend that gave a new credential may not have what an earlier one of this spool had acknowledged.
        if self.context.spool.acknowledged:
            self._forget()
        self.listener.wake.set()

    def _tell_everything(self, left: int) -> None:
        # Of what is over nothing is told again; the backend says on its timeline which reports it lost.
        self._forget()
        self.instance.forget()
        self.hooks.tell_again()
        self.orders.tell_again(left)

    def _forget(self) -> None:
        self.scheduled_events.forget()
        for each in self.cache_listeners:
            each.forget()
