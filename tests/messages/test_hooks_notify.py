"""Notifications about hooks: a failed prepare, a failed recover, and a machine that serves again."""

import pytest

from fleet.models import ScheduledEvent
from fleet.notifications import dry_run
from fleet.notifications.models import Message, Route
from tests.approvals.asking import hook
from tests.factories import EVENT, Fleet, announced
from tests.messages.sent import channel
from tests.messages.telling import news
from tests.messages.walk import only, routed, told

pytestmark = pytest.mark.django_db(transaction=True)
MOMENTS = ["prepare.failed", "recover.failed", "machine.serves_again"]


@pytest.fixture
def fleet() -> Fleet:
    """An event of vm1 and vm2, a channel that wants to know about hooks, and a router that has run."""
    fleet = Fleet()
    announced(fleet)
    routed(fleet)
    channel("ops")
    only(moments=MOMENTS)
    return fleet


def ended(fleet: Fleet, name: str = "vm1", *, phase: str, outcome: str) -> list[str]:
    """A phase of hooks ends on a machine. Return the types of the new messages."""
    known = Message.objects.count()
    hook(fleet, name, EVENT, "hook", outcome, phase=phase, hook="10-a")
    hook(fleet, name, EVENT, "end", outcome, phase=phase)
    routed(fleet)
    return [moment for moment, _ in told()[known:]]


@pytest.mark.parametrize(
    ("phase", "outcome", "moments"),
    [
        ("prepare", "succeeded", []),
        ("prepare", "nothing", []),
        ("prepare", "failed", ["prepare.failed"]),
        ("prepare", "timed-out", ["prepare.failed"]),
        ("recover", "succeeded", ["machine.serves_again"]),
        ("recover", "failed", ["recover.failed"]),
        ("recover", "timed-out", ["recover.failed"]),
        ("recover", "anything", []),
    ],
)
def test_the_end_of_a_phase_notifies_by_its_outcome(fleet: Fleet, phase: str, outcome: str, moments: list[str]) -> None:
    assert ended(fleet, phase=phase, outcome=outcome) == moments
    subjects = set(Message.objects.values_list("subject", flat=True))
    assert subjects == ({f"hooks:{fleet.agents['vm1'].machine.pk}"} if moments else set())


def test_a_machine_of_another_set_notifies_of_nothing_and_a_drill_is_marked(fleet: Fleet) -> None:
    fleet.enrol("admin", availability_set="db")
    assert ended(fleet, "admin", phase="prepare", outcome="failed") == []
    ScheduledEvent.objects.update(drill=True)
    ended(fleet, phase="recover", outcome="failed")
    assert Message.objects.get().drill


def test_after_the_event_only_its_preparation_is_no_longer_news(fleet: Fleet) -> None:
    ended(fleet, phase="prepare", outcome="failed")
    fleet.later(5)
    fleet.all_say()
    ended(fleet, phase="recover", outcome="failed")
    ended(fleet, "vm2", phase="recover", outcome="succeeded")
    stale = [news(message, now=fleet.now).stale for message in Message.objects.order_by("pk")]
    assert stale == ["event-over", "", ""]
    assert dry_run.dry_run(route=Route(moments=MOMENTS), now=fleet.now).messages == 3
