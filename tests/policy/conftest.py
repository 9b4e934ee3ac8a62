"""Rules at work: a fleet that is walked step by step, with what runs after each commit run, too."""

from typing import Any

import pytest

from fleet.domain.actor import Actor
from fleet.models import NoApprovalWindow, Rule
from fleet.operations import reconcile, wake_up
from fleet.operations.policy import rules
from fleet.operations.policy.rules import RuleRequestSerializer
from tests import factories
from tests.factories import Fleet, acting


@pytest.fixture
def fleet(db: None, django_capture_on_commit_callbacks: Any, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """A fleet whose reports are judged as soon as they are committed, as by a worker that is there; no rule yet."""
    Rule.objects.all().delete()
    fleet = Fleet()
    record = fleet.record

    def judged(*deliveries: Any) -> Any:
        with django_capture_on_commit_callbacks(execute=True):
            return record(*deliveries)

    monkeypatch.setattr(fleet, "record", judged)
    hints_followed(fleet, monkeypatch)
    return fleet


def hints_followed(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hints about events are followed at once and in this process, at the time of the fleet."""
    monkeypatch.setattr(wake_up, "hint_events", lambda pks: reconcile.advance_dependents(pks, now=fleet.now))


def change_rule(rule: Rule, *, at: Any = factories.NOW, by: Actor | None = None, **sent: Any) -> None:
    """Change these fields of a rule."""
    request = RuleRequestSerializer(data=sent)
    rules.change_rule(request, rule_id=rule.pk, actor=by or acting(factories.admin()), now=at)


def window(*, at: Any = factories.NOW, **sent: Any) -> NoApprovalWindow:
    """A no-approval window by ada."""
    request = rules.WindowRequestSerializer(data={"name": "sales", "reason": "the shop is full"} | sent)
    return rules.create_window(request, actor=acting(factories.admin(), via="api", token_name="ci"), now=at)


def made(*, at: Any = factories.NOW, enabled: bool = True, position: int | None = None, **fields: Any) -> Rule:
    """A rule by ada, in force."""
    said = {"name": f"rule {Rule.objects.count() + 1}", "reason": "short pauses are harmless", "action": "approve_now"}
    place = {} if position is None else {"position": position}
    sent = RuleRequestSerializer(data=said | fields | place | {"enabled": enabled})
    return rules.create_rule(sent, actor=acting(factories.admin()), now=at)
