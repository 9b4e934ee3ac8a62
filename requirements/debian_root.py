"""Makes a Debian root file system: `python requirements/debian_root.py TARGET [PACKAGE …]`, a folder or a tar file.

It has the release of this machine, from the mirrors of this machine's own apt sources, and apt itself. Needs root and
mmdebstrap.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

LINE = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
# What no program reads. Licences stay.
LEFT_OUT = ("/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*", "/usr/share/doc/*")


def distribution() -> str:
    """Return the id of this machine's distribution: `debian`, `ubuntu`."""
    return platform.freedesktop_os_release()["ID"]


def sources() -> list[str]:
    """Return this machine's apt sources of its distribution, not those of others, as lines without `deb`."""
    command = ["apt-get", "indextargets", "--format", LINE, "Created-By: Packages"]
    said = subprocess.check_output([*command, f"Origin: {distribution().capitalize()}"], text=True)
    return sorted(set(said.splitlines()))


def make(target: Path, packages: Iterable[str], variant: str) -> None:
    """Write the root file system with these packages to a folder or a tar file. `variant` is one of mmdebstrap's."""
    lines = sources()
    release = min((line.split()[1] for line in lines), key=len)
    command = ["mmdebstrap", "--quiet", f"--variant={variant}", f"--include={','.join(packages)}"]
    command += ['--aptopt=Apt::Install-Recommends "false"']
    command += [f"--dpkgopt=path-exclude={path}" for path in LEFT_OUT]
    command += ["--dpkgopt=path-include=/usr/share/doc/*/copyright"]
    subprocess.run([*command, release, str(target), *(f"deb {line}" for line in lines)], check=True)


if __name__ == "__main__":
    make(Path(sys.argv[1]), sys.argv[2:], "minbase")
