"""The processes of the demo and the settings with which each is started."""

import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
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


def web(port: int) -> Recipe:
    quiet = ["--log-level", "warning"]
    command = supervisor.web(host="127.0.0.1", port=port, stop_seconds=STOP_SECONDS, more=quiet)
    # Granian's main process ends its worker on SIGTERM; SIGKILL would leave the worker with the port.
    return Recipe(name="web", command=command, death_signal=signal.SIGTERM)


def worker() -> Recipe:
    return Recipe(name="worker", command=[*CELERY, *supervisor.worker(more=["--loglevel", "INFO"])])


def beat() -> Recipe:
    return Recipe(name="beat", command=[*CELERY, *supervisor.BEAT, "--loglevel", "WARNING"])


def simulator(*, port: int, fleet_file: Path, sockets: Mapping[str, Path]) -> Recipe:
    """Return the recipe of the simulated Azure. `sockets` are those of the servers of its caches, by host name."""
    command = [PYTHON, "-m", "azure_simulator", "--listen", f"127.0.0.1:{port}", "--fleet", str(fleet_file)]
    for host, path in sockets.items():
        command += ["--redis-url", f"{host}=unix://{quote(str(path))}?db=0"]
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


def agents(
    fleet: Mapping[str, Any],
    *,
    folder: Path,
    fleet_url: str,
    simulator_url: str,
    join_token: str,
    sockets: Mapping[str, Path],
) -> list[Recipe]:
    """Return the recipe of the agent of each machine in the fleet file, in the order of the file."""
    heard = [
        f"redis://{each['host']}?tier={each['tier']}&connect=unix:{quote(str(sockets[each['host']]))}"
        for each in fleet["caches"]
        if each["host"] in sockets
    ]
    return [
        Recipe(
            name=f"agent-{machine['id']}",
            command=[PYTHON, "-m", "drydock_agent", "run"],
            environment={
                "DRYDOCK_FLEET_URL": fleet_url,
                "DRYDOCK_JOIN_TOKEN": join_token,
                "DRYDOCK_STATE_DIR": str(folder / "agents" / machine["id"]),
                "DRYDOCK_IMDS_URL": f"{simulator_url}/vm/{machine['id']}",
                # Instance metadata names scale sets only; for other sets the owner states the members.
                "DRYDOCK_AVAILABILITY_SET": "" if its["kind"] == "scale_set" else f"{its['kind']}:{its['name']}",
                "DRYDOCK_REDIS_CACHES": " ".join(heard) if its["name"] in SETS_WITH_CACHES else "",
            },
        )
        for its in fleet["sets"]
        for machine in its["machines"]
    ]
