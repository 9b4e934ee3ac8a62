"""The command line: `drydock-fleet COMMAND`, with Django's commands and ours; in the source tree `manage.py`, too."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line


def main() -> None:
    """Runs what `sys.argv` says; ends the process where that has failed."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleet.settings")
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"{version('drydock-fleet')}\n")
        return
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        # A setting is wrong: its one sentence helps, where it was found does not.
        sys.exit(str(error))


if __name__ == "__main__":
    main()
