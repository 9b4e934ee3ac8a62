"""How machines leave the fleet: decommissioned one by one, in bulk, or by the rules of the settings; and the revocation
and discounting of machines.

The row and the history of a machine are kept. Its key ends, and it returns as itself if an administrator admits it
again.
"""

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, ProtectedError, Q, QuerySet
from django.db.models.functions import Coalesce

from fleet.domain.actor import DRYDOCK, Actor
from fleet.domain.clock import seconds_since
from fleet.domain.intake import names
from fleet.domain.people import Right
from fleet.domain.reasons import Reason, Refused, require_found, require_version
from fleet.domain.states import LIVE_APPROVALS, OPEN_EVENTS, OPEN_ORDERS, EventStatus, Presence
from fleet.domain.timeline import EntryKind
from fleet.models import Approval, Entry, LastRun, ScheduledEvent, Sighting, StaleSet
from fleet.models.caches import Cache, Coverage
from fleet.models.facts.blind_spots import is_any_agent_heard
from fleet.models.facts.events import contact_times, machine_presence
from fleet.models.facts.machines import not_counted_since
from fleet.models.machines import UNSET, AvailabilitySet, InventoryMachine, Machine
from fleet.operations import wake_up
from fleet.operations.events import scheduling
from fleet.operations.machines import admissions
from fleet.operations.orders import advance
from fleet.operations.rights import acting
from fleet.operations.timeline.entries import tell_machine

# The rules run this often, and each run decommissions at most `MOST` machines.
PERIOD = timedelta(minutes=10)
MOST = 10
# This many machines can be decommissioned in one request.
MOST_AT_ONCE = 500
# After a longer pause Drydock itself was unavailable: silence since then proves nothing about machines.
LONGEST_PAUSE = timedelta(minutes=30)
RUN = "decommission"
# At most this many events are computed at once for a machine that loses its vote; each takes milliseconds.
COMPUTED_AT_ONCE = 500


def decommission(*, machine_id: int, actor: Actor, now: datetime, expected: Collection[str] | None = None) -> None:
    """Decommission a machine (row id): it leaves lists, counts and blind spots, its key ends, its history is kept.

    Sets and caches that only this machine named are deleted if they are empty. `expected` are accepted versions of the
    machine. Raises Refused `not-permitted`, `validation`, `unknown-machine`, `precondition-failed`, `machine-live` or
    `machine-in-use`.
    """
    actor = acting(actor, Right.ADMINISTER)
    with transaction.atomic():
        machine = require_found(_locked(machine_id), "unknown-machine", Reason("machine-unknown"))
        presence = getattr(machine, "presence", None)
        version = max(machine.changed_at, presence.changed_at) if presence is not None else machine.changed_at
        require_version(version, expected)
        _decommission(machine, actor, now=now)


def decommission_each(*, machine_ids: Iterable[int], actor: Actor, now: datetime) -> dict[int, Refused | None]:
    """Decommission each of these machines (row ids) in its own transaction. Return the refusal for each machine that
    stays in the fleet, and None for each other one.

    Raises Refused `not-permitted`, `validation`.
    """
    actor = acting(actor, Right.ADMINISTER)
    found: dict[int, Refused | None] = dict.fromkeys(machine_ids)
    for machine_id in found:
        try:
            decommission(machine_id=machine_id, actor=actor, now=now)
        except Refused as error:
            found[machine_id] = error
    return found


def _locked(machine_id: int) -> Machine | None:
    rows = Machine.objects.select_for_update(of=("self",)).select_related("presence", "latest_document")
    return rows.defer("compute").filter(pk=machine_id).first()


def _decommission(machine: Machine, actor: Actor, *, now: datetime, rule: str = "") -> None:
    """Decommission a locked machine. `rule` is the code of the rule that applies, if one does."""
    if machine_presence(machine, now=now) in (Presence.LIVE, Presence.LATE):
        raise Refused("machine-live", Reason("decommission-live"))
    event_id = _open_event(machine)
    if event_id is not None:
        raise Refused("machine-in-use", Reason("decommission-in-use", event=event_id), event=event_id)
    was_revoked = machine.revoked_at is not None
    ended = {"revoked_at": machine.revoked_at or now, "credential_hash": ""}
    Machine.objects.filter(pk=machine.pk).update(decommissioned_at=now, **ended)
    InventoryMachine.objects.filter(machine=machine).delete()
    Coverage.objects.filter(machine=machine, until=None).update(until=F("vouched_at"))
    # The trigger does not know the column.
    StaleSet.objects.create(availability_set_id=machine.availability_set_id)
    deleted = _delete_named_alone(machine.pk)
    before, after = {"credential": "revoked" if was_revoked else "valid"}, {"credential": "revoked"}
    said = {"before": before, "after": after, "rule": rule, **deleted}
    tell_machine(EntryKind.MACHINE_DECOMMISSIONED, actor, machine, now=now, **said)
    _shut_out(machine, now=now)


