"""The gateway's own routes, called by everybody who could."""

import json
from datetime import UTC, datetime
from uuid import uuid4

import requests
from django.conf import settings
from django.contrib.auth.models import User
from drydock_agent import wire
from drydock_agent.backend.machine_key import Key, authorization

from fleet.domain.actor import COMMAND_LINE
from fleet.gateway.app import TABLE
from fleet.models import Machine
from fleet.operations.machines import decommission, enrolment
from tests import accounts, factories
from tests.access.callers import Caller, by_session, by_token
from tests.gateway_process import Gateway, now
from tests.rows import PersonFactory

COLUMNS = {
    "anonymous": "not signed in",
    "groupless": "a user in no group",
    "blocked": "the session of a user who was deactivated later",
    "viewer": "a viewer by session",
    "admin": "an admin by session",
    "read-token": "an admin's token of the scope `read`",
    "approve-token": "an admin's token of the scope `approve`",
    "strange-token": "an admin's token of all scopes that is valid only from another network",
    "ended-token": "an admin's token of all scopes that was deleted",
    "calendar": "the secret of a calendar's address, instead of a token",
    "join-token": "a join token instead of a token",
    "machine": "a machine by its credential",
    "key": "a machine by a call that it signed",
    "revoked-machine": "a revoked machine by its credential",
    "revoked-key": "a revoked machine by a call that it signed",
}


def machine(*, keyed: bool, join_token: str, revoked: bool = False) -> tuple[str, Key | str]:
    """A new machine by its vmId, and what it proves itself by."""
    at = datetime.now(UTC)
    request = wire.EnrolRequest(join_token=join_token, machine_id=str(uuid4()), ask="own", keyed=keyed)
    found = enrolment.enrol(request=request, now=at)
    if revoked:
        row = Machine.objects.get(vm_id=found.machine_id)
        decommission.revoke(machine_id=row.pk, actor=COMMAND_LINE, now=at)
    key = Key(found.machine_id, found.generation, found.key)
    return found.machine_id, key if keyed else found.credential


def people() -> dict[str, Caller]:
    at, ada = datetime.now(UTC), factories.admin("ada")
    gone = factories.admin("bert")
    blocked = by_session(gone)
    User.objects.filter(pk=gone.pk).update(is_active=False)
    _, plain = accounts.calendar(actor=factories.acting(ada), name="Web", now=at)
    return {
        "anonymous": Caller(),
        "groupless": by_session(PersonFactory(username="gert", groups=[])),
        "blocked": blocked,
        "viewer": by_session(factories.viewer()),
        "admin": by_session(ada),
        "read-token": by_token(ada, "read"),
        "approve-token": by_token(ada, "approve"),
        "strange-token": by_token(ada, allowed_from=["192.0.2.0/24"]),
        "ended-token": by_token(ada, revoked_at=at),
        "calendar": Caller(headers={"authorization": f"Bearer {plain}"}),
    }


class GatewayCaller:
    """Calls the gateway as one of the columns; machines are new for each call, since enrolling changes them."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.people = people()
        _, self.join_token = accounts.join_token(comment="", expires_in=factories.seconds(3600), now=datetime.now(UTC))

    def cell(self, path: str, method: str, column: str) -> str:
        said, secret = {"Content-Type": "application/json"}, None
        if column.endswith(("machine", "key")):
            secret = machine(keyed="key" in column, join_token=self.join_token, revoked="revoked" in column)
        body = self._body(path, column, secret)
        if secret is not None:
            target = path + self._query(path)
            said["authorization"] = authorization(secret[1], method, target, body, datetime.now(UTC))
        elif column in self.people:
            who = self.people[column]
            said |= who.headers | ({"Cookie": f"{settings.SESSION_COOKIE_NAME}={who.session}"} if who.session else {})
        else:
            said["authorization"] = f"Bearer {self.join_token}"
        answer = requests.request(
            method, f"{self.gateway.url}{path}{self._query(path)}", data=body, headers=said, stream=True, timeout=20
        )
        with answer:
            return outcome(answer.status_code)

    def _query(self, path: str) -> str:
        return "?wait=0" if path == wire.ORDERS_PATH else ""

    def _body(self, path: str, column: str, secret: tuple[str, Key | str] | None) -> bytes | None:
        """What agents send."""
        if path == wire.REPORTS_PATH:
            return json.dumps({"spool": str(uuid4()), "sent_at": now(), "reports": []}).encode()
        if path not in (wire.ENROL_PATH, wire.ENROL_CHECK_PATH):
            return None
        vm_id, own = secret or (str(uuid4()), "")
        credential = own if isinstance(own, str) else ""
        token = self.join_token if column == "join-token" else ""
        asked = {"join_token": token, "machine_id": vm_id, "ask": "own", "credential": credential}
        return json.dumps({**asked, "keyed": isinstance(own, Key)}).encode()


def outcome(status: int) -> str:
    """As the words of `tests.access.calls`."""
    return "yes" if status < 300 else {401: "login", 403: "no", 404: "404", 405: "-"}.get(status, str(status))


def calls() -> list[tuple[str, str]]:
    return [(path, method) for path, methods in TABLE.items() for method in methods]
