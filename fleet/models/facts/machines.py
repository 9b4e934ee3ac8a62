"""Facts about the machines of sets, presence as SQL, and the enrolment policy."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Exists, OuterRef, Q

from fleet.domain.events import MachineBasics
from fleet.domain.intake import NUMBERS, Limits, presence_of
from fleet.domain.machines.enrolment import EntrancePolicy
from fleet.models.events import Sighting
from fleet.models.machines import Entrance, Machine


@dataclass(frozen=True, slots=True)
class EntranceFacts:
    """The enrolment policy in force. `subscriptions`: those whose machines may enrol with an attested document.

    `stated`: a setting fixes the policy, so that it cannot be changed on a page.
    """

    policy: EntrancePolicy
    subscriptions: frozenset[str]
    stated: bool


def entrance_facts() -> EntranceFacts:
    """Return the enrolment policy in force. A setting takes precedence over a choice on a page. Runs one query.

    Without either, installations from 0.1.0 (whose row has the policy `token`) require a join token. New ones use
    attested documents if a setting names subscriptions, else join tokens.
    """
    row = Entrance.objects.order_by("pk").first() or Entrance(policy="")
    stated = bool(settings.ENROLMENT_POLICY)
    subscriptions = settings.ATTESTED_SUBSCRIPTIONS | frozenset([] if stated else row.subscriptions)
    policy = settings.ENROLMENT_POLICY or row.chosen
    if not policy and row.policy == EntrancePolicy.TOKEN:
        policy = EntrancePolicy.TOKEN
    unset = EntrancePolicy.AUTO if settings.ATTESTED_SUBSCRIPTIONS else EntrancePolicy.JOIN
    return EntranceFacts(EntrancePolicy(policy or unset), subscriptions, stated)


def presence_limits() -> Limits:
    """Return the ages at which a machine becomes late, silent and gone, from the settings."""
    return Limits(
        live=settings.MACHINE_LIVE_SECONDS, late=settings.MACHINE_LATE_SECONDS, gone=settings.MACHINE_GONE_SECONDS
    )


# The machines of sets as facts read them: plain rows, since thousands are read at a time.


def not_counted_since(
    revoked_at: datetime | None, discounted_at: datetime | None, heard_at: datetime | None
) -> datetime | None:
    """Return since when the reports of a machine do not count: since it was revoked, or was discounted while it is
    silent. None if they count.
    """
    if revoked_at is None and discounted_at is not None and (heard_at is None or heard_at <= discounted_at):
        return discounted_at
    return revoked_at


COLUMNS = (
    "availability_set_id", "id", "resource_name", "fault_domain", "update_domain", "revoked_at", "discounted_at",
    "presence__last_heard_at", "presence__last_poll_at", "latest_document__at",
)  # fmt: skip


def machine_rows(
    set_ids: Collection[int], *, now: datetime, listers_of: Collection[int] = ()
) -> dict[int, list[MachineBasics]]:
    """Return the machines of these sets, by set (row id), sorted by name. Runs one query.

    Decommissioned ones are among them only if they ever listed one of the events `listers_of` (row ids).
    """
    found: dict[int, list[MachineBasics]] = defaultdict(list)
    limits = presence_limits()
    rows = Machine.every.filter(availability_set_id__any=set_ids).order_by("resource_name", "id")
    listed = Exists(Sighting.objects.filter(machine=OuterRef("pk"), event_id__any=list(listers_of)))
    rows = rows.filter(Q(decommissioned_at=None) | listed if listers_of else Q(decommissioned_at=None))
    for set_id, pk, name, fault_domain, update_domain, *times in rows.values_list(*COLUMNS):
        revoked_at, discounted_at, heard_at, told_at, document_at = times
        revoked_at = not_counted_since(revoked_at, discounted_at, heard_at)
        polled_at = max((at for at in (told_at, document_at) if at is not None), default=None)
        presence = presence_of(heard_at, polled_at, revoked=revoked_at is not None, now=now, limits=limits)
        found[set_id].append(
            MachineBasics(pk, name, presence, fault_domain, update_domain, revoked_at, heard_at, polled_at)
        )
    return found


def names_and_sets(machine_ids: Collection[int]) -> dict[int, tuple[str, int]]:
    """Return name and set (row id) of these machines, by machine (row id). Runs one query; none without machines."""
    rows = Machine.every.filter(pk__any=machine_ids).values_list("pk", "resource_name", "availability_set_id")
    return {pk: (name, set_id) for pk, name, set_id in rows} if machine_ids else {}


# How present machines are, in SQL, as `fleet.domain.intake.presence_of` has it.

# The number of a presence row; no machine is revoked here, since revocation is an action. Its parameters are
# `presence_values`.
PRESENCE = """
    CASE WHEN last_heard_at IS NULL THEN %(expected_is)s
         WHEN last_poll_at IS NULL AND last_heard_at >= %(gone)s THEN %(silent_is)s
         WHEN last_poll_at IS NULL THEN %(gone_is)s
         WHEN LEAST(last_heard_at, last_poll_at) > %(live)s THEN %(live_is)s
         WHEN LEAST(last_heard_at, last_poll_at) > %(late)s THEN %(late_is)s
         WHEN LEAST(last_heard_at, last_poll_at) >= %(gone)s THEN %(silent_is)s
         ELSE %(gone_is)s END
"""


def presence_values(*, now: datetime) -> dict[str, Any]:
    """Return the parameters of the SQL expression `PRESENCE`."""
    limits = presence_limits()
    at = {name: now - timedelta(seconds=getattr(limits, name)) for name in ("live", "late", "gone")}
    return {**at, **{f"{state.value}_is": number for state, number in NUMBERS.items()}}
