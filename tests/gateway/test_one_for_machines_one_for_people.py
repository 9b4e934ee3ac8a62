"""The proxy of docker-compose.yml with `docs/admin/scale.md`: one process for machines and one for people."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests

from tests.nginx import OF_COMPOSE, played_here, replaced, running_nginx
from tests.processes import ROOT, free_port

pytestmark = [pytest.mark.flow, pytest.mark.real_time]

PAGES = ("/", "/history/", "/api/v1/events/", "/stream", "/api/v1/stream", "/agent/v1/enrol")
CALLS = ("/agent/v1/reports", "/agent/v1/orders?wait=40")


@contextmanager
def answering(name: str) -> Iterator[int]:
    """Something that answers everything with this name; its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(name)))
            self.end_headers()
            self.wfile.write(name.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def configuration(folder: Path, port: int, machines: int, people: int) -> str:
    """The file of the containers, with the upstreams that the page shows in place of its own."""
    page = (ROOT / "docs" / "admin" / "scale.md").read_text(encoding="utf-8")
    found = re.search(r"### One for machines, one for people.*?```nginx\n(.*?)```", page, re.DOTALL)
    assert found is not None
    shown = replaced(found[1], {"127.0.0.1:8000": f"127.0.0.1:{machines}", "127.0.0.1:8001": f"127.0.0.1:{people}"})
    text, count = re.subn(r"upstream \w+ \{.*?\n    \}\n", "", OF_COMPOSE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert count == 2
    return played_here(text.replace("http {\n", f"http {{\n{shown}", 1), folder, port)


def test_each_has_its_own_process_and_the_other_one_where_that_is_gone(tmp_path: Path) -> None:
    port = free_port()

    def answers(paths: tuple[str, ...]) -> set[str]:
        return {requests.get(f"http://127.0.0.1:{port}{path}", timeout=10).text for path in paths}

    with answering("machines") as machines:
        with (
            answering("people") as people,
            running_nginx(configuration(tmp_path, port, machines, people), tmp_path, port),
        ):
            assert (answers(PAGES), answers(CALLS)) == ({"people"}, {"machines"})
        (tmp_path / "later").mkdir()
        with running_nginx(configuration(tmp_path, port, machines, free_port()), tmp_path / "later", port):
            assert (answers(PAGES), answers(CALLS)) == ({"machines"}, {"machines"})
