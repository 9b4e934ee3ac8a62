"""Wave logic, without a database: it never runs two events at once, and always ends with a stated reason."""

import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.states import ApprovalState, EventStatus
from fleet.domain.waves import Member, Phase, ReturnFacts, Signal, WaveState, judge, member_progress
from tests.words import sentence

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
RETURN_TIMEOUT = timedelta(minutes=10)
TICK = timedelta(seconds=30)
FLYING = (ApprovalState.GRANTED, ApprovalState.RELAYING, ApprovalState.ACCEPTED)


def member(turn: int = 1, **fields: object) -> Member:
    known = Member(
        approval_id=100 + turn, turn=turn, event_id=f"EVENT-{turn}", event_type="Reboot", resources=(f"vm{turn}",),
        set_id=1, set_kind="availability_set", set_name="web", approval_state=ApprovalState.WAITING,
        event_status=EventStatus.SCHEDULED, machines=(ReturnFacts(f"vm{turn}", back=True),), last_heard_at=NOW,
    )  # fmt: skip
    return replace(known, **fields)  # type: ignore[arg-type]


@dataclass
class Plain:
    """A plain model of one event on its way: it knows nothing of waves but when it may begin."""

    member: Member
    fault_domain: int
    # Seconds in each stage, and how it goes astray.
    accepted_after: int
    started_after: int
    ended_after: int
    back_after: int | None
    outcome: str
    began_at: datetime | None = None

    @property
    def in_flight(self) -> bool:
        """Approved and not through: Azure may be working on it, or its machine is down."""
        m = self.member
        return m.approval_state in FLYING or (
            m.approval_state is ApprovalState.CONFIRMED
            and (m.event_status is not EventStatus.ENDED or not all(one.back for one in m.machines))
        )

    def tick(self, now: datetime) -> None:
        m = self.member
        heard = now if self.outcome != "all silent" or self.began_at is None else m.last_heard_at
        m = replace(m, last_heard_at=heard)
        if self.began_at is None:
            self.member = self._without_us(m, now)
            return
        past = (now - self.began_at).total_seconds()
        down = (ReturnFacts(m.resources[0], back=False),)
        if self.outcome == "refused" and m.approval_state in FLYING:
            m = replace(m, approval_state=ApprovalState.REFUSED, reason="Azure refused.")
        elif m.approval_state in FLYING and past >= self.accepted_after:
            m = replace(m, approval_state=ApprovalState.ACCEPTED)
            if past >= self.started_after:
                m = replace(m, approval_state=ApprovalState.CONFIRMED, started=True, machines=down)
                m = replace(m, event_status=EventStatus.STARTED)
        elif m.event_status is EventStatus.STARTED and past >= self.ended_after and self.outcome != "all silent":
            m = replace(m, event_status=EventStatus.ENDED, ended_at=now)
        elif m.ended_at and self.back_after is not None and (now - m.ended_at).total_seconds() >= self.back_after:
            m = replace(m, machines=(ReturnFacts(m.resources[0], back=True),))
        self.member = m

    def _without_us(self, m: Member, now: datetime) -> Member:
        if m.approval_state is not ApprovalState.WAITING:
            return m
        if m.not_before is not None and m.not_before <= now:
            # Azure cancels it in this model, since no wave can separate events that Azure starts on its own.
            reason = "NotBefore came before its condition was met."
            return replace(m, approval_state=ApprovalState.LAPSED, reason=reason)
        if self.outcome == "withdrawn":
            return replace(m, approval_state=ApprovalState.WITHDRAWN, reason="otto withdrew it.")
        if self.outcome == "cancelled":
            return replace(m, approval_state=ApprovalState.VOID, event_status=EventStatus.ENDED, ended_at=now)
        return m


