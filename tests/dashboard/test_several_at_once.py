"""Work in quantity: choose several events, look at what they are, decide each on its own, undo all of it at once."""

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.http import QueryDict
from django.test import Client

from fleet.dashboard.tags.words import group_query
from fleet.domain.states import ApprovalState
from fleet.models import Approval, Claim, Entry, Hold, Order, ScheduledEvent, Wave
from fleet.projections.desk import queue, selection
from fleet.projections.filters import EventFilter
from tests import factories
from tests.dashboard.conftest import logged_in, text_of
from tests.factories import Fleet, listing, seconds


def event_id(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012}"


@pytest.fixture
def three(fleet: Fleet) -> list[str]:
    """Freezes of three machines in three sets of one service, which wait; and a Redeploy that lies days ahead."""
    for number in range(4):
        for letter in "ab":
            fleet.enrol(f"s{number}-{letter}", availability_set=f"set-{number}", fault_domain=(2 - number) % 3)
            fleet.say(f"s{number}-{letter}")
    fleet.later(1)
    for number in range(3):
        names = [f"s{number}-a", f"s{number}-b"]
        told = listing(event_id(number), resources=names[:1], not_before=fleet.now + seconds(600 + number))
        fleet.all_say(told, names=names)
    far = listing(event_id(3), event_type="Redeploy", resources=["s3-a"], not_before=fleet.now + timedelta(days=3))
    fleet.all_say(far, names=["s3-a", "s3-b"])
    return [event_id(number) for number in range(3)]


@pytest.fixture(autouse=True)
def some_seconds_to_undo(settings: Any) -> None:
    settings.UNDO_SECONDS = 3


def look(client: Client, do: str, events: list[str] | None = None, **more: Any) -> Any:
    return client.get("/bulk/", {"do": do, "event": events or [], **more})


def send(client: Client, looked: Any, **fields: Any) -> Any:
    """The form as it stands, with its ticked boxes, and these fields."""
    body = looked.content.decode()
    assert looked.status_code == 200, text_of(looked)
    form = body[body.index('id="bulk"') :]
    hidden = re.findall(r'<input type="hidden"\s+name="([^"]+)"\s+value="([^"]*)">', form)
    ticked = re.findall(r'name="event" value="([^"]+)"[^>]*checked', form)
    data: dict[str, Any] = {name: unescape(value) for name, value in hidden}
    return client.post("/bulk/", data | {"event": ticked} | fields)


def test_the_queue_lets_rows_be_chosen_and_says_how_many_there_are(three: list[str], operator: Client) -> None:
    body = operator.get("/").content.decode()
    assert body.count('form="pick" name="event"') == 3
    assert "All 3 that wait" in text_of(operator.get("/"))
    viewer = logged_in(factories.viewer()).get("/").content.decode()
    assert 'name="event"' not in viewer


def test_what_is_chosen_is_shown_with_its_blast_radius_before_anything_is_done(
    three: list[str], operator: Client
) -> None:
    looked = look(operator, "approve", [*three[:2], event_id(3)])
    shown = text_of(looked)
    assert "Freeze of s0-a In set-0: 1 of 2 stays up." in shown
    assert shown.count("data-countdown") == 0
    assert looked.content.decode().count("data-countdown") >= 3
    assert "Days ahead, so it is not ticked." in shown
    assert looked.content.decode().count(" checked") == 2
    assert not Approval.objects.exists()


def test_each_is_approved_on_its_own_and_one_click_undoes_all(three: list[str], operator: Client) -> None:
    looked = look(operator, "approve", three)
    ScheduledEvent.objects.filter(event_id=three[2]).update(version=99)
    done = send(operator, looked, comment="patch night")
    shown = text_of(done)
    assert "2 approved, 1 not" in shown
    assert "The event has changed since you looked." in shown
    assert list(Approval.objects.values_list("state", "when", "comment")) == [("WAITING", "undo", "patch night")] * 2
    assert Approval.objects.values("due_at").distinct().count() == 1
    assert "Undo all 2" in shown
    ids = re.findall(r'name="approval" value="(\d+)"', done.content.decode())
    undone = operator.post("/bulk/undo/", {"approval": ids})
    assert "2 undone" in text_of(undone)
    assert {one.state for one in Approval.objects.all()} == {ApprovalState.WITHDRAWN.value}
    assert not Order.objects.exists()


def test_a_second_undo_and_a_strangers_say_why_not(three: list[str], operator: Client) -> None:
    done = send(operator, look(operator, "approve", three))
    ids = re.findall(r'name="approval" value="(\d+)"', done.content.decode())
    operator.post("/bulk/undo/", {"approval": ids})
    again = text_of(operator.post("/bulk/undo/", {"approval": [*ids, "7" * 30, "x"]}))
    assert "0 undone, 5 not" in again
    assert logged_in(factories.viewer()).post("/bulk/undo/", {"approval": ids}).status_code in (200, 403)
    assert Approval.objects.filter(state="WITHDRAWN").count() == 3


