"""Changes of sets by users: names, services and requirements, merging of two sets, and moves of machines."""

from collections.abc import Mapping
from copy import copy
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django import forms
from django.db import IntegrityError, transaction
from django.db.models import Q
from rest_framework import serializers

from fleet.domain.actor import DRYDOCK, Actor
from fleet.domain.people import Right
from fleet.domain.reasons import Reason, Refused, require_found
from fleet.domain.requirements import Requirements
from fleet.domain.sets import MAX_NAME, MAX_NEEDS, NAMED_KINDS, PROVISIONAL, SetKey
from fleet.domain.states import OPEN_EVENTS
from fleet.domain.timeline import EntryKind
from fleet.models import AvailabilitySet, Cache, Machine, ScheduledEvent, Service
from fleet.operations.audited import Audit, AuditedForm, AuditedSerializer, Sent, save_audited
from fleet.operations.orders import advance
from fleet.operations.rights import acting, require
from fleet.operations.sets import placement, requirements
from fleet.operations.sets.join import join, tell_apart
from fleet.operations.timeline.entries import tell_machine

WRONG_NAME = f"A set needs a name of up to {MAX_NAME} characters."
WRONG_MIN_LIVE = f"Enter the minimum number of live machines: 1 to {MAX_NEEDS}, or leave the field empty."
REQUIREMENTS = ("second_person", "step_up", "exempt_service_accounts", "min_live")


class SetNameForm(AuditedForm):
    kind = forms.ChoiceField(choices=[(kind, kind) for kind in NAMED_KINDS])

    class Meta(AuditedForm.Meta):
        model, fields = AvailabilitySet, ("name", "kind", "service")
        error_messages = {"name": dict.fromkeys(("required", "max_length"), WRONG_NAME)}

    def clean_service(self) -> str:
        """Return the entered service, or the current one if none is entered."""
        return str(self.cleaned_data["service"] or self.instance.service)


class RequirementForm(AuditedForm):
    """Form for one requirement of a set, or its runbook."""

    class Meta(AuditedForm.Meta):
        model, fields = AvailabilitySet, (*REQUIREMENTS, "runbook")
        error_messages = {"min_live": dict.fromkeys(("invalid", "min_value", "max_value"), WRONG_MIN_LIVE)}

    def __init__(self, column: str, data: Mapping[str, Any]) -> None:
        super().__init__(data)
        self.fields = {column: self.fields[column]}


class NameSetSerializer(AuditedSerializer):
    kind = serializers.ChoiceField(
        NAMED_KINDS, required=False, help_text="With a name; `availability_set` if nothing is said."
    )

    class Meta:
        model, fields = AvailabilitySet, ("name", "kind", "service", "runbook", *REQUIREMENTS)
        extra_kwargs = {"name": {"required": False}, "min_live": {"allow_null": False}}

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        if not values:
            raise serializers.ValidationError(
                "Say a name, a service, a `runbook`, `second_person`, `step_up`, `exempt_service_accounts` or"
                " `min_live`."
            )
        return values


def _locked(*set_ids: int) -> dict[int, AvailabilitySet]:
    # Not against references to these rows, which Postgres checks at each commit.
    rows = AvailabilitySet.objects.select_for_update(of=("self",), no_key=True).filter(pk__in=set_ids).order_by("pk")
    return {row.pk: row for row in rows}


