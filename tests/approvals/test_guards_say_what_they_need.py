"""Guards: each applies under its condition, and states its reason and what it requires."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.domain.approvals import guards as judging
from fleet.domain.approvals.guards import DecisionFacts, Guard, HoldFacts, MachineFacts, Need, OtherEvent, guards
from fleet.domain.intake import Prepared
from fleet.domain.states import EventStatus, Presence
from tests import words
from tests.factories import NOW
from tests.facts import calm, machine

BLOCKS, REASON, SECOND, NOTE = Need.BLOCKS, Need.REASON, Need.SECOND, Need.NOTE


# Names are compared without case.
CALM = calm(version=3, resources=("VM1",))


def test_a_calm_event_has_nothing_against_it() -> None:
    assert guards(CALM, now=NOW, expected_version=3) == []


def other(set_id: int, *, in_flight: bool = True) -> OtherEvent:
    return OtherEvent(event_id="X", set_id=set_id, set_name="db", in_flight=in_flight)


def with_first(**fields: Any) -> tuple[MachineFacts, ...]:
    return (machine(1, **fields), *CALM.machines[1:])


CASES: list[tuple[dict[str, Any], str, Need]] = [
    ({"decision": DecisionFacts(1, "GRANTED", "olga", NOW)}, "already-decided", BLOCKS),
    ({"stop": judging.StopFacts(by="anna", at=NOW, why="it runs wild")}, "all-stopped", BLOCKS),
    ({"decision": DecisionFacts(1, "PROPOSED", "olga", NOW)}, "already-decided", BLOCKS),
    ({"decision": DecisionFacts(1, "WAITING", "olga", NOW)}, "already-decided", BLOCKS),
    ({"status": EventStatus.ENDED}, "event-not-open", BLOCKS),
    ({"status": EventStatus.STARTED}, "event-not-open", BLOCKS),
    ({"event_type": "SpotRebalanceRecommendation"}, "advice-only", BLOCKS),
    ({"not_before": NOW}, "too-late", BLOCKS),
    ({"version": 4}, "version-changed", BLOCKS),
    ({"machines": (machine(1, Presence.LATE), machine(2, Presence.SILENT))}, "no-live-machine", BLOCKS),
    ({"others": (other(1),)}, "set-in-flight", BLOCKS),
    ({"others": (other(1), other(1))}, "set-in-flight", BLOCKS),
    ({"others": (other(2),)}, "service-in-flight", REASON),
    ({"hold": HoldFacts("olga", NOW, "sale")}, "held", REASON),
    ({"windows": (judging.WindowFacts("nights", "no operator is here"),)}, "no-approval-window", REASON),
    ({"event_type": "Redeploy"}, "lost-for-good", REASON),
    ({"event_type": "Preempt"}, "lost-for-good", REASON),
    ({"event_type": "Terminate"}, "lost-for-good", REASON),
    ({"machines": with_first(prepared=Prepared.FAILED, failed_hook="10-drain")}, "hook-failed", REASON),
    ({"machines": with_first(prepared=Prepared.PREPARING)}, "not-prepared", REASON),
    ({"machines": with_first(prepared=Prepared.PLANNED)}, "not-prepared", REASON),
    ({"step_up": True}, "set-wants-step-up", Need.STEP_UP),
    ({"second_person": True}, "set-wants-second", SECOND),
    ({"event_type": "Reboot", "resources": ("vm1", "vm2", "vm3")}, "last-live-machines", SECOND),
    ({"event_type": "Freeze", "resources": ("vm1", "vm2", "vm3")}, "last-live-machines", NOTE),
    ({"event_type": "Reboot", "machines": (machine(1),)}, "last-live-machines", NOTE),
    ({"event_type": "Teleport"}, "event-type-unknown", NOTE),
    ({"other_open": ("X",), "others": (other(1, in_flight=False),)}, "other-open-event", NOTE),
    ({"other_open": ("X", "Y")}, "other-open-event", NOTE),
    ({"set_kind": "provisional"}, "unnamed-set", NOTE),
]


@pytest.mark.parametrize("event_type", ["Preempt", "Terminate"])
@pytest.mark.parametrize("of_set", [1, 2])
def test_no_event_in_flight_stands_against_one_that_cannot_be_avoided(event_type: str, of_set: int) -> None:
    found = guards(replace(CALM, event_type=event_type, others=(other(of_set),)), now=NOW, expected_version=3)
    assert [guard.code for guard in found] == ["lost-for-good"]


@pytest.mark.parametrize(("changed", "code", "needs"), CASES)
def test_each_guard_applies_alone_and_states_what_it_needs(changed: dict[str, Any], code: str, needs: Need) -> None:
    found = guards(replace(CALM, **changed), now=NOW, expected_version=3)
    assert [(guard.code, guard.needs) for guard in found if guard.code != "event-not-open" or code == guard.code] == [
        (code, needs)
    ]
    assert all(words.sentence(guard.sentence) for guard in found)


def all_guards() -> dict[str, set[Need]]:
    found: dict[str, set[Need]] = {}
    for _, code, needs in CASES:
        found.setdefault(code, set()).add(needs)
    return found


def test_only_another_event_of_the_set_can_be_overridden_and_only_with_a_reason() -> None:
    everything = [
        guard for changed, *_ in CASES for guard in guards(replace(CALM, **changed), now=NOW, expected_version=3)
    ]
    assert {guard.code for guard in everything if guard.overridable} == {"set-in-flight"}
    assert all(guard.takes_reason for guard in everything if guard.overridable)


def test_a_rule_may_accept_what_takes_a_reason_but_no_hold_and_nothing_that_blocks() -> None:
    takes = {code for code, needs in all_guards().items() if Need.REASON in needs}
    assert set(judging.ACCEPTABLE) == takes - {"held"}


def test_guards_are_ordered_by_blocks_second_person_reasons_and_notes() -> None:
    facts = replace(
        CALM,
        event_type="Redeploy",
        second_person=True,
        other_open=("X",),
        others=(other(1),),
        hold=HoldFacts("olga", NOW, "sale"),
    )
    found: list[Guard] = guards(facts, now=NOW, expected_version=1)
    assert [guard.code for guard in found] == [
        "version-changed",
        "set-in-flight",
        "set-wants-second",
        "held",
        "lost-for-good",
        "other-open-event",
    ]


def test_a_machine_that_is_hit_and_not_live_does_not_make_the_others_the_last() -> None:
    machines = (machine(1), machine(2, Presence.SILENT), machine(3))
    facts = replace(CALM, event_type="Reboot", resources=("vm1", "vm2"), machines=machines)
    assert guards(facts, now=NOW) == []
    last = replace(facts, resources=("vm1", "vm3"))
    assert [guard.code for guard in guards(last, now=NOW)] == ["last-live-machines"]
