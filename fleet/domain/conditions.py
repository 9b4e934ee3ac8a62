"""When an approval goes to Azure: now, or once its condition is met. Pure: the caller carries the step out."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fleet.domain.guards import EventFacts, guards, hit_machines, without
from fleet.domain.states import ApprovalState, EventStatus


class When(StrEnum):
    """`now`; once every machine in `Resources` is `prepared`; at a `time`; when it is its `turn` in a wave."""

    NOW = "now"
    PREPARED = "prepared"
    TIME = "time"
    TURN = "turn"


# Guards that a decision for later need not overcome at once: when it goes, they are asked again.
LATER: dict[When, tuple[str, ...]] = {
    When.PREPARED: ("not-prepared", "hook-failed"),
    When.TURN: ("set-in-flight", "service-in-flight", "not-prepared"),
}


class Wait(StrEnum):
    STAY = "stay"
    GRANT = "grant"
    LAPSE = "lapse"
    VOID = "void"


@dataclass(frozen=True, slots=True)
class Waited:
    """What to do with an approval that waits, and why, in one sentence."""

    do: Wait
    reason: str


def not_ready(facts: EventFacts) -> list[str]:
    """The names in `Resources` that are not prepared; machines without an agent never are."""
    ready = {machine.name.lower() for machine in hit_machines(facts) if machine.ready}
    return [name for name in facts.resources if name.lower() not in ready]


def met(when: When, facts: EventFacts, *, due_at: datetime | None, may_go: bool, now: datetime) -> tuple[bool, str]:
    """Whether the condition is met, with what it waits for or why it is met. `may_go` is the wave's word."""
    if when is When.PREPARED:
        missing = not_ready(facts)
        if missing:
            return False, f"It waits until {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} prepared."
        return True, "Every machine that it hits is prepared."
    if when is When.TIME and due_at is not None:
        return due_at <= now, f"{'It was due' if due_at <= now else 'It waits until'} {due_at:%Y-%m-%d %H:%M:%S} UTC."
    if when is When.TURN:
        return may_go, "It is its turn in the wave." if may_go else "It waits for its turn in the wave."
    return True, "Nothing has to be waited for."


def next_wait(
    *,
    state: ApprovalState,
    when: When,
    facts: EventFacts,
    overcome: frozenset[str],
    due_at: datetime | None,
    may_go: bool,
    now: datetime,
) -> Waited:
    """What becomes of an approval in PROPOSED or WAITING. `overcome` are the codes of guards that were dealt with.

    Before it goes, the guards are asked again: one that nobody has dealt with keeps it waiting until NotBefore.
    """
    if facts.status is EventStatus.STARTED:
        return Waited(Wait.VOID, "The event started before the approval was sent.")
    if facts.status is EventStatus.ENDED:
        return Waited(Wait.VOID, "The event ended before the approval was sent.")
    if facts.not_before is not None and facts.not_before <= now:
        missing = "a second person agreed" if state is ApprovalState.PROPOSED else "its condition was met"
        return Waited(Wait.LAPSE, f"NotBefore came before {missing}.")
    if state is ApprovalState.PROPOSED:
        return Waited(Wait.STAY, "It waits for a second person.")
    is_met, sentence = met(when, facts, due_at=due_at, may_go=may_go, now=now)
    if not is_met:
        return Waited(Wait.STAY, sentence)
    against = without(guards(facts, now=now), overcome | {"already-decided"})
    if against:
        return Waited(Wait.STAY, f"{sentence} But: {against[0].sentence}")
    return Waited(Wait.GRANT, sentence)
