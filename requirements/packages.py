"""Builds the agent's packages: `python requirements/packages.py [FOLDER [ARCHITECTURE …]]`.

The folder, `fleet/site/agent` by default, from which a backend serves them, gets a `.deb` and an `.rpm` for each
architecture, such as `aarch64` (this machine's by default), each with its CycloneDX bill. A package holds the wheels of
the agent and of what it needs, with their hashes; its script builds the environment of the machine's own Python from
them. Unit and paths are those of the install command that the backend shows.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesParser
from pathlib import Path
from typing import Any

import bundle
import dist
import sbom
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from version import version

from fleet.dashboard.agent_package import PACKAGES
from fleet.domain.machines.enrolment import SETTINGS_FILE, UNIT

SOURCES = dist.ROOT / "agents" / "packages"
SCRIPTS = ("preinstall", "postinstall", "preremove", "postremove")
HOME = "/opt/drydock-agent.d"
HOOKS = [f"/etc/drydock-agent/hooks{folder}" for folder in ("", "/prepare.d", "/recover.d", "/redis.d")]
# The C library of Red Hat Enterprise Linux 8, Debian 11 and Ubuntu 20.04 is no older than this.
OLDEST_GLIBC, NEWEST_GLIBC = 17, 28
# By architecture, the name that Debian has for it.
DEBIAN_NAMES = {"x86_64": "amd64", "aarch64": "arm64"}
# As macOS calls it.
HERE = platform.machine().replace("arm64", "aarch64")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of package: the Python that it requires, and the versions of Python whose wheels it holds."""

    name: str
    python: str
    depends: tuple[str, ...]
    versions: tuple[str, ...]

    def file_name(self, architecture: str) -> str:
        """Return the name of the package's file, the same for every version: the backend's address of it is stable."""
        if self.name == "deb":
            return f"drydock-agent_{DEBIAN_NAMES[architecture]}.deb"
        return f"drydock-agent.{architecture}.rpm"


KINDS = (
    # The system's own Python, from Ubuntu 22.04 to 26.04 and from Debian 12 on.
    Kind("deb", "python3", ("python3 (>= 3.10)", "python3-venv"), ("3.10", "3.11", "3.12", "3.13", "3.14")),
    # Python of AppStream: that of the system is too old.
    Kind("rpm", "python3.11", ("python3.11",), ("3.11",)),
)


