"""How machines may enrol here, as settings and the row of the entrance state it."""

from dataclasses import dataclass

from django.conf import settings

from fleet.domain.machines.entrance import EntrancePolicy, policy_of
from fleet.models.machines import Entrance


@dataclass(frozen=True, slots=True)
class EntranceFacts:
    """`subscriptions` are those whose machines may enrol by an attested document. `stated`: a setting has the policy,
    so nobody can choose another one on a page.
    """

    policy: EntrancePolicy
    subscriptions: frozenset[str]
    stated: bool


def entrance_facts() -> EntranceFacts:
    """One query. What was chosen on a page counts for nothing where a setting states the policy."""
    row = Entrance.objects.order_by("pk").first() or Entrance(policy="")
    stated = bool(settings.ENROLMENT_POLICY)
    subscriptions = settings.ATTESTED_SUBSCRIPTIONS | frozenset([] if stated else row.subscriptions)
    policy = policy_of(
        stated=settings.ENROLMENT_POLICY,
        chosen=row.chosen,
        decided=row.policy,
        subscriptions=bool(settings.ATTESTED_SUBSCRIPTIONS),
    )
    return EntranceFacts(policy, subscriptions, stated)