@pytest.fixture
def pair(fleet: Fleet) -> list[str]:
    """Two freezes of one set of two machines, each of one of them."""
    names = ["p-a", "p-b"]
    for name in names:
        fleet.enrol(name, availability_set="pair")
        fleet.say(name)
    told = [
        listing(event_id(number), resources=[name], not_before=fleet.now + seconds(600 + number))
        for number, name in enumerate(names)
    ]
    fleet.all_say(*told, names=names)
    return [event_id(0), event_id(1)]


def state_of(client: Client, done: Any) -> str:
    """What the page of the results asks for again."""
    address = re.search(r'hx-get="(/bulk/state/[^"]+)"', done.content.decode())
    assert address is not None
    return text_of(client.get(unescape(address[1]), headers={"HX-Request": "true"}))


def test_before_it_is_done_the_page_says_what_several_do_together(pair: list[str], operator: Client) -> None:
    shown = text_of(look(operator, "approve", pair))
    assert "pair: 0 of 2 stay up if both ran at the same time" in shown
    assert "the second goes when the first is over" in shown
    assert "one when the one before is over" in text_of(look(operator, "wave", pair))
    assert "Azure may run them at the same time" in text_of(look(operator, "leave", pair))
    assert "data-together" not in look(operator, "claim", pair).content.decode()
    assert "data-together" not in look(operator, "approve", pair[:1]).content.decode()


def test_what_cannot_be_undone_is_said_so_and_holds_back_the_others(
    fleet: Fleet, pair: list[str], operator: Client, settings: Any
) -> None:
    settings.UNDO_SECONDS = 0
    shown = text_of(look(operator, "approve", pair))
    assert "the second will be refused while it is under way" in shown
    assert shown.count("Sent at once: cannot be undone.") == 2
    assert "1 approved, 1 not" in text_of(send(operator, look(operator, "approve", pair)))


def test_each_line_of_the_results_follows_its_event(fleet: Fleet, pair: list[str], operator: Client) -> None:
    done = send(operator, look(operator, "approve", pair))
    assert "Undo all 2" in text_of(done)
    assert state_of(operator, done).count("goes to Azure in") == 2
    first, second = Approval.objects.order_by("event__not_before")
    # Its time to be undone is over.
    Approval.objects.update(due_at=fleet.now)
    fleet.later(0.1)
    fleet.advance()
    shown = state_of(operator, done)
    assert "Undo" not in shown
    assert "due now" not in shown
    assert "Another event of this set is under way" in shown
    factories.advance.advance_approval(approval_id=first.pk, now=fleet.now, via="celery")
    order = factories.open_order(first)
    fleet.delivered(order)
    fleet.receipt(order)
    assert "Azure answered 200" in state_of(operator, done)
    waiting = listing(pair[1], resources=["p-b"], not_before=second.event.not_before)
    names = ["p-a", "p-b"]
    fleet.later(1)
    fleet.all_say(listing(pair[0], resources=["p-a"], status="Started"), waiting, names=names)
    assert "Started" in state_of(operator, done)
    fleet.later(5)
    fleet.all_say(waiting, names=names)
    assert "completed" in state_of(operator, done)


def test_a_refused_line_keeps_its_reason_and_follows_too(fleet: Fleet, three: list[str], operator: Client) -> None:
    looked = look(operator, "approve", three)
    ScheduledEvent.objects.filter(event_id=three[2]).update(version=99)
    done = send(operator, looked)
    assert "The event has changed since you looked." in text_of(done)
    fleet.later(1)
    fleet.all_say(names=["s2-a", "s2-b"])
    assert "cancelled by Azure" in state_of(operator, done)
    hidden = logged_in(factories.person("nobody", "viewer"))
    assert "Undo" not in text_of(hidden.get("/bulk/state/?events=1,x,,2&approvals=7777777777777777777777"))


def test_what_needs_a_reason_gets_one_for_all_or_is_left_out(fleet: Fleet, operator: Client) -> None:
    factories.announced(fleet, event_type="Redeploy", resources=("vm1",))
    looked = look(operator, "approve", [factories.EVENT])
    assert "What is lost does not come back at 1 of these" in text_of(looked)
    assert "0 approved, 1 not" in text_of(send(operator, looked))
    done = send(operator, looked, **{"reason-lost-for-good": "the disks are empty"})
    assert "1 approved" in text_of(done)
    assert Approval.objects.get().overrides[0]["reason"] == "the disks are empty"


def test_claiming_and_leaving_to_azure(three: list[str], operator: Client) -> None:
    assert "3 claimed" in text_of(send(operator, look(operator, "claim", three), comment="on all of them"))
    assert Claim.objects.count() == 3
    assert "0 left to Azure, 3 not" in text_of(send(operator, look(operator, "leave", three)))
    left = send(operator, look(operator, "leave", three), reason="The sale ends at midnight.")
    assert "3 left to Azure" in text_of(left)
    assert {hold.reason for hold in Hold.objects.all()} == {"The sale ends at midnight."}
    assert Entry.objects.filter(kind="event_held").count() == 3


