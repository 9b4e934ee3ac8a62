"""`GET storage/`: sizes and the archive, for admins."""

from pathlib import Path
from typing import Any

from fleet.audit.retention import GIGABYTE as G
from tests import factories
from tests.api.conftest import Caller, problem
from tests.archive.shelves import folder


def test_the_api_tells_sizes_to_admins_alone(
    fleet: factories.Fleet, admin: Caller, operator: Caller, settings: Any, tmp_path: Path
) -> None:
    settings.ARCHIVE_URL, settings.DATABASE_MAX_GIGABYTES = folder(tmp_path).shown(), 100
    settings.RETENTION_DAYS = {**settings.RETENTION_DAYS, "observations": 30, "entries": None}
    factories.announced(fleet)
    problem(operator.get("storage/"), 403, "not-permitted")
    told = admin.get("storage/").json()
    assert (told["max_size"], told["max_size_is_configured"]) == (100 * G, True)
    assert told["size"] >= told["other_bytes"] + told["documents"] + sum(kind["size"] for kind in told["kinds"])
    kinds = {kind["kind"]: kind for kind in told["kinds"]}
    assert {kind: (kinds[kind]["days"], kinds[kind]["parts"]) for kind in ("entries", "observations")} == {
        "entries": (None, 1),
        "observations": (30, 1),
    }
    assert kinds["entries"]["oldest"] is not None
    # An hour of rows is too little to compute daily growth.
    assert kinds["entries"]["daily_rows"] is None
    assert told["next_archived"] == [] and "course" not in told
    assert told["archive"]["destination"] == folder(tmp_path).shown()
    assert (told["archive"]["files"], told["archive"]["fault"]) == (0, "")
