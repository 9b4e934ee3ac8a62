"""Walkers: they reach a state the way the product does, through enrolment, reports and decisions.

`Fleet` keeps the sequence of each machine. Times are arguments everywhere; `NOW` is where a story begins.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, TypeVar
from uuid import uuid4

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Model
from drydock_agent import wire

from fleet.domain import actor
from fleet.domain.actor import Actor
from fleet.domain.secrets import hash_of, new_secret
from fleet.domain.timeline import EntryKind
from fleet.gateway.readers import READERS
from fleet.models import Approval, AvailabilitySet, Entry, JoinToken, Machine, Order, ScheduledEvent, UnusedKey
from fleet.operations import reconcile
from fleet.operations import reports as reporting
from fleet.operations.approvals import approve as deciding
from fleet.operations.approvals.approve import Plan
from fleet.operations.intake import keep, presence
from fleet.operations.machines import enrolment
from fleet.operations.orders import advance, queue
from fleet.operations.sets import changes
from fleet.operations.timeline.entries import entry, write
from fleet.projections.timeline.entries import TimelineRow, rows_of
from tests import accounts
from tests.rows import PersonFactory

R = TypeVar("R", bound=Model)
NOW = datetime(2022, 4, 11, 22, 12, 0, tzinfo=UTC)
EVENT = "C7061BAC-AFDC-4513-B24B-AA5F13A16123"
KINDS = {data: kind for kind, (data, _) in READERS.items()}


DEFAULT_NOT_BEFORE = NOW + timedelta(seconds=900)


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def listing(
    event_id: str = EVENT,
    *,
    status: str = "Scheduled",
    event_type: str = "Freeze",
    resources: Sequence[str] = ("vm1",),
    not_before: datetime | None = DEFAULT_NOT_BEFORE,
    **fields: Any,
) -> dict[str, Any]:
    """One element of `Events` as the metadata service words it; `None` as a field leaves it out."""
    stated = not_before is not None and status != "Started"
    whole = {
        "EventId": event_id,
        "EventStatus": status,
        "EventType": event_type,
        "ResourceType": "VirtualMachine",
        "Resources": list(resources),
        "NotBefore": format_datetime(not_before, usegmt=True) if stated and not_before else "",
        "Description": "Host server is undergoing maintenance.",
        "EventSource": "Platform",
        "DurationInSeconds": 5,
        **fields,
    }
    return {name: value for name, value in whole.items() if value is not None}


def document(events: Iterable[dict[str, Any]] = (), *, incarnation: int | None = 1) -> bytes:
    """One answer of the metadata service."""
    return json.dumps({"DocumentIncarnation": incarnation, "Events": list(events)}).encode()


def document_data(body: bytes, *, incarnation: int | None = None) -> wire.DocumentData:
    """The report's data of one body, as an agent sends it."""
    return wire.DocumentData(
        body=body.decode(), hash=hashlib.sha256(body).hexdigest(), incarnation=incarnation, api_version="2020-07-01"
    )


@dataclass
class Agent:
    """One machine's side: its spool and where its numbering stands."""

    machine: Machine
    credential: str
    spool: str = field(default_factory=lambda: str(uuid4()))
    seq: int = 0
    incarnation: int = 0

    def report(self, data: keep.Data, *, at: datetime, kind: str = "") -> keep.ParsedReport:
        """The next numbered report."""
        self.seq += 1
        return keep.ParsedReport(seq=self.seq, kind=kind or KINDS[type(data)], at=at, machine_at=at, data=data)

    def numbered(self, report: keep.ParsedReport) -> keep.ParsedReport:
        """The same report under the next number."""
        self.seq += 1
        return replace(report, seq=self.seq)

    def delivery(self, *reports: keep.ParsedReport) -> keep.Delivery:
        return keep.Delivery(machine_id=self.machine.pk, spool=self.spool, agent_version="0.1.0", reports=reports)

    def document(self, *events: dict[str, Any], at: datetime) -> keep.ParsedReport:
        """A report of a document with these events; the incarnation goes up by one."""
        self.incarnation += 1
        body = document(events, incarnation=self.incarnation)
        return self.report(document_data(body, incarnation=self.incarnation), at=at)


