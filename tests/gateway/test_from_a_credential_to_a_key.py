"""Agents with a credential of 0.1.0: they get a key automatically until the configured day. An agent that was offline
across it waits for an administrator, and none of its observations are lost.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
import requests
from azure_simulator.child_process import RunningSimulator

from fleet.domain.actor import COMMAND_LINE
from fleet.embedded import Urls
from fleet.models import Admission, Machine, Observation
from fleet.operations.machines import admissions
from tests.agent.agents import FLEET
from tests.gateway_process import Agent, Gateway, running_gateway
from tests.processes import PYTHON, running, wait_for

pytestmark = [pytest.mark.flow, pytest.mark.real_time, pytest.mark.long]


def with_a_credential(gateway: Gateway, folder: Path, vm_id: str) -> Agent:
    """A machine that enrolled long ago, and its state folder as 0.1.0 has left it."""
    old = gateway.agent(machine_id=vm_id, resource_name=f"vm-{vm_id[:8]}", availability_set="old ones")
    folder.mkdir()
    said = {"machine_id": vm_id, "machine_id_source": "imds", "secret": old.credential}
    (folder / "credential.json").write_text(json.dumps(said))
    return old


def day(away: timedelta) -> dict[str, str]:
    return {"ENROLMENT_POLICY": "token", "LEGACY_CREDENTIALS_UNTIL": (datetime.now(UTC) + away).date().isoformat()}


def test_until_the_day_it_gets_a_key_and_from_then_on_a_person_admits_it(
    gateway: Gateway, servers: Urls, folder: Path
) -> None:
    ids = [str(uuid4()), str(uuid4())]
    machines = [
        {"id": f"old{place}", "name": f"old{place}", "vm_id": vm_id, "fault_domain": 0, "update_domain": 0}
        for place, vm_id in enumerate(ids)
    ]
    early, late = (with_a_credential(gateway, folder / f"old{place}", vm_id) for place, vm_id in enumerate(ids))
    command = [PYTHON, "-m", "drydock_agent", "run"]
    with RunningSimulator({**FLEET, "sets": [{**FLEET["sets"][0], "machines": machines}]}) as azure:

        def environment(place: int, url: str) -> dict[str, str]:
            return {
                "DRYDOCK_FLEET_URL": url,
                "DRYDOCK_STATE_DIR": str(folder / f"old{place}"),
                "DRYDOCK_IMDS_URL": azure.vm_url(f"old{place}"),
            }

        def key_of(vm_id: str) -> int:
            return Machine.objects.get(vm_id=vm_id).key_generation

        with (
            running_gateway(servers, folder, environment=day(timedelta(days=2))) as before,
            running(command, environment=environment(0, before.url), log=folder / "early.log"),
        ):
            wait_for(lambda: key_of(early.vm_id), seconds=60, what="it has a key", every=0.2)
            kept = folder / "old0" / "credential.json"
            wait_for(lambda: json.loads(kept.read_text()).get("key"), seconds=20, what="it is kept", every=0.2)
            assert json.loads(kept.read_text())["secret"] == ""
            old = Agent(before.url, early.credential, early.vm_id)
            wait_for(lambda: old.post().status_code == 401, seconds=20, what="the credential has ended", every=0.2)
        with running_gateway(servers, folder, environment=day(-timedelta(days=2))) as after:
            # The refusal states why, also to a caller that sends only a credential.
            refused = Agent(after.url, late.credential, late.vm_id).post()
            assert refused.status_code == 401 and "credential alone" in refused.json()["detail"]
            asked = {"join_token": gateway.join_token, "machine_id": str(uuid4())}
            assert requests.post(f"{after.url}/agent/v1/enrol", json=asked, timeout=20).status_code == 403
            with running(command, environment=environment(0, after.url), log=folder / "early.log"):
                seen = Observation.objects.filter(machine__vm_id=early.vm_id, kind="document")
                wait_for(seen.exists, seconds=60, what="who has a key goes on", every=0.2)
            more = {"DRYDOCK_JOIN_TOKEN": gateway.join_token}
            with running(command, environment=environment(1, after.url) | more, log=folder / "late.log") as process:
                waits = Admission.objects.filter(machine__vm_id=late.vm_id)
                wait_for(waits.exists, seconds=60, what="who has none waits", every=0.2)
                wait_for(lambda: "admit this machine" in process.said(), seconds=20, what="it says why", every=0.2)
                admissions.admit(ids=[waits.get().pk], actor=COMMAND_LINE, now=datetime.now(UTC))
                wait_for(lambda: key_of(late.vm_id), seconds=90, what="it is in again", every=0.5)
                seen = Observation.objects.filter(machine__vm_id=late.vm_id, kind="document")
                wait_for(seen.exists, seconds=60, what="what it saw meanwhile arrives", every=0.2)
