"""Debian's nginx for tests: the proxies that the project shows, played with this machine's addresses and ports."""

import re
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes import ROOT, Process, running, wait_for

# The proxy of docker-compose.yml, for any number of web processes.
OF_COMPOSE = ROOT / "examples" / "nginx" / "nginx.conf"
SEVERAL = re.compile(r"( *)server web:8000 resolve(.*)\n")


def replaced(text: str, changes: Mapping[str, str]) -> str:
    """The text with all of these changed; each has to be there."""
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def of_compose(folder: Path, upstreams: Sequence[str], port: int) -> str:
    """The proxy of docker-compose.yml on this port; these addresses are what Docker's names would lead to."""
    text, count = SEVERAL.subn(
        lambda match: "".join(f"{match[1]}server {each}{match[2]}\n" for each in upstreams), OF_COMPOSE.read_text()
    )
    assert count == 2
    return played_here(text, folder, port)


def played_here(text: str, folder: Path, port: int) -> str:
    """This text of the proxy of docker-compose.yml on this port, with as many files as this machine's limit allows."""
    here = {"listen 8000;": f"listen 127.0.0.1:{port};", "/tmp/nginx.pid": f"{folder}/pid", "65536": "4096"}
    text = replaced(text, {**here, "32768": "1024", "worker_processes auto;": "worker_processes 2;"})
    return text.replace("http {\n", f"http {{\n{temporary(folder)}\n", 1)


def temporary(folder: Path) -> str:
    """Return settings for folders that nginx may write to: Debian's default folders are root's alone."""
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    return "\n".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)


@contextmanager
def running_nginx(configuration: str, folder: Path, port: int) -> Iterator[Process]:
    """nginx with this configuration, listening on this port of loopback, for the length of a block."""
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if nginx is None:
        pytest.skip("no nginx here (Debian: nginx-light)")
    file = folder / "nginx.conf"
    file.write_text(configuration, encoding="utf-8")
    # As root, nginx may write to its folder for long bodies; for every other user `user root` has no effect.
    command = [nginx, "-p", str(folder), "-c", str(file), "-e", "stderr", "-g", "daemon off; user root;"]
    with running(command, environment={}, log=folder / "nginx.log") as process:
        wait_for(lambda: listening(port) or process.child.poll(), seconds=10, what="nginx listens")
        assert process.child.poll() is None, process.said()
        yield process


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
