"""The front page: what needs a decision, by time left."""

from datetime import timedelta

from django.test import Client

from tests import factories
from tests.dashboard.conftest import text_of

OTHER = "0A1B2C3D-0000-4000-8000-000000000001"
THIRD = "0A1B2C3D-0000-4000-8000-000000000002"


def part(client: Client, name: str, address: str = "/") -> str:
    answer = client.get(address, {"part": name}, headers={"HX-Request": "true"})
    assert answer.status_code == 200
    assert "<html" not in answer.content.decode()
    return text_of(answer)


def test_an_empty_queue_says_when_the_last_event_was_and_how_many_agents_are_live(
    fleet: factories.Fleet, operator: Client
) -> None:
    assert "No event has been announced yet" in part(operator, "queue")
    factories.freeze_cancelled(fleet)
    shown = part(operator, "queue")
    assert "Nothing needs a decision" in shown
    assert "The last event was announced" in shown
    assert "6 of 6 agents are live" in shown


def test_events_stand_in_the_order_of_the_time_left(fleet: factories.Fleet, operator: Client) -> None:
    fleet.enrol_set()
    fleet.later(1)
    soon = factories.listing(resources=("vm1",), not_before=fleet.now + timedelta(minutes=4))
    late = factories.listing(OTHER, resources=("vm2",), not_before=fleet.now + timedelta(minutes=14))
    fleet.all_say(late, soon)
    shown = part(operator, "queue")
    assert "2 events need a decision" in shown
    assert shown.index("of vm1") < shown.index("of vm2")
    assert "5 of 6 stay up" in shown
    assert "Azure starts it any time after" in shown


def test_a_decided_event_moves_under_way_with_its_steps(fleet: factories.Fleet, operator: Client) -> None:
    factories.accepted(fleet)
    shown = part(operator, "queue")
    assert "Nothing needs a decision" in shown
    assert "Under way" in shown
    assert "Sent to vm1" in shown
    assert "Azure answered 200" in shown


def test_an_event_of_a_degraded_host_stands_in_a_strip_of_its_own(fleet: factories.Fleet, operator: Client) -> None:
    factories.announced(fleet, event_type="Redeploy", not_before=fleet.now + timedelta(days=3))
    shown = part(operator, "queue")
    assert "Nothing needs a decision" in shown
    assert "Days ahead" in shown
    assert "redeploying the machine yourself" in shown
    for address in ("/pulse/", "/"):
        assert 'data-waiting="0"' in operator.get(address).content.decode()


def test_the_head_of_every_page_carries_the_count_and_the_next_time(fleet: factories.Fleet, operator: Client) -> None:
    event = factories.announced(fleet)
    fleet.say("vm3", factories.listing(THIRD, resources=("vm3",), not_before=fleet.now + timedelta(minutes=30)))
    head = operator.get("/machines/").content.decode()
    assert 'data-waiting="2"' in head
    assert event.not_before is not None
    assert f'data-next="{event.not_before:%Y-%m-%dT%H:%M:%S}' in head


def test_the_cards_name_the_sets_with_open_events_first(fleet: factories.Fleet, operator: Client) -> None:
    fleet.enrol("alpha-1", availability_set="alpha")
    fleet.enrol("zulu-1", availability_set="zulu")
    fleet.say("zulu-1", factories.listing(resources=("zulu-1",), not_before=fleet.now + timedelta(minutes=9)))
    shown = part(operator, "cards")
    assert shown.index("zulu") < shown.index("alpha")


def test_a_provisional_set_says_so_and_goes_by_its_machine(fleet: factories.Fleet, operator: Client) -> None:
    fleet.enrol("stray", availability_set="")
    shown = part(operator, "cards")
    assert "stray provisional" in shown
    page = text_of(operator.get(f"/sets/{fleet.agents['stray'].machine.availability_set_id}/"))
    assert "Nobody has stated this set's name yet" in page


def test_the_time_of_the_server_comes_with_every_part(fleet: factories.Fleet, operator: Client) -> None:
    answer = operator.get("/?part=queue", headers={"HX-Request": "true"})
    assert answer["X-Drydock-Time"].endswith("Z")
    assert "no-store" in answer["Cache-Control"]
