"""The control: without rows and a sweep, the same kills lose orders."""

import sys
from collections import Counter

import pytest

from tests.faults.control import control
from tests.faults.rounds import PROMISED_SECONDS
from tests.faults.schedule import ROUNDS, SEED


@pytest.mark.real_time
@pytest.mark.long
@pytest.mark.fault
@pytest.mark.faults
def test_plain_celery_loses_orders_at_the_same_places() -> None:
    # Each costs the start of a worker; a twentieth of the rounds shows it often enough.
    rounds = max(3, ROUNDS // 20)
    sent, lost = control(range(SEED, SEED + rounds), patience=PROMISED_SECONDS)
    gone = Counter((each.place, each.acks) for each in lost)
    sys.stdout.write(f"\nThe control, plain Celery without rows and sweep, lost {len(lost)} of {len(sent)} orders\n")
    for (place, acks), count in sorted(Counter((each.place, each.acks) for each in sent).items()):
        sys.stdout.write(f"{f'{place} (acks {acks})':55} {gone[place, acks]:5} of {count}\n")
    assert lost
