import asyncio
import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
import requests
from pytest_django.plugin import DjangoDbBlocker

from fleet.embedded import Urls
from fleet.gateway.streams import Streams
from fleet.models import Entry
from fleet.operations import wake_up
from tests.factories import viewer
from tests.gateway.conftest import shared
from tests.gateway.test_long_polls import held
from tests.gateway_process import Gateway, running_gateway
from tests.processes import wait_for
from tests.rows import bearer

pytestmark = pytest.mark.real_time

Event = dict[str, str]


@pytest.fixture(scope="module")
def reader(one_gateway: Gateway, django_db_blocker: DjangoDbBlocker) -> dict[str, str]:
    """Headers of a viewer's token."""
    with shared(one_gateway.urls, django_db_blocker):
        return bearer(viewer(), "read")


def events(answer: requests.Response) -> Iterator[Event]:
    """The events of a stream, without comments."""
    event: Event = {}
    for line in answer.iter_lines(decode_unicode=True):
        if line:
            name, _, value = line.partition(": ")
            event[name] = value
        elif event:
            if "event" in event:
                yield event
            event = {}


def listen(
    gateway: Gateway, reader: dict[str, str], *, after: str = "", path: str = "/api/v1/stream"
) -> requests.Response:
    headers = reader | ({"Last-Event-ID": after} if after else {})
    return requests.get(gateway.url + path, headers=headers, stream=True, timeout=20)


def write(connection: psycopg.Connection, text: str) -> None:
    connection.execute(
        "INSERT INTO fleet_entry (at, kind, actor, via, text, data) VALUES (now(), 'event_seen', '', '', %s, '{}')",
        [text],
    )


def test_a_new_entry_comes_at_once_with_what_it_is_about(gateway: Gateway, reader: dict[str, str]) -> None:
    gateway.agent()
    with closing(listen(gateway, reader)) as answer:
        stream = events(answer)
        assert next(stream)["event"] == "clock"
        began = time.monotonic()
        agent = gateway.agent(resource_name="news-1")
        enrolled = next(event for event in stream if "news-1" in event["data"])
        assert time.monotonic() - began < 10
    row = Entry.objects.get(machine__vm_id=agent.vm_id)
    assert enrolled["event"] == "changed"
    assert enrolled["id"] == f"{row.xid}.{row.pk}"
    data = json.loads(enrolled["data"])
    assert sorted(data) == ["approval", "at", "event_id", "kind", "machine", "set", "text"]
    assert (data["kind"], data["machine"], data["set"]) == ("machine_enrolled", row.machine_id, row.availability_set_id)


def test_a_wake_up_brings_an_entry_faster_than_asking(gateway: Gateway, reader: dict[str, str], servers: Urls) -> None:
    times = []
    with closing(listen(gateway, reader)) as answer, psycopg.connect(servers.database, autocommit=True) as writer:
        stream = events(answer)
        next(stream)
        for number in range(7):
            time.sleep(0.3)
            began = time.monotonic()
            write(writer, f"rung {number}")
            wake_up.wake_streams()
            next(event for event in stream if f"rung {number}" in event["data"])
            times.append(time.monotonic() - began)
    # A look would take half a second on average, seven of them never this little.
    assert sorted(times)[2] < 0.3