class Fleet:
    """A fleet that is walked step by step. Agents are known by their resource name."""

    def __init__(self, now: datetime = NOW) -> None:
        self.now = now
        self.agents: dict[str, Agent] = {}
        _, self.join_token = accounts.join_token(comment="tests", expires_in=timedelta(days=30), now=now)

    def enrol(
        self,
        name: str,
        *,
        availability_set: str = "web",
        fault_domain: int = 0,
        update_domain: int = 0,
        vm_id: str | None = None,
        heard: bool = True,
        **compute: Any,
    ) -> Agent:
        """Enrol one machine; unless `heard` is False it is live at `self.now`. An empty set name makes it
        provisional.
        """
        instance = {
            "name": name,
            "subscriptionId": "11111111-2222-3333-4444-555555555555",
            "resourceGroupName": "shop",
            "location": "westeurope",
            "vmSize": "Standard_D2s_v5",
            "platformFaultDomain": str(fault_domain),
            "platformUpdateDomain": str(update_domain),
            **compute,
        }
        request = wire.EnrolRequest(
            join_token=self.join_token,
            machine_id=vm_id or str(uuid4()),
            resource_name=name,
            availability_set=availability_set,
            instance=instance,
            agent_version="0.1.0",
            credential=next((one.credential for one in self.agents.values() if one.machine.vm_id == vm_id), ""),
        )
        answer = enrolment.enrol(request=request, now=self.now)
        assert isinstance(answer, wire.EnrolAnswer), answer
        agent = Agent(machine=Machine.objects.get(vm_id=answer.machine_id), credential=answer.credential)
        self.agents[name] = agent
        if heard:
            self.heard(name)
        return agent

    def enrol_set(self, count: int = 6, *, prefix: str = "vm", availability_set: str = "web") -> list[Agent]:
        """`count` machines over three fault and two update domains, all live, each having read an empty document."""
        agents = [self.enrol(f"{prefix}1", availability_set=availability_set, heard=False)]
        agents += self._enrol_neighbours(
            agents[0], [(f"{prefix}{number}", number - 1) for number in range(2, count + 1)]
        )
        self.all_say(names=[agent.machine.resource_name for agent in agents])
        return agents

    @transaction.atomic
    def _enrol_neighbours(self, first: Agent, others: Sequence[tuple[str, int]]) -> list[Agent]:
        """Machines that enrolled as this one did, each by its name and number: its rows again, since enrolling five
        more takes longer than most tests.
        """
        machines, plain = [], [new_secret("agent") for _ in others]
        for (name, number), credential in zip(others, plain, strict=True):
            machine = copy(first.machine)
            machine.pk, machine.vm_id, machine.resource_name = None, str(uuid4()), name
            machine.fault_domain, machine.update_domain = number % 3, number % 2
            domains = {"platformFaultDomain": str(number % 3), "platformUpdateDomain": str(number % 2)}
            machine.compute = {**machine.compute, "name": name, **domains}
            machine.credential_hash = hash_of(credential)
            machines.append(machine)
        machines = Machine.objects.bulk_create(machines)
        unused = UnusedKey.objects.get(machine=first.machine)
        values = {"join_token": unused.join_token, "given_at": unused.given_at}
        UnusedKey.objects.bulk_create(
            UnusedKey(machine=one, found_by=one.credential_hash, **values) for one in machines
        )
        JoinToken.objects.filter(pk=first.machine.join_token_id).update(uses=F("uses") + len(machines))
        told = {"at": self.now, "set_id": first.machine.availability_set_id}
        write(
            entry(EntryKind.MACHINE_ENROLLED, actor.machine(one.resource_name), machine_id=one.pk, **told)
            for one in machines
        )
        agents = {one.resource_name: Agent(one, credential) for one, credential in zip(machines, plain, strict=True)}
        self.agents |= agents
        return list(agents.values())

    def later(self, count: float) -> datetime:
        """Move the story on by some seconds."""
        self.now += seconds(count)
        return self.now

    def heard(self, *names: str, poll_at: datetime | None = None) -> None:
        """These machines were heard now, with a good poll; without names all of them."""
        presence.flush(
            contacts=[
                presence.Contact(self.agents[name].machine.pk, self.now, poll_at or self.now)
                for name in names or self.agents
            ]
        )

    def record(self, *deliveries: keep.Delivery) -> dict[tuple[int, str], int]:
        return reporting.record(deliveries=deliveries, now=self.now)

    def say(self, name: str, *events: dict[str, Any], at: datetime | None = None) -> None:
        """One machine reports a document with these events, read now (or at `at`)."""
        agent = self.agents[name]
        self.record(agent.delivery(agent.document(*events, at=at or self.now)))

    def report(self, name: str, *data: keep.Data, at: datetime | None = None) -> None:
        """A machine reports something other than a document."""
        agent, at = self.agents[name], at or self.now
        self.record(agent.delivery(*(agent.report(one, at=at) for one in data)))

    def all_say(self, *events: dict[str, Any], names: Iterable[str] = ()) -> None:
        """Every machine (or these) is heard and reports the same events: one first, then the others in one commit."""
        chosen = list(names) or list(self.agents)
        self.heard(*chosen)
        told = [agent.delivery(agent.document(*events, at=self.now)) for agent in map(self.agents.__getitem__, chosen)]
        for deliveries in (told[:1], told[1:]):
            self.record(*deliveries)

    def answer(
        self,
        order: Order,
        *,
        outcome: str = wire.ANSWERED,
        status: int | None = 200,
        reason: str = "",
        posts: int | None = None,
    ) -> keep.Delivery:
        """What the order's machine is about to answer."""
        agent = next(agent for agent in self.agents.values() if agent.machine.pk == order.machine_id)
        data = wire.ReceiptData(
            order_id=str(order.pk),
            event_id=order.spelled,
            outcome=outcome,
            azure_status=status,
            reason=reason,
            attempted_at=self.now,
            posts=posts,
            via="celery",
        )
        return agent.delivery(agent.report(data, at=self.now))

    def receipt(self, order: Order, **answer: Any) -> None:
        """The order's machine answers it, as `answer` takes it."""
        self.record(self.answer(order, **answer))

    def delivered(self, order: Order, *, via: str = "celery") -> None:
        """The order's machine says that it has it."""
        queue.note_held(held=[(order.machine_id, order.pk, via)], now=self.now)

    def advance(self, *, via: str = "beat") -> reconcile.Advanced:
        return reconcile.advance(now=self.now, via=via)

    def tick(self, count: float, *names: str) -> reconcile.Advanced:
        """Move the story on by some seconds, in which these machines (or all) are heard, and advance."""
        self.later(count)
        self.heard(*names)
        return self.advance()

    def approve(self, event_id: str = EVENT, *, by: User | None = None, comment: str = "go", **fields: Any) -> Approval:
        """An operator approves."""
        return deciding.grant(
            event_id=event_id, actor=acting(by or operator(), why=comment), now=self.now, plan=Plan(**fields)
        )


