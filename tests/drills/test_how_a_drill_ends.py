"""End of a drill, as a pure function: under every input it ends in time and states its outcome."""

from datetime import timedelta
from typing import Any

from drydock_agent import wire
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.drills import MachineInDrill, Outcome, ending_of
from fleet.domain.states import EventStatus
from fleet.models import Drill, ScheduledEvent
from fleet.wording.drills import in_drill
from tests.factories import NOW
from tests.words import sentence

MACHINES = st.builds(
    MachineInDrill,
    name=st.sampled_from(["vm1", "vm2", "vm3"]),
    gone_reason=st.sampled_from(["", "over", "cancelled", "real-event", "late"]),
    # Like the others, which need not be named.
    hooks_heard=...,
    hooks_over=...,
)
SECONDS = st.integers(min_value=-1000, max_value=1000)
FACTS = st.fixed_dictionaries(
    {
        "status": st.sampled_from(EventStatus),
        "started": st.booleans(),
        "approved": st.booleans(),
        "real_event": st.sampled_from([None, "", "Freeze"]),
        "machines": st.lists(MACHINES, max_size=4).map(tuple),
    }
)


@given(FACTS, SECONDS, SECONDS)
def test_at_its_time_every_drill_is_over_and_before_it_only_for_a_reason(
    facts: dict[str, Any], ended: int, late: int
) -> None:
    status, real_event = facts["status"], facts["real_event"]
    ended_at = NOW + timedelta(seconds=ended) if status is EventStatus.ENDED else None
    event = ScheduledEvent(status=status, started_at=NOW if facts["started"] else None, ended_at=ended_at)
    drill = Drill(event=event, ends_by=NOW - timedelta(seconds=late))
    ending = ending_of(drill, facts["machines"], approved=facts["approved"], real_event=real_event, now=NOW)
    if late >= 0:
        assert ending is not None
    if ending is None:
        return
    assert sentence(ending.reason).endswith(".")
    if real_event is not None:
        assert ending.outcome is Outcome.OVERTAKEN
    if ending.outcome is Outcome.COMPLETED:
        assert facts["approved"] and facts["started"] and status is EventStatus.ENDED
    if late < 0 and real_event is None and any(not machine.left_out for machine in facts["machines"]):
        assert status is EventStatus.ENDED, "nothing else ends it before its time"


def test_a_signature_covers_what_a_drill_asks_for() -> None:
    def text(drill: dict[str, object] | None) -> bytes:
        return wire.order_text(wire.Order(id="1", machine_id="m", event_id="DRILL-1", issued_at=NOW, drill=drill))

    assert len({text(None), text({}), text({"step": "approve"}), text({"step": "start", "at": "x"})}) == 4
    assert text({"a": 1, "b": 2}) == text({"b": 2, "a": 1}), "a reader may keep another order"


@given(st.text())
def test_whatever_is_said_on_its_timeline_begins_with_the_word(text: str) -> None:
    assert in_drill(text).startswith("Drill: ")
    assert "Azure" not in in_drill(text).partition("“")[0]
