"""What the documentation's sample approves comes as two rules that are off."""

import importlib

import pytest
from django.apps import apps

from fleet.domain.policy.rules import faults, wording
from fleet.models import Rule
from fleet.models.policy import rule_of
from tests.factories import NOW
from tests.words import sentence

migration = importlib.import_module("fleet.migrations.0008_ready_made_rules")


@pytest.mark.django_db
def test_two_sound_rules_are_offered_once_and_off() -> None:
    Rule.objects.all().delete()
    migration.offer(apps, None)
    migration.offer(apps, None)
    user, freezes = map(rule_of, Rule.objects.order_by("position"))
    assert not (user.enabled or freezes.enabled)
    assert sentence(wording(user)) == "Approve now: every event, with source User; even if something is lost for good."
    assert sentence(wording(freezes)) == "Approve now: Freeze events, with an announced duration of 0 s to 8 s."
    assert [*faults(user, now=NOW), *faults(freezes, now=NOW)] == []
    assert set(Rule.objects.values_list("author", flat=True)) == {None}