def _open_event(machine: Machine) -> str | None:
    """Return the EventId of an open event that names the machine, that it lists, or for which it has an open order."""
    open_events = ScheduledEvent.objects.filter(status__in=OPEN_EVENTS).order_by("pk")
    used = Q(approvals__orders__machine=machine, approvals__orders__state__in=OPEN_ORDERS)
    if not_counted_since(machine.revoked_at, machine.discounted_at, contact_times(machine)[0]) is None:
        used |= Q(sightings__machine=machine, sightings__gone_at__isnull=True)
    own = {machine.resource_name.lower(), machine.called.lower()}
    of_set = open_events.filter(availability_set=machine.availability_set_id).values_list("event_id", "resources")
    naming = (event_id for event_id, resources in of_set if names(resources, own))
    return next(naming, None) or open_events.filter(used).values_list("event_id", flat=True).first()


# How a machine loses its credential or its vote. Only an admission brings it back.


@transaction.atomic
def revoke(*, machine_id: int, actor: Actor, now: datetime) -> None:
    """Revoke a machine (row id): the credential ends, and open events are computed without the machine's reports.

    All of this is one transaction, except that reconciliation computes the events beyond the first 500. Gateways learn
    of it by a wake-up, or without Redis within about a second; reports in between are not stored.

    Raises Refused `not-permitted`, `validation` or `unknown-machine`.
    """
    actor = acting(actor, Right.ADMINISTER)
    found = Machine.objects.defer("compute").filter(pk=machine_id).first()
    machine = require_found(found, "unknown-machine", Reason("machine-unknown"))
    if not Machine.objects.filter(pk=machine_id, revoked_at__isnull=True).update(revoked_at=now, credential_hash=""):
        return
    before, after = {"credential": "valid"}, {"credential": "revoked"}
    tell_machine(EntryKind.MACHINE_REVOKED, actor, machine, now=now, before=before, after=after)
    _shut_out(machine, now=now)


def _shut_out(machine: Machine, *, now: datetime) -> None:
    """Compute open events without the reports of a machine that was just revoked, and have gateways reject its key."""
    # A machine that was admitted under this identity has to request admission again.
    admissions.done(machine.vm_id)
    ordered = Q(approvals__orders__machine=machine.pk, approvals__orders__state__in=OPEN_ORDERS)
    said = ScheduledEvent.objects.filter(Q(sightings__machine=machine.pk) | ordered)
    _recompute(said, now=now)
    transaction.on_commit(lambda: wake_up.forget_credentials([machine.pk]))


@transaction.atomic
def discount(*, machine_id: int, actor: Actor, now: datetime) -> None:
    """Discount the reports of a silent or revoked machine (row id): open events are computed without them, until the
    machine reports again. Sets and caches that only this machine named are deleted if they are empty; the timeline
    keeps them.

    Raises Refused `not-permitted`, `validation`, `unknown-machine` or `machine-live`.
    """
    actor = acting(actor, Right.ADMINISTER)
    rows = Machine.objects.select_related("presence", "latest_document").defer("compute")
    machine = require_found(rows.filter(pk=machine_id).first(), "unknown-machine", Reason("machine-unknown"))
    if machine_presence(machine, now=now) in (Presence.LIVE, Presence.LATE):
        raise Refused("machine-live", Reason("machine-live"))
    Machine.objects.filter(pk=machine_id).update(discounted_at=now)
    events = _recompute(ScheduledEvent.objects.filter(sightings__machine=machine_id), now=now)
    deleted = _delete_named_alone(machine_id)
    tell_machine(EntryKind.MACHINE_DISCOUNTED, actor, machine, now=now, events=events, **deleted)


