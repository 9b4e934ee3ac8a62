"""Hooks in a ConfigMap of Kubernetes, whose modes kubelet decides: its folder can always be written by everybody."""

from __future__ import annotations

import os
import re
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
# Where kubelet writes the files of a ConfigMap on the node: below a folder that only root may enter.
_CONFIG_MAP = re.compile(r"/pods/[^/]+/volumes/kubernetes\.io~configmap/[^/]+")


def is_in_config_map(path: Path) -> bool:
    """Return whether this path, with links followed, is in a ConfigMap that kubelet mounted read-only.

    Read-only alone is no protection: the sandbox of the agent's unit shows it a world-writable folder as read-only, and
    so does a bind mount, while other users can write to the folder elsewhere.
    """
    try:
        real = path.resolve()
        if not os.statvfs(real).f_flag & os.ST_RDONLY:
            return False
        mounts = [line.split(" ") for line in _MOUNTS.read_text("utf-8", "surrogateescape").splitlines()]
    except OSError:
        return False
    # Fields: folder in the file system, mount point. The longest mount point counts, and of two equal ones the later.
    roots = {mount[4]: mount[3] for mount in mounts if len(mount) > 4 and real.is_relative_to(mount[4])}
    return bool(roots) and _CONFIG_MAP.search(roots[max(roots, key=len)]) is not None
