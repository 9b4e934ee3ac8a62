"""Prometheus' own tool reads the rules and plays each alert, and a real Prometheus answers what the board asks."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from tests.gateway.test_alerts_and_the_board import EXAMPLES, panels, rules
from tests.gateway_process import Gateway
from tests.processes import answers, free_port, running, wait_for

pytestmark = [pytest.mark.flow, pytest.mark.long]

FOLDER = EXAMPLES / "prometheus"


def promtool(*words: str) -> str:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool here (Debian: prometheus)")
    done = subprocess.run([program, *words], cwd=FOLDER, capture_output=True, text=True, timeout=60, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


def test_the_configuration_and_its_rules_are_sound() -> None:
    assert "SUCCESS" in promtool("check", "config", "prometheus.yml")
    assert "SUCCESS" in promtool("check", "rules", "alerts.yml")


def test_each_alert_fires_in_its_trouble_and_none_while_all_is_well() -> None:
    assert "SUCCESS" in promtool("test", "rules", "alerts_test.yml")


def test_a_rule_that_was_changed_is_noticed(tmp_path: Path) -> None:
    rules = (FOLDER / "alerts.yml").read_text(encoding="utf-8").replace("< 300", "< 3")
    (tmp_path / "alerts.yml").write_text(rules, encoding="utf-8")
    shutil.copy(FOLDER / "alerts_test.yml", tmp_path)
    with pytest.raises(AssertionError, match="DrydockNeedsADecisionSoon"):
        promtool("test", "rules", str(tmp_path / "alerts_test.yml"))


def test_what_the_board_asks_can_be_parsed(tmp_path: Path) -> None:
    asked = [target["expr"] for panel in panels() for target in panel.get("targets", [])]
    recorded = [{"record": f"board:{number}", "expr": expression} for number, expression in enumerate(asked)]
    file = tmp_path / "board.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": recorded}]}), encoding="utf-8")
    assert f"{len(asked)} rules found" in promtool("check", "rules", str(file))


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
