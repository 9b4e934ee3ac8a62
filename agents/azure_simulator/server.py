"""Puts the parts together behind one port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from azure_simulator.azure import Azure
from azure_simulator.clock import Clock
from azure_simulator.control import Control
from azure_simulator.faults import Faults
from azure_simulator.fleet import Fleet, FleetError
from azure_simulator.http import Answer, Connection, Request, Response
from azure_simulator.log import Log
from azure_simulator.metadata import Metadata


class Server:
    """A running simulator. `url` has no slash at its end; `control` steers it from within the process."""

    def __init__(self, fleet: Fleet, *, clock: Clock, as_vm: str = "") -> None:
        azure = Azure(fleet)
        if as_vm and as_vm not in azure.machines:
            raise FleetError(f"the fleet has no machine {as_vm!r}; it has: {', '.join(azure.machines)}")
        faults = Faults()
        self.url = ""
        self.log = Log()
        self.control = Control(azure, faults, self.log, clock)
        self._metadata = Metadata(azure, faults, self.log, clock)
        self._as_vm = as_vm

    def answer(self, request: Request) -> Answer:
        """The one handler: by path to a machine's metadata service, or to the control calls."""
        path = request.path
        if path.startswith("/vm/"):
            vm, slash, rest = path.removeprefix("/vm/").partition("/")
            if slash and rest.lower().startswith("metadata/"):
                return self._metadata.answer(vm, "/" + rest, request)
        elif path.lower().startswith("/metadata/") and self._as_vm:
            return self._metadata.answer(self._as_vm, path, request)
        elif path.startswith("/control/"):
            return self.control.answer(request)
        elif path == "/healthz" and request.method == "GET":
            return Response(200, b'{"status":"ok"}')
        return Response(404, b'{"error":"Not found"}')

    def vm_url(self, vm: str) -> str:
        """What a machine's agent takes for `http://169.254.169.254`."""
        return f"{self.url}/vm/{vm}"


@asynccontextmanager
async def start(
    fleet: Fleet, host: str = "127.0.0.1", port: int = 0, *, clock: Clock | None = None, as_vm: str = ""
) -> AsyncIterator[Server]:
    """Serve until the block is left. Port 0 picks a free one; see the server's `url`.

    Raises FleetError where `as_vm` is no machine, OSError where the address cannot be had.
    """
    server = Server(fleet, clock=clock or Clock(), as_vm=as_vm)
    connections: set[Connection] = set()
    listening = await asyncio.get_running_loop().create_server(
        lambda: Connection(server.answer, connections), host, port, backlog=2048
    )
    bound_host, bound_port = listening.sockets[0].getsockname()[:2]
    server.url = f"http://[{bound_host}]:{bound_port}" if ":" in bound_host else f"http://{bound_host}:{bound_port}"
    try:
        yield server
    finally:
        server.control.player.stop()
        listening.close()
        # Those that hang on purpose too.
        for connection in list(connections):
            connection.abort()
        await listening.wait_closed()
