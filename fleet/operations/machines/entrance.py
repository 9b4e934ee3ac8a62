"""How machines may enrol: chosen by an administrator, where no setting states it."""

import re
from collections.abc import Sequence
from datetime import datetime

from django.conf import settings
from django.db import transaction

from fleet.domain.actor import Actor
from fleet.domain.machines.entrance import CHOICES, EntrancePolicy
from fleet.domain.people import Right
from fleet.domain.reason import Reason
from fleet.domain.refusal import Refused
from fleet.domain.timeline import EntryKind
from fleet.models import Entrance
from fleet.models.facts.entrance import entrance_facts
from fleet.operations import locks
from fleet.operations.people.rights import require
from fleet.operations.timeline.entries import tell

MOST_SUBSCRIPTIONS = 50
SUBSCRIPTION = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@transaction.atomic
def choose(*, policy: str, subscriptions: Sequence[str], actor: Actor, now: datetime) -> None:
    """From now on machines enrol by this policy, one of `CHOICES`; these subscriptions count in addition to those that
    a setting names. Raises Refused `not-permitted`, `validation`.
    """
    require(actor, Right.ADMINISTER)
    # There may be no row yet.
    locks.take(locks.Lock.ENROLMENTS)
    before = entrance_facts()
    if before.stated:
        raise Refused("validation", Reason("entrance-stated", policy=before.policy.value))
    if policy not in CHOICES:
        raise Refused("validation", Reason("entrance-unknown"))
    named = sorted({one.strip().lower() for one in subscriptions if one.strip()})
    wrong = [one for one in named if not SUBSCRIPTION.fullmatch(one)]
    if wrong or len(named) > MOST_SUBSCRIPTIONS:
        raise Refused("validation", Reason("entrance-subscription", most=MOST_SUBSCRIPTIONS))
    needs_one = policy in (EntrancePolicy.AUTO, EntrancePolicy.ATTESTED)
    if needs_one and not named and not settings.ATTESTED_SUBSCRIPTIONS:
        raise Refused("validation", Reason("entrance-no-subscription"))
    row = Entrance.objects.order_by("pk").first() or Entrance(policy="")
    row.chosen, row.subscriptions = policy, named
    row.save()
    after = entrance_facts()
    if after != before:
        tell(
            EntryKind.ENTRANCE_CHANGED,
            actor,
            at=now,
            before={"policy": before.policy.value, "subscriptions": sorted(before.subscriptions)},
            after={"policy": after.policy.value, "subscriptions": sorted(after.subscriptions)},
        )
