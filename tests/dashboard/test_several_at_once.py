"""Work in quantity: choose several events, look at what they are, decide each on its own, undo all of it at once."""

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.http import QueryDict
from django.test import Client

from fleet.dashboard.tags import group_query
from fleet.domain.states import ApprovalState
from fleet.models import Approval, AvailabilitySet, Claim, Entry, Hold, Machine, Order, ScheduledEvent, Wave
from fleet.projections.desk import queue, selection
from fleet.projections.filters import EventFilter
from tests import factories
from tests.dashboard.conftest import logged_in, marks, states, text_of
from tests.factories import Fleet, listing, seconds


def event_id(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012}"


@pytest.fixture
def three(fleet: Fleet) -> list[str]:
    """Freezes of three machines in three sets of one service, which wait; and a Redeploy that lies days ahead."""
    for number in range(4):
        fleet.enrol_set(2, prefix=f"s{number}-", availability_set=f"set-{number}")
    fleet.later(1)
    for number in range(3):
        names = [f"s{number}-1", f"s{number}-2"]
        told = listing(event_id(number), resources=names[:1], not_before=fleet.now + seconds(600 + number))
        fleet.all_say(told, names=names)
    far = listing(event_id(3), event_type="Redeploy", resources=["s3-1"], not_before=fleet.now + timedelta(days=3))
    fleet.all_say(far, names=["s3-1", "s3-2"])
    return [event_id(number) for number in range(3)]


@pytest.fixture(autouse=True)
def some_seconds_to_undo(settings: Any) -> None:
    settings.APPROVAL_UNDO_SECONDS = 3


def look(client: Client, do: str, events: list[str] | None = None, **more: Any) -> Any:
    return client.get("/bulk/", {"do": do, "event": events or [], **more})


def send(client: Client, looked: Any, **fields: Any) -> Any:
    """The form as it stands, with its ticked boxes, and these fields."""
    body = looked.content.decode()
    assert looked.status_code == 200, text_of(looked)
    form = body[body.index('id="bulk"') :]
    hidden = re.findall(r'<input type="hidden"\s+name="([^"]+)"\s+value="([^"]*)">', form)
    data: dict[str, Any] = {name: unescape(value) for name, value in hidden}
    return client.post("/bulk/", data | {"event": ticked(looked)} | fields)


def ticked(looked: Any) -> list[str]:
    return re.findall(r'name="event" value="([^"]+)"[^>]*checked', looked.content.decode())


def results(answer: Any) -> tuple[int, int]:
    """How many were done, and how many were not."""
    found = states(answer)
    return found.count("done"), found.count("refused")


def to_undo(answer: Any) -> list[str]:
    return re.findall(r'name="approval" value="(\d+)"', answer.content.decode())


def test_each_is_approved_on_its_own_and_one_click_undoes_all(fleet: Fleet, three: list[str], operator: Client) -> None:
    body = operator.get("/").content.decode()
    assert body.count('form="pick" name="event"') == 3
    assert 'name="count" value="3"' in body
    assert 'name="event"' not in logged_in(factories.viewer()).get("/").content.decode()
    # What is chosen is shown before anything is done. What lies days ahead is not ticked.
    looked = look(operator, "approve", [*three, event_id(3)])
    assert marks(looked, "data-key").count(event_id(3)) == 1
    assert [one.partition(":")[0] for one in ticked(looked)] == three
    assert looked.content.decode().count("data-countdown") >= 3
    assert not Approval.objects.exists()
    ScheduledEvent.objects.filter(event_id=three[2]).update(version=99)
    done = send(operator, looked, comment="patch night")
    assert results(done) == (2, 1)
    assert list(Approval.objects.values_list("state", "when", "comment")) == [("WAITING", "undo", "patch night")] * 2
    assert Approval.objects.values("due_at").distinct().count() == 1
    ids = to_undo(done)
    assert len(ids) == 2
    assert results(operator.post("/bulk/undo/", {"approval": ids})) == (2, 0)
    assert {one.state for one in Approval.objects.all()} == {ApprovalState.WITHDRAWN.value}
    assert not Order.objects.exists()
    # A repeated undo and an unknown approval are reported line by line.
    assert results(operator.post("/bulk/undo/", {"approval": [*ids, "7" * 30, "x"]})) == (0, 4)
    # A line that was refused follows its event too.
    fleet.later(1)
    fleet.all_say(names=["s2-1", "s2-2"])
    assert "cancelled" in states(state_of(operator, done))
    hidden = logged_in(factories.person("nobody", "viewer"))
    assert not to_undo(hidden.get("/bulk/state/?events=1,x,,2&approvals=7777777777777777777777"))


@pytest.fixture
def pair(fleet: Fleet) -> list[str]:
    """Two freezes of one set of two machines, each of one of them."""
    fleet.enrol_set(2, prefix="p-", availability_set="pair")
    names = ["p-1", "p-2"]
    told = [
        listing(event_id(number), resources=[name], not_before=fleet.now + seconds(600 + number))
        for number, name in enumerate(names)
    ]
    fleet.all_say(*told, names=names)
    return [event_id(0), event_id(1)]


def state_of(client: Client, done: Any) -> Any:
    """What the page of the results asks for again."""
    address = re.search(r'hx-get="(/bulk/state/[^"]+)"', done.content.decode())
    assert address is not None
    return client.get(unescape(address[1]), headers={"HX-Request": "true"})


def test_before_it_is_done_the_page_says_what_several_do_together(
    pair: list[str], operator: Client, settings: Any
) -> None:
    for do, events, said in (
        ("approve", pair, True), ("wave", pair, True), ("leave", pair, True), ("claim", pair, False),
        ("approve", pair[:1], False),
    ):  # fmt: skip
        assert ("data-together" in look(operator, do, events).content.decode()) is said, (do, events)
    settings.APPROVAL_UNDO_SECONDS = 0
    looked = look(operator, "approve", pair)
    assert looked.content.decode().count('data-code="no-undo"') == 2
    assert results(send(operator, looked)) == (1, 1)