@transaction.atomic
def change_set(sent: Sent, *, set_id: int, actor: Actor, now: datetime) -> AvailabilitySet:
    """Name a provisional set (without a kind it becomes an availability set), or change service or requirements of a
    set.

    To lower a requirement, a person must have just verified their identity. If the set requires two persons, the change
    waits until another administrator requests the same. Raises Refused: `not-found`, `guarded`, `set-exists` (details
    `set`), and as `save_audited` does.
    """
    require(actor, Right.ADMINISTER)
    row = _locked(set_id).get(set_id)
    if row is None or row.merged_into_id is not None:
        raise Refused("not-found", Reason("set-unknown"))
    before = copy(row)
    is_named = "name" in (sent.fields if isinstance(sent, AuditedForm) else sent.initial_data)

    def check(row: AvailabilitySet) -> tuple[()]:
        row.min_live = row.min_live or None
        if is_named:
            _rename(row, before)
        elif row.kind != before.kind:
            raise Refused("validation", Reason("set-kind-alone"))
        _lower(row, before, actor, now)
        return ()

    audit = Audit(
        (*NameSetSerializer.Meta.fields, "lowering"),
        created=EntryKind.SET_NAMED,
        changed=EntryKind.SET_NAMED if is_named else EntryKind.SET_CHANGED,
        deleted=EntryKind.SET_MERGED,
        data=lambda row: {"set_id": row.pk, "was": before.name, "name": row.name},
    )
    try:
        save_audited(sent, actor, audit, row=row, now=now, check=check)
    except IntegrityError as error:
        # A machine or a person made a set of this name at the same moment.
        raise Refused("set-exists", Reason("set-exists", name=row.name)) from error
    if is_named:
        tell_apart(row.name)
    return row


class ServiceForm(AuditedForm):
    class Meta(AuditedForm.Meta):
        model, fields = Service, ("runbook",)


class ServiceSerializer(AuditedSerializer):
    class Meta:
        model, fields = Service, ("runbook",)


SERVICES = Audit(
    ("runbook",),
    created=EntryKind.SERVICE_CHANGED,
    deleted=EntryKind.SERVICE_CHANGED,
    data=lambda row: {"service": row.name},
)


@transaction.atomic
def change_service(sent: Sent, *, service: str, actor: Actor, now: datetime) -> Service:
    """Change the settings of a service, to which a set or a cache belongs. Raises Refused: `not-found`, and as
    `save_audited` does.
    """
    require(actor, Right.ADMINISTER)
    owners = (AvailabilitySet, Cache)
    if not service or not any(model.objects.filter(service__iexact=service).exists() for model in owners):
        raise Refused("not-found", Reason("service-not-found", name=service))
    row, _ = Service.objects.select_for_update().get_or_create(name=service.lower())
    return save_audited(sent, actor, SERVICES, row=row, now=now)


def _lower(row: AvailabilitySet, before: AvailabilitySet, actor: Actor, now: datetime) -> None:
    """Lower the requirements of a locked set if it is agreed; otherwise store the request for another administrator.

    Raises Refused as `change_set` does.
    """
    names = requirements.lowered(before, row)
    if not names:
        return
    if requirements.agreed(row, before, {name: getattr(row, name) for name in names}, actor=actor, now=now):
        kept = requirements.kept_of(Requirements.of(before), names)
        requirements.keep(row.pk, kept, requirements.home_of(before))
        requirements.record_lowering(row, "lowered", names, now=now)
        return
    for name in names:
        setattr(row, name, getattr(before, name))
    if row.lowering != before.lowering:
        requirements.record_lowering(row, "proposed", names, now=now)


def _rename(row: AvailabilitySet, before: AvailabilitySet) -> None:
    if before.kind != PROVISIONAL:
        raise Refused("validation", Reason("set-named-already", name=before.name))
    if "|" in row.name:
        raise Refused("validation", Reason("set-name-unusable"))
    if row.kind == PROVISIONAL:
        row.kind = "availability_set"
    key = SetKey(row.kind, row.name, row.subscription, row.resource_group)
    known = placement.known_set(key)
    if known is not None:
        raise Refused("set-exists", Reason("set-exists", name=known.name), set=known.pk)
    # A machine that was admitted without a set is confined to this one, under whatever name.
    admitted = Machine.objects.filter(availability_set=row, confined_to__kind=PROVISIONAL)
    admitted.update(confined_to=asdict(key))
    row.key = key.key


