"""The processes of the demo and the settings with which each is started."""

import json
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from fleet.management import supervisor
from fleet.management.supervisor import Recipe

PYTHON = sys.executable
STOP_SECONDS = 2
CELERY = (PYTHON, "-m", "celery", "--app", "fleet")
# The demo's machines fall silent sooner than real ones should, so that a visitor sees it happen.
DEMO_LATE_SECONDS = "150"
# The demo's simulated directory and the program in it; its published secret gives access to nothing else.
TENANT = "6babcaad-604b-40ac-a9d7-9fd97c0b779f"
CLIENT_ID, CLIENT_SECRET = "drydock", "the-demo-has-no-secrets"
# Whose machines use the caches of the fleet file.
SETS_WITH_CACHES = ("web", "legacy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine of the demo's fleet file; `stated_set` is empty if instance metadata names the set."""

    id: str
    stated_set: str
    uses_caches: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """One cache of the demo's fleet file; `socket` is the socket path of the server that simulates it."""

    host: str
    tier: str
    socket: Path


def machines(fleet_file: Path) -> list[Machine]:
    """Return all machines of the fleet file, in the order of the file."""
    found: list[Machine] = []
    for one_set in json.loads(fleet_file.read_text())["sets"]:
        # Instance metadata names scale sets only; for other sets the owner states the members.
        stated = "" if one_set["kind"] == "scale_set" else f"{one_set['kind']}:{one_set['name']}"
        uses_caches = one_set["name"] in SETS_WITH_CACHES
        found.extend(Machine(id=each["id"], stated_set=stated, uses_caches=uses_caches) for each in one_set["machines"])
    return found


def caches(fleet_file: Path, sockets: Mapping[str, Path]) -> list[Cache]:
    """Return all caches of the fleet file; `sockets` maps host names to socket paths."""
    found = json.loads(fleet_file.read_text())["caches"]
    return [Cache(host=each["host"], tier=each["tier"], socket=sockets[each["host"]]) for each in found]


def web(port: int) -> Recipe:
    quiet = ["--log-level", "warning"]
    command = supervisor.web(host="127.0.0.1", port=port, stop_seconds=STOP_SECONDS, more=quiet)
    # Granian's main process ends its worker on SIGTERM; SIGKILL would leave the worker with the port.
    return Recipe(name="web", command=command, death_signal=signal.SIGTERM)


def worker() -> Recipe:
    return Recipe(name="worker", command=[*CELERY, *supervisor.worker(more=["--loglevel", "INFO"])])


def beat() -> Recipe:
    return Recipe(name="beat", command=[*CELERY, *supervisor.beat(more=["--loglevel", "WARNING"])])


def simulator(*, port: int, fleet_file: Path, caches: Sequence[Cache]) -> Recipe:
    command = [PYTHON, "-m", "azure_simulator", "--listen", f"127.0.0.1:{port}", "--fleet", str(fleet_file)]
    for cache in caches:
        command += ["--redis-url", f"{cache.host}=unix://{quote(str(cache.socket))}?db=0"]
    return Recipe(name="simulator", command=command)


def directory(*, port: int, back: str) -> Recipe:
    """Return the recipe of the simulated Entra ID for sign-in. `back` is the URL to which it redirects users."""
    command = [PYTHON, "-m", "azure_simulator.entra", "--listen", f"127.0.0.1:{port}", "--tenant", TENANT]
    command += ["--client-id", CLIENT_ID, "--client-secret", CLIENT_SECRET, "--redirect", back]
    return Recipe(name="directory", command=command)


def sign_on_settings(port: int) -> dict[str, str]:
    """Return the settings that enable single sign-on with the simulated Entra ID on this port."""
    return {
        "OIDC_ISSUER": f"http://127.0.0.1:{port}/{TENANT}/v2.0",
        "OIDC_CLIENT_ID": CLIENT_ID,
        "OIDC_CLIENT_SECRET": CLIENT_SECRET,
        "OIDC_DISPLAY_NAME": "the demo's Entra ID",
    }


def agent(
    machine: Machine, *, folder: Path, fleet_url: str, simulator_url: str, join_token: str, caches: Sequence[Cache]
) -> Recipe:
    heard = [f"redis://{each.host}?tier={each.tier}&connect=unix:{quote(str(each.socket))}" for each in caches]
    return Recipe(
        name=f"agent-{machine.id}",
        command=[PYTHON, "-m", "drydock_agent", "run"],
        environment={
            "DRYDOCK_FLEET_URL": fleet_url,
            "DRYDOCK_JOIN_TOKEN": join_token,
            "DRYDOCK_STATE_DIR": str(folder / "agents" / machine.id),
            "DRYDOCK_IMDS_URL": f"{simulator_url}/vm/{machine.id}",
            "DRYDOCK_AVAILABILITY_SET": machine.stated_set,
            "DRYDOCK_REDIS_CACHES": " ".join(heard) if machine.uses_caches else "",
        },
    )
