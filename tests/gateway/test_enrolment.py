"""Enrolment at a real gateway: attested documents, lost answers, refusals, and credentials of 0.1.0."""

import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
import requests
from azure_simulator.child_process import RunningSimulator
from drydock_agent import wire
from drydock_agent.backend.client import Acknowledgement, AdmissionPending, BackendClient, RefusedByBackend
from drydock_agent.backend.machine_key import Key, authorization
from drydock_agent.clock import Clock
from drydock_agent.connections import NoAnswer
from prometheus_client import REGISTRY

from fleet.domain.actor import COMMAND_LINE
from fleet.domain.reasons import Reason, Refused
from fleet.domain.secrets import new_secret
from fleet.embedded import Urls
from fleet.gateway.enrolment import MOST, Refusals
from fleet.models import Admission, Machine, Observation, RefusedEnrolment, UnusedKey
from fleet.operations.machines import admissions
from tests.agent.agents import fleet_of
from tests.gateway.enrolment import FIFTH, FIRST, FOURTH, SECOND, SIXTH, SUBSCRIPTION, THIRD, VM_IDS, Installation
from tests.gateway_process import Agent, Gateway, now, running_gateway
from tests.processes import PYTHON, running, wait_for
from tests.receivers import Handler, serving


@pytest.mark.real_time
def test_from_the_nonce_to_the_signed_call(installation: Installation) -> None:
    enrolment, client = installation.agent(FIRST)
    enrolment.enrol(client)
    key = enrolment.secret
    assert Machine.objects.get(vm_id=VM_IDS[FIRST]).key_generation == key.generation
    assert not report(client, key).renew
    assert client.orders(key, wait=0, held=[]).takes_polls
    # The gateway tells a machine whose clock is a day ahead the time, and the machine signs again with it.
    late, its_client = installation.agent(SECOND, ahead=timedelta(days=1))
    late.enrol(its_client)
    report(its_client, late.secret)
    overheard(installation, key)
    forged(installation)
    # It enrols again by its key, which ends with that; a copy of the folder is a stranger then.
    enrolment.enrol(client)
    assert isinstance(enrolment.secret, Key) and enrolment.secret.generation > key.generation
    assert "enrolled-again" in str(Machine.objects.get(vm_id=VM_IDS[FIRST]).warnings)
    with pytest.raises(RefusedByBackend, match="401"):
        report(client, key)
    assert report(client, enrolment.secret) is not None


def overheard(installation: Installation, key: Key) -> None:
    """Neither the signature of another body nor the key itself lets a call in."""
    url = f"{installation.gateway.url}{wire.REPORTS_PATH}"
    body = json.dumps({"spool": "a spool", "sent_at": now(), "reports": []}).encode()
    for sent, status in ((body + b" ", 401), (body, 200)):
        said = authorization(key, "POST", wire.REPORTS_PATH, body, Clock().now())
        headers = {"Authorization": said, "Content-Type": "application/json"}
        assert requests.post(url, data=sent, headers=headers, timeout=20).status_code == status
    assert requests.post(url, data=body, headers={"Authorization": f"Bearer {key.key}"}, timeout=20).status_code == 401


def forged(installation: Installation) -> None:
    once = installation.document(FIRST)
    attested = {"signature": once, "intermediates": []}
    # As a machine that is known, by a valid document alone: a person has to admit it.
    assert installation.enrol(attested=attested).status_code == 202
    again = installation.enrol(attested=attested)
    assert (again.status_code, again.json()["type"]) == (403, "attestation-refused")
    assert "used before" in again.json()["detail"]
    assert installation.enrol(attested={"signature": "A" * 300_000}).status_code == 413
    for fault, sentence in {
        "altered": "signature",
        "expired": "not valid now",
        "foreign-root": "no trusted root",
        "old-nonce": "did not issue the nonce",
        "other-vm": "another machine",
        "other-subscription": "",
        "wrong-subject": "metadata service",
    }.items():
        installation.azure.call("POST", "/control/faults", {"vm": SECOND, "fault": f"attested-{fault}"})
        answer = installation.enrol(machine_id=VM_IDS[SECOND], attested={"signature": installation.document(SECOND)})
        if not sentence:
            # Azure has signed it: of a subscription that is not allowed a person decides.
            assert answer.status_code == 202
        else:
            assert answer.status_code == 403 and sentence in answer.json()["detail"], (fault, answer.text)


