"""Command line of the simulator: `python -m azure_simulator` serves a fleet until it is interrupted."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import os
import signal
import sys
from pathlib import Path

from azure_simulator import fleet, server

DEMO_FLEET = Path(__file__).with_name("demo_fleet.json")
_PARENT_LOOK_SECONDS = 0.5


def main() -> int:
    arguments = _arguments()
    try:
        loaded = _with_redis(fleet.load(arguments.fleet), arguments.redis_url)
        asyncio.run(_serve(loaded, arguments))
    except fleet.FleetError as error:
        print(f"azure_simulator: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"azure_simulator: cannot listen on {arguments.listen}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


async def _serve(loaded: fleet.Fleet, arguments: argparse.Namespace) -> None:
    host, port = _address(arguments.listen)
    stopped = asyncio.Event()
    if os.name == "posix":
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with server.start(
        loaded,
        host,
        port,
        as_vm=arguments.as_vm,
        wire_server=_address(arguments.wire_server, "--wire-server") if arguments.wire_server else None,
        first_call_seconds=arguments.first_call,
        most_a_second=arguments.most_a_second,
    ) as running:
        print(f"listening on {running.url}", flush=True)
        if running.wire_server_url:
            print(f"wire server on {running.wire_server_url}", flush=True)
        if arguments.story:
            running.control.player.begin({"story": "all", "speed": arguments.story})
        if arguments.parent:
            await _parent_gone(arguments.parent, stopped)
        else:
            await stopped.wait()


async def _parent_gone(parent: int, stopped: asyncio.Event) -> None:
    """Wait for the event `stopped`, or until the process `parent` no longer exists."""
    while not stopped.is_set() and os.getppid() == parent:
        try:
            await asyncio.wait_for(stopped.wait(), _PARENT_LOOK_SECONDS)
        except TimeoutError:
            continue


def _with_redis(loaded: fleet.Fleet, given: list[str]) -> fleet.Fleet:
    """Return the fleet with servers for the caches. `given` has `HOST=URL` for one cache, or `URL` for all caches
    without a server.
    """
    # A host name has no colon, and each URL one before whatever `=` may follow.
    own = {host.lower(): url for host, equals, url in (each.partition("=") for each in given) if ":" not in host}
    for host in own:
        loaded.find_cache(host)
    common = next((each for each in given if ":" in each.partition("=")[0]), "")
    caches = tuple(
        cache if cache.server else dataclasses.replace(cache, server=own.get(cache.host.lower(), common))
        for cache in loaded.caches
    )
    return dataclasses.replace(loaded, caches=caches)


def _address(listen: str, option: str = "--listen") -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise fleet.FleetError(f"{option} takes HOST:PORT, not {listen!r}")
    return host.strip("[]"), int(port)


def _speed(value: str) -> float:
    speed = float(value)
    if not 0 < speed <= 1000:
        raise argparse.ArgumentTypeError("must be above 0 and at most 1000")
    return speed


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m azure_simulator", description="A pretend Azure for Drydock.")
    parser.add_argument("--listen", default="127.0.0.1:8169", metavar="HOST:PORT", help="port 0 picks a free one")
    parser.add_argument("--fleet", type=Path, default=DEMO_FLEET, metavar="FILE", help="default: the demo's fleet")
    parser.add_argument("--as-vm", default="", metavar="ID", help="serve this machine at the root as well")
    parser.add_argument("--wire-server", default="", metavar="HOST:PORT", help="serve that machine here as well")
    parser.add_argument(
        "--first-call", type=float, default=0.0, metavar="SECONDS", help="how long the first call takes"
    )
    parser.add_argument("--most-a-second", type=int, default=0, metavar="N", help="requests of a machine; 5 at Azure")
    parser.add_argument("--story", type=_speed, default=0.0, metavar="SPEED", help="play by itself; 1 is real time")
    parser.add_argument(
        "--redis-url",
        action="append",
        default=[],
        metavar="[HOST=]URL",
        help="server of the caches that name none, or of one of them",
    )
    parser.add_argument("--parent", type=int, default=0, metavar="PID", help="end when this parent process is gone")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
