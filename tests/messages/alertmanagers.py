"""Debian's own Alertmanager, and channels that lead to it."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import requests

from fleet.notifications.channels import alertmanager
from fleet.notifications.channels.base import ChannelInUse, Outcome
from fleet.notifications.delivery import keep_references
from fleet.notifications.models import Channel
from tests.processes import Process, answers, free_port, running, wait_for

CONFIGURATION = "route: {receiver: discard}\nreceivers: [{name: discard}]\n"


@dataclass(slots=True)
class RealAlertmanager:
    """A running Alertmanager. `restart` starts it again from its disk, after a kill -9."""

    url: str
    folder: Path
    process: Process | None = None

    def get(self, path: str, **query: Any) -> Any:
        answer = requests.get(f"{self.url}/api/v2{path}", params=query, timeout=10)
        answer.raise_for_status()
        return answer.json()

    def post(self, path: str, body: Any) -> Any:
        answer = requests.post(f"{self.url}/api/v2{path}", json=body, timeout=10)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def alerts(self) -> dict[str, Mapping[str, Any]]:
        """Those of ours that are not over, by EventId."""
        return {alert["labels"]["event_id"]: alert for alert in self.get("/alerts", filter='drydock=~".+"')}

    def silences(self, *states: str) -> list[Mapping[str, Any]]:
        return [each for each in self.get("/silences") if each["status"]["state"] in (states or ("active",))]

    def rings(self, **labels: str) -> bool:
        """Return whether Alertmanager would notify of another system's alert with these labels."""
        self.post("/alerts", [{"labels": {"alertname": "HostDown", **labels}}])
        want = [f'{name}="{value}"' for name, value in labels.items()]

        def state() -> str | None:
            found = self.get("/alerts", filter=want)
            return found[0]["status"]["state"] if found and found[0]["status"]["state"] != "unprocessed" else None

        # Alertmanager judges an alert when it receives it, and sees a later silence only at its next check.
        return wait_for(state, seconds=15, what="the alert is judged") == "active"


@contextmanager
def real_alertmanager(folder: Path) -> Iterator[RealAlertmanager]:
    program = shutil.which("prometheus-alertmanager", path="/usr/bin:/usr/local/bin")
    if program is None:
        pytest.skip("no Alertmanager here (Debian: prometheus-alertmanager)")
    (folder / "alertmanager.yml").write_text(CONFIGURATION)
    address = f"127.0.0.1:{free_port()}"
    found = RealAlertmanager(f"http://{address}", folder)
    with run_it(found, program, address):
        yield found


@contextmanager
def run_it(found: RealAlertmanager, program: str, address: str) -> Iterator[None]:
    command = [
        program,
        f"--config.file={found.folder / 'alertmanager.yml'}",
        f"--storage.path={found.folder / 'data'}",
        f"--web.listen-address={address}",
        # It looks for others of its kind by default.
        "--cluster.listen-address=",
    ]
    with running(command, environment={}, log=found.folder / "log") as process:
        wait_for(lambda: answers(f"{found.url}/-/ready"), seconds=20, what="Alertmanager is ready")
        found.process = process
        yield


def restarted(found: RealAlertmanager) -> Any:
    """Kill -9, and another one at the same address with the same disk."""
    assert found.process is not None
    program = found.process.child.args[-5]  # type: ignore[index]
    found.process.kill()
    return run_it(found, str(program), found.url.removeprefix("http://"))


@dataclass(slots=True)
class Mirror:
    """A channel to an Alertmanager, and rounds of it as the sender makes them."""

    row: Channel
    values: dict[str, Any]

    def in_use(self) -> ChannelInUse:
        return ChannelInUse(id=self.row.pk, kind="alertmanager", name=self.row.name, values=self.values)

    def round(self, *, now: datetime | None = None, keep: bool = True) -> Outcome:
        """One round; unless `keep` is False, as if we died before we wrote down what came of it."""
        outcome = alertmanager.mirror(self.in_use(), now=now or datetime.now(UTC))
        if keep:
            keep_references(self.row.pk, outcome.references, now=datetime.now(UTC))
        return outcome


def channel_to(url: str, *silences: str, **values: Any) -> Mirror:
    now = datetime.now(UTC)
    row = Channel.objects.create(kind="alertmanager", name="alerts", created_at=now, changed_at=now)
    return Mirror(row, {"url": url, "silences": list(silences), **values})
