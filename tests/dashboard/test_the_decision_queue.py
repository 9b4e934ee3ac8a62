"""The front page: what needs a decision, by time left."""

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.test import Client

from fleet.domain.people import Rights
from fleet.models import AvailabilitySet, Profile, Scope
from fleet.operations.approvals import claims
from fleet.projections.desk import queue
from tests import factories
from tests.dashboard.conftest import acts, codes, logged_in, marks, text_of
from tests.factories import acting

OTHER = "0A1B2C3D-0000-4000-8000-000000000001"


def part(client: Client, name: str) -> Any:
    answer = client.get("/", {"part": name}, headers={"HX-Request": "true"})
    assert answer.status_code == 200
    assert "<html" not in answer.content.decode() and "no-store" in answer["Cache-Control"]
    return answer


def test_an_empty_queue_has_no_rows_while_the_agents_are_live(fleet: factories.Fleet, operator: Client) -> None:
    factories.freeze_cancelled(fleet)
    shown = part(operator, "queue")
    assert marks(shown, "data-rows") == []
    assert "6 of 6" in text_of(shown)


def test_events_are_sorted_by_time_left(fleet: factories.Fleet, operator: Client) -> None:
    fleet.enrol_set()
    fleet.later(1)
    soon = factories.listing(resources=("vm1",), not_before=fleet.now + timedelta(minutes=4))
    late = factories.listing(OTHER, resources=("vm2",), not_before=fleet.now + timedelta(minutes=14))
    fleet.all_say(late, soon)
    shown = part(operator, "queue")
    assert marks(shown, "data-rows") == ["waiting"]
    assert [key for key in marks(shown, "data-key") if key in (factories.EVENT, OTHER)] == [factories.EVENT, OTHER]


def test_a_decided_event_moves_under_way_with_its_steps(fleet: factories.Fleet, operator: Client) -> None:
    factories.accepted(fleet)
    shown = part(operator, "queue")
    assert marks(shown, "data-rows") == ["under-way"]
    assert {"step-sent", "step-answered"} <= set(codes(shown))


def test_event_of_a_degraded_host_is_in_its_own_section(fleet: factories.Fleet, operator: Client) -> None:
    factories.announced(fleet, event_type="Redeploy", not_before=fleet.now + timedelta(days=3))
    assert marks(part(operator, "queue"), "data-rows") == ["far"]
    for address in ("/pulse/", "/"):
        assert 'data-waiting="0"' in operator.get(address).content.decode()


def test_the_head_of_every_page_carries_the_count_and_the_next_time(fleet: factories.Fleet, operator: Client) -> None:
    event = factories.announced(fleet)
    fleet.say("vm3", factories.listing(OTHER, resources=("vm3",), not_before=fleet.now + timedelta(minutes=30)))
    head = operator.get("/machines/").content.decode()
    assert 'data-waiting="2"' in head
    assert event.not_before is not None
    assert f'data-next="{event.not_before:%Y-%m-%dT%H:%M:%S}' in head


def test_the_cards_name_the_sets_with_open_events_first(fleet: factories.Fleet, operator: Client) -> None:
    fleet.enrol("alpha-1", availability_set="alpha")
    fleet.enrol("zulu-1", availability_set="zulu")
    fleet.enrol("stray", availability_set="")
    fleet.say("zulu-1", factories.listing(resources=("zulu-1",), not_before=fleet.now + timedelta(minutes=9)))
    shown = text_of(part(operator, "cards"))
    assert shown.index("zulu") < shown.index("alpha")
    # A set without a name is named after its machine.
    assert "stray" in shown


def test_events_of_one_type_and_machine_show_their_ids(fleet: factories.Fleet, operator: Client) -> None:
    fleet.enrol_set()
    fleet.later(1)
    pair = dict.fromkeys(("AAAAAAAA-0000-4000-8000-000000000001", "BBBBBBBB-0000-4000-8000-000000000002"), "Freeze")
    types, due = {**pair, OTHER: "Reboot"}, fleet.now + timedelta(minutes=14)
    told = (factories.listing(one, event_type=of, resources=("vm1",), not_before=due) for one, of in types.items())
    fleet.all_say(*told)
    rows = operator.get("/").content.decode().split('data-rows="waiting"')[1].split("</ul>")[0]
    assert [f"<code>{one[:8]}</code>" in rows for one in types] == [True, True, False]


