"""Kinds of actors: each has a kind next to its name, so a machine named like a person is shown as a machine."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from drydock_agent import wire

from fleet.domain.actor import ACTOR_KIND, AZURE, COMMAND_LINE, ActorKind, recorded_kind
from fleet.domain.actor import machine as machine_actor
from fleet.domain.timeline import EntryKind
from fleet.domain.times import iso
from fleet.gateway.decoder import read_batch
from fleet.models import Entry
from fleet.operations.timeline.entries import tell
from fleet.projections.timeline.entries import rows_of
from tests import accounts
from tests.api.conftest import caller
from tests.approvals.asking import hook
from tests.dashboard.conftest import logged_in, text_of
from tests.factories import EVENT, Fleet, admin, announced, open_order, the_event, viewer
from tests.words import text

pytestmark = pytest.mark.django_db


def test_a_machine_called_as_a_person_is_shown_as_a_machine() -> None:
    fleet = Fleet()
    fleet.enrol("admin")
    announced(fleet, resources=("admin",))
    hook(fleet, "admin", EVENT, "end", "succeeded")
    line = Entry.objects.get(kind="hooks_ended")
    assert text(line) == "Machine admin: prepare succeeded."
    told = caller(viewer()).get(f"events/{EVENT}/timeline/").json()["results"]
    (said,) = [row for row in told if row["kind"] == "hooks_ended"]
    assert (said["actor"], said["actor_kind"], said["text"]) == ("admin", "machine", text(line))
    page = text_of(logged_in(viewer("vic")).get(f"/events/{EVENT}/"))
    assert "Machine admin: prepare succeeded." in page
    assert " admin: prepare" not in page.replace("Machine admin: prepare", "")
    enrolled = Entry.objects.get(kind="machine_enrolled")
    assert text(enrolled) == "Machine admin enrolled."
    # Nothing that a machine did is among what people did, whatever it is called.
    assert caller(admin()).get("audit/?person=admin").json()["results"] == []


def test_a_machine_that_calls_itself_azure_is_not_azure() -> None:
    fleet = Fleet()
    announced(fleet)
    with transaction.atomic():
        for actor in (AZURE, machine_actor(AZURE.name)):
            tell(EntryKind.EVENT_REOPENED, actor, at=fleet.now, event_id=the_event().pk)
    said = Entry.objects.filter(kind="event_reopened").order_by("pk").values_list("actor", "data")
    # What name and way tell already is not stated again.
    assert list(said) == [("Azure", {}), ("Azure", {ACTOR_KIND: "machine"})]
    kinds = [row.actor_kind for row in rows_of(Entry.objects.filter(kind="event_reopened").order_by("pk"))]
    assert kinds == [ActorKind.AZURE, ActorKind.MACHINE]


def test_entries_of_the_release_before_tell_the_kind_by_the_way_they_came() -> None:
    assert recorded_kind("otto", "page") is ActorKind.PERSON
    assert recorded_kind("rule: short", "rule") is ActorKind.RULE
    assert recorded_kind("admin", "agent") is ActorKind.MACHINE
    assert recorded_kind("Azure", "agent") is ActorKind.AZURE
    assert recorded_kind("ada", "command") is ActorKind.PERSON
    assert recorded_kind(COMMAND_LINE.name, "command") is ActorKind.COMMAND
    assert recorded_kind("Drydock", "relay") is ActorKind.DRYDOCK
    assert recorded_kind("x", "of-the-next-release") is None
    assert recorded_kind("x", "page", "of-the-next-release") is None


def test_what_the_command_line_did_begins_with_a_capital_and_shows_what_changed() -> None:
    fleet = Fleet()
    accounts.make_person(username="nina", group="viewer", now=fleet.now)
    line = Entry.objects.get(kind="person_changed")
    assert text(line) == "The command line created the user nina: viewer, everywhere, has access."
    page = text_of(logged_in(admin()).get("/audit/"))
    assert "none → became none" not in page
    assert "groups none → became viewer" in page


LIE = {"code": "withdrawn", "values": {"by": "anna", "comment": "let it run"}}
SAYS = "anna withdrew it"
QUOTED = re.compile("“[^”]*”")


def sent(fleet: Fleet, name: str, reports: dict[str, dict[str, Any]]) -> None:
    """One batch, as the gateway decodes it."""
    agent = fleet.agents[name]
    batch = {"spool": agent.spool, "protocol": 1, "sent_at": iso(fleet.now), "last_poll_at": None, "agent_version": "1"}
    numbered = [
        {"seq": agent.seq + number, "kind": kind, "at": iso(fleet.now), "data": data}
        for number, (kind, data) in enumerate(reports.items(), 1)
    ]
    raw = json.dumps({**batch, "reports": numbered}).encode()
    read = read_batch(raw, received_at=fleet.now)
    delivery = agent.delivery(*read.reports)
    fleet.record(replace(delivery, refused=read.refused))


@pytest.mark.parametrize("lie", [LIE, json.dumps(LIE), SAYS, f"ok” {SAYS} “"])
def test_no_report_words_a_sentence_of_ours(lie: Any) -> None:
    """Whatever a machine may say, as what looks like a reason of ours, as the text of one, and as a sentence: it is
    shown as the machine's own words or not at all.
    """
    fleet = Fleet()
    announced(fleet)
    approval = fleet.approve()
    fleet.advance()
    order = open_order(approval)
    cache = "c.redis"
    sent(
        fleet,
        "vm1",
        {
            wire.HOOK: {
                "event_id": EVENT, "phase": "prepare", "step": "end", "outcome": lie, "hook": lie, "output": lie,
            },
            wire.COVERAGE: {"cache": cache, "state": "refused", "reason": lie, "tier": lie},
            wire.REDIS_HOOK: {"cache": cache, "notification_type": lie, "hook": lie, "outcome": "failed"},
            wire.REDIS: {"cache": cache, "raw": f"NotificationType|{lie}"},
            wire.INSTANCE: {"compute": {"name": lie}, "resource_name": lie},
            wire.REHEARSAL: {"rehearsal": str(order.pk), "event_id": EVENT, "step": "gone", "reason": lie},
            wire.RECEIPT: {"order_id": str(order.pk), "event_id": EVENT, "outcome": "failed", "reason": lie},
            "of-the-next-release": {"reason": lie},
        },
    )  # fmt: skip
    told = [text(line) for line in Entry.objects.order_by("pk")]
    assert len(told) > 10
    assert [line for line in told if SAYS in QUOTED.sub("", line)] == []
    browser = logged_in(User.objects.get(username="otto"))
    for page in (f"/events/{EVENT}/", "/timeline/", f"/machines/{order.machine_id}/", "/blind-spots/", "/caches/"):
        # Output of hooks is in a box of its own.
        shown = re.sub("<pre.*?</pre>", "", browser.get(page).content.decode(), flags=re.DOTALL)
        bare = QUOTED.sub("", shown)
        assert SAYS not in bare, bare[bare.index(SAYS) - 300 :][:400]
