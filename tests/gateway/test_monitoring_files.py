"""Files for Prometheus and Grafana: they query what `/metrics` has, and their own tools read them."""

import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from prometheus_client.metrics import MetricWrapperBase

from fleet.domain.gauges import GAUGES, OUTCOMES
from fleet.gateway import metrics as own
from fleet.projections.desk import gauges
from tests.factories import Fleet
from tests.gateway_process import Gateway
from tests.processes import answers, free_port, running, wait_for

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


FOLDER = EXAMPLES / "prometheus"


def promtool(*words: str, stdin: str = "") -> str:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool here (Debian: prometheus)")
    done = subprocess.run(
        [program, *words], cwd=FOLDER, input=stdin, capture_output=True, text=True, timeout=60, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


@pytest.mark.long
def test_configuration_rules_and_what_the_board_asks_are_sound(tmp_path: Path) -> None:
    assert "SUCCESS" in promtool("check", "config", "prometheus.yml")
    assert "SUCCESS" in promtool("check", "rules", "alerts.yml")
    asked = [target["expr"] for panel in panels() for target in panel.get("targets", [])]
    recorded = [{"record": f"board:{number}", "expr": expression} for number, expression in enumerate(asked)]
    file = tmp_path / "board.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": recorded}]}), encoding="utf-8")
    assert f"{len(asked)} rules found" in promtool("check", "rules", str(file))


@pytest.mark.long
def test_each_alert_fires_in_its_trouble_and_none_while_all_is_well_and_a_change_is_noticed(tmp_path: Path) -> None:
    assert "SUCCESS" in promtool("test", "rules", "alerts_test.yml")
    rules = (FOLDER / "alerts.yml").read_text(encoding="utf-8").replace("< 300", "< 3")
    (tmp_path / "alerts.yml").write_text(rules, encoding="utf-8")
    shutil.copy(FOLDER / "alerts_test.yml", tmp_path)
    with pytest.raises(AssertionError, match="DrydockNeedsADecisionSoon"):
        promtool("test", "rules", str(tmp_path / "alerts_test.yml"))


@pytest.mark.long
def test_promtool_finds_no_fault_in_the_metrics(gateway: Gateway) -> None:
    gateway.agent().post()
    requests.get(f"{gateway.url}/healthz", timeout=10)
    assert promtool("check", "metrics", stdin=requests.get(f"{gateway.url}/metrics", timeout=30).text) == ""


@pytest.mark.long
def test_a_prometheus_that_scrapes_a_web_process_answers_each_question(gateway: Gateway, tmp_path: Path) -> None:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no Prometheus here (Debian: prometheus)")
    requests.get(f"{gateway.url}/healthz", timeout=10)
    told = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))
    told["global"] = {"evaluation_interval": "1s"}
    [scraped] = told["scrape_configs"]
    scraped |= {"scrape_interval": "1s", "scrape_timeout": "1s"}
    scraped["static_configs"] = [{"targets": [gateway.url.removeprefix("http://")]}]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(told), encoding="utf-8")
    shutil.copy(FOLDER / "alerts.yml", tmp_path)
    address = f"127.0.0.1:{free_port()}"

    def get(path: str, **query: str) -> Any:
        return requests.get(f"http://{address}/api/v1/{path}", params=query, timeout=10).json()["data"]

    def evaluated() -> bool:
        return all(rule["health"] != "unknown" for group in get("rules")["groups"] for rule in group["rules"])

    command = [program, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    with running([*command, f"--web.listen-address={address}"], environment={}, log=tmp_path / "log"):
        wait_for(lambda: answers(f"http://{address}/-/ready"), seconds=30, what="Prometheus is ready")
        wait_for(lambda: get("query", query="drydock_up == 1")["result"], seconds=30, what="it has scraped", every=0.2)
        wait_for(evaluated, seconds=30, what="every rule was evaluated", every=0.2)
        found = {rule["name"]: rule["health"] for group in get("rules")["groups"] for rule in group["rules"]}
        assert found == {rule["alert"]: "ok" for rule in rules()}
        for panel in panels():
            for target in panel.get("targets", []):
                expression = target["expr"].replace("$job", "drydock")
                assert get("query", query=expression)["resultType"] == "vector", panel["title"]