@pytest.mark.real_time
def test_where_azure_does_not_answer_a_person_admits_it(installation: Installation) -> None:
    stranger = "00000000-0000-4000-8000-0000000000aa"
    installation.azure.call("POST", "/control/faults", {"vm": FIRST, "fault": "attested-404"})
    enrolment, client = installation.agent(FIRST, machine_id=stranger)
    with pytest.raises(AdmissionPending):
        enrolment.enrol(client)
    row = Admission.objects.get(vm_id=stranger)
    assert (row.machine, row.attested, row.said["subscription"]) == (None, "", SUBSCRIPTION)


@dataclass
class Way:
    """Where the gateway is reached by a proxy that drops this many answers to enrolments, and has dropped so many."""

    url: str = ""
    loses: int = 0
    lost: int = 0


@contextmanager
def losing(backend: str) -> Iterator[Way]:
    way = Way()

    class Proxy(Handler):
        def take(self) -> None:
            headers = {name: self.headers[name] for name in ("Authorization", "Content-Type") if name in self.headers}
            answer = requests.request(self.command, backend + self.path, data=self.body(), headers=headers, timeout=30)
            # The gateway answers after its commit.
            if self.path == wire.ENROL_PATH and way.lost < way.loses:
                way.lost += 1
                self.close_connection = True
                self.connection.close()
            else:
                self.answer(answer.status_code, answer.content, {"Content-Type": answer.headers["Content-Type"]})

    with serving(Proxy) as way.url:
        yield way


def report(client: BackendClient, secret: object) -> Acknowledgement:
    return client.report(secret, wire.ReportsRequest(spool=f"of {secret.machine_id}", sent_at=Clock().now()), [])


def is_out(client: BackendClient, secret: object) -> bool:
    try:
        report(client, secret)
    except RefusedByBackend as error:
        return error.status == 401
    return False


@pytest.mark.real_time
def test_machine_that_got_no_answer_enrols_automatically_and_its_copy_does_not(installation: Installation) -> None:
    with losing(installation.gateway.url) as way:
        enrolment, client = installation.agent(THIRD, by=way.url)
        way.loses = 2
        for _ in range(2):
            with pytest.raises(NoAnswer):
                enrolment.enrol(client)
        machine = Machine.objects.get(vm_id=VM_IDS[THIRD])
        assert way.lost == 2 and enrolment.secret is None
        enrolment.enrol(client)
        assert isinstance(enrolment.secret, Key) and enrolment.secret.generation > machine.key_generation
        # From its first call on, the new key is no longer marked as unused.
        assert UnusedKey.objects.filter(machine=machine).exists()
        report(client, enrolment.secret)
        assert not UnusedKey.objects.filter(machine=machine).exists()
        shutil.copytree(installation.folder / THIRD, installation.folder / "copy")
        # Its key is renewed, and that answer is lost as well; the copy is of before.
        way.loses += 1
        with pytest.raises(NoAnswer):
            enrolment.enrol(client)
        # Redis notifies a gateway that has the old key in its cache.
        wait_for(lambda: is_out(client, enrolment.secret), seconds=10, what="the old key has ended")
        enrolment.enrol(client)
        report(client, enrolment.secret)
        copy, its_client = installation.agent(THIRD, by=way.url, folder="copy")
        assert is_out(its_client, copy.secret)
        with pytest.raises(AdmissionPending):
            copy.enrol(its_client)
        assert Admission.objects.filter(machine=machine).count() == 1
        report(client, enrolment.secret)


