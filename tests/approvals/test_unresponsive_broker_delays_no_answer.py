"""Approvals with an unresponsive broker: the approver gets the answer after the commit, without waiting for hints."""

import os
import socket
import subprocess
import sys

from django.conf import settings

HINTS = """
import time
import django
django.setup()
import fleet.celery
from fleet.operations import wake_up
began = time.monotonic()
wake_up.prepare_hints()
for number in range(2000):
    wake_up.hint_approval(number)
print(time.monotonic() - began, flush=True)
time.sleep(60)
"""


def test_silent_broker_delays_no_caller() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "fleet.settings",
            "DATABASE_URL": "postgresql://127.0.0.1:1/none",
            "REDIS_URL": f"redis://127.0.0.1:{silent.getsockname()[1]}/0",
            "SECRET_KEY": "for this test only",
        }
        silent.settimeout(30)
        with subprocess.Popen(
            [sys.executable, "-c", HINTS], env=environment, cwd=settings.BASE_DIR, stdout=subprocess.PIPE, text=True
        ) as child:
            try:
                # It is asked, and never answers.
                connection, _ = silent.accept()
                with connection:
                    assert float(child.stdout.readline()) < 1
            finally:
                child.kill()
