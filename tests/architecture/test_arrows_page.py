"""The table of imports in `docs/dev/architecture.md` is the one that `test_arrows.py` checks."""

import re

from tests.architecture.sources import ROOT
from tests.architecture.test_arrows import ARROWS, CORE_AND_EDGES, WIRE

PAGE = (ROOT / "docs" / "dev" / "architecture.md").read_text(encoding="utf-8")


def rows(head: str) -> list[list[str]]:
    """The cells of the table below this line, without its heads and its rule."""
    table = PAGE.partition(f"| {head} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def test_the_page_draws_the_arrows_that_are_checked() -> None:
    head = [WIRE, "fleet.domain", "fleet.models", "fleet.operations", "fleet.projections", "fleet.wording"]
    drawn: dict[str, set[str]] = {}
    for first, *cells in rows("may import → | agent's `wire` | domain | models | operations | projections | wording"):
        for name in re.findall(r"`(\w+)`", first):
            drawn[f"fleet.{name}"] = {layer for layer, cell in zip(head, cells, strict=True) if cell == "yes"}
    assert drawn.pop("fleet.drydock_agent") == {WIRE}
    assert drawn == {layer: ARROWS[layer] for layer in CORE_AND_EDGES}
