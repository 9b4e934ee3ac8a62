"""An agent of the release before: everything that it sent during one event, from enrolment to the end, sent again."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
from django.contrib.auth.models import User
from pytest_django.plugin import DjangoDbBlocker

from fleet.embedded import Urls
from fleet.models import Approval, ScheduledEvent
from fleet.operations.approvals import approve
from tests import accounts
from tests.factories import acting, operator
from tests.gateway.conftest import shared
from tests.gateway_process import running_gateway
from tests.upgrades.recorded import Calls

pytestmark = [pytest.mark.real_time, pytest.mark.flow]


def test_former_agent_and_this_gateway_understand_each_other(
    own_urls: Urls, tmp_path: Path, django_db_blocker: DjangoDbBlocker
) -> None:
    calls = Calls()
    with running_gateway(own_urls, tmp_path) as gateway, shared(own_urls, django_db_blocker):
        _, calls.known["JOIN-TOKEN"] = accounts.join_token(
            comment="", expires_in=timedelta(hours=1), now=datetime.now(UTC)
        )
        for call in calls:
            if call["path"].startswith("/agent/v1/orders") and call["answer"]["orders"]:
                _approve(operator())
            said = requests.request(
                call["method"],
                gateway.url + call["path"].replace("wait=50", "wait=5"),
                data=call["body"].encode(),
                headers=call["headers"],
                timeout=20,
            )
            assert said.status_code == 200, said.text
            answer = said.json()
            _same_shape(call["answer"], answer, call["path"])
            if "credential" in answer:
                calls.known["CREDENTIAL"] = answer["credential"]
            for order in answer.get("orders", ()):
                calls.known["ORDER-ID"] = order["id"]
        event = ScheduledEvent.objects.get()
        assert event.status == "ENDED"
        assert Approval.objects.get().state == "CONFIRMED"


def _approve(by: User) -> None:
    event = ScheduledEvent.objects.get(status="SCHEDULED")
    approve.grant(event_id=event.event_id, actor=acting(by, why="go"), now=datetime.now(UTC))


def _same_shape(then: Any, today: Any, where: str) -> None:
    """Whatever was answered then is answered now, of the same kind; more may be there."""
    assert type(then) is type(today) or then is None or today is None, where
    if isinstance(then, dict):
        assert set(then) <= set(today), where
        for name in then:
            _same_shape(then[name], today[name], f"{where} {name}")
    elif isinstance(then, list) and then and today:
        _same_shape(then[0], today[0], where)
