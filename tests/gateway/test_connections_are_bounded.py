"""How many connections to Postgres there may be, and whether it has room for them: each process says its own part."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
import requests
from django.db import connection

from fleet.domain.db_timeouts import Connections, name_of, read_names
from fleet.embedded import Urls
from fleet.projections.desk.readiness import connections
from tests.databases import database_named
from tests.gateway_process import Gateway
from tests.processes import wait_for


def test_a_process_says_by_its_name_how_many_it_opens_at_most() -> None:
    names = {name_of("web", most=40, process=f"{pid}@one"): 7 for pid in (1, 2, 3)}
    names[name_of("worker", most=20, process="1@two")] = 3
    assert read_names(names, others=5, room=197) == Connections({"web": 3, "worker": 1}, 140, 5, 197)


def test_unnamed_connections_count_as_they_are() -> None:
    # Release 0.1.0, psql, and one that names itself in DATABASE_URL.
    assert read_names({"drydock": 12, "": 1, "of our own": 2}, others=0, room=97).most == 15


def test_a_long_name_of_a_host_is_cut_and_not_the_number() -> None:
    name = name_of("web", most=40, process=f"1@{'a' * 100}")
    assert (len(name), read_names({name: 1}, others=0, room=97).most) == (63, 40)


def test_more_than_there_is_room_for_does_not_fit() -> None:
    assert Connections({"web": 2}, 90, 7, 97).fit
    assert not Connections({"web": 2}, 90, 8, 97).fit


def test_connections_are_read_from_postgres_by_any_process(db: Any) -> None:
    name = name_of("worker", most=33, process="1@here")
    with psycopg.connect(database_named(connection.settings_dict["NAME"]), application_name=name):
        found = connections()
    assert found.processes == {"worker": 1}
    # This test's own says nothing of itself, and counts as one; an earlier test may have left another.
    assert 33 + 1 <= found.most <= 33 + 4
    assert 0 < found.room < 1000


@pytest.mark.flow
@pytest.mark.real_time
def test_probes_say_where_there_is_no_room(gateway: Gateway, servers: Urls) -> None:
    greedy = name_of("web", most=5000, process="1@elsewhere")
    with psycopg.connect(servers.database, application_name=greedy):
        said = requests.get(gateway.url + "/readyz", timeout=5)
    assert (said.status_code, said.json()["status"]) == (200, "degraded")
    assert said.json()["connections"]["most"] > 5000 > said.json()["connections"]["room"]

    def whole() -> bool:
        return "connections" not in requests.get(gateway.url + "/readyz", timeout=5).json()

    wait_for(whole, seconds=10, what="there is room again")