@given(st.integers(0, 2**32), st.integers(2, 7))
def test_never_two_fault_domains_of_a_set_are_in_flight_and_it_ends_with_a_reason(seed: int, count: int) -> None:
    dice = random.Random(seed)
    fates = ["well"] * 6 + ["withdrawn", "cancelled", "refused", "all silent"]
    events = []
    for turn in range(1, count + 1):
        accepted = dice.choice([0, 30, 300])
        due = NOW + timedelta(seconds=dice.randrange(60, 9000))
        started = accepted + dice.choice([0, 60, 900])
        ended, back = started + dice.choice([0, 60, 1200]), dice.choice([0, 0, 30, 500, None])
        one = member(turn, set_id=dice.choice([1, 1, 2]), not_before=due)
        events.append(Plain(one, dice.randrange(3), accepted, started, ended, back, dice.choice(fates)))
    now, state, reason = NOW, WaveState.RUNNING, ""
    began: list[int] = []
    for _ in range(2000):
        found = judge([event.member for event in events], now=now, return_timeout=RETURN_TIMEOUT)
        assert found.reason
        for event in events:
            assert member_progress(event.member, [e.member for e in events], found, running=True)
        if found.do is Signal.GO:
            [turn] = [event for event in events if event.member.approval_id == found.approval_id]
            assert turn.member.phase is Phase.WAITS
            began.append(turn.member.turn)
            turn.member = replace(turn.member, approval_state=ApprovalState.GRANTED)
            turn.began_at = now
        elif found.do in (Signal.STOP, Signal.FINISH):
            state, reason = (WaveState.STOPPED if found.do is Signal.STOP else WaveState.DONE), sentence(found.reason)
            break
        for set_id in {event.member.set_id for event in events}:
            flying = {e.fault_domain for e in events if e.in_flight and e.member.set_id == set_id}
            assert len(flying) <= 1
        assert sum(event.in_flight for event in events) <= 1, "strictly one after the other"
        now += TICK
        for event in events:
            event.tick(now)
            if event.member.approval_state is ApprovalState.LAPSED:
                event.member = replace(event.member, event_status=EventStatus.ENDED, ended_at=now)
    assert state is not WaveState.RUNNING and reason, "it always ends"
    assert began == sorted(began) and len(began) == len(set(began))
    lost = [e for e in events if e.in_flight and e.began_at is not None]
    assert bool(lost) == (state is WaveState.STOPPED)
    if state is WaveState.STOPPED:
        assert not any(event.member.phase is Phase.BACK and event is lost[0] for event in events)
    else:
        assert not any(event.member.phase is Phase.WAITS for event in events)


def said(*members: Member, at: datetime = NOW) -> tuple[Signal, str]:
    found = judge(members, now=at, return_timeout=RETURN_TIMEOUT)
    return found.do, found.reason.code


ENDED = member(approval_state=ApprovalState.CONFIRMED, event_status=EventStatus.ENDED, started=True, ended_at=NOW)


def test_the_next_waits_until_the_machines_of_the_one_before_are_live_again() -> None:
    gone = replace(ENDED, machines=(ReturnFacts("vm1", back=False),))
    assert said(gone, member(2)) == (Signal.STAY, "wave-waits-for-return")
    assert said(gone, member(2), at=NOW + RETURN_TIMEOUT) == (Signal.STOP, "wave-not-back")
    assert said(ENDED, member(2)) == (Signal.GO, "wave-turn")
    # Machines that an event deletes are not waited for.
    assert said(replace(ENDED, event_type="Terminate", machines=()), member(2))[0] is Signal.GO


def test_what_lapsed_is_waited_for_because_azure_may_start_it_any_moment() -> None:
    lapsed = member(approval_state=ApprovalState.LAPSED, reason="NotBefore came before its condition was met.")
    assert said(lapsed, member(2)) == (Signal.STAY, "wave-waits-for-azure")
    ended = replace(lapsed, event_status=EventStatus.ENDED, ended_at=NOW)
    assert said(ended, member(2))[0] is Signal.GO
    assert said(lapsed) == (Signal.FINISH, "wave-summary")
    (left_out,) = judge([lapsed], now=NOW, return_timeout=RETURN_TIMEOUT).reason.values["left_out"]
    assert left_out["why"] == "NotBefore came before its condition was met."


def test_wave_without_live_machines_stops() -> None:
    silent = replace(ENDED, event_status=EventStatus.STARTED, ended_at=None, last_heard_at=NOW - RETURN_TIMEOUT)
    assert said(silent, member(2)) == (Signal.STOP, "wave-unheard")
