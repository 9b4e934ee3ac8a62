"""The real gateway for tests: Granian as a child on a free port, and the few calls that agents make."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import requests

from fleet.embedded import Urls
from tests import accounts
from tests.processes import PYTHON, ROOT, Process, answers, free_port, running, wait_for

APPLICATION = "fleet.asgi:application"


@dataclass(slots=True)
class Gateway:
    """A running gateway: where it answers, its process, and the servers behind it."""

    url: str
    process: Process
    urls: Urls
    join_token: str = ""

    @property
    def worker(self) -> int:
        """The process id of Granian's one worker."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[-1])

    def agent(self, **identity: Any) -> Agent:
        """A newly enrolled machine."""
        if not self.join_token:
            # The test process shares the gateway's database.
            _, self.join_token = accounts.join_token(comment="", expires_in=timedelta(hours=1), now=datetime.now(UTC))
        return Agent.enrolled(self.url, self.join_token, **identity)

    def metric(self, name: str, **labels: str) -> float:
        """One number of `/metrics`; 0.0 while it is not there."""
        wanted = name + ("{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}" if labels else "")
        for line in requests.get(f"{self.url}/metrics", timeout=10).text.splitlines():
            if line.startswith(wanted + " "):
                return float(line.rpartition(" ")[2])
        return 0.0


@dataclass(slots=True)
class Agent:
    """What a machine knows when it talks to the gateway, with `requests`. It numbers its reports by itself."""

    url: str
    credential: str
    vm_id: str
    spool: str = field(default_factory=lambda: str(uuid4()))
    seq: int = 0

    @classmethod
    def enrolled(cls, url: str, join_token: str, **identity: Any) -> Agent:
        vm_id = identity.pop("machine_id", str(uuid4()))
        body = {"join_token": join_token, "machine_id": vm_id, "resource_name": f"vm-{vm_id[:8]}", **identity}
        said = requests.post(f"{url}/agent/v1/enrol", json=body, timeout=10)
        assert said.status_code == 200, said.text
        return cls(url, said.json()["credential"], vm_id)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.credential}"}

    def report(self, kind: str, data: Any, **changes: Any) -> dict[str, Any]:
        """Return the next report, in the form that a batch contains."""
        self.seq += 1
        return {"seq": self.seq, "kind": kind, "at": now(), "data": data, **changes}

    def document(self, *, incarnation: int = 1, events: tuple[Any, ...] = (), **changes: Any) -> dict[str, Any]:
        """The next report: a document of the metadata service."""
        return self.report("document", document(incarnation, events), **changes)

    def post(self, *reports: Any, timeout: float = 20, **changes: Any) -> requests.Response:
        """One batch."""
        body = {"spool": self.spool, "sent_at": now(), "last_poll_at": now(), "agent_version": "test"}
        body = {**body, "held": [], "reports": list(reports), **changes}
        return requests.post(f"{self.url}/agent/v1/reports", json=body, headers=self.headers, timeout=timeout)

    def orders(self, *, wait: float = 0, held: str = "", timeout: float = 60, **more: str) -> requests.Response:
        """One call for orders."""
        query = {"wait": f"{wait:g}", "sent_at": now(), "last_poll_at": now(), "held": held, **more}
        return requests.get(f"{self.url}/agent/v1/orders", params=query, headers=self.headers, timeout=timeout)


def now() -> str:
    return datetime.now(UTC).isoformat()


def document(incarnation: int, events: tuple[Any, ...] = ()) -> dict[str, Any]:
    """The data of a document report."""
    body = json.dumps({"DocumentIncarnation": incarnation, "Events": list(events)})
    return {"body": body, "hash": hashlib.sha256(body.encode()).hexdigest(), "incarnation": incarnation}


@contextmanager
def running_gateway(
    urls: Urls,
    folder: Path,
    *,
    application: str = APPLICATION,
    environment: Mapping[str, str] | None = None,
    host: str = "127.0.0.1",
) -> Iterator[Gateway]:
    """A gateway on a free port that answers, for the length of a block; `urls` name a migrated database, `host` is what
    people call this machine.
    """
    port = free_port()
    command = [PYTHON, "-m", "granian", "--interface", "asgi", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--no-ws", "--backpressure", "5000", "--workers-kill-timeout", "8"]
    command += ["--log-config", str(ROOT / "fleet" / "granian.json"), application]
    own = {**urls.environment, "BASE_URL": f"http://{host}:{port}", "LOG_FORMAT": "json", **(environment or {})}
    with running(command, environment=own, log=folder / f"gateway-{port}.log") as process:
        url = f"http://127.0.0.1:{port}"
        wait_for(lambda: answers(f"{url}/healthz") or ended(process), seconds=90, what="the gateway answers")
        yield Gateway(url=url, process=process, urls=urls)


def ended(process: Process) -> bool:
    """Raises AssertionError with what the process said, once it has ended."""
    assert process.child.poll() is None, process.said()
    return False
