"""Lost enrolment answers: after a connection that breaks after the commit, the machine still enrols. A copy of its disk
does not.
"""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import pytest
from drydock_agent import wire
from drydock_agent.backend.client import AdmissionPending, BackendClient, RefusedByBackend
from drydock_agent.backend.machine_key import Key
from drydock_agent.clock import Clock
from drydock_agent.connections import NoAnswer

from fleet.models import Admission, Machine, UnusedKey
from tests.gateway.enrolment import FOURTH, THIRD, VM_IDS, Doors
from tests.processes import wait_for

pytestmark = [pytest.mark.flow, pytest.mark.real_time]


class Way:
    """Proxy to the gateway: it passes everything on, and drops a chosen number of enrolment answers."""

    def __init__(self, backend: str) -> None:
        parts = urlsplit(backend)
        self.backend = (str(parts.hostname), int(parts.port or 0))
        self.loses = 0
        self.lost = 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.socket.accept()
                threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        enrols = threading.Event()
        with client, socket.create_connection(self.backend) as backend, suppress(OSError):
            threading.Thread(target=self._ask, args=(client, backend, enrols), daemon=True).start()
            while answer := backend.recv(65536):
                # The gateway answers after its commit.
                if enrols.is_set() and self.lost < self.loses:
                    self.lost += 1
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(answer)

    @staticmethod
    def _ask(client: socket.socket, backend: socket.socket, enrols: threading.Event) -> None:
        with suppress(OSError):
            while said := client.recv(65536):
                if said.startswith(b"POST "):
                    (enrols.set if wire.ENROL_PATH.encode() in said[:100] else enrols.clear)()
                backend.sendall(said)
            backend.shutdown(socket.SHUT_WR)


@contextmanager
def losing(backend: str) -> Iterator[Way]:
    way = Way(backend)
    threading.Thread(target=way.serve, daemon=True).start()
    try:
        yield way
    finally:
        way.socket.close()


def report(client: BackendClient, secret: object) -> None:
    assert isinstance(secret, Key)
    client.report(secret, wire.ReportsRequest(spool=f"of {secret.machine_id}", sent_at=Clock().now()), [])


def is_out(client: BackendClient, secret: object) -> bool:
    try:
        report(client, secret)
    except RefusedByBackend as error:
        return error.status == 401
    return False


def test_machine_that_got_no_answer_enrols_automatically_and_its_copy_does_not(doors: Doors) -> None:
    with losing(doors.gateway.url) as way:
        enrolment, client = doors.agent(THIRD, by=way.url)
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
        shutil.copytree(doors.folder / THIRD, doors.folder / "copy")
        # Its key is renewed, and that answer is lost as well; the copy is of before.
        way.loses += 1
        with pytest.raises(NoAnswer):
            enrolment.enrol(client)
        # Redis notifies a gateway that has the old key in its cache.
        wait_for(lambda: is_out(client, enrolment.secret), seconds=10, what="the old key has ended")
        enrolment.enrol(client)
        report(client, enrolment.secret)
        copy, its_client = doors.agent(THIRD, by=way.url, folder="copy")
        assert is_out(its_client, copy.secret)
        with pytest.raises(AdmissionPending):
            copy.enrol(its_client)
        assert Admission.objects.filter(machine=machine).count() == 1
        report(client, enrolment.secret)


def test_of_a_machine_and_its_copy_that_ask_in_turns_the_first_that_calls_stays(doors: Doors) -> None:
    """Both have the secret, and Azure vouches for both: the copy runs on the machine itself."""
    with losing(doors.gateway.url) as way:
        enrolment, client = doors.agent(FOURTH, by=way.url)
        way.loses = 1
        with pytest.raises(NoAnswer):
            enrolment.enrol(client)
        shutil.copytree(doors.folder / FOURTH, doors.folder / "twin")
        twin, its_client = doors.agent(FOURTH, by=way.url, folder="twin")
        twin.enrol(its_client)
        enrolment.enrol(client)
        assert is_out(its_client, twin.secret)
        report(client, enrolment.secret)
        with pytest.raises(AdmissionPending):
            twin.enrol(its_client)
