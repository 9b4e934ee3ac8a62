"""Machines of one set that enrol and report, through the product's own operations."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.test.utils import override_settings
from drydock_agent import wire

from fleet.domain.secrets import hash_of
from fleet.models import Machine
from fleet.operations.intake import keep, presence
from fleet.operations.machines import enrolment, entrance
from fleet.operations.reports import record

SET, GROUP, SUBSCRIPTION = "stand-in-set", "stand-in-group", "5eed0000-0000-4000-8000-00000000005b"


@dataclass
class Player:
    """Machines of one set, and one person who decides."""

    at: datetime
    person: User
    now: datetime = field(init=False)
    machines: list[Machine] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    incarnation: int = 1
    token: str = field(init=False)

    def __post_init__(self) -> None:
        self.now = self.at
        sent = entrance.JoinTokenRequestSerializer(data={"comment": "seed"})
        _, self.token = entrance.create_join_token(sent, now=self.at)

    def enrol(self) -> dict[str, str]:
        """One more machine, which has read an empty document; the stand-ins for what is its own."""
        number = len(self.machines)
        names = {
            f"machine {number}": f"stand-in-{number:03d}-vm",
            f"vm {number}": str(UUID(int=(0x5EED << 112) + number)),
            f"spool {number}": str(UUID(int=(0x5EEE << 112) + number)),
        }
        request = wire.EnrolRequest(
            join_token=self.token,
            machine_id=names[f"vm {number}"],
            resource_name=names[f"machine {number}"],
            availability_set=SET,
            instance={
                "name": names[f"machine {number}"],
                "subscriptionId": SUBSCRIPTION,
                "resourceGroupName": GROUP,
                "location": "westeurope",
                "vmSize": "Standard_D2s_v5",
                "osType": "Linux",
                "platformFaultDomain": str(number % 3),
                "platformUpdateDomain": str(number % 5),
            },
            agent_version="0.2.0",
        )
        # The machine is simulated: Azure attests nothing, and no administrator admits it.
        with override_settings(ENROLMENT_POLICY="token"):
            answer = enrolment.enrol(request=request, now=self.now)
        if not isinstance(answer, wire.EnrolAnswer):
            raise RuntimeError(f"An unknown machine was not admitted at once: {answer}")
        self.machines.append(Machine.objects.get(vm_id=answer.machine_id))
        self.sent.append(0)
        names[f"credential {number}"] = hash_of(answer.credential)
        self.say(among=[number])
        return names

    def say(self, *events: dict[str, Any], among: Sequence[int] | None = None) -> None:
        """These machines (else all) read one document with these events and report it."""
        body = json.dumps({"DocumentIncarnation": self.incarnation, "Events": list(events)})
        hashed = hashlib.sha256(body.encode()).hexdigest()
        data = wire.DocumentData(body=body, hash=hashed, incarnation=self.incarnation, api_version="2020-07-01")
        chosen = range(len(self.machines)) if among is None else among
        presence.flush(contacts=[presence.Contact(self.machines[one].pk, self.now, self.now) for one in chosen])
        record(deliveries=[self._delivery(one, wire.DOCUMENT, data) for one in chosen], now=self.now)

    def report(self, number: int, kind: str, data: keep.Data) -> None:
        record(deliveries=[self._delivery(number, kind, data)], now=self.now)

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        # They are heard all the while.
        presence.flush(contacts=[presence.Contact(machine.pk, self.now, self.now) for machine in self.machines])

    def _delivery(self, number: int, kind: str, data: keep.Data) -> keep.Delivery:
        self.sent[number] += 1
        report = keep.ParsedReport(seq=self.sent[number], kind=kind, at=self.now, machine_at=self.now, data=data)
        spool = str(UUID(int=(0x5EEE << 112) + number))
        return keep.Delivery(self.machines[number].pk, spool, "0.2.0", (report,))
