"""Server of the simulator: combines the metadata services and the control calls on one port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from azure_simulator import inbox
from azure_simulator.attestation import Authority
from azure_simulator.azure import Azure
from azure_simulator.clock import Clock
from azure_simulator.control import Control
from azure_simulator.faults import Faults
from azure_simulator.fleet import Fleet, FleetError
from azure_simulator.http import Answer, Connection, Handler, Request, Response
from azure_simulator.log import Log
from azure_simulator.metadata import Metadata


class Server:
    """A running simulator. `url` has no trailing slash; `control` makes control calls from within the process."""

    def __init__(
        self,
        fleet: Fleet,
        *,
        clock: Clock,
        as_vm: str = "",
        first_call_seconds: float = 0.0,
        most_a_second: int = 0,
    ) -> None:
        azure = Azure(fleet, first_call_seconds=first_call_seconds)
        if as_vm and as_vm not in azure.machines:
            raise FleetError(f"the fleet has no machine {as_vm!r}; it has: {', '.join(azure.machines)}")
        faults = Faults()
        self.url = ""
        # Address of the second listener, or empty.
        self.wire_server_url = ""
        self.log = Log()
        # Signs the attested documents of machines.
        self.authority = Authority()
        self.control = Control(azure, faults, self.log, clock, self.authority)
        self._metadata = Metadata(azure, faults, self.log, clock, self.authority, most_a_second=most_a_second)
        self._as_vm = as_vm
        self._inbox = inbox.Inbox()

    def answer(self, request: Request) -> Answer:
        """Handle any request: by path, for the metadata service of a machine or as a control call."""
        path = request.path
        if path.startswith("/vm/"):
            vm, slash, rest = path.removeprefix("/vm/").partition("/")
            if slash and rest.lower().startswith("metadata/"):
                return self._metadata.answer(vm, "/" + rest, request)
        elif path.lower().startswith("/metadata/") and self._as_vm:
            return self._metadata.answer(self._as_vm, path, request)
        elif path.startswith("/control/"):
            return self.control.answer(request)
        elif path == inbox.PATH:
            return self._inbox.answer(request, datetime.now(UTC))
        elif path == "/healthz" and request.method == "GET":
            return Response(200, b'{"status":"ok"}')
        return Response(404, b'{"error":"Not found"}')

    def wire_answer(self, request: Request) -> Answer:
        """Handle a request to the second address, which serves only the metadata service of one machine."""
        if request.path.lower().startswith("/metadata/"):
            return self._metadata.answer(self._as_vm, request.path, request)
        return Response(404, b'{"error":"Not found"}')

    def vm_url(self, vm: str) -> str:
        """Return the address that the agent of this machine uses instead of `http://169.254.169.254`."""
        return f"{self.url}/vm/{vm}"


@asynccontextmanager
async def start(
    fleet: Fleet,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    clock: Clock | None = None,
    as_vm: str = "",
    wire_server: tuple[str, int] | None = None,
    first_call_seconds: float = 0.0,
    most_a_second: int = 0,
) -> AsyncIterator[Server]:
    """Run a simulator, as an asynchronous context manager. Port 0 selects a free one; see `Server.url`.

    `wire_server` is a second address for the machine `as_vm`, like the endpoint that DHCP states. Raises FleetError if
    `as_vm` is not a machine, OSError if an address is not available.
    """
    if wire_server is not None and not as_vm:
        raise FleetError("the wire server serves one machine: say which with --as-vm")
    server = Server(
        fleet,
        clock=clock or Clock(),
        as_vm=as_vm,
        first_call_seconds=first_call_seconds,
        most_a_second=most_a_second,
    )
    connections: set[Connection] = set()
    listening: list[asyncio.Server] = []
    try:
        server.url = await _listen(listening, server.answer, connections, host, port)
        server.authority.url = server.url
        if wire_server is not None:
            server.wire_server_url = await _listen(listening, server.wire_answer, connections, *wire_server)
        yield server
    finally:
        server.control.player.stop()
        server.control.maintenances.stop()
        for one in listening:
            one.close()
        # Also close connections whose requests hang on purpose.
        for connection in list(connections):
            connection.abort()
        for one in listening:
            await one.wait_closed()


async def _listen(
    listening: list[asyncio.Server], handler: Handler, connections: set[Connection], host: str, port: int
) -> str:
    one = await asyncio.get_running_loop().create_server(
        lambda: Connection(handler, connections), host, port, backlog=2048
    )
    listening.append(one)
    bound_host, bound_port = one.sockets[0].getsockname()[:2]
    return f"http://[{bound_host}]:{bound_port}" if ":" in bound_host else f"http://{bound_host}:{bound_port}"