@pytest.mark.real_time
def test_of_a_machine_and_its_copy_that_ask_in_turns_the_first_that_calls_stays(installation: Installation) -> None:
    """Both have the secret, and Azure vouches for both: the copy runs on the machine itself."""
    with losing(installation.gateway.url) as way:
        enrolment, client = installation.agent(FOURTH, by=way.url)
        way.loses = 1
        with pytest.raises(NoAnswer):
            enrolment.enrol(client)
        shutil.copytree(installation.folder / FOURTH, installation.folder / "duplicate")
        duplicate, its_client = installation.agent(FOURTH, by=way.url, folder="duplicate")
        duplicate.enrol(its_client)
        enrolment.enrol(client)
        assert is_out(its_client, duplicate.secret)
        report(client, enrolment.secret)
        with pytest.raises(AdmissionPending):
            duplicate.enrol(its_client)


def request_of(number: int) -> wire.EnrolRequest:
    return wire.EnrolRequest(join_token="join_wrong", machine_id=f"vm-{number}", resource_name=f"<b>vm{number}")


@pytest.mark.django_db
def test_refusals_are_written_once_and_a_flood_costs_bounded_memory() -> None:
    refusals = Refusals()
    refused = Refused("join-token-refused", Reason("join-token-used-up", count=2))
    for _ in range(3):
        refusals.note(request_of(1), refused, "203.0.113.9")
    refusals.write()
    refusals.write()
    row = RefusedEnrolment.objects.get()
    assert (row.code, row.vm_id, row.count, row.address) == ("join-token-used-up", "vm-1", 3, "203.0.113.9")
    assert "<" not in row.name
    name, labels = "drydock_enrolments_refused_total", {"code": "join-token-refused"}
    before = REGISTRY.get_sample_value(name, labels) or 0.0
    for number in range(MOST + 300):
        refusals.note(request_of(number), refused, "203.0.113.9")
    assert len(refusals._waiting) == MOST + 1
    assert REGISTRY.get_sample_value(name, labels) == before + MOST + 300


@pytest.mark.real_time
def test_the_gateway_says_beforehand_whether_it_would_admit(installation: Installation) -> None:
    enrolment, client = installation.agent(FIFTH)
    enrolment.check(client)
    assert not Machine.objects.filter(vm_id=VM_IDS[FIFTH]).exists()
    enrolment.enrol(client)
    # A known machine with its key would be given another one.
    enrolment.check(client)
    url = f"{installation.gateway.url}{wire.ENROL_CHECK_PATH}"
    asked = {"join_token": "", "machine_id": VM_IDS[SIXTH], "ask": "its own", "keyed": True}
    answer = requests.post(url, json=asked, timeout=20)
    assert (answer.status_code, answer.json()["admission"]) == (202, "pending")
    assert not Admission.objects.filter(vm_id=VM_IDS[SIXTH]).exists()
    forged = {"signature": "bm90IGEgZG9jdW1lbnQ=", "intermediates": []}
    assert requests.post(url, json=asked | {"attested": forged}, timeout=20).status_code == 403
    assert installation.enrol(machine_id=VM_IDS[SIXTH], attested=forged).status_code == 403
    wait_for(lambda: RefusedEnrolment.objects.filter(vm_id=VM_IDS[SIXTH]).exists(), seconds=20, what="it is counted")
    assert RefusedEnrolment.objects.get(vm_id=VM_IDS[SIXTH]).count == 1


def with_a_credential(gateway: Gateway, folder: Path, vm_id: str) -> Agent:
    """A machine that enrolled long ago, and its state folder as 0.1.0 has left it."""
    old = gateway.agent(machine_id=vm_id, resource_name=f"vm-{vm_id[:8]}", availability_set="old ones")
    folder.mkdir()
    said = {"machine_id": vm_id, "machine_id_source": "imds", "secret": old.credential}
    (folder / "credential.json").write_text(json.dumps(said))
    return old


def day(away: timedelta) -> dict[str, str]:
    return {"ENROLMENT_POLICY": "token", "LEGACY_CREDENTIALS_UNTIL": (datetime.now(UTC) + away).date().isoformat()}


