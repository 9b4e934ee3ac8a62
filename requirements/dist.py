"""Builds what a server and a machine install: `python requirements/dist.py [FOLDER]`, which is `dist` by default.

The folder holds both distributions as wheels and as sources; for each a file of requirements, which is its lock and the
wheel, all by hash, so that no index is ever asked for a package of our names; the agent's packages, if `packages.py`
has built them; and SHA256SUMS. A library that is published as sources only is built here: pip would build it with a
setuptools that no hash covers.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from hashlib import sha256
from pathlib import Path

from fleet.dashboard.agent_package import METADATA, PACKAGES, is_packed, pack

ROOT = Path(__file__).resolve().parent.parent
# By distribution: where it lies, the lock of what it needs, and the extras that the lock covers.
AGENT = "agent"
SOURCES = {AGENT: (ROOT / "agents", "agent.txt", "[redis,signed]"), "fleet": (ROOT, "base.txt", "")}
# Published as sources only.
SOURCES_ONLY = "http-ece"
PINNED = re.compile(rf"^{SOURCES_ONLY}==(?:.*\\\n)*.*\n", re.MULTILINE)


def digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def clear(folder: Path) -> None:
    """Remove the files of an earlier build: they would be installed together with this one's."""
    for old in (*folder.glob("drydock[_-]*"), *folder.glob("http_ece-*"), folder / "SHA256SUMS"):
        old.unlink(missing_ok=True)


def build(name: str, folder: Path) -> Path:
    """Build the sources, and from those the wheel, by the build backend of our lock; return the wheel."""
    source, _, _ = SOURCES[name]
    command = [sys.executable, "-m", "uv", "build", "--quiet", "--no-build-isolation", "--python", sys.executable]
    subprocess.run([*command, "--out-dir", str(folder), str(source)], cwd=ROOT, check=True)
    # uv writes one.
    (folder / ".gitignore").unlink(missing_ok=True)
    wheel = next(folder.glob(f"drydock_{name}-*.whl"))
    if name == AGENT:
        pack_as_served(wheel)
    return wheel


def pack_as_served(wheel: Path) -> None:
    """Pack the agent's wheel again, byte for byte as a backend serves it to machines."""
    _, version, *_ = wheel.name.split("-")
    with zipfile.ZipFile(wheel) as built:
        files = {name: built.read(name) for name in built.namelist() if is_packed(name)}
        metadata = {name: built.read(f"drydock_agent-{version}.dist-info/{name}") for name in METADATA}
    wheel.write_bytes(pack(version, files, metadata))


def build_library(lock: str, folder: Path) -> Path:
    """Build the library that is published as sources only, from sources of the hash that the lock states; its wheel."""
    pinned = PINNED.search(lock)
    if pinned is None:
        raise SystemExit(f"The lock names no {SOURCES_ONLY}.")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(pinned[0])
        file.flush()
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
        command += ["--no-cache-dir", "--require-hashes", "--wheel-dir", str(folder), "-r", file.name]
        # The same bytes at each build.
        subprocess.run(command, check=True, env=os.environ | {"SOURCE_DATE_EPOCH": "315532800"})
    return next(folder.glob(f"{SOURCES_ONLY.replace('-', '_')}-*.whl"))


def write_sums(folder: Path) -> str:
    """Write SHA256SUMS of the files in this folder, and return its text."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != "SHA256SUMS")
    sums = "".join(f"{digest(path)}  {path.name}\n" for path in files)
    (folder / "SHA256SUMS").write_text(sums)
    return sums


def stated(wheel: Path, extras: str = "") -> str:
    """A line that installs the wheel, from the folder that the line's file is in."""
    return f"./{wheel.name}{extras} --hash=sha256:{digest(wheel)}\n"


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0] if arguments else ROOT / "dist").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    clear(folder)
    wheels = {name: build(name, folder) for name in SOURCES}
    # Packages of the agent, which the backend's distribution holds: `make packages` builds them.
    for path in PACKAGES.glob("drydock-agent*"):
        shutil.copy(path, folder)
    for name, (_, lock, extras) in SOURCES.items():
        # The backend speaks by the agent's code, and hands the agent out.
        needed, pins = stated(wheels[name], extras), (ROOT / "requirements" / lock).read_text()
        if name != AGENT:
            needed += stated(wheels[AGENT]) + stated(build_library(pins, folder))
            pins = PINNED.sub("", pins)
        (folder / f"drydock-{name}.txt").write_text(needed + pins)
    print(write_sums(folder), end="")
    for wheel in wheels.values():
        print(stated(wheel), end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
