"""A batch as it is written down: its bodies and observations in one statement, whatever its size.

What is little goes along with the statement. What is much is copied into a temporary table of this connection first,
which costs more for a commit and a fraction for each row.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import psycopg

from fleet.domain.intake.documents import Document
from fleet.domain.reason import as_json
from fleet.models import DocumentBody, Observation, driver
from fleet.operations.intake.keep import KeptReport, data_of

# In the order in which rows are put down here. A body stands with the first of the rows that point to it.
COLUMNS = {
    "machine_id": "int8",
    "epoch": "int4",
    "seq": "int8",
    "kind": "text",
    "at": "timestamptz",
    "machine_at": "timestamptz",
    "document_id": "text",
    "incarnation": "int8",
    "data": "text",
    "flag": "text",
    "body": "bytea",
    "readable": "bool",
    "flags": "text",
}
NAMES, TYPES = ", ".join(COLUMNS), tuple(COLUMNS.values())
# From so many rows on they are copied: measured with `python -m bench ingest`.
COPIED = 80

MAKE = f"""
    CREATE TEMPORARY TABLE IF NOT EXISTS drydock_stage
        ({", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())}) ON COMMIT DELETE ROWS
"""
COPY = f"COPY pg_temp.drydock_stage ({NAMES}) FROM STDIN (FORMAT BINARY)"
COPIED_ROWS = "SELECT * FROM pg_temp.drydock_stage"
GIVEN_ROWS = f"SELECT * FROM unnest({', '.join(f'%s::{kind}[]' for kind in TYPES)})"
# Bodies in the order of their hashes: two processes that keep the same ones wait for each other, never in a circle.
MERGE = f"""
    WITH stage ({NAMES}) AS MATERIALIZED ({{rows}}),
    bodies AS (
        INSERT INTO {DocumentBody._meta.db_table} (hash, body, readable, flags, first_received_at)
        SELECT document_id, body, readable, flags::jsonb, %s FROM stage
        WHERE body IS NOT NULL
              AND NOT EXISTS (SELECT FROM {DocumentBody._meta.db_table} AS known WHERE known.hash = document_id)
        ORDER BY document_id COLLATE "C"
        ON CONFLICT DO NOTHING RETURNING hash
    ), observations AS (
        INSERT INTO {Observation._meta.db_table}
            (machine_id, epoch, seq, kind, at, machine_at, document_id, incarnation, data, flag, received_at)
        SELECT machine_id, epoch, seq, kind, at, machine_at, document_id, incarnation, data::jsonb, flag, %s FROM stage
        ON CONFLICT DO NOTHING RETURNING machine_id, epoch, seq
    )
    SELECT (SELECT array_agg(hash) FROM bodies),
           (SELECT CASE WHEN count(*) < %s THEN array_agg(ARRAY[machine_id, epoch, seq]) END FROM observations),
           (SELECT count(*) FROM observations)
"""
MERGE_COPIED, MERGE_GIVEN = MERGE.format(rows=COPIED_ROWS), MERGE.format(rows=GIVEN_ROWS)


def keep(
    rows: Sequence[KeptReport], bodies: Mapping[str, bytes], documents: Mapping[str, Document], now: datetime
) -> tuple[list[KeptReport], set[str]]:
    """Write down these reports, which are in the order of their keys, and the bodies that they bring, each once.

    Returns the reports that were written, which are all, unless somebody went past their spools (a part of the table
    has each key once; the whole of it does not), and the hashes of bodies that were never kept before.
    """
    if not rows:
        return [], set()
    staged = list(_staged(rows, bodies, documents))
    with driver.cursor() as cursor:
        if len(staged) < COPIED:
            given = map(driver.array, zip(*staged, strict=True))
            cursor.execute(MERGE_GIVEN, [*given, now, now, len(rows)])
        else:
            _copy(cursor, staged)
            cursor.execute(MERGE_COPIED, [now, now, len(rows)])
        new_hashes, written, count = cursor.fetchone() or (None, None, 0)
    if count == len(rows):
        return list(rows), set(new_hashes or ())
    keys = {tuple(key) for key in written or ()}
    return [row for row in rows if row.key in keys], set(new_hashes or ())


def _staged(
    rows: Sequence[KeptReport], bodies: Mapping[str, bytes], documents: Mapping[str, Document]
) -> Iterable[tuple[Any, ...]]:
    put: set[str] = set()
    for row in rows:
        report, named = row.report, row.document_hash
        body, readable, flags = None, None, None
        if named is not None and named in bodies and named not in put:
            put.add(named)
            document = documents[named]
            body, readable, flags = bodies[named], document.readable, _flags(document)
        yield (
            row.machine_id,
            row.epoch,
            report.seq,
            report.kind,
            report.at,
            report.machine_at,
            named,
            row.incarnation,
            data_of(report.data),
            report.kept_flag,
            body,
            readable,
            flags,
        )


def _flags(document: Document) -> str:
    return json.dumps(as_json(document.flags)) if document.flags else "[]"


def _copy(cursor: psycopg.Cursor[Any], staged: Collection[tuple[Any, ...]]) -> None:
    cursor.execute(MAKE)
    with cursor.copy(COPY) as copy:
        copy.set_types(TYPES)
        for row in staged:
            copy.write_row(row)
