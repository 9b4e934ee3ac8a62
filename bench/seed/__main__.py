"""`python -m bench.seed`: fill an empty database, named by DATABASE_URL, with a large fleet."""

import os
import sys

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleet.settings")
django.setup()

from bench.seed.command import Command  # noqa: E402 - it imports models

Command().run_from_argv(["python -m", "bench.seed", *sys.argv[1:]])
