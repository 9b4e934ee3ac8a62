"""Python start-up file that sets a process's clock ahead by the seconds in the file named by WRONG_CLOCK.

`datetime.now` and `time.time` are wrong in every process with this folder on its PYTHONPATH. Its monotonic clock stays
right, as on a server whose clock an administrator sets.
"""

import ctypes
import datetime
import gc
import os
import time
from pathlib import Path

FILE = Path(os.environ["WRONG_CLOCK"])
real_now, real_utcnow, real_time = datetime.datetime.now, datetime.datetime.utcnow, time.time


def ahead() -> float:
    try:
        return float(FILE.read_text() or 0)
    except (OSError, ValueError):
        return 0.0


def now(cls: type[datetime.datetime], tz: datetime.tzinfo | None = None) -> datetime.datetime:
    return real_now(tz) + datetime.timedelta(seconds=ahead())


def utcnow(cls: type[datetime.datetime]) -> datetime.datetime:
    return real_utcnow() + datetime.timedelta(seconds=ahead())


# The type is one of C's, which cannot be written to in any other way.
names = gc.get_referents(datetime.datetime.__dict__)[0]
names["now"], names["utcnow"] = classmethod(now), classmethod(utcnow)
ctypes.pythonapi.PyType_Modified(ctypes.py_object(datetime.datetime))
time.time = lambda: real_time() + ahead()