def slow_writers(database: str, count: int) -> Callable[[], list[str]]:
    """Threads whose transactions write early and commit late, in any order; call it to wait and get all texts."""
    texts: list[str] = []

    def work(number: int) -> None:
        dice = random.Random(number)
        with psycopg.connect(database) as connection:
            for step in range(25):
                mine = [f"writer {number} step {step} line {line}" for line in range(dice.randint(1, 3))]
                for text in mine:
                    write(connection, text)
                    time.sleep(dice.uniform(0, 0.02))
                connection.commit()
                texts.extend(mine)

    threads = [threading.Thread(target=work, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()

    def finished() -> list[str]:
        for thread in threads:
            thread.join()
        return texts

    return finished


def test_no_stream_misses_or_repeats_an_entry_of_concurrent_transactions(
    gateway: Gateway, reader: dict[str, str], servers: Urls
) -> None:
    """One listens without a break; one is cut again and again and resumes by the last id it saw."""
    steady: list[Event] = []
    cut: list[Event] = []
    pieces: list[str] = []

    def listen_steadily() -> None:
        with closing(listen(gateway, reader)) as answer:
            for event in events(answer):
                steady.append(event)
                if "the end" in event["data"]:
                    return

    def listen_in_pieces() -> None:
        for length in itertools.cycle([1, 4, 9]):
            with closing(listen(gateway, reader, after=pieces[-1] if pieces else "")) as answer:
                for event in itertools.islice(events(answer), length + 1):
                    pieces.append(event["id"])
                    if event["event"] == "changed":
                        cut.append(event)
                    if "the end" in event["data"]:
                        return

    listeners = [threading.Thread(target=work) for work in (listen_steadily, listen_in_pieces)]
    for listener in listeners:
        listener.start()
    wait_for(lambda: steady and pieces, seconds=20, what="both streams are open")
    texts = slow_writers(servers.database, 6)()
    with psycopg.connect(servers.database) as writer:
        write(writer, "the end")
    for listener in listeners:
        listener.join(30)
    assert len(pieces) > len(cut) + 10
    for heard in (steady[1:], cut):
        told = [json.loads(event["data"])["text"] for event in heard]
        assert sorted(text for text in told if text.startswith("writer")) == sorted(texts)
        ids = [tuple(map(int, event["id"].split("."))) for event in heard]
        assert ids == sorted(set(ids))


def test_a_stream_resumes_from_long_ago(gateway: Gateway, reader: dict[str, str], servers: Urls) -> None:
    with closing(listen(gateway, reader)) as answer:
        start = next(events(answer))["id"]
    with psycopg.connect(servers.database) as writer:
        for number in range(1200):
            write(writer, f"long ago {number}")
    time.sleep(1.5)
    with closing(listen(gateway, reader, after=start)) as answer:
        told = (json.loads(event["data"]).get("text", "") for event in events(answer))
        # Whatever else is news in the meantime comes as well.
        heard = list(itertools.islice((text for text in told if text.startswith("long ago")), 1200))
    assert heard == [f"long ago {number}" for number in range(1200)]


def test_stream_id_of_another_database_restarts_the_stream(gateway: Gateway, reader: dict[str, str]) -> None:
    unreadable = ("nonsense", "1.2.3.4", "-5.1", "\xb2.\xb9", "9" * 5000)
    for strange in ("99999999999.1", "9.1.1", *unreadable):
        reason = "unreadable" if strange in unreadable else "ahead"
        with closing(listen(gateway, reader, after=strange)) as answer:
            stream = events(answer)
            first, second = next(stream), next(stream)
            assert (first["event"], second["event"]) == ("clock", "reset")
            assert json.loads(second["data"]) == {"reason": reason}
            assert second["id"] == first["id"]
            agent = gateway.agent()
            assert any(f"vm-{agent.vm_id[:8]}" in event["data"] for event in itertools.islice(stream, 20))


def test_an_id_from_before_the_database_came_back_is_said_to_be_and_misses_nothing_of_the_new_era() -> None:
    position = (2, 9, 1)
    streams = Streams(*[cast(Any, None)] * 3)
    for last_id, begins in (
        ("8.7", ((1, 8, 7), "earlier-era")),
        ("1.99.7", ((1, 99, 7), "earlier-era")),
        ("2.8.7", ((2, 8, 7), "")),
        ("", (position, "")),
    ):
        # In a thread of its own: the browser tests leave an event loop in this one.
        with ThreadPoolExecutor(1) as thread:
            assert thread.submit(asyncio.run, streams._start(last_id, position)).result() == begins


def test_a_stream_takes_no_parameters(gateway: Gateway, reader: dict[str, str]) -> None:
    for path in ("/api/v1/stream?set=7&kind=x", "/stream?set=7", "/api/v1/stream?set", "/api/v1/stream?%ff"):
        with closing(listen(gateway, reader, path=path)) as answer:
            assert (answer.status_code, answer.json()["type"]) == (422, "validation"), path
            assert answer.json()["errors"][-1]["field"] in ("set", "ÿ", "\ufffd"), path
            assert answer.headers["content-type"] == "application/problem+json"


def test_a_stream_pings_ends_itself_or_at_sigterm_and_is_counted(
    servers: Urls, reader: dict[str, str], folder: Path
) -> None:
    settings = {"STREAM_SECONDS": "6", "STREAM_PING_SECONDS": "0.4"}
    with running_gateway(servers, folder, environment=settings) as gateway, ThreadPoolExecutor(4) as pool:
        wait_for(lambda: listen(gateway, reader).status_code == 200, seconds=20, what="the timelines can be read")
        began = time.monotonic()
        with closing(listen(gateway, reader)) as answer:
            gone = listen(gateway, reader)
            wait_for(lambda: gateway.metric("drydock_streams") >= 2, seconds=20, what="the streams are counted")
            gone.close()
            wait_for(lambda: gateway.metric("drydock_streams") <= 1, seconds=20, what="a reader that left is noticed")
            assert time.monotonic() - began < 5
            text = answer.text
        assert 5 < time.monotonic() - began < 20
        assert 1 <= text.count(": ping\n\n") <= 16
        wait_for(lambda: gateway.metric("drydock_streams") == 0, seconds=20, what="no stream is left")
        calls = [pool.submit(gateway.agent().orders, wait=50) for _ in range(3)]
        held(gateway, 3)
        with closing(listen(gateway, reader)) as answer:
            stream = events(answer)
            next(stream)
            began = time.monotonic()
            gateway.process.child.terminate()
            assert [call.result(20).json()["orders"] for call in calls] == [[], [], []]
            list(stream)
        # At once, and not when the server loses patience and ends its worker by force.
        assert time.monotonic() - began < 5
        assert gateway.process.child.wait(20) == 0
