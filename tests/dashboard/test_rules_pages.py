"""The page of the rules, the form that makes one, and what an event's page says of the rule that decided it."""

import re
from html import unescape

import pytest
from django.test import Client

from fleet.models import NoApprovalWindow, Rule
from fleet.operations.policy import apply
from tests import factories
from tests.dashboard.conftest import codes, logged_in, marks, states, text_of
from tests.plans import queries
from tests.policy.conftest import made

FORM = {
    "name": "Short freezes", "reason": "No user notices.", "action": "approve_now", "event_types": ["Freeze"],
    "max_duration_seconds": "8", "time_zone": "UTC",
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_rule_yet(db: None) -> None:
    Rule.objects.all().delete()


def test_the_page_lists_rules_in_order_with_all_that_people_ask(admin: Client, operator: Client) -> None:
    made(name="first", enabled=False, event_types=["Reboot"])
    made(name="second")
    for client, forms in ((operator, False), (admin, True)):
        answer = client.get("/policy/")
        seen = text_of(answer)
        assert seen.index("first") < seen.index("second")
        assert "short pauses are harmless" in seen and "ada" in seen
        assert ('role="switch"' in answer.content.decode()) is forms
    assert '<a href="/policy/" aria-current="page">' in answer.content.decode()


def test_a_rule_is_tried_before_it_is_saved_and_saved_off(fleet: factories.Fleet, admin: Client) -> None:
    factories.freeze_completed(fleet)
    tried = admin.post("/rules/new/", {**FORM, "name": "", "do": "try"})
    assert "dry-run" in codes(tried) and "approve" in states(tried)
    assert 'value="No user notices."' in tried.content.decode()
    assert not Rule.objects.exists()
    answer = admin.post("/rules/new/", {**FORM, "do": "save"}, follow=True)
    row = Rule.objects.get()
    assert answer.redirect_chain == [(f"/rules/{row.pk}/", 302)]
    assert (row.enabled, row.event_types, row.max_duration_seconds) == (False, ["Freeze"], 8)


def test_form_error_is_at_its_field_with_the_sent_values(admin: Client) -> None:
    for body, field in (
        ({**FORM, "max_duration_seconds": "soon"}, "max_duration_seconds"),
        ({**FORM, "expires_at": "2020-01-01T00:00"}, "expires_at"),
        ({**FORM, "time_zone": "Mars", "do": "try"}, "time_zone"),
    ):
        answer = admin.post("/rules/new/", body)
        assert answer.status_code == 422, body
        wrong = answer.content.decode().split("is-wrong")[1]
        assert f'for="id_{field}"' in wrong.split("</label>")[0], body
        assert 'value="Short freezes"' in answer.content.decode()
    assert not Rule.objects.exists()


def test_a_rule_is_changed_switched_moved_and_deleted_by_plain_forms(admin: Client) -> None:
    first, second = made(name="first", enabled=False), made(name="second")
    address = f"/rules/{first.pk}/"
    assert 'name="name" value="first"' in admin.get(address).content.decode()
    body = {**FORM, "name": "first", "weekdays": ["0", "6"], "from_time": "22:00", "do": "save"}
    assert admin.post(address, body).status_code == 302
    factories.after(first)
    assert (first.weekdays, str(first.from_time), first.max_duration_seconds) == ([0, 6], "22:00:00", 8)
    answer = admin.post(f"{address}switch/", {"enabled": "on"}, follow=True)
    assert answer.redirect_chain == [(f"/policy/#rule-{first.pk}", 302)]
    assert 'aria-checked="true"' in answer.content.decode()
    assert admin.post(f"/rules/{second.pk}/move/", {"to": "up"}).status_code == 302
    assert list(Rule.objects.order_by("position").values_list("name", flat=True)) == ["second", "first"]
    assert admin.post(f"{address}delete/").status_code == 302
    assert admin.get(address).status_code == 404
    assert admin.post(f"{address}switch/", {"enabled": "on"}).status_code == 404


def test_others_may_look_and_try(fleet: factories.Fleet, operator: Client) -> None:
    factories.freeze_completed(fleet)
    row = made(enabled=False)
    address = f"/rules/{row.pk}/"
    seen = operator.get(address)
    assert "<form class" not in seen.content.decode().split("<main")[1].split("</main>")[0]
    assert "dry-run" in codes(operator.get(f"{address}?try=1"))


def test_windows_are_made_and_deleted_on_the_same_page(admin: Client) -> None:
    body = {"name": "Sale", "reason": "The shop is full.", "from_time": "18:00", "weekdays": ["4"], "time_zone": ""}
    answer = admin.post("/no-approval-windows/", body, follow=True)
    assert "Sale" in text_of(answer)
    refused = admin.post("/no-approval-windows/", {"name": "Sale", "reason": ""})
    assert refused.status_code == 422
    row = NoApprovalWindow.objects.get()
    assert "window-" not in " ".join(
        marks(admin.post(f"/no-approval-windows/{row.pk}/delete/", follow=True), "data-key")
    )


def test_the_events_page_shows_the_rule_as_it_was_worded_then(fleet: factories.Fleet, operator: Client) -> None:
    row = made(at=fleet.now, name="Short freezes", max_duration_seconds=8)
    event = factories.announced(fleet)
    assert apply.decide(now=fleet.now) == 1
    Rule.objects.update(max_duration_seconds=1)
    answer = operator.get(f"/events/{event.event_id}/")
    seen = text_of(answer)
    # At the decision, and on the timeline, as it was then.
    assert (seen.count("at most 8 s"), "at most 1 s" in seen) == (2, False)
    assert f'<a href="/rules/{row.pk}/">Short freezes</a>' in answer.content.decode()


def test_the_page_costs_the_same_however_many_rules_there_are(operator: Client) -> None:
    made()
    paths = ("/policy/", f"/rules/{Rule.objects.get().pk}/?try=1")
    before = [len(queries(operator.get, path)) for path in paths]
    for _ in range(4):
        made()
    assert [len(queries(operator.get, path)) for path in paths] == before


def test_advice_opens_a_new_rule_with_its_fields_filled_in_and_saves_nothing(fleet: factories.Fleet) -> None:
    event = factories.announced(fleet, EventSource="Platform")
    client = logged_in(factories.admin())
    page = client.get(f"/events/{event.event_id}/").content.decode()
    found = re.search(r'href="(/rules/new/\?[^"]*)"', page)
    assert found
    before = Rule.objects.count()
    form = client.get(unescape(found[1]))
    shown = form.content.decode()
    assert form.status_code == 200
    assert re.search(r'value="approve_when_prepared"[^>]*checked', shown)
    assert re.search(r'value="Freeze"[^>]*checked', shown)
    assert not re.search(r'value="Reboot"[^>]*checked', shown)
    assert 'name="set_pattern" value="web"' in shown
    assert Rule.objects.count() == before
    # A user who may not create rules gets no link.
    assert "/rules/new/" not in logged_in(factories.operator()).get(f"/events/{event.event_id}/").content.decode()
