"""Every defence that the documentation claims names a test that is there."""

import re

from tests.architecture.sources import ROOT

PAGE = (ROOT / "docs" / "dev" / "threats.md").read_text(encoding="utf-8")
ROOMS = re.findall(r"^## (\w+)$", PAGE, re.MULTILINE)
ROWS = re.findall(r"^\| ([^|]+) \| [^|]+ \| ([^|]*) \|$", PAGE, re.MULTILINE)
ATTACKS = [(threat, tests) for threat, tests in ROWS if threat != "threat"]


def test_each_row_names_tests_that_exist() -> None:
    assert len(ATTACKS) > 5
    assert len(ATTACKS) + 2 * len(ROOMS) == len(re.findall(r"^\|", PAGE, re.MULTILINE))
    for threat, tests in ATTACKS:
        assert re.search(r"`tests/[^`]+`", tests), threat


def test_each_room_has_one_section() -> None:
    assert sorted(set(ROOMS)) == ROOMS


def test_each_attack_has_one_row() -> None:
    attacks = [threat for threat, _ in ATTACKS]
    assert [attack for attack in attacks if attacks.count(attack) > 1] == []
