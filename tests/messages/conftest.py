"""What tests of channels share: real processes that send and services that are played."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from fleet.notifications import hooks
from fleet.notifications.channels import alertmanager, apprise, mail, pagerduty, slack, webhook, webpush
from fleet.notifications.sender.pool import Pool
from tests import factories
from tests.factories import Fleet
from tests.messages.pretend import listening
from tests.messages.pretend_slack import PretendSlack


@pytest.fixture(scope="session")
def loopback_pool() -> Iterator[Pool]:
    """Processes that may send to stand-ins on this machine."""
    found = Pool(most=4, allow=("127.0.0.0/8",))
    yield found
    found.close()


@pytest.fixture
def reach_loopback(loopback_pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What all kinds of channels send by."""
    for kind in (alertmanager, apprise, mail, pagerduty, slack, webhook, webpush):
        monkeypatch.setattr(kind, "send_job", loopback_pool.send)
    monkeypatch.setattr(hooks, "send", loopback_pool.send)


@pytest.fixture
def there(reach_loopback: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[PretendSlack]:
    """A stand-in of Slack, to which channels and answers lead."""
    service = PretendSlack()
    with listening(service):
        monkeypatch.setattr(slack, "URL", f"{service.url}/api")
        monkeypatch.setattr(hooks, "RESPONSES", (f"{service.url}/actions/",))
        yield service


@pytest.fixture
def announced_fleet(db: None) -> Fleet:
    """A fleet of this moment with an announced event: receivers compare clocks."""
    found = Fleet(now=datetime.now(UTC))
    factories.announced(found)
    return found