def test_many_events_fold_by_service_and_set_and_few_do_not(fleet: factories.Fleet, operator: Client) -> None:
    due = fleet.now + timedelta(minutes=30)

    def announce(name: str, count: int, *, after: int) -> None:
        fleet.enrol(name, availability_set=name)
        times = {f"{name}-{number}": due + timedelta(seconds=after + number) for number in range(count)}
        told = [factories.listing(one, resources=(name,), not_before=at) for one, at in times.items()]
        fleet.say(name, *told)

    def folded(*names: str) -> list[tuple[str, int, int]]:
        AvailabilitySet.objects.filter(name__in=names).update(service="shop")
        folds = queue.decision_queue(now=fleet.now).folds
        return [(fold.service or fold.items[0].place.name, len(fold.items), len(fold.sets)) for fold in folds]

    announce("web", queue.CARDS, after=0)
    assert folded() == []
    announce("mail", 5, after=100)
    announce("db", 4, after=200)
    assert folded() == [("web", queue.CARDS - queue.FIRST, 0), ("mail", 5, 0), ("db", 4, 0)]
    assert folded("web", "mail") == [("shop", 13, 0), ("db", 4, 0)]
    # Of one service: by set.
    assert folded("db") == [("web", 8, 0), ("mail", 5, 0), ("db", 4, 0)]
    announce("lone", 1, after=300)
    assert folded() == [("shop", 17, 3), ("lone", 1, 0)]
    shown = marks(part(operator, "queue"), "data-key")
    assert shown.count("service-shop") == 2 and shown.index("service-shop") < shown.index("LONE-0")


def test_alerts_are_switched_by_one_click_and_are_no_part_that_readers_share(
    fleet: factories.Fleet, operator: Client
) -> None:
    factories.announced(fleet, event_type="Preempt")
    page = operator.get("/")
    assert "alerts" in acts(page) and marks(page, "data-alerts") == ["off"] and "data-tell" not in page.content.decode()
    assert int(marks(page, "data-critical")[0]) == factories.the_event().pk
    for sent, state in (("on", "on"), ("off", "off")):
        answer = operator.post("/you/alerts/", {"alerts": sent}, follow=True)
        assert answer.redirect_chain == [("/", 302)] and marks(answer, "data-alerts") == [state]
    # Also for a user who has chosen one of both on their own page.
    Profile.objects.update(sound=True)
    assert marks(operator.get("/"), "data-alerts") == ["on"]
    assert "alerts" not in acts(part(operator, "queue"))


# List, badge and buttons show what the user may decide; other users' events are one click away.


@pytest.fixture
def both(fleet: factories.Fleet) -> factories.Fleet:
    """An event in the set `web`, and one in the set `db`."""
    factories.announced(fleet, event_type="Reboot", resources=[f"vm{number}" for number in range(1, 7)])
    for name in ("db1", "db2"):
        fleet.enrol(name, availability_set="db")
    fleet.later(1)
    event = factories.listing(OTHER, resources=("db1",), not_before=fleet.now + timedelta(minutes=9))
    fleet.all_say(event, names=("db1", "db2"))
    return fleet


def scoped(name: str, group: str, pattern: str) -> Client:
    person = factories.person(name, group)
    Scope.objects.create(user=person, kind="name", pattern=pattern)
    return logged_in(person)


def mine(client: Client) -> tuple[list[str], list[str]]:
    """The events that wait for this person, and those that wait for others."""
    page = client.get("/")
    keys = marks(page, "data-key")
    rest = keys[keys.index("others") :] if "others" in keys else []
    waiting = keys[: len(keys) - len(rest)]
    # The badge on every page says the same.
    count = sum(key in (factories.EVENT, OTHER) for key in waiting)
    for shown in (page, client.get("/machines/")):
        assert set(marks(shown, "data-waiting")) == {str(count)}
    return tuple([key for key in side if key in (factories.EVENT, OTHER)] for side in (waiting, rest))  # type: ignore[return-value]


