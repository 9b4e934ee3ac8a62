"""Command line `python -m azure_simulator.entra`: runs an OpenID provider with one tenant until it is interrupted."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from contextlib import suppress

from azure_simulator.entra.provider import TENANT, Provider
from azure_simulator.http import Connection

PARENT_LOOK_SECONDS = 0.5


def main() -> int:
    parser = argparse.ArgumentParser(prog="azure_simulator.entra", description=__doc__)
    parser.add_argument("--listen", default="127.0.0.1:8170", metavar="HOST:PORT")
    parser.add_argument("--client-id", default="drydock")
    parser.add_argument("--client-secret", default="pretended-secret-of-drydock")
    parser.add_argument("--tenant", default=TENANT, metavar="UUID", help="the directory's id, as in the issuer")
    parser.add_argument("--redirect", action="append", default=[], metavar="URL", help="a registered redirect address")
    parser.add_argument("--parent", type=int, default=0, metavar="PID", help="exit when this parent process is gone")
    given = parser.parse_args()
    try:
        asyncio.run(_serve(given))
    except OSError as error:
        print(f"azure_simulator.entra: cannot listen on {given.listen}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


async def _serve(given: argparse.Namespace) -> None:
    provider = Provider(given.client_id, given.client_secret, tuple(given.redirect), tenant=given.tenant)
    host, _, port = given.listen.rpartition(":")
    connections: set[Connection] = set()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(provider.answer, connections), host.strip("[]"), int(port)
    )
    bound_host, bound_port = server.sockets[0].getsockname()[:2]
    provider.url = f"http://{bound_host}:{bound_port}"
    print(f"listening on {provider.issuer}", flush=True)
    while not stopped.is_set() and (not given.parent or os.getppid() == given.parent):
        with suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), PARENT_LOOK_SECONDS)
    server.close()
    # Also close connections whose requests hang on purpose.
    for connection in list(connections):
        connection.abort()


if __name__ == "__main__":
    sys.exit(main())
