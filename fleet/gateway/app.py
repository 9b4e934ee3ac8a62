"""The gateway as an ASGI application. It serves agents, streams and probes, and passes other requests to Django."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import structlog
from django.conf import settings
from drydock_agent import wire
from structlog.contextvars import bind_contextvars, unbind_contextvars

from fleet.domain.trace import Call
from fleet.gateway import http, limits
from fleet.gateway.access import Access, CountingSend, call_of
from fleet.gateway.agents import Agents
from fleet.gateway.dispatcher import SEAL_PAUSE_SECONDS, Ticker, UndoClock, run_quick_jobs, run_slow_jobs
from fleet.gateway.feed import Feed
from fleet.gateway.metrics import Figures, Measure
from fleet.gateway.open_calls import OpenCalls
from fleet.gateway.probes import Probes
from fleet.gateway.silence import Silence
from fleet.gateway.streams import Streams
from fleet.gateway.threads import Loop, Threads, collect_rarely
from fleet.gateway.waiters import WakeUps
from fleet.operations import clock
from fleet.operations.wake_up import prepare_hints

log = structlog.get_logger(__name__)

Handler = Callable[[http.Request, http.Send], Awaitable[None]]

# How long the threads may take to end after the request.
STOP_SECONDS = 3.0
PARENT_SECONDS = 1.0
# Rounds after which an orphan process ends at once.
ORPHAN_ROUNDS = 5
# How often overdue calls are searched for.
OVERDUE_SECONDS = 1.0
# How often each process reads the database's clock.
CLOCK_SECONDS = 1.0
# The connection to Celery's broker is made this long after the start, which it would otherwise slow down.
BROKER_SECONDS = 1.0


@dataclass(eq=False, kw_only=True)
class Gateway:
    """The ASGI application of the backend.

    `pages` is Django, which gets all requests that the gateway does not serve; both share `open_calls`. `measure`
    returns the gauges of the fleet for `/metrics`. `jobs` of annexes run in their own threads: a name, a function, and
    the seconds between two runs. `opens` is called with the gateway's maximum number of database connections before the
    first is opened.
    """

    pages: http.Application
    measure: Measure
    jobs: Sequence[tuple[str, Callable[[], None], float]]
    opens: Callable[[int], None]
    open_calls: OpenCalls
    access: Access = field(default_factory=Access)
    routes: dict[str, dict[str, Handler]] = field(default_factory=dict)
    loops: list[Loop] = field(default_factory=list)

    async def __call__(self, scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["type"] != "http":
            await self.pages(scope, receive, send)
            return
        call, method, began = call_of(scope), scope["method"], time.monotonic()
        sent = CountingSend(send, call.trace.request_id)
        # Tens of thousands of long polls are open here: structlog's own `with` needs three times the memory for each.
        bind_contextvars(**call.trace.words)
        try:
            await self._answer(scope, receive, sent, call)
        except Exception:
            # The server answers with this status when the application raises, and logs the reason.
            sent.status = sent.status or 500
            raise
        finally:
            self.access.note(call, method, sent, time.monotonic() - began)
            unbind_contextvars("request_id", "trace_id")

    def _answer(self, scope: http.Scope, receive: http.Receive, send: http.Send, call: Call) -> Awaitable[None]:
        # The gateway, Django and a proxy in front could each believe another one.
        if sum(name == b"authorization" for name, _ in scope["headers"]) > 1:
            return http.answer_problem(
                send, http.Problem(400, "unreadable", "Send one header `Authorization`, not several.")
            )
        methods = self.routes.get(scope["path"])
        if methods is not None:
            return self._answer_own(methods, http.Request(scope, receive), send, call)
        # Only paths of the protocol: the agent's package, which machines install, has a similar path and is a page.
        if scope["path"].startswith("/agent/v"):
            return http.answer_problem(send, http.Problem(404, "not-found", "There is no such call: see the protocol."))
        return self.pages(scope, receive, send)

    async def _answer_own(
        self, methods: dict[str, Handler], request: http.Request, send: http.Send, call: Call
    ) -> None:
        call.route = request.scope["path"]
        handler = methods.get(request.scope["method"])
        try:
            if handler is None:
                sentence = f"This call takes {' or '.join(methods)} only."
                raise http.Problem(405, "method-not-allowed", sentence, allow=methods)
            await handler(request, send)
        except http.Problem as problem:
            await http.answer_problem(send, problem)
        except http.Disconnected:
            return

    async def _live(self, receive: http.Receive, send: http.Send) -> None:
        await receive()
        collect_rarely()
        self._start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._stop()
        await send({"type": "lifespan.shutdown.complete"})

    def _start(self) -> None:
        events = asyncio.get_running_loop()
        self.threads = Threads(threads=limits.THREADS, queue=limits.THREAD_QUEUE)
        self.agents = Agents(threads=self.threads, events=events)
        self.feed = Feed(events, queue=limits.STREAM_QUEUE)
        self.streams = Streams(self.feed, self.threads, self.open_calls)
        self.ticker = Ticker(self.agents.dispatcher, seconds=settings.FALLBACK_TICK_SECONDS)
        self.undo = UndoClock(self.agents.dispatcher.ask_all)
        self.silence = Silence()
        self.wake_ups = WakeUps(self._on_wake_up)
        self.parent = Loop("parent", _parent_watch(), pause=PARENT_SECONDS)
        self.figures = Figures(self.measure, events)
        # In the order in which they stop: what brings work first, what writes last.
        self.loops = [
            *(Loop(name, step, pause=seconds) for name, step, seconds in self.jobs),
            self.figures.loop,
            Loop("clock", clock.measure, pause=CLOCK_SECONDS),
            self.wake_ups.loop,
            self.ticker.loop,
            self.undo.loop,
            self.silence.loop,
            Loop("seal", run_slow_jobs, pause=SEAL_PAUSE_SECONDS),
            Loop("compare", run_quick_jobs, pause=SEAL_PAUSE_SECONDS),
            self.agents.dispatcher.loop,
            self.agents.revocations,
            self.open_calls.loop,
            self.feed.loop,
            self.agents.committer.loop,
            self.agents.contacts.loop,
            self.agents.entrance.refusals.loop,
            self.parent,
        ]
        self.probes = Probes(
            agents=self.agents,
            streams=self.streams,
            wake_ups=self.wake_ups,
            loops=self.loops,
            threads=self.threads,
            figures=self.figures,
        )
        self.routes = {
            path: {method: handler_of(self) for method, handler_of in methods.items()}
            for path, methods in TABLE.items()
        }
        # One each of these threads at most.
        self.opens(limits.THREADS + len(self.loops))
        for loop in self.loops:
            loop.start()
        events.call_later(BROKER_SECONDS, prepare_hints)
        self._answer_overdue(events)
        self._watch_signals(events)

    def _answer_overdue(self, events: asyncio.AbstractEventLoop) -> None:
        self.agents.committer.send_away_late()
        events.call_later(OVERDUE_SECONDS, self._answer_overdue, events)

    def _watch_signals(self, events: asyncio.AbstractEventLoop) -> None:
        """End long polls and streams when the stop signal arrives, because the server waits for them before it stops
        the application.

        The server's own signal handling still runs: it uses the event loop's wake-up, which is not changed here.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: events.call_soon_threadsafe(self.wind_down))
            signal.siginterrupt(number, False)

    def wind_down(self) -> None:
        """Answer long polls and end streams; later long polls are answered at once."""
        self.agents.stop()
        self.streams.stop()

    async def _stop(self) -> None:
        self.wind_down()
        # The loop that watches the parent process runs until then.
        ending = [loop for loop in self.loops if loop is not self.parent]
        for loop in ending:
            loop.stop()
        deadline = time.monotonic() + STOP_SECONDS
        for loop in ending:
            await asyncio.to_thread(loop.join, max(deadline - time.monotonic(), 0.0))
        # Write the contacts collected and the orders received since the last run.
        with suppress(http.Problem):
            await self.threads.run(self.agents.contacts.flush)
        await asyncio.to_thread(self.threads.stop)

    def _on_wake_up(self, message: dict[str, Any]) -> None:
        """Process a wake-up message of another process, in the listening thread. Messages contain only ids, so an
        unexpected one does no harm.
        """
        orders, revoked = message.get("orders"), message.get("revoked")
        if isinstance(orders, list):
            self.agents.dispatcher.wake(
                [item for item in orders if isinstance(item, int)], str(message.get("via", "")) or "wake-up"
            )
        if isinstance(revoked, list):
            self.agents.cut_off({item for item in revoked if isinstance(item, int)})
        if message.get("entries"):
            self.feed.wake()


