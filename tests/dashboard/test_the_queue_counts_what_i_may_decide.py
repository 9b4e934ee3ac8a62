"""Decision queue: list, badge and buttons show what the user may decide; other users' events are one click away."""

import re
from datetime import timedelta
from html import unescape

import pytest
from django.test import Client

from fleet.domain.people import Rights
from fleet.models import AvailabilitySet, Scope
from fleet.operations.approvals import claims
from fleet.projections.desk import queue
from tests import factories
from tests.dashboard.conftest import logged_in, marks
from tests.factories import acting

OTHER = "0A1B2C3D-0000-4000-8000-000000000001"


@pytest.fixture
def fleet(fleet: factories.Fleet) -> factories.Fleet:
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


def test_what_others_decide_is_a_click_away(fleet: factories.Fleet, operator: Client, viewer: Client) -> None:
    assert mine(scoped("dora", "operator", "db")) == ([OTHER], [factories.EVENT])
    for client in (operator, viewer):
        assert mine(client) == ([OTHER, factories.EVENT], [])
    # A proposal waits for the users who may agree.
    fleet.approve()
    assert mine(operator) == ([OTHER], [factories.EVENT])
    assert mine(logged_in(factories.approver())) == ([OTHER, factories.EVENT], [])
    assert mine(scoped("anton", "approver", "web")) == ([factories.EVENT], [OTHER])


def test_the_badge_costs_one_query_however_many_sets_there_are(
    fleet: factories.Fleet, django_assert_num_queries: object
) -> None:
    rights = Rights(frozenset({"operator"}), (("name", "db"),))
    with django_assert_num_queries(1):  # type: ignore[operator]
        assert queue.pulse(now=fleet.now, rights=rights).waiting == 1
    assert queue.decision_queue(now=fleet.now, rights=rights).pulse == queue.pulse(now=fleet.now, rights=rights)


FILTERS: dict[str, set[str]] = {
    "claim=anna": {OTHER}, "claim=none": {factories.EVENT}, "type=Reboot": {factories.EVENT},
    "type=Freeze&claim=anna": {OTHER}, "severity=critical": set(), "service=shop": {OTHER}, "service=nowhere": set(),
    "claim=x&type=%27&unknown=1": set(),
}  # fmt: skip


def test_a_filter_narrows_the_rows_and_not_the_count(fleet: factories.Fleet, operator: Client) -> None:
    AvailabilitySet.objects.filter(name="db").update(service="shop")
    claims.claim(event_id=OTHER, actor=acting(factories.approver()), now=fleet.now)
    for asked, shown in FILTERS.items():
        page = operator.get(f"/?{asked}")
        assert {key for key in marks(page, "data-key") if key in (factories.EVENT, OTHER)} == shown, asked
        assert set(marks(page, "data-waiting")) == {"2"}
        # A part that updates itself keeps the filter.
        (part,) = [address for address in marks(page, "hx-get") if address.endswith("part=queue")]
        rows = marks(operator.get(unescape(part), headers={"HX-Request": "true"}), "data-key")
        assert {key for key in rows if key in (factories.EVENT, OTHER)} == shown, asked


def test_the_shared_part_names_no_reader_and_leads_each_to_their_own_claims(
    fleet: factories.Fleet, operator: Client
) -> None:
    part = operator.get("/?type=Reboot&part=queue", headers={"HX-Request": "true"}).content.decode()
    assert "claim=me" in part and "claim=otto" not in part
    assert operator.get("/?type=Reboot&claim=me").headers["Location"] == "/?type=Reboot&claim=otto"


def test_filters_state_how_many_events_each_would_show(fleet: factories.Fleet, operator: Client) -> None:
    AvailabilitySet.objects.filter(name="db").update(service="shop")
    claims.claim(event_id=OTHER, actor=acting(factories.approver()), now=fleet.now)

    def counts(asked: str) -> list[str]:
        chips = operator.get(f"/?{asked}").content.decode().split('aria-label="Filters"')[1].split("</ul>")[0]
        return [" ".join(re.sub("<[^>]*>", " ", chip).split()) for chip in chips.split("<li>")[1:]]

    assert counts("type=Reboot") == ["Mine", "Unclaimed 1", "Critical 0", "Reboot 1", "All"]
    assert counts("claim=anna") == ["Mine 1", "Unclaimed 1", "Critical 0", "Freeze 1", "shop 1", "All"]
    assert counts("claim=anna&type=Reboot") == ["Mine 0", "Unclaimed 1", "Critical 0", "Reboot 0", "All"]
