"""Builds what is installed without a package index: `python requirements/bundle.py [FOLDER] [PYTHON …]`.

The folder, `dist/bundle` by default, holds what `dist.py` makes and every library as a wheel, for this platform and the
stated versions of Python, such as 3.12 (this one by default), with SHA256SUMS. The same lies next to it as a tar file.
`windows-3.12` adds the agent's libraries for that Python on Windows, and the script that installs them.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import dist
from packaging.requirements import Requirement
from packaging.tags import platform_tags
from version import version

from fleet.dashboard.agent_package import INSTALLER

# The oldest Python of the backend.
BACKEND = (3, 11)
INSTALL = "pip install --no-index --find-links . --require-hashes -r drydock-{}.txt"
WINDOWS = "windows-"
ON_WINDOWS = {"sys_platform": "win32", "os_name": "nt", "platform_system": "Windows", "platform_machine": "AMD64"}
SCRIPT = "Install-DrydockAgent.ps1"
INSTALL_ON_WINDOWS = rf"powershell -ExecutionPolicy Bypass -File .\{SCRIPT} -Server https://drydock.example.org"


def environments(python: str, platform: Mapping[str, str] | None = None) -> list[dict[str, str]]:
    """Return what markers are evaluated for. A marker may tell the first patch releases from later ones. `platform` has
    the values of markers on another platform than this one.
    """
    return [{**(platform or {}), "python_version": python, "python_full_version": f"{python}.{n}"} for n in (0, 99)]


def blocks(text: str) -> list[str]:
    """Return the requirements of a lock, a line each, with their markers and hashes."""
    lines = text.replace("\\\n", " ").splitlines()
    # Files of ours are here already.
    return [line for line in lines if line.strip() and not line.startswith(("#", "./"))]


def pinned(text: str, python: str, platform: Mapping[str, str] | None = None) -> list[str]:
    """Return the requirements of a lock that this version of Python needs, without their markers, with their hashes."""
    found = []
    for block in blocks(text):
        stated, *hashes = block.split(" --hash=")
        requirement = Requirement(stated)
        if requirement.marker is None or any(map(requirement.marker.evaluate, environments(python, platform))):
            requirement.marker = None
            found.append(" --hash=".join([str(requirement), *(each.strip() for each in hashes)]))
    return found


def download(requirements: list[str], python: str, folder: Path, platforms: Iterable[str]) -> None:
    """Download the wheels of these requirements for one of these platforms, checked by hash."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--only-binary", ":all:", "--python-version", python, "--implementation", "cp"]
    for platform in platforms:
        command += ["--platform", platform]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(requirements))
        file.flush()
        subprocess.run([*command, "--dest", str(folder), "-r", file.name], check=True)


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0] if arguments else dist.ROOT / "dist" / "bundle").resolve()
    on_windows = [word.removeprefix(WINDOWS) for word in arguments[1:] if word.startswith(WINDOWS)]
    versions = [word for word in arguments[1:] if not word.startswith(WINDOWS)]
    versions = versions or [f"{sys.version_info[0]}.{sys.version_info[1]}"]
    for old in (*folder.glob("*.whl"), folder / SCRIPT):
        old.unlink(missing_ok=True)
    # An earlier build of `make dist` is not taken for this one.
    if (folder.parent / "drydock-fleet.txt").exists():
        dist.clear(folder.parent)
    dist.main([str(folder)])
    for python in versions:
        is_backend = tuple(map(int, python.split("."))) >= BACKEND
        for name in ("fleet", "agent") if is_backend else ("agent",):
            download(pinned((folder / f"drydock-{name}.txt").read_text(), python), python, folder, platform_tags())
    commands = "".join(f"{INSTALL.format(name)}\n" for name in ("fleet", "agent"))
    for python in on_windows:
        lock = (folder / "drydock-agent.txt").read_text()
        download(pinned(lock, python, ON_WINDOWS), python, folder, ["win_amd64"])
    if on_windows:
        (folder / SCRIPT).write_bytes(INSTALLER.read_bytes())
        commands += f"{INSTALL_ON_WINDOWS}\n"
    (folder / "INSTALL.txt").write_text(f"sha256sum --check SHA256SUMS\n{commands}")
    dist.write_sums(folder)
    target = folder.with_name(f"drydock-{version()}.tar")
    with tarfile.open(target, "w") as archive:
        archive.add(folder, arcname=target.stem)
    print(f"\n{target}\n\nIn the unpacked folder, with the pip of a virtual environment:\n\n{commands}", end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
