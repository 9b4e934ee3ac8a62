"""What the documentation's sample approves comes as two rules that are off."""

import importlib

import pytest
from django.apps import apps

from fleet.domain.rule_faults import faults
from fleet.domain.rules import wording
from fleet.models import Rule
from fleet.models.standing import standing_of
from tests.factories import NOW

migration = importlib.import_module("fleet.migrations.0008_ready_made_rules")


@pytest.mark.django_db
def test_two_sound_rules_are_offered_once_and_off() -> None:
    Rule.objects.all().delete()
    migration.offer(apps, None)
    migration.offer(apps, None)
    user, freezes = map(standing_of, Rule.objects.order_by("position"))
    assert not (user.enabled or freezes.enabled)
    assert wording(user) == "Approve now: every event, with source User; even if something is lost for good."
    assert wording(freezes) == "Approve now: Freeze events, announced to last 0 s to 8 s."
    assert faults(user, now=NOW) == faults(freezes, now=NOW) == []
    assert set(Rule.objects.values_list("author", flat=True)) == {None}