def person(username: str, group: str) -> User:
    """A person in this group alone."""
    return PersonFactory(username=username, groups=[group])


def told(line: Entry) -> TimelineRow:
    """A line as people are shown it, with names: the line itself holds pseudonyms."""
    (row,) = rows_of([line])
    return row


def who(line: Entry) -> str:
    """Who acted, by name."""
    return told(line).actor


def acting(account: User, *, via: str = "page", **fields: Any) -> Actor:
    """Return the actor that the edges make of a request by this account."""
    return actor.person(account, via, **fields)


def viewer(username: str = "vera") -> User:
    return person(username, "viewer")


def operator(username: str = "otto") -> User:
    return person(username, "operator")


def approver(username: str = "anna") -> User:
    return person(username, "approver")


def admin(username: str = "ada") -> User:
    return person(username, "admin")


def the_event(event_id: str = EVENT) -> ScheduledEvent:
    return ScheduledEvent.objects.get(event_id=event_id)


def the_set(name: str = "web") -> AvailabilitySet:
    return AvailabilitySet.objects.get(name=name)


def change_set(*, set_id: int, actor: Actor, now: datetime, **fields: Any) -> AvailabilitySet:
    """Change these fields of a set."""
    return changes.change_set(changes.NameSetSerializer(data=fields), set_id=set_id, actor=actor, now=now)


def after(row: R) -> R:
    """Return the row as it is now."""
    row.refresh_from_db()
    return row


def open_order(approval: Approval) -> Order:
    """The approval's one open order."""
    return approval.orders.get(state__in=("OFFERED", "DELIVERED"))


def announced(fleet: Fleet, **fields: Any) -> ScheduledEvent:
    """A set of six machines, all of which list one scheduled event that hits vm1 and vm2."""
    if not fleet.agents:
        fleet.enrol_set()
    fields.setdefault("resources", ("vm1", "vm2"))
    fields.setdefault("not_before", fleet.now + seconds(900))
    fleet.later(1)
    fleet.all_say(listing(**fields))
    return the_event(fields.get("event_id", EVENT))


def approved_apart(fleet: Fleet, event_ids: Iterable[str]) -> list[Approval]:
    """Events of a set each, `set0` with the machine `m0` and so on, which one operator approves."""
    ids = list(event_ids)
    for number, event_id in enumerate(ids):
        fleet.enrol(f"m{number}", availability_set=f"set{number}")
        due = fleet.now + timedelta(minutes=5)
        fleet.say(f"m{number}", listing(event_id, resources=[f"m{number}"], not_before=due))
    approving = operator()
    return [fleet.approve(event_id, by=approving) for event_id in ids]


def lost_a_document(fleet: Fleet) -> None:
    """Between the last document that each machine read and the next there is another one."""
    for agent in fleet.agents.values():
        agent.incarnation += 1


def accepted(fleet: Fleet, **fields: Any) -> Approval:
    """`announced`, approved, and answered by Azure with 200."""
    event = announced(fleet, **fields)
    approval = fleet.approve(event.event_id)
    advance.advance_approval(approval_id=approval.pk, now=fleet.now, via="celery")
    order = open_order(approval)
    fleet.delivered(order)
    fleet.receipt(order)
    approval.refresh_from_db()
    return approval


def freeze_completed(fleet: Fleet, **fields: Any) -> ScheduledEvent:
    """`accepted`, then Started, then gone: a whole round."""
    approval = accepted(fleet, **fields)
    fields.setdefault("resources", ("vm1", "vm2"))
    fleet.later(10)
    fleet.all_say(listing(**{**fields, "status": "Started"}))
    fleet.later(60)
    fleet.all_say()
    return ScheduledEvent.objects.get(pk=approval.event_id)


def freeze_cancelled(fleet: Fleet, **fields: Any) -> ScheduledEvent:
    """`announced`, then gone without Started."""
    event = announced(fleet, **fields)
    fleet.later(60)
    fleet.all_say()
    event.refresh_from_db()
    return event