@pytest.mark.real_time
@pytest.mark.long
def test_until_the_day_it_gets_a_key_and_from_then_on_a_person_admits_it(
    gateway: Gateway, servers: Urls, folder: Path
) -> None:
    ids = [str(uuid4()), str(uuid4())]
    early, late = (with_a_credential(gateway, folder / f"old{place}", vm_id) for place, vm_id in enumerate(ids))
    command = [PYTHON, "-m", "drydock_agent", "run"]
    with RunningSimulator(fleet_of(web={f"old{place}": vm_id for place, vm_id in enumerate(ids)})) as azure:

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
            assert refused.status_code == 401 and "without a signature" in refused.json()["detail"]
            asked = {"join_token": gateway.join_token, "machine_id": str(uuid4())}
            assert requests.post(f"{after.url}/agent/v1/enrol", json=asked, timeout=20).status_code == 403
            with running(command, environment=environment(0, after.url), log=folder / "early.log"):
                seen = Observation.objects.filter(machine__vm_id=early.vm_id, kind="document")
                wait_for(seen.exists, seconds=60, what="a machine with a key continues", every=0.2)
            more = {"DRYDOCK_JOIN_TOKEN": gateway.join_token}
            with running(command, environment=environment(1, after.url) | more, log=folder / "late.log") as process:
                waits = Admission.objects.filter(machine__vm_id=late.vm_id)
                wait_for(waits.exists, seconds=60, what="who has none waits", every=0.2)
                wait_for(lambda: "admit this machine" in process.said(), seconds=20, what="it says why", every=0.2)
                admissions.admit(ids=[waits.get().pk], actor=COMMAND_LINE, now=datetime.now(UTC))
                wait_for(lambda: key_of(late.vm_id), seconds=90, what="it is in again", every=0.5)
                seen = Observation.objects.filter(machine__vm_id=late.vm_id, kind="document")
                wait_for(seen.exists, seconds=60, what="what it saw meanwhile arrives", every=0.2)


LIMIT = 60


@pytest.mark.real_time
def test_guesses_of_join_tokens_are_slowed_and_keep_out_no_machine_at_the_same_address(
    gateway: Gateway, servers: Urls, folder: Path
) -> None:
    gateway.agent()
    more = {"ENROLMENTS_PER_MINUTE": str(LIMIT), "TRUSTED_PROXIES": "127.0.0.1"}
    with running_gateway(servers, folder, environment=more) as limited, ThreadPoolExecutor(4) as pool:
        stopped = threading.Event()

        def call(token: str, address: str, path: str = wire.ENROL_PATH) -> requests.Response:
            body = {"join_token": token, "machine_id": str(uuid4()), "resource_name": "vm"}
            return requests.post(f"{limited.url}{path}", json=body, headers={"X-Forwarded-For": address}, timeout=20)

        def guess() -> Counter[int]:
            statuses: Counter[int] = Counter()
            while not stopped.is_set():
                path = (wire.ENROL_PATH, wire.ENROL_CHECK_PATH)[statuses.total() % 2]
                statuses[call(new_secret("join"), "203.0.113.1", path).status_code] += 1
            return statuses

        guessing = [pool.submit(guess) for _ in range(3)]
        began = time.monotonic()
        wait_for(lambda: call("join_a_b", "203.0.113.1").status_code == 429, seconds=20, what="guesses are slowed")
        # Machines behind the same proxy.
        assert [call(gateway.join_token, "203.0.113.1").status_code for _ in range(LIMIT // 4)] == [200] * (LIMIT // 4)
        # Each other address has its own limit.
        statuses = [call(new_secret("join"), f"198.51.100.{number}").status_code for number in range(20)]
        assert statuses == [403] * 20
        stopped.set()
        counted = sum((one.result(30) for one in guessing), Counter())
        assert counted[403] <= LIMIT // 4 + (time.monotonic() - began) * LIMIT / 60 + 1 < counted[429], counted
        assert limited.metric("drydock_enrolments_refused_total", code="join-token-refused") >= counted[403]
        assert limited.metric("drydock_shed_total", why="rate") >= counted[429]
        lines = [json.loads(line) for line in limited.process.said().splitlines()]
        assert {403, 429} <= {line.get("status") for line in lines if line.get("route") == wire.ENROL_PATH}
        wait_for(lambda: RefusedEnrolment.objects.filter(address="203.0.113.1").exists(), seconds=20, what="shown")
