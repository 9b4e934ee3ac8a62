"""The machine's own limits, to hold the other figures against."""

from __future__ import annotations

import hashlib
import itertools
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import psycopg

from bench import load
from bench.stage import Stage
from bench.table import Line, number

SECONDS = 2.0
ROWS = 2_000


def measure(stage: Stage) -> list[Line]:
    """Measure fdatasync/s on the database's disk, COPY → stage → ON CONFLICT rows/s, and bare ASGI requests/s."""
    return [
        Line("fdatasync of 8 KiB", f"{number(fdatasync(stage))}/s"),
        Line("COPY → stage → ON CONFLICT", f"{number(copied(stage))} rows/s", f"{ROWS} rows a commit, two indexes"),
        Line("bare ASGI, 64 connections", f"{number(bare(stage))}/s", "load generator on the same cores"),
    ]


def fdatasync(stage: Stage) -> float:
    path = stage.folder / "fdatasync"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    began, count = time.perf_counter(), 0
    try:
        while time.perf_counter() < began + SECONDS:
            os.pwrite(descriptor, b"x" * 8192, (count % 1024) * 8192)
            os.fdatasync(descriptor)
            count += 1
        return count / (time.perf_counter() - began)
    finally:
        os.close(descriptor)
        path.unlink()


def copied(stage: Stage, seconds: float = SECONDS) -> float:
    now, count = datetime.now(UTC), 0
    columns = "machine bigint, epoch int, seq bigint, kind text, at timestamptz, hash text"
    with psycopg.connect(stage.database_url) as connection:
        connection.execute(
            f"CREATE TABLE bench_rows (id bigserial PRIMARY KEY, {columns}, UNIQUE (machine, epoch, seq))"
        )
        connection.execute(f"CREATE TEMP TABLE bench_stage ({columns}) ON COMMIT DELETE ROWS")
        connection.commit()
        hashes = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(ROWS)]
        began = time.perf_counter()
        for seq in itertools.count():
            if time.perf_counter() > began + seconds:
                break
            with connection.cursor() as cursor:
                with cursor.copy("COPY bench_stage FROM STDIN") as copy:
                    for machine in range(ROWS):
                        copy.write_row((machine, 1, seq, "document", now, hashes[machine]))
                cursor.execute(
                    "INSERT INTO bench_rows (machine, epoch, seq, kind, at, hash) SELECT * FROM bench_stage"
                    " ON CONFLICT (machine, epoch, seq) DO NOTHING"
                )
            connection.commit()
            count += ROWS
        rate = count / (time.perf_counter() - began)
        connection.execute("DROP TABLE bench_rows")
        connection.commit()
    return rate


def bare(stage: Stage) -> float:
    port = stage.granian("bench.bare:application")
    body = b'{"seq": 1, "kind": "document", "data": {"body": "%s"}}' % (b"x" * 200)
    requests: list[Iterator[bytes]] = [itertools.repeat(load.post("/", body)) for _ in range(64)]
    return load.run(port, requests, SECONDS).rate
