"""Facts from which blind spots are found, and the blind spots that send notifications when they begin and end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from fleet.domain.reasons import Reason
from fleet.domain.states import Presence
from fleet.domain.timeline import EntryKind

# The problems of the metadata service that are none: not stated, and a good answer.
NO_PROBLEM = ("", "ok")
# The problem of an agent that cannot store what it polls (`drydock_agent.wire`), which is a blind spot of its own.
SPOOL_UNWRITABLE = "spool-unwritable"


def code_of(problem: str) -> str:
    """Return the code of the blind spot of agents with this problem."""
    return problem if problem == SPOOL_UNWRITABLE else "metadata-unavailable"


class Confidence(StrEnum):
    """How certain a blind spot is."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"
    UNKNOWN = "cannot be told from here"


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """Facts about one enrolled machine that is not revoked. `clock_offset`: seconds by which the machine's clock is
    ahead.
    """

    machine_id: int
    name: str
    presence: Presence
    last_heard_at: datetime | None
    last_poll_at: datetime | None
    enrolled_at: datetime
    clock_offset: float | None
    agent_version: str
    protocol: int
    zone: str
    size: str
    # A stated set to which it is not confined.
    outside: Reason | None = None
    # The stated name while another machine of its set has it; else empty.
    called: str = ""
    # The set of an open event that it lists without being of that set: its name, empty where it has none, and its row
    # id; None without one.
    lists_of: str | None = None
    lists_of_set: int | None = None
    # The agent's handling of signatures of orders; empty until reported.
    signatures: str = ""
    # Since when it reminds of a document that is not here; and how many spools it began within a day.
    lacking_since: datetime | None = None
    spools: int = 0
    # While it is heard: why it gets no document, as `drydock_agent.wire.metadata_text` names it; else empty.
    poll_problem: str = ""
    # Reconciling has not noted yet that it is as present as it is.
    turning: bool = False

    @property
    def live(self) -> bool:
        return self.presence is Presence.LIVE


@dataclass(frozen=True, slots=True)
class SetFacts:
    """Facts about one set and its machines. `missing`: machines in the inventory without an agent, as (name, zone,
    size).
    """

    set_id: int
    kind: str
    upgrade_notices: bool | None
    agents: tuple[AgentFacts, ...]
    missing: tuple[tuple[str, str, str], ...] = ()
    # Until then returning machines are admitted automatically.
    admits_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class BlindSpot:
    """One blind spot.

    `machine_ids`: affected machines with an agent. `names`: names of affected machines; they may be fewer than `count`.
    `values`: further values of the sentences. `part` distinguishes blind spots with the same code in one set.
    `other_set`: row id of another set that is mentioned.
    """

    code: str
    certainty: Confidence
    set_id: int | None
    machine_ids: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    cache_id: int | None = None
    event_id: str = ""
    count: int = 0
    part: str = ""
    other_set: int | None = None

    @property
    def title(self) -> Reason:
        return Reason(f"{self.code}.title")

    @property
    def reason(self) -> Reason:
        return Reason(f"{self.code}.reason", names=self._all_names, **self.values)

    @property
    def advice(self) -> Reason:
        """What an administrator can do about the blind spot, as a reason."""
        return Reason(f"{self.code}.advice", names=self._all_names, **self.values)

    @property
    def _all_names(self) -> tuple[str, ...]:
        # Those that are not here are counted only.
        return (*self.names, *("",) * (self.count - len(self.names)))


def of_agents(
    each: SetFacts,
    agents: Sequence[AgentFacts],
    code: str,
    certainty: Confidence = Confidence.CERTAIN,
    *,
    part: str = "",
    other_set: int | None = None,
    **values: Any,
) -> BlindSpot:
    return BlindSpot(
        code=code,
        certainty=certainty,
        set_id=each.set_id,
        machine_ids=tuple(agent.machine_id for agent in agents),
        names=tuple(agent.name for agent in agents),
        values=values,
        count=len(agents),
        part=part,
        other_set=other_set,
    )


# Notifications of blind spots: when one begins, and when it ends. Pure.

# A blind spot found by one check only is not notified: machines restart, networks fail briefly.
SETTLES = timedelta(seconds=30)
# More that begin or end together are notified as one.
MOST_ALONE = 5
# This many names are stored with a notification.
MOST_NAMES = 20

STORAGE = ("not-sealed", "database-large", "partition-late", "transactions-run-out", "archive-fails")
COVERAGE = ("near-switch-off", "document-lacking", "wrong-clock", "waits-for-admission", "set-aside", "era-not-begun")
# The entry of each, by its code.
OPENING: Mapping[str, EntryKind] = {
    "set-unwatched": EntryKind.SET_UNWATCHED,
    "agent-silent": EntryKind.SOURCE_QUIET,
    "cache-unheard": EntryKind.SOURCE_QUIET,
    "audit-failed": EntryKind.AUDIT_FAILED,
    **dict.fromkeys((*COVERAGE, "reports-quarantined", "clocks-wrong"), EntryKind.COVERAGE_OPENED),
    **dict.fromkeys(STORAGE, EntryKind.STORAGE_TROUBLE),
}
# One check finds these reliably.
AT_ONCE = frozenset({"audit-failed", "clocks-wrong", "reports-quarantined", *STORAGE})
