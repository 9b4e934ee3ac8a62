"""Hook reports: a machine of another set cannot write to an event by knowing its EventId."""

import pytest

from fleet.models import Entry, Preparation, ScheduledEvent
from tests.approvals.asking import hook
from tests.factories import EVENT, Fleet, seconds, the_event

pytestmark = pytest.mark.django_db


def test_what_its_hooks_say_is_not_about_the_event(fleet: Fleet, event: ScheduledEvent) -> None:
    fleet.enrol("admin", availability_set="db")
    hook(fleet, "admin", EVENT, "end", "failed")
    hook(fleet, "admin", EVENT, "plan", "planned", planned_at=fleet.now + seconds(60))
    assert not Preparation.objects.exists()
    line = Entry.objects.get(kind="hooks_ended")
    assert (line.event_id, line.availability_set_id) == (None, None)
    # Another machine of the set speaks for itself only.
    hook(fleet, "vm1", EVENT, "end", "failed")
    assert Preparation.objects.get().machine.resource_name == "vm1"
    assert Entry.objects.filter(kind="hooks_ended", event=the_event()).count() == 1
