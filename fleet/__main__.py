"""Command line `drydock-fleet COMMAND` with Django's and Drydock's commands; also used by `manage.py`."""

import os
import sys
from importlib.metadata import version

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line


def main() -> None:
    """Run the command in `sys.argv`, and exit with an error status if it fails."""
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