def test_each_line_of_the_results_follows_its_event(fleet: Fleet, pair: list[str], operator: Client) -> None:
    done = send(operator, look(operator, "approve", pair))
    assert len(to_undo(done)) == 2
    assert states(state_of(operator, done)) == ["WAITING"] * 2
    first, second = Approval.objects.order_by("event__not_before")
    # Its time to be undone is over.
    Approval.objects.update(due_at=fleet.now)
    fleet.later(0.1)
    fleet.advance()
    assert not to_undo(state_of(operator, done))
    factories.advance.advance_approval(approval_id=first.pk, now=fleet.now, via="celery")
    order = factories.open_order(first)
    fleet.delivered(order)
    fleet.receipt(order)
    assert "ACCEPTED" in states(state_of(operator, done))
    waiting = listing(pair[1], resources=["p-2"], not_before=second.event.not_before)
    names = ["p-1", "p-2"]
    fleet.later(1)
    fleet.all_say(listing(pair[0], resources=["p-1"], status="Started"), waiting, names=names)
    assert "STARTED" in states(state_of(operator, done))
    fleet.later(5)
    fleet.all_say(waiting, names=names)
    assert "completed" in states(state_of(operator, done))


def test_what_needs_a_reason_gets_one_for_all_or_is_left_out(fleet: Fleet, operator: Client) -> None:
    factories.announced(fleet, event_type="Redeploy", resources=("vm1",))
    looked = look(operator, "approve", [factories.EVENT])
    assert 'name="reason-lost-for-good"' in looked.content.decode()
    assert results(send(operator, looked)) == (0, 1)
    assert results(send(operator, looked, **{"reason-lost-for-good": "the disks are empty"})) == (1, 0)
    assert Approval.objects.get().overrides[0]["reason"] == "the disks are empty"


def test_claiming_and_waves(three: list[str], operator: Client) -> None:
    # Nonsense is answered with a page.
    for data in ({}, {"do": "dance"}, {"do": "approve"}, {"do": "approve", "event": ["x:y", ":", "A:1"]}):
        answer = operator.post("/bulk/", data)
        assert answer.status_code in (200, 422), text_of(answer)
    assert 'id="bulk"' not in operator.get("/bulk/?do=approve").content.decode()
    assert logged_in(factories.viewer()).post("/bulk/", {"do": "claim", "event": [f"{three[0]}:1"]}).status_code == 200
    assert not Claim.objects.exists()
    assert results(send(operator, look(operator, "claim", three), comment="on all of them")) == (3, 0)
    assert Claim.objects.count() == 3
    # Without a common service there is no wave.
    assert results(send(operator, look(operator, "wave", three))) == (0, 3)
    AvailabilitySet.objects.exclude(name="set-3").update(service="shop")
    for number in range(3):
        Machine.objects.filter(resource_name=f"s{number}-1").update(fault_domain=2 - number)
    looked = look(operator, "wave", three)
    shown = looked.content.decode()
    # By fault domain within each service.
    assert sorted(range(3), key=lambda number: shown.index(f"of s{number}-1")) == [2, 1, 0]
    assert results(send(operator, looked)) == (3, 0)
    assert Wave.objects.count() == 1
    turns = Approval.objects.order_by("turn").values_list("event__event_id", flat=True)
    assert list(turns) == [event_id(2), event_id(1), event_id(0)]


def test_leaving_several_to_azure_takes_a_reason(three: list[str], operator: Client) -> None:
    assert results(send(operator, look(operator, "leave", three))) == (0, 3)
    assert results(send(operator, look(operator, "leave", three), reason="The sale ends at midnight.")) == (3, 0)
    assert {hold.reason for hold in Hold.objects.all()} == {"The sale ends at midnight."}
    assert Entry.objects.filter(kind="event_held").count() == 3


def test_all_that_match_go_by_filter_and_count_and_a_list_that_has_changed_is_refused(
    fleet: Fleet, three: list[str], operator: Client
) -> None:
    assert 'name="count" value="4"' in operator.get("/history/?type=&needs_decision=true").content.decode()
    assert len(ticked(look(operator, "claim", all="on", of="queue", count=3))) == 3
    refused = look(operator, "approve", all="on", of="queue", count=7)
    assert (refused.status_code, marks(refused, "data-refusal")) == (409, ["count-changed"])
    assert "count=3" in refused.content.decode()
    looked = look(operator, "approve", all="on", of="queue", count=3)
    assert results(send(operator, look(operator, "claim", all="on", of="events", count=3, type="freeze"))) == (3, 0)
    fleet.approve(three[0])
    assert send(operator, looked).status_code == 409
    # The same number of other events is another list.
    names = ["s0-1", "s0-2"]
    fleet.all_say(listing(event_id(9), resources=names[1:], not_before=fleet.now + seconds(800)), names=names)
    assert send(operator, looked).status_code == 409
    assert Approval.objects.count() == 1


def test_only_those_of_my_scope_are_meant_by_all(three: list[str]) -> None:
    olga = factories.operator("olga")
    olga.scopes.create(kind="name", pattern="set-1")
    client = logged_in(olga)
    assert client.get("/").content.decode().count('name="event"') == 1
    assert results(send(client, look(client, "claim", all="on", of="queue", count=1))) == (1, 0)
    assert results(send(client, look(client, "claim", [three[0]]))) == (0, 1)


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
    # Too many to choose all of them.
    assert f"{selection.MOST}" in text_of(answer) and 'name="all"' not in answer.content.decode()
