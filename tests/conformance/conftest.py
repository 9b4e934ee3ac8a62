"""The simulator at 169.254.169.254:80 of a network namespace, as a machine at Azure has its metadata service."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.namespaces import Namespace, missing
from tests.processes import running, wait_for
from tests.simulator.asking import west_norway

ADDRESS = "169.254.169.254"
MACHINE = "WestNO_0"
# One call from within: what a program on the machine would do, with the standard library alone.
CALL = """
import json, sys, urllib.request
method, url, body = sys.argv[1:]
request = urllib.request.Request(url, data=body.encode() or None, method=method)
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
print(opener.open(request, timeout=10).read().decode())
"""


class OnAzure:
    """A machine at Azure: programs run on it unmodified, and `control` plays Azure."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace

    def control(self, method: str, call: str, body: Any = None) -> Any:
        """One control call, as in the simulator's documentation; the decoded answer."""
        text = "" if body is None else json.dumps(body)
        url = f"http://{ADDRESS}/control/{call}"
        return json.loads(self.namespace.run(sys.executable, "-c", CALL, method, url, text, env=environment()))

    def create(self, **fields: Any) -> str:
        """Announce an event of the machine's set; its EventId."""
        return str(self.control("POST", "events", {"set": "west", "resources": [MACHINE], **fields})["EventId"])

    def event(self, event_id: str) -> Any:
        return self.control("GET", f"events/{event_id}")

    def posts(self) -> Any:
        return self.control("GET", "log?method=POST")


def environment(**more: str) -> dict[str, str]:
    """Ours without any proxy: the programs of others would honour it."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return {**kept, **more}


@pytest.fixture
def on_azure(tmp_path: Path) -> Iterator[OnAzure]:
    """Microsoft's sample machine WestNO_0, alone in a namespace with its metadata service."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    fleet = tmp_path / "fleet.json"
    fleet.write_text(json.dumps(west_norway()), encoding="utf-8")
    with Namespace(f"{ADDRESS}/32") as namespace:
        command = [sys.executable, "-m", "azure_simulator", "--fleet", str(fleet), "--as-vm", MACHINE]
        command += ["--listen", f"{ADDRESS}:80"]
        with running(namespace.command(*command), environment={}, log=tmp_path / "simulator.log") as simulator:
            wait_for(lambda: "listening on" in simulator.said(), seconds=20, what="the simulator listens")
            yield OnAzure(namespace)
