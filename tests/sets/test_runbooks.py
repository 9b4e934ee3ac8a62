"""Runbooks: a link of a set or of a service, which the pages of their events show."""

from datetime import UTC, datetime

import pytest

from fleet.domain.reasons import Refused
from fleet.models import AvailabilitySet, Service
from fleet.operations.sets import changes
from fleet.operations.sets.changes import RequirementForm, ServiceForm, ServiceSerializer
from tests.api.conftest import caller, problem
from tests.approvals.asking import entries
from tests.dashboard.conftest import acts, logged_in, text_of
from tests.factories import EVENT, Fleet, acting, admin, announced, operator, the_set, who
from tests.rows import SetFactory
from tests.words import text

pytestmark = pytest.mark.django_db
OF_SET, OF_SERVICE = "https://wiki.example.org/web?page=1#start", "http://wiki/shop"
ADDRESS = f"/events/{EVENT}/"


@pytest.fixture
def shop(db: None) -> Fleet:
    found = Fleet(now=datetime.now(UTC))
    announced(found)
    AvailabilitySet.objects.update(service="Shop")
    return found


def of_set(fleet: Fleet, address: str) -> AvailabilitySet:
    sent = RequirementForm("runbook", {"runbook": address})
    return changes.change_set(sent, set_id=the_set().pk, actor=acting(admin()), now=fleet.now)


def of_service(fleet: Fleet, address: str, service: str = "shop") -> Service:
    sent = ServiceForm({"runbook": address})
    return changes.change_service(sent, service=service, actor=acting(admin()), now=fleet.now)


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)", "JavaScript://x/%0aalert(1)", "data:text/html,x", "ftp://wiki/x", "//wiki/x",
        "wiki/x", "https://", "https:///x", "https://ada:secret@wiki/x", "https://wiki.example.org@evil.example/",
        "https://wiki/<script>alert(1)</script>", 'https://wiki/"onclick=', "https://wiki/a b", "https://wiki\\\\x",
        "https://[::1", "https://wiki:99999/", "https://wiki/" + "x" * 10_000,
    ],
)  # fmt: skip
def test_address_that_is_no_plain_web_address_is_refused(shop: Fleet, address: str) -> None:
    for call in (of_set, of_service):
        with pytest.raises(Refused) as caught:
            call(shop, address)
        assert caught.value.code == "validation"
        assert [error["field"] for error in caught.value.details["errors"]] == ["runbook"]
    assert the_set().runbook == "" and not Service.objects.exists()
    problem(caller(admin())("PATCH", f"sets/{the_set().pk}/", {"runbook": address}), 422, "validation")
    problem(caller(admin())("PATCH", "services/shop/", {"runbook": address}), 422, "validation")


def test_event_links_to_the_runbook_of_its_set_or_else_of_its_service(shop: Fleet) -> None:
    client, call = logged_in(operator()), caller(operator(), "read")

    def shown() -> str:
        linked: str = call.get(f"events/{EVENT}/").json()["runbook"]
        body = client.get(ADDRESS).content.decode()
        assert (f'<a href="{linked}" target="_blank" rel="noopener noreferrer">{linked}</a>' in body) == bool(linked)
        return linked

    assert shown() == ""
    of_service(shop, OF_SERVICE, "SHOP")
    assert shown() == OF_SERVICE
    of_set(shop, OF_SET)
    assert shown() == OF_SET
    of_set(shop, "")
    assert shown() == OF_SERVICE


def test_each_change_is_a_line_with_both_values(shop: Fleet) -> None:
    of_set(shop, OF_SET)
    of_service(shop, OF_SERVICE)
    of_service(shop, OF_SERVICE)
    (of_a_set,), (of_a_service,) = entries("set_changed"), entries("service_changed")
    assert (who(of_a_set), of_a_set.before, of_a_set.after) == ("ada", {"runbook": ""}, {"runbook": OF_SET})
    assert (who(of_a_service), of_a_service.after) == ("ada", {"runbook": OF_SERVICE})
    assert OF_SET in text(of_a_set) and OF_SERVICE in text(of_a_service) and "shop" in text(of_a_service)


def test_administrators_change_runbooks_and_only_of_services_that_exist(shop: Fleet) -> None:
    user, ada = logged_in(operator()), logged_in(admin())
    assert ada.post(f"/sets/{the_set().pk}/runbook/", {"runbook": OF_SET}).status_code == 302
    assert ada.post("/service-runbook/", {"name": "Shop", "runbook": OF_SERVICE}).status_code == 302
    for page in (f"/sets/{the_set().pk}/", "/services/Shop/"):
        assert "Runbook" in text_of(user.get(page)) and "runbook" not in "".join(acts(user.get(page)))
        assert OF_SERVICE in ada.get("/services/Shop/").content.decode()
    assert ada.post("/service-runbook/", {"name": "nothing", "runbook": OF_SERVICE}).status_code == 404
    refused = ada.post("/service-runbook/", {"name": "Shop", "runbook": "javascript:1"})
    assert refused.status_code == 422 and 'href="javascript' not in refused.content.decode()


def test_services_are_read_and_changed_by_the_api(shop: Fleet) -> None:
    call = caller(admin())
    assert call.get("services/sHOP/").json() == {"name": "Shop", "runbook": ""}
    assert call("PATCH", "services/shop/", {"runbook": OF_SERVICE}).json() == {"name": "Shop", "runbook": OF_SERVICE}
    assert ServiceSerializer(data={"runbook": OF_SERVICE}).is_valid()
    problem(call.get("services/nothing/"), 404, "not-found")
    problem(call("PATCH", "services/nothing/", {"runbook": OF_SERVICE}), 404, "not-found")


@pytest.mark.parametrize(("of_target", "kept"), [("", OF_SET), ("https://wiki/target", "https://wiki/target")])
def test_merging_keeps_the_runbook_of_the_target_or_else_that_of_the_source(
    shop: Fleet, of_target: str, kept: str
) -> None:
    of_set(shop, OF_SET)
    source = the_set()
    target = SetFactory(name="rest", runbook=of_target)
    changes.merge_sets(set_id=source.pk, into=target.pk, actor=acting(admin()), now=shop.now)
    target.refresh_from_db()
    assert target.runbook == kept
