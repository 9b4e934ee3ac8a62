"""`docs/architecture.md` lists the rooms and who imports whom: as the folders are, and as the test of arrows checks."""

from __future__ import annotations

import re

from tests.architecture.sources import FLEET, ROOT
from tests.architecture.test_arrows import ARROWS, WIRE

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def rows(head: str) -> list[list[str]]:
    """The cells of the table below this line, without its heads and its rule."""
    table = PAGE.partition(f"| {head} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def rooms() -> set[str]:
    return {cell.strip("`") for cell, _ in rows("room | what lives there")}


def test_a_floor_has_no_room_that_the_page_does_not_list() -> None:
    shared = {floor.strip("`"): set(re.findall(r"`(\w+)`", cell)) for floor, cell in rows("floor | for several rooms")}
    assert set(shared) == {"domain", "models", "operations", "projections", "wording"}
    for floor, names in shared.items():
        entries = {path.stem for path in (FLEET / floor).iterdir() if not path.name.startswith("__")}
        assert sorted(entries - rooms()) == sorted(names), floor


def test_the_page_draws_the_arrows_that_are_checked() -> None:
    head = [WIRE, "fleet.domain", "fleet.models", "fleet.operations", "fleet.projections", "fleet.wording"]
    drawn: dict[str, set[str]] = {}
    for first, *cells in rows("may import → | agent's `wire` | domain | models | operations | projections | wording"):
        for name in re.findall(r"`(\w+)`", first):
            drawn[f"fleet.{name}"] = {layer for layer, cell in zip(head, cells, strict=True) if cell == "yes"}
    assert drawn.pop("fleet.drydock_agent") == {WIRE}
    assert drawn == ARROWS
