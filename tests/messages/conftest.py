"""What tests of channels share: real processes that send, services that are played, a real Alertmanager."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from fleet.notifications import hooks
from fleet.notifications.channels import alertmanager, apprise, mail, pagerduty, slack, webhook, webpush
from fleet.notifications.sender.pool import Pool
from tests import factories
from tests.factories import Fleet
from tests.messages.alertmanagers import RealAlertmanager, real_alertmanager
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


@pytest.fixture(scope="module")
def am(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealAlertmanager]:
    """A real Alertmanager for a whole file: tests tell their events apart."""
    with real_alertmanager(tmp_path_factory.mktemp("alertmanager")) as found:
        yield found


@pytest.fixture
def announced_fleet(db: None) -> Fleet:
    """A fleet of this moment with an announced event: receivers compare clocks."""
    found = Fleet(now=datetime.now(UTC))
    factories.announced(found)
    return found


@pytest.fixture
def today(db: None, reach_loopback: None) -> Fleet:
    """A fleet of this very minute: Alertmanager keeps real time."""
    return Fleet(now=datetime.now(UTC) - timedelta(minutes=1))