# The paths that the gateway itself answers, with their handlers.
TABLE: dict[str, dict[str, Callable[[Gateway], Handler]]] = {
    wire.CHALLENGES_PATH: {"POST": lambda gateway: gateway.agents.entrance.challenges},
    wire.ENROL_PATH: {"POST": lambda gateway: gateway.agents.entrance.enrol},
    wire.ENROL_CHECK_PATH: {"POST": lambda gateway: gateway.agents.entrance.check},
    wire.REPORTS_PATH: {"POST": lambda gateway: gateway.agents.reports},
    wire.ORDERS_PATH: {"GET": lambda gateway: gateway.agents.orders},
    "/api/v1/stream": {"GET": lambda gateway: gateway.streams.serve},
    "/stream": {"GET": lambda gateway: gateway.streams.serve},
    "/healthz": dict.fromkeys(("GET", "HEAD"), lambda gateway: gateway.probes.healthz),
    "/readyz": dict.fromkeys(("GET", "HEAD"), lambda gateway: gateway.probes.readyz),
    "/metrics": {"GET": lambda gateway: gateway.probes.metrics},
}


def _parent_watch() -> Callable[[], None]:
    """Return a function that ends this process if the server that started it has died, for example after `kill -9`.

    That server would normally kill a worker that does not end in time; after its death the worker must end itself.
    """
    parent = os.getppid()
    rounds = 0

    def watch() -> None:
        nonlocal rounds
        if os.getppid() == parent:
            return
        rounds += 1
        if rounds == 1:
            log.warning("gateway.parent_gone")
            os.kill(os.getpid(), signal.SIGTERM)
        elif rounds > ORPHAN_ROUNDS:
            os._exit(1)

    return watch
