"""Cache coverage: the backend records which machine listened when, and what a lost connection means."""

import pytest

from fleet.models import Coverage, Entry
from tests.caches.walking import EXAMPLE, Listeners, clock
from tests.words import text


def periods(name: str = "vm1") -> list[tuple[str, object, object]]:
    rows = Coverage.objects.filter(machine__resource_name=name).order_by("since", "pk")
    return [(row.state, row.since, row.until) for row in rows]


def kinds() -> list[str]:
    return list(Entry.objects.filter(cache__isnull=False).order_by("pk").values_list("kind", flat=True))


def test_a_change_ends_one_stretch_and_begins_the_next(listeners: Listeners) -> None:
    listeners.cover("vm1", "subscribed", at=clock("16:00:00"))
    listeners.cover("vm1", "stale", at=clock("16:01:00"), reason="no pong in 10 s")
    listeners.cover("vm1", "subscribed", at=clock("16:01:05"))
    assert periods() == [
        ("subscribed", clock("16:00:00"), clock("16:01:00")),
        ("stale", clock("16:01:00"), clock("16:01:05")),
        ("subscribed", clock("16:01:05"), None),
    ]
    assert "again after 5 s" in text(Entry.objects.filter(kind="cache_listened").latest("pk"))


def test_a_connection_lost_without_any_notice_is_an_entry_of_its_own(listeners: Listeners) -> None:
    listeners.cover("vm1", "subscribed")
    listeners.later(5)
    listeners.cover("vm1", "lost", reason="closed by the server")
    listeners.cover("vm1", "stale")
    assert kinds() == ["cache_listened", "cache_lost_unannounced"]
    assert "without a notification" in text(Entry.objects.get(kind="cache_lost_unannounced"))


def test_a_connection_lost_in_a_maintenance_is_expected(listeners: Listeners) -> None:
    listeners.cover("vm1", "subscribed")
    listeners.play("vm1", upto=3)
    listeners.cover("vm1", "lost", at=clock("16:34:47"))
    assert kinds()[-1] == "cache_lost"
    assert "expected" in text(Entry.objects.latest("pk"))


def test_a_connection_lost_long_before_an_announced_start_is_not_explained_by_it(listeners: Listeners) -> None:
    listeners.cover("vm1", "subscribed")
    listeners.play("vm1", upto=1)
    listeners.cover("vm1", "lost", at=clock("16:25:00"))
    assert kinds()[-1] == "cache_lost_unannounced"


@pytest.mark.parametrize(
    "host", ["a.usgovvirginia.redis.usgovcloudapi.net", "a.redis.chinacloudapi.cn", "a.redis.sovcloud-api.fr"]
)
def test_subscriber_of_an_unsupported_cache_is_no_listener(listeners: Listeners, host: str) -> None:
    for _ in range(2):
        listeners.cover("vm1", "subscribed", host=host)
    assert [state for state, _, _ in periods()] == ["unsupported"]
    assert kinds() == ["cache_unsupported"]
    listeners.cover("vm2", "subscribed", host="a.redis.cache.usgovcloudapi.net")
    assert periods("vm2")[0][0] == "subscribed"


def test_a_refused_login_and_a_host_without_the_channel_are_named(listeners: Listeners) -> None:
    listeners.cover("vm1", "refused", reason="WRONGPASS")
    listeners.cover("vm2", "unsupported", host="new.redis.azure.net")
    assert kinds() == ["cache_refused", "cache_unsupported"]


def test_silent_resubscription_leaves_a_gap(listeners: Listeners) -> None:
    listeners.cover("vm1", "subscribed", at=clock("16:00:00"))
    listeners.now = clock("16:05:00")
    listeners.heard("vm1")
    listeners.advance()
    listeners.now = clock("17:00:00")
    listeners.cover("vm1", "subscribed", at=clock("17:00:00"))
    assert periods() == [("subscribed", clock("16:00:00"), clock("16:05:00")), ("subscribed", clock("17:00:00"), None)]


def test_what_was_heard_counts_even_if_the_machine_never_said_that_it_listens(listeners: Listeners) -> None:
    listeners.hear("vm1", EXAMPLE[0][1])
    assert periods() == []
    assert kinds() == ["maintenance_scheduled"]