def metadata(wheel: Path) -> Message:
    """Return the metadata of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return BytesParser().parsebytes(archive.read(name))


def needed(wheels: Mapping[str, Message], versions: tuple[str, ...], extras: str) -> set[str]:
    """Return the names of those wheels that the agent needs with these extras: the lock has its build backend, too."""
    found: set[str] = set()
    waiting = [Requirement(f"drydock-agent{extras}")]
    environments = [env for python in versions for env in bundle.environments(python)]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        found.add(name)
        for text in wheels[name].get_all("Requires-Dist", []):
            next_one = Requirement(text)
            if canonicalize_name(next_one.name) not in found and any(
                next_one.marker is None or next_one.marker.evaluate({**env, "extra": extra})
                for env in environments
                for extra in ("", *requirement.extras)
            ):
                waiting.append(next_one)
    return found


def collect_wheels(agent: Path, kind: Kind, architecture: str, folder: Path) -> str:
    """Put the wheels of a package and their requirements into the folder, and return its components."""
    lock = (dist.ROOT / "requirements" / "agent.txt").read_text()
    platforms = [f"manylinux_2_{minor}_{architecture}" for minor in range(NEWEST_GLIBC, OLDEST_GLIBC - 1, -1)]
    for python in kind.versions:
        bundle.download(bundle.pinned(lock, python), python, folder, platforms)
    shutil.copy(agent, folder)
    _, _, extras = dist.SOURCES[dist.AGENT]
    abouts = {wheel: metadata(wheel) for wheel in folder.glob("*.whl")}
    names = needed({canonicalize_name(about["Name"]): about for about in abouts.values()}, kind.versions, extras)
    components = []
    for wheel, about in abouts.items():
        if canonicalize_name(about["Name"]) in names:
            components.append(sbom.library(about, file_name=wheel.name, digest=dist.digest(wheel)))
        else:
            wheel.unlink()
    pins = [
        line for line in bundle.blocks(lock) if canonicalize_name(Requirement(line.split(" --hash=")[0]).name) in names
    ]
    (folder / "requirements.txt").write_text(
        "".join(f"{line}\n" for line in [dist.stated(agent, extras).strip(), *pins])
    )
    return sbom.document(
        name=f"drydock-agent.{kind.name}", version=version(), kind="application", components=components
    )


def contents(kind: Kind, folder: Path) -> list[dict[str, Any]]:
    """Return what nfpm puts into a package. The state folder is left to systemd: for a dynamic user it is a link."""

    def file(source: Path, target: str, mode: int = 0o644, **more: str) -> dict[str, Any]:
        return {"src": str(source), "dst": target, "file_info": {"mode": mode}, **more}

    (folder / "unit").write_text(UNIT)
    wheels = [file(path, f"{HOME}/wheels/{path.name}") for path in sorted((folder / "wheels").iterdir())]
    folders = [{"dst": path, "type": "dir", "file_info": {"mode": 0o755}} for path in (HOME, f"{HOME}/wheels", *HOOKS)]
    return [
        *folders,
        *wheels,
        file(folder / "sbom", f"{HOME}/sbom.cdx.json"),
        file(folder / "unit", "/usr/lib/systemd/system/drydock-agent.service"),
        file(SOURCES / "drydock-agent.env", SETTINGS_FILE, 0o600, type="config|noreplace"),
        file(dist.ROOT / "agents" / "LICENSE", "/usr/share/doc/drydock-agent/copyright"),
    ]


def build(agent: Path, kind: Kind, architecture: str, target: Path) -> None:
    """Build one package of the agent's wheel, and write it and its bill to the folder `target`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "wheels").mkdir()
        bill = collect_wheels(agent, kind, architecture, folder / "wheels")
        (folder / "sbom").write_text(bill)
        for script in SCRIPTS:
            text = (SOURCES / f"{script}.sh").read_text().replace("@PYTHON@", f"/usr/bin/{kind.python}")
            (folder / script).write_text(text)
        description = {
            "name": "drydock-agent",
            "arch": DEBIAN_NAMES[architecture],
            # A development version is older than its release.
            "version": version().replace(".dev", "~dev"),
            "version_schema": "none",
            "section": "admin",
            "maintainer": "Drydock <drydock@example.org>",
            "description": "Forwards Azure Scheduled Events to Drydock and carries approvals back.",
            "license": "Apache-2.0",
            "depends": kind.depends,
            "contents": contents(kind, folder),
            "scripts": {script: str(folder / script) for script in SCRIPTS},
            # The same bytes at each build. Wheels are compressed already.
            "mtime": "1980-01-01T00:00:00Z",
            "deb": {"compression": "none", "triggers": {"interest_noawait": ["/usr/bin/python3"]}},
            "rpm": {"compression": "gzip", "buildhost": "drydock", "requires": {"post": [kind.python]}},
        }
        (folder / "nfpm.yaml").write_text(json.dumps(description))
        built = target / kind.file_name(architecture)
        command = [str(Path(sys.executable).with_name("nfpm")), "package", "--config", str(folder / "nfpm.yaml")]
        subprocess.run(
            [*command, "--packager", kind.name, "--target", str(built)], check=True, stdout=subprocess.DEVNULL
        )
        built.with_name(f"{built.name}.cdx.json").write_text(bill)


def main(arguments: list[str]) -> int:
    target = Path(arguments[0] if arguments else PACKAGES).resolve()
    architectures = arguments[1:] or [HERE]
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        agent = dist.build(dist.AGENT, Path(folder))
        for architecture in architectures:
            for kind in KINDS:
                build(agent, kind, architecture, target)
    for path in sorted(target.iterdir()):
        print(f"{path.stat().st_size:>12,} {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
