"""The operating system. Only this module chooses between POSIX and Windows.

`system` covers clocks, folders, permissions and the service manager. `processes` runs hooks, and is imported at its
first use. Both modules of a pair have the same functions.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from drydock_agent.lazy_import import LazyImport

if TYPE_CHECKING or sys.platform != "win32":
    from drydock_agent.platforms import posix as system
else:
    from drydock_agent.platforms import windows as system

if TYPE_CHECKING:
    from drydock_agent.platforms import posix_processes as processes
else:
    processes = LazyImport(f"{system.__name__}_processes")

__all__ = ["processes", "system"]
