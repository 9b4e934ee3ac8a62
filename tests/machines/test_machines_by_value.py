"""Machines by size, region, zone, agent version and api-version: filters, counts, chips of the page, metrics."""

from datetime import UTC, datetime
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from fleet.domain.gauges import MAX_LABEL_LENGTH, VALUE_GAUGES
from fleet.gateway.metrics import Collected, at_most_every
from fleet.models import Machine
from fleet.operations.intake import presence
from fleet.projections import counts
from fleet.projections.desk import gauges
from fleet.projections.filters import MachineFilter
from tests import factories
from tests.api.conftest import caller
from tests.dashboard.conftest import text_of

HOSTILE = '"}\n# HELP x\u202e\x07' + "x" * 5000
PARTS = {"size": "vmSize", "region": "location", "zone": "zone"}


@pytest.fixture
def fleet(db: None) -> factories.Fleet:
    """Four machines; two state a size that differs in case only, one states neither zone nor api-versions."""
    fleet = factories.Fleet(now=datetime.now(UTC))
    fleet.enrol("a1", vmSize="Standard_D2s_v3", zone="1")
    fleet.enrol("a2", vmSize="STANDARD_D2S_V3", zone="2")
    fleet.enrol("a3", vmSize="Standard_D2s_v3", zone="2", location="northeurope")
    fleet.enrol("b1", vmSize="Standard_E8s_v5", heard=False)
    Machine.objects.filter(resource_name="a1").update(agent_version="0.2.0")
    for name, versions in (("a1", "2020-07-01,2021-02-01"), ("a2", "2019-08-01,2021-02-01")):
        pk = fleet.agents[name].machine.pk
        presence.flush(contacts=[presence.Contact(pk, fleet.now, fleet.now, metadata=f"ok,{versions}")])
    return fleet


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("size=standard_d2s_V3", ["a1", "a2", "a3"]), ("zone=2&size=Standard_D2s_v3&region=westeurope", ["a2"]),
        ("zone=1&zone=2", ["a1", "a2", "a3"]), ("agent_version=0.2.0", ["a1"]),
        ("events_version=2019-08-01", ["a2"]), ("instance_version=2021-02-01&not_stated=zone", []),
        ("not_stated=zone&not_stated=events_version", ["b1"]), ("events_version=", ["a1", "a2", "a3", "b1"]),
    ],
)  # fmt: skip
def test_list_and_counts_have_the_same_filter(fleet: factories.Fleet, query: str, names: list[str]) -> None:
    viewer = caller(factories.viewer())
    assert [row["resource_name"] for row in viewer.get(f"machines/?{query}").json()["results"]] == names
    assert viewer.get(f"machines/counts/?{query}").json()["machines"] == len(names)


def test_counts_by_each_value(fleet: factories.Fleet) -> None:
    viewer = caller(factories.viewer())
    found = viewer.get("machines/counts/?presence=live&presence=expected").json()
    shown = {name: {row["value"]: row["machines"] for row in rows} for name, rows in found.items() if name in PARTS}
    assert shown == {
        "size": {"Standard_D2s_v3": 3, "Standard_E8s_v5": 1},
        "region": {"westeurope": 3, "northeurope": 1},
        "zone": {"2": 2, "": 1, "1": 1},
    }
    assert {row["value"]: row["machines"] for row in found["events_version"]} == {
        "": 2,
        "2019-08-01": 1,
        "2020-07-01": 1,
    }
    assert viewer.get("machines/counts/?size=%00").status_code == 422


