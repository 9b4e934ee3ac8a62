"""Processes all reports of a batch together: machines, then events, then caches.

If this fails, which is rare, `slow_path` processes them one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import transaction
from drydock_agent import wire

from fleet.domain.intake import Document
from fleet.domain.scheduling import QuarantineKind
from fleet.models import Machine, ScheduledEvent
from fleet.operations import drills, wake_up
from fleet.operations.caches import notifications
from fleet.operations.events import compute
from fleet.operations.intake import bounds, listings, oddities, preparations
from fleet.operations.intake.keep import AgentReport, KeptReport, by_kind
from fleet.operations.intake.listings import MachineDocument
from fleet.operations.machines import instance
from fleet.operations.orders import advance, queue
from fleet.operations.sets import join

# By the class of their data, as `by_kind` returns them.
Reports = Mapping[type[Any], list[AgentReport[Any]]]


@dataclass(slots=True)
class EventReports:
    """Reports about events: documents, receipts of orders, hook reports, drill reports."""

    documents: list[MachineDocument] = field(default_factory=list)
    receipts: list[AgentReport[wire.ReceiptData]] = field(default_factory=list)
    hooks: list[AgentReport[wire.HookData]] = field(default_factory=list)
    rehearsals: list[AgentReport[wire.RehearsalData]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.documents or self.receipts or self.hooks or self.rehearsals)

    @classmethod
    def together(cls, parts: Iterable[EventReports]) -> EventReports:
        """Merge several objects into one. A document that is in several of them is included once."""
        parts = list(parts)
        documents = {(one.machine_id, one.position): one for part in parts for one in part.documents}
        return cls(
            [documents[key] for key in sorted(documents)],
            [one for part in parts for one in part.receipts],
            [one for part in parts for one in part.hooks],
            [one for part in parts for one in part.rehearsals],
        )

    def positions(self) -> set[tuple[int, int, int]]:
        """The positions of these reports: (machine row id, epoch, seq)."""
        said: Iterable[AgentReport[Any]] = (*self.receipts, *self.hooks, *self.rehearsals)
        listed = {(one.machine_id, *one.position) for one in self.documents}
        return listed | {(one.machine_id, *one.position) for one in said}


@dataclass(slots=True)
class CacheReports:
    """Reports about caches: messages, coverage changes, hook results."""

    lines: list[AgentReport[wire.RedisData]]
    changes: list[AgentReport[wire.CoverageData]]
    hooks: list[AgentReport[wire.RedisHookData]]

    @classmethod
    def among(cls, reports: Reports) -> CacheReports:
        return cls(reports[wire.RedisData], reports[wire.CoverageData], reports[wire.RedisHookData])

    def of(self, hosts: Collection[str]) -> CacheReports:
        """Return the reports about these hosts."""
        return CacheReports(*([one for one in part if one.data.cache in hosts] for part in self._parts))

    @property
    def _parts(self) -> tuple[list[AgentReport[Any]], ...]:
        return self.lines, self.changes, self.hooks

    def positions(self) -> dict[str, set[tuple[int, int, int]]]:
        """The positions of these reports, (machine row id, epoch, seq), by host."""
        found: dict[str, set[tuple[int, int, int]]] = defaultdict(set)
        for part in self._parts:
            for one in part:
                found[one.data.cache].add((one.machine_id, *one.position))
        return found

    def take(self, now: datetime, *, careful: bool) -> None:
        notifications.take_notifications(self.lines, self.changes, self.hooks, now=now, careful=careful)


@dataclass(slots=True)
class TakenEvents:
    """Events whose reports were merged: row ids, new sightings, and machines that list them. `locked` are the locked
    rows.
    """

    events: set[int] = field(default_factory=set)
    reporters: dict[int, set[int]] = field(default_factory=dict)
    new_sightings: dict[int, list[int]] = field(default_factory=dict)
    locked: list[ScheduledEvent] = field(default_factory=list)


def readable(rows: Sequence[KeptReport], documents: Mapping[str, Document]) -> list[MachineDocument]:
    """Return the readable documents that these reports contain or refer to."""
    return [
        MachineDocument(
            machine_id=row.machine_id,
            position=(row.epoch, row.report.seq),
            at=row.report.at,
            document_hash=row.document_hash,
            incarnation=document.incarnation,
            document=document,
        )
        for row in rows
        if row.document_hash is not None
        and (document := documents.get(row.document_hash)) is not None
        and document.readable
    ]


def event_reports(reports: Reports, documents: list[MachineDocument]) -> EventReports:
    """Return the reports and documents that are about events."""
    return EventReports(documents, reports[wire.ReceiptData], reports[wire.HookData], reports[wire.RehearsalData])


def take(
    rows: Sequence[KeptReport], ahead: list[MachineDocument], versions: Mapping[int, str], *, now: datetime
) -> None:
    """Process new reports. `ahead` are the documents that are newer than their machine's latest one.

    `versions` are the agents' versions, by machine (row id). Locks events before approvals, and caches last.
    """
    reports = by_kind(rows)
    for one in reports[wire.InstanceData]:
        place(one, versions, now)
    if said := event_reports(reports, ahead):
        taken = take_of_events(said, now=now)
        if taken.locked:
            touched = follow(taken, now, taken.locked)
            # Commit, answer, then decide: a slow or failing decision delays no report.
            transaction.on_commit(lambda: wake_up.hint_events(touched))
    CacheReports.among(reports).take(now, careful=False)


def place(one: AgentReport[wire.InstanceData], versions: Mapping[int, str], now: datetime) -> None:
    """Process a machine's instance metadata. Beyond the hourly limit of changes it is quarantined.

    The newest quarantined one is retried after the hour.
    """
    machine = Machine.every.select_related("availability_set__merged_into").get(pk=one.machine_id)
    claim = instance.claim_of(machine, one.data)
    known = (machine.called or machine.resource_name, machine.stated_set, machine.compute, machine.node_name)
    if (claim.name, claim.stated, claim.compute, one.data.node_name) != known and not bounds.may_state(
        machine.pk, now=now
    ):
        oddities.add(QuarantineKind.BEYOND, str(machine.pk), [(machine.pk, *one.position)], now=now)
        return
    version = versions.get(machine.pk, "")
    instance.take_instance(machine, claim, node_name=one.data.node_name, now=now, agent_version=version)


def take_of_events(said: EventReports, *, now: datetime, only: Collection[str] | None = None) -> TakenEvents:
    """Merge reports about events, or only about those in `only` (EventIds). Events remain locked."""
    merged = listings.merge(said.documents, now=now, only=only) if said.documents else None
    found = TakenEvents(merged.touched if merged else set())
    found.events |= queue.events_of(said.receipts)
    found.events |= preparations.events_of(said.hooks) | drills.events_of(said.rehearsals)
    found.locked = compute.lock(found.events) if found.events else []
    if merged is not None:
        listings.store(merged)
        found.reporters, found.new_sightings = dict(merged.reporters), dict(merged.new_sightings)
    if said.receipts:
        queue.take(said.receipts, now=now)
    if said.hooks:
        preparations.take(said.hooks)
    if said.rehearsals:
        found.new_sightings |= drills.take(said.rehearsals, now=now)
    return found


def follow(taken: TakenEvents, now: datetime, events: list[ScheduledEvent]) -> list[int]:
    """Join sets, compute the state of these locked events, and advance their approvals. Return their row ids."""
    locked = {event.pk for event in events}
    events = join.settle_sets(events, {pk: who for pk, who in taken.reporters.items() if pk in locked}, now=now)
    compute.compute_state(events, now=now, new_sightings=taken.new_sightings)
    advance.advance_events(events, now=now, via="report")
    return [event.pk for event in events]