@transaction.atomic
def merge_sets(*, set_id: int, into: int, actor: Actor, now: datetime) -> AvailabilitySet:
    """Merge the set `set_id` into the set `into`: machines, events and inventory move. Return the remaining set.

    Timeline entries are unchanged and shown for both sets. Raises Refused: `not-permitted`, `not-found`, `validation`.
    """
    require(actor, Right.ADMINISTER)
    # Machines before sets, sets before events, as reports lock them.
    list(Machine.every.select_for_update(no_key=True).filter(availability_set=set_id).order_by("pk").values_list("pk"))
    rows = _locked(set_id, into)
    if set_id == into:
        raise Refused("validation", Reason("merge-into-itself"))
    source, target = rows.get(set_id), rows.get(into)
    if source is None or target is None:
        raise Refused("not-found", Reason("set-unknown"))
    for row in (source, target):
        if row.merged_into_id is not None:
            raise Refused("validation", Reason("merged-already", name=row.name))
    if target.kind == PROVISIONAL and source.kind != PROVISIONAL:
        raise Refused("validation", Reason("merge-into-provisional"))
    if source.subscription.lower() != target.subscription.lower() and source.subscription and target.subscription:
        raise Refused("validation", Reason("merge-across-subscriptions"))
    # Also those of the target, which are computed again: another decision or report locks both sets' in this order.
    of_both = Q(availability_set=source) | Q(availability_set=target, status__in=OPEN_EVENTS)
    list(ScheduledEvent.objects.select_for_update(of=("self",)).filter(of_both).order_by("pk").values_list("pk"))
    disputed = Machine.objects.filter(availability_set=target).exclude(set_warnings=[]).order_by("pk")
    join(source, target, actor=actor, now=now)
    placement.judge_again(disputed.select_related("availability_set"), now=now)
    # More machines are witnesses now, and more of them may be asked.
    advance.recompute_open(target.pk, now=now, via=actor.via)
    return AvailabilitySet.objects.get(pk=target.pk)


@transaction.atomic
def move_machine(*, machine_id: int, set_id: int | None, actor: Actor, now: datetime) -> None:
    """Move a machine to this set and confine it there, so that no other statement counts. With None, end the
    confinement.

    The open events of both sets are recomputed. Raises Refused `not-permitted`, `validation`, `not-found` or
    `unknown-machine`.
    """
    actor = acting(actor, Right.ADMINISTER)
    rows = Machine.objects.select_for_update(of=("self",)).select_related("availability_set__merged_into")
    machine = require_found(rows.filter(pk=machine_id).first(), "unknown-machine", Reason("machine-unknown"))
    source = machine.availability_set
    before, required = _place_of(machine, source), Requirements.of(source)
    target = _target(set_id) if set_id is not None else None
    machine.confined_to = asdict(placement.key_of(target)) if target is not None else None
    Machine.objects.filter(pk=machine_id).update(confined_to=machine.confined_to)
    claim = placement.claim_of(machine)
    # A provisional set in which no other machine is becomes the target set, with its history.
    placed = placement.place(claim, now=now, actor=actor if target is not None else DRYDOCK)
    if placed.home.pk != source.pk:
        requirements.raise_to(required, placed.home, now=now)
    placement.settle(claim, placed, now=now)
    after = _place_of(machine, placed.home)
    if after == before:
        return
    to = {"set_id": placed.home.pk, "set": placed.home.name}
    because = "person" if target is not None else "lifted"
    tell_machine(EntryKind.MACHINE_MOVED, actor, machine, now=now, before=before, after=after, **to, because=because)
    advance.recompute_open(source.pk, placed.home.pk, now=now, via=actor.via)


def _place_of(machine: Machine, home: AvailabilitySet) -> dict[str, Any]:
    return {"set": home.name, "confined": machine.confined_to is not None}


def _target(set_id: int) -> AvailabilitySet:
    found = AvailabilitySet.objects.select_related("merged_into").filter(pk=set_id).first()
    target = placement.final(require_found(found, "not-found", Reason("set-unknown")))
    if target.kind == PROVISIONAL:
        raise Refused("validation", Reason("move-into-provisional"))
    return target
