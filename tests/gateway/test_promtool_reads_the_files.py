"""Prometheus' own tool reads the rules, plays each alert, and parses what the board asks."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.gateway.test_alerts_and_the_board import EXAMPLES, panels

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
    assert "SUCCESS" in promtool("check", "config", "--lint-fatal", "prometheus.yml")
    assert "SUCCESS" in promtool("check", "rules", "--lint-fatal", "alerts.yml")


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
