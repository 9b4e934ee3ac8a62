"""DNS that changes its answer, played with a real name server and with the metadata service's own address listening."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleet.notifications.sender.jobs import HttpJob, SendError
from fleet.notifications.sender.pool import COMMAND, Pool
from tests.namespaces import Namespace, missing
from tests.processes import PYTHON, running, wait_for

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
PROGRAM = str(Path(__file__).with_name("rebinding_dns.py"))
ALLOWED, METADATA = "127.0.0.2", "169.254.169.254"


@pytest.mark.real_time
@pytest.mark.skipif(missing() != "", reason=missing())
def test_the_second_answer_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    (tmp_path / "nsswitch.conf").write_text("hosts: dns\n")
    own = " && ".join(f"mount --bind {tmp_path / name} /etc/{name}" for name in ("resolv.conf", "nsswitch.conf"))
    with Namespace(f"{METADATA}/32") as namespace:
        server = namespace.command(PYTHON, PROGRAM, ALLOWED, METADATA)
        # As in production, but for whom it asks: the process has the system's own resolver.
        inside = namespace.command("unshare", "--mount", "sh", "-c", f'{own} && exec "$@"', "sh", *COMMAND)
        pool = Pool(most=1, command=inside, allow=[f"{ALLOWED}/32"])
        with running(server, environment={}, log=tmp_path / "log") as process:
            wait_for(lambda: "ready" in process.said(), seconds=20, what="the name server listens")
            first, second = (pool.send(HttpJob("GET", "http://changes.example/"), now=NOW) for _ in range(2))
            said = process.said().splitlines()
        pool.close()
    assert (first.ok, first.status) == (True, 204)
    assert (second.error, second.reason) == (SendError.REFUSED_ADDRESS, "azure")
    # The sender resolved the name again for each message, and never connected to the second address.
    assert said == ["ready", f"told {ALLOWED}", f"served {ALLOWED}", f"told {METADATA}"]
