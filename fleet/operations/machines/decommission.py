"""Decommissioning: machines leave the fleet one by one, in bulk, or by the rules of the settings.

The row and the history of a machine are kept. Its key ends, as in a revocation, and it returns as itself if an
administrator admits it again.
"""

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Coalesce

from fleet.domain.actor import DRYDOCK, Actor
from fleet.domain.clock import seconds_since
from fleet.domain.intake import names
from fleet.domain.people import Right
from fleet.domain.reasons import Reason, Refused, require_found, require_version
from fleet.domain.states import OPEN_EVENTS, OPEN_ORDERS, EventStatus, Presence
from fleet.domain.timeline import EntryKind
from fleet.models import Coverage, InventoryMachine, LastRun, Machine, ScheduledEvent, Sighting, StaleSet
from fleet.models.facts.blind_spots import is_any_agent_heard
from fleet.models.facts.events import contact_times, machine_presence
from fleet.models.facts.machines import not_counted_since
from fleet.operations.machines import keys
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
    deleted = keys.delete_named_alone(machine.pk)
    before, after = {"credential": "revoked" if was_revoked else "valid"}, {"credential": "revoked"}
    said = {"before": before, "after": after, "rule": rule, **deleted}
    tell_machine(EntryKind.MACHINE_DECOMMISSIONED, actor, machine, now=now, **said)
    keys.shut_out(machine, now=now)


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
        yield from _terminated(silent)
    elif rule == "unlisted":
        # One that reported after the import existed, whatever the inventory listed.
        unlisted = silent.filter(unlisted_at__lt=before, unlisted_at__gte=F("heard_at"))
        yield from unlisted.values_list("pk", flat=True)
    else:
        yield from silent.values_list("pk", flat=True)


def _terminated(silent: QuerySet[Machine]) -> Iterator[int]:
    """Yield those whose last document listed the Terminate of the machine itself, which has ended since."""
    last = Sighting.objects.filter(
        machine__in=silent.values("pk"),
        foreign=False,
        gone_at__isnull=True,
        event_type="Terminate",
        event__status=EventStatus.ENDED.value,
        event__drill=False,
    )
    for machine_id, name, resources in last.order_by("machine").values_list(
        "machine", "machine__resource_name", "resources"
    ):
        if names(resources, {name.lower()}):
            yield machine_id
