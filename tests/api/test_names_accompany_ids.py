"""Names in API answers: each id comes with its name and subscription, since two sets may share a name."""

import csv
import io
from collections.abc import Iterator
from typing import Any

from django.conf import LazySettings

from fleet.models import AvailabilitySet, Scope
from tests import factories
from tests.api.conftest import Caller, caller
from tests.caches.walking import Listeners

SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"


def sets_in(value: Any) -> Iterator[dict[str, Any]]:
    """Every set that an answer names, wherever it stands."""
    if isinstance(value, dict):
        if isinstance(value.get("set"), dict):
            yield value["set"]
        for each in value.values():
            yield from sets_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from sets_in(each)


def test_set_is_named_with_its_subscription_everywhere(fleet: factories.Fleet, operator: Caller) -> None:
    fleet.enrol_set(2)
    due = fleet.now + factories.seconds(900)
    both = {"EVENT": "vm1", "SECOND": "vm2"}
    fleet.all_say(*[factories.listing(each, resources=[name], not_before=due) for each, name in both.items()])
    begun = operator.post("waves/", {"events": list(both), "comment": "in turn"})
    assert begun.status_code == 201, begun.content
    for address in (
        "machines/",
        "events/",
        "events/EVENT/",
        "events/EVENT/timeline/",
        "approvals/",
        "waves/",
        "audit/",
    ):
        named = list(sets_in(operator.get(address).json()))
        assert named, address
        for one in named:
            assert (one["name"], one["subscription"], one["resource_group"]) == ("web", SUBSCRIPTION, "shop"), address
    assert all(row["name"] and row["subscription"] for row in operator.get("sets/").json()["results"])


def test_machine_that_listens_to_a_cache_is_named_with_its_set(db: None, viewer: Caller) -> None:
    listeners = Listeners(now=factories.NOW)
    listeners.enrol("vm1")
    listeners.cover("vm1", "subscribed")
    (cache,) = viewer.get("caches/").json()["results"]
    assert [row["set"]["subscription"] for row in cache["coverage"]] == [SUBSCRIPTION]


def test_the_audit_as_a_file_tells_sets_of_one_name_apart(fleet: factories.Fleet, operator: Caller) -> None:
    fleet.enrol_set(1)
    fleet.all_say(factories.listing("EVENT", resources=["vm1"], not_before=fleet.now + factories.seconds(900)))
    operator.post("events/EVENT/claims/", {"comment": "mine"})
    answer = operator.get("audit/export.csv?set_name=web")
    rows = list(csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode())))
    assert [(row["set"], row["subscription"], row["resource_group"]) for row in rows] == [("web", SUBSCRIPTION, "shop")]


def test_hidden_set_is_not_disclosed(settings: LazySettings, db: None) -> None:
    listeners = Listeners(now=factories.NOW)
    listeners.enrol("vm1")
    listeners.enrol("other1", availability_set="other", subscriptionId="99999999-0000-0000-0000-000000000000")
    AvailabilitySet.objects.filter(name="web").update(service="shop")
    for name in ("vm1", "other1"):
        listeners.cover(name, "subscribed")
    settings.SCOPED_READ_ACCESS = True
    person = factories.viewer("scoped")
    Scope.objects.create(user=person, kind="service", pattern="shop")
    (cache,) = caller(person).get("caches/").json()["results"]
    told = {row["set"]["name"]: row["set"]["subscription"] for row in cache["coverage"]}
    assert told == {"web": SUBSCRIPTION, "…": ""}
