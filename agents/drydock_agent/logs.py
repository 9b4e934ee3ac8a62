"""What the agent prints: one line per event on standard error, for people or as JSON, of a bounded length."""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import time
from contextlib import suppress
from datetime import datetime, timezone
from types import TracebackType
from typing import Any

FORMATS = ("text", "json")
# What a line says besides its sentence, where whoever logs gives it as `extra`.
FIELDS = ("request_id", "trace_id", "order_id")
MOST_CHARACTERS = 2_000
MOST_OF_AN_EXCEPTION = 8_000
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
UTC = timezone.utc

log = logging.getLogger("drydock_agent")


class Text(logging.Formatter):
    """`time LEVEL sentence`, then the fields; what was raised stands below."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
        self.converter = time.gmtime

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        return _plain(_cut(super().formatMessage(record)) + fields)


class Json(logging.Formatter):
    """An object a line: `time`, `level`, `logger`, `event` (the sentence), the fields, `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _cut(record.getMessage()),
            **_fields(record),
        }
        if record.exc_info and record.exc_info[0] is not None:
            said["exception"] = self.formatException(record.exc_info)[-MOST_OF_AN_EXCEPTION:]
        return json.dumps(said)


class Lines(logging.StreamHandler):  # type: ignore[type-arg]
    """Standard error; what cannot be made a line is left out, and no traceback of `logging`."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's own name
        # Standard error may be gone: then there is nobody to say it to.
        with suppress(OSError, ValueError):
            self.stream.write(self.format(_unwritable(record)) + self.terminator)


def log_to_stderr(level: str, style: str) -> None:
    """From here on every line is in this style: those of libraries, and what nobody caught."""
    root = logging.getLogger()
    # Until the settings were read the style may have been another one.
    handler = next((one for one in root.handlers if isinstance(one, Lines)), None) or Lines()
    handler.setFormatter(Json() if style == "json" else Text())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    if handler in root.handlers:
        root.setLevel(level.upper())
    logging.getLogger("urllib3").setLevel(logging.WARNING)
    if style == "json":
        _say_what_python_would_print()


def _say_what_python_would_print() -> None:
    logging.captureWarnings(capture=True)

    def raised(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            log.critical("Uncaught: %s.", error, exc_info=(kind, error, trace))

    def raised_in_a_thread(found: threading.ExceptHookArgs) -> None:
        if found.exc_value is not None:
            raised(found.exc_type, found.exc_value, found.exc_traceback)

    sys.excepthook = raised
    threading.excepthook = raised_in_a_thread


def _unwritable(record: logging.LogRecord) -> logging.LogRecord:
    words = f"A line of {record.name} could not be written (line {record.lineno})."
    return logging.LogRecord(record.name, logging.ERROR, record.pathname, record.lineno, words, (), None)


def _fields(record: logging.LogRecord) -> dict[str, str]:
    found = {name: getattr(record, name, "") for name in FIELDS}
    return {name: _cut(str(value)) for name, value in found.items() if value}


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"


def _plain(text: str) -> str:
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)
