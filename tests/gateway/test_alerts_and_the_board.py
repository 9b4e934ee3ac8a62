"""The files for Prometheus and Grafana ask for what `/metrics` has, and a board leaves nothing out."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.metrics import MetricWrapperBase

from fleet.domain.gauges import GAUGES, OUTCOMES
from fleet.gateway import metrics as own
from fleet.projections.desk import gauges
from tests.factories import Fleet

EXAMPLES = Path(__file__).parents[2] / "examples"
ALERTS = EXAMPLES / "prometheus" / "alerts.yml"
PLAYED = EXAMPLES / "prometheus" / "alerts_test.yml"
BOARD = EXAMPLES / "grafana" / "drydock.json"
# `name{label="value", …}`, the braces or nothing.
ASKED = re.compile(r"\b(drydock_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
GROUPED = re.compile(r"\bby \(([^)]*)\)")
# What Prometheus itself puts on a series, and what it puts on one of a histogram.
OF_PROMETHEUS = {"job", "instance", "le"}


def series() -> dict[str, set[str]]:
    """Every series of `/metrics` by name, and its labels."""
    found = {gauge.name: set(gauge.labels) for gauge in GAUGES}
    for one in vars(own).values():
        if isinstance(one, MetricWrapperBase):
            [described] = one.describe()
            endings = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}.get(described.type, ("",))
            found |= {described.name + ending: set(one._labelnames) for ending in endings}
    return found


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(BOARD.read_text(encoding="utf-8"))["panels"]
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """Whose they are, and what they ask."""
    yield from ((rule["alert"], rule["expr"]) for rule in rules())
    yield from ((panel["title"], target["expr"]) for panel in panels() for target in panel.get("targets", []))


@pytest.mark.parametrize(("whose", "expression"), list(expressions()))
def test_each_asks_for_metrics_and_labels_that_exist(whose: str, expression: str) -> None:
    known = series()
    asked = ASKED.findall(expression)
    assert asked, whose
    for name, matchers in asked:
        assert name in known
        assert {label for label, _, _ in MATCHER.findall(matchers)} <= known[name] | OF_PROMETHEUS
    labels = set.intersection(*(known[name] for name, _ in asked)) | OF_PROMETHEUS
    for group in GROUPED.findall(expression):
        assert {label.strip() for label in group.split(",")} <= labels


@pytest.mark.django_db
def test_each_value_that_is_asked_for_occurs() -> None:
    values: dict[tuple[str, str], set[str]] = {("drydock_celery_tasks_total", "outcome"): set(OUTCOMES)}
    for sample in gauges.measure(now=Fleet().now):
        for labels in sample.values:
            for label, value in zip(sample.gauge.labels, labels, strict=True):
                values.setdefault((sample.gauge.name, label), set()).add(value)
    asked = {
        (name, label, value)
        for _, expression in expressions()
        for name, matchers in ASKED.findall(expression)
        for label, how, value in MATCHER.findall(matchers)
        if how == "=" and (name, label) in values
    }
    assert len(asked) >= 5
    assert {(name, label, value) for name, label, value in asked if value not in values[name, label]} == set()


def test_the_board_shows_every_metric() -> None:
    shown = {
        name for panel in panels() for target in panel.get("targets", []) for name, _ in ASKED.findall(target["expr"])
    }
    histograms = {name.removesuffix("_bucket") for name in shown if name.endswith("_bucket")}
    left_out = {
        name for name in set(series()) - shown if name.removesuffix("_count").removesuffix("_sum") not in histograms
    }
    assert left_out == set()


def test_the_board_can_be_imported() -> None:
    board = json.loads(BOARD.read_text(encoding="utf-8"))
    assert (board["schemaVersion"], board["uid"], board["title"]) == (39, "drydock", "Drydock")
    assert {variable["name"] for variable in board["templating"]["list"]} == {"datasource", "job"}
    ids = [panel["id"] for panel in panels()]
    assert len(set(ids)) == len(ids)
    cells: Counter[tuple[int, int]] = Counter()
    for panel in panels():
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            cells.update((x, y) for y in range(place["y"], place["y"] + place["h"]))
        if panel["type"] == "row":
            continue
        assert panel["description"].endswith(".")
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert [target["refId"] for target in panel["targets"]] == list("ABCDEFG"[: len(panel["targets"])])
        # One installation at a time.
        assert all('job="$job"' in target["expr"] for target in panel["targets"])
    assert max(cells.values()) == 1, "two panels in one place"


def test_each_alert_has_a_name_of_its_own_says_what_is_wrong_and_is_played() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    for rule in rules():
        assert rule["labels"] in ({"severity": "critical"}, {"severity": "warning"})
        assert rule["annotations"]["summary"].endswith(".")
        if rule["alert"] != "DrydockNotScraped":
            assert "job" in GROUPED.findall(rule["expr"])[0]
    plays = yaml.safe_load(PLAYED.read_text(encoding="utf-8"))["tests"]
    told = {(test["alertname"], bool(test["exp_alerts"])) for play in plays for test in play["alert_rule_test"]}
    assert told == {(name, fires) for name in names for fires in (True, False)}, (
        "each fires, and is quiet while all is well"
    )
