"""What operations and projections leave to the edges, as the API words it: in UTC."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fleet.domain.reasons import Reason, Refused, from_json, read_reason
from fleet.models import Entry
from fleet.projections.timeline.entries import rows_of
from fleet.wording.say import say, text_of
from fleet.wording.times import API


@contextmanager
def refused(code: str) -> Iterator[pytest.ExceptionInfo[Refused]]:
    """Something is refused for the reason of this code."""
    with pytest.raises(Refused) as caught:
        yield caught
    assert code_of(caught.value) == code


def code_of(said: Refused | Reason | str) -> str:
    """The code of a refusal's reason or of a reason, also as a column keeps it."""
    reason = said.reason if isinstance(said, Refused) else said
    found = read_reason(reason) if isinstance(reason, str) else reason
    assert isinstance(found, Reason), found
    return found.code


def sentences(said: Iterable[Any]) -> list[str]:
    """Each reason's sentence, also of reasons as a JSON column keeps them."""
    return [sentence(each) for each in from_json(list(said))]


def sentence(said: Refused | Reason | str) -> str:
    """The sentence of a refusal or of a reason, also as a column keeps it."""
    reason = said.reason if isinstance(said, Refused) else said
    return say(read_reason(reason) if isinstance(reason, str) else reason, API)


def text(entry: Entry) -> str:
    """What an entry of the timeline tells."""
    return text_of(rows_of([entry])[0], API)