def test_what_others_decide_is_a_click_away(both: factories.Fleet, operator: Client, viewer: Client) -> None:
    assert mine(scoped("dora", "operator", "db")) == ([OTHER], [factories.EVENT])
    for client in (operator, viewer):
        assert mine(client) == ([OTHER, factories.EVENT], [])
    # A proposal waits for the users who may agree.
    both.approve()
    assert mine(operator) == ([OTHER], [factories.EVENT])
    assert mine(logged_in(factories.approver())) == ([OTHER, factories.EVENT], [])
    assert mine(scoped("anton", "approver", "web")) == ([factories.EVENT], [OTHER])


def test_the_badge_costs_one_query_however_many_sets_there_are(
    both: factories.Fleet, django_assert_num_queries: object
) -> None:
    rights = Rights(frozenset({"operator"}), (("name", "db"),))
    with django_assert_num_queries(1):  # type: ignore[operator]
        assert queue.pulse(now=both.now, rights=rights).waiting == 1
    assert queue.decision_queue(now=both.now, rights=rights).pulse == queue.pulse(now=both.now, rights=rights)


FILTERS: dict[str, set[str]] = {
    "claim=anna": {OTHER}, "claim=none": {factories.EVENT}, "type=Reboot": {factories.EVENT},
    "type=Freeze&claim=anna": {OTHER}, "severity=critical": set(), "service=shop": {OTHER}, "service=nowhere": set(),
    "claim=x&type=%27&unknown=1": set(),
}  # fmt: skip


def test_a_filter_narrows_the_rows_and_not_the_count(both: factories.Fleet, operator: Client) -> None:
    AvailabilitySet.objects.filter(name="db").update(service="shop")
    claims.claim(event_id=OTHER, actor=acting(factories.approver()), now=both.now)
    for asked, shown in FILTERS.items():
        page = operator.get(f"/?{asked}")
        assert {key for key in marks(page, "data-key") if key in (factories.EVENT, OTHER)} == shown, asked
        assert set(marks(page, "data-waiting")) == {"2"}
        # A part that updates itself keeps the filter.
        (part,) = [address for address in marks(page, "hx-get") if address.endswith("part=queue")]
        rows = marks(operator.get(unescape(part), headers={"HX-Request": "true"}), "data-key")
        assert {key for key in rows if key in (factories.EVENT, OTHER)} == shown, asked


def test_the_shared_part_names_no_reader_and_leads_each_to_their_own_claims(
    both: factories.Fleet, operator: Client
) -> None:
    part = operator.get("/?type=Reboot&part=queue", headers={"HX-Request": "true"}).content.decode()
    assert "claim=me" in part and "claim=otto" not in part
    assert operator.get("/?type=Reboot&claim=me").headers["Location"] == "/?type=Reboot&claim=otto"


def test_filters_state_how_many_events_each_would_show(both: factories.Fleet, operator: Client) -> None:
    AvailabilitySet.objects.filter(name="db").update(service="shop")
    claims.claim(event_id=OTHER, actor=acting(factories.approver()), now=both.now)

    def counts(asked: str) -> list[str]:
        chips = operator.get(f"/?{asked}").content.decode().split('aria-label="Filters"')[1].split("</ul>")[0]
        return [" ".join(re.sub("<[^>]*>", " ", chip).split()) for chip in chips.split("<li>")[1:]]

    assert counts("type=Reboot") == ["Mine", "Unclaimed 1", "Critical 0", "Reboot 1", "All"]
    assert counts("claim=anna") == ["Mine 1", "Unclaimed 1", "Critical 0", "Freeze 1", "shop 1", "All"]
    assert counts("claim=anna&type=Reboot") == ["Mine 0", "Unclaimed 1", "Critical 0", "Reboot 0", "All"]
