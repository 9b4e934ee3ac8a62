"""A listener with hooks, each in its thread as in the agent."""

from __future__ import annotations

import threading
from pathlib import Path

from drydock_agent.clock import Clock
from drydock_agent.connections import Interrupted
from drydock_agent.redis.hooks import CacheHooks
from drydock_agent.settings.caches import Cache
from drydock_agent.spool.store import Spool

from tests.agent.agents import context_of
from tests.agent.redis.conftest import Listening


class Hooked:
    """Listens to a cache and runs the hooks in `folder`/redis.d; `until_done` waits until none is left to run."""

    def __init__(self, spool: Spool, cache: Cache, folder: Path, *, timeout: float = 10.0) -> None:
        context = context_of(spool, Clock(), hooks_dir=folder, hook_timeout_seconds=timeout)
        self.hooks = CacheHooks(context, cache, resource_name=lambda: "web-vm1")
        self._thread = threading.Thread(target=self._work)
        self._thread.start()
        self.listening = Listening(spool, cache, hooks=self.hooks)

    def stop(self) -> None:
        self.listening.stop()
        self.hooks.interrupt()
        self.hooks.wake.set()
        self._thread.join(5)
        assert not self._thread.is_alive()

    def _work(self) -> None:
        try:
            while not self.hooks._stopping.is_set():
                self.hooks.wake.clear()
                pause = self.hooks.step()
                if pause:
                    self.hooks.wake.wait(pause)
        except Interrupted:
            return
