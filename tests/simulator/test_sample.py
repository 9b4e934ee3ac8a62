"""Microsoft's own sample, played field by field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.simulator.asking import Simulated

SAMPLE = json.loads((Path(__file__).parents[1] / "samples" / "live_migration.json").read_text(encoding="utf-8"))
EVENT_ID = SAMPLE["documents"][1]["Events"][0]["EventId"]


def see(azure: Simulated) -> Any:
    """The document that both machines see."""
    first, second = (azure.document(machine, SAMPLE["api_version"]) for machine in SAMPLE["machines"])
    assert first == second
    return first


def announce(azure: Simulated) -> None:
    azure.control(
        "POST",
        "stories",
        {
            "story": "live-migration",
            "set": "west",
            "resources": SAMPLE["machines"],
            "notice_seconds": 900,
            "started_seconds": 600,
            "event_id": EVENT_ID.lower(),
        },
    )


def test_an_approved_live_migration_gives_the_four_documents_of_the_sample(azure: Simulated) -> None:
    seen = [see(azure)]
    announce(azure)
    seen.append(see(azure))
    assert azure.approve("WestNO_1", EVENT_ID) == 200
    seen.append(see(azure))
    azure.clock.advance(600)
    seen.append(see(azure))
    assert seen == SAMPLE["documents"]


def test_unapproved_live_migration_gives_the_same_four_documents(azure: Simulated) -> None:
    seen = [see(azure)]
    announce(azure)
    seen.append(see(azure))
    azure.clock.advance(899)
    assert see(azure) == seen[-1]
    azure.clock.advance(1)
    seen.append(see(azure))
    azure.clock.advance(600)
    seen.append(see(azure))
    assert seen == SAMPLE["documents"]


@pytest.mark.parametrize("index", [1, 2])
def test_fields_have_the_order_of_the_sample(azure: Simulated, index: int) -> None:
    announce(azure)
    if index == 2:
        azure.approve("WestNO_0", EVENT_ID)
    assert list(see(azure)["Events"][0]) == list(SAMPLE["documents"][index]["Events"][0])
