"""Notification severity: one table derives it from the event's loss and the remaining machines."""

from datetime import timedelta

import pytest

from fleet.domain.approvals.guards import EventFacts, MachineFacts, OtherEvent
from fleet.domain.event_types import Severity
from fleet.domain.reasons import Refused
from fleet.domain.states import EventStatus, Presence
from fleet.domain.timeline import EntryKind
from fleet.models.facts.events import load_facts
from fleet.notifications.notification_types import NotificationType, cache_severity, severity, stay_up, type_of_entry
from fleet.projections.events import detail
from tests.factories import NOW, Fleet, acting, admin, announced, change_set, listing, the_event, the_set

WHOLE = tuple(f"vm{number}" for number in range(1, 7))


def facts(event_type: str = "Reboot", *, silent: int = 0, **fields: object) -> EventFacts:
    """Six machines of which the last ones are silent; an event names vm1 and vm2."""
    machines = tuple(
        MachineFacts(n, f"vm{n}", Presence.SILENT if n > 6 - silent else Presence.LIVE) for n in range(1, 7)
    )
    known = {"version": 1, "resources": ("VM1", "vm2"), "set_id": 1, "set_kind": "availability_set", "set_name": "web"}
    stated = {"event_id": "E", "status": EventStatus.SCHEDULED, "not_before": NOW + timedelta(minutes=15)}
    return EventFacts(**{**stated, **known, "event_type": event_type, "machines": machines, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("event_type", "fields", "expected"),
    [
        ("Freeze", {}, "info"),
        ("Reboot", {}, "warning"),
        ("Redeploy", {}, "warning"),
        ("Preempt", {}, "critical"),
        ("Terminate", {}, "critical"),
        ("Compress", {}, "warning"),
        ("", {}, "warning"),
        # An event that a user started: a restart is expected, a lost machine is not.
        ("Reboot", {"source": "User"}, "info"),
        ("Redeploy", {"source": "User"}, "info"),
        ("Terminate", {"source": "User"}, "critical"),
        ("Compress", {"source": "User"}, "warning"),
        # Four of six stay up.
        ("Freeze", {"min_live": 4}, "info"),
        ("Freeze", {"min_live": 5}, "critical"),
        ("Reboot", {"min_live": 5, "source": "User"}, "critical"),
        # One is silent: it holds nothing up.
        ("Reboot", {"min_live": 4, "silent": 1}, "critical"),
        # Another event has taken one of the set; what hits another set, or has not begun, has not.
        ("Reboot", {"min_live": 4, "others": (OtherEvent("O", 1, "web", True, taken=("vm3",)),)}, "critical"),
        ("Reboot", {"min_live": 4, "others": (OtherEvent("O", 2, "db", True, taken=("vm3",)),)}, "warning"),
        ("Reboot", {"min_live": 4, "others": (OtherEvent("O", 1, "web", True),)}, "warning"),
        # The whole set goes down, even where it requires nothing: but for a pause, or where a user wanted it.
        ("Reboot", {"resources": WHOLE}, "critical"),
        ("Redeploy", {"resources": WHOLE, "silent": 3}, "critical"),
        ("Compress", {"resources": WHOLE}, "critical"),
        ("Reboot", {"resources": WHOLE[:4], "others": (OtherEvent("O", 1, "web", True, taken=WHOLE[4:]),)}, "critical"),
        ("Freeze", {"resources": WHOLE}, "info"),
        ("Reboot", {"resources": WHOLE, "source": "User"}, "info"),
        ("Reboot", {"resources": ("vm1",), "machines": (MachineFacts(1, "vm1", Presence.LIVE),)}, "warning"),
        # Who heard that it came hears under the same that it is over.
        ("Freeze", {"min_live": 5, "status": EventStatus.ENDED}, "critical"),
    ],
)
def test_event_severity_follows_loss_and_remaining_machines(
    event_type: str, fields: dict[str, object], expected: str
) -> None:
    assert severity(facts(event_type, **fields)) == expected  # type: ignore[arg-type]


def test_cache_severity_follows_the_tier() -> None:
    tiers = ("standard", "premium", "basic", "", "ultra")
    assert [cache_severity(tier) for tier in tiers] == [Severity.INFO] * 2 + [Severity.WARNING] * 3


def test_end_of_a_phase_of_hooks_notifies_by_its_outcome() -> None:
    failed = ("failed", "timed-out")
    for phase, outcome, moment in (
        *(("prepare", outcome, None) for outcome in ("succeeded", "nothing")),
        *(("prepare", outcome, NotificationType.PREPARE_FAILED) for outcome in failed),
        *(("recover", outcome, NotificationType.RECOVER_FAILED) for outcome in failed),
        ("recover", "succeeded", NotificationType.SERVES_AGAIN),
        ("recover", "anything", None),
    ):
        assert type_of_entry(EntryKind.HOOKS_ENDED, {"phase": phase, "outcome": outcome}) is moment


@pytest.mark.django_db
def test_remaining_machines_agree_with_the_card(fleet: Fleet) -> None:
    announced(fleet, resources=("vm1", "vm2"))
    other = "D" + the_event().event_id[1:]
    for remaining, needed, how_bad in ((4, 4, "info"), (3, 5, "critical")):
        change_set(set_id=the_set().pk, actor=acting(admin()), now=fleet.now, min_live=needed)
        known = load_facts([the_event().pk], now=fleet.now)[the_event().pk]
        shown = detail.event_detail(event_id=the_event().event_id, now=fleet.now)
        assert shown is not None
        assert (stay_up(known), shown.blast.stay_up, shown.blast.min_live) == (remaining, remaining, needed)
        assert severity(known) == how_bad
        fleet.later(1)
        fleet.all_say(listing(resources=("vm1", "vm2")), listing(other, status="Started", resources=("VM3",)))
    for impossible in (-1, 1001, 10**12):
        with pytest.raises(Refused) as error:
            change_set(set_id=the_set().pk, actor=acting(admin()), now=fleet.now, min_live=impossible)
        assert [each["field"] for each in error.value.details["errors"]] == ["min_live"]
