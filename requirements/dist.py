"""Builds what a server and a machine install: `python requirements/dist.py [FOLDER]`, which is `dist` by default.

The folder holds both distributions as wheels and as sources; for each a file of requirements, which is its lock and the
wheel, all by hash, so that no index is ever asked for a package of our names; and SHA256SUMS.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from hashlib import sha256
from pathlib import Path

from fleet.dashboard.agent_package import METADATA, is_packed, pack

ROOT = Path(__file__).resolve().parent.parent
# By distribution: where it lies, the lock of what it needs, and the extras that the lock covers.
AGENT = "agent"
SOURCES = {AGENT: (ROOT / "agents", "agent.txt", "[redis,signed]"), "fleet": (ROOT, "base.txt", "")}


def digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def build(source: Path, folder: Path) -> None:
    """The sources, and from those the wheel; by the build backend of our lock."""
    command = [sys.executable, "-m", "uv", "build", "--quiet", "--no-build-isolation", "--python", sys.executable]
    subprocess.run([*command, "--out-dir", str(folder), str(source)], cwd=ROOT, check=True)


def pack_as_served(wheel: Path) -> None:
    """Pack the agent's wheel again, byte for byte as a backend serves it to machines."""
    _, version, *_ = wheel.name.split("-")
    with zipfile.ZipFile(wheel) as built:
        files = {name: built.read(name) for name in built.namelist() if is_packed(name)}
        metadata = {name: built.read(f"drydock_agent-{version}.dist-info/{name}") for name in METADATA}
    wheel.write_bytes(pack(version, files, metadata))


def stated(wheel: Path, extras: str = "") -> str:
    """A line that installs the wheel, from the folder that the line's file is in."""
    return f"./{wheel.name}{extras} --hash=sha256:{digest(wheel)}\n"


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0] if arguments else ROOT / "dist").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    # Files of an earlier version would be installed together with this one's.
    for old in (*folder.glob("drydock_*"), *folder.glob("drydock-*.txt"), folder / "SHA256SUMS"):
        old.unlink(missing_ok=True)
    for source, _, _ in SOURCES.values():
        build(source, folder)
    wheels = {name: next(folder.glob(f"drydock_{name}-*.whl")) for name in SOURCES}
    pack_as_served(wheels[AGENT])
    for name, (_, lock, extras) in SOURCES.items():
        # The backend speaks by the agent's code, and hands the agent out.
        needed = stated(wheels[name], extras) + (stated(wheels[AGENT]) if name != AGENT else "")
        (folder / f"drydock-{name}.txt").write_text(needed + (ROOT / "requirements" / lock).read_text())
    built = sorted(path for path in folder.glob("drydock[_-]*"))
    sums = "".join(f"{digest(path)}  {path.name}\n" for path in built)
    (folder / "SHA256SUMS").write_text(sums)
    print(sums, end="")
    for wheel in wheels.values():
        print(stated(wheel), end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