def _delete_named_alone(machine_id: int) -> dict[str, list[str]]:
    """Delete the empty sets and caches that only this machine (row id) named. Return their names."""
    named = Entry.objects.filter(machine=machine_id).values("availability_set").distinct()
    # Also of users: a set that a user named or changed belongs to more than this machine.
    others = Entry.objects.filter(availability_set=OuterRef("pk")).exclude(machine=machine_id)
    sets = AvailabilitySet.objects.filter(~Exists(others), pk__in=named, **UNSET)
    coverage = Coverage.objects.filter(machine=machine_id)
    shared = Coverage.objects.filter(cache=OuterRef("pk")).exclude(machine=machine_id)
    caches = Cache.objects.filter(~Exists(shared), pk__in=coverage.values("cache"))
    return {
        "sets": [row.name for row in sets if _delete_if_empty(row)],
        "caches": [row.host for row in caches if _delete_if_empty(row, coverage.filter(cache=row))],
    }


def _recompute(events: QuerySet[ScheduledEvent], *, now: datetime) -> int:
    """Compute the open ones of these events without a machine's reports, those with a decision first, and return their
    number. Reconciliation computes those that would make this transaction last for seconds.
    """
    decided = Exists(Approval.objects.filter(event=OuterRef("pk"), state__in=LIVE_APPROVALS))
    still_open = events.exclude(status=EventStatus.ENDED.value).annotate(decided=decided).distinct()
    pks = list(still_open.order_by("-decided", "pk").values_list("pk", flat=True))
    scheduling.make_due(Q(pk__any=pks[COMPUTED_AT_ONCE:]))
    advance.recompute(pks[:COMPUTED_AT_ONCE], now=now, via="report")
    return len(pks)


def _delete_if_empty(row: AvailabilitySet | Cache, *own: QuerySet[Coverage]) -> bool:
    """Delete a row that nothing refers to except `own`, and return whether this was so."""
    try:
        with transaction.atomic():
            for rows in own:
                rows.delete()
            row.delete()
    except ProtectedError:
        return False
    return True


# Rules, which are off unless settings state their days.


def apply_rules(*, now: datetime) -> int:
    """Decommission machines to which a rule of the settings applies, at most `MOST`. Return how many.

    A machine is silent for the days of the rule in any case. So nothing happens until Drydock has run, and has heard an
    agent, without a longer pause for as long as it takes until a silent machine is gone.
    """
    if not any(settings.DECOMMISSION_DAYS.values()) or not _watched(now):
        return 0
    count = 0
    for rule, days in settings.DECOMMISSION_DAYS.items():
        for machine_id in _candidates(rule, now - timedelta(days=days)) if days else ():
            if count == MOST:
                return count
            with transaction.atomic():
                machine = _locked(machine_id)
                if machine is None:
                    continue
                try:
                    _decommission(machine, DRYDOCK, now=now, rule=rule)
                except Refused:
                    continue
            count += 1
    return count


@transaction.atomic
def _watched(now: datetime) -> bool:
    """Return whether the rules are due now, and the silence of machines is certain. Records the run."""
    LastRun.objects.get_or_create(name=RUN, defaults={"ran_at": now, "via": "", "times": now.isoformat()})
    run = LastRun.objects.select_for_update().get(name=RUN)
    passed = seconds_since(run.ran_at, now=now)
    if passed < PERIOD.total_seconds():
        return False
    if passed > LONGEST_PAUSE.total_seconds() or not is_any_agent_heard(now=now):
        run.times = now.isoformat()
    run.ran_at = now
    run.save()
    return (now - datetime.fromisoformat(run.times)).total_seconds() >= settings.MACHINE_GONE_SECONDS


def _candidates(rule: str, before: datetime) -> Iterator[int]:
    """Yield the machines (row ids) to which a rule applies that were not heard since `before`, the oldest first.

    A machine that waits for admission is not gone. Only its own reports and an administrator's import are evidence.
    """
    heard = Machine.objects.alias(heard_at=Coalesce("presence__last_heard_at", "enrolled_at"))
    silent = heard.filter(heard_at__lt=before, admissions=None).order_by("heard_at", "pk")
    if rule == "terminated":
        # The machine's last document listed its own Terminate, which has ended since.
        ended = {"event_type": "Terminate", "event__status": EventStatus.ENDED.value, "event__drill": False}
        last = Sighting.objects.filter(machine__in=silent.values("pk"), foreign=False, gone_at__isnull=True, **ended)
        columns = last.order_by("machine").values_list("machine", "machine__resource_name", "resources")
        yield from (machine_id for machine_id, name, resources in columns if names(resources, {name.lower()}))
    elif rule == "unlisted":
        # One that reported after the import existed, whatever the inventory listed.
        unlisted = silent.filter(unlisted_at__lt=before, unlisted_at__gte=F("heard_at"))
        yield from unlisted.values_list("pk", flat=True)
    else:
        yield from silent.values_list("pk", flat=True)
