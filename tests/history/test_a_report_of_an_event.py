"""The report of an event can be handed to a post-mortem: on paper, as Markdown, as JSON."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from fleet.audit.reports import event_report
from fleet.operations.approvals import claims
from tests import factories
from tests.dashboard.conftest import codes

pytestmark = pytest.mark.django_db
ADDRESS = f"/reports/events/{factories.EVENT}/"


def verdict(fleet: factories.Fleet) -> Mapping[str, Any]:
    """What the report says that the event came to, before it is worded."""
    found = event_report(event_id=factories.EVENT, now=fleet.now)
    assert found is not None
    return found.verdict.values


def decoded(client: Client) -> dict[str, object]:
    return json.loads(client.get(f"{ADDRESS}report.json").content)


def test_missing_decision_left_event_and_lapsed_approval_differ(fleet: factories.Fleet, operator: Client) -> None:
    factories.announced(fleet)
    assert (verdict(fleet)["decided"], verdict(fleet)["happened"]) == ("nobody", "waits")
    actor = factories.acting(factories.operator(), why="let it run")
    claims.hold(event_id=factories.EVENT, actor=actor, now=fleet.now)
    assert (verdict(fleet)["decided"], verdict(fleet)["by"]) == ("left", "otto")
    claims.lift(event_id=factories.EVENT, actor=actor, now=fleet.now)
    fleet.approve()
    fleet.later(1000)
    fleet.advance()
    assert verdict(fleet)["decided"] == "lapsed"
    assert decoded(operator)["verdict"]


def test_the_report_has_the_picture_the_decisions_and_the_documents_with_their_differences(
    fleet: factories.Fleet, viewer: Client
) -> None:
    factories.freeze_completed(fleet)
    page = viewer.get(ADDRESS)
    body = page.content.decode()
    assert '<svg viewBox="0 0 960' in body
    assert 'class="diff-new"' in body and 'class="diff-old"' in body
    assert {"event-verdict", "step-answered"} <= set(codes(page))
    assert f'href="/events/{factories.EVENT}/"' in body


def test_markdown_is_whole_and_what_strangers_wrote_stays_text(fleet: factories.Fleet, operator: Client) -> None:
    fleet.enrol_set()
    nasty = "# <script>alert(1)</script> **bold** [x](javascript:1) | ```"
    factories.announced(fleet, Description=nasty)
    fleet.approve(comment="```\n# not a heading")
    answer = operator.get(f"{ADDRESS}report.md")
    assert answer["Content-Type"].startswith("text/markdown")
    assert f'filename="{factories.EVENT}.md"' in answer["Content-Disposition"]
    text = answer.content.decode()
    outside = [part for number, part in enumerate(text.split("````")) if number % 2 == 0]
    assert "\\# \\<script\\>alert(1)\\</script\\> \\*\\*bold\\*\\*" in outside[0]
    headings = [line for line in text.splitlines() if line.startswith("# ")]
    assert headings == ["# Freeze of vm1, vm2"]
    for head in ("## Decisions", "## Machines", "## Timeline", "## Raw documents"):
        assert head in text
    fleet.later(5)
    fleet.all_say()
    assert "```diff" in operator.get(f"{ADDRESS}report.md").content.decode()


def test_json_has_everything_in_utc(fleet: factories.Fleet, viewer: Client) -> None:
    factories.freeze_completed(fleet)
    told = decoded(viewer)
    assert set(told) == {
        "verdict", "made_at", "event", "type", "local", "timeline", "timeline_goes_on", "documents"
    }  # fmt: skip
    assert len(told["documents"]) == 3  # type: ignore[arg-type]
    assert str(told["made_at"]).endswith("Z")


def test_an_unknown_event_has_no_report(fleet: factories.Fleet, viewer: Client) -> None:
    for address in (ADDRESS, f"{ADDRESS}report.md", f"{ADDRESS}report.json"):
        assert viewer.get(address).status_code == 404


def test_the_list_leads_to_months_and_to_events_that_ended(fleet: factories.Fleet, viewer: Client) -> None:
    fleet.now -= timedelta(days=40)
    factories.freeze_completed(fleet)
    body = viewer.get("/reports/").content.decode()
    assert f'href="{ADDRESS}"' in body
    now = datetime.now(UTC)
    assert body.count('href="/reports/2') >= 2
    assert f'href="/reports/{now:%Y-%m}/"' in body


def test_an_open_event_has_a_report_and_is_not_among_those_that_ended(fleet: factories.Fleet, viewer: Client) -> None:
    event = factories.announced(fleet)
    assert f'href="{ADDRESS}"' in viewer.get(f"/events/{factories.EVENT}/").content.decode()
    assert f'href="{ADDRESS}"' not in viewer.get("/reports/").content.decode()
    type(event).objects.filter(pk=event.pk).update(drill=True)
    assert verdict(fleet)["drill"] is True
