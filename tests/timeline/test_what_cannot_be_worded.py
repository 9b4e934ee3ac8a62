"""Stored reasons, whatever is in them, never break a page: what has no words shows its code."""

import pytest

from fleet.domain.reasons import Reason, read_reason
from fleet.wording.say import say
from fleet.wording.times import API


@pytest.mark.parametrize(
    "reason",
    [
        Reason("of-the-next-release", by="otto"),
        Reason("held", by="otto"),
        Reason("waits-for-time", due_at="soon"),
        Reason("waits-for-machines", machines=7),
        Reason("rule", action="dance"),
        Reason("hook-failed", machines=["vm1"]),
    ],
)
def test_a_reason_that_cannot_be_worded_shows_its_code(reason: Reason) -> None:
    assert say(reason, API) == reason.code
    assert say(read_reason(reason.stored), API) == reason.code


def test_one_inside_another_leaves_the_rest_readable() -> None:
    kept = Reason("kept-by-guard", reason=Reason("waits-for-turn"), guard=Reason("no-such-guard"))
    assert say(kept, API) == f"{say(Reason('waits-for-turn'), API)} But: no-such-guard"


@pytest.mark.parametrize("written", ['{"code": ', '{"code": 7}', '{"code": "held"}', '{"code": "x", "values": []}'])
def test_what_people_wrote_is_no_reason_though_it_looks_like_one(written: str) -> None:
    assert say(read_reason(written), API) == written


def test_values_are_never_read_as_templates() -> None:
    odd = "{by.__class__} {0} {at:time}"
    assert say(Reason("held-already", by=odd), API) == f"{odd} already left the event to Azure."
