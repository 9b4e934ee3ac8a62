"""Supervisor: starts each part of the agent in its own thread, connects the parts, and stops them."""

from __future__ import annotations

import ssl
import threading
import time
from typing import TYPE_CHECKING, Protocol

from drydock_agent import wire
from drydock_agent.backend.client import BackendClient, tls_context
from drydock_agent.backend.enrolment import Enrolment
from drydock_agent.backend.listener import OrderListener
from drydock_agent.backend.loss_recovery import LossRecovery
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

# A thread that is connecting cannot be stopped. It is a daemon thread, so it ends with the process.
JOIN_SECONDS = 0.5
SURVIVAL_PAUSE_SECONDS = 5.0
# No step lasts as long, not even an enrolment with every call at its timeout. Hooks have a timeout of their own.
STALLED_SECONDS = 600.0
# Time to end a hook after its time limit.
HOOK_END_SECONDS = 15.0


class Part(Protocol):
    """A part of the agent with its own thread.

    `step` does one piece of work and returns the seconds until the next; 0 means at once. Setting the event `wake` ends
    this wait early. `interrupt` is called from another thread when the agent stops, and aborts the current call.
    """

    name: str
    wake: threading.Event

    def step(self) -> float: ...

    def interrupt(self) -> None: ...


class Supervisor:
    """All parts of the agent for one machine identity. The event `finished` is set if the machine turns out to have
    another identity.
    """

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
        self.finished, self.stopping, self.finishing = threading.Event(), threading.Event(), threading.Event()
        tls = tls_context(settings.ca_file)
        self.context = context = Context(
            settings=settings,
            machine_id=identity.machine_id,
            spool=state.open_spool(identity.machine_id, former_id=identity.former_id),
            clock=clock,
            server_clock=ServerClock(clock),
            limiter=limiter,
        )
        context.spool.ahead = context.server_clock.offset
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
            context, imds=Imds(settings.imds_url, versions=versions), on_document=self._document_read
        )
        keyring = Keyring(state=state, mode=settings.signed_orders, limiter=limiter)
        self.orders = Orders(
            context,
            imds=Imds(settings.imds_url, versions=versions),
            scheduled_events=self.scheduled_events,
            rehearsal=self.rehearsal,
            signature_fault=keyring.signature_fault,
        )
        self.uploader, self.listener = self._backend_parts(identity, state, keyring, tls, wait)
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
        self._programs: tuple[Part, ...] = (self.hooks, *cache_hooks)
        self._threads: dict[Part, threading.Thread] = {}

    def _backend_parts(
        self, identity: Identity, state: StateFolder, keyring: Keyring, tls: ssl.SSLContext, wait: int
    ) -> tuple[Uploader, OrderListener]:
        enrolment = Enrolment(self.context.settings, identity, state, keyring=keyring, enrolled=self._enrolled)
        uploader = Uploader(
            self.context,
            client=self._client(tls),
            enrolment=enrolment,
            keyring=keyring,
            orders=self.orders,
            loss_recovery=LossRecovery(
                self.context.clock, resend_document=self.scheduled_events.resend_if_wanted, resend_all=self._resend_all
            ),
            delivered_poll=lambda: self.scheduled_events.spooled_poll,
            metadata_state=lambda: wire.metadata_text(
                self.scheduled_events.problem, self.scheduled_events.events_version, self.instance.api_version
            ),
            renewed=self._renewed,
            heartbeat_replaced=lambda: self.listener.replaces_heartbeat,
            is_urgent=self._is_urgent,
        )
        listener = OrderListener(
            self.context,
            client=self._client(tls),
            enrolment=enrolment,
            orders=self.orders,
            status_report=uploader.status_report,
            poll_reported=self.scheduled_events.defer_reminder,
            report=uploader.report,
            remind=self.scheduled_events.remind,
            prepare_now=self.hooks.prepare_now,
            is_urgent=self._is_urgent,
            wait=wait,
        )
        return uploader, listener

    def _client(self, tls: ssl.SSLContext) -> BackendClient:
        url, clock = self.context.settings.fleet_url, self.context.clock
        return BackendClient(url, tls=tls, clock=clock, server_clock=self.context.server_clock)

    def start(self) -> None:
        """Start all parts."""
        # When the current step of each part began.
        self._began: dict[Part, float] = {}
        self.rehearsal.running = True
        for part in self.parts:
            thread = threading.Thread(target=self._work, args=(part,), name=part.name, daemon=True)
            self._threads[part] = thread
            thread.start()

    def stalled_parts(self) -> list[str]:
        """Return the names of parts whose thread has ended, or whose step has lasted for `STALLED_SECONDS`."""
        latest = time.monotonic() - STALLED_SECONDS
        return [
            part.name
            for part, thread in self._threads.items()
            if not thread.is_alive() or (part not in self._programs and self._began.get(part, latest) < latest)
        ]

    def let_hooks_end(self) -> None:
        """Start no further hooks, and wait for the running ones until their time limit. Reports are still sent."""
        self.finishing.set()
        for part in self._programs:
            part.wake.set()
        deadline = time.monotonic() + self.context.settings.hook_timeout_seconds + HOOK_END_SECONDS
        for part in self._programs:
            self._threads[part].join(max(deadline - time.monotonic(), 0.0))

    def stop(self) -> None:
        """Abort all calls, wait briefly for the threads, and close the spool."""
        self.stopping.set()
        for part in self.parts:
            part.interrupt()
            part.wake.set()
        deadline = time.monotonic() + JOIN_SECONDS
        for thread in self._threads.values():
            thread.join(max(deadline - time.monotonic(), 0.0))
        self.context.spool.close()

    def cut_overdue_calls(self) -> None:
        """Abort calls to the metadata service that have taken too long."""
        self.scheduled_events.cut_if_overdue()
        self.orders.cut_if_overdue()
        self.instance.cut_if_overdue()

    def _work(self, part: Part) -> None:
        while not (self.stopping.is_set() or (self.finishing.is_set() and part in self._programs)):
            # Clear the event before the work, so that a wake during the work is not lost.
            part.wake.clear()
            self._began[part] = time.monotonic()
            try:
                pause = part.step()
            except Interrupted:
                return
            except Exception:  # noqa: BLE001 - the one loop that must survive: a mistake in one part ends nothing
                self.context.limiter.warn(
                    f"bug {part.name}", f"Something unexpected happened in {part.name}.", exc_info=True
                )
                pause = SURVIVAL_PAUSE_SECONDS
            self._began.pop(part, None)
            if pause > 0 and not self.stopping.is_set():
                part.wake.wait(pause)

    def _document_read(self, document: Document) -> None:
        # The rehearsal first: a real event ends it, and its hooks are ended.
        self.rehearsal.update_listed(document.listed)
        self.hooks.update_listed(document.body)

    def _wake_hooks_and_uploader(self) -> None:
        # The rehearsal changed, or the machine's name changed and with it the events that name this machine.
        self.hooks.wake.set()
        self.context.to_upload.set()

    def _is_urgent(self) -> bool:
        # An order for a listed event must not wait until a whole fleet has reconnected.
        return self.scheduled_events.lists_any or self.rehearsal.is_active

    def _renewed(self) -> None:
        # Numbers and documents in the restored state folder may be older than what the backend has.
        self.orders.reload()
        self._resend_current()

    def _enrolled(self) -> None:
        # A backend that gives a new credential may lack reports that it acknowledged from this spool before.
        if self.context.spool.acknowledged:
            self._resend_current()
        self.listener.wake.set()

    def _resend_all(self, left: int) -> None:
        # Only the current state is sent again; the backend's timeline records which reports it lost.
        self._resend_current()
        self.instance.resend()
        self.hooks.resend()
        self.orders.resend(left)

    def _resend_current(self) -> None:
        self.scheduled_events.resend()
        for each in self.cache_listeners:
            each.resend()
