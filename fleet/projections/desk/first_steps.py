"""The first steps of a new installation: how far it is, until it has seen its first event, real or rehearsed."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from fleet.domain.sets import PROVISIONAL
from fleet.domain.states import Presence
from fleet.models import Admission, AvailabilitySet, Channel, Drill, JoinToken, Machine, ScheduledEvent
from fleet.models.facts.entrance import EntranceFacts, entrance_facts
from fleet.models.facts.events import presence_limits
from fleet.projections.machines import MachineRow, RefusedEnrolmentRow, machine_rows, refused_enrolments, with_presence
from fleet.projections.refs import SetRef, set_ref
from fleet.projections.sight import seen

NEWEST = 5
MOST_REFUSED = 5


@dataclass(frozen=True, slots=True)
class FirstSteps:
    """`agents` are the newest. `unnamed` is a set that somebody has to name, beside one of its machines;
    `told`: messages go out to somebody. `rehearsable` is a set with a live agent; `drill` the newest drill's row id.
    `waiting` machines wait for admission; `refused` are enrolments that were refused lately.
    """

    token: bool
    agents: tuple[MachineRow, ...]
    unnamed: tuple[SetRef, str] | None
    told: bool
    rehearsable: SetRef | None
    drill: int | None
    entrance: EntranceFacts
    waiting: int
    refused: tuple[RefusedEnrolmentRow, ...]

    @property
    def live(self) -> bool:
        return any(agent.presence is Presence.LIVE for agent in self.agents)

    @property
    def subscriptions(self) -> str:
        return ", ".join(sorted(self.entrance.subscriptions))

    @property
    def named(self) -> bool:
        return bool(self.agents) and self.unnamed is None

    @property
    def done(self) -> int:
        """How many of the five steps are done."""
        return sum([self.token or bool(self.agents), self.live, self.named, self.told, self.drill is not None])


def is_new() -> bool:
    """Whether no event was ever seen here, not even in a drill. One query."""
    return not seen(ScheduledEvent).exists()


def first_steps(*, now: datetime) -> FirstSteps:
    """Eight queries."""
    valid = seen(JoinToken).filter(revoked_at=None, expires_at__gt=now)
    newest = list(with_presence().filter(revoked_at=None).order_by("-pk")[:NEWEST])
    agents = machine_rows(newest, now=now, limits=presence_limits())
    return FirstSteps(
        token=valid.exists(),
        agents=agents,
        unnamed=_unnamed(),
        told=seen(Channel).filter(owner=None, enabled=True, deleted_at=None).exists(),
        rehearsable=_rehearsable(newest, agents),
        entrance=entrance_facts(),
        waiting=seen(Admission).filter(admitted_at=None).count(),
        refused=refused_enrolments(most=MOST_REFUSED),
        drill=seen(Drill).order_by("-pk").values_list("pk", flat=True).first(),
    )


def _unnamed() -> tuple[SetRef, str] | None:
    rows = seen(Machine).filter(availability_set__kind=PROVISIONAL, revoked_at=None).select_related("availability_set")
    found = rows.defer("compute").order_by("pk").first()
    return (set_ref(found.availability_set), found.resource_name) if found else None


def _rehearsable(newest: Sequence[Machine], agents: Sequence[MachineRow]) -> SetRef | None:
    live = {agent.set.id for agent in agents if agent.presence is Presence.LIVE}
    sets: list[AvailabilitySet] = [machine.availability_set for machine in newest]
    return next((set_ref(home) for home in sets if home.pk in live), None)