def test_a_wave_goes_by_fault_domain_within_each_service(three: list[str], operator: Client) -> None:
    for name in ("set-0", "set-1", "set-2"):
        home = factories.the_set(name)
        home.service = "shop"
        home.save()
    looked = look(operator, "wave", three)
    shown = looked.content.decode()
    assert sorted(range(3), key=lambda number: shown.index(f"of s{number}-a")) == [2, 1, 0]
    done = send(operator, looked)
    assert "3 in a wave" in text_of(done)
    assert Wave.objects.count() == 1
    turns = Approval.objects.order_by("turn").values_list("event__event_id", flat=True)
    assert list(turns) == [event_id(2), event_id(1), event_id(0)]


def test_events_that_belong_to_no_common_service_make_no_wave_and_say_so(three: list[str], operator: Client) -> None:
    assert "0 in a wave, 3 not" in text_of(send(operator, look(operator, "wave", three)))


def test_all_that_match_go_by_filter_and_count(three: list[str], operator: Client) -> None:
    assert "All 4 that match and need a decision" in text_of(operator.get("/history/?type=&needs_decision=true"))
    looked = look(operator, "claim", all="on", of="events", count=3, type="freeze")
    assert "3 claimed" in text_of(send(operator, looked))
    looked = look(operator, "claim", all="on", of="queue", count=3)
    assert looked.content.decode().count(" checked") == 3


def test_a_list_that_has_changed_is_refused_with_both_counts(fleet: Fleet, three: list[str], operator: Client) -> None:
    refused = look(operator, "approve", all="on", of="queue", count=7)
    assert refused.status_code == 409
    assert "it had 7 events then and has 3 now" in text_of(refused)
    assert "Look at the 3" in text_of(refused)
    looked = look(operator, "approve", all="on", of="queue", count=3)
    fleet.approve(three[0])
    refused = send(operator, looked)
    assert refused.status_code == 409
    assert "it had 3 events then and has 2 now" in text_of(refused)
    assert Approval.objects.count() == 1


def test_the_same_number_of_other_events_is_another_list(fleet: Fleet, three: list[str], operator: Client) -> None:
    looked = look(operator, "approve", all="on", of="queue", count=3)
    fleet.approve(three[0])
    names = ["s0-a", "s0-b"]
    fleet.all_say(listing(event_id(9), resources=names[1:], not_before=fleet.now + seconds(800)), names=names)
    refused = send(operator, looked)
    assert refused.status_code == 409
    assert "and not the same ones" in text_of(refused)


def test_only_those_of_my_scope_are_meant_by_all(three: list[str]) -> None:
    olga = factories.operator("olga")
    olga.scopes.create(kind="name", pattern="set-1")
    client = logged_in(olga)
    assert client.get("/").content.decode().count('name="event"') == 1
    looked = look(client, "claim", all="on", of="queue", count=1)
    assert "1 claimed" in text_of(send(client, looked))
    others = send(client, look(client, "claim", [three[0]]))
    assert "0 claimed, 1 not" in text_of(others)


def test_nonsense_is_answered_with_a_page(three: list[str], operator: Client) -> None:
    for data in ({}, {"do": "dance"}, {"do": "approve"}, {"do": "approve", "event": ["x:y", ":", "A:1"]}):
        answer = operator.post("/bulk/", data)
        assert answer.status_code in (200, 422), text_of(answer)
    assert "No event was chosen that is still open." in text_of(operator.get("/bulk/?do=approve"))
    assert logged_in(factories.viewer()).post("/bulk/", {"do": "claim", "event": [f"{three[0]}:1"]}).status_code == 200
    assert not Claim.objects.exists()


def test_a_queue_of_thousands_stays_small_and_counts_them_all(
    fleet: Fleet, operator: Client, django_assert_max_num_queries: Any
) -> None:
    first = factories.announced(fleet, resources=("vm1",))
    homes = [first.availability_set]
    for number in range(9):
        fleet.enrol(f"home-{number}", availability_set=f"home-{number}")
        homes.append(factories.the_set(f"home-{number}"))
    ScheduledEvent.objects.bulk_create(
        ScheduledEvent(
            event_id=event_id(1000 + number), availability_set=homes[number % 10], created_at=fleet.now,
            event_type=("Freeze", "Reboot")[number % 2], first_seen_at=fleet.now, version=1,
            not_before=fleet.now + seconds(901 + number), resources=[f"a-machine-with-a-long-name-{number}"],
        )
        for number in range(4999)
    )  # fmt: skip
    found = queue.decision_queue(now=fleet.now)
    assert (len(found.waiting), found.counts["waiting"]) == (queue.SHOWN, 5000)
    assert len(found.waiting) + found.in_groups == 5000
    for group in found.groups:
        # The last that is shown may have the same time.
        listed = EventFilter(QueryDict(group_query(group)), now=fleet.now).qs.count()
        assert group.count <= listed <= group.count + 1
    assert found.pulse == queue.pulse(now=fleet.now)
    with django_assert_max_num_queries(70):
        answer = operator.get("/")
    assert len(answer.content) <= 150_000
    assert f"More than {selection.MOST} match" in text_of(answer)
