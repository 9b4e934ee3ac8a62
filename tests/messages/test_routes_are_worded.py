"""A route says in one sentence what goes where and when."""

from __future__ import annotations

from datetime import time
from typing import Any

import pytest

from fleet.notifications.labels import MOMENT_LABELS
from fleet.notifications.routing import Moment, StandingRoute, route_wording
from tests.words import sentence


@pytest.mark.parametrize(
    ("channel", "said", "wording"),
    [
        ("", {}, "To every channel of the installation: everything."),
        (
            "#shop-ops",
            {"moments": ("event.ended", "event.first_seen"), "event_types": ("Reboot", "Redeploy"), "service": "shop"},
            "To #shop-ops: first seen and ended; Reboot or Redeploy events, of the service “shop”.",
        ),
        (
            "pager",
            {"severities": ("critical",), "from_time": time(22), "until_time": time(7), "time_zone": "Europe/Berlin"},
            "To pager: everything; on every day, 22:00 to 07:00 (Europe/Berlin), where it is critical.",
        ),
        (
            "pager",
            {"unclaimed_after_seconds": 120},
            "To pager: 2 min after the first sighting, while nobody is on it.",
        ),
        (
            "pager",
            {"before_decide_by_seconds": 60, "set_pattern": "web*"},
            "To pager: 1 min before the time to decide by, while nobody has decided; in sets named “web*”.",
        ),
    ],
)
def test_a_route_in_one_sentence(channel: str, said: dict[str, Any], wording: str) -> None:
    assert sentence(route_wording(StandingRoute(name="r", **said), channel)) == wording


def test_every_moment_has_a_label() -> None:
    assert set(MOMENT_LABELS) == set(Moment)
