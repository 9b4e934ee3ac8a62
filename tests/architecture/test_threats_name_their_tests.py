"""Every defence that the documentation claims names a test that is there."""

import re

from tests.architecture.sources import ROOT

ROWS = re.findall(
    r"^\| (\w+) \|.*\|(.*)\|$", (ROOT / "docs" / "dev" / "threats.md").read_text(encoding="utf-8"), re.MULTILINE
)


def test_each_row_names_tests_that_exist() -> None:
    rows = [(room, re.findall(r"`([^`]+)`", tests)) for room, tests in ROWS if room != "room"]
    assert len(rows) > 5
    for room, tests in rows:
        assert tests, room
        assert [name for name in tests if not (ROOT / name.partition("::")[0]).is_file()] == [], room


def test_rows_of_one_room_stand_together() -> None:
    rooms = [room for room, _ in ROWS if room != "room"]
    assert rooms == sorted(rooms)


def test_each_attack_has_one_row() -> None:
    text = (ROOT / "docs" / "dev" / "threats.md").read_text(encoding="utf-8")
    attacks = re.findall(r"^\| \w+ \| ([^|]+\|[^|]+) \|", text, re.MULTILINE)
    assert len(attacks) > 5
    assert [attack for attack in attacks if attacks.count(attack) > 1] == []