def test_values_are_bounded_and_cost_one_query(fleet: factories.Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(25):
        fleet.enrol(f"c{number}", vmSize=f"Odd_{number:02}")
    rows = MachineFilter({}, now=fleet.now).qs
    with CaptureQueriesContext(connection) as caught:
        found = counts.machines_by_value(rows)
    assert len(caught) == 1
    assert [(row.value, row.machines) for row in found.size][:1] == [("Standard_D2s_v3", 3)]
    assert len(found.size) == counts.MOST_VALUES + 1
    assert (found.size[-1].value, sum(row.machines for row in found.size)) == (None, 29)
    # More combinations than are read: the totals remain true.
    monkeypatch.setattr(counts, "MOST_COMBINATIONS", 3)
    few = counts.machines_by_value(rows)
    assert few.machines == sum(row.machines for row in few.size) == 29
    assert len(few.size) <= 4


def scraped(samples: Any) -> dict[str, dict[str, float]]:
    """What Prometheus reads: values by name and the one label."""
    registry = CollectorRegistry()
    registry.register(Collected(samples))
    text = generate_latest(registry).decode()
    assert max(map(len, text.splitlines())) < 200
    return {
        family.name: {next(iter(sample.labels.values())): sample.value for sample in family.samples if sample.labels}
        for family in text_string_to_metric_families(text)
    }


def test_versions_are_drawn_by_presence_and_bounded(fleet: factories.Fleet, anna: Client) -> None:
    def found() -> dict[str | None, dict[str, int]]:
        rows = counts.presence_by_version(MachineFilter({}).qs, now=fleet.now)
        return {version: {one.value: number for one, number in each.parts()} for version, each in rows}

    with CaptureQueriesContext(connection) as caught:
        assert found() == {"0.1.0": {"live": 2, "expected": 1}, "0.2.0": {"live": 1}}
    assert len(caught) == 1
    for number in range(counts.MOST_VALUES):
        fleet.enrol(f"c{number}")
        Machine.objects.filter(resource_name=f"c{number}").update(agent_version=f"<b>{number:02}</b>")
    assert len(found()) == counts.MOST_VALUES + 1
    assert sum(found()[None].values()) == 2
    body = anna.get("/machines/?as=counts").content.decode()
    assert "<title>0.1.0, live: 2</title>" in body
    assert "&lt;b&gt;00&lt;/b&gt;, live: 1" in body and "<b>00" not in body


def test_metrics_have_bounded_clean_labels(fleet: factories.Fleet) -> None:
    fleet.enrol("h1", vmSize=HOSTILE, location=HOSTILE, zone="other")
    fleet.enrol("h2", vmSize="\n\t", zone="unknown")
    Machine.objects.filter(resource_name="b1").update(revoked_at=fleet.now)
    for number in range(25):
        fleet.enrol(f"c{number}", vmSize=f"Odd_{number:02}")
    found = scraped(gauges.measure_values())
    assert {gauge.name for gauge in VALUE_GAUGES.values()} <= found.keys()
    sizes = found["drydock_machines_by_size"]
    assert sizes["Standard_D2s_v3"] == 3
    assert (len(sizes), sum(sizes.values())) == (counts.MOST_VALUES + 1, 30)
    assert all(len(value) <= MAX_LABEL_LENGTH and value.isprintable() for value in sizes)
    assert found["drydock_machines_by_zone"] == {"1": 1, "2": 2, "other": 1, "unknown": 26}
    assert found["drydock_machines_by_agent_version"] == {"0.2.0": 1, "0.1.0": 29}
    assert found["drydock_machines_by_events_api_version"] == {"2020-07-01": 1, "2019-08-01": 1, "unknown": 28}


def test_metrics_are_measured_at_most_once_in_an_interval() -> None:
    calls: list[int] = []
    measure = at_most_every(60, lambda: calls.append(1) or [])  # type: ignore[func-returns-value]
    assert measure() == measure() == []
    assert len(calls) == 1


def test_pages_show_which_agents_have_another_version_than_drydock(fleet: factories.Fleet, anna: Client) -> None:
    chips = text_of(anna.get("/machines/?as=counts"))
    assert "0.1.0 (as Drydock): 3" in chips and "0.2.0: 1" in chips
    same, other = (Machine.objects.get(resource_name=name).pk for name in ("a2", "a1"))
    assert 'data-code="another-version"' not in anna.get(f"/machines/{same}/").content.decode()
    assert 'data-code="another-version"' in anna.get(f"/machines/{other}/").content.decode()


def test_page_shows_counts_that_filter(fleet: factories.Fleet, anna: Client) -> None:
    fleet.enrol("h1", vmSize=HOSTILE[:400])
    body = anna.get("/machines/?zone=2").content.decode()
    assert 'hx-get="/machines/?zone=2&amp;part=machine_counts"' in body
    assert '<input type="hidden" name="zone" value="2">' in body
    assert "map-chip" not in body
    for part in (
        anna.get("/machines/?q=&zone=2&as=counts"),
        anna.get("/machines/?zone=2&part=machine_counts", headers={"HX-Request": "true"}),
    ):
        text = part.content.decode()
        assert any("zone=2" in link and "size=standard_d2s_v3" in link for link in text.lower().split('href="'))
        assert 'aria-current="true"' in text
    chosen = anna.get("/machines/?as=counts").content.decode()
    assert "not_stated=zone" in chosen
    link = next(each for each in chosen.split('href="?')[1:] if "Odd" in each or "HELP" in each).split('"')[0]
    assert "h1</a>" in anna.get(f"/machines/?{unescape(link)}").content.decode()
    empty = anna.get("/machines/?zone=9&as=counts").content.decode()
    assert "matches the filter" in empty
