"""Leftover servers: the next start ends those of its folder, and never those of a folder it was copied from."""

import shutil
import signal
import subprocess
from pathlib import Path

from fleet.embedded.folder import is_running, stop_leftover


def test_server_of_the_copied_folder_keeps_running(tmp_path: Path) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    original.mkdir()
    # By its name a server like any other.
    program = Path(shutil.copy(shutil.which("sleep") or "", tmp_path / "postgres"))
    with subprocess.Popen([str(program), "60"], cwd=original) as server:
        try:
            (original / "postmaster.pid").write_text(f"{server.pid}\n/proc/self/cwd\n")
            shutil.copytree(original, copy)
            stop_leftover(copy / "postmaster.pid", "postgres", first=signal.SIGTERM)
            assert is_running(server.pid)
            # Postgres would not start with this file present.
            assert not (copy / "postmaster.pid").exists()
            stop_leftover(original / "postmaster.pid", "postgres", first=signal.SIGTERM)
            assert not is_running(server.pid)
        finally:
            server.kill()
